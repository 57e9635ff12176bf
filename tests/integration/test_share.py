"""share: the files beside a summary, what goes when it changes, and runs read back from MLflow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness import share
from harness.core import store
from harness.core.errors import MissingInputError, UnavailableError
from harness.core.layout import Results
from harness.core.schemas import Row, Summary
from harness.reporting.html.page import summary_meta
from tests.synthetic_layers import EAGER
from tests.synthetic_results import EFFICIENTNET, RESNET, Synthetic, case_of, eventful, matrix, restless
from tests.synthetic_roof import profile

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient


@pytest.fixture(scope="module")
def summary() -> Summary:
    cases = matrix((EFFICIENTNET,), batch_sizes=(1, 4))
    return Synthetic(models=(EFFICIENTNET,), cases=cases, change=eventful, watch=restless).summary()


@pytest.fixture
def results(tmp_path: Path, summary: Summary, monkeypatch: pytest.MonkeyPatch) -> Results:
    monkeypatch.chdir(tmp_path)  # MLflow puts artifacts of a database below the working directory
    result = Results(tmp_path / "results")
    store.save(result.summary, summary)
    store.save_bytes(result.report_page, summary_meta(summary).encode())
    return result


def run(results: Results, *options: str) -> None:
    share.stage(["--results", str(results.root), *options])


def test_tables_and_metrics_are_beside_the_summary(results: Results, capsys: pytest.CaptureFixture[str]) -> None:
    run(results)
    names = {path.stem for path in results.tables.iterdir()}
    assert names >= {"results", "cold_start", "flags", "usage", "not_measured", "environments"}
    assert results.metrics.read_bytes().startswith(b"# HELP inferometer_latency_median_seconds ")
    said = capsys.readouterr().out.splitlines()
    assert said == [f"Tables: {len(names)} files in {results.tables}", f"Metrics: {results.metrics}"]


def test_the_same_again_touches_no_file_and_a_table_that_is_no_more_goes(results: Results, summary: Summary) -> None:
    run(results)
    before = {path: path.stat().st_mtime_ns for path in (*results.tables.iterdir(), results.metrics)}
    run(results)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    rows = tuple(row.model_copy(update={"usage": None}) for row in summary.rows)
    store.save(results.summary, summary.model_copy(update={"rows": rows}))
    run(results)
    assert set(before) - set(results.tables.iterdir()) == {results.table("usage"), results.metrics}


def test_profiles_of_this_plan_are_among_the_tables_and_a_damaged_one_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [case_of(RESNET, backend, "fp32", 1) for backend in ("torch-eager", "onnxruntime")]
    result, results = Synthetic(models=(RESNET,), cases=cases).summary(), Results(tmp_path)
    store.save(results.summary, result)
    for case in cases:
        taken = profile(case).model_copy(update={"settings_id": result.settings_id})
        store.save(results.model_profile(case.case_id), taken)
        store.save(results.parts_profile(case.case_id), EAGER)
    results.parts_profile(cases[1].case_id).write_text('{"schema_version": 1}')
    run(results)
    assert results.table("profile_layers").read_text().count("\n") == 1 + len(EAGER.layers)
    assert results.table("profile_cases").read_text().count("\n") == 1 + len(cases)
    assert "parts.json is not a valid PartsProfile" in capsys.readouterr().err
    for case in cases:
        store.save(results.model_profile(case.case_id), profile(case).model_copy(update={"settings_id": "another"}))
    run(results)
    assert not list(results.tables.glob("profile_*"))


def test_without_a_summary_it_names_the_next_command(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError) as caught:
        run(Results(tmp_path))
    assert "make aggregate" in caught.value.hint


# --- MLflow ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> str:
    pytest.importorskip("mlflow", reason="mlflow is not installed: pip install '.[mlflow]'")
    return f"sqlite:///{tmp_path}/mlflow.db"


def client_of(database: str) -> MlflowClient:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=database)


def sound(summary: Summary) -> dict[str, Row]:
    rows = {row.case_id: row for row in summary.rows if row.status == "measured" and row.grade != "F"}
    return {case_id: row for case_id, row in rows.items() if row.backend != "noop"}


def test_a_run_for_the_plan_and_one_below_it_for_each_sound_row(
    results: Results, summary: Summary, database: str
) -> None:
    run(results, "--mlflow", database, "--experiment", "ours")
    client = client_of(database)
    place = client.get_experiment_by_name("ours").experiment_id
    runs = client.search_runs([place], max_results=1000)
    (parent,) = [entry for entry in runs if "mlflow.parentRunId" not in entry.data.tags]
    children = {entry.data.tags["inferometer.case_id"]: entry for entry in runs if entry is not parent}
    rows = sound(summary)
    assert set(children) == set(rows)
    assert len(rows) < len(summary.rows)
    for case_id, row in rows.items():
        child = children[case_id]
        assert row.latency_ns is not None
        assert row.cold_ns is not None
        assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert (child.info.run_name, child.info.status) == (case_id, "FINISHED")
        assert child.data.params == {
            "model": row.model,
            "weights": row.weights,
            "backend": row.backend,
            "setting": row.setting,
            "device": "cpu",
            "precision": row.precision,
            "batch_size": str(row.batch_size),
            "boundary": "compute",
            "mode": "sync",
            "threads": "2",
        }
        assert child.data.metrics["latency_median_ms"] == pytest.approx(row.latency_ns.median / 1e6, rel=1e-11)
        assert child.data.metrics["throughput_items_per_s"] == pytest.approx(row.throughput_per_s, rel=1e-11)
        assert child.data.metrics["load_s"] == row.cold_ns.load / 1e9
        assert ("latency_p99_ms" in child.data.metrics) == (row.latency_ns.p99 is not None)
        assert child.data.tags["inferometer.grade"] == row.grade
        assert child.data.tags["inferometer.plan_id"] == summary.plan_id
    assert parent.data.metrics["cases_not_logged"] == len(summary.rows) - len(rows)
    assert parent.info.status == "FINISHED"
    names = {Path(file.path).name for file in client.list_artifacts(parent.info.run_id)}
    assert names == {"report.html", "summary.json"}


def test_the_same_figures_are_logged_once_and_others_again(
    results: Results, summary: Summary, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    few = summary.model_copy(update={"rows": summary.rows[:2]})
    store.save(results.summary, few)
    run(results, "--mlflow", database)
    store.save(results.summary, few.model_copy(update={"created_at": "2026-11-28T09:00:00+00:00"}))
    run(results, "--mlflow", database)
    assert "nothing to log" in capsys.readouterr().out
    client = client_of(database)
    place = client.get_experiment_by_name("inferometer").experiment_id
    once = len(client.search_runs([place]))
    store.save(results.summary, few.model_copy(update={"title": "Another"}))
    run(results, "--mlflow", database)
    assert len(client.search_runs([place])) == 2 * once


@pytest.mark.slow
def test_an_interrupted_log_is_written_again(
    results: Results, summary: Summary, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    store.save(results.summary, summary.model_copy(update={"rows": summary.rows[:2]}))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "log_artifact", full)
        with pytest.raises(UnavailableError, match="No space left"):
            run(results, "--mlflow", database)
    run(results, "--mlflow", database)
    client = client_of(database)
    place = client.get_experiment_by_name("inferometer").experiment_id
    parents = [entry for entry in client.search_runs([place]) if "mlflow.parentRunId" not in entry.data.tags]
    assert sorted(parent.info.status for parent in parents) == ["FINISHED", "RUNNING"]


def test_the_report_goes_along_and_so_has_to_be_there(results: Results, database: str) -> None:
    results.report_page.unlink()
    with pytest.raises(MissingInputError) as caught:
        run(results, "--mlflow", database)
    assert "make report" in caught.value.hint


@pytest.mark.slow
def test_a_report_of_another_summary_is_left_out_until_there_is_one_of_this(
    results: Results, summary: Summary, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    few = summary.model_copy(update={"rows": summary.rows[:2]})
    store.save(results.summary, few)
    said = []
    for page in (summary_meta(summary), summary_meta(few), summary_meta(few)):
        store.save_bytes(results.report_page, page.encode())
        run(results, "--mlflow", database)
        said.append(capsys.readouterr())
    assert "report.html is of another summary: left out of MLflow" in said[0].err
    assert said[1].err == said[2].err == ""
    assert "report.html added to run " in said[1].out
    assert "nothing to log" in said[2].out
    client = client_of(database)
    place = client.get_experiment_by_name("inferometer").experiment_id
    (parent,) = [entry for entry in client.search_runs([place]) if "mlflow.parentRunId" not in entry.data.tags]
    assert {file.path for file in client.list_artifacts(parent.info.run_id)} == {"report.html", "summary.json"}


def test_a_database_that_is_none_is_two_lines_without_the_password(results: Results, database: str) -> None:
    results.root.joinpath("bad.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(UnavailableError, match="file is not a database"):
        run(results, "--mlflow", f"sqlite:///{results.root}/bad.db")
    with pytest.raises(UnavailableError) as caught:
        run(results, "--mlflow", "unknown://user:secret@host/db")
    assert "secret" not in caught.value.problem
    assert "unknown://host/db" in caught.value.problem


def test_without_mlflow_the_files_are_written_and_the_error_says_how_to_get_it(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mlflow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UnavailableError) as caught:
        run(results, "--mlflow", "sqlite:///mlflow.db")
    assert "MLflow is not installed" in caught.value.problem
    assert "pip install '.[mlflow]'" in caught.value.hint
    assert results.metrics.is_file()
