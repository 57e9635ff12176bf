"""ONNX → TensorRT engine: parse, configure, build. Every error is shown whole, and the first cause ends the build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorrt

from harness.backends.tensorrt import versions
from harness.backends.tensorrt.versions import Log
from harness.core.errors import ExportError
from harness.core.schemas import EngineRequest, ShapeProfile

_SENSITIVE = ("NORMALIZATION", "SOFTMAX", "REDUCE")
"""Layers that sum squares or exponentials, which pass fp16's largest number, 65504."""
_SENSITIVE_OPERATIONS = ("POW",)


@dataclass(frozen=True)
class Built:
    """A serialized engine, the timing cache that grew with it, and the decisions of the build."""

    engine: bytes
    timing_cache: bytes
    kept_fp32: tuple[str, ...]
    builder: Mapping[str, str]


def build(request: EngineRequest, onnx: Path, timing_cache: bytes, protect: bool) -> Built:
    """Build one engine on the first visible GPU. Raises ExportError with all messages of the library.

    timing_cache: of earlier builds, empty where there is none. protect: keep normalisations and softmax in fp32.
    """
    log = Log()
    builder = _builder(log)
    network = versions.make_network(builder)
    parser = tensorrt.OnnxParser(network, log)
    if not parser.parse_from_file(str(onnx)):
        found = [_parser_error(parser.get_error(index)) for index in range(parser.num_errors)]
        raise ExportError(
            f"TensorRT {versions.version()} does not read {onnx}: {' | '.join(found or log.errors)}",
            "Export the model again with an older operator set, or leave tensorrt out of its rows.",
        )
    config = builder.create_builder_config()
    versions.set_precision(config, request.precision)
    configured = versions.configure(config, request)
    if request.fp16_io:
        versions.fp16_ends(network)
    kept = _sensitive(network) if protect else []
    if kept:
        versions.keep_fp32(config, kept)
    config.add_optimization_profile(_profile(builder, request.profiles))
    _remember(config, timing_cache)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise ExportError(
            f"TensorRT {versions.version()} built no engine of {onnx}: {' | '.join(log.errors) or 'it gave no reason'}",
            "Smaller shapes, another precision or more free GPU memory may help.",
        )
    grown = config.get_timing_cache().serialize()
    return Built(bytes(engine), bytes(grown), tuple(layer.name for layer in kept), configured)


def _builder(log: Log) -> Any:
    try:
        return tensorrt.Builder(log)
    except TypeError as error:  # how the bindings report a null pointer
        raise ExportError(
            f"TensorRT {versions.version()} has no builder for this machine: {' | '.join(log.errors) or error}",
            "`nvidia-smi` shows whether the GPU can be used; a driver must serve the CUDA that TensorRT was built for.",
        ) from error


def _remember(config: Any, timing_cache: bytes) -> None:
    """Hand over the timing cache of earlier builds. A cache that does not fit (another driver, damaged) costs only
    time: building begins with an empty cache.
    """
    cache = config.create_timing_cache(timing_cache)
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)


def _profile(builder: Any, profiles: Mapping[str, ShapeProfile]) -> Any:
    found = builder.create_optimization_profile()
    for name, one in profiles.items():
        found.set_shape(name, one.minimum, one.optimum, one.maximum)
    return found


def _sensitive(network: Any) -> list[Any]:
    """Layers whose fp16 form may overflow: normalisations, softmax, sums, powers."""
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    return [layer for layer in layers if _is_sensitive(layer) and _is_floating(layer)]


def _is_sensitive(layer: Any) -> bool:
    if layer.type.name in _SENSITIVE:
        return True
    if layer.type.name != "ELEMENTWISE":
        return False
    layer.__class__ = tensorrt.IElementWiseLayer  # the bindings hand out the base class
    return layer.op.name in _SENSITIVE_OPERATIONS


def _is_floating(layer: Any) -> bool:
    return layer.num_outputs > 0 and layer.get_output(0).dtype in (tensorrt.float32, tensorrt.float16)


def _parser_error(error: Any) -> str:
    """One of the parser's errors with the node that it is about."""
    return f"node {error.node()}: {error.desc()}"
