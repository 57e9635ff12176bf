"""The example plugin, installed as a user installs it, through every stage; and plugins that are broken."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core import store
from harness.core.host.environment import PLUGIN
from harness.core.layout import Models
from harness.core.schemas import Failed, Measured, Row, Summary, Unavailable
from tests.fixtures.plugins import idle_info, write_plugin
from tests.fixtures.stages import ROOT, TINY, Folder, two_lines

pytestmark = pytest.mark.stages

NAME, ORIGIN = "onnx-reference", "inferometer-example-plugin 0.1.0"
COLUMN = "custom_throughput_per_thread [items/s]"
BLOCK = {"backends": ["torch-eager", NAME], "models": [TINY]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages that holds the example: built from a copy, which leaves the sources clean."""
    root = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(ROOT / "examples/inferometer-example-plugin", root / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--target", str(root / "site"), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return root / "site"


def with_path(*folders: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([*map(str, folders), str(ROOT)])}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, exports: Models, site: Path) -> Folder:
    """plan → export → run → aggregate → report of the example beside the baseline, two rounds."""
    root = tmp_path_factory.mktemp("plugged")
    folder = Folder(root, Models(root / "models"), with_path(site))
    folder.plan(BLOCK, rounds=2)
    for stage in ("export", "run", "aggregate", "report"):
        done = folder(stage)
        assert done.returncode == 0, done.stdout + done.stderr
    assert folder.orphans() == []
    return folder


@pytest.fixture(scope="module")
def summary(ran: Folder) -> Summary:
    return store.load(ran.results.summary, Summary, "make aggregate")


def row_of(summary: Summary, backend: str) -> Row:
    return next(row for row in summary.rows if row.backend == backend)


def test_its_answers_were_checked_and_its_speed_compared(summary: Summary) -> None:
    row = row_of(summary, NAME)
    assert (row.status, row.latency_ns is not None and row.latency_ns.rounds) == ("measured", 2)
    assert row.grade != "F"
    assert row.parity is not None
    assert row.parity.relative_l2 is not None
    assert row.parity.relative_l2 < 1e-5
    assert row.speedup is not None
    assert row.placement is not None
    assert (row.placement.precision, row.placement.dtype_census) == ("fp32", {"float": 16 * 64 + 64 + 64 * 4 + 4})
    assert "model.onnx" in row.artifacts


def test_row_and_environment_name_the_package_and_its_version(ran: Folder, summary: Summary) -> None:
    assert [row.plugin for row in summary.rows] == [None, ORIGIN]
    named = [
        environment.software for environment in summary.environments.values() if PLUGIN in environment.software.build
    ]
    assert [entry.build[PLUGIN] for entry in named] == [ORIGIN]
    assert named[0].libraries["inferometer-example-plugin"] == "0.1.0"
    others = [
        environment.software
        for environment in summary.environments.values()
        if PLUGIN not in environment.software.build
    ]
    assert others
    assert all("inferometer-example-plugin" not in other.libraries for other in others)


def test_the_metric_is_in_summary_csv_and_report(ran: Folder, summary: Summary) -> None:
    assert summary.custom["throughput_per_thread"].plugin == ORIGIN
    for row in summary.rows:
        assert row.throughput_per_s is not None
        assert row.threads is not None
        assert row.custom == {"throughput_per_thread": pytest.approx(row.throughput_per_s / row.threads, rel=1e-11)}
    with ran.results.summary_csv.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line[COLUMN]) for line in lines] == [row.custom["throughput_per_thread"] for row in summary.rows]
    assert [line["plugin"] for line in lines] == ["", ORIGIN]
    report = ran.results.report_details.read_text()
    assert "throughput per thread items/s ↑" in report
    assert f"plugin {ORIGIN}" in report.split("Conditions:")[1].split("\n")[0]
    assert "**throughput per thread**: Items per second of wall time" in report
    assert "throughput per thread items/s ↑" in ran.results.report_page.read_text()


def test_nothing_is_measured_twice_until_its_version_changes(ran: Folder, site: Path, tmp_path: Path) -> None:
    before = ran.files()
    assert "0 processes to run" in ran("run").stdout
    newer = shutil.copytree(site, tmp_path / "newer")
    metadata = next(newer.glob("*.dist-info")) / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 0.1.0", "Version: 0.2.0"))
    again = Folder(ran.root, ran.models, with_path(newer))
    assert "2 processes to run" in again("run").stdout
    changed = {path.parent.name for path, at in ran.files().items() if at != before[path]}
    assert changed == {row_id for row_id in {path.parent.name for path in before} if NAME in row_id}


