"""Changes that would speed up a model most: measured in other rows, or upper bounds from its profile (pure).

A measured change is another row of grade A or B that is faster per sample, with the whole 95% interval of the speed-up
above 1. An upper bound is by Amdahl's law (Amdahl, AFIPS 1967): removing a share s of the time gives a speed-up of at
most 1 / (1 - s). Rows of grade C and F, profiles of grade C, and profiles whose parts do not explain the latency are
not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.aggregation.flags import GroupKey, is_calibration, median_ns, medians_per_sample
from harness.aggregation.grades import RANKED
from harness.aggregation.roofline import best_product, least_bytes, pass_ns
from harness.core.schemas import Case, CpuRoof, Device, ExportRecord, Interval, Roof, Row, Weights, Work
from harness.core.schemas.profile_record import (
    Achieved,
    Counts,
    FileSize,
    GenerationPhase,
    LayerRow,
    MeasuredMemory,
    ModelProfile,
    PartsProfile,
)
from harness.profiling.launch_gaps import idle_share
from harness.profiling.layers import chosen_layers, module_ns, ns_by_group, total_ns
from harness.profiling.profile_grades import reason_for_doubt
from harness.profiling.reconcile import parts_total
from harness.statistics.ratios import ratio_of_medians

MOST = 5
"""Most changes listed per model."""

MIN_SHARE = 0.01
"""Smallest share of the time for which an upper bound is listed."""

_MIN_ASSIGNED = 0.9
"""Share of a graph's time that must be reported by module before a module without nodes counts as fused."""

ChangeKind = Literal[
    "backend", "precision", "backend and precision", "setting", "threads", "batch size", "fusion", "layout", "launches"
]

_RULES: Mapping[frozenset[str], ChangeKind] = {
    frozenset({"backend"}): "backend",
    frozenset({"precision"}): "precision",
    frozenset({"backend", "precision"}): "backend and precision",
    frozenset({"setting"}): "setting",
    frozenset({"threads"}): "threads",
    frozenset({"batch_size"}): "batch size",
}
"""By the difference between two rows. A setting that differs too counts as part of the other change. Numbers of threads
are settings of a CPU, and no other change is made together with them."""

PartsProfiles = Mapping[str, PartsProfile]
"""By case id."""


@dataclass(frozen=True)
class Improvement:
    """One change. gain: speed-up per sample, the time at the start over the time after the change.

    interval: 95%, of a measured change; None for an upper bound, which is 1 / (1 - share). start, end: case ids; end is
    None where no row shows the change. share: of the start's time, for a bound. modules: number that fusing removes.
    """

    rule: ChangeKind
    gain: float
    start: str
    end: str | None = None
    interval: Interval | None = None
    share: float | None = None
    modules: int = 0


@dataclass(frozen=True)
class WhatIf:
    """The largest changes of one model at one sequence length. reason: why there are none; None where there are some.

    left_out: (case id, why) of profiles that are not used for a bound.
    """

    model: str
    weights: Weights
    device: Device
    sequence_length: int | None
    changes: tuple[Improvement, ...]
    reason: str | None = None
    left_out: tuple[tuple[str, str], ...] = ()


def what_if(rows: Sequence[Row], profiles: PartsProfiles, baseline_backend: str) -> list[WhatIf]:
    """A WhatIf per model, weights, device and sequence length, from model-only rows with one request at a time.

    rows: in the plan's order. A change starts from the baseline in its usual setting at its smallest batch, in fp32
    if measured, or from the fastest row of that batch.
    """
    groups: dict[GroupKey, list[Row]] = {}
    for row in rows:
        plain = (row.boundary, row.mode, row.status, row.tried) == ("compute", "sync", "measured", False)
        if plain and not is_calibration(row):
            key = GroupKey.of(row).without("batch_size", "backend", "precision", "setting")
            groups.setdefault(key, []).append(row)
    return [
        WhatIf(key.model, key.weights, key.device, key.sequence_length, *_largest(group, profiles, baseline_backend))
        for key, group in groups.items()
    ]


