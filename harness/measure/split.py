"""Where the time of an e2e row goes (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import Measured, Part, Split
from harness.measure import stats


def split_of(records: Sequence[Measured]) -> Split | None:
    """Median of process medians of each part, and its share of the time of all samples; None where there are none."""
    parts = [record.split_ns for record in records if record.split_ns is not None]
    total = sum(sum(found.preprocess) + sum(found.inference) + sum(found.postprocess) for found in parts)
    if not total:
        return None
    return Split(
        preprocess=_part([found.preprocess for found in parts], total),
        inference=_part([found.inference for found in parts], total),
        postprocess=_part([found.postprocess for found in parts], total),
    )


def _part(samples: Sequence[Sequence[int]], total: int) -> Part:
    medians = [stats.median(values) for values in samples]
    return Part(median_ns=stats.median(medians), share=sum(map(sum, samples)) / total)
