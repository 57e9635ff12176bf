"""The differences between TensorRT 8.6, 10 and 11: only this module depends on the version.

8.6   flags choose the precision (FP16, BF16 from 10 on, INT8); networks are made with EXPLICIT_BATCH
10    the same flags, deprecated; strongly typed networks beside them
11    no such flags and no EXPLICIT_BATCH: every network is strongly typed, with the precisions of its ONNX file
"""

from __future__ import annotations

import ctypes
from typing import Any

import tensorrt

from harness.backends.tensorrt.engine_request import EnginePlace
from harness.core.errors import ExportError
from harness.core.host import gpu
from harness.core.schemas import EngineRequest, Precision

_FLAGS: dict[Precision, tuple[str, ...]] = {
    "fp32": (),
    "tf32": ("TF32",),
    "fp16": ("FP16",),
    "bf16": ("BF16",),
    # Layers without integer kernels run in fp16, as int8 deployments do.
    "int8": ("INT8", "FP16"),
}

_WITHOUT_CUDA_LIBRARIES = ("EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS")
"""Tactic sources that need neither cuBLAS nor cuDNN."""


def version() -> str:
    """The library's version."""
    return str(tensorrt.__version__)


def strongly_typed() -> bool:
    """True where the precision comes from the ONNX file because there is no flag for it."""
    return not hasattr(tensorrt.BuilderFlag, "FP16")


def make_network(builder: Any) -> Any:
    """An empty network with explicit batch."""
    kinds = tensorrt.NetworkDefinitionCreationFlag
    name = "STRONGLY_TYPED" if strongly_typed() else "EXPLICIT_BATCH"
    flag = getattr(kinds, name, None)
    return builder.create_network(0 if flag is None else 1 << int(flag))


def set_precision(config: Any, precision: Precision) -> None:
    """Allow the requested precision and no other below fp32. ExportError where this version has no flag for it."""
    flags = tensorrt.BuilderFlag
    config.clear_flag(flags.TF32)
    if strongly_typed():
        if precision == "bf16":
            raise _unbuildable(precision)  # the export writes no ONNX file in bf16
        if precision == "tf32":
            config.set_flag(flags.TF32)
        return
    for name in _FLAGS[precision]:
        flag = getattr(flags, name, None)
        if flag is None:
            raise _unbuildable(precision)
        config.set_flag(flag)


def _unbuildable(precision: Precision) -> ExportError:
    return ExportError(
        f"TensorRT {version()} builds no {precision} engines.", f"Leave {precision} out of the tensorrt rows."
    )


def keep_fp32(config: Any, layers: list[Any]) -> None:
    """Compute these layers in fp32, whatever the flags allow. ExportError where no flags choose the precision."""
    if strongly_typed():
        raise ExportError(
            f"TensorRT {version()} computes every layer as the ONNX file says.", "Export another ONNX file."
        )
    config.set_flag(tensorrt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    for layer in layers:
        layer.precision = tensorrt.float32
        for index in range(layer.num_outputs):
            layer.set_output_type(index, tensorrt.float32)


def fp16_ends(network: Any) -> None:
    """Floating inputs and outputs in fp16. ExportError where the network's types are the file's."""
    if strongly_typed():
        raise ExportError(
            f"TensorRT {version()} takes the types of inputs from the ONNX file.", "Leave `fp16io` out of `settings`."
        )
    ends = [network.get_input(index) for index in range(network.num_inputs)]
    ends += [network.get_output(index) for index in range(network.num_outputs)]
    for tensor in ends:
        if tensor.dtype == tensorrt.float32:
            tensor.dtype = tensorrt.float16


def configure(config: Any, request: EngineRequest) -> dict[str, str]:
    """Workspace, optimisation level, compatibility, tactic sources; returns the settings made, in words."""
    configured: dict[str, str] = {}
    if request.workspace_bytes is not None:
        config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, request.workspace_bytes)
        configured["workspace_bytes"] = str(request.workspace_bytes)
    if request.optimization_level is not None:
        config.builder_optimization_level = request.optimization_level
    configured["optimization_level"] = str(config.builder_optimization_level)
    config.profiling_verbosity = tensorrt.ProfilingVerbosity.DETAILED
    if request.hardware_compatible:
        config.hardware_compatibility_level = tensorrt.HardwareCompatibilityLevel.AMPERE_PLUS
        configured["hardware_compatible"] = "AMPERE_PLUS"
    if request.version_compatible:
        config.set_flag(tensorrt.BuilderFlag.VERSION_COMPATIBLE)
        configured["version_compatible"] = "yes"
    sources = _tactic_sources()
    if sources:
        config.set_tactic_sources(sum(1 << int(getattr(tensorrt.TacticSource, name)) for name in sources))
    configured["tactic_sources"] = ", ".join(sources) or "the library's own"
    return configured


def _tactic_sources() -> tuple[str, ...]:
    """The sources to restrict the builder to; empty: its own choice.

    TensorRT 8 asks cuBLAS and cuDNN for tactics, which it loads by name. Where they are missing or do not work, the
    builder would fail on the first layer that needs them; later versions need neither.
    """
    if not hasattr(tensorrt.TacticSource, "CUDNN") or _cudnn_works():
        return ()
    return tuple(name for name in _WITHOUT_CUDA_LIBRARIES if hasattr(tensorrt.TacticSource, name))


def _cudnn_works() -> bool:
    try:
        return int(ctypes.CDLL("libcudnn.so.8").cudnnGetVersion()) >= 8000
    except (OSError, AttributeError):
        return False


class Log(tensorrt.ILogger):  # type: ignore[misc]
    """Keeps the errors."""

    def __init__(self) -> None:
        tensorrt.ILogger.__init__(self)
        self.errors: list[str] = []

    def log(self, severity: Any, message: str) -> None:
        """Called by the library."""
        if severity in (tensorrt.ILogger.INTERNAL_ERROR, tensorrt.ILogger.ERROR):
            self.errors.append(message)


def engine_place_here() -> EnginePlace:
    """TensorRT of this interpreter and the first visible GPU. ImportError without TensorRT, UnavailableError without
    NVML."""
    facts = gpu.facts()
    return EnginePlace(version(), facts.name, facts.sm, facts.driver)
