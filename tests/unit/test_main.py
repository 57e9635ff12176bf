"""`python -m harness`: the list of stages, becoming one, and running them all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

import harness.__main__ as program
from harness.core.errors import BusyError
from harness.core.layout import Results
from harness.core.lock import exclusive
from harness.pipeline import STAGES
from tests.fixtures.stages import ROOT, until

STARTED_BY_RUN = {"worker", "monitor", "profile_worker"}
CONFIG = {
    "models": ["spin:50us"],
    "matrix": [{"backends": ["spin"], "batch_sizes": [1, 2]}],
    "measurement": {"rounds": 1, "warmup_min_s": 0.01, "window_s": 0.005, "max_s": 0.1, "min_samples": 10},
    "report": {"charts": False},
}


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )


def bench(folder: Path, *arguments: str, **measurement: float) -> list[str]:
    """Options of a job of known duration in a folder."""
    config = folder / "config.yaml"
    config.write_text(json.dumps({**CONFIG, "measurement": {**CONFIG["measurement"], **measurement}}))  # type: ignore[dict-item]
    places = ["--results", str(folder / "results"), "--models-dir", str(folder / "models")]
    return ["bench", "--config", str(config), *places, *arguments]


def test_the_table_has_every_stage_that_a_user_starts() -> None:
    modules = {path.stem for path in (ROOT / "harness").glob("*.py") if "cli.main(" in path.read_text()}
    # A pipeline may have the name of the stage that it is for.
    assert set(STAGES) == modules - STARTED_BY_RUN - set(program.PIPELINES)


def test_without_arguments_each_stage_has_its_line() -> None:
    done = start()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == start("--help").stdout
    for name in STAGES:
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"  {name} ")]
        assert line.endswith((".", "files.", "code for CI."))


def test_a_stage_after_it_is_the_stage() -> None:
    for arguments in (("run", "--help"), ("report", "--no-such-option")):
        done, itself = start(*arguments), _stage_itself(*arguments)
        assert done.returncode == itself.returncode
        # Each names itself as it was typed.
        named = f"harness {arguments[0]}", f"harness.{arguments[0]}"
        assert (done.stdout + done.stderr).replace(*named).split() == (itself.stdout + itself.stderr).split()


def _stage_itself(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"harness.{name}", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)


def test_an_unknown_stage_is_two_lines() -> None:
    done = start("worker")
    assert done.returncode == 2
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["Error", "Hint"]


def test_bench_goes_the_whole_way_and_ends_with_a_line_of_json(tmp_path: Path) -> None:
    done = start(*bench(tmp_path, "--json", "--models", "spin:1ms", "--batches", "1"))
    assert done.returncode == 0, done.stderr
    assert "spin:1ms" in done.stdout.splitlines()[1]
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["exit_code"], said["rows"]) == (0, {"measured": 1})
    assert said["plan_id"] == json.loads((tmp_path / "results/plan.json").read_text())["plan_id"]
    assert (tmp_path / "results/report.md").is_file()


def test_bench_stops_at_the_stage_that_fails_with_its_exit_code(tmp_path: Path) -> None:
    done = start("bench", "--json", "--config", str(tmp_path / "absent.yaml"), "--results", str(tmp_path / "results"))
    assert done.returncode == _stage_itself("plan", "--config", str(tmp_path / "absent.yaml")).returncode != 0
    assert json.loads(done.stdout) == {
        "exit_code": done.returncode,
        "plan_id": None,
        "rows": None,
        "grades": None,
        "fastest": None,
    }


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plan, which no test changes."""
    folder = tmp_path_factory.mktemp("planned")
    assert _stage_itself("plan", *bench(folder)[1:5]).returncode == 0
    return folder


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({}, 0),
        ({"plan": 2}, 2),
        ({"export": 8}, 8),
        ({"run": 10}, 10),
        ({"run": 10, "report": 4}, 4),
        ({"run": 143}, 143),
    ],
)
def test_cases_that_fail_are_reported_and_anything_else_ends_it(
    codes: dict[str, int], expected: int, planned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = bench(planned)
    called: list[str] = []

    def stage(name: str, _: Sequence[str]) -> int:
        called.append(name)
        return codes.get(name, 0)

    monkeypatch.setattr(program, "_stage", stage)
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as left:
        program.start(options)
    assert left.value.code == expected
    assert called[-1] == next((name for name, code in codes.items() if code not in (0, 10)), "report")
    # On a CPU as well: without its limits no row of a plan that computes can be grade A.
    assert "run" not in called or called[: called.index("run") + 1] == ["plan", "export", "roof", "run"]


def test_models_are_named_without_an_option_and_choices_reach_their_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: dict[str, list[str]] = {}
    monkeypatch.setattr(program, "_stage", lambda name, arguments: called.setdefault(name, list(arguments)) and 0)
    monkeypatch.setattr(program, "_plan_is_for_gpu", lambda _: False)
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit):
        program.start(
            ["profile", "a b.onnx", "--layers", "attention", "resnet18", "--force", "--results", str(tmp_path)]
        )
    folders = ["--models-dir", "models", "--results", str(tmp_path)]
    assert called["plan"] == ["--models", "a b.onnx,resnet18", *folders]
    assert called["profile_ops"] == ["--layers", "attention", "--force", *folders]
    assert called["report"] == ["--results", str(tmp_path), "--profiles"]


