"""Each rule: when it speaks, what it says, which rows it names, and when it must stay silent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from harness.core.schemas import ColdCosts, Flag, Interval, Row, Speedup, Summary
from harness.reporting.prose import recommendations
from harness.reporting.prose.recommendations import Candidates, Recommendation, joined_words
from tests.synthetic_results import EFFICIENTNET, Synthetic, matrix

Golden = Callable[[str, str], None]
SUMMARY = Synthetic(models=(EFFICIENTNET,), cases=matrix((EFFICIENTNET,))).summary()
BY_NAME = {(row.backend, row.precision, row.batch_size): row for row in SUMMARY.rows}
Rule = Callable[[Candidates], Iterable[Recommendation]]


def row(backend: str, batch: int, ms: float, precision: str = "fp32", spread: float = 0.01, **changes: Any) -> Row:
    """A row with three processes around a median, and throughput to match."""
    result = BY_NAME[backend, precision, batch]
    assert result.latency_ns is not None
    medians = tuple(ms * 1e6 * factor for factor in (1 - spread / 2.5, 1.0, 1 + spread / 2.5))
    ends = Interval(low=ms * 1e6 * (1 - spread), high=ms * 1e6 * (1 + spread))
    latency = result.latency_ns.model_copy(
        update={"median": ms * 1e6, "ci95": ends, "p95": ms * 1.1e6, "process_medians": medians}
    )
    rate = batch / ms * 1e3
    rates = Interval(low=rate * (1 - spread), high=rate * (1 + spread))
    timed = {"latency_ns": latency, "throughput_per_s": rate, "throughput_ci95": rates}
    return result.model_copy(update={**timed, **changes})


def one_process(advice: Row) -> Row:
    assert advice.latency_ns is not None
    update = {"ci95": None, "process_medians": (advice.latency_ns.median,)}
    return advice.model_copy(
        update={"latency_ns": advice.latency_ns.model_copy(update=update), "throughput_ci95": None}
    )


def group(*rows: Row, limit: float | None = None) -> Candidates:
    return Candidates("a model", rows, {entry.case_id: entry for entry in (*SUMMARY.rows, *rows)}, None, limit)


def said(rule: Rule, *rows: Row, limit: float | None = None) -> str:
    return " | ".join(entry.text for entry in rule(group(*rows, limit=limit)))


def named(rule: Rule, *rows: Row, limit: float | None = None) -> set[str]:
    """Backend, precision and batch of the rows that the rule's recommendations rest on."""
    ids = {case_id for entry in rule(group(*rows, limit=limit)) for case_id in entry.case_ids}
    return {f"{entry.backend} {entry.precision} b{entry.batch_size}" for entry in SUMMARY.rows if entry.case_id in ids}


# --- most throughput ----------------------------------------------------------------------------------------------

SERIES = (row("openvino", 1, 10), row("openvino", 4, 20), row("openvino", 16, 64))


def test_the_batch_with_the_most_throughput() -> None:
    text = said(recommendations.best_batch, *SERIES)
    assert text == "most throughput with openvino fp32 at batch 16, 250 images/s (64.0 ms a batch, p95 70.4 ms)."
    assert named(recommendations.best_batch, *SERIES) == {"openvino fp32 b16"}


def test_a_limit_holds_for_p95_and_not_for_the_median() -> None:
    text = said(recommendations.best_batch, *SERIES, limit=65)
    assert text.startswith("most throughput with openvino fp32 at batch 4")
    assert text.endswith("within the limit of 65 ms.")
    assert "no row is known to stay within 5 ms" in said(recommendations.best_batch, *SERIES, limit=5)


def test_the_smallest_batch_that_may_give_as_much() -> None:
    rows = (*SERIES[:2], row("openvino", 16, 79))
    assert said(recommendations.best_batch, *rows).endswith("Batch 16 is not significantly faster.")
    assert named(recommendations.best_batch, *rows) == {"openvino fp32 b4", "openvino fp32 b16"}


def test_one_batch_size_is_no_choice() -> None:
    assert said(recommendations.best_batch, row("openvino", 1, 10), row("onnxruntime", 1, 11)) == ""


# --- flat throughput ----------------------------------------------------------------------------------------------


def test_throughput_that_no_longer_grows() -> None:
    rows = (row("openvino", 1, 10), row("openvino", 4, 20), row("openvino", 16, 80))
    assert said(recommendations.saturation, *rows).startswith("throughput is flat from batch 4 with openvino fp32 on")
    assert named(recommendations.saturation, *rows) == {"openvino fp32 b4", "openvino fp32 b16"}


@pytest.mark.parametrize("last", [row("openvino", 16, 64), row("openvino", 16, 80, spread=0.2)])
def test_throughput_that_grows_or_may_grow_is_not_flat(last: Row) -> None:
    assert said(recommendations.saturation, *SERIES[:2], last) == ""


def test_without_intervals_flatness_is_not_known() -> None:
    rows = [one_process(row("openvino", batch, ms)) for batch, ms in ((1, 10), (4, 40), (16, 160))]
    assert said(recommendations.saturation, *rows) == ""


