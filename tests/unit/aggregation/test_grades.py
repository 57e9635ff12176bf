"""Each finding at its threshold: one side passes, the other is flagged, and the grade follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import pytest

from harness.aggregation import grades, row
from harness.aggregation.flags import CALIBRATION, UNCERTAIN, Criteria, beyond_tolerance, flags_for, only_uncertain
from harness.aggregation.grades import Finding
from harness.core.schemas import (
    FIXED_WHEN_TRACED,
    NO_FLOATS,
    Block,
    Clock,
    ColdCosts,
    Flag,
    Grade,
    Interval,
    Measured,
    Repeats,
    Tolerance,
)
from tests.synthetic_results import EFFICIENTNET, Synthetic, case_of, measured, parity_of

CASE = case_of(EFFICIENTNET, "onnxruntime", "fp32", 1)
ROW = Synthetic(models=(EFFICIENTNET,), cases=[CASE], rounds=2, samples=20).summary().rows[0]
TOLERANCE = Tolerance(relative_l2=1e-4, top1_agreement=0.995)
CHECKS = Criteria(tolerance=TOLERANCE, judge_top1=True, target_ci=0.01, calibration=False)


def record(round_number: int = 1, **changes: Any) -> Measured:
    return measured(CASE, EFFICIENTNET, round_number, 200, **changes)


def steady_record(round_number: int, median_ns: int) -> Measured:
    """A round without any noise."""
    blocks = tuple(Block(iterations=50, wall_ns=50 * median_ns) for _ in range(4))
    return record(round_number, latency_ns=(median_ns,) * 200, blocks=blocks)


def findings(records: Sequence[Measured], checks: Criteria = CHECKS) -> dict[str, Finding]:
    latency = row.latency_of(records)
    parity = row.worst_parity(records)
    return {flag.flag.name: flag for flag in flags_for(CASE, records, latency, parity, checks)}


def quiet(**changes: Any) -> list[Measured]:
    return [steady_record(number, 10_000_000).model_copy(update=changes) for number in (1, 2, 3)]


def test_a_quiet_right_case_has_no_flags_and_grade_a() -> None:
    results = findings(quiet())
    assert results == {}
    assert grades.grade(results.values()) == "A"


def test_the_worst_flag_decides() -> None:
    marks = [grades.finding(caps, "X", "", "") for caps in ("B", "F", "C", "A")]
    assert grades.grade(marks) == "F"
    assert grades.grade(marks[2:]) == "C"


WHOLE = Block(iterations=200, wall_ns=2_000_000_000)


def test_every_flag_has_its_evidence_and_its_advice() -> None:
    parity = parity_of(CASE, EFFICIENTNET, relative_l2=1.0)
    noisy = [record(n, parity_timed=parity, steady=False, stop="time limit", blocks=(WHOLE,)) for n in (1, 2, 3)]
    results = findings(noisy)
    assert set(results) >= {"PARITY_FAIL", "NOT_WARMED_UP", "NOT_CONVERGED"}
    assert all(entry.flag.detail and entry.flag.remedy.endswith(".") for entry in results.values())


@pytest.mark.parametrize(("distance", "grade"), [(0.99e-4, "A"), (1.01e-4, "F")])
def test_parity_tolerance(distance: float, grade: str) -> None:
    results = findings(quiet(parity_timed=parity_of(CASE, EFFICIENTNET, relative_l2=distance)))
    assert grades.grade(results.values()) == grade
    assert ("PARITY_FAIL" in results) == (grade == "F")


def test_parity_of_one_round_before_timing_is_enough_to_void() -> None:
    records = quiet()
    records[1] = records[1].model_copy(update={"parity_before": parity_of(CASE, EFFICIENTNET, relative_l2=0.5)})
    assert "5.00e-01" in findings(records)["PARITY_FAIL"].flag.detail


def test_the_worst_sample_is_compared_with_the_tolerance() -> None:
    wrong = parity_of(CASE, EFFICIENTNET).model_copy(update={"item_relative_l2": 1.4, "item_cosine": 0.1})
    detail = findings(quiet(parity_before=wrong, parity_timed=wrong))["PARITY_FAIL"].flag.detail
    assert detail == "relative L2 distance of the worst sample 1.40e+00 is above the tolerance of 1e-04"


@pytest.mark.parametrize(("hit", "void"), [((), False), ((2,), True), ((1, 2, 3), True)])
def test_a_compiler_that_ran_eagerly_is_void_on_any_device(hit: tuple[int, ...], void: bool) -> None:
    records = [
        entry.model_copy(update={"placement": entry.placement.model_copy(update={"ran_eagerly": "2 graph breaks"})})
        if entry.round in hit
        else entry
        for entry in quiet()
    ]
    results = findings(records)
    assert ("EAGER_FALLBACK" in results) is void
    if void:
        assert results["EAGER_FALLBACK"].caps_at == "F"
        assert "2 graph breaks" in results["EAGER_FALLBACK"].flag.detail
        assert "TORCH_LOGS" in results["EAGER_FALLBACK"].flag.remedy


@pytest.mark.parametrize(("judged", "flagged"), [(True, True), (False, False)])
def test_top1_is_judged_only_where_it_means_something(judged: bool, flagged: bool) -> None:
    checks = Criteria(tolerance=TOLERANCE, judge_top1=judged, target_ci=0.01, calibration=False)
    parity = parity_of(CASE, EFFICIENTNET, top1_agreement=0.99)
    assert ("PARITY_FAIL" in findings(quiet(parity_timed=parity), checks)) == flagged


@pytest.mark.parametrize(("cosine", "flagged"), [(0.969, True), (0.97, False)])
def test_cosine_tolerance(cosine: float, flagged: bool) -> None:
    parity = parity_of(CASE, EFFICIENTNET, relative_l2=0.2, cosine=cosine)
    tolerance = Tolerance(relative_l2=0.3, cosine=0.97)
    checks = Criteria(tolerance=tolerance, judge_top1=False, target_ci=0.01, calibration=False)
    results = findings(quiet(parity_timed=parity), checks)
    assert ("PARITY_FAIL" in results) == flagged
    if flagged:
        assert "0.9690" in results["PARITY_FAIL"].flag.detail
    without = Criteria(tolerance=Tolerance(relative_l2=0.3), judge_top1=False, target_ci=0.01, calibration=False)
    assert "PARITY_FAIL" not in findings(quiet(parity_timed=parity), without)


def test_a_value_beyond_its_limit_never_reads_as_the_limit() -> None:
    tolerance = Tolerance(relative_l2=2.5e-2, cosine=0.97, top1_agreement=0.99)
    checks = Criteria(tolerance=tolerance, judge_top1=True, target_ci=0.01, calibration=False)
    parity = parity_of(CASE, EFFICIENTNET, relative_l2=0.025004, cosine=0.96998, top1_agreement=0.98996)
    (flag,) = [
        finding
        for finding in findings(quiet(parity_timed=parity), checks).values()
        if finding.flag.name == "PARITY_FAIL"
    ]
    every = beyond_tolerance(CASE, parity, tolerance, judge_top1=True)
    assert flag.flag in [entry.flag for entry in every]
    assert [entry.flag.detail for entry in every] == [
        "relative L2 distance 2.51e-02 is above the tolerance of 2.5e-02",
        "cosine 0.9699 to the reference is below the tolerance of 0.97",
        "top-1 agreement 98.9% is below the tolerance of 99%",
    ]


@pytest.mark.parametrize(
    ("distances", "stored", "wrong"),
    [
        ((), 1e-6, False),
        ((9e-5, 9e-5, 9.0), 1e-6, False),  # one of them may be a tie
        ((9e-5, 1.1e-4, 9.0), 1e-6, True),
        ((2.9e-4, 2.9e-4, 2.9e-4), 9.9e-5, False),
        ((3.1e-4, 3.1e-4, 3.1e-4), 9.9e-5, True),
        ((1e30, 1e30, 0.0), 1e-6, True),
    ],
)
def test_most_answers_to_new_samples_have_to_be_right(distances: tuple[float, ...], stored: float, wrong: bool) -> None:
    parity = parity_of(CASE, EFFICIENTNET, relative_l2=stored, item_relative_l2=stored)
    repeats = Repeats(new_l2=distances)
    result = findings(quiet(parity_timed=parity, parity_before=parity, repeats=repeats))
    assert ("PARITY_FAIL" in result) == wrong
    assert not wrong or result["PARITY_FAIL"].caps_at == "F"


def test_a_quantised_file_of_a_user_that_is_wrong_has_the_remedy_for_cpus_that_saturate() -> None:
    case = CASE.model_copy(update={"model": "onnx:q.onnx", "precision": "int8"})
    parity = parity_of(CASE, EFFICIENTNET, relative_l2=0.4)
    (own,) = beyond_tolerance(case, parity, Tolerance(relative_l2=0.3), judge_top1=False)
    made_here = case.model_copy(update={"model": "resnet18"})
    (ours,) = beyond_tolerance(made_here, parity, Tolerance(relative_l2=0.3), judge_top1=False)
    assert "reduce_range=True" in own.flag.remedy
    assert "reduce_range" not in ours.flag.remedy


def test_nonfinite_outputs_void() -> None:
    parity = parity_of(CASE, EFFICIENTNET, relative_l2=None, nonfinite=3)
    results = findings(quiet(parity_timed=parity))
    assert results["NONFINITE"].caps_at == "F"
    assert results["NONFINITE"].flag.detail.startswith("3 ")


def test_outputs_that_were_never_compared_are_not_ranked() -> None:
    assert findings(quiet(parity_timed=None))["PARITY_UNCHECKED"].caps_at == "C"
    without_tolerance = Criteria(tolerance=None, judge_top1=True, target_ci=0.01, calibration=False)
    assert findings(quiet(), without_tolerance)["PARITY_UNCHECKED"].caps_at == "C"


@pytest.mark.parametrize(
    ("exchanged", "flagged"),
    [
        ({"relative_l2": 0.05, "item_relative_l2": 0.19}, True),
        ({"relative_l2": 0.05, "item_relative_l2": 0.21}, False),  # an answer between both is half as far from each
        ({"relative_l2": None, "nonfinite": 1}, False),
        (None, False),
    ],
)
def test_outputs_that_are_alike_for_all_inputs_are_not_ranked(exchanged: dict[str, Any] | None, flagged: bool) -> None:
    parity = exchanged and parity_of(CASE, EFFICIENTNET, **exchanged)
    tolerance = Tolerance(relative_l2=0.1)
    checks = Criteria(tolerance=tolerance, judge_top1=False, target_ci=0.01, calibration=False, exchanged=parity)
    results = findings(quiet(), checks)
    assert ("PARITY_UNCHECKED" in results) == flagged
    if flagged:
        assert results["PARITY_UNCHECKED"].caps_at == "C"
        assert "PARITY_FAIL" in findings(quiet(parity_timed=parity_of(CASE, EFFICIENTNET, relative_l2=0.2)), checks)


def test_outputs_of_a_trace_that_fixed_values_say_so() -> None:
    fixed = "Converting a tensor to a Python boolean (mine.py:7)"
    single = steady_record(1, 10_000_000)
    placement = single.placement.model_copy(update={"settings": {FIXED_WHEN_TRACED: fixed}})
    wrong = single.parity_timed.model_copy(update={"relative_l2": 0.5}) if single.parity_timed else None
    traced = single.model_copy(update={"placement": placement})
    assert "PARITY_FAIL" not in findings([traced]), "of shapes it is right"
    flag = findings([traced.model_copy(update={"parity_timed": wrong})])["PARITY_FAIL"].flag
    assert flag.detail.endswith(f"tracing fixed for all inputs what the first one gave: {fixed}")
    assert "torch.where" in flag.remedy


@pytest.mark.parametrize(("field", "ran"), [("precision", "bf16"), ("device", "cuda:0")])
def test_placement_elsewhere_voids_even_in_one_round(field: str, ran: str) -> None:
    records = quiet()
    records[2] = records[2].model_copy(update={"placement": records[2].placement.model_copy(update={field: ran})})
    finding = findings(records)["PLACEMENT"]
    assert finding.caps_at == "F"
    assert ran.partition(":")[0] in finding.flag.detail


def test_nodes_that_a_gpu_row_computed_on_the_cpu_are_named() -> None:
    settings = {"computed_on_cpu": "QLinearConv", "nodes_computed_on_cpu": "conv1_quant and 52 more"}
    elsewhere = {"device": "cuda+cpu", "settings": settings}
    records = [r.model_copy(update={"placement": r.placement.model_copy(update=elsewhere)}) for r in quiet()]
    finding = findings(records)["PLACEMENT"]
    assert finding.caps_at == "F"
    assert finding.flag.detail.endswith("; on the CPU: QLinearConv (conv1_quant and 52 more)")


def test_a_model_without_floating_point_numbers_has_no_wrong_precision() -> None:
    integers = {"precision": NO_FLOATS}
    records = [r.model_copy(update={"placement": r.placement.model_copy(update=integers)}) for r in quiet()]
    assert "PLACEMENT" not in findings(records)
    elsewhere = {"precision": NO_FLOATS, "device": "cuda"}
    records = [r.model_copy(update={"placement": r.placement.model_copy(update=elsewhere)}) for r in quiet()]
    assert findings(records)["PLACEMENT"].caps_at == "F"


def test_int8_that_ran_in_fp32_names_the_block_to_leave_out() -> None:
    case = CASE.model_copy(update={"precision": "int8"})
    records = quiet()
    latency, parity = row.latency_of(records), row.worst_parity(records)
    (flag,) = flags_for(case, records, latency, parity, CHECKS)
    assert flag.flag.detail == "fp32 on cpu ran where the label says int8 on cpu"
    assert "leave int8 out" in flag.flag.remedy


def test_fp8_that_ran_partly_in_bf16_names_the_layers_that_fp8_does_not_take() -> None:
    case = CASE.model_copy(update={"precision": "fp8"})
    mixed = {"precision": "bf16+fp8"}
    records = [r.model_copy(update={"placement": r.placement.model_copy(update=mixed)}) for r in quiet()]
    latency, parity = row.latency_of(records), row.worst_parity(records)
    result = {flag.flag.name: flag for flag in flags_for(case, records, latency, parity, CHECKS)}["PLACEMENT"]
    assert result.caps_at == "F"
    assert result.flag.detail == "bf16+fp8 on cpu ran where the label says fp8 on cpu"
    assert "convolutions" in result.flag.remedy


def test_a_numbered_device_is_the_device() -> None:
    case = CASE.model_copy(update={"device": "cuda"})
    records = [r.model_copy(update={"placement": r.placement.model_copy(update={"device": "cuda:1"})}) for r in quiet()]
    flags = flags_for(case, records, row.latency_of(records), row.worst_parity(records), CHECKS)
    assert flags == []


@pytest.mark.parametrize(("unsteady", "grade"), [({1}, "B"), ({1, 2}, "C")])
def test_unsteady_warm_up(unsteady: set[int], grade: str) -> None:
    records = [r.model_copy(update={"steady": r.round not in unsteady}) for r in quiet()]
    results = findings(records)
    assert grades.grade(results.values()) == grade
    assert f"{len(unsteady)} of 3" in results["NOT_WARMED_UP"].flag.detail


def test_stopping_at_the_limit_counts_only_where_the_width_was_not_reached() -> None:
    assert "NOT_CONVERGED" not in findings(quiet(stop="time limit"))
    jumpy = [10_000_000] * 50 + [11_000_000] * 50 + [10_000_000] * 50 + [11_000_000] * 50
    finding = findings(quiet(stop="time limit", latency_ns=tuple(jumpy)))["NOT_CONVERGED"]
    assert finding.caps_at == "B"
    assert "at ±8.7%" in finding.flag.detail


@pytest.mark.parametrize(
    ("stops", "said", "keys"),
    [
        (("time limit",) * 3, "ran out of time in", "raise `measurement.max_s`."),
        (("sample limit",) * 3, "reached its limit of samples in", "raise `measurement.max_samples`."),
        (
            ("sample limit", "time limit", "time limit"),
            "ran out of time or reached its limit of samples in",
            "raise `measurement.max_s` and `measurement.max_samples`.",
        ),
    ],
)
def test_the_limit_that_ended_a_wide_process_is_named(stops: tuple[str, ...], said: str, keys: str) -> None:
    jumpy = ([10_000_000] * 50 + [11_000_000] * 50) * 2
    records = quiet(latency_ns=tuple(jumpy))
    ended = [record.model_copy(update={"stop": stop}) for record, stop in zip(records, stops, strict=True)]
    flag = findings(ended)["NOT_CONVERGED"].flag
    assert said in flag.detail
    assert flag.remedy.endswith(keys)


def test_too_few_blocks_to_decide_is_not_met() -> None:
    one_block = (Block(iterations=200, wall_ns=2_000_000_000),)
    assert "too few blocks" in findings(quiet(stop="time limit", blocks=one_block))["NOT_CONVERGED"].flag.detail


def over_processes(low: float, high: float, rounds: int = 3) -> list[Finding]:
    """Findings about a median of 100 with this interval, of processes that stopped where they should."""
    records = quiet()
    update = {"median": 100.0e6, "ci95": Interval(low=low * 1e6, high=high * 1e6), "rounds": rounds}
    latency = row.latency_of(records).model_copy(update=update)
    return flags_for(CASE, records, latency, row.worst_parity(records), CHECKS)


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        (95.1, 104.9, []),
        (94.9, 104.0, ["WIDE_INTERVAL"]),
        (90.1, 109.9, ["WIDE_INTERVAL"]),
        (89.9, 104.0, ["UNCERTAIN"]),
        (54.0, 146.0, ["UNCERTAIN"]),  # was B, ranked and drawn in colour
        (99.9, 105.1, ["WIDE_INTERVAL"]),  # half of both sides is 2.6%: the end further away counts
        (99.9, 110.1, ["UNCERTAIN"]),
        (101.0, 112.0, ["UNCERTAIN"]),  # a median outside its own interval
    ],
)
def test_intervals_over_processes(low: float, high: float, names: list[str]) -> None:
    result = over_processes(low, high)
    assert [entry.flag.name for entry in result] == names
    assert grades.grade(result) == {"WIDE_INTERVAL": "B", "UNCERTAIN": "C"}.get("".join(names), "A")


@pytest.mark.parametrize(("rounds", "more"), [(3, 5), (5, 10)])
def test_a_wide_interval_asks_for_more_rounds_than_there_are(rounds: int, more: int) -> None:
    (result,) = over_processes(80, 120, rounds)
    assert result.flag.remedy.endswith(f"`make bench ROUNDS={more}`.")


def test_between_processes_and_within_one_are_two_flags() -> None:
    jumpy = tuple([10_000_000] * 50 + [11_000_000] * 50) * 2
    records = [r.model_copy(update={"latency_ns": jumpy, "stop": "time limit"}) for r in quiet()]
    records[2] = steady_record(3, 13_000_000)
    results = findings(records)
    assert {name: entry.caps_at for name, entry in results.items()} == {"NOT_CONVERGED": "B", "UNCERTAIN": "C"}
    assert "within one process" in results["NOT_CONVERGED"].flag.detail
    assert "over 3 processes" in results["UNCERTAIN"].flag.detail


def test_one_process_has_no_interval_and_is_not_grade_a() -> None:
    results = findings([steady_record(1, 10_000_000)])
    assert {name: entry.caps_at for name, entry in results.items()} == {"ONE_PROCESS": "B"}
    assert results["ONE_PROCESS"].flag.remedy.endswith("`make bench ROUNDS=3`.")


def test_processes_without_an_interval_are_not_one_process() -> None:
    records = quiet()
    latency = row.latency_of(records).model_copy(update={"ci95": None})
    (flag,) = flags_for(CASE, records, latency, row.worst_parity(records), CHECKS)
    assert (flag.flag.name, flag.caps_at) == ("UNCERTAIN", "C")


def test_absurd_widths_are_not_spelled_out() -> None:
    results = findings([steady_record(1, 10_000_000), steady_record(2, 55_000_000)])
    assert "is more than ±50%, ±10% allowed" in results["UNCERTAIN"].flag.detail
    jumps = ([10_000_000] * 50 + [200_000_000] * 50) * 2
    detail = findings(quiet(stop="time limit", latency_ns=tuple(jumps)))["NOT_CONVERGED"].flag.detail
    assert "3 of 3 rounds, at more than ±50% within one process (goal ±1.0%)" in detail


def test_a_width_above_its_limit_is_never_rounded_to_it() -> None:
    for high, shown in (
        (1.1004, "±10.1%, ±10% allowed"),
        (1.0503, "±5.1%, ±5% allowed"),
        (1.123, "±12.3%, ±10% allowed"),
    ):
        (found,) = over_processes(99, 100 * high)
        assert found.flag.detail == f"the 95% interval over 3 processes is {shown}"


def test_a_row_that_is_only_uncertain_may_still_be_compared() -> None:
    flags = {caps: grades.finding(caps, "X", "", "").flag for caps in get_args(Grade)}
    uncertain = grades.finding("C", UNCERTAIN, "", "").flag

    def only(*names: Flag, grade: Grade = "C") -> bool:
        return only_uncertain(ROW.model_copy(update={"flags": names, "grade": grade}))

    assert only(uncertain)
    assert only(uncertain, flags["A"], flags["B"])
    assert not only(uncertain, flags["C"])
    assert not only(uncertain, Flag(name="OLD", detail="", remedy=""))  # what it costs is not on record
    assert not only(flags["C"])
    assert not only(uncertain, grade="F")


@pytest.mark.parametrize(("median_ns", "flagged"), [(4_099, True), (4_100, False)])
def test_below_the_timer(median_ns: int, flagged: bool) -> None:
    clock = Clock(name="perf_counter_ns", resolution_ns=1.0, overhead_ns=41)
    records = [steady_record(number, median_ns).model_copy(update={"clock": clock}) for number in (1, 2, 3)]
    results = findings(records)
    assert ("BELOW_TIMER" in results) == flagged
    assert grades.grade(results.values()) == ("C" if flagged else "A")


@pytest.mark.parametrize(
    ("medians", "flagged"),
    [
        ((1000, 1030, 1061), True),
        ((1061, 1030, 1000), True),
        ((100, 102, 103, 105, 106), True),
        ((100, 103, 102, 105, 104, 107, 106, 109), True),  # up on the whole
        ((100, 101, 102, 103, 104), False),  # not far enough
        ((100, 106, 103), False),
        ((100, 120, 170), False),  # in order, as three that scatter are in one case of three
        ((726, 835, 1037, 850), False),
    ],
)
def test_drift_is_a_trend_and_large(medians: tuple[int, ...], flagged: bool) -> None:
    records = [steady_record(number, median * 100_000) for number, median in enumerate(medians, 1)]
    results = findings(records)
    assert ("DRIFT" in results) == flagged
    if flagged:
        assert results["DRIFT"].caps_at == "C"


def test_two_rounds_cannot_drift() -> None:
    assert "DRIFT" not in findings([steady_record(1, 10_000_000), steady_record(2, 12_000_000)])


@pytest.mark.parametrize(("cached", "flagged"), [((True, True), True), ((False, True), False), ((None, None), False)])
def test_compile_cache_is_reported_and_costs_no_grade(cached: tuple[bool | None, ...], flagged: bool) -> None:
    records = []
    for number, hit in enumerate(cached, 1):
        cold = ColdCosts(load=1, compile=None if hit is None else 5, compile_cached=hit, first_inference=1)
        records.append(steady_record(number, 10_000_000).model_copy(update={"cold_ns": cold}))
    results = findings(records)
    assert ("COMPILE_CACHED" in results) == flagged
    assert grades.grade(results.values()) == "A"


def test_a_backend_that_computes_nothing_is_never_ranked_and_never_void() -> None:
    checks = Criteria(tolerance=TOLERANCE, judge_top1=True, target_ci=0.01, calibration=True)
    results = findings(quiet(parity_before=None, parity_timed=None), checks)
    assert set(results) == {CALIBRATION}
    assert results[CALIBRATION].caps_at == "A"


def test_a_row_slowed_on_purpose_says_so() -> None:
    results = findings(quiet(notes=("every inference was stretched by 1.05 on purpose",)))
    assert "stretched by 1.05" in results["ON_PURPOSE"].flag.detail
