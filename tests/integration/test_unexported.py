"""One model without an export: it is named, its rows say why, and the other models are measured."""

from __future__ import annotations

import os
import shutil

import pytest

from harness.core import store
from harness.core.layout import Models
from harness.core.schemas import Failed, Measured
from tests.fixtures.forked import run_forked
from tests.fixtures.models import MARK
from tests.fixtures.stages import POLLUTING, ROOT, TINY, Folder

pytestmark = pytest.mark.stages

EAGER_AND_NOOP = {"backends": ["noop", "torch-eager"]}


@pytest.fixture
def own(folder: Folder, exports: Models) -> Folder:
    """With a models folder of its own, which a test may damage."""
    shutil.copytree(exports.root, folder.root / "models")
    folder.models = Models(folder.root / "models")
    return folder


def test_a_failed_export_is_two_lines_and_the_others_go_on(own: Folder) -> None:
    file = own.root / "absent.onnx"
    own.root.mkdir(exist_ok=True)
    file.touch()
    own.plan({"backends": ["onnxruntime"]}, models=(TINY, f"onnx:{file}"))
    file.unlink()
    done = own("export")
    assert done.returncode == 10
    error, hint, end, after = done.stderr.splitlines()
    assert f"no file {file}" in error
    assert end == "Error: 1 of 2 models were not exported."
    assert all(line.startswith("Hint:  ") for line in (hint, after))

    ran = own("run")
    assert ran.returncode == 10, ran.stderr
    absent, tiny = sorted(own.summary().rows, key=lambda row: row.status)
    assert (absent.model, absent.status, absent.hint) == (f"onnx:{file}", "failed", hint.removeprefix("Hint:  "))
    assert absent.reason == f"export: {error.removeprefix('Error: ')}"
    assert (tiny.model, tiny.status) == (TINY, "measured")


def test_a_command_of_several_stages_prints_the_reason_of_a_failed_export_once(own: Folder) -> None:
    absent = "module:tests.fixtures.models:not_there"
    config = own.configure({"backends": ["torch-eager"]}, models=(TINY, absent))
    places = ["--results", str(own.results.root), "--models-dir", str(own.models.root)]
    done = run_forked("harness", ["bench", "--config", str(config), *places], ROOT, os.environ)
    assert done.returncode == 10, done.stderr
    (row,) = [row for row in own.summary().rows if row.model == absent]
    reason = (row.reason or "").removeprefix("export: ").rstrip(".")
    assert reason
    assert (done.stdout + done.stderr).count(reason) == 1
    assert f"Warning: {absent} is not measured: its export failed, see above." in done.stderr
    assert "the export failed, see above" in done.stdout

    # A stage alone has nothing above.
    assert f"Warning: {absent} is not measured. {reason}" in own("run").stderr
    assert f"Warning: {absent} was not exported. {reason}" in own("aggregate").stderr


def test_a_case_without_its_onnx_file_is_not_profiled_for_that_reason(own: Folder) -> None:
    own.plan({"backends": ["onnxruntime"]}, models=("module:tests.fixtures.models:unexportable",), parity_samples=8)
    assert own("export").returncode == 10
    profiled = own("profile_ops")
    assert profiled.returncode == 10, profiled.stderr
    assert "-onnxruntime-cpu-fp32-b1 is not profiled. The dynamo exporter failed" in profiled.stderr


@pytest.mark.slow
def test_a_model_that_is_exported_after_all_is_measured(own: Folder) -> None:
    plan = own.plan({"backends": ["torch-eager"]}, models=(TINY,))
    failure = own.results.export(plan.models[0].slug).failure
    failure.parent.mkdir(parents=True)
    failure.write_text('{"schema_version": 1, "error": "It failed.", "hint": "Mend it."}')
    assert own("run").returncode == 10
    assert [(row.status, row.reason, row.hint) for row in own.summary().rows] == [
        ("failed", "export: It failed.", "Mend it.")
    ]
    assert own("export").returncode == 0
    assert not failure.exists()
    assert own("run").returncode == 0


@pytest.mark.slow
def test_a_refused_export_takes_nothing_from_exported_plans(own: Folder) -> None:
    own.plan({"backends": ["torch-eager"]}, models=(POLLUTING,))
    assert own("export").returncode == 0
    own.environment = {"INFEROMETER_TEST_POLLUTE": "1", MARK: "1"}  # it refuses to be built
    refused = own("export", "--force")
    assert refused.returncode not in (0, 70), refused.stderr
    assert own("run").returncode == 10
    own.environment = {}
    again = own("export")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, f"{POLLUTING}: up to date")
    assert own("run").returncode == 0


@pytest.mark.slow
def test_a_model_whose_folder_is_gone_keeps_its_records(own: Folder) -> None:
    plan = own.plan(EAGER_AND_NOOP, models=(TINY, POLLUTING), rounds=1)
    assert own("run").returncode == 0
    tiny = next(model for model in plan.models if model.name == TINY)
    aside = own.root / "aside"
    shutil.move(own.models.folder(tiny.slug).root, aside)

    own.plan(EAGER_AND_NOOP, models=(TINY, POLLUTING), rounds=2)
    ran = own("run")
    assert ran.returncode == 10
    assert "is missing. Run `make export RESULTS=" in ran.stderr
    kinds = {(case, number): type(record) for (case, number), record in own.records().items() if tiny.slug in case}
    eager, noop = f"{tiny.slug}-torch-eager-cpu-fp32-b1", f"{tiny.slug}-noop-cpu-fp32-b1"
    assert kinds == {(eager, 1): Measured, (eager, 2): Failed, (noop, 1): Measured, (noop, 2): Measured}

    shutil.move(aside, own.models.folder(tiny.slug).root)
    ran = own("run")
    assert ran.returncode == 0, ran.stderr
    assert "1 process to run" in ran.stdout
    assert isinstance(store.load_raw(own.results.raw_file(eager, 2)), Measured)
