"""Page faults are worth a word where each inference has many, on a CPU, in rows that were watched."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.schemas import Row
from harness.reporting.prose.recommendations import MANY_FAULTS, Candidates, page_faults
from tests.synthetic_results import EFFICIENTNET, Synthetic, matrix

SUMMARY = Synthetic(models=(EFFICIENTNET,), cases=matrix((EFFICIENTNET,))).summary()


def faulting(an_inference: float, **changes: Any) -> Row:
    row = next(row for row in SUMMARY.rows if row.usage is not None and row.latency_ns is not None)
    assert row.usage is not None
    assert row.latency_ns is not None
    usage = row.usage.model_copy(update={"minor_faults": round(an_inference * row.latency_ns.n)})
    return row.model_copy(update={"usage": usage, **changes})


def said(*rows: Row) -> list[str]:
    return [page_fault.text for page_fault in page_faults(Candidates("a model", rows, {}, None, None))]


def test_advice_on_memory_names_the_means_to_keep_it() -> None:
    (text,) = said(faulting(2071.4), faulting(9186, batch_size=8))
    assert "2,070 with " in text
    assert "9,190 with " in text
    assert "MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_MMAP_THRESHOLD_=1000000000 make bench" in text


@pytest.mark.parametrize(
    "row",
    [
        faulting(MANY_FAULTS - 1),
        faulting(9000, device="cuda"),
        faulting(9000, usage=None),
        faulting(9000, latency_ns=None),
    ],
)
def test_nothing_is_said_of_others(row: Row) -> None:
    assert said(row) == []
