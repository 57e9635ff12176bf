"""The engines that a plan needs, their names, and the engine that serves a case (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import CaseError, MissingInputError
from harness.core.schemas import (
    Case,
    EngineOptions,
    EngineRecord,
    EngineRequest,
    ExportRecord,
    OnnxArtifact,
    Precision,
    ShapeProfile,
)
from harness.core.store import digest_of

Options = Mapping[str, str | int | bool]
"""Of a backend's setting: `profiles` static or dynamic, `fp16_io`, `optimization_level`, `workspace_mib`, …"""

VARIANT = "opset17"
"""Form of the ONNX files that engines are built from: TensorRT 8.6 reads no newer operator set (its release notes)."""

TUNED_BATCH = 32
"""Batch that a dynamic engine is tuned for, or the nearest planned batch."""


@dataclass(frozen=True)
class EnginePlace:
    """Where an engine was built, or is to run: an engine runs nowhere else."""

    tensorrt: str
    gpu: str
    sm: str
    driver: str


def engine_requests(
    cases: Sequence[tuple[Case, Options]], export: ExportRecord, source: Mapping[Precision, OnnxArtifact]
) -> list[EngineRequest]:
    """The engines for the cases of one model, each once, in the order of the cases.

    source: precision of a case → the ONNX file that its engine is built from.
    """
    by_name: dict[str, EngineRequest] = {}
    for case, options in cases:
        dynamic = options.get("profiles") == "dynamic"
        alike = [
            other for other, other_options in cases if other.precision == case.precision and other_options == options
        ]
        shapes = alike if dynamic else [case]
        onnx = source[case.precision]
        request = EngineRequest(
            onnx=onnx.path,
            onnx_sha256=onnx.sha256,
            precision=case.precision,
            profiles=_profiles(export, shapes),
            dynamic=dynamic,
            fp16_io=bool(options.get("fp16_io", False)),
            **_built_by(options),
        )
        by_name.setdefault(engine_name(request), request)
    return list(by_name.values())


def engine_name(request: EngineRequest) -> str:
    """A file name that people can read: `fp16-b8-s128-1a2b3c4d`, `fp16-b1..128-s128-1a2b3c4d`."""
    profiles = list(request.profiles.values())
    batch = _range(profiles, axis=0, sign="b")
    sequence = _range([profile for profile in profiles if len(profile.maximum) == 2], axis=1, sign="s")
    ends = "-fp16io" if request.fp16_io else ""
    digest = digest_of(request.model_dump(mode="json"))[:8]
    return f"{request.precision}-{batch}{f'-{sequence}' if sequence else ''}{ends}-{digest}"


def engine_key(request: EngineRequest, place: EnginePlace) -> str:
    """Hash of everything that decides an engine: it is built again only when this changes."""
    return digest_of(request.model_dump(mode="json"), place.tensorrt, place.gpu, place.sm, place.driver)


def engine_for(
    case: Case, options: Options, export: ExportRecord, records: Iterable[EngineRecord], here: EnginePlace
) -> EngineRecord:
    """The engine that serves a case on this machine.

    Raises MissingInputError where none was built, or only from ONNX files of an earlier export; CaseError naming both
    sides where the only engines belong elsewhere.
    """
    shaped = [record for record in records if serves(record.request, case, options)]
    fitting = [record for record in shaped if record.request.onnx_sha256 in _onnx_hashes(export)]
    if not fitting:
        shape = f"batch {case.batch_size}" + (f", sequence {case.sequence_length}" if case.sequence_length else "")
        earlier = ": those that are there were built from an earlier export" if shaped else ""
        raise MissingInputError(
            f"There is no {case.precision} engine of {case.model} for {shape} ({case.setting}){earlier}.",
            "Run `make engines`, which builds it or says why it cannot.",
        )
    at_home = [record for record in fitting if engine_place(record) == here]
    if at_home:
        return at_home[-1]
    there = engine_place(fitting[-1])
    raise CaseError(
        f"The engine {fitting[-1].engine.path} was built for {_difference(there, here)}.",
        "An engine runs only where it was built: run `make engines` on this machine.",
    )


