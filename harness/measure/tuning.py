"""Several settings of one backend are tried once, and the fastest is measured fully (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from harness.core.schemas import Case
from harness.measure.rows import GroupKey

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
    groups: dict[GroupKey, dict[str, float]] = {}
    for case in cases:
        first = medians.get(case.case_id, {}).get(FIRST_ROUND)
        if case.tuned and first is not None and case.case_id not in unsound:
            groups.setdefault(GroupKey.of(case).without("setting"), {})[case.case_id] = first
    return frozenset(
        name for group in groups.values() for name in group if name != min(group, key=lambda one: group[one])
    )