# --- fixed cost ---------------------------------------------------------------------------------------------------


def test_fixed_cost_where_latency_hardly_grows() -> None:
    rows = (row("torch-eager", 1, 10), row("torch-eager", 4, 13))
    text = said(recommendations.fixed_cost, *rows)
    assert text.startswith("at batch 1 fixed cost (launches, framework) is at least half of the latency with")
    assert "torch-eager fp32 (89%)" in text  # 1 - (13.13 - 9.9) / 3 / 9.9
    assert named(recommendations.fixed_cost, *rows) == {"torch-eager fp32 b1", "torch-eager fp32 b4"}


@pytest.mark.parametrize(
    "rows",
    [
        (row("torch-eager", 1, 10), row("torch-eager", 4, 27)),
        (row("torch-eager", 1, 10), row("torch-eager", 4, 13, spread=1.0)),
        (one_process(row("torch-eager", 1, 10)), row("torch-eager", 4, 13)),
        (row("torch-eager", 1, 10),),
        (row("torch-eager", 1, 10, mode="offline"), row("torch-eager", 4, 13, mode="offline")),
    ],
)
def test_an_unknown_fixed_cost(rows: tuple[Row, ...]) -> None:
    assert said(recommendations.fixed_cost, *rows) == ""


# --- backend ------------------------------------------------------------------------------------------------------


def test_the_fastest_backend_and_how_far_it_is_ahead() -> None:
    rows = (row("openvino", 1, 10), row("onnxruntime", 1, 20), row("torch-eager", 1, 30))
    text = said(recommendations.backend_choice, *rows)
    assert text.startswith("openvino is fastest at batch 1 in fp32: 10.0 ms [9.90, 10.1], 2.00 [")
    assert text.endswith("times as fast as onnxruntime.")
    assert named(recommendations.backend_choice, *rows) == {"openvino fp32 b1", "onnxruntime fp32 b1"}


def test_backends_without_a_significant_difference() -> None:
    rows = (row("openvino", 1, 10), row("onnxruntime", 1, 10.1), row("torch-eager", 1, 30))
    text = said(recommendations.backend_choice, *rows)
    assert text.startswith(
        "openvino and onnxruntime are equally fast at batch 1 in fp32, within their intervals or 1%: onnxruntime has"
    )


def test_flagged_backends_that_may_lead_keep_the_choice_open() -> None:
    noted = {"grade": "C", "flags": (Flag(name="DRIFT", detail="", remedy="", caps_at="C"),)}
    ranked, flagged = (row("torch-eager", 1, 30), row("torch-script", 1, 31)), row("openvino", 1, 10, **noted)
    of_both = replace(group(*ranked), flagged=(flagged, row("onnxruntime", 1, 20, **noted)))
    (backend_choice,) = recommendations.backend_choice(replace(of_both, flagged=(flagged,)))
    (both,) = recommendations.backend_choice(of_both)
    assert backend_choice.text == (
        "which is fastest at batch 1 in fp32 is open: openvino 10.0 ms [9.90, 10.1] (grade C: DRIFT) or "
        "torch-eager 30.0 ms [29.7, 30.3]."
    )
    assert "or onnxruntime" not in both.text
    assert "onnxruntime 20.0 ms [19.8, 20.2] (grade C: DRIFT)" in both.text


def test_no_choice_of_backend_without_batch_1_or_a_second_one() -> None:
    assert said(recommendations.backend_choice, row("openvino", 4, 10), row("onnxruntime", 4, 20)) == ""
    assert said(recommendations.backend_choice, row("openvino", 1, 10), row("openvino", 1, 5, "bf16")) == ""


# --- precision ----------------------------------------------------------------------------------------------------


def test_a_precision_that_pays_at_some_batches() -> None:
    rows = [row("openvino", batch, ms) for batch, ms in ((1, 10), (4, 20), (16, 60))]
    rows += [row("openvino", batch, ms, "bf16") for batch, ms in ((1, 10), (4, 10), (16, 20))]
    text = said(recommendations.precision_choice, *rows)
    assert text.startswith(
        "openvino bf16 pays at batch 4 and 16 (2.00 to 3.00 times the speed of fp32), at relative L2"
    )
    assert "top-1 agreement 100% and does not pay at batch 1 (1.00 [" in text
    assert len(named(recommendations.precision_choice, *rows)) == 6


def test_a_precision_that_may_pay_or_not_is_left_out() -> None:
    rows = (row("openvino", 1, 10, spread=0.3), row("openvino", 1, 9, "bf16", spread=0.3))
    assert said(recommendations.precision_choice, *rows) == ""


def test_a_precision_needs_fp32_of_the_same_backend_and_more_than_one_process() -> None:
    low = row("openvino", 1, 5, "bf16")
    assert said(recommendations.precision_choice, low, row("onnxruntime", 1, 10)) == ""
    assert said(recommendations.precision_choice, low, row("openvino", 4, 10)) == ""
    assert said(recommendations.precision_choice, one_process(low), one_process(row("openvino", 1, 10))) == ""


