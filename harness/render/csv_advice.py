"""CSV lines of what follows from the rows: recommendations, and what would bring most (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import Summary
from harness.measure.profiled import Profiled
from harness.measure.what_if import Change, WhatIf
from harness.measure.what_if import what_if as changes_of
from harness.render.recommend import recommend
from harness.reporting.labels import Line, ends, where


def recommendations(summary: Summary) -> list[Line]:
    """A line for each recommendation, with the rows it rests on."""
    return [
        {"about": one.about, "rule": one.rule, "text": one.text, "case_ids": " ".join(one.case_ids), **where(summary)}
        for one in recommend(summary)
    ]


def what_if(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each of the largest changes of a model, measured in another row or bounded by a profile."""
    parts = {one.row.case_id: one.parts for one in found if one.parts}
    lists = changes_of(summary.rows, parts, summary.baseline_backend)
    return [{**_change(one, change), **where(summary)} for one in lists for change in one.changes]


def _change(one: WhatIf, change: Change) -> Line:
    return {
        "model": one.model,
        "weights": one.weights,
        "device": one.device,
        "sequence_length": one.sequence_length,
        "rule": change.rule,
        "known_how": "measured" if change.interval else "at most",
        "gain": change.gain,
        **ends("gain", change.interval, None),
        "from_case_id": change.start,
        "to_case_id": change.end,
        "time_share": change.share,
        "modules_fused": change.modules or None,
    }
