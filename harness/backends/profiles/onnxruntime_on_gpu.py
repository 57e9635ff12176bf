"""The profiler of onnxruntime on a GPU: its kernels, as CUPTI tells them to torch.profiler.

ONNX Runtime's own profile tells when each node was launched, not how long the GPU took for it; so there are kernels
here and no nodes. CUPTI watches a whole process, whoever launches.
"""

from __future__ import annotations

from pathlib import Path

from harness.backends.base import Job
from harness.backends.onnxruntime_cuda import OnnxRuntimeOnGpu
from harness.backends.profiles.plain import plain_ns, ready
from harness.backends.profiles.torch_operators import operators
from harness.core.schemas.profile_parts import PartsProfile

_NO_LAYERS = (
    "No layers: on a GPU, ONNX Runtime's profile has the times of launching alone. Kernels are told by CUPTI, without "
    "the nodes that launched them."
)


def profile(job: Job, folder: Path, runs: int) -> PartsProfile:
    """Kernels of the case as it is timed, in its CUDA graph if it has one."""
    backend = OnnxRuntimeOnGpu(job)
    ready(backend)
    plain = plain_ns(backend, runs)
    found = operators(backend, folder, runs)
    backend.close()
    return found.alone(plain, _NO_LAYERS)