def test_agreement_of_random_weights_is_not_quoted() -> None:
    rows = (row("openvino", 1, 10, weights="seeded"), row("openvino", 1, 5, "bf16", weights="seeded"))
    assert "top-1" not in said(recommendations.precision_choice, *rows)


# --- start-up cost ------------------------------------------------------------------------------------------------


def test_requests_that_repay_a_slower_start() -> None:
    rows = [
        entry for entry in SUMMARY.rows if entry.batch_size == 1 and entry.backend in ("torch-eager", "torch-script")
    ]
    text = said(recommendations.start_up_cost, *rows)
    costs = "counting export, load and compile, worth the start-up: torch-script fp32 from"
    assert text.startswith(f"against torch-eager fp32 at batch 1, {costs}")
    assert named(recommendations.start_up_cost, *rows) == {"torch-script fp32 b1", "torch-eager fp32 b1"}


def test_a_start_whose_repayment_is_not_proven_is_no_advice() -> None:
    eager = row("torch-eager", 1, 20, spread=0.05)

    def text(ms: float, cached: bool = False, **changes: Any) -> str:
        costs = ColdCosts(load=10**10, compile=1, compile_cached=cached, first_inference=0)
        speedup = Speedup(ratio=2, ci95=None, baseline=eager.case_id, baseline_grade="A")
        fast = row("torch-script", 1, ms, cold_ns=costs, speedup=speedup, **changes)
        return said(recommendations.start_up_cost, fast, eager)

    assert "torch-script fp32 from at most" in text(15)
    assert "Cached: a compile cache was warm" in text(10, cached=True)
    assert "Cached" not in text(10)
    assert text(19.9) == ""
    assert text(10, latency_ns=one_process(row("torch-script", 1, 10)).latency_ns) == ""


def test_no_start_up_rule_without_a_ranked_baseline() -> None:
    script, eager = BY_NAME["torch-script", "fp32", 1], BY_NAME["torch-eager", "fp32", 1]
    disturbed = Candidates("a model", (script,), {eager.case_id: eager.model_copy(update={"grade": "C"})}, None, None)
    assert list(recommendations.start_up_cost(disturbed)) == []
    assert said(recommendations.start_up_cost, script.model_copy(update={"speedup": None})) == ""


# --- the machine, and all together --------------------------------------------------------------------------------


def test_disturbances_are_counted_once_a_cause() -> None:
    flag = Flag(name="CPU_SHARED", detail="", remedy="Stop it.")
    rows = [row("openvino", 1, 10, grade="C", flags=(flag,)), row("openvino", 4, 20)]
    (result,) = recommendations.disturbed(rows)
    assert (result.about, result.rule, result.text) == ("The machine", "CPU_SHARED", "in 1 of 2 rows. Stop it.")
    assert result.case_ids == (rows[0].case_id,)
    assert list(recommendations.disturbed(rows[1:])) == []
    twice = rows[0].model_copy(update={"flags": (flag, flag.model_copy(update={"detail": "on the GPU"}))})
    (result,) = recommendations.disturbed([twice, rows[1]])
    assert result.text.startswith("in 1 of 2 rows.")


def with_rows(*rows: Row) -> Summary:
    return SUMMARY.model_copy(update={"rows": rows})


def test_rows_of_grade_c_and_f_and_calibration_are_never_compared() -> None:
    rows = [entry.model_copy(update={"grade": grade}) for entry, grade in zip(SUMMARY.rows, "CF" * 50, strict=False)]
    assert recommendations.groups(with_rows(*rows)) == []
    assert recommendations.recommendations_text(with_rows(*rows)) == ""
    names = {entry.backend for group in recommendations.groups(SUMMARY) for entry in group.rows}
    assert "noop" not in names


def test_boundaries_and_modes_are_never_mixed() -> None:
    e2e = [entry.model_copy(update={"boundary": "e2e", "case_id": f"{entry.case_id}-e2e"}) for entry in SUMMARY.rows]
    groups = recommendations.groups(with_rows(*SUMMARY.rows, *e2e))
    assert [entry.title for entry in groups] == [
        "efficientnet-lite0, model only, one request at a time",
        "efficientnet-lite0, end to end, one request at a time",
    ]
    assert all(len({entry.boundary for entry in group.rows}) == 1 for group in groups)


def test_every_recommendation_of_a_realistic_report_names_rows_of_it(summary: Summary, golden: Golden) -> None:
    ids = {entry.case_id for entry in summary.rows}
    result = recommendations.recommend(summary)
    assert result
    assert all(entry.case_ids and set(entry.case_ids) <= ids for entry in result)
    disturbed = {entry.case_id for entry in summary.rows if entry.grade == "C"}
    on_c = [entry for entry in result if set(entry.case_ids) & disturbed and entry.about != "The machine"]
    assert all("flagged" in entry.text for entry in on_c)
    golden("recommendations.md", recommendations.recommendations_text(summary) + "\n")


@pytest.mark.parametrize(("words", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_lists_in_words(words: list[str], text: str) -> None:
    assert joined_words(words) == text
