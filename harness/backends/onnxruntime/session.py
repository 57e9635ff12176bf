"""A session of ONNX Runtime that has the requested provider, or the reason why not.

By default ONNX Runtime goes on without a provider whose library it cannot load, and Python's wrapper tries the CPU
where a session cannot be made: either would be measured under the name of a GPU.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnxruntime as ort

from harness.backends.base import Batch
from harness.backends.cuda import libraries
from harness.core.errors import CaseError, reason
from harness.core.schemas import TensorSpec
from harness.zoo.quantised_files import FLOATING_PRODUCTS

Provider = tuple[str, Mapping[str, str]]
"""Name and options."""

CUDA = "CUDAExecutionProvider"

_LIBRARIES = {
    CUDA: "libonnxruntime_providers_cuda.so",
    "TensorrtExecutionProvider": "libonnxruntime_providers_tensorrt.so",
}
_CAPTURE = re.compile("graph capture|cuda graph|captur", re.IGNORECASE)


@dataclass(frozen=True)
class SessionRequest:
    """File, providers in order of preference, threads of the CPU provider, and where the profile goes.

    graph: where to write the graph that the session makes from the file, if anywhere. dimensions: extents of the file's
    dynamic axes, by name, where the session serves one shape: ONNX Runtime then computes shapes once, when it loads.
    """

    file: Path
    providers: Sequence[Provider]
    threads: int
    profile: Path
    graph: Path | None = None
    dimensions: Mapping[str, int] = field(default_factory=dict)


def session_options(threads: int) -> Any:
    """The options of every measured session: all optimizations, one operator at a time, floats stay floats."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry(*FLOATING_PRODUCTS)
    return options


def open_session(wanted: SessionRequest) -> Any:
    """A session that profiles itself until end_profiling(). CaseError where it lacks its first provider."""
    options = session_options(wanted.threads)
    options.enable_profiling = True
    options.profile_file_prefix = str(wanted.profile)
    for name, extent in wanted.dimensions.items():
        options.add_free_dimension_override_by_name(name, extent)
    if wanted.graph is not None:
        options.optimized_model_filepath = str(wanted.graph)
        options.log_severity_level = 3  # else it warns that the copy is for this machine alone
    provider = wanted.providers[0][0]
    try:
        with capture_refused():
            session = ort.InferenceSession(
                str(wanted.file),
                options,
                providers=[(name, dict(own)) for name, own in wanted.providers],
                enable_fallback=0,
            )
    except RuntimeError as error:
        # For TensorRT's libraries, Python's wrapper only reports that they are missing.
        why = _missing(provider)
        if why is None:
            raise
        raise _not_obtained(provider, why) from error
    if provider not in session.get_providers():
        raise _not_obtained(provider, _missing(provider) or "the log of this case says why")
    return session


@contextmanager
def capture_refused() -> Iterator[None]:
    """Translate ONNX Runtime's message where a model cannot be captured as a CUDA graph."""
    try:
        yield
    except Exception as error:  # its exceptions have no common base below Exception
        if isinstance(error, CaseError) or not _CAPTURE.search(str(error)):
            raise
        raise CaseError(
            f"ONNX Runtime cannot capture this model as a CUDA graph: {reason(error)}",
            "Choose its setting `plain` (SETTINGS=…; `settings:` in the configuration).",
        ) from error


def dimensions_of(inputs: Sequence[TensorSpec], batch: Batch) -> dict[str, int]:
    """Extents of the dynamic axes by name, as a batch has them; a name that two axes share with different extents is
    left out."""
    extents: dict[str, set[int]] = {}
    for spec in inputs:
        for axis, extent in zip(spec.shape, batch[spec.name].shape, strict=True):
            if isinstance(axis, str):
                extents.setdefault(axis, set()).add(extent)
    return {name: next(iter(own)) for name, own in extents.items() if len(own) == 1}


def _missing(provider: str) -> str | None:
    """The loader's message about the provider's library; None where it loads."""
    folder = Path(ort.__file__).parent / "capi"
    try:
        # The other libraries use functions of it without linking it.
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return f"this build of ONNX Runtime has no GPU providers ({error})"
    return libraries.missing_for(folder / _LIBRARIES[provider])


def _not_obtained(provider: str, reason: str) -> CaseError:
    return CaseError(
        f"ONNX Runtime did not get its {provider}: {reason}.",
        "Install the named library (onnxruntime-gpu has no CUDA, cuDNN or TensorRT), or leave the backend out.",
    )
