"""Several settings of one backend are tried once, and the fastest is measured fully (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from harness.core.schemas import Case, Row
from harness.measure.rows import medians_by_round

FIRST_ROUND = 1
"""The round in which every setting is tried. A median of some hundred inferences scatters by about 1% between
processes: settings that are closer than that are as good as each other, and which one is taken hardly matters."""


def losers(
    cases: Sequence[Case], medians: Mapping[str, Mapping[int, float]], unsound: Collection[str] = ()
) -> frozenset[str]:
    """Ids of tried cases that were slower in round 1 than another setting of the same backend and shape.

    medians: case id → round → process median in ns. unsound: ids whose outputs or placement are wrong; they neither win
    nor lose. Where a group has no round 1 nobody has lost yet.
    """
    groups: dict[tuple[object, ...], dict[str, float]] = {}
    for case in cases:
        first = medians.get(case.case_id, {}).get(FIRST_ROUND)
        if case.tuned and first is not None and case.case_id not in unsound:
            groups.setdefault(_peers(case), {})[case.case_id] = first
    return frozenset(
        name for group in groups.values() for name in group if name != min(group, key=lambda one: group[one])
    )


def with_tried(rows: Sequence[Row], cases: Sequence[Case]) -> list[Row]:
    """Rows with `tried` set on every setting that another one beat; void ones neither win nor lose."""
    beaten = losers(cases, {row.case_id: medians_by_round(row) for row in rows})
    return [row.model_copy(update={"tried": True}) if row.case_id in beaten else row for row in rows]


def _peers(case: Case) -> tuple[object, ...]:
    shape = (case.batch_size, case.sequence_length, case.boundary, case.mode)
    return (case.model, case.weights, case.backend, case.device, case.precision, *shape)
