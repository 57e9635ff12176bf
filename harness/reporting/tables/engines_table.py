"""Engines that rows loaded: the build cost, the input shapes and the fp32 layers of each (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from harness.core.schemas import (
    EngineRecord,
    ExportRecord,
    Row,
    ShapeProfile,
    Summary,
)
from harness.reporting import units
from harness.reporting.labels import Line, where
from harness.reporting.table import Column, Table, words

Engines = Mapping[str, EngineRecord]
"""Summary.engines: `<slug>/<path below the model's folder>` → the record."""

MAX_NAMED = 3
"""Number of named layers that were kept in fp32; summary.json has all."""


def engine_of(row: Row, export: ExportRecord | None, engines: Engines) -> EngineRecord | None:
    """The engine among the files that a row loaded; None where it loaded none."""
    if export is None:
        return None
    paths = (f"{export.slug}/{path}" for path in row.artifacts)
    return next((engines[path] for path in paths if path in engines), None)


def engines_table(rows: Sequence[Row], export: ExportRecord | None, engines: Engines) -> Table[EngineRecord] | None:
    """One line per engine that any of the rows loaded; None without engines."""
    found = {engine.key: engine for row in rows if (engine := engine_of(row, export, engines))}
    if not found:
        return None
    made = dict.fromkeys(f"TensorRT {engine.tensorrt}, {_flags(engine)}" for engine in found.values())
    return Table(_COLUMNS, list(found.values()), f"Engines, by {' / '.join(made)}:")


def shapes(profiles: Mapping[str, ShapeProfile]) -> str:
    """Range of shapes, once where all inputs share it: `1x128 … 8x128 … 128x128`, or the only shape."""
    return " / ".join(dict.fromkeys(_range(profile) for profile in profiles.values()))


def _range(profile: ShapeProfile) -> str:
    ends = (profile.minimum, profile.optimum, profile.maximum)
    # Minimum, optimum and maximum without duplicates, in order: an optimum is often one of the ends.
    return " … ".join(dict.fromkeys("x".join(map(str, shape)) for shape in ends))


def _kept(layers: Sequence[str]) -> str:
    if not layers:
        return "none"
    more = f", … ({len(layers)})" if len(layers) > MAX_NAMED else ""
    return ", ".join(layers[:MAX_NAMED]) + more


def _flags(engine: EngineRecord) -> str:
    return ", ".join(f"{name} {text}" for name, text in engine.builder.items()) or "its own defaults"


def _by_precision(engine: EngineRecord) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(engine.precisions.items()))


_COLUMNS: Sequence[Column[EngineRecord]] = (
    words("engine", lambda engine: PurePosixPath(engine.engine.path).stem),
    words("precision", lambda engine: engine.request.precision),
    words("profile", lambda engine: shapes(engine.request.profiles)),
    Column("build s", lambda engine: units.significant(engine.build_s)),
    Column("MiB", lambda engine: units.in_mib(engine.engine.size_bytes)),
    Column("layers", lambda engine: str(engine.layers)),
    words("by precision", _by_precision),
    words("kept in fp32", lambda engine: _kept(engine.kept_fp32)),
)


def engine_lines(summary: Summary) -> list[Line]:
    """A line for each engine that a row loaded."""
    found: dict[str, tuple[Row, EngineRecord]] = {}
    for row in summary.rows:
        if engine := engine_of(row, summary.exports.get(row.model), summary.engines):
            found.setdefault(engine.key, (row, engine))
    return [
        {"model": row.model, "weights": row.weights, **_built(one), **where(summary)} for row, one in found.values()
    ]


def _built(engine: EngineRecord) -> Line:
    return {
        "engine": PurePosixPath(engine.engine.path).stem,
        "precision": engine.request.precision,
        "shapes": shapes(engine.request.profiles),
        "build_s": engine.build_s,
        "file_bytes": engine.engine.size_bytes,
        "layers": engine.layers,
        "layers_by_precision": _pairs(engine.precisions),
        "kept_in_fp32": " ".join(engine.kept_fp32),
        "relative_l2": engine.parity.relative_l2,
        "tensorrt": engine.tensorrt,
        "builder": _pairs(engine.builder),
        "gpu": engine.gpu,
        "driver": engine.driver,
    }


def _pairs(found: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(found.items()))