def engine_place(record: EngineRecord) -> EnginePlace:
    """Where an engine belongs."""
    return EnginePlace(record.tensorrt, record.gpu, record.sm, record.driver)


def serves(request: EngineRequest, case: Case, options: Options) -> bool:
    """Whether an engine of this request runs the case as its setting asks."""
    alike = (request.precision, request.fp16_io) == (case.precision, bool(options.get("fp16_io", False)))
    if not alike or request.dynamic != (options.get("profiles") == "dynamic"):
        return False
    if _built_by(options) != {name: getattr(request, name) for name in _built_by(options)}:
        return False
    return all(_covers(profile, case) for profile in request.profiles.values())


def _onnx_hashes(export: ExportRecord) -> set[str]:
    return {onnx.sha256 for onnx in (*export.onnx.values(), *export.onnx_variants.values())}


def _covers(profile: ShapeProfile, case: Case) -> bool:
    if not profile.minimum[0] <= case.batch_size <= profile.maximum[0]:
        return False
    if case.sequence_length is None or len(profile.maximum) != 2:
        return True
    return profile.minimum[1] <= case.sequence_length <= profile.maximum[1]


def _profiles(export: ExportRecord, cases: Sequence[Case]) -> dict[str, ShapeProfile]:
    batches = sorted({case.batch_size for case in cases})
    lengths = sorted({case.sequence_length for case in cases if case.sequence_length is not None})
    tuned = min(batches, key=lambda batch: (abs(batch - TUNED_BATCH), batch))

    def shape(dims: Sequence[int | str], batch: int, length: int | None) -> tuple[int, ...]:
        return tuple(dim if isinstance(dim, int) else length if dim == "sequence" else batch for dim in dims)  # type: ignore[misc]

    shortest, longest = (lengths[0], lengths[-1]) if lengths else (None, None)
    return {
        spec.name: ShapeProfile(
            minimum=shape(spec.shape, batches[0], shortest),
            optimum=shape(spec.shape, tuned, longest),
            maximum=shape(spec.shape, batches[-1], longest),
        )
        for spec in export.inputs
    }


def _range(profiles: Sequence[ShapeProfile], axis: int, sign: str) -> str:
    if not profiles:
        return ""
    low = min(profile.minimum[axis] for profile in profiles)
    high = max(profile.maximum[axis] for profile in profiles)
    return f"{sign}{low}" if low == high else f"{sign}{low}..{high}"


def _difference(there: EnginePlace, here: EnginePlace) -> str:
    names = ("tensorrt", "gpu", "sm", "driver")
    words = [
        f"{name} {getattr(there, name)}, and this is {getattr(here, name)}"
        for name in names
        if getattr(there, name) != getattr(here, name)
    ]
    return "; ".join(words)


def _built_by(options: Options) -> dict[str, Any]:
    """The builder's part of the options, as a request has it."""
    return {
        "workspace_bytes": _mib(options.get("workspace_mib")),
        "optimization_level": _level(options.get("optimization_level")),
        "hardware_compatible": bool(options.get("hardware_compatible", False)),
        "version_compatible": bool(options.get("version_compatible", False)),
    }


def merged_options(engines: EngineOptions, setting: Options) -> Options:
    """A plan's options for all its engines, overridden by those of a setting."""
    return {**engines.model_dump(exclude_none=True), **setting}


def _mib(value: object) -> int | None:
    return int(value) << 20 if isinstance(value, int) and value else None


def _level(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def onnx_source(export: ExportRecord, precision: Precision, strongly_typed: bool) -> OnnxArtifact:
    """The ONNX file that engines of a precision are built from. MissingInputError where it was not exported.

    With builder flags all floating engines come from the fp32 file; a strongly typed network has the
    precisions of its file. Quantised files are used unchanged.
    """
    own = precision if precision == "int8" or (strongly_typed and precision == "fp16") else "fp32"
    name = f"{own}-{VARIANT}"
    variant = export.onnx_variants.get(name)
    if variant is None and name in export.refused:
        raise MissingInputError(export.refused[name].error, export.refused[name].hint)
    if variant is None:
        raise MissingInputError(
            f"The export of {export.model} has no ONNX file for {precision} engines.",
            "Run `make export` again: the plan has changed since.",
        )
    return variant
