"""One engine, built and checked against the fp32 reference before it is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.backends.tensorrt import versions
from harness.backends.tensorrt.builder import Built, build
from harness.backends.tensorrt.engine_request import EnginePlace, key_of
from harness.backends.tensorrt.layers import inspect, precisions
from harness.core import store
from harness.core.errors import ExportError
from harness.core.layout import ModelFolder
from harness.core.safe_files import Limit, read
from harness.core.schemas import Artifact, EngineRecord, EngineRequest, Parity

Check = Callable[[EngineRecord], Parity | None]
"""Runs a finished engine on the stored inputs; the worst distance from the reference."""

Timed = Callable[[Callable[[], Built]], tuple[Built, float]]
"""Calls a function; returns its result and the seconds that it took."""

UNCHECKED = Parity(samples=0, relative_l2=None, max_abs=None, cosine=None, top1_agreement=None, nonfinite=0)


def build_checked(
    folder: ModelFolder,
    request: EngineRequest,
    name: str,
    place: EnginePlace,
    cache: Path,
    *,
    timed: Timed,
    check: Check,
    limit: float | None,
) -> EngineRecord:
    """Build, write, check; where fp16 fails the check, build once more with sensitive layers in fp32.

    limit: largest relative L2 distance; None: no limit. An engine that fails even then is kept with the result of the
    check: its rows will be void by their own check.
    """
    record = _built(folder, request, name, place, cache, timed, protect=False)
    parity = check(record) or UNCHECKED
    # A strongly typed network has its file's precisions: building it again would give the same engine.
    mendable = request.precision == "fp16" and not versions.strongly_typed()
    if mendable and limit is not None and not _passes(parity, limit):
        record = _built(folder, request, name, place, cache, timed, protect=True)
        parity = check(record) or UNCHECKED
    return record.model_copy(update={"parity": parity})


def _passes(parity: Parity, limit: float) -> bool:
    return parity.nonfinite == 0 and parity.furthest is not None and parity.furthest <= limit


def _built(
    folder: ModelFolder, request: EngineRequest, name: str, place: EnginePlace, cache: Path, timed: Timed, protect: bool
) -> EngineRecord:
    known = read(cache, Limit.TRACE) if cache.is_file() else b""
    built, seconds = timed(lambda: build(request, folder.root / request.onnx, known, protect))
    # After every engine: an interrupted build keeps the cache.
    store.save_bytes(cache, built.timing_cache)
    path = folder.engine(name)
    store.save_bytes(path, built.engine)
    layers = _layers(built.engine)
    return EngineRecord(
        key=key_of(request, place),
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
        precisions=precisions(layers),
        timing_cache_sha256=store.sha256_file(cache),
        builder=dict(built.builder),
    )


def _layers(engine: bytes) -> list[Any]:
    import tensorrt  # noqa: PLC0415

    runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.ERROR))
    loaded = runtime.deserialize_cuda_engine(engine)
    if loaded is None:
        raise ExportError(
            "TensorRT does not load the engine that it has just built.", "Is there enough free GPU memory?"
        )
    return inspect(loaded, tensorrt.LayerInformationFormat.JSON)