def test_the_command_prints_its_version_and_hints_of_its_own() -> None:
    def command(*words: str) -> subprocess.CompletedProcess[str]:
        code = "import sys; from harness.__main__ import command; sys.argv[0] = 'inferometer'; command()"
        return subprocess.run(
            [sys.executable, "-c", code, *words], cwd=ROOT, check=False, capture_output=True, text=True
        )

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert command("--version").stdout == f"inferometer {version}\n"
    assert command().stdout.startswith("Usage: inferometer <command>")
    done = command("aggregate", "--results", "no such folder")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "Hint:  Run `inferometer plan --results 'no such folder'` first."
    assert command("bench", "--nothing").stderr.splitlines()[-1] == "Hint:  inferometer bench --help"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_signal_ends_the_stage_and_bench_with_it(number: signal.Signals, code: int, tmp_path: Path) -> None:
    # A job in the background of a script ignores SIGINT, and so would everything that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "harness", *bench(tmp_path, rounds=50, max_s=2.0)]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL) as process:
        raw = tmp_path / "results/raw"
        assert until(lambda: list(raw.glob("*/1.json")), 600)
        os.killpg(process.pid, number)
        assert process.wait(300) == code
    assert not (tmp_path / "results/summary.json").exists()
    assert list(raw.glob("*/1.json"))


def test_a_signal_to_make_alone_ends_the_stage_that_runs(tmp_path: Path) -> None:
    config = bench(tmp_path, rounds=50, max_s=2.0)[2]
    folders = [f"RESULTS={tmp_path}/results", f"MODELS_DIR={tmp_path}/models"]
    command = ["make", "bench", "WHERE=system", f"PYTHON={sys.executable}", f"CONFIG={config}", *folders]
    results = Results(tmp_path / "results")
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL) as process:
        assert until(lambda: list(results.raw.glob("*/1.json")), 600)
        process.terminate()
        assert process.wait(300) != 0
    assert until(lambda: not busy(results), 60)


def busy(results: Results) -> bool:
    """Whether a stage holds the results."""
    try:
        with exclusive(results.lock):
            return False
    except BusyError:
        return True


@pytest.mark.parametrize("stage", [*program.SAME_NAME, "run"])
def test_a_dotted_name_is_the_stage_and_never_the_pipeline(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _program, command: became.append(command))
    program.start([f"harness.{stage}", "--results", "x"])
    assert [command[1:] for command in became] == [["-m", f"harness.{stage}", "--results", "x"]]
