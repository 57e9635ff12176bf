"""Which rows may be compared, and when one of them wins."""

from __future__ import annotations

from typing import Any

from harness.core.schemas import Flag, Interval, Row, Summary
from harness.reporting import ranking
from tests.synthetic_results import voided

ROWS = dict[str, Row]


def edited(row: Row, median_ms: float, ends: tuple[float, float] | None, **changes: Any) -> Row:
    assert row.latency_ns is not None
    interval = None if ends is None else Interval(low=ends[0] * 1e6, high=ends[1] * 1e6)
    latency = row.latency_ns.model_copy(update={"median": median_ms * 1e6, "ci95": interval})
    return voided(row.model_copy(update={"latency_ns": latency, "grade": "A", "flags": (), **changes}))


def pair(rows: ROWS, *ends: tuple[float, float] | None, **changes: Any) -> list[Row]:
    names = ["resnet50-openvino-cpu-fp32-b1", "resnet50-onnxruntime-cpu-fp32-b1"]
    return [edited(rows[name], median, end, **changes) for name, median, end in zip(names, (10, 11), ends, strict=True)]


def test_disjoint_intervals_have_a_winner(rows: ROWS) -> None:
    result = pair(rows, (9.9, 10.1), (10.8, 11.2))
    assert ranking.winner(result) is result[0]
    assert ranking.winner(reversed(result)) is result[0]


def test_touching_intervals_have_none(rows: ROWS) -> None:
    assert ranking.winner(pair(rows, (9.5, 10.8), (10.8, 11.2))) is None


def test_medians_within_one_per_cent_have_none(rows: ROWS) -> None:
    names = ["resnet50-openvino-cpu-fp32-b1", "resnet50-onnxruntime-cpu-fp32-b1"]
    for second, clear in ((10.09, False), (10.11, True)):
        ends = [(9.999, 10.001), (second - 0.001, second + 0.001)]
        near = [edited(rows[name], ms, end) for name, ms, end in zip(names, (10, second), ends, strict=True)]
        assert (ranking.winner(near) is not None) is clear
        assert len(ranking.contenders(near)) == 1 + (not clear)


def test_a_row_without_an_interval_leaves_it_open(rows: ROWS) -> None:
    assert ranking.winner(pair(rows, (9.9, 10.1), None)) is None
    assert ranking.winner(pair(rows, None, (10.8, 11.2))) is None


def test_nothing_wins_over_a_row_of_another_time(rows: ROWS) -> None:
    fast, slow = pair(rows, (9.9, 10.1), (10.8, 11.2))
    later = Flag(name="MEASURED_APART", detail="not in turn", remedy="", caps_at="B")
    apart = {"grade": "B", "flags": (later,)}
    for group in ([fast.model_copy(update=apart), slow], [fast, slow.model_copy(update=apart)]):
        assert ranking.winner(group) is None
        assert ranking.contenders(group) == group[:1]
    assert ranking.winner([fast, slow.model_copy(update={**apart, "grade": "C"})]) is None, "alone is no contest"


def test_grade_c_and_f_cannot_win(rows: ROWS) -> None:
    fast, slow = pair(rows, (9.9, 10.1), (10.8, 11.2))
    for grade in ("C", "F"):
        disturbed = voided(fast.model_copy(update={"grade": grade}))
        assert ranking.winner([disturbed, slow]) is None  # alone is no contest
        assert ranking.contenders([disturbed, slow]) == [slow]


def test_no_row_wins_over_a_disturbed_row_that_may_be_faster(rows: ROWS) -> None:
    fast, slow = pair(rows, (9.9, 10.1), (10.8, 11.2))

    def third(median_ms: float, ends: tuple[float, float] | None, grade: str) -> Row:
        return edited(rows["resnet50-torch-eager-cpu-fp32-b1"], median_ms, ends, grade=grade)

    for doubtful in (third(9, (8.9, 9.1), "C"), third(9, None, "C"), third(11, (10.0, 12), "C")):
        assert ranking.winner([fast, slow, doubtful]) is None
        assert ranking.doubtful_leaders([fast, slow, doubtful]) == [doubtful]
    for harmless in (third(9, (8.9, 9.1), "F"), third(12, (11, 13), "C"), third(12, None, "C")):
        assert ranking.winner([fast, slow, harmless]) is fast
        assert ranking.doubtful_leaders([fast, slow, harmless]) == []


def test_a_wide_third_row_leaves_it_open(rows: ROWS) -> None:
    result = pair(rows, (9.9, 10.1), (10.8, 11.2))
    third = edited(rows["resnet50-torch-eager-cpu-fp32-b1"], 40, (10.0, 160))
    assert ranking.winner([*result, third]) is None
    assert ranking.contenders([*result, third]) == [result[0], third]


def test_tables_never_mix_models_boundaries_or_modes(summary: Summary) -> None:
    other = summary.rows[1].model_copy(update={"boundary": "e2e"})
    tables = ranking.by_table([*summary.rows, other])
    assert [key[0] for key, _ in tables] == ["minilm-l6", "minilm-l6", "efficientnet-lite0", "resnet50"]
    for key, rows in tables:
        assert {ranking.table_key(row) for row in rows} == {key}


def test_reading_order_is_shape_then_rank_then_latency(summary: Summary) -> None:
    for _, rows in ranking.by_table(summary.rows):
        for _, group in ranking.by_shape(rows):
            ranked = [row.latency_ns.median for row in group if ranking.is_ranked(row) and row.latency_ns]
            assert ranked == sorted(ranked)
            places = ["ABCF".index(row.grade or "F") for row in group]
            assert [place >= 2 for place in places] == sorted(place >= 2 for place in places)
        assert [ranking.shape(row) for row in rows] == sorted(ranking.shape(row) for row in rows)


def test_a_backend_that_computes_nothing_is_in_no_table(summary: Summary) -> None:
    assert all(row.backend != "noop" for _, rows in ranking.by_table(summary.rows) for row in rows)