def test_a_plan_for_a_package_that_is_gone_is_two_lines(ran: Folder, exports: Models) -> None:
    done = Folder(ran.root, exports)("run")
    error, hint = two_lines(done)
    assert done.returncode == 2
    assert error == f"Error: Unknown backend `{NAME}`."
    assert hint.endswith(f"A plugin's backend has to be installed in {sys.executable}.")


def test_another_interpreter_that_lacks_it_says_so_in_the_row(tmp_path: Path, exports: Models, site: Path) -> None:
    """Another interpreter gets no PYTHONPATH of this one's, and so does not see the package."""
    folder = Folder(tmp_path, exports, with_path(site))
    folder.plan({"backends": [NAME], "models": [TINY]})
    done = folder("run", "--python", f"{NAME}={sys.executable}")
    assert done.returncode == 10, done.stdout + done.stderr
    (record,) = folder.records().values()
    assert isinstance(record, Failed)
    assert record.error == f"Unknown backend `{NAME}`."
    assert "A plugin's backend has to be installed in " in record.hint
    assert record.hint.endswith(f"{Path(sys.executable).name}."), "below the checkout it is named without its folder"


# --- broken plugins -----------------------------------------------------------------------------------------------


@pytest.fixture
def broken(tmp_path: Path, exports: Models, site: Path) -> Folder:
    """The example, and beside it one package whose backend and metric do not import and one with a failing metric."""
    points = {"inferometer.backends": {"no-import": "broken:NOT"}, "inferometer.metrics": {"no_import": "broken:NOT"}}
    write_plugin(tmp_path / "site", "broken", "raise ImportError('no such library')\n", points)
    code = (
        "from harness.aggregation.plugin_metrics import Metric\n"
        "FAILING = Metric(lambda row: 1 / 0, 'items', 'lower', 'Never a figure.')\n"
    )
    write_plugin(tmp_path / "site", "failing", code, {"inferometer.metrics": {"failing": "failing:FAILING"}})
    return Folder(tmp_path, exports, with_path(tmp_path / "site", site))


def test_a_plan_that_asks_for_a_failed_plugin_is_two_lines(broken: Folder) -> None:
    path = broken.configure({"backends": ["no-import"], "models": [TINY]})
    done = broken("plan", "--config", str(path))
    error, hint = two_lines(done)
    assert done.returncode == 2
    assert error == ("Error: The backend `no-import` of broken 1.0 cannot be used: ImportError: no such library.")
    assert "docs/plugins.md" in hint


@pytest.mark.slow
def test_others_are_warned_and_go_on(broken: Folder) -> None:
    path = broken.configure({"backends": [NAME], "models": [TINY]})
    done = broken("plan", "--config", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("Warning: The backend `no-import` of broken 1.0 cannot be used: ImportError")
    assert broken("run").returncode == 0
    done = broken("aggregate")
    assert done.returncode == 0
    problem = "The metric `no_import` of broken 1.0 cannot be used: ImportError: no such library."
    assert problem in done.stderr
    summary = store.load(broken.results.summary, Summary, "make aggregate")
    assert problem in summary.notes
    assert set(summary.custom) == {"failing", "throughput_per_thread"}
    assert summary.rows[0].custom["failing"] == Unavailable(unavailable="ZeroDivisionError: division by zero")
    assert broken("report").returncode == 0
    report = broken.results.report_details.read_text()
    assert "failing items" not in report
    assert "None in 1 row: ZeroDivisionError: division by zero." in report


LEAVING = """
import os, time
from harness.backends.base import Backend
from harness.core.schemas import Placement


class Leaving(Backend):
    def load(self):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True:
                    pass
            os._exit(0)
        os.wait()

    def select(self, index):
        pass

    def infer(self):
        time.sleep(0.001)

    def synchronize(self):
        pass

    def outputs(self):
        return {}

    def placement(self):
        return Placement(device="cpu", precision="fp32", provider="none", settings={}, dtype_census={})
"""


def test_work_in_a_session_of_its_own_counts_against_the_threads(tmp_path: Path, exports: Models) -> None:
    points = {"inferometer.backends": {"leaving": "leaving:INFO"}}
    info = idle_info("leaving:Leaving", "its work is in a session of its own")
    write_plugin(tmp_path / "site", "leaving", info + LEAVING, points)
    folder = Folder(tmp_path, exports, with_path(tmp_path / "site"))
    folder.plan({"backends": ["leaving"], "models": [TINY]}, rounds=1, threads=1)
    done = folder("run")
    assert done.returncode == 0, done.stderr
    (record,) = [store.load_raw(path) for path in folder.results.raw.glob("*/1.json")]
    assert isinstance(record, Measured)
    assert record.cpu_use is not None
    assert record.cpu_use.helpers_ns > record.cpu_use.cpu_ns
    assert folder.orphans() == []
