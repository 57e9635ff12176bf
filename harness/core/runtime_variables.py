"""What tunes thread pools and kernels of a process from outside: `2 threads, fp32` would not show it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from harness.core.portable import portable

VARIABLES = "runtime variables"
"""Name of the build fact."""

_LIBRARIES = ("ATEN_", "DNNL_", "GOMP_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_", "ORT_", "TORCHINDUCTOR_")
"""OpenMP's and its two implementations' (OpenMP 5.2, chapter 21; libgomp's and LLVM's manuals), MKL's, oneDNN's under
both of its names, PyTorch's, Inductor's, ONNX Runtime's."""

_ALONE = frozenset({"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE"})
"""Of CUDA's, those that change times; others choose a card, which the record names, or say where files lie."""

_OWN = frozenset(
    {
        "KMP_DUPLICATE_LIB_OK",
        "KMP_INIT_AT_FORK",
        "MKL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "ORT_DISABLE_TELEMETRY",
        "TORCHINDUCTOR_CACHE_DIR",
    }
)
"""Set by the harness or by a library itself, whatever the shell has."""


def runtime_variables(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """{VARIABLES: settings as the shell has them}; empty where none is set."""
    names = (name for name in sorted(variables) if name.startswith(_LIBRARIES) or name in _ALONE)
    told = [f"{name}={portable(variables[name])}" for name in names if name not in _OWN]
    return {VARIABLES: ", ".join(told)} if told else {}
