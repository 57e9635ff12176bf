"""Claims against synthetic summaries: which row is beside a value, and what differs."""

from __future__ import annotations

from typing import Any

import pytest

from harness.comparison.claim_verdicts import case_on_device, differences_between, rows_of
from harness.core.schemas import Case, Claim, Failed, Measured, ReproducedRow, Summary
from tests.synthetic_results import ENVIRONMENT_ID, RESNET, SPEED, Synthetic, environment, failed, matrix

XEON = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"
EAGER_MS = (RESNET.overhead_ns + RESNET.item_ns) / 1e6
"""Of a batch of one, before noise."""
GAIN = 1 / SPEED["onnxruntime"]


def summary(rounds: int = 5, change: Any = lambda _case, record: record, **facts: Any) -> Summary:
    cases = matrix((RESNET,), ("torch-eager", "onnxruntime", "openvino"), batch_sizes=(1,), bf16=())
    here = {ENVIRONMENT_ID: environment(**facts)}
    return Synthetic(
        models=(RESNET,), cases=cases, samples=50, rounds=rounds, change=change, environments=here
    ).summary()


SUMMARY = summary()


def claim(**changes: Any) -> Claim:
    common = {"model": "resnet50", "precision": "fp32", "batch_size": 1}
    data: dict[str, Any] = {
        "title": "a claim",
        "source": {"title": "a test"},
        "cards": [XEON],
        "models": [{"name": "resnet50"}],
        "values": [
            {**common, "name": "eager", "backend": "torch-eager", "latency_ms": EAGER_MS},
            {**common, "name": "ort", "backend": "onnxruntime", "items_per_s": 1e3 / EAGER_MS * GAIN},
            {**common, "name": "vino", "backend": "openvino", "latency_ms": EAGER_MS * SPEED["openvino"]},
        ],
        "ratios": [{"faster": "ort", "than": "eager"}],
        "orders": [["vino", "ort", "eager"]],
    }
    return Claim.model_validate({**data, **changes})


def judged(found: Claim, against: Summary | None = SUMMARY, **left_out: str) -> dict[str, ReproducedRow]:
    return {row.name: row for row in rows_of(found, against, left_out)}


def test_a_case_measured_as_published_is_reproduced() -> None:
    rows = judged(claim())
    assert {row.verdict for row in rows.values()} == {"REPRODUCED"}
    assert all(row.differences == () for row in rows.values())
    assert rows["ort"].unit == "items/s"
    assert rows["ort"].measured == pytest.approx(1e3 / EAGER_MS * GAIN, rel=0.02)
    assert rows["ort / eager"].published == pytest.approx(GAIN)
    assert rows["ort / eager"].measured == pytest.approx(GAIN, rel=0.02)
    assert rows["eager"].case_ids == ("resnet50-torch-eager-cpu-fp32-b1",)


def test_samples_per_second_are_the_rows_own_with_their_interval() -> None:
    [results] = [row for row in SUMMARY.rows if row.backend == "onnxruntime"]
    row = judged(claim())["ort"]
    assert (row.measured, row.ci95) == (results.throughput_per_s, results.throughput_ci95)
    assert row.ci95 is not None
    assert row.ci95.low < (row.measured or 0) < row.ci95.high


def test_another_figure_is_not_reproduced() -> None:
    values = [value.model_copy(update={"latency_ms": 2 * EAGER_MS}) for value in claim().values[:1]]
    rows = judged(claim().model_copy(update={"values": (*values, *claim().values[1:])}))
    assert rows["eager"].verdict == "NOT REPRODUCED"
    assert rows["ort / eager"].verdict == "NOT REPRODUCED"
    assert rows["vino < ort < eager"].verdict == "REPRODUCED"


def test_its_own_tolerance_counts() -> None:
    for tolerance, verdict in ((0.08, "NOT REPRODUCED"), (0.15, "REPRODUCED")):
        value = claim().values[0].model_copy(update={"latency_ms": EAGER_MS * 1.12, "tolerance": tolerance})
        row = judged(claim().model_copy(update={"values": (value, *claim().values[1:])}))["eager"]
        assert row.verdict == verdict


def test_on_another_gpu_values_are_not_comparable_and_ratios_are_judged() -> None:
    rows = judged(claim(cards=["NVIDIA A100-SXM4-80GB"]))
    device = rows["eager"].differences[0]
    assert (device.name, device.published, device.here, device.refuses) == (
        "device",
        "NVIDIA A100-SXM4-80GB",
        XEON,
        True,
    )
    assert rows["eager"].verdict == "NOT COMPARABLE"
    assert rows["eager"].reason == "another device"
    assert rows["eager"].measured is not None
    assert rows["ort / eager"].verdict == rows["vino < ort < eager"].verdict == "REPRODUCED"
    assert device in rows["ort / eager"].differences


