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
"""What ONNX Runtime's CUDA provider links or opens, each behind what it needs itself."""


def preload() -> list[str]:
    """Load every library that a package brings into this process; names of those that were.

    Where CUDA is installed in the system instead, there is nothing to load here, and the loader finds it by itself.
    """
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else list(spec.submodule_search_locations or ())
    files = sorted(file for root in roots for file in Path(root).glob("*/lib/lib*.so.*"))
    loaded = []
    for stem in _LIBRARIES:
        for file in (found for found in files if found.name.startswith(f"{stem}.so.")):
            try:
                ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue  # of another CUDA, beside the one that is used: the provider says what it misses
            loaded.append(file.name)
    return loaded


def missing_for(library: Path) -> str | None:
    """Why a library cannot be loaded, in the loader's words; None where it can."""
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return None
