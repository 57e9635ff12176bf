"""What would bring most: which rows and profiles may say so, and what they must not."""

from __future__ import annotations

import pytest

from harness.core.schemas import Flag, Row
from harness.core.schemas.profile_record import (
    LaunchGaps,
    OperatorRow,
    PartsProfile,
)
from harness.profiling.what_if import fused_away, what_if
from tests.synthetic_results import voided
from tests.synthetic_what_if import EAGER, GRAPH, MS, ORT, PROFILES, TREE, changes, layer, parts, row


def reason(*rows: Row, profiles: dict[str, PartsProfile] | None = None) -> str:
    (result,) = what_if(rows, profiles or {}, "torch-eager")
    assert result.changes == ()
    return result.reason or ""


def test_another_backend_is_measured_against_the_baseline() -> None:
    (change,) = changes(EAGER, ORT)
    assert (change.rule, change.start, change.end, change.share) == ("backend", EAGER.case_id, ORT.case_id, None)
    assert change.gain == pytest.approx(2)
    assert change.interval is not None
    assert change.interval.low < 2 < change.interval.high


def test_only_the_best_row_of_a_rule_is_named() -> None:
    (change,) = changes(EAGER, row("openvino", 1, 15), ORT)
    assert change.end == ORT.case_id


def test_a_batch_is_compared_by_the_sample() -> None:
    larger = row("torch-eager", 4, 40)
    (change,) = changes(EAGER, larger)
    assert (change.rule, change.end) == ("batch size", larger.case_id)
    assert change.gain == pytest.approx(2)


def test_another_number_of_threads_is_a_rule_of_its_own() -> None:
    first = row("torch-eager", 1, 16, setting="1-thread", threads=1, case_id="one")
    other = row("onnxruntime", 1, 5, setting="1-thread", threads=1, case_id="other")
    results = {(change.rule, change.start, change.end) for change in changes(EAGER, ORT, first, other)}
    # Not from eager to `other`: that is two changes.
    assert results == {("threads", EAGER.case_id, "one"), ("backend", EAGER.case_id, ORT.case_id)}


def test_a_row_that_differs_in_more_than_one_thing_is_one_rule_only_where_it_is_named() -> None:
    both = row("onnxruntime", 1, 5, precision="int8")
    rules = {(change.rule, change.start): round(change.gain, 2) for change in changes(EAGER, ORT, both)}
    assert rules == {("backend", EAGER.case_id): 2, ("backend and precision", EAGER.case_id): 4}
    assert reason(EAGER, row("onnxruntime", 4, 20)).startswith("no row is faster than")


def test_the_fastest_row_of_the_batch_is_a_start_too() -> None:
    larger = row("onnxruntime", 4, 20)
    results = {(change.rule, change.start, change.end) for change in changes(EAGER, ORT, larger)}
    assert results == {("backend", EAGER.case_id, ORT.case_id), ("batch size", ORT.case_id, larger.case_id)}


def test_of_the_settings_of_the_baseline_the_first_sound_one_is_the_start() -> None:
    slow = row("torch-eager", 1, 40, setting="channels-last", case_id="slow")
    void = row("torch-eager", 1, 5, setting="void", case_id="void", grade="F")
    (change,) = changes(void, EAGER, slow, ORT)
    assert (change.start, change.end, change.gain) == (EAGER.case_id, ORT.case_id, pytest.approx(2))
    change = changes(slow, EAGER)[0]
    assert (change.rule, change.start, change.gain) == ("setting", "slow", pytest.approx(2))
    half = row("torch-eager", 1, 15, precision="fp16")
    assert {entry.start for entry in changes(half, EAGER, ORT)} == {EAGER.case_id}


@pytest.mark.parametrize("grade", ["C", "F"])
def test_rows_of_a_lower_grade_promise_nothing(grade: str) -> None:
    assert "only row of grade A or B" in reason(EAGER, voided(ORT.model_copy(update={"grade": grade})))
    flagged = voided(EAGER.model_copy(update={"grade": grade}))
    assert reason(flagged, voided(ORT.model_copy(update={"grade": grade}))) == "no row has grade A or B"
    assert changes(flagged, row("torch-eager", 4, 80), row("onnxruntime", 4, 30))[0].start.endswith("-b4")
    assert reason(flagged, profiles=PROFILES) == "no row has grade A or B"


def test_a_difference_within_the_intervals_is_no_gain() -> None:
    assert reason(EAGER, row("onnxruntime", 1, 19, spread=0.2)).startswith("no row is faster than")


def test_one_round_has_no_interval() -> None:
    def once(found: Row) -> Row:
        assert found.latency_ns is not None
        update = {"process_medians": (found.latency_ns.median,), "rounds": 1}
        return found.model_copy(update={"latency_ns": found.latency_ns.model_copy(update=update)})

    assert reason(once(EAGER), once(ORT)).startswith("with one round no difference has an interval")


