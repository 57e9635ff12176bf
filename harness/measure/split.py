"""Where the time of an e2e row goes (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import Measured, Part, Split
from harness.measure import stats


def split_of(records: Sequence[Measured]) -> Split | None:
    """Median of process medians of each part, and its mean share of a process's time; None where there are none."""
    parts = [record.split_ns for record in records if record.split_ns is not None]
    totals = [sum(found.preprocess) + sum(found.inference) + sum(found.postprocess) for found in parts]
    if not parts or not all(totals):
        return None
    return Split(
        preprocess=_part([found.preprocess for found in parts], totals),
        inference=_part([found.inference for found in parts], totals),
        postprocess=_part([found.postprocess for found in parts], totals),
    )


def _part(samples: Sequence[Sequence[int]], totals: Sequence[int]) -> Part:
    medians = [stats.median(values) for values in samples]
    shares = [sum(values) / total for values, total in zip(samples, totals, strict=True)]
    return Part(median_ns=stats.median(medians), share=sum(shares) / len(shares))