def _largest(
    rows: Sequence[Row], profiles: PartsProfiles, baseline: str
) -> tuple[tuple[Improvement, ...], str | None, tuple[tuple[str, str], ...]]:
    """(changes, the largest first; why there are none; profiles that are left out, and why)."""
    sound = [row for row in rows if row.grade in RANKED and row.latency_ns is not None]
    if not sound:
        return (), "no row has grade A or B", ()
    baselines = [row for row in sound if row.backend == baseline]
    # Of several settings the plan's first, the usual one, as for speed-ups: another setting is a change of its own.
    start = min(
        baselines or sound,
        key=lambda row: (row.batch_size, row.precision != "fp32", 0 if baselines else median_ns(row)),
    )
    alike = [row for row in rows if row.batch_size == start.batch_size]
    fastest = min((row for row in sound if row.batch_size == start.batch_size), key=median_ns)
    origins = (start,) if fastest is start else (start, fastest)
    wanted = [row for row in alike if row in origins or row.precision in {origin.precision for origin in origins}]
    doubts = {
        row.case_id: why
        for row in wanted
        if row.case_id in profiles and (why := reason_for_doubt(profiles[row.case_id], row.device == "cuda"))
    }
    profiles = {case_id: parts for case_id, parts in profiles.items() if case_id not in doubts}
    improvements = [
        improvement for row in origins for improvement in (*_measured(row, sound), *_bounds(row, alike, profiles))
    ]
    # The best of each rule and origin: later entries replace earlier ones.
    best = {(change.rule, change.start): change for change in sorted(improvements, key=lambda change: change.gain)}
    changes = tuple(sorted(best.values(), key=lambda change: -change.gain)[:MOST])
    return changes, None if changes else _no_bound_reason(start, sound, profiles, doubts), tuple(doubts.items())


def _no_bound_reason(start: Row, sound: Sequence[Row], profiles: PartsProfiles, doubts: Mapping[str, str]) -> str:
    others = [row for row in sound if row is not start]
    if not others:
        measured = f"{start.case_id} is the only row of grade A or B"
    elif all(row.latency_ns and row.latency_ns.rounds < 2 for row in sound):
        measured = "with one round no difference has an interval"
    else:
        measured = f"no row is faster than {start.case_id} beyond the intervals"
    has_profiles = any(row.case_id in profiles for row in sound)
    bounds = "the profiles give no bound" if has_profiles else "no row of grade A or B has a profile to give a bound"
    if not has_profiles and doubts:
        bounds = "no profile of theirs can be relied on"
    return f"{measured}, and {bounds}"


def _measured(start: Row, sound: Sequence[Row]) -> Iterator[Improvement]:
    """Rows that differ from the start by one rule and are faster per sample."""
    for row in sound:
        rule = _rule(start, row)
        ratio = ratio_of_medians(medians_per_sample(start), medians_per_sample(row)) if rule else None
        if rule and ratio and ratio.ci95 and ratio.ci95.low > 1:
            yield Improvement(rule, ratio.value, start.case_id, row.case_id, ratio.ci95)


def _rule(start: Row, row: Row) -> ChangeKind | None:
    dimensions = ("backend", "precision", "batch_size", "setting", "threads")
    differs = frozenset(name for name in dimensions if getattr(start, name) != getattr(row, name))
    return _RULES.get(differs - {"setting"} or differs)


def _bounds(row: Row, alike: Sequence[Row], profiles: PartsProfiles) -> Iterator[Improvement]:
    """Upper bounds from the profile of a row. alike: all rows of its batch, whose graphs show what can be fused."""
    parts, on_gpu = profiles.get(row.case_id), row.device == "cuda"
    spent = None if parts is None else parts_total(parts, on_gpu)
    if parts is None or spent is None:
        return
    latency = median_ns(row)
    # Where the profiler makes the parts longer than the latency, it does so to all parts alike.
    total_ns_of_row = max(spent, latency)
    gaps = idle_share(parts, latency) if on_gpu else None
    yield from _bound("launches", row, gaps.share if gaps else 0)
    yield from _bound("layout", row, ns_by_group(parts.layers).get("layout", 0) / total_ns_of_row)
    for other in alike:
        if other.precision == row.precision and other.case_id in profiles:
            spared = fused_away(parts.layers, profiles[other.case_id].layers)
            share = sum(layer.self_ns for layer in spared) / total_ns_of_row
            yield from _bound("fusion", row, share, other.case_id, len(spared))


def _bound(rule: ChangeKind, row: Row, share: float, end: str | None = None, modules: int = 0) -> Iterator[Improvement]:
    if MIN_SHARE <= share < 1:
        yield Improvement(rule, 1 / (1 - share), row.case_id, end, share=share, modules=modules)


def fused_away(tree: Sequence[LayerRow], graph: Sequence[LayerRow]) -> list[LayerRow]:
    """Modules without products of their own (normalisations, activations, dropout) that have no node in a graph.

    Empty where the tree has no FLOPs, or the graph does not report enough of its time by module.
    """
    assigned_ns = sum(row.self_ns for row in graph if row.parent or row.group == "layout")
    if not graph or assigned_ns < _MIN_ASSIGNED * total_ns(graph) or any(row.depth for row in graph):
        return []
    light = [row for row in chosen_layers(tree) if row.flops == 0 and row.depth and row.group != "embedding"]
    return [row for row in light if row.self_ns and module_ns(graph, row.name) is None]


