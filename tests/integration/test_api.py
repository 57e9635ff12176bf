"""harness.api at work: the examples of its docstrings and of docs/api.md, run once, and what they leave behind."""

from __future__ import annotations

import csv
import doctest
import importlib
import inspect
import json
import os
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import harness.api
from harness.api import Benchmark, ModelProfiler, Profile
from harness.core.errors import UsageError
from harness.core.schemas import ExportRecord
from harness.core.store import load
from harness.processes import stage_process
from tests.fixtures.forked import run_stage_forked

pytestmark = pytest.mark.stages

ROOT = Path(__file__).parents[2]
MODULES = ("configuration", "profiler", "regressions", "results")
"""Those with examples, in reading order."""


@dataclass(frozen=True)
class Session:
    """What the examples left: their folder, their names, and what doctest says of those that failed."""

    folder: Path
    names: dict[str, Any]
    page: dict[str, Any]
    problems: str

    @property
    def profile(self) -> Profile:
        profile: Profile = self.names["profile"]
        return profile


def examples() -> list[doctest.DocTest]:
    finder, result = doctest.DocTestFinder(), list[doctest.DocTest]()
    for name in MODULES:
        module = importlib.import_module(f"harness.api.{name}")
        tests = [test for test in finder.find(module, name) if test.examples]
        result += sorted(tests, key=partial(_first_line, module))
    return result


def _first_line(module: ModuleType, test: doctest.DocTest) -> int:
    """Of a test's class or function in its module: doctest itself takes the line of a decorator's wrapper."""
    tested: Any = reduce(getattr, test.name.split(".")[1:], module)
    return inspect.getsourcelines(inspect.unwrap(tested.fget if isinstance(tested, property) else tested))[1]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder, before = tmp_path_factory.mktemp("api"), Path.cwd()
    os.chdir(folder)
    patch = pytest.MonkeyPatch()
    patch.setattr(stage_process, "_run", run_stage_forked)
    try:
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        # As in a notebook: one namespace, whose classes belong to no file.
        names: dict[str, Any] = {"__name__": "__main__"}
        for test in examples():
            test.globs = names
            runner.run(test, out=said.append, clear_globs=False)
        page = ROOT / "docs/api.md"
        text = doctest.DocTestParser().get_doctest(page.read_text(), {"__name__": "__main__"}, page.name, str(page), 0)
        runner.run(text, out=said.append, clear_globs=False)
        yield Session(folder, names, text.globs, "\n".join(said))
    finally:
        patch.undo()
        os.chdir(before)


def test_the_examples_hold(session: Session) -> None:
    assert session.problems == ""


def test_every_module_with_an_example_is_run() -> None:
    names = [module.name for module in pkgutil.iter_modules(harness.api.__path__)]
    finder = doctest.DocTestFinder()
    results = {
        name for name in names if any(t.examples for t in finder.find(importlib.import_module(f"harness.api.{name}")))
    }
    assert results == set(MODULES)


def test_a_class_that_belongs_to_no_file_ran_as_itself(session: Session) -> None:
    compared: Benchmark = session.page["compared"]
    (record,) = compared.summary.exports.values()
    assert record.parameters == sum(p.numel() for p in session.page["profiler"].model.parameters())
    eager = next(row for row in compared.rows if row.backend == "torch-eager")
    assert eager.parity is not None
    assert eager.parity.relative_l2 is not None
    assert eager.parity.relative_l2 < 1e-4


def test_layers_are_those_of_the_module(session: Session) -> None:
    modules = dict(session.names["net"].named_modules())
    assert {row.name for row in session.profile.layers} - {"(model)"} == set(modules) - {""}
    assert {row.name: row.kind for row in session.profile.layers}["3"] == "Linear"


def test_the_files_are_those_of_the_stages(session: Session) -> None:
    folder = session.profile.folder
    assert folder.parent == Path("inferometer")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["models"][0]["name"].startswith("pickle:Sequential-")
    assert len(list((folder / "raw" / session.profile.row.case_id).glob("[12].json"))) == 2
    export = load(next(Path("inferometer/models").glob("pickle-Sequential-*/export.json")), ExportRecord, "make export")
    assert export.input_sets[0].source == "8 different samples handed over"


def test_tables_for_people(session: Session) -> None:
    text, page = repr(session.profile), session.profile._repr_html_()
    assert f"plan {session.profile.summary.plan_id}" in text
    assert "The parts sum to" in text
    assert page.count("<table") >= 5
    assert "<script" not in page
    assert all(row.backend in repr(session.names["compared"]) for row in session.names["compared"].rows)


def test_the_latest_result_goes_into_files(session: Session) -> None:
    profiler: ModelProfiler = session.page["profiler"]
    rows = list(csv.DictReader(profiler.export_csv("rows.csv").open()))
    assert [row["backend"] for row in rows] == ["torch-eager", "onnxruntime"]
    assert float(rows[0]["latency_median_ns"]) > 0
    assert (
        json.loads(profiler.export_json("all.json").read_text())["plan_id"] == session.page["compared"].summary.plan_id
    )
    page = profiler.generate_html_report("page.html").read_text()
    assert "torch-eager" in page
    assert "https://" not in page.partition("</head>")[0]


def test_memory_is_reported_allocation_by_allocation(session: Session) -> None:
    result = session.names["profiler"].memory_profile()
    (timeline,) = result.timelines.values()
    assert timeline.allocations > 0
    assert "MiB at once" in repr(result)
    assert result.figure().axes


def test_a_page_is_of_the_latest_result_that_has_rows(session: Session) -> None:
    profiler: ModelProfiler = session.names["profiler"]
    profiler.profile_layers()
    assert "torch-eager" in profiler.generate_html_report("latest.html").read_text()


def test_a_page_needs_rows(session: Session) -> None:
    fresh = ModelProfiler(session.names["profiler"].model, input_shape=(8, 3, 16, 16))
    fresh.profile_layers()
    with pytest.raises(UsageError, match="nothing was timed"):
        fresh.generate_html_report()
