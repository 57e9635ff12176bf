"""What would bring a model most, from where it starts: measured in other rows, or bounded by its profile (pure).

A measured change is another row of grade A or B that is faster per item beyond the 95% interval of their ratio. A bound
is Amdahl's law (Amdahl, AFIPS 1967): what takes a share s of the time can bring 1 / (1 - s) at most, if it vanished.
Rows of grade C and F, profiles of grade C, and those whose parts do not explain their latency, promise nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core.schemas import Device, Interval, Row, Weights
from harness.core.schemas.profile_parts import LayerRow, PartsProfile
from harness.measure.grades import RANKED
from harness.measure.launch_gaps import idle_share
from harness.measure.layer_choice import chosen
from harness.measure.layer_sums import by_group, inside, total
from harness.measure.profile_grades import doubt
from harness.measure.ratios import ratio_of_medians
from harness.measure.reconcile import parts_total
from harness.measure.rows import GroupKey, is_calibration, median_ns

MOST = 5
"""Changes of one model."""

MIN_SHARE = 0.01
"""Of the time, below which a bound is not worth a line."""

_MIN_TOLD = 0.9
"""Share of a graph's time that must be told by module before a module without any counts as fused."""

Rule = Literal[
    "backend", "precision", "backend and precision", "setting", "threads", "batch size", "fusion", "layout", "launches"
]

_RULES: Mapping[frozenset[str], Rule] = {
    frozenset({"backend"}): "backend",
    frozenset({"precision"}): "precision",
    frozenset({"backend", "precision"}): "backend and precision",
    frozenset({"setting"}): "setting",
    frozenset({"threads"}): "threads",
    frozenset({"batch_size"}): "batch size",
}
"""By what differs between two rows; with any but itself a setting belongs to the rest. Numbers of threads are settings
of a CPU, and no other change is made together with that of their number."""

Profiles = Mapping[str, PartsProfile]
"""By case id."""


@dataclass(frozen=True)
class Change:
    """One change. gain: the start's time of an item by that after it.

    interval: 95%, of a measured change; None of a bound, which is 1 / (1 - share). start, end: case ids; end is None
    where no row shows it. share: of the start's time, of a bound. modules: that fusing would spare.
    """

    rule: Rule
    gain: float
    start: str
    end: str | None = None
    interval: Interval | None = None
    share: float | None = None
    modules: int = 0


@dataclass(frozen=True)
class WhatIf:
    """The largest changes of one model at one sequence length. reason: why there are none; None where there are.

    left_out: (case id, why) of profiles that could give a bound and may not.
    """

    model: str
    weights: Weights
    device: Device
    sequence_length: int | None
    changes: tuple[Change, ...]
    reason: str | None = None
    left_out: tuple[tuple[str, str], ...] = ()


def what_if(rows: Sequence[Row], profiles: Profiles, baseline_backend: str) -> list[WhatIf]:
    """A list a model, weights, device and sequence length, of the rows at the compute boundary, one batch at a time.

    rows: in the plan's order. A change starts from the baseline in its usual setting at its smallest batch, in fp32
    where it has it, or from the fastest row of that batch.
    """
    groups: dict[GroupKey, list[Row]] = {}
    for row in rows:
        plain = (row.boundary, row.mode, row.status, row.tried) == ("compute", "sync", "measured", False)
        if plain and not is_calibration(row):
            key = GroupKey.of(row).without("batch_size", "backend", "precision", "setting")
            groups.setdefault(key, []).append(row)
    return [
        WhatIf(key.model, key.weights, key.device, key.sequence_length, *_largest(ours, profiles, baseline_backend))
        for key, ours in groups.items()
    ]


