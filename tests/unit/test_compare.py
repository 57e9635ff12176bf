"""compare: exit codes, files and what CI gets, on synthetic summaries; the document against its golden file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import compare
from harness.aggregation.flags import UNCERTAIN
from harness.aggregation.grades import finding
from harness.comparison.verdicts import Margins
from harness.core import cli, units
from harness.core.errors import (
    MalformedFileError,
    MissingInputError,
    NewerFormatError,
    NotComparableError,
    OlderFormatError,
    RegressionError,
    UsageError,
)
from harness.core.schemas import (
    Case,
    Clock,
    ColdCosts,
    DeviceTimes,
    Failed,
    Interval,
    Judgement,
    LatencyPart,
    Measured,
    Quantity,
    Split,
    Summary,
)
from harness.reporting import thresholds
from harness.reporting.tables import comparison_table
from harness.reporting.writers import github
from tests.fixtures.comparing import CASES, MANY_SAMPLES, MODELS, SAMPLES, SLOWED, Folders, compared, slower, summary
from tests.synthetic_results import (
    RESNET,
    SPEED,
    failed,
    measured,
    parity_of,
)

pytestmark = pytest.mark.usefixtures("outside_github")

GOLDEN = Path(__file__).parents[1] / "golden" / "comparison.md"


@pytest.fixture(scope="session")
def before() -> Summary:
    return summary(1)


@pytest.fixture(scope="session")
def after() -> Summary:
    """Nothing but noise."""
    return summary(2)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


@pytest.fixture
def equal(folders: Folders, before: Summary, after: Summary) -> Folders:
    return folders.put(before, after)


# --- exit codes ---------------------------------------------------------------------------------------------------


def exit_code(*arguments: str) -> int:
    try:
        cli.main(compare.stage, arguments)
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def test_two_equal_runs_end_well(equal: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    result = equal()
    assert not any(row.fails for row in result.rows)
    assert {row.verdict for row in result.rows} == {"SAME", "AMBIGUOUS", "NOT COMPARABLE"}
    out = capsys.readouterr().out.splitlines()
    assert out[-1].startswith("0 of 21 compared rows regressed; ")
    assert out[0].split() == ["verdict", "case", "baseline", "ms", "now", "ms", "change", "95%", "CI"]


def test_a_slowed_row_fails_and_is_named_first(
    folders: Folders, before: Summary, capsys: pytest.CaptureFixture[str]
) -> None:
    folders.put(before, summary(2, slower(1.05, SLOWED)))
    with pytest.raises(RegressionError) as caught:
        folders()
    assert caught.value.exit_code == 1
    assert caught.value.problem.startswith(f"1 of 21 compared rows regressed (worst: {SLOWED} +")
    assert str(folders.current.comparison_report) in caught.value.hint
    assert capsys.readouterr().out.splitlines()[2].split()[:2] == ["SLOWER", SLOWED]
    assert [row.case_id for row in folders.saved().rows if row.fails] == [SLOWED]


def test_max_regression_lets_a_smaller_slow_down_pass(folders: Folders, before: Summary) -> None:
    folders.put(before, summary(2, slower(1.05, SLOWED)))
    folders("--max-regression", "8%")
    assert folders.verdicts()[SLOWED] == "SLOWER"
    assert "within MAX_REGRESSION" in folders.current.comparison_report.read_text()
    with pytest.raises(RegressionError):
        folders("--max-regression", "3%")


def test_equivalence_moves_both_margins(folders: Folders, before: Summary) -> None:
    folders.put(before, summary(2, slower(1.05, SLOWED)))
    results = folders("--equivalence", "10%")
    assert (results.equivalence, results.max_regression) == (0.1, 0.1)
    assert folders.verdicts()[SLOWED] == "SAME"


def test_another_machine_ends_with_two(folders: Folders, before: Summary) -> None:
    folders.put(before, summary(2, cpu="AMD EPYC 9B14"))
    with pytest.raises(NotComparableError) as caught:
        folders()
    assert caught.value.exit_code == 2
    assert "machine.cpu Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz → AMD EPYC 9B14" in caught.value.problem
    assert "machine.cpu (forbids comparing)" in folders.current.comparison_report.read_text()


def test_exit_codes_of_the_program(folders: Folders, before: Summary, after: Summary) -> None:
    folders.put(before, after)
    both = ("--baseline", str(folders.baseline.root), "--results", str(folders.current.root))
    assert exit_code(*both) == 0
    assert exit_code(*both, "--threshold", "latency_p50<1ns") == 1
    assert exit_code("--baseline", str(folders.baseline.root), "--results", str(folders.baseline.root)) == 2


def test_an_upgraded_library_is_judged_and_named(folders: Folders, before: Summary) -> None:
    libraries = {"torch": "2.15.0", "onnxruntime": "1.31.1", "openvino": "2026.4.0", "numpy": "2.4.6"}
    folders.put(before, summary(2, slower(1.05, "resnet50-torch-eager-cpu-fp32-b1"), libraries=libraries))
    with pytest.raises(RegressionError):
        folders()
    lines = folders.current.comparison_report.read_text().splitlines()
    changed = next(line for line in lines if line.startswith("| library torch "))
    assert [cell.strip() for cell in changed.split("|")[1:-1]] == ["library torch", "2.14.1", "2.15.0"]


def test_rows_that_came_and_went(folders: Folders, before: Summary) -> None:
    shared = [case for case in CASES if case.backend != "openvino"]
    folders.put(summary(1, cases=shared), summary(2))
    folders()
    assert folders.verdicts()[SLOWED] == "NEW"
    folders.put(before, summary(2, cases=shared))
    folders()
    assert folders.verdicts()[SLOWED] == "GONE"
    assert (
        "6 rows had a sound figure in the baseline and have none now." in folders.current.comparison_report.read_text()
    )


def test_nothing_in_common_ends_with_two(folders: Folders) -> None:
    halves = [[case for case in CASES if case.model == model.name] for model in MODELS]
    folders.put(summary(1, cases=halves[0]), summary(2, cases=halves[1]))
    with pytest.raises(NotComparableError, match="no row in common"):
        folders()


def test_a_failed_or_void_row_is_not_compared_and_not_silent(folders: Folders, before: Summary) -> None:
    def event(case: Case, record: Measured) -> Measured | Failed:
        if case.case_id == SLOWED:
            return failed(case, record.round)
        if case.case_id == "resnet50-torch-script-cpu-fp32-b1":
            return record.model_copy(update={"parity_timed": parity_of(case, RESNET, relative_l2=0.5)})
        return record

    result = folders.put(before, summary(2, event))()
    reasons = {row.case_id: row.reason for row in result.rows if row.verdict == "NOT COMPARABLE"}
    assert reasons[SLOWED] == "now failed: load: the process was killed (signal 9), most likely out of memory"
    assert reasons["resnet50-torch-script-cpu-fp32-b1"] == "now grade F: PARITY_FAIL"
    assert "2 rows had a sound figure in the baseline and have none" in folders.current.comparison_report.read_text()


def test_one_lost_row_is_counted_in_the_singular(folders: Folders, before: Summary) -> None:
    folders.put(before, summary(2, cases=[case for case in CASES if case.case_id != SLOWED]))()
    assert "1 row had a sound figure in the baseline and has none now." in folders.current.comparison_report.read_text()


def test_when_everything_moved_the_machine_is_suspected_first(folders: Folders, before: Summary) -> None:
    everything = slower(1.04, *(case.case_id for case in CASES))
    folders.put(before, summary(2, everything))
    with pytest.raises(RegressionError):
        folders()
    assert folders.saved().common_ratio == pytest.approx(1.04, rel=0.01)
    assert "The middle row moved by +3.9%" in folders.current.comparison_report.read_text()


# --- what is refused ----------------------------------------------------------------------------------------------


def test_a_folder_is_not_its_own_baseline(equal: Folders, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(equal.current.root)
    for same in (equal.current.root, equal.current.summary, tmp_path / "link"):
        with pytest.raises(UsageError, match="at once"):
            compare.stage(["--baseline", str(same), "--results", str(equal.current.root)])
    assert not equal.current.comparison.exists()


def test_a_copied_folder_is_no_second_run(folders: Folders, before: Summary) -> None:
    folders.put(before, before)
    with pytest.raises(NotComparableError, match="the very same samples on both sides"):
        folders()


def test_the_baseline_may_be_a_file(equal: Folders) -> None:
    compare.stage(["--baseline", str(equal.baseline.summary), "--results", str(equal.current.root)])
    baseline = equal.saved().baseline
    assert baseline is not None
    assert baseline.path == str(equal.baseline.summary)


@pytest.mark.parametrize("name", ["absent", "absent/summary.json"])
def test_a_missing_baseline(equal: Folders, tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingInputError, match=r"absent/summary\.json does not exist") as caught:
        compare.stage(["--baseline", str(tmp_path / name), "--results", str(equal.current.root)])
    assert "make compare BASELINE=" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ('{"schema_version": 0}', OlderFormatError),
        ('{"schema_version": 9}', NewerFormatError),
        ('{"schema_version": 1}', MalformedFileError),
        ("not json", MalformedFileError),
    ],
)
def test_a_baseline_that_cannot_be_used(equal: Folders, content: str, error: type[Exception]) -> None:
    equal.baseline.summary.write_text(content)
    with pytest.raises(error, match=r"before/summary\.json"):
        equal()


def test_nothing_to_compare_with_is_a_mistake(equal: Folders) -> None:
    for options in ((), ("--threshold", " ; ")):
        with pytest.raises(UsageError, match="nothing to compare with"):
            compare.stage(["--results", str(equal.current.root), *options])


@pytest.mark.parametrize(
    "options",
    [
        ("--max-regression", "0.05"),
        ("--max-regression", "5"),
        ("--equivalence", "0%"),
        ("--equivalence", "100%"),
        ("--max-regression", "0.5%"),
        ("--max-regression", "-5%"),
    ],
)
def test_margins_are_per_cent_and_make_sense(equal: Folders, options: tuple[str, str]) -> None:
    name, value = options
    with pytest.raises(UsageError) as caught:
        equal(f"{name}={value}")
    assert value in caught.value.problem


# --- thresholds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "selector", "metric", "operator", "limit"),
    [
        ("latency_p50<100ms", None, "latency_p50", "<", 1e8),
        ("latency_p95 <= 1.5 s", None, "latency_p95", "<=", 1.5e9),
        ("latency_max<20us", None, "latency_max", "<", 2e4),
        ("latency_max<20µs", None, "latency_max", "<", 2e4),
        ("latency_mean<20μs", None, "latency_mean", "<", 2e4),
        ("throughput>1000/s", None, "throughput", ">", 1000),
        ("memory<2GiB", None, "memory", "<", 2 << 30),
        ("speedup>=1.5", None, "speedup", ">=", 1.5),
        ("minilm-l6/onnxruntime:latency_p95<8ms", "minilm-l6/onnxruntime", "latency_p95", "<", 8e6),
        ("module:a.b:tiny:latency_p50<8ns", "module:a.b:tiny", "latency_p50", "<", 8),
    ],
)
def test_thresholds_are_read(text: str, selector: str | None, metric: str, operator: str, limit: float) -> None:
    result = thresholds.parse(text)
    assert (result.selector, result.metric, result.operator) == (selector, metric, operator)
    assert result.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("latency_p50", "is not a threshold"),
        ("latency_p50=100ms", "is not a threshold"),
        ("latency_p50<100ms<200ms", "cannot be in `ms<200ms`"),
        ("latency_p50<-1ms", "is not a threshold"),
        ("latency_p50<1e400ms", "1e400 is too large"),
        ("latency_p50<1,000ms", "cannot be in `,000ms`"),
        ("latency_p50<100", "latency_p50 needs a unit"),
        ("latency_p50<100/s", "cannot be in `/s`"),
        ("throughput>5ms", "cannot be in `ms`"),
        ("memory<5MB", "cannot be in `MB`"),
        ("latency_p42<5ms", "no metric `latency_p42`"),
        (":latency_p50<5ms", "is not a threshold"),
        ("<5ms", "is not a threshold"),
    ],
)
def test_a_text_that_is_no_threshold_is_named(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        thresholds.parse(text)
    assert problem in caught.value.problem
    assert text in caught.value.problem
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("foo<1", "Usual are latency_p50"),
        ("latency_p51<1ms", "latency_p50"),
        ("trougput>5/s", "throughput"),
        ("ttft<1s", "ttft_p50 or ttft_p95"),
    ],
)
def test_an_unknown_metric_gets_near_ones_or_usual_ones_and_where_all_are(text: str, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        thresholds.parse(text)
    assert named in caught.value.hint
    assert caught.value.hint.endswith("`make compare THRESHOLD=list` lists all.")
    assert len(caught.value.hint) < 160, "few names"


def test_every_metric_is_listed_without_any_results(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    compare.stage(["--threshold", "list", "--results", str(tmp_path / "none")])
    lines = capsys.readouterr().out.splitlines()
    known = [*thresholds.METRICS, *thresholds.LOAD_METRICS, *thresholds.TOKEN_METRICS]
    assert [line.split()[0] for line in lines[2:]] == known
    for name in known:
        unit = next(iter(thresholds.UNITS[_quantity(name)]))
        assert thresholds.parse(f"{name}<1{unit}").metric == name


def _quantity(name: str) -> Quantity:
    groups = (thresholds.METRICS, thresholds.LOAD_METRICS, thresholds.TOKEN_METRICS)
    return next(group[name].quantity for group in groups if name in group)


@pytest.mark.parametrize("option", ["--max-regression", "--equivalence"])
def test_a_margin_without_a_baseline_is_refused(folders: Folders, before: Summary, option: str) -> None:
    folders.put(before, before)
    with pytest.raises(UsageError, match="limits alone are judged without it") as caught:
        compare.stage(["--threshold", "latency_p50<9s", option, "5%", "--results", str(folders.current.root)])
    assert "BASELINE=<folder>" in caught.value.hint


def test_a_comparison_explains_only_its_own_columns_and_verdicts(
    folders: Folders, before: Summary, after: Summary
) -> None:
    folders.put(before, after)
    compare.stage(["--threshold", "latency_p50<9s", "--results", str(folders.current.root)])
    text = folders.current.comparison_report.read_text()
    assert "- A threshold fails on its point estimate" in text
    assert [mark for mark in ("**change**", "**SAME**", "slower row", "**95% CI**", units.WIDE) if mark in text] == []
    folders()
    text = folders.current.comparison_report.read_text()
    assert "**change**" in text
    assert "- A slower row fails beyond" in text
    assert "threshold fails" not in text


def test_a_wide_interval_of_a_comparison_is_explained(folders: Folders, before: Summary, after: Summary) -> None:
    folders.put(before, after)
    folders()
    comparison = folders.saved()
    row = next(row for row in comparison.rows if row.ci95)
    wide = row.model_copy(update={"ci95": Interval(low=0.5, high=2.0)})
    text = comparison_table.document(comparison.model_copy(update={"rows": (wide,)}), "")
    assert text.count(units.WIDE) == 2
    assert "comparison.json has them" in text


def test_a_file_that_is_no_summary_is_no_baseline(folders: Folders, before: Summary, tmp_path: Path) -> None:
    folders.put(before, before)
    archive = tmp_path / "run.tar.xz"
    archive.touch()
    with pytest.raises(UsageError, match=r"run\.tar\.xz is a file, and no summary\.json"):
        compare.stage(["--baseline", str(archive), "--results", str(folders.current.root)])


def test_several_thresholds_in_one_option() -> None:
    result = thresholds.parse_all(["latency_p50<1ms; throughput>2/s;", "", "memory<1GiB"])
    assert [entry.metric for entry in result] == ["latency_p50", "throughput", "memory"]


def judged(current: Summary, text: str) -> dict[str, Judgement]:
    return {entry.case_id: entry for entry in thresholds.judge(thresholds.parse(text), current.rows)}


@pytest.mark.parametrize(
    ("selector", "cases"),
    [
        ("resnet50/openvino", ["resnet50-openvino-cpu-bf16-b1", SLOWED]),
        ("resnet50/openvino/fp32", [SLOWED]),
        ("res*/open*/fp32/b1", [SLOWED]),
        ("*/openvino/fp32/b1/s32", ["minilm-l6-openvino-cpu-fp32-b1-s32"]),
        ("resnet50/*/fp32/b1/compute/sync", [f"resnet50-{name}-cpu-fp32-b1" for name in sorted(SPEED)]),
        ("*/torch-script/fp32", [
            "minilm-l6-torch-script-cpu-fp32-b1-s128",
            "minilm-l6-torch-script-cpu-fp32-b1-s32",
            "resnet50-torch-script-cpu-fp32-b1",
        ]),
    ],
)  # fmt: skip
def test_selectors(after: Summary, selector: str, cases: list[str]) -> None:
    assert sorted(judged(after, f"{selector}:latency_p50<1s")) == cases


def test_a_threshold_for_all_means_every_row_that_computes_and_can_run(after: Summary) -> None:
    expected = {row.case_id for row in after.rows if row.backend != "noop" and row.status != "skipped"}
    assert set(judged(after, "latency_p50<1s")) == expected


@pytest.mark.parametrize("selector", ["resnet51", "resnet50/noop", "resnet50/openvino/fp16", "*/b2", "*/e2e"])
def test_a_threshold_that_matches_nothing_is_a_mistake(after: Summary, selector: str) -> None:
    with pytest.raises(UsageError, match="matches no row") as caught:
        judged(after, f"{selector}:latency_p50<1s")
    assert "resnet50/openvino" in caught.value.hint


def test_a_part_that_no_row_has_gets_the_parts_of_the_rows_beside_it(after: Summary) -> None:
    with pytest.raises(UsageError) as caught:
        judged(after, "resnet50/openvino/b1:latency_p50<1s")
    assert "resnet50/openvino/fp32/b1/compute/sync" in caught.value.hint
    assert "onnxruntime" not in caught.value.hint


def test_a_threshold_takes_the_short_name_that_tables_show(after: Summary) -> None:
    own = after.model_copy(
        update={"rows": tuple(row.model_copy(update={"model": "onnx:/nets/a/net.onnx"}) for row in after.rows)}
    )
    short = judged(own, "net.onnx/openvino:latency_p50<1s")
    assert short.keys() == judged(own, "onnx:/nets/a/net.onnx/openvino:latency_p50<1s").keys() != set()
    with pytest.raises(UsageError) as caught:
        judged(own, "nets.onnx:latency_p50<1s")
    assert "The results hold net.onnx/onnxruntime, net.onnx/openvino" in caught.value.hint


def with_device(summary: Summary) -> Summary:
    """As if every row had run on a GPU."""
    clock = Clock(name="CUDA events", resolution_ns=500.0, overhead_ns=1_000)
    ci95 = Interval(low=1.9e6, high=2.1e6)
    times = DeviceTimes(clock=clock, device=2e6, device_ci95=ci95, enqueue=1e4, h2d=1e5, compute=1.8e6, d2h=1e5)
    rows = tuple(row.model_copy(update={"device_ns": times}) for row in summary.rows)
    return summary.model_copy(update={"rows": rows})


def with_every_figure(summary: Summary, metric: str) -> Summary:
    """Rows that have a text's length, a GPU's times, compiling, and the parts of e2e; in mode offline for its time."""
    part = LatencyPart(median_ns=1e6, share=0.3)
    more = {
        "sequence_length": 8,
        "split": Split(preprocess=part, inference=part, postprocess=part),
        "cold_ns": ColdCosts(load=1, compile=1, first_inference=1, compile_cached=False),
        "mode": "offline" if metric.startswith("batch_time") else "sync",
    }
    rows = tuple(row.model_copy(update=more) for row in with_device(summary).rows)
    return summary.model_copy(update={"rows": rows})


@pytest.mark.parametrize("metric", thresholds.METRICS)
def test_every_metric_has_a_figure_and_both_outcomes(metric: str) -> None:
    current = with_every_figure(summary(3, samples=MANY_SAMPLES), metric)
    unit = next(unit for unit in thresholds.UNITS[thresholds.METRICS[metric].quantity] if unit)
    name = "resnet50/openvino/fp32"
    high, low = (judged(current, f"{name}:{metric}{sign}0{unit}")[SLOWED] for sign in (">", "<"))
    assert (high.outcome, low.outcome) == ("PASS", "FAIL")
    assert high.value == low.value


def test_rows_that_cannot_have_a_figure_are_not_judged_beside_those_that_have_it() -> None:
    current = summary(3, samples=MANY_SAMPLES)
    offline = [row.model_copy(update={"mode": "offline"}) if row.case_id == SLOWED else row for row in current.rows]
    mixed = current.model_copy(update={"rows": tuple(offline)})
    assert set(judged(mixed, "batch_time_median>0ms")) == {SLOWED}
    assert SLOWED not in judged(mixed, "latency_median>0ms")


def test_the_figure_is_the_rows_own(after: Summary) -> None:
    row = next(row for row in after.rows if row.case_id == SLOWED)
    assert row.latency_ns is not None
    assert row.speedup is not None
    name = "resnet50/openvino/fp32"
    expected = {
        "latency_median<1s": row.latency_ns.median,
        "latency_median<1e3ms": row.latency_ns.median,
        "latency_p95<1s": row.latency_ns.p95,
        "throughput>1/s": row.throughput_per_s,
        "memory<1GiB": row.memory_bytes,
        "speedup>1": row.speedup.ratio,
    }
    for text, value in expected.items():
        assert judged(after, f"{name}:{text}")[SLOWED].value == value


def test_the_interval_says_whether_noise_could_turn_it(after: Summary) -> None:
    row = next(row for row in after.rows if row.case_id == SLOWED)
    assert row.latency_ns is not None
    assert row.latency_ns.ci95 is not None
    just = (row.latency_ns.median + row.latency_ns.ci95.high) / 2
    name = "resnet50/openvino/fp32:latency_median"
    cases = [(f"<{just:.1f}ns", "PASS", False), ("<1s", "PASS", True), ("<1ms", "FAIL", True)]
    cases += [(f">{just:.1f}ns", "FAIL", False)]
    for text, outcome, clear in cases:
        result = judged(after, name + text)[SLOWED]
        assert (result.outcome, result.clear) == (outcome, clear)
    assert judged(after, "resnet50/openvino/fp32:throughput>1/s")[SLOWED].clear
    assert judged(after, "resnet50/openvino/fp32:memory<100GiB")[SLOWED].clear is None


def test_a_withheld_void_or_failed_row_does_not_pass() -> None:
    def event(case: Case, record: Measured) -> Measured | Failed:
        if case.backend == "torch-script":
            return failed(case, record.round)
        if case.backend == "torch-eager":
            return record.model_copy(update={"parity_timed": parity_of(case, RESNET, relative_l2=0.5)})
        if case.backend == "torch-compile":
            return record.model_copy(update={"steady": False})
        return record

    cases = [case for case in CASES if case.model == "resnet50" and case.precision == "fp32"]
    current = summary(2, event, cases=cases, rounds=2)
    results = {case.split("-cpu")[0]: entry for case, entry in judged(current, "latency_p99<10s").items()}
    assert {entry.outcome for entry in results.values()} == {"UNKNOWN"}
    assert {entry.value for entry in results.values()} == {None}
    assert (results["resnet50-torch-script"].reason or "").startswith("failed: load: the process was killed")
    assert (results["resnet50-torch-eager"].reason or "").startswith("grade F: PARITY_FAIL")
    assert results["resnet50-torch-compile"].reason == "grade C: NOT_WARMED_UP"
    assert (results["resnet50-openvino"].reason or "").startswith("withheld: 300 samples, 662 needed")
    assert judged(current, "resnet50/openvino:speedup>1")["resnet50-openvino-cpu-fp32-b1"].outcome == "UNKNOWN"


def test_a_row_that_is_only_uncertain_is_compared_and_judged(before: Summary, after: Summary) -> None:
    flag = finding("C", UNCERTAIN, "", "").flag

    def uncertain(summary: Summary) -> Summary:
        rows = [
            row.model_copy(update={"grade": "C", "flags": (flag,)}) if row.case_id == SLOWED else row
            for row in summary.rows
        ]
        return summary.model_copy(update={"rows": tuple(rows)})

    slowed = summary(2, slower(1.5, SLOWED))
    rows = compared(uncertain(before), uncertain(slowed), [], Margins())
    assert {row.case_id: row.verdict for row in rows}[SLOWED] == "SLOWER"
    assert judged(uncertain(after), "latency_median<1s")[SLOWED].outcome == "PASS"


def test_a_speedup_over_a_baseline_of_grade_c_is_unknown(after: Summary) -> None:
    (row,) = [row for row in after.rows if row.case_id == SLOWED]
    assert row.speedup is not None
    speedup = row.speedup.model_copy(update={"baseline_grade": "C"})
    doubtful = after.model_copy(update={"rows": (row.model_copy(update={"speedup": speedup}),)})
    result = judged(doubtful, "speedup>0.1")[SLOWED]
    assert (result.outcome, result.reason) == ("UNKNOWN", f"its baseline {speedup.baseline} is grade C")
    assert judged(doubtful, "latency_median<10s")[SLOWED].outcome == "PASS"


def test_only_skipped_rows_do_not_pass_either(after: Summary) -> None:
    (result,) = judged(after, "resnet50/onnxruntime/bf16:latency_p50<1s").values()
    assert (result.outcome, result.reason) == ("UNKNOWN", "skipped: ONNX Runtime's CPU provider has no bf16 kernels")


def test_an_offline_row_has_a_throughput_and_no_latency(after: Summary) -> None:
    rows = tuple(row.model_copy(update={"mode": "offline"}) if row.case_id == SLOWED else row for row in after.rows)
    mixed = after.model_copy(update={"rows": rows})
    assert SLOWED not in judged(mixed, "latency_p50<1s")
    assert judged(mixed, "throughput>1/s")[SLOWED].outcome == "PASS"
    result = judged(mixed, "*/offline:latency_p95<1s")[SLOWED]
    assert (result.outcome, result.reason) == ("UNKNOWN", "offline mode has no latency of single batches")


def test_a_figure_that_a_row_on_a_cpu_lacks_is_not_called_a_matter_of_offline_mode(after: Summary) -> None:
    result = judged(after, "resnet50/openvino/fp32:device_median<1ms")[SLOWED]
    assert (result.outcome, result.reason) == ("UNKNOWN", "this row has no such figure")


def test_a_percentile_that_one_process_withholds_names_how_many_samples_each_needs() -> None:
    def event(case: Case, record: Measured) -> Measured:
        return record if record.round > 1 else measured(case, RESNET, 1, SAMPLES)

    only = [case for case in CASES if case.case_id == SLOWED]
    result = judged(summary(2, event, cases=only, samples=MANY_SAMPLES), "latency_p99<10s")[SLOWED]
    expected = "withheld: a process has fewer than 221 samples; raise measurement.min_samples"
    assert (result.outcome, result.reason) == ("UNKNOWN", expected)


def test_a_percentile_has_its_own_interval(after: Summary) -> None:
    row = next(row for row in after.rows if row.case_id == SLOWED)
    assert row.latency_ns is not None
    latency = row.latency_ns.model_copy(update={"percentile_ci95": {"p95": Interval(low=1.0, high=9e9)}})
    known = after.model_copy(update={"rows": (row.model_copy(update={"latency_ns": latency}),)})
    assert [judged(known, f"latency_{name}<1s")[SLOWED].clear for name in ("p90", "p95", "p50")] == [None, False, True]


def test_thresholds_are_judged_without_a_baseline(equal: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    result = equal.judge("resnet50:latency_p50<10s", "throughput>0.001/s;memory<100GiB")
    assert (result.baseline, result.rows) == (None, ())
    assert {judgement.outcome for judgement in result.judgements} == {"PASS"}
    assert capsys.readouterr().out.splitlines()[-1] == "thresholds: 49 PASS."
    with pytest.raises(RegressionError) as caught:
        equal.judge("resnet50/openvino/fp32:latency_p50<1us", "resnet50/openvino/fp32:latency_p95<10s")
    assert caught.value.problem == "thresholds: 1 FAIL, 1 PASS."
    assert f"FAIL  resnet50/openvino/fp32:latency_p50<1us  {SLOWED}: " in capsys.readouterr().out


def test_a_missed_threshold_beside_an_incomparable_baseline_ends_with_one(folders: Folders, before: Summary) -> None:
    folders.put(before, summary(2, cpu="another"))
    with pytest.raises(RegressionError):
        folders("--threshold", "latency_p50<1ns")
    folders("--threshold", "latency_p50<100s")


def test_too_few_rounds_name_the_command_for_each_side_that_lacks_them(
    folders: Folders, before: Summary, capsys: pytest.CaptureFixture[str]
) -> None:
    folders.put(before, summary(2, rounds=3))
    results = folders()
    assert {row.verdict for row in results.rows if row.ratio is not None} == {"AMBIGUOUS"}
    command = f"`make bench ROUNDS=5 CONFIG=configs/synthetic.yaml RESULTS={folders.current.root}`"
    said = f"No row is judged by fewer than 5 rounds a side: {command}, then compare again."
    assert said in capsys.readouterr().out
    assert said in folders.current.comparison_report.read_text()
    assert "correlate by 0.5" in folders.current.comparison_report.read_text()


# --- files --------------------------------------------------------------------------------------------------------


@pytest.fixture
def eventful(folders: Folders, before: Summary) -> Folders:
    """Something of everything."""

    def event(case: Case, record: Measured) -> Measured | Failed:
        if case.case_id == "resnet50-onnxruntime-cpu-fp32-b1":
            return failed(case, record.round, error="killed | out of memory")
        if case.case_id == "minilm-l6-openvino-cpu-fp32-b1-s32":
            placement = record.placement.model_copy(update={"settings": {"threads": 2, "streams": 1}})
            record = record.model_copy(update={"placement": placement})
        record = slower(1.06, SLOWED, "minilm-l6-openvino-cpu-fp32-b1-s32")(case, record)
        return slower(0.9, "resnet50-torch-compile-cpu-fp32-b1")(case, record)

    kept = [case for case in CASES if case.case_id != "resnet50-torch-eager-cpu-bf16-b1"]
    known = before.model_copy(update={"rows": tuple(row for row in before.rows if "torch-script" not in row.case_id)})
    libraries = {"torch": "2.14.1", "onnxruntime": "1.31.1", "openvino": "2026.5.0", "numpy": "2.4.6"}
    return folders.put(known, summary(2, event, cases=kept, libraries=libraries))


LIMITS = ("--threshold", "latency_p50<40ms;minilm-l6/openvino:latency_p95<5ms")


def test_the_whole_document(eventful: Folders) -> None:
    with pytest.raises(RegressionError):
        eventful(*LIMITS)
    root = str(eventful.current.root.parent)
    text = eventful.current.comparison_report.read_text().replace(root, "results")
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "comparison.md differs; look at it, then UPDATE_GOLDEN=1 pytest tests/unit"


def test_conditions_are_directly_above_each_table_of_figures(eventful: Folders) -> None:
    with pytest.raises(RegressionError):
        eventful(*LIMITS)
    blocks = eventful.current.comparison_report.read_text().split("\n\n")
    places = [place for place, block in enumerate(blocks) if block.startswith(("| verdict    | case", "| verdict   |"))]
    figures = [place for place in places if "ms" in blocks[place]]
    assert len(figures) == 2
    assert all(blocks[place - 1].startswith("Conditions: Intel") for place in figures)


def test_junit_has_every_row_and_every_threshold(eventful: Folders) -> None:
    with pytest.raises(RegressionError):
        eventful(*LIMITS)
    result, root = eventful.saved(), eventful.junit()
    suites = {suite.get("name"): suite for suite in root.iter("testsuite")}
    rows, limits = suites["baseline"], suites["thresholds"]
    assert [case.get("name") for case in rows] == [row.case_id for row in result.rows]
    assert len(limits) == len(result.judgements)
    outcome = {str(case.get("name")): [part.tag for part in case] for case in rows}
    for row in result.rows:
        skips = row.verdict in ("NOT COMPARABLE", "GONE")
        assert outcome[row.case_id] == ["failure" if row.fails else "skipped" if skips else "system-out"]
    for suite in suites.values():
        assert suite.get("tests") == str(len(suite))
        assert suite.get("failures") == str(len(list(suite.iter("failure")))) != "0"
        assert suite.get("skipped") == str(len(list(suite.iter("skipped"))))


def test_junit_stays_xml_with_any_quoted_reason(folders: Folders, before: Summary) -> None:
    def event(case: Case, record: Measured) -> Measured | Failed:
        lost = case.case_id == SLOWED
        return failed(case, record.round, error="<b> & \x1b[31mred\x1b[0m\x00") if lost else record

    folders.put(before, summary(2, event))()
    (said,) = [
        str(entry.get("message")) for entry in folders.junit().iter("skipped") if "<b>" in str(entry.get("message"))
    ]
    assert said == "NOT COMPARABLE: now failed: load: <b> &  [31mred [0m "


def test_the_json_is_complete_and_ratios_are_current_over_baseline(eventful: Folders) -> None:
    with pytest.raises(RegressionError):
        eventful()
    raw = json.loads(eventful.current.comparison.read_text())
    assert raw["schema_version"] == 1
    row = next(row for row in raw["rows"] if row["case_id"] == SLOWED)
    assert row["ratio"] == pytest.approx(1.06, rel=0.01)
    assert row["ci95"]["low"] < row["ratio"] < row["ci95"]["high"]
    assert row["current_ns"] / row["baseline_ns"] == pytest.approx(row["ratio"])


# --- GitHub -------------------------------------------------------------------------------------------------------


def test_github_gets_annotations_and_a_summary(
    eventful: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = tmp_path / "step.md"
    step.write_text("earlier\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    with pytest.raises(RegressionError):
        eventful("--threshold", "resnet50/openvino/fp32:latency_p50<1us")
    commands = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    errors = [line for line in commands if line.startswith("::error ")]
    assert len(errors) == 3
    assert any(line.startswith(f"::error title=slower::{SLOWED}: ") and "%25" in line for line in errors)
    assert any(line.startswith("::error title=threshold::") for line in errors)
    assert [line.split("::")[1] for line in commands if line not in errors] == ["warning title=no longer measured"] * 2
    assert step.read_text() == "earlier\n" + eventful.current.comparison_report.read_text()


def test_outside_github_nothing_of_that_is_said(eventful: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RegressionError):
        eventful()
    assert "::" not in capsys.readouterr().out


def test_github_without_a_summary_file_is_no_mistake(equal: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    equal()


def test_commands_are_escaped(eventful: Folders) -> None:
    with pytest.raises(RegressionError):
        eventful()
    row = next(row for row in eventful.saved().rows if row.fails)
    result = eventful.saved().model_copy(
        update={"rows": (row.model_copy(update={"case_id": "a%b\r\nc::d", "ratio": None}),)}
    )
    (command,) = github.commands(result)
    assert command.startswith("::error title=slower::a%25b%0Ac::d: ")
    assert "\n" not in command


def test_github_shows_ten_so_the_tenth_counts_the_rest(eventful: Folders) -> None:
    with pytest.raises(RegressionError):
        eventful()
    row = next(row for row in eventful.saved().rows if row.fails)
    for number, last in ((10, "slower"), (25, "more::16 more;")):
        commands = github.commands(eventful.saved().model_copy(update={"rows": (row,) * number}))
        assert len(commands) == 10
        assert commands[-1].startswith(f"::error title={last}")


def test_a_summary_too_long_for_github_is_cut_at_a_line() -> None:
    text = "".join(f"line {number} é\n" for number in range(120_000))
    step_summary = github.step_summary(text)
    assert len(text.encode()) > github.MAX_SUMMARY_BYTES >= len(step_summary.encode())
    *lines, last = step_summary.rstrip("\n").split("\n\n")
    assert last.startswith("… cut here")
    assert text.startswith("\n\n".join(lines) + "\n")
    assert github.step_summary("short\n") == "short\n"


# --- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.05, "+5.0%"), (0.95, "-5.0%"), (0.99999, "+0.0%"), (1.0, "+0.0%"), (9.99, "+899.0%"), (12.34, "×12.3")],
)
def test_a_ratio_as_a_change(ratio: float, text: str) -> None:
    assert comparison_table.percent(ratio) == text


def test_a_long_table_is_cut_on_the_terminal_and_says_so(eventful: Folders) -> None:
    with pytest.raises(RegressionError):
        eventful()
    result = eventful.saved()
    row = next(row for row in result.rows if row.fails)
    lines = comparison_table.terminal(result.model_copy(update={"rows": (row,) * 50})).splitlines()
    assert sum(line.startswith("SLOWER") for line in lines) == comparison_table.TERMINAL_ROWS
    assert "… and 10 more rows in comparison.md" in lines


def test_the_stage_imports_no_inference_library(equal: Folders) -> None:
    code = (
        "import sys; from harness import compare; compare.stage(sys.argv[1:]); "
        "print([n for n in ('torch', 'onnx', 'onnxruntime', 'openvino', 'matplotlib') if n in sys.modules])"
    )
    command = [sys.executable, "-c", code, "--baseline", str(equal.baseline.root), "--results", str(equal.current.root)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
