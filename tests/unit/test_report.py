"""report: the whole document against its golden file, its files, and its options."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from harness import compare, report
from harness.comparison.verdicts import Margins
from harness.core import store
from harness.core.errors import MissingInputError, NewerFormatError
from harness.core.layout import Results
from harness.core.schemas import Design, Summary
from harness.core.seal import sealed, unsealed
from harness.reporting import thresholds
from harness.reporting.first_page import terminal_answer
from harness.reporting.html.page import is_made_from
from tests.synthetic_comparison import with_itself
from tests.synthetic_profiles import model_profile, parts
from tests.synthetic_results import EFFICIENTNET, RESNET, Synthetic, case_of, eventful, matrix, restless

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def summary() -> Summary:
    cases = matrix((EFFICIENTNET,), batch_sizes=(1, 4, 16))
    return Synthetic(models=(EFFICIENTNET,), cases=cases, change=eventful, watch=restless).summary()


@pytest.fixture
def results(tmp_path: Path, summary: Summary) -> Results:
    result = Results(tmp_path)
    store.save(result.summary, summary)
    return result


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory, summary: Summary) -> Results:
    """The summary with its whole report, where the charts of an earlier report lay. Tests only read it."""
    result = Results(tmp_path_factory.mktemp("reported"))
    store.save(result.summary, summary)
    result.charts.mkdir()
    (result.charts / "of-an-earlier-report.png").write_bytes(b"")
    run(result)
    return result


@pytest.fixture
def again(reported: Results, tmp_path: Path) -> Results:
    """A copy of it, with the times of its files, to be reported again."""
    return Results(shutil.copytree(reported.root, tmp_path / "again"))


def run(results: Results, *options: str) -> str:
    """Both files, one after the other."""
    report.stage(["--results", str(results.root), *options])
    return texts(results)


def texts(results: Results) -> str:
    return results.report.read_text() + results.report_details.read_text()


def test_the_whole_report(reported: Results) -> None:
    for path in (reported.report, reported.report_details):
        text, golden = path.read_text(), GOLDEN / path.name
        if os.environ.get("UPDATE_GOLDEN") == "1":
            golden.write_text(text)
        assert text == golden.read_text(), f"{path.name} differs; look at it, then UPDATE_GOLDEN=1 pytest tests/unit"


def test_the_first_page_is_a_page_and_its_links_lead_somewhere(reported: Results) -> None:
    page, details = reported.report.read_text(), reported.report_details.read_text()
    assert len(page.encode()) < 20_000 < len(details.encode())
    assert len(page.split("![")[0].splitlines()) < 20, "the answers, above the chart"
    anchors = {line[3:].lower().replace(" ", "-") for line in details.splitlines() if line.startswith("## ")}
    links = re.findall(r"\]\(report-details\.md(?:#([^)]+))?\)", page)
    assert len(links) > 3
    assert set(filter(None, links)) <= anchors
    assert "](report.md)" in details


def test_every_chart_that_is_linked_exists_and_none_else(reported: Results) -> None:
    text = texts(reported)
    drawn = sorted(path.name for path in reported.charts.glob("*.png"))
    assert len(drawn) == 5
    assert sorted(path.name for path in reported.charts.iterdir() if path.name not in drawn) == [
        name.replace(".png", ".svg") for name in drawn
    ]
    assert sorted(line.split("charts/")[1].rstrip(")") for line in text.splitlines() if line.startswith("![")) == drawn


def test_without_charts(results: Results) -> None:
    assert "![" not in run(results, "--no-charts")
    assert not list(results.root.glob("charts/*"))


def test_plain_charts_have_neither_title_nor_caption(again: Results) -> None:
    text = texts(again)
    whole = {path.name: path.stat().st_size for path in again.charts.iterdir()}
    assert run(again, "--plain-charts") == text
    plain = {path.name: path.stat().st_size for path in again.charts.iterdir()}
    assert set(plain) == set(whole)
    assert all(plain[name] < whole[name] for name in whole)


def test_charts_can_be_turned_off_in_the_configuration(results: Results, summary: Summary) -> None:
    store.save(results.summary, summary.model_copy(update={"charts": False}))
    assert "![" not in run(results)


def test_a_second_report_leaves_unchanged_files_alone(again: Results) -> None:
    before = {path: path.stat().st_mtime_ns for path in again.charts.iterdir()}
    run(again)
    assert {path: path.stat().st_mtime_ns for path in again.charts.iterdir()} == before


def test_it_prints_where_the_report_lies_and_the_table_only_on_request(
    results: Results, summary: Summary, capsys: pytest.CaptureFixture[str]
) -> None:
    run(results, "--no-charts")
    answer = f"{terminal_answer(summary)}\n\nReport: {results.report} and report.html\n"
    assert capsys.readouterr().out == answer
    run(results, "--no-charts", "--print")
    said = capsys.readouterr().out
    assert said.startswith("model ")
    assert said.endswith(answer)
    assert "\n\n\n" not in said
    assert sum(line.startswith("efficientnet-lite0 ") for line in said.splitlines()) == 21


def test_conditions_are_said_once_and_before_any_table(results: Results) -> None:
    run(results, "--no-charts")
    details = results.report_details.read_text()
    assert details.count("Conditions: ") == 1
    assert details.index("Conditions: ") < details.index("\n| ")
    assert "Conditions: " not in results.report.read_text()


def test_a_summary_with_nothing_measured_is_still_a_report(results: Results) -> None:
    nothing = Synthetic(models=(EFFICIENTNET,), cases=matrix((EFFICIENTNET,)), change=lambda _case, _record: None)
    store.save(results.summary, nothing.summary())
    text = run(results)
    assert "No case was measured." in text
    assert "never measured" in text


def test_where_nothing_was_measured_the_terminal_has_the_reasons_and_no_table(
    results: Results, summary: Summary, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "an ONNX file has no PyTorch module to run"
    row = summary.rows[0].model_copy(update={"status": "skipped", "reason": reason, "grade": None})
    store.save(results.summary, summary.model_copy(update={"rows": (row,), "notes": ()}))
    run(results, "--no-charts", "--print")
    said = capsys.readouterr().out
    assert f"No case was measured.\n1 case skipped ({row.backend} {row.precision} of {row.model}): {reason}" in said
    assert "median" not in said


def test_notes_about_left_out_files_are_in_the_report(results: Results, summary: Summary) -> None:
    store.save(results.summary, summary.model_copy(update={"notes": ("raw/x/1.json is cut off | damaged",)}))
    assert "- raw/x/1.json is cut off \\| damaged" in run(results, "--no-charts")


def test_without_a_summary_it_names_the_next_command(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError) as caught:
        report.stage(["--results", str(tmp_path)])
    assert "make aggregate" in caught.value.hint


def test_a_newer_summary_is_refused(results: Results) -> None:
    text = unsealed(results.summary.read_bytes()).content.replace(b'"schema_version": 3', b'"schema_version": 9', 1)
    results.summary.write_bytes(sealed(text))
    with pytest.raises(NewerFormatError):
        report.stage(["--results", str(results.root)])


def test_a_comparison_of_this_run_is_a_section_of_the_page(results: Results, summary: Summary) -> None:
    store.save(results.comparison, with_itself(summary))
    run(results, "--no-charts")
    assert '<section id="comparison"' in results.report_page.read_text()


def test_a_comparison_that_does_not_belong_here_is_left_out_and_said(
    results: Results, summary: Summary, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(results.comparison, with_itself(summary.model_copy(update={"plan_id": "another"})))
    for said in ("is of another run: report.html leaves it out.", "has format 99"):
        run(results, "--no-charts")
        assert '<section id="comparison"' not in results.report_page.read_text()
        warned = capsys.readouterr().err
        assert said in warned
        assert (
            "compare --results" not in warned.replace(" --baseline", "") or "--baseline" in warned
        )  # `compare` without anything to compare with is refused
        results.comparison.write_text('{"schema_version": 99}')


@pytest.mark.parametrize(
    ("limits", "design", "expected"),
    [
        ((), "separate", "make compare BASELINE='/b c/summary.json'"),
        ((), "across", "make compare BASELINE='/b c/summary.json' ACROSS=1"),
        (("latency_p50<1s", "latency_p99<2s"), None, "make compare THRESHOLD='latency_p50<1s;latency_p99<2s'"),
        ((), "paired", "make ab"),
    ],
)
def test_a_comparison_is_made_again_with_the_same_run_and_limits(
    limits: tuple[str, ...], design: Design | None, expected: str, summary: Summary
) -> None:
    parsed = [thresholds.parse(text) for text in limits]
    side = compare._side(Path("/b c/summary.json"), summary)
    baseline, sides = (summary, (side, side)) if design else (None, (None, side))
    made = compare.judge(baseline, summary, sides, Margins(0.01, 0.01), parsed, design or "separate")
    assert report._compared_again(made) == expected


# --- of the profiled cases alone ----------------------------------------------------------------------------------


@pytest.fixture
def profiled(tmp_path: Path) -> tuple[Results, Summary]:
    """A plan of several cases of which two have a profile and none is measured; and how it would be measured."""
    cases = [case_of(RESNET, backend, "fp32", 1) for backend in ("torch-eager", "onnxruntime", "openvino")]
    made = Synthetic(models=(RESNET,), cases=cases)
    results, measured = Results(tmp_path), made.summary()
    store.save(results.plan, made.plan.model_copy(update={"settings_id": measured.settings_id}))
    for row in measured.rows[:2]:
        facts = {"case_id": row.case_id, "settings_id": measured.settings_id, "backend": row.backend}
        store.save(results.model_profile(row.case_id), model_profile(row).model_copy(update=facts))
        store.save(results.parts_profile(row.case_id), parts())
    return results, measured


def test_a_profile_has_a_report_of_its_own_before_anything_is_measured(
    profiled: tuple[Results, Summary], capsys: pytest.CaptureFixture[str]
) -> None:
    results, _ = profiled
    report.stage(["--results", str(results.root), "--profiles"])
    text, page = results.profile_summary.read_text(), results.profile_page.read_text()
    assert text.startswith("# Synthetic report: profile\n\nNothing is measured yet.")
    assert "## Profile" in text
    assert 'id="profile"' in page
    assert "profiled, and not measured" in text
    assert not results.report.exists()
    assert not results.summary.exists()
    said = capsys.readouterr().out.splitlines()
    assert said[-2] == f"Report: {results.profile_summary} and profile.html"
    assert said[-1] == "Next: `make bench` measures 2 profiled cases."


def test_a_profile_shows_its_measurements_and_leaves_the_runs_own_report_alone(
    profiled: tuple[Results, Summary], capsys: pytest.CaptureFixture[str]
) -> None:
    results, measured = profiled
    store.save(results.summary, measured)
    report.stage(["--results", str(results.root), "--profiles"])
    text = results.profile_summary.read_text()
    assert "profiled, and not measured" not in text
    assert "| backend" in text
    assert not results.report.exists()
    assert capsys.readouterr().out.splitlines()[-1].startswith("Next: `make report` shows these profiles in")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all((results.root / link).is_file() for link in links if link.endswith((".png", "model.json")))


def test_samples_of_other_settings_are_not_the_profiles(profiled: tuple[Results, Summary]) -> None:
    results, measured = profiled
    store.save(results.summary, measured.model_copy(update={"settings_id": "other"}))
    report.stage(["--results", str(results.root), "--profiles", "--no-charts"])
    assert "profiled, and not measured" in results.profile_summary.read_text()


def test_without_a_profile_there_is_no_such_report(profiled: tuple[Results, Summary]) -> None:
    results, _ = profiled
    shutil.rmtree(results.root / "profiles")
    with pytest.raises(MissingInputError, match="No case of this plan has a profile"):
        report.stage(["--results", str(results.root), "--profiles"])


def test_commands_in_the_report_are_those_of_its_run(results: Results) -> None:
    plain = run(results, "--no-charts")
    results.command.write_text("python -m harness.plan --config my.yaml --results 'results/a b'\n")
    text = run(results, "--no-charts")
    assert "`make run FORCE=1`" in plain
    assert "`make run RESULTS='results/a b' FORCE=1`" in text
    assert "`make run FORCE=1`" not in text
    assert "make run RESULTS=&#39;results/a b&#39; FORCE=1" in results.report_page.read_text().replace("'", "&#39;")


def test_names_are_short_in_the_report_and_whole_in_its_last_section(results: Results, summary: Summary) -> None:
    (old,) = summary.exports
    name = "onnx:/data/nets/lite.onnx"
    rows = tuple(row.model_copy(update={"model": name}) for row in summary.rows)
    exports = {name: summary.exports[old].model_copy(update={"model": name})}
    whole = summary.model_copy(update={"rows": rows, "exports": exports})
    store.save(results.summary, whole)
    text = run(results, "--no-charts")
    assert "## lite.onnx" in text
    assert text.index(name) > text.index("## Environment")
    assert is_made_from(results.report_page.read_bytes(), whole), "the page is known as that of the summary in its file"