def _largest(
    rows: Sequence[Row], profiles: Profiles, baseline: str
) -> tuple[tuple[Change, ...], str | None, tuple[tuple[str, str], ...]]:
    """(changes, the largest first; why there are none; profiles that were left out, and why)."""
    sound = [row for row in rows if row.grade in RANKED and row.latency_ns is not None]
    if not sound:
        return (), "no row has grade A or B", ()
    ours = [row for row in sound if row.backend == baseline]
    # Of several settings the plan's first, the usual one, as for speedups: what another brings is a change of its own.
    start = min(ours or sound, key=lambda row: (row.batch_size, row.precision != "fp32", 0 if ours else median_ns(row)))
    alike = [row for row in rows if row.batch_size == start.batch_size]
    fastest = min((row for row in sound if row.batch_size == start.batch_size), key=median_ns)
    origins = (start,) if fastest is start else (start, fastest)
    wanted = [row for row in alike if row in origins or row.precision in {origin.precision for origin in origins}]
    doubts = {
        row.case_id: why
        for row in wanted
        if row.case_id in profiles and (why := doubt(profiles[row.case_id], row.device == "cuda"))
    }
    profiles = {case_id: parts for case_id, parts in profiles.items() if case_id not in doubts}
    found = [one for row in origins for one in (*_measured(row, sound), *_bounds(row, alike, profiles))]
    # The best of each rule and origin: later entries replace earlier ones.
    best = {(change.rule, change.start): change for change in sorted(found, key=lambda change: change.gain)}
    changes = tuple(sorted(best.values(), key=lambda change: -change.gain)[:MOST])
    return changes, None if changes else _why_none(start, sound, profiles, doubts), tuple(doubts.items())


def _why_none(start: Row, sound: Sequence[Row], profiles: Profiles, doubts: Mapping[str, str]) -> str:
    others = [row for row in sound if row is not start]
    if not others:
        measured = f"{start.case_id} is the only row of grade A or B"
    elif all(row.latency_ns and row.latency_ns.rounds < 2 for row in sound):
        measured = "with one round no difference has an interval"
    else:
        measured = f"no row is faster than {start.case_id} beyond the intervals"
    told = any(row.case_id in profiles for row in sound)
    bounds = "the profiles give no bound" if told else "no row of grade A or B has a profile to give a bound"
    if not told and doubts:
        bounds = "no profile of theirs can be relied on"
    return f"{measured}, and {bounds}"


def _per_item(row: Row) -> tuple[float, ...]:
    """Process medians in ns an item."""
    return tuple(median / row.batch_size for median in row.latency_ns.process_medians) if row.latency_ns else ()


def _measured(start: Row, sound: Sequence[Row]) -> Iterator[Change]:
    """Rows that differ from the start in one thing and are faster per item."""
    for row in sound:
        rule = _rule(start, row)
        ratio = ratio_of_medians(_per_item(start), _per_item(row)) if rule else None
        if rule and ratio and ratio.ci95 and ratio.ci95.low > 1:
            yield Change(rule, ratio.value, start.case_id, row.case_id, ratio.ci95)


def _rule(start: Row, row: Row) -> Rule | None:
    dimensions = ("backend", "precision", "batch_size", "setting", "threads")
    differs = frozenset(name for name in dimensions if getattr(start, name) != getattr(row, name))
    return _RULES.get(differs - {"setting"} or differs)


def _bounds(row: Row, alike: Sequence[Row], profiles: Profiles) -> Iterator[Change]:
    """What the profile of a row could spare. alike: all rows of its batch, whose graphs show what can be fused."""
    parts, on_gpu = profiles.get(row.case_id), row.device == "cuda"
    spent = None if parts is None else parts_total(parts, on_gpu)
    if parts is None or spent is None:
        return
    latency = median_ns(row)
    # What a profiler stretched past the latency it stretched alike.
    whole = max(spent, latency)
    gaps = idle_share(parts, latency) if on_gpu else None
    yield from _bound("launches", row, gaps.share if gaps else 0)
    yield from _bound("layout", row, by_group(parts.layers).get("layout", 0) / whole)
    for other in alike:
        if other.precision == row.precision and other.case_id in profiles:
            spared = fused_away(parts.layers, profiles[other.case_id].layers)
            share = sum(layer.self_ns for layer in spared) / whole
            yield from _bound("fusion", row, share, other.case_id, len(spared))


def _bound(rule: Rule, row: Row, share: float, end: str | None = None, modules: int = 0) -> Iterator[Change]:
    if MIN_SHARE <= share < 1:
        yield Change(rule, 1 / (1 - share), row.case_id, end, share=share, modules=modules)


def fused_away(tree: Sequence[LayerRow], graph: Sequence[LayerRow]) -> list[LayerRow]:
    """Modules without products of their own (normalisations, activations, dropout) that a graph has no node of.

    Empty where the tree tells no FLOPs, or the graph does not tell enough of its time by module.
    """
    told = sum(row.self_ns for row in graph if row.parent or row.group == "layout")
    if not graph or told < _MIN_TOLD * total(graph) or any(row.depth for row in graph):
        return []
    light = [row for row in chosen(tree) if row.flops == 0 and row.depth and row.group != "embedding"]
    return [row for row in light if row.self_ns and inside(graph, row.name) is None]
