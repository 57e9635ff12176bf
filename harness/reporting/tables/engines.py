"""Engines that rows loaded: what each cost to build, what it takes and what it kept in fp32 (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from harness.core.schemas import EngineRecord, ExportRecord, Profile, Row
from harness.render import units
from harness.reporting.writers.markdown import table

Engines = Mapping[str, EngineRecord]
"""Summary.engines: `<slug>/<path below the model's folder>` → the record."""

MAX_NAMED = 3
"""Layers kept in fp32 that are named; all stand in summary.json."""


def engine_of(row: Row, export: ExportRecord | None, engines: Engines) -> EngineRecord | None:
    """The engine among the files that a row loaded; None where it loaded none."""
    if export is None:
        return None
    paths = (f"{export.slug}/{path}" for path in row.artifacts)
    return next((engines[path] for path in paths if path in engines), None)


def engines_table(rows: Sequence[Row], export: ExportRecord | None, engines: Engines) -> str:
    """One line an engine that any of the rows loaded; empty where none did."""
    found = {engine.key: engine for row in rows if (engine := engine_of(row, export, engines))}
    headers = ["engine", "precision", "profile", "build s", "MiB", "layers", "by precision", "kept in fp32"]
    lines = [_line(engine) for engine in found.values()]
    if not lines:
        return ""
    made = dict.fromkeys(f"TensorRT {engine.tensorrt}, {_flags(engine)}" for engine in found.values())
    return f"Engines, by {' / '.join(made)}:\n\n{table(headers, lines)}"


def _line(engine: EngineRecord) -> list[str]:
    return [
        PurePosixPath(engine.engine.path).stem,
        engine.request.precision,
        shapes(engine.request.profiles),
        units.significant(engine.build_s),
        units.in_mib(engine.engine.size_bytes),
        str(engine.layers),
        ", ".join(f"{name} {count}" for name, count in sorted(engine.precisions.items())),
        _kept(engine.kept_fp32),
    ]


def shapes(profiles: Mapping[str, Profile]) -> str:
    """Range of shapes, once where all inputs share it: `1x128 … 8x128 … 128x128`, or the one shape it takes."""
    return " / ".join(dict.fromkeys(_range(profile) for profile in profiles.values()))


def _range(profile: Profile) -> str:
    ends = (profile.minimum, profile.optimum, profile.maximum)
    # Minimum, optimum and maximum each once, in order: an optimum is often one of the ends.
    return " … ".join(dict.fromkeys("x".join(map(str, shape)) for shape in ends))


def _kept(layers: Sequence[str]) -> str:
    if not layers:
        return "none"
    more = f", … ({len(layers)})" if len(layers) > MAX_NAMED else ""
    return ", ".join(layers[:MAX_NAMED]) + more


def _flags(engine: EngineRecord) -> str:
    return ", ".join(f"{name} {text}" for name, text in engine.builder.items()) or "its own defaults"
