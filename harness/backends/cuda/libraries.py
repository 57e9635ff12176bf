"""CUDA's libraries out of the vendor's Python packages, where the system's loader does not look."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

_LIBRARIES = (
    *("libcudart", "libnvrtc", "libnvJitLink", "libcublasLt", "libcublas", "libcurand", "libcufft"),
    *("libcudnn_graph", "libcudnn_ops", "libcudnn_heuristic", "libcudnn_engines_precompiled"),
    *("libcudnn_engines_runtime_compiled", "libcudnn_cnn", "libcudnn_adv", "libcudnn"),
)
"""Libraries that ONNX Runtime's CUDA provider links or opens, each after its own dependencies."""


def preload() -> list[str]:
    """Load every library of a package into this process; returns the names of the loaded libraries.

    Where CUDA is installed in the system instead, there is nothing to load here, and the loader finds it by itself.
    """
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else list(spec.submodule_search_locations or ())
    files = sorted(file for root in roots for file in Path(root).glob("*/lib/lib*.so.*"))
    loaded = []
    for stem in _LIBRARIES:
        for file in (path for path in files if path.name.startswith(f"{stem}.so.")):
            try:
                ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue  # of another CUDA than the one in use: the provider reports a missing library
            loaded.append(file.name)
    return loaded


def missing_for(library: Path) -> str | None:
    """Why a library cannot be loaded, in the loader's words; None where it can."""
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return None