def test_a_substitute_is_named_and_refuses_values() -> None:
    values = [
        value.model_copy(update={"precision": "fp16", "batch_size": 256, "latency_ms": 1.0, "items_per_s": None})
        for value in claim().values
    ]
    published = claim().model_copy(update={"values": tuple(values)})
    assert judged(published)["eager"].reason == "not among the measured cases"
    substituted = Claim.model_validate(
        {**published.model_dump(), "substitutes": {"cpu": {"precision": "fp32", "batch_size": 1}}}
    )
    assert case_on_device(substituted.values[0], substituted, "cuda").batch_size == 256
    row = judged(substituted)["eager"]
    assert row.reason == "another precision, another batch size"
    assert [(difference.published, difference.here) for difference in row.differences] == [
        ("fp16", "fp32"),
        ("256", "1"),
    ]


def test_both_sides_in_one_case_make_no_ratio() -> None:
    twins = [claim().values[0], claim().values[0].model_copy(update={"name": "twin"})]
    result = claim(
        values=[value.model_dump() for value in twins], ratios=[{"faster": "twin", "than": "eager"}], orders=[]
    )
    row = judged(result)["twin / eager"]
    assert (row.verdict, row.reason) == ("NOT COMPARABLE", "both sides are the same case here")


def test_a_ratio_is_per_sample_where_the_published_batches_differ() -> None:
    eager = {"batch_size": 1024, "latency_ms": None, "items_per_s": 4218.0}
    ort = {"batch_size": 256, "items_per_s": 8237.0}
    values = [claim().values[0].model_copy(update=eager), claim().values[1].model_copy(update=ort)]
    result = Claim.model_validate(
        {
            **claim().model_dump(),
            "values": [value.model_dump() for value in values],
            "orders": [],
            "substitutes": {"cpu": {"batch_size": 1}},
        }
    )
    assert judged(result)["ort / eager"].published == pytest.approx(8237 / 4218)


def test_models_versions_and_known_differences_are_named() -> None:
    known = {"name": "server", "published": "Triton", "here": "none", "refuses": True}
    result = claim(
        models=[{"name": "resnet50", "published": "ResNet50 v1.5"}],
        versions={"torch": "2.14", "tensorrt": "10.15", "onnxruntime": "1.3"},
        differs=[known],
    )
    row = judged(result)["eager"]
    assert [(difference.name, difference.here) for difference in row.differences] == [
        ("model", "resnet50"),
        ("tensorrt", "not installed"),
        ("onnxruntime", "1.31.1"),
        ("server", "none"),
    ]
    assert row.reason == "another server"


def test_context_is_never_compared() -> None:
    rows = judged(claim(context="other rules", ratios=[], orders=[]))
    assert {(row.verdict, row.reason) for row in rows.values()} == {("NOT COMPARABLE", "context only: other rules")}


def test_without_a_summary_the_reasons_of_the_plan_are_given() -> None:
    rows = judged(claim(), None, ort="no such backend")
    assert rows["ort"].reason == "no such backend"
    assert "ort: no such backend" in str(rows["ort / eager"].reason)
    assert "fewer than two of them" in str(rows["vino < ort < eager"].reason)


def test_an_order_is_judged_over_the_measured_cases_and_names_the_rest() -> None:
    def event(case: Case, record: Measured) -> Measured | Failed:
        return failed(case, record.round) if case.backend == "openvino" else record

    row = judged(claim(), summary(change=event))["vino < ort < eager"]
    assert row.verdict == "REPRODUCED"
    assert row.differences[0].name == "order"
    assert "without vino (failed" in row.differences[0].here


def test_a_disturbed_row_has_no_figure() -> None:
    def event(_case: Case, record: Measured) -> Measured:
        return record.model_copy(update={"steady": False})

    row = judged(claim(), summary(change=event))["eager"]
    assert (row.verdict, row.measured, row.reason) == ("NOT COMPARABLE", None, "grade C: NOT_WARMED_UP")


def test_one_round_is_not_comparable() -> None:
    rows = judged(claim(), summary(rounds=1))
    assert {row.verdict for row in rows.values()} == {"NOT COMPARABLE"}


def test_a_ratio_needs_no_equal_number_of_rounds() -> None:
    def event(case: Case, record: Measured) -> Measured | None:
        return None if case.backend == "onnxruntime" and record.round == 2 else record

    result = summary(change=event)
    eager, ort = (next(row for row in result.rows if row.backend == name) for name in ("torch-eager", "onnxruntime"))
    assert eager.latency_ns is not None
    assert ort.latency_ns is not None
    assert judged(claim(), result)["ort / eager"].measured == eager.latency_ns.median / ort.latency_ns.median


def test_between_two_runs_on_processors_the_machine_refuses() -> None:
    results = {entry.name: entry for entry in differences_between(SUMMARY, summary(cpu="AMD EPYC 9B14"))}
    assert results["machine.cpu"].refuses
    assert (results["machine.cpu"].published, results["machine.cpu"].here) == (XEON, "AMD EPYC 9B14")
    assert differences_between(SUMMARY, SUMMARY) == ()
