"""Times of nested modules from the marks of hooks, and which runs they are averaged over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.backends.profile_timing import PartTimes, SpanMark, mean_times, spans_of_run, times_of_run
from harness.profiling.launch_gaps import Span, save_trace, spans_back_to_back
from harness.profiling.reconcile import middle_mean, middle_runs


def marks(text: str) -> list[SpanMark]:
    """`a( 10 b( 5 b) 3 a)`: a part begins, time goes by, a part ends."""
    now, result = 100, []
    for word in text.split():
        if word.isdigit():
            now += int(word)
        else:
            result.append(SpanMark(word[:-1], word.endswith("("), now))
    return result


def test_self_time_is_the_total_less_the_parts_inside() -> None:
    results = times_of_run(marks("model( 10 a( 5 a) 3 b( 7 c( 20 c) 1 b) 4 model)"))
    assert results == {
        "model": PartTimes(1, 50, 17),
        "a": PartTimes(1, 5, 5),
        "b": PartTimes(1, 28, 8),
        "c": PartTimes(1, 20, 20),
    }
    assert sum(times.self_ns for times in results.values()) == results["model"].total_ns


def test_a_part_that_is_called_twice_is_one_row() -> None:
    assert times_of_run(marks("m( relu( 4 relu) 1 relu( 6 relu) m)"))["relu"] == PartTimes(2, 10, 10)


def test_self_times_add_up_even_where_a_part_is_in_itself() -> None:
    times = times_of_run(marks("m( 1 m( 2 m) 3 m)"))
    assert times["m"].calls == 2
    assert times["m"].self_ns == 6


@pytest.mark.parametrize("text", ["a( b( a) b)", "a)", "a( 1"])
def test_marks_that_do_not_nest_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"ends|runs"):
        times_of_run(marks(text))


def test_means_add_up_where_medians_would_not() -> None:
    """In each run another part was disturbed: the medians are 1, 1 and 1, and no run took 3."""
    runs = [
        times_of_run(marks(f"m( a( {a} a) b( {b} b) c( {c} c) m)")) for a, b, c in ((91, 1, 1), (1, 91, 1), (1, 1, 91))
    ]
    results = mean_times(runs)
    assert results["m"].total_ns == 93
    assert sum(times.self_ns for times in results.values()) == 93


def test_a_part_that_only_some_runs_had_counts_as_nothing_in_the_others() -> None:
    results = mean_times([times_of_run(marks("m( a( 8 a) m)")), times_of_run(marks("m( 4 m)"))])
    assert results["a"] == PartTimes(0.5, 4, 4)


def test_spans_of_a_trace_start_with_the_outermost() -> None:
    assert [(span.name, span.duration_ns) for span in spans_of_run(marks("m( a( 5 a) 2 b( 1 b) m)"))] == [
        ("m", 8),
        ("a", 5),
        ("b", 1),
    ]


def test_the_middle_half_leaves_both_ends_out() -> None:
    assert middle_runs([50, 1, 30, 20, 40, 900, 35, 25]) == [2, 4, 6, 7]
    assert middle_mean([10, 20, 30, 1_000_000]) == 25


def test_a_single_run_is_its_own_middle_and_none_has_no_middle() -> None:
    assert middle_mean([7]) == 7
    with pytest.raises(ValueError, match="no runs"):
        middle_runs([])


def test_a_trace_has_the_format_of_chrome(tmp_path: Path) -> None:
    file = tmp_path / "new" / "x.trace.json"
    save_trace(
        file, "a case", [*spans_back_to_back([("a", "Conv", 1500), ("b", "Relu", 500)]), Span("c", "k", 5, 6, {"x": 1})]
    )
    shown = json.loads(file.read_text())["traceEvents"]
    assert shown[0]["args"] == {"name": "a case"}
    assert [(event["ph"], event["name"], event["ts"], event["dur"]) for event in shown[1:]] == [
        ("X", "a", 0, 1.5),
        ("X", "b", 1.5, 0.5),
        ("X", "c", 0.005, 0.006),
    ]
    assert shown[3]["args"] == {"x": 1}
