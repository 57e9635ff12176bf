"""ONNX → TensorRT engine: parse, configure, build, and check against the fp32 reference before it is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorrt

from harness.backends.tensorrt import versions
from harness.backends.tensorrt.engine_request import EnginePlace, engine_key
from harness.backends.tensorrt.layers import read_layers, weight_precisions
from harness.backends.tensorrt.versions import Log
from harness.core import store
from harness.core.errors import ExportError
from harness.core.layout import ModelFolder
from harness.core.lock import wait_for_lock
from harness.core.safe_files import SizeLimit, read
from harness.core.schemas import Artifact, EngineRecord, EngineRequest, Parity, ShapeProfile

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
        errors = [_parser_error(parser.get_error(index)) for index in range(parser.num_errors)]
        raise ExportError(
            f"TensorRT {versions.version()} does not read {onnx}: {' | '.join(errors or log.errors)}",
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
    profile = builder.create_optimization_profile()
    for name, shapes in profiles.items():
        profile.set_shape(name, shapes.minimum, shapes.optimum, shapes.maximum)
    return profile


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


ParityCheck = Callable[[EngineRecord], Parity | None]
"""Runs a finished engine on the stored inputs; the worst distance from the reference."""

CallTimer = Callable[[Callable[[], Built]], tuple[Built, float]]
"""Calls a function; returns its result and the seconds that it took."""

UNCHECKED = Parity(samples=0, relative_l2=None, max_abs=None, cosine=None, top1_agreement=None, nonfinite=0)


def build_checked(
    folder: ModelFolder,
    request: EngineRequest,
    name: str,
    place: EnginePlace,
    cache: Path,
    *,
    timed: CallTimer,
    check: ParityCheck,
    limit: float | None,
) -> EngineRecord:
    """Build, write, check; where fp16 fails the check, build once more with sensitive layers in fp32. The time of the
    record is that of both builds.

    limit: largest relative L2 distance; None: no limit. An engine that fails even then is kept with the result of the
    check: its rows will be void by their own check.
    """
    record = _built(folder, request, name, place, cache, timed, protect=False)
    parity = check(record) or UNCHECKED
    # A strongly typed network has its file's precisions: building it again would give the same engine.
    mendable = request.precision == "fp16" and not versions.strongly_typed()
    if mendable and limit is not None and not _passes(parity, limit):
        first_s = record.build_s
        record = _built(folder, request, name, place, cache, timed, protect=True)
        record = record.model_copy(update={"build_s": first_s + record.build_s})
        parity = check(record) or UNCHECKED
    return record.model_copy(update={"parity": parity})


def _passes(parity: Parity, limit: float) -> bool:
    return parity.nonfinite == 0 and parity.furthest is not None and parity.furthest <= limit


def _built(
    folder: ModelFolder,
    request: EngineRequest,
    name: str,
    place: EnginePlace,
    cache: Path,
    timed: CallTimer,
    protect: bool,
) -> EngineRecord:
    known = _read(cache)
    built, seconds = timed(lambda: build(request, folder.root / request.onnx, known, protect))
    # After every engine: an interrupted build keeps the cache.
    cache_sha256 = _keep(cache, known, built.timing_cache)
    path = folder.engine(name)
    store.save_bytes(path, built.engine)
    layers = _layers(built.engine)
    return EngineRecord(
        key=engine_key(request, place),
        request=request,
        tensorrt=place.tensorrt,
        gpu=place.gpu,
        sm=place.sm,
        driver=place.driver,
        engine=Artifact(
            path=str(path.relative_to(folder.home)), sha256=store.sha256_file(path), size_bytes=len(built.engine)
        ),
        build_s=seconds,
        parity=UNCHECKED,
        kept_fp32=built.kept_fp32,
        layers=len(layers),
        precisions=weight_precisions(layers),
        timing_cache_sha256=cache_sha256,
        builder=dict(built.builder),
    )


def _read(cache: Path) -> bytes:
    return read(cache, SizeLimit.TRACE) if cache.is_file() else b""


def _keep(cache: Path, known: bytes, grown: bytes) -> str:
    """Save a timing cache that grew from `known`; returns the file's hash. Timings that other builds saved meanwhile
    stay in it."""
    with wait_for_lock(cache.with_suffix(".lock")):
        present = _read(cache)
        store.save_bytes(cache, grown if present == known else merged(present, grown))
        return store.sha256_file(cache)


def merged(present: bytes, grown: bytes) -> bytes:
    """Both timing caches as one; of a kernel that both have timed, the present time. `grown` alone where the present
    cache does not fit."""
    config = _builder(Log()).create_builder_config()
    caches = [config.create_timing_cache(content) for content in (present, grown)]
    if None in caches or not caches[0].combine(caches[1], ignore_mismatch=False):
        return grown
    return bytes(caches[0].serialize())


def _layers(engine: bytes) -> list[Any]:
    import tensorrt  # noqa: PLC0415

    runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.ERROR))
    loaded = runtime.deserialize_cuda_engine(engine)
    if loaded is None:
        raise ExportError(
            "TensorRT does not load the engine that it has just built.", "Is there enough free GPU memory?"
        )
    return read_layers(loaded, tensorrt.LayerInformationFormat.JSON)
