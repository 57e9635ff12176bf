"""How pycuda's own build finds CUDA in the builder stage of Dockerfile.cuda; it reads this file from /etc."""

from pathlib import Path

CUDA_INC_DIR = [str(path) for path in Path("/opt/cuda/lib").glob("python3*/site-packages/nvidia/*/include")]
CUDADRV_LIB_DIR = ["/opt/cuda"]
CUDA_ENABLE_CURAND = False
