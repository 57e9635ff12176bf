"""CSV lines of what stands beside the results: engines, limits, energy, settings, flags, the machine (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from pydantic import BaseModel

from harness.core.schemas import Energy, EngineRecord, GpuUsage, Row, Summary, Unavailable, UsageSummary
from harness.measure.roofline import bounds_of, pass_ns
from harness.render import ranking
from harness.render.csv_writing import Value
from harness.render.units import MILLISECOND, SECOND
from harness.reporting.labels import Line, about, is_sound, per, sound_rows, where
from harness.reporting.tables import summary as flat
from harness.reporting.tables.engines import engine_of, shapes
from harness.reporting.tables.tried_settings import behind, first_ns, tried_groups


def engines(summary: Summary) -> list[Line]:
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


def roofline(summary: Summary) -> list[Line]:
    """A line for each row that was held against the measured limits of its device."""
    return [about(summary, row, found) for row in sound_rows(summary) if (found := against_limits(summary, row))]


def against_limits(summary: Summary, row: Row) -> Line:
    """Work of a batch, what of the limits is reached, and the limits; empty without either."""
    found, bounds = row.roofline, bounds_of(row, summary.roof)
    if found is None or isinstance(bounds, str) or not is_sound(row):
        return {}
    time_ns = pass_ns(row)
    return {
        "flops_per_batch": found.flops,
        "flops_per_s": found.flops / time_ns * 1e9 if time_ns else None,
        "flops_share_of_best": found.flops_share,
        "least_bytes_per_batch": found.bytes,
        "bytes_share_of_best_copy": found.bytes_share,
        "limit": found.limit,
        "best_flops_per_s": bounds.flops_per_s,
        "best_copy_bytes_per_s": bounds.copy_bytes_per_s,
    }


def energy(summary: Summary) -> list[Line]:
    """A line for each row whose electricity was measured."""
    rows = [row for row in sound_rows(summary) if row.case_id in summary.energies]
    return [about(summary, row, joules(summary.energies[row.case_id])) for row in rows]


def joules(found: Energy) -> Line:
    """What a batch and an item cost, idle power subtracted, and what that rests on."""
    return {
        "energy_per_batch_j": found.joules_per_inference,
        "energy_per_item_j": found.joules_per_item,
        "card_mean_w": found.energy_j / (found.window_ns / SECOND.ns),
        "card_idle_w": found.idle_w,
        "window_s": per(found.window_ns, SECOND),
        "batches": found.batches,
        "gpu": found.gpu,
    }


def settings_tried(summary: Summary) -> list[Line]:
    """A line for each setting that competed with others in round 1, the chosen one of each group first."""
    return [
        about(summary, row, _tried(row, behind(row, group))) for group in tried_groups(summary.rows) for row in group
    ]


def _tried(row: Row, share: float | None) -> Line:
    return {"chosen": not row.tried, "round_1_median_ms": per(first_ns(row), MILLISECOND), "behind_share": share}


def flags(summary: Summary) -> list[Line]:
    """A line for each flag of each row: why it is not grade A, and what to do about it."""
    return [
        about(summary, row, {"flag": flag.name, "detail": flag.detail, "remedy": flag.remedy})
        for _, rows in ranking.by_table(summary.rows)
        for row in rows
        for flag in row.flags
    ]


def checks(summary: Summary) -> list[Line]:
    """A line for each check that applies to a row: in how many of its rounds it was made, and why not in the others."""
    return [
        about(summary, row, {"check": name, "rounds": found.rounds, "of": found.of, "missing": found.missing})
        for _, rows in ranking.by_table(summary.rows)
        for row in rows
        for name, found in row.checks.items()
    ]


def usage(summary: Summary) -> list[Line]:
    """A line for each row that was watched, in the words of summary.csv."""
    names = [*UsageSummary.model_fields, *(f"gpu_{name}" for name in GpuUsage.model_fields), "gpu_clock_held_back"]
    columns = {name: flat.COLUMNS[name] for name in names if name in flat.COLUMNS}
    rows = [row for _, found in ranking.by_table(summary.rows) for row in found if row.usage]
    return [about(summary, row, {name: figure(row) for name, figure in columns.items()}) for row in rows]


def not_measured(summary: Summary) -> list[Line]:
    """A line for each row that was skipped, failed or is missing."""
    rows = [row for row in summary.rows if row.status != "measured"]
    return [about(summary, row, {"status": row.status, "reason": row.reason, "hint": row.hint}) for row in rows]


def environments(summary: Summary) -> list[Line]:
    """A line for each fact of each environment; what could not be read is empty, with the reason beside it."""
    return [
        {"environment_id": name, "fact": fact, **_told(value), "plan_id": summary.plan_id}
        for name, environment in summary.environments.items()
        for part in ("machine", "limits", "gpu", "software")
        for fact, value in _facts(part, getattr(environment, part))
    ]


def _facts(name: str, value: object) -> Iterator[tuple[str, object]]:
    """(path with dots, value) of everything below; a field's own name says its unit."""
    if isinstance(value, BaseModel) and not isinstance(value, Unavailable):
        for field in type(value).model_fields:
            yield from _facts(f"{name}.{field}", getattr(value, field))
    elif isinstance(value, Mapping):
        for key, inner in sorted(value.items()):
            yield f"{name}.{key}", inner
    elif value is not None:
        yield name, value


def _told(value: object) -> Line:
    if isinstance(value, Unavailable):
        return {"value": None, "not_available": value.unavailable}
    plain: Value = value if isinstance(value, (str, int, float)) else " ".join(map(str, value))  # type: ignore[call-overload]
    return {"value": plain, "not_available": None}


def _pairs(found: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(found.items()))
