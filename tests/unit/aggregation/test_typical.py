"""Rows of offline and e2e cases from their records."""

from __future__ import annotations

from typing import Any

import pytest

from harness.aggregation import batch_times
from harness.aggregation import row as split
from harness.core.schemas import Block, Measured, Row, SplitSamples, Summary
from tests import synthetic_results as made

MS = 1_000_000


def offline(case: Any, model: Any, number: int, *blocks: tuple[int, int]) -> Measured:
    return made.measured(
        case,
        model,
        number,
        latency_ns=(),
        warmup_ns=(),
        blocks=tuple(Block(iterations=iterations, wall_ns=wall_ms * MS) for iterations, wall_ms in blocks),
    )


def summary(mode: str, boundary: str, change: Any) -> Summary:
    case = made.case_of(made.RESNET, "openvino", "fp32", 4)
    case = case.model_copy(update={"mode": mode, "boundary": boundary})
    return made.Synthetic(models=(made.RESNET,), cases=[case], change=change).summary()


def the_row(found: Summary) -> Row:
    (row,) = found.rows
    return row


def test_offline_is_wall_time_by_batches_of_each_process_and_nothing_about_single_ones() -> None:
    walls = {1: ((20, 200), (40, 440)), 2: ((30, 360), (30, 330)), 3: ((50, 500), (10, 108))}
    result = the_row(
        summary("offline", "compute", lambda case, r: offline(case, made.RESNET, r.round, *walls[r.round]))
    )
    assert result.latency_ns is not None
    expected = [640 / 60 * MS, 690 / 60 * MS, 608 / 60 * MS]
    assert result.latency_ns.process_medians == pytest.approx(expected)
    assert result.latency_ns.median == pytest.approx(expected[0])
    assert result.latency_ns.ci95 is not None
    assert result.latency_ns.ci95.low < expected[0] < result.latency_ns.ci95.high
    assert result.latency_ns.n == 180
    for name in ("p50", "p90", "p95", "p99", "max", "iqr", "cv", "lag1_autocorrelation"):
        assert getattr(result.latency_ns, name) is None, name
    assert result.throughput_per_s == pytest.approx(4 * 1e9 / result.latency_ns.median)
    assert result.throughput_ci95 is not None
    assert result.throughput_ci95.low == pytest.approx(4 * 1e9 / result.latency_ns.ci95.high)


def test_an_offline_row_with_even_blocks_has_no_flags() -> None:
    result = the_row(
        summary("offline", "compute", lambda case, r: offline(case, made.RESNET, r.round, *[(20, 200)] * 5))
    )
    assert result.flags == ()
    assert result.grade == "A"


def test_an_offline_process_that_stopped_early_is_judged_by_its_blocks() -> None:
    def uneven(case: Any, record: Measured) -> Measured:
        blocks = ((20, 200), (20, 260), (20, 190))
        return offline(case, made.RESNET, record.round, *blocks).model_copy(update={"stop": "time limit"})

    flags = {flag.name: flag.detail for flag in the_row(summary("offline", "compute", uneven)).flags}
    assert "ran out of time in 3 of 3 rounds" in flags["NOT_CONVERGED"]
    assert "too few blocks" not in flags["NOT_CONVERGED"]


def test_blocks_of_a_process_with_latencies_are_their_medians() -> None:
    record = made.measured(made.case_of(made.RESNET, "openvino", "fp32", 4), made.RESNET, 1)
    assert len(batch_times.blocks_ns(record)) == len(record.blocks)
    assert min(record.latency_ns) <= batch_times.batch_ns(record) <= max(record.latency_ns)


def with_parts(record: Measured) -> Measured:
    before = tuple(value // 4 for value in record.latency_ns)
    after = tuple(value // 10 for value in record.latency_ns)
    between = tuple(w - b - a for w, b, a in zip(record.latency_ns, before, after, strict=True))
    parts = SplitSamples(preprocess=before, inference=between, postprocess=after)
    return record.model_copy(update={"split_ns": parts})


def test_an_e2e_row_says_where_its_time_goes() -> None:
    result = the_row(summary("sync", "e2e", lambda case, record: with_parts(record)))
    assert result.split is not None
    assert result.latency_ns is not None
    parts = (result.split.preprocess, result.split.inference, result.split.postprocess)
    assert [part.share for part in parts] == pytest.approx([0.25, 0.65, 0.10], rel=1e-3)
    assert sum(part.share for part in parts) == pytest.approx(1.0)
    assert parts[0].median_ns == pytest.approx(result.latency_ns.median / 4, rel=1e-3)


def test_a_row_without_parts_has_no_split() -> None:
    assert split.split_of([made.measured(made.case_of(made.RESNET, "noop", "fp32", 1), made.RESNET, 1)]) is None