_BYTES_NOTES = {
    "int8": "least_bytes: of int8 with one byte a weight, though its files keep some tensors wider",
    "fp8": "least_bytes: of fp8 with one byte a weight, though only linear layers have it",
}


def model_profile(
    case: Case,
    identity: tuple[str, str],
    export: ExportRecord,
    files: tuple[FileSize, ...],
    counts: Counts,
    memory: MeasuredMemory,
    row: Row | None,
    roof: Roof | CpuRoof | None,
) -> ModelProfile:
    """The model level of a case.

    identity: (settings id, date); row: of the same case in the summary, or None; roof: of the device that the summary's
    rows ran on.
    """
    work = next((counted for counted in export.work if counted.sequence_length == case.sequence_length), None)
    traffic = _traffic(case, work)
    notes = (
        *counts.count_notes,
        *([_BYTES_NOTES[case.precision]] if work is not None and case.precision in _BYTES_NOTES else []),
    )
    counts = counts.model_copy(update={"count_notes": notes})
    return profile_of_counts(case, identity, export.request_sha256, files, traffic, counts, memory, row, roof)


def profile_of_counts(
    case: Case,
    identity: tuple[str, str],
    export_sha256: str,
    files: tuple[FileSize, ...],
    traffic: int | None,
    counts: Counts,
    memory: MeasuredMemory,
    row: Row | None,
    roof: Roof | CpuRoof | None,
    phase: GenerationPhase | None = None,
) -> ModelProfile:
    """The model level of a case, or of a phase of generation (profiling/phases.py).

    identity, row, roof: as in model_profile. traffic: least bytes of one pass; None where they are unknown.
    """
    settings_id, created_at = identity
    flops = _times(counts.flops, case)
    return ModelProfile(
        **counts.model_dump(),
        case_id=case.case_id,
        settings_id=settings_id,
        created_at=created_at,
        environment_id=memory.environment_id,
        model=case.model,
        backend=case.backend,
        setting=case.setting,
        precision=case.precision,
        batch_size=case.batch_size,
        sequence_length=case.sequence_length,
        files=files,
        macs_per_batch=_times(counts.macs, case),
        flops_per_batch=flops,
        least_bytes=traffic,
        flops_per_byte=None if flops is None or not traffic else flops / traffic,
        activation_estimated_bytes=_times(counts.activation_bytes, case),
        activation_measured_bytes=memory.peak_bytes,
        activation_alone_bytes=memory.activations_bytes,
        activation_measured_by=memory.by,
        export_sha256=export_sha256,
        achieved=achieved_rates(row, flops, roof),
        phase=phase,
    )


def achieved_rates(row: Row | None, flops: int | None, roof: Roof | CpuRoof | None) -> Achieved:
    """The rates that a row achieved, with the FLOPs of one batch. Each figure that is None has a reason in notes."""
    if row is None or row.latency_ns is None:
        why = "the case has no row in summary.json" if row is None else row.reason or "its row is void (grade F)"
        return Achieved(
            latency_ns=None,
            device_ns=None,
            items_per_s=None,
            tokens_per_s=None,
            flops_per_s=None,
            peak_share=None,
            notes=(f"not measured: {why}",),
        )
    time_ns, throughput = pass_ns(row), row.throughput_per_s
    rate = None if flops is None else flops / (time_ns or row.latency_ns.median) * 1e9
    peak = best_product(row, row.threads, roof)
    notes = [f"peak_share: {peak}"] if isinstance(peak, str) else []
    if row.mode == "offline":
        notes.append("latency_ns: wall time a batch, back to back")
    return Achieved(
        latency_ns=row.latency_ns.median,
        device_ns=None if row.device == "cpu" else time_ns,
        items_per_s=throughput,
        tokens_per_s=throughput * row.sequence_length if throughput and row.sequence_length else None,
        flops_per_s=rate,
        peak_share=None if rate is None or isinstance(peak, str) else rate / peak,
        notes=tuple(notes),
    )


def _times(of_a_sample: int | None, case: Case) -> int | None:
    """A figure per sample, times the batch size."""
    return None if of_a_sample is None else of_a_sample * case.batch_size


def _traffic(case: Case, work: Work | None) -> int | None:
    """Smallest memory traffic of one batch in bytes; None where nothing was counted."""
    return None if work is None else least_bytes(work, case.precision, case.batch_size)
