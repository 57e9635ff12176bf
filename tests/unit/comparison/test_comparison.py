"""Verdicts: against scipy, against brute force, and by simulation how often they are wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.false_alarms import KINDS, verdicts
from benchmarks.false_alarms import changes as simulated
from harness.comparison import compatibility
from harness.comparison import verdicts as comparison
from harness.comparison.verdicts import Margins
from harness.core.host.environment import COMMIT
from harness.core.schemas import ComparedRow, Flag, Interval, Latency, Row, Summary, TensorSpec
from harness.statistics import estimators
from harness.statistics.ratios import Change, change_between, ratio_of, ratio_of_medians
from tests.fixtures.comparing import compared
from tests.synthetic_results import MINILM, FakeModel, Synthetic, case_of, environment, voided

BACKENDS = ("torch-eager", "torch-script", "onnxruntime", "openvino")
Edit = Callable[[Row], Row]

positive = st.floats(1e3, 1e9)
medians = st.lists(positive, min_size=2, max_size=8)


def summary_of(seed: int = 1, edit: Edit = lambda row: row, rounds: int = 5, **more: Any) -> Summary:
    """Four rows with 0.3% between processes, the same for the same seed; `edit` changes rows."""
    rng = np.random.default_rng(seed)
    cases = [case_of(MINILM, backend, "fp32", 1, 128) for backend in BACKENDS]
    summary = Synthetic(models=(MINILM,), cases=cases, samples=100, rounds=rounds, **more).summary()
    rows = [edit(timed(row, 1e7 * np.exp(0.003 * rng.normal(size=rounds)))) for row in summary.rows]
    return summary.model_copy(update={"rows": tuple(rows)})


def timed(row: Row, values: Any) -> Row:
    """The row with other process medians."""
    latency = row.latency_ns
    assert isinstance(latency, Latency)
    update = {"process_medians": tuple(map(float, values)), "median": float(np.median(values)), "rounds": len(values)}
    return row.model_copy(update={"grade": "A", "flags": (), "latency_ns": latency.model_copy(update=update)})


def slowed(backend: str, factor: float) -> Edit:
    def edit(row: Row) -> Row:
        if row.backend != backend or row.latency_ns is None:
            return row
        return timed(row, [value * factor for value in row.latency_ns.process_medians])

    return edit


def changed(backend: str, **update: Any) -> Edit:
    return lambda row: voided(row.model_copy(update=update)) if row.backend == backend else row


def compare(baseline: Summary, current: Summary, margins: Margins | None = None) -> dict[str, ComparedRow]:
    """By backend."""
    differences = compatibility.differences(baseline, current)
    rows = compared(baseline, current, differences, margins or Margins())
    assert len({row.backend for row in rows}) == len(rows)
    return {row.backend: row for row in rows}


# --- the change between two runs ----------------------------------------------------------------------------------


@given(medians, medians)
def test_a_ratio_is_the_quotient_of_the_medians(over: list[float], under: list[float]) -> None:
    ratio = ratio_of_medians(over, under)
    assert ratio is not None
    assert ratio.value == estimators.median(over) / estimators.median(under)
    if ratio.ci95 is not None:
        assert ratio.ci95.low <= ratio.value <= ratio.ci95.high


@given(medians, medians)
def test_the_other_way_round_it_is_the_inverse(baseline: list[float], current: list[float]) -> None:
    there, back = change_between(baseline, current), change_between(current, baseline)
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert there.t_p == pytest.approx(back.t_p, rel=1e-9)
        assert there.rank_p == pytest.approx(back.rank_p, rel=1e-9)
        assert there.value * back.value == pytest.approx(1, rel=1e-9)
        assert there.ci95.low * back.ci95.high == pytest.approx(1, rel=1e-6)


def test_the_interval_of_a_ratio_is_donner_and_zous() -> None:
    ci95 = ratio_of(20, Interval(low=18, high=25), 10, Interval(low=8, high=11)).ci95
    assert ci95 is not None
    assert math.log(ci95.low / 2) == pytest.approx(-math.sqrt(math.log(20 / 18) ** 2 + math.log(11 / 10) ** 2))
    assert math.log(ci95.high / 2) == pytest.approx(math.sqrt(math.log(25 / 20) ** 2 + math.log(10 / 8) ** 2))


def test_a_ratio_to_one_process_has_no_interval() -> None:
    ratio = ratio_of_medians([2.0, 2.1, 2.2], [1.0])
    assert ratio is not None
    assert (ratio.value, ratio.ci95) == (pytest.approx(2.1), None)
    assert ratio_of_medians([1.0], [0.0]) is None
    assert ratio_of_medians([], [1.0]) is None


@pytest.mark.parametrize(
    ("baseline", "current"),
    [([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0]), ([0.0, 1.0], [1.0, 2.0]), ([1.0, 1.0], [2.0, 2.0]), ([], [])],
)
def test_no_ratio_where_the_spread_is_unknown(baseline: list[float], current: list[float]) -> None:
    assert change_between(baseline, current) is None


def test_two_processes_orders_of_magnitude_apart_prove_nothing() -> None:
    assert change_between([1e-90, 1e90], [1e-90, 1e90]) is None


# --- verdicts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "value", "high", "p", "verdict"),
    [
        (0.995, 1.0, 1.005, 0.9, "SAME"),
        (1.002, 1.005, 1.008, 0.001, "SAME"),  # significant, and too little to matter
        (0.98, 1.0, 1.02, 0.9, "AMBIGUOUS"),
        (1.02, 1.05, 1.08, 0.01, "SLOWER"),
        (1.02, 1.05, 1.08, 0.06, "AMBIGUOUS"),  # chance among so many rows
        (1.004, 1.008, 1.012, 0.01, "AMBIGUOUS"),  # no more than the margin as it seems, perhaps more
        (0.92, 0.95, 0.98, 0.01, "FASTER"),
        (0.92, 0.95, 0.98, 0.06, "AMBIGUOUS"),
        (0.988, 0.992, 0.996, 0.01, "AMBIGUOUS"),
        (0.999, 1.02, 1.04, 0.04, "AMBIGUOUS"),
    ],
)
def test_a_verdict_needs_interval_p_and_margin(low: float, value: float, high: float, p: float, verdict: str) -> None:
    assert verdict_of(value, low, high, t_p=p) == verdict


def verdict_of(value: float, low: float, high: float, margin: float = 0.01, **more: Any) -> str:
    """Of a single row, whose p need no adjusting."""
    facts = {"t_p": 0.001, "rank_p": 2 / 252, "apart": True, "rounds": (5, 5), **more}
    (result,) = comparison.judge([Change(value, Interval(low=low, high=high), **facts)], margin)
    assert (result.doubt is None) == (result.verdict != "AMBIGUOUS")
    return result.verdict


def test_the_margin_of_equivalence_can_be_widened() -> None:
    assert [verdict_of(1.03, 1.02, 1.04, margin) for margin in (0.01, 0.05)] == ["SLOWER", "SAME"]


@pytest.mark.parametrize(
    ("rank", "apart", "verdict"), [(0.01, False, "SLOWER"), (0.06, True, "SLOWER"), (0.06, False, "AMBIGUOUS")]
)
def test_ranks_or_runs_that_lie_apart_guard_welchs_test(rank: float, apart: bool, verdict: str) -> None:
    assert verdict_of(1.05, 1.02, 1.08, rank_p=rank, apart=apart) == verdict


@pytest.mark.parametrize("rounds", [(4, 5), (5, 4), (3, 3), (2, 20)])
def test_fewer_than_five_rounds_on_a_side_are_never_a_verdict(rounds: tuple[int, int]) -> None:
    assert verdict_of(1.05, 1.02, 1.08, rounds=rounds) == "AMBIGUOUS"
    assert verdict_of(0.95, 0.92, 0.98, rounds=rounds) == "AMBIGUOUS"
    assert verdict_of(1.0, 0.999, 1.001, rounds=rounds) == "AMBIGUOUS"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(3, 5, "3 in the baseline"), (5, 3, "3 now"), (3, 2, "3 in the baseline and 2 now")],
)
def test_too_few_rounds_are_named_with_the_command_that_gives_more(before: int, after: int, said: str) -> None:
    result = compare(summary_of(1, rounds=before), summary_of(2, slowed("openvino", 2), rounds=after))["openvino"]
    assert (result.verdict, result.rounds, result.fails) == ("AMBIGUOUS", (before, after), False)
    assert result.reason == f"too few rounds for a verdict ({said}): `make bench ROUNDS=5` there"
    assert result.ratio == pytest.approx(2, rel=0.02)


def test_one_slowed_backend_is_detected_and_only_that() -> None:
    rows = compare(summary_of(1), summary_of(2, slowed("openvino", 1.05)))
    assert rows["openvino"].verdict == "SLOWER"
    assert rows["openvino"].fails
    assert rows["openvino"].ratio == pytest.approx(1.05, rel=0.01)
    assert not any(row.fails for backend, row in rows.items() if backend != "openvino")
    assert {row.verdict for backend, row in rows.items() if backend != "openvino"} <= {"SAME", "AMBIGUOUS"}


def test_the_other_way_round_it_is_faster() -> None:
    rows = compare(summary_of(2, slowed("openvino", 1.05)), summary_of(1))
    assert rows["openvino"].verdict == "FASTER"
    assert not rows["openvino"].fails


@pytest.mark.parametrize(("factor", "fails"), [(1.03, False), (1.08, True)])
def test_a_slow_down_within_the_allowance_is_named_and_passes(factor: float, fails: bool) -> None:
    rows = compare(summary_of(1), summary_of(2, slowed("openvino", factor)), Margins(0.01, 0.05))
    assert (rows["openvino"].verdict, rows["openvino"].fails) == ("SLOWER", fails)


def test_more_rows_ask_for_more_certainty() -> None:
    alone = compare(summary_of(1, rounds=3), summary_of(2, slowed("openvino", 1.02), rounds=3))
    p_of_four, rank_p_of_four = alone["openvino"].p_holm, alone["openvino"].p_rank_holm
    only = {
        name: entry.model_copy(update={"rows": tuple(row for row in entry.rows if row.backend == "openvino")})
        for name, entry in (
            ("a", summary_of(1, rounds=3)),
            ("b", summary_of(2, slowed("openvino", 1.02), rounds=3)),
        )
    }
    result = compare(only["a"], only["b"])["openvino"]
    assert result.p_holm is not None
    assert result.p_rank_holm is not None
    assert p_of_four == pytest.approx(4 * result.p_holm)
    assert rank_p_of_four == pytest.approx(4 * result.p_rank_holm)


def test_new_and_gone_rows_keep_their_figure() -> None:
    full = summary_of(1)
    fewer = full.model_copy(update={"rows": full.rows[:-1]})
    gone, new = compare(full, fewer)["openvino"], compare(fewer, full)["openvino"]
    assert (gone.verdict, gone.baseline_ns is None, gone.current_ns) == ("GONE", False, None)
    assert (new.verdict, new.baseline_ns, new.current_ns is None) == ("NEW", None, False)
    assert comparison.is_lost(gone)
    assert not comparison.is_lost(new)


@pytest.mark.parametrize("field", ["boundary", "mode", "weights"])
def test_rows_of_another_kind_never_meet(field: str) -> None:
    other = {"boundary": "e2e", "mode": "offline", "weights": "seeded"}[field]
    result = compared(summary_of(1), summary_of(2, changed("openvino", **{field: other})), (), Margins())
    assert [row.verdict for row in result if row.backend == "openvino"] == ["NEW", "GONE"]


FLAG = Flag(name="PARITY_FAIL", detail="", remedy="")


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        ({"grade": "F", "flags": (FLAG,)}, "now grade F: PARITY_FAIL"),
        ({"grade": "C", "flags": (FLAG,)}, "now grade C: PARITY_FAIL"),
        (
            {"status": "failed", "grade": None, "reason": "load: killed", "latency_ns": None},
            "now failed: load: killed",
        ),
        ({"status": "missing", "grade": None, "reason": None, "latency_ns": None}, "now missing"),
        ({"threads": 1}, "2 threads in the baseline, 1 now"),
        ({"clock": None}, "clock perf_counter_ns in the baseline, none now"),
    ],
)
def test_a_row_without_a_sound_figure_is_not_compared(update: dict[str, Any], reason: str) -> None:
    rows = compare(summary_of(1), summary_of(2, changed("openvino", **update)))
    row = rows["openvino"]
    assert (row.verdict, row.reason, row.ratio, row.fails) == ("NOT COMPARABLE", reason, None, False)
    assert comparison.is_lost(row) == (update.get("grade", "A") in ("F", None))
    assert rows["onnxruntime"].ratio is not None


def test_a_case_that_both_sides_lack_is_reported_once() -> None:
    skip = changed("openvino", status="skipped", grade=None, reason="no kernels", latency_ns=None)
    assert compare(summary_of(1, skip), summary_of(2, skip))["openvino"].reason == "skipped: no kernels"


@pytest.mark.parametrize(("before", "after", "side"), [(1, 5, "the baseline"), (5, 1, "the current run")])
def test_one_round_is_no_comparison(before: int, after: int, side: str) -> None:
    result = compare(summary_of(1, rounds=before), summary_of(2, rounds=after))["openvino"]
    assert result.verdict == "NOT COMPARABLE"
    assert result.reason == f"one round in {side}: measure at least 2 on both sides"


def test_the_very_same_samples_are_no_second_run() -> None:
    rows = compare(summary_of(1), summary_of(1))
    assert {row.verdict for row in rows.values()} == {"NOT COMPARABLE"}
    assert all("very same samples" in (row.reason or "") for row in rows.values())


def test_the_middle_ratio_needs_enough_rows() -> None:
    rows = list(compare(summary_of(1), summary_of(2)).values())
    rows = [row.model_copy(update={"ratio": value}) for row, value in zip(rows, (1.0, 1.1, 1.3, None), strict=True)]
    assert comparison.common_ratio(rows) == 1.1
    assert comparison.common_ratio(rows[1:]) is None


# --- what differs around the rows ---------------------------------------------------------------------------------


def elsewhere(**changed_facts: Any) -> Summary:
    result = environment(**changed_facts)
    return summary_of(2).model_copy(update={"environments": {"other": result}})


@pytest.mark.parametrize(
    ("facts", "name"), [({"cpu": "another CPU"}, "machine.cpu"), ({"threads": 1}, "limits.threads")]
)
def test_another_machine_forbids_every_row_and_is_named(facts: dict[str, Any], name: str) -> None:
    rows = compare(summary_of(1), elsewhere(**facts))
    assert {row.verdict for row in rows.values()} == {"NOT COMPARABLE"}
    assert all(name in (row.reason or "") for row in rows.values())


def test_another_library_is_listed_and_judged() -> None:
    newer = elsewhere(libraries={"torch": "2.15.0", "onnxruntime": "1.31.1", "openvino": "2026.4.0", "numpy": "2.4.6"})
    (difference,) = compatibility.differences(summary_of(1), newer)
    assert (difference.name, difference.baseline, difference.current, difference.refuses) == (
        "library torch",
        "2.14.1",
        "2.15.0",
        False,
    )
    assert all(row.ratio is not None for row in compare(summary_of(1), newer).values())


@pytest.mark.parametrize(
    ("part", "update", "refuses"),
    [
        ("machine", {"kernel": "6.2"}, False),
        ("machine", {"microcode": "0x2"}, False),
        ("machine", {"os": "Debian 13"}, False),
        ("limits", {"image": "inferometer:cpu"}, False),
        ("limits", {"image_digest": "sha256:1"}, False),
        ("limits", {"affinity": (0,)}, True),
        ("limits", {"cpu_quota": 1.5}, True),
        ("machine", {"governor": "powersave"}, True),
        ("machine", {"memory_bytes": 8 << 30}, True),
        ("machine", {"memory_bytes": (16 << 30) - 4096}, None),
    ],
)
def test_an_upgrade_is_judged_and_another_machine_is_refused(
    part: str, update: dict[str, Any], refuses: bool | None
) -> None:
    here = environment()
    there = here.model_copy(update={part: getattr(here, part).model_copy(update=update)})
    current = summary_of(2).model_copy(update={"environments": {"other": there}})
    differences = compatibility.differences(summary_of(1), current)
    assert [difference.refuses for difference in differences] == ([] if refuses is None else [refuses])


def test_why_a_fact_could_not_be_read_makes_no_difference() -> None:
    here = environment()
    governor = here.machine.governor.model_copy(update={"unavailable": "for another reason"})  # type: ignore[union-attr]
    there = here.model_copy(update={"machine": here.machine.model_copy(update={"governor": governor})})
    assert (
        compatibility.differences(summary_of(1), summary_of(2).model_copy(update={"environments": {"x": there}})) == ()
    )


def test_code_configuration_and_build_are_information() -> None:
    here = environment()
    software = here.software.model_copy(
        update={"git_commit": "456", "git_dirty": True, "build": {"torch.parallel": "TBB"}}
    )
    there = here.model_copy(update={"software": software})
    current = summary_of(2).model_copy(update={"environments": {"x": there}, "config": "configs/other.yaml"})
    results = {
        difference.name: (difference.baseline, difference.current)
        for difference in compatibility.differences(summary_of(1), current)
    }
    assert results == {
        "configuration": ("configs/synthetic.yaml", "configs/other.yaml"),
        "build of torch.parallel": ("OpenMP", "TBB"),
        "git commit": ("0123abc", "456 with local changes"),
    }


def test_a_commit_that_is_unknown_has_its_reason_in_place_of_it() -> None:
    here = environment()
    software = here.software.model_copy(
        update={"git_commit": None, "git_dirty": None, "build": {**here.software.build, COMMIT: "unknown: why"}}
    )
    current = summary_of(2).model_copy(update={"environments": {"x": here.model_copy(update={"software": software})}})
    (difference,) = compatibility.differences(summary_of(1), current)
    assert (difference.name, difference.baseline, difference.current) == ("git commit", "0123abc", "unknown: why")


def test_the_placement_of_a_row_is_compared_too() -> None:
    def edit(row: Row) -> Row:
        assert row.placement is not None
        placement = row.placement.model_copy(update={"provider": "other", "settings": {"threads": 2, "streams": 1}})
        return row.model_copy(update={"placement": placement, "artifacts": {"model.onnx": "1" * 64}})

    rows = compare(summary_of(1), summary_of(2, edit))
    expected = ("changed: model.onnx", "provider openvino → other", "streams absent → 1")
    assert rows["openvino"].changed == expected


# --- how often it is wrong: a part of benchmarks/false_alarms.py, whose tables docs/speed.md has -------------------

ROWS = 30


def alarms(kind: str, rounds: int, tables: int) -> int:
    """A/A tables of which a row is called SLOWER or FASTER."""
    rng = np.random.default_rng(20261127)
    count = 0
    for _ in range(tables):
        runs = (KINDS[kind](rng, ROWS, rounds) for _ in range(2))
        count += bool({"SLOWER", "FASTER"} & set(verdicts(simulated(*runs))))
    return count


@pytest.mark.parametrize(
    "kind",
    [
        "normal, 1%",
        "log-normal, 15%",
        "skewed, exponential 2%",
        "3 of 30 rows at two speeds, 50:50",
        "3 of 30 rows at two speeds, 70:30",
    ],
)
def test_two_equal_runs_raise_no_alarm(kind: str) -> None:
    assert alarms(kind, 5, tables=300) <= 0.06 * 300


@pytest.mark.parametrize(("rounds", "most"), [(5, 0.09), (6, 0.05), (10, 0.05)])
@pytest.mark.parametrize("kind", ["all rows at two speeds, 50:50", "all rows at two speeds, 70:30"])
def test_nor_where_every_row_comes_at_two_speeds(kind: str, rounds: int, most: float) -> None:
    # 5.7% of tables lie apart by chance alone with five rounds; three hundred tables scatter by 1.3%.
    assert alarms(kind, rounds, tables=300) <= most * 300


@pytest.mark.parametrize("rounds", [2, 3, 4])
def test_nor_from_fewer_than_five_rounds(rounds: int) -> None:
    assert alarms("all rows at two speeds, 50:50", rounds, tables=20) == 0


def test_a_slow_down_of_five_per_cent_is_detected_with_five_rounds() -> None:
    rng, result = np.random.default_rng(20261127), 0
    for _ in range(200):
        baseline, current = (KINDS["normal, 1%"](rng, ROWS, 5) for _ in range(2))
        current[0] += np.log(1.05)
        result += verdicts(simulated(baseline, current))[0] == "SLOWER"
    assert result >= 0.9 * 200


# --- two states of one class ----------------------------------------------------------------------------------------


def net(digits: str, *more: str, width: int = 16, seed: int = 1) -> Summary:
    """A run of modules that harness.api was given: Net in the state `digits`, and others."""
    models = [FakeModel(f"pickle-{name}", "image", "pretrained", 5e6, 3e6) for name in (f"Net-{digits}", *more)]
    cases = [case_of(model, "torch-eager", "fp32", 1) for model in models]
    summary = Synthetic(models=tuple(models), cases=cases, samples=100, rounds=5).summary()
    rng = np.random.default_rng(seed)
    named = lambda slug: slug.replace("pickle-", "pickle:")  # noqa: E731
    rows = [timed(row, 1e7 * np.exp(0.003 * rng.normal(size=5))) for row in summary.rows]
    rows = [row.model_copy(update={"model": named(row.model)}) for row in rows]
    tensor = TensorSpec(name="x", dtype="float32", shape=("batch", width))
    exports = {
        named(name): export.model_copy(update={"model": named(name), "inputs": (tensor,)})
        for name, export in summary.exports.items()
    }
    return summary.model_copy(update={"rows": tuple(rows), "exports": exports})


OLD, NEW = "0123456789abcdef", "fedcba9876543210"


def outcomes(baseline: Summary, current: Summary) -> list[str]:
    differences = compatibility.differences(baseline, current)
    return [row.verdict for row in compared(baseline, current, differences, Margins())]


def test_two_states_of_one_class_are_compared_and_the_difference_is_reported() -> None:
    before, after = net(OLD), net(NEW, seed=2)
    (row,) = compared(before, after, (), Margins())
    assert row.ratio is not None
    assert (row.case_id, row.model) == (f"pickle-Net-{NEW}-torch-eager-cpu-fp32-b1", f"pickle:Net-{NEW}")
    shown = [
        (difference.name, difference.baseline, difference.current, difference.refuses)
        for difference in compatibility.differences(before, after)
    ]
    assert ("state of Net", OLD, NEW, False) in shown


@pytest.mark.parametrize(
    ("baseline", "current"),
    [
        (net(OLD), net(NEW, width=32)),
        (net(OLD), net(NEW, "Net-00112233445566ff")),
        (net(OLD), net(NEW).model_copy(update={"exports": {}})),
    ],
    ids=["other shapes", "two states on one side", "nothing known"],
)
def test_states_without_a_pair_stay_new_and_gone(baseline: Summary, current: Summary) -> None:
    assert outcomes(baseline, current) == ["NEW"] * len(current.rows) + ["GONE"]
