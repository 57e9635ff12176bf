"""Records of one case → figures: throughput, cold costs, parity, speedups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.aggregation import flags, grades
from harness.aggregation import row as summarise
from harness.core.schemas import Block, Case, ColdCosts, Measured, Parity
from tests.synthetic_results import RESNET, Synthetic, case_of, matrix, measured, parity_of, plan_of

CASE = case_of(RESNET, "torch-compile", "fp32", 4)


def test_headline_is_the_median_of_process_medians_not_of_pooled_samples() -> None:
    rounds = [[10, 10, 10], [12, 12, 12, 12, 12, 12, 12, 12, 12], [11, 11, 11]]
    records = [measured(CASE, RESNET, n, latency_ns=tuple(entry)) for n, entry in enumerate(rounds, 1)]
    latency = summarise.latency_of(records)
    assert (latency.median, latency.p50, latency.mean, latency.n, latency.rounds) == (11, 11, 11, 15, 3)
    assert latency.process_medians == (10, 12, 11)
    assert latency.max == 12


def test_statistics_of_one_sample_are_absent() -> None:
    latency = summarise.latency_of([measured(CASE, RESNET, 1, latency_ns=(5,))])
    assert (latency.p90, latency.p99, latency.ci95, latency.cv, latency.lag1_autocorrelation) == (None,) * 5


def test_percentiles_do_not_weigh_a_process_by_its_samples() -> None:
    """Two slow processes and a fast one with ten times their samples: pooled, p90 lay below the headline."""
    processes = [(10,) * 3_000, (20,) * 300, (20,) * 300]
    latency = summarise.latency_of(
        [measured(CASE, RESNET, n, latency_ns=process) for n, process in enumerate(processes, 1)]
    )
    assert (latency.median, latency.p50, latency.p90, latency.p95, latency.p99) == (20, 20, 20, 20, 20)
    assert latency.percentile_ci95["p90"] == latency.ci95


def blocked(number: int, *seconds: int) -> Measured:
    blocks = tuple(Block(iterations=10, wall_ns=entry * 1_000_000_000) for entry in seconds)
    return measured(CASE, RESNET, number, blocks=blocks)


def test_throughput_is_the_median_of_the_processes_rates_by_wall_time() -> None:
    rate, interval = summarise.throughput_of(4, [blocked(1, 1, 1, 1, 1), blocked(2, 2), blocked(3, 4)])
    assert rate == pytest.approx(20)  # of 40, 20 and 10; pooled it was 24
    assert interval is not None
    assert interval.low < 10
    assert interval.high > 40


def test_throughput_of_an_even_number_of_processes_agrees_with_the_time_a_batch() -> None:
    rate, _ = summarise.throughput_of(4, [blocked(1, 1), blocked(2, 3)])
    assert rate == pytest.approx(4 / 0.2)


def test_one_process_has_a_rate_without_an_interval_and_no_wall_time_neither() -> None:
    assert summarise.throughput_of(4, [blocked(1, 2)]) == (pytest.approx(20), None)
    assert summarise.throughput_of(4, [blocked(1, 2).model_copy(update={"blocks": ()})]) == (None, None)


def cold(load: int, compile_ns: int | None, cached: bool | None, first: int) -> ColdCosts:
    return ColdCosts(load=load, compile=compile_ns, compile_cached=cached, first_inference=first)


@pytest.mark.parametrize(
    ("compiles", "expected"),
    [
        ([(9, False), (12, True), (7, False)], (9, False)),
        ([(2, True), (3, True), (1, True)], (3, True)),
        ([(None, None)] * 3, (None, None)),
    ],
)
def test_compile_cost_is_that_of_a_process_without_a_cache(
    compiles: list[tuple[int | None, bool | None]], expected: tuple[int | None, bool | None]
) -> None:
    costs = [cold(load, *entry, first) for load, entry, first in zip((5, 1, 3), compiles, (30, 10, 20), strict=True)]
    result = summarise.cold_costs_of([measured(CASE, RESNET, n, cold_ns=cost) for n, cost in enumerate(costs, 1)])
    assert (result.compile, result.compile_cached) == expected
    assert (result.load, result.first_inference) == (3, 20)


def test_parity_is_the_worst_of_all_rounds_before_and_while_timing() -> None:
    good, bad = parity_of(CASE, RESNET), parity_of(CASE, RESNET, relative_l2=0.5, cosine=0.1, top1_agreement=0.7)
    records = [measured(CASE, RESNET, 1), measured(CASE, RESNET, 2, parity_before=bad, parity_timed=good)]
    result = summarise.worst_parity(records)
    assert result is not None
    assert (result.relative_l2, result.cosine, result.top1_agreement) == (0.5, 0.1, 0.7)


def test_top1_is_that_of_the_larger_check_and_of_the_worst_round() -> None:
    def parity(samples: int, share: float) -> Parity:
        return parity_of(CASE, RESNET, samples=samples, top1_agreement=share)

    def top1(*rounds: tuple[Parity, Parity]) -> float | None:
        records = [
            measured(CASE, RESNET, n, parity_before=before, parity_timed=timed)
            for n, (before, timed) in enumerate(rounds, 1)
        ]
        result = summarise.worst_parity(records)
        return result.top1_agreement if result else None

    assert top1((parity(64, 0.9), parity(8, 0.5))) == 0.9
    assert top1((parity(64, 0.9), parity(128, 0.8))) == 0.8
    assert top1((parity(64, 0.9), parity(64, 0.7)), (parity(64, 1.0), parity(8, 0.1))) == 0.7
    assert top1((parity(64, 0.9), parity(8, 1.0)), (parity(8, 0.5), parity(8, 0.5))) == 0.9


def test_distance_is_unknown_where_an_output_was_not_finite() -> None:
    lost = parity_of(CASE, RESNET, relative_l2=None, max_abs=None, cosine=None, nonfinite=4)
    result = summarise.worst_parity([measured(CASE, RESNET, 1), measured(CASE, RESNET, 2, parity_timed=lost)])
    assert result is not None
    assert (result.relative_l2, result.nonfinite) == (None, 4)


def test_speedup_is_against_fp32_of_the_same_shape() -> None:
    summary = Synthetic(models=(RESNET,), cases=matrix((RESNET,), batch_sizes=(1, 4))).summary()
    rows = {row.case_id: row for row in summary.rows}
    for batch in (1, 4):
        baseline = f"resnet50-torch-eager-cpu-fp32-b{batch}"
        assert rows[baseline].speedup is not None
        assert (rows[baseline].speedup.ratio, rows[baseline].speedup.ci95) == (1, None)
        faster = rows[f"resnet50-openvino-cpu-fp32-b{batch}"].speedup
        assert faster is not None
        assert faster.ratio == pytest.approx(2.5, rel=0.05)
        assert faster.baseline == baseline
        assert faster.ci95 is not None
        medians = [rows[name].latency_ns for name in (baseline, f"resnet50-openvino-cpu-fp32-b{batch}")]
        assert faster.ratio == medians[0].median / medians[1].median
        assert rows[f"resnet50-torch-eager-cpu-bf16-b{batch}"].speedup.baseline == baseline
    assert rows["resnet50-noop-cpu-fp32-b1"].speedup is None


@pytest.mark.parametrize("where", ["records", "limits"])
def test_every_void_reason_takes_the_figures_aside(where: str) -> None:
    wrong = (grades.finding("F", "ABOVE_ROOF", "", ""),)
    checks = flags.Criteria(tolerance=None, judge_top1=False, target_ci=0.01, calibration=False)
    records = summarise.CaseRecords((measured(CASE, RESNET, 1),), ())
    draft = summarise.draft_of(CASE, "image", records, plan_of([RESNET], [CASE]).measurement, checks)
    result = {
        "records": summarise.build_row(replace(draft, findings=(*draft.findings, *wrong))),
        "limits": summarise.build_row(draft, summarise.Context(findings=wrong)),
    }[where]
    assert (result.grade, result.latency_ns, result.throughput_per_s, result.cold_ns) == ("F", None, None, None)
    assert result.void is not None
    assert result.void.latency_ns == draft.row.latency_ns
    assert result.void.cold_ns == draft.row.cold_ns
    assert (result.parity, result.memory_bytes) == (draft.row.parity, draft.row.memory_bytes)
    assert summarise.build_row(draft).void is None


def test_no_speedup_for_void_rows_or_against_a_void_baseline() -> None:
    wrong = parity_of(CASE, RESNET, relative_l2=0.5)

    def void(backend: str) -> Synthetic:
        def change(case: Case, record: Measured) -> Measured:
            return record.model_copy(update={"parity_timed": wrong}) if case.backend == backend else record

        return Synthetic(models=(RESNET,), cases=matrix((RESNET,), batch_sizes=(1,)), change=change)

    by_backend = {row.backend: row for row in void("openvino").summary().rows if row.precision == "fp32"}
    assert by_backend["openvino"].grade == "F"
    assert by_backend["openvino"].speedup is None
    assert by_backend["onnxruntime"].speedup is not None
    assert all(row.speedup is None for row in void("torch-eager").summary().rows)


def test_a_speedup_knows_the_grade_of_its_baseline() -> None:
    def change(case: Case, record: Measured) -> Measured:
        return record.model_copy(update={"steady": case.backend != "torch-eager"})

    rows = Synthetic(models=(RESNET,), cases=matrix((RESNET,), batch_sizes=(1,)), change=change).summary().rows
    assert {row.speedup.baseline_grade for row in rows if row.speedup} == {"C"}
    assert {row.grade for row in rows if row.backend == "openvino"} == {"A"}