def test_rows_of_other_boundaries_modes_and_settings_that_were_beaten_are_left_out() -> None:
    others = [{"boundary": "e2e"}, {"mode": "offline"}, {"tried": True}, {"status": "skipped"}]
    others.append({"flags": (Flag(name="CALIBRATION", detail="", remedy=""),)})
    for changed in others:
        assert "only row of grade A or B" in reason(EAGER, ORT.model_copy(update=changed))


def test_a_profile_bounds_the_gain_of_fusing_and_layout() -> None:
    results = {change.rule: change for change in changes(EAGER, ORT, profiles=PROFILES)}
    fusion, layout = results["fusion"], results["layout"]
    assert (fusion.start, fusion.end, fusion.modules, fusion.interval) == (EAGER.case_id, ORT.case_id, 1, None)
    assert fusion.share == pytest.approx(5 / 20.5)
    assert fusion.gain == pytest.approx(1 / (1 - 5 / 20.5))
    assert (layout.start, layout.end) == (ORT.case_id, None)
    assert layout.gain == pytest.approx(1 / 0.9)


CPU_SHARED = Flag(name="CPU_SHARED", detail="others ran", remedy="Stop them.")


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (parts(TREE, 40), "its parts are 0.51 of the plain latency, and nothing measured covers the difference"),
        (parts(TREE, 102.5), "its parts are 0.20 of the plain latency, and nothing measured covers the difference"),
        (parts(TREE, 7), "its parts are 2.93 of the plain latency, and nothing measured covers the difference"),
        (
            parts(TREE, 7, window_ns=14 * MS),
            "its parts are 2.93 of the plain latency, 1.46 with what was measured, and nothing measured covers the "
            "difference",
        ),
        (parts(TREE, 20.5, grade="C", flags=(CPU_SHARED,)), "its profile has grade C (CPU_SHARED)"),
    ],
)
def test_a_profile_that_shows_nothing_bounds_nothing_and_the_list_says_why(odd: PartsProfile, why: str) -> None:
    (result,) = what_if((EAGER, ORT), PROFILES | {EAGER.case_id: odd}, "torch-eager")
    assert {change.rule for change in result.changes} == {"backend", "layout"}
    assert result.left_out == ((EAGER.case_id, why),)
    # Nor does another profile show what could be fused by the lack of a node in this one.
    (result,) = what_if((EAGER, ORT), PROFILES | {ORT.case_id: odd.model_copy(update={"layers": GRAPH})}, "torch-eager")
    assert {change.rule for change in result.changes} == {"backend"}
    assert [case_id for case_id, _ in result.left_out] == [ORT.case_id]


def test_where_no_profile_shows_anything_the_list_says_so() -> None:
    assert reason(EAGER, profiles={EAGER.case_id: parts(TREE, 40)}).endswith("no profile of theirs can be relied on")


def test_a_part_that_a_profiler_stretched_keeps_its_share() -> None:
    stretched = PROFILES | {EAGER.case_id: parts(TREE, 10, window_ns=20 * MS)}
    fusion = next(change for change in changes(EAGER, ORT, profiles=stretched) if change.rule == "fusion")
    assert fusion.share == pytest.approx(5 / 20.5)


def test_launch_gaps_count_on_a_gpu_alone() -> None:
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=15 * MS)
    seen = LaunchGaps(window_ns=40 * MS, busy_ns=15 * MS, waited_ns=None, work_ns=15 * MS, kernels_ns=15 * MS)
    on_gpu = EAGER.model_copy(update={"device": "cuda"})
    # Of the latency of 20 ms that was measured, whatever the plain latency beside the profiler is.
    for plain_ms in (20, 30):
        gaps = {EAGER.case_id: parts((), plain_ms, operators=(kernel,), launch_gaps=seen)}
        (change,) = changes(on_gpu, profiles=gaps)
        assert (change.rule, change.share) == ("launches", pytest.approx(0.25))
    # Without the trace nothing shows that no kernel ran.
    assert "no profile of theirs" in reason(on_gpu, profiles={EAGER.case_id: parts((), 30, operators=(kernel,))})
    assert "no profile of theirs" in reason(EAGER, profiles=gaps)


def test_modules_count_as_fused_only_where_the_graph_has_modules() -> None:
    assert [entry.name for entry in fused_away(TREE, GRAPH)] == ["act"]
    unassigned = (*GRAPH, layer("node_3", 5))
    assert fused_away(TREE, unassigned) == []
    assert fused_away(TREE, ()) == []
    assert fused_away(TREE, TREE) == []
    assert fused_away(GRAPH, GRAPH) == []


def test_a_list_has_up_to_five_changes_the_largest_first() -> None:
    rows = (
        *(EAGER, ORT, row("torch-eager", 4, 40), row("onnxruntime", 4, 22), row("onnxruntime", 1, 8, "int8")),
        *(row("onnxruntime", 4, 20, "int8"),),
    )
    results = changes(*rows, profiles=PROFILES)
    assert len(results) == 5
    assert [entry.gain for entry in results] == sorted((entry.gain for entry in results), reverse=True)
