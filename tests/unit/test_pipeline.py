"""The pipelines' table: exit codes that go on, the options of each stage, and Make, which cannot read it."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import pipeline, watch
from harness.core import cli
from harness.core.errors import UsageError
from harness.pipeline import BY_NAME, PIPELINES, VARIABLES, goes_on_after

ROOT = Path(__file__).parents[2]
CHAINED = {step.stage for steps in PIPELINES.values() for step in steps} | {"spread"}


@pytest.mark.parametrize(
    ("stage", "exit_code", "goes_on"),
    [
        ("plan", 0, True),
        ("plan", 10, False),
        ("export", 10, True),
        ("export", 8, False),
        ("build_engine", 5, True),
        ("roof", 5, True),
        ("run", 10, True),
        ("run", 130, False),
        ("load", 10, True),
        ("profile_ops", 10, True),
        ("report", 10, False),
    ],
)
def test_the_table(stage: str, exit_code: int, goes_on: bool) -> None:
    assert goes_on_after(stage, exit_code) is goes_on


class _Parsed(Exception):  # noqa: N818 - no error: ends a stage once its options are known
    pass


def test_every_stage_takes_the_options_of_the_table_and_no_other_stage_does(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, set[str]] = {}

    def stop(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        known[stage] = {option for action in parser._actions for option in action.option_strings}
        raise _Parsed

    monkeypatch.setattr(cli.Parser, "parse_args", stop)
    for stage in sorted({name for variable in VARIABLES for name in variable.stages}):
        module = importlib.import_module(f"harness.{stage}")
        started = getattr(module, "stage" if hasattr(module, "stage") else stage)
        with pytest.raises(_Parsed):
            started([])
    for variable in VARIABLES:
        taking = {stage for stage, options in known.items() if variable.option in options}
        # `--models` of other stages is a part of the plan, `--config` of the self-test another default, `--rate` one.
        assert set(variable.stages) <= taking, variable.name
        if variable.name not in ("MODELS", "CONFIG"):
            assert set(variable.stages) == taking, variable.name


def test_a_choice_becomes_an_option_of_the_stages_that_take_it() -> None:
    choices = {"MODELS": ["a b.onnx"], "FORCE": ["1"], "BACKEND_PYTHONS": ["x=/p", "y=/q"], "RESULTS": ["r"]}
    assert pipeline.arguments("plan", choices) == ("--models", "a b.onnx", "--results", "r")
    assert pipeline.arguments("run", choices) == ("--python", "x=/p", "--python", "y=/q", "--force", "--results", "r")
    assert pipeline.arguments("report", choices) == ("--results", "r")


# --- Make ---------------------------------------------------------------------------------------------------------

RECORDER = """#!/bin/sh
stage=$(printf %s "$2" | sed s/harness.//)
printf '%s\\0' "$@" >>"$RECORD"; printf '\\n' >>"$RECORD"
eval "exit \\${CODE_$stage:-0}"
"""


def _made(folder: Path, target: str, *choices: str, **codes: int) -> tuple[int, list[tuple[str, list[str]]]]:
    """Make's exit code, and (stage, arguments) of each that it started, with a stand-in for Python."""
    python, record = folder / "python", folder / "record"
    python.write_text(RECORDER)
    python.chmod(0o755)
    record.write_text("")
    names = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", *BY_NAME}
    env = {name: value for name, value in os.environ.items() if name not in names}
    env |= {"RECORD": str(record), **{f"CODE_{stage}": str(code) for stage, code in codes.items()}}
    command = ["make", target, "WHERE=system", f"PYTHON={python}", f"RESULTS={folder}/r s", *choices]
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    lines = [line.split("\0")[:-1] for line in record.read_text().split("\n") if line]
    return done.returncode, [(words[1].removeprefix("harness."), words[2:]) for words in lines]


def _named(words: Sequence[str]) -> dict[str, str]:
    """Options with their values; without values those that are switches; none that are empty."""
    results: dict[str, str] = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            value = words[place + 1] if place + 1 < len(words) and not words[place + 1].startswith("--") else "1"
            results[word] = "" if word == "--began" else value
    return {option: value for option, value in results.items() if value or option == "--began"}


ALL = {
    "EXPORTER": "torchscript",
    "INPUTS": "a b.npz",
    "CONFIG": "my config.yaml",
    "DEVICE": "cpu",
    "MODELS": "a,b c.onnx",
    "BACKENDS": "x",
    "PRECISIONS": "fp32",
    "BATCHES": "1,8",
    "SEQ_LENGTHS": "32",
    "BOUNDARIES": "compute",
    "MODES": "sync",
    "SETTINGS": "s",
    "PROMPTS": "128,p.txt",
    "TOKENS": "16",
    "TUNE": "1",
    "ROUNDS": "5",
    "MAX_ROUNDS": "9",
    "INTERVAL": "1%",
    "BUDGET": "1m",
    "SCENARIOS": "server,offline",
    "BOUND": "p99<50ms",
    "RATES": "5,10",
    "MAX_BATCH": "4",
    "BATCHING": "static,continuous",
    "MAX_DELAY": "0,2ms",
    "WORKERS": "1,2",
    "IN_FLIGHT": "2",
    "CLIENTS": "1,3",
    "SAMPLES": "4",
    "REPLICATIONS": "3",
    "REQUESTS": "100",
    "DURATION": "2s",
    "PRICE": "2.5",
    "LOADGEN": "1",
    "ENDPOINT": "kserve+http://h/v2/models/m",
    "MODELS_DIR": "m",
    "FORCE": "1",
    "BACKEND_PYTHONS": "x=/p",
    "EXPORT_JOBS": "2",
    "ENGINE_JOBS": "3",
    "LAYERS": "attention",
    "DEPTH": "2",
    "PROFILE_RUNS": "7",
    "PLAIN_CHARTS": "1",
    "ONLY": "a model",
}


def test_the_choices_here_are_all_that_a_pipeline_takes() -> None:
    taken = {variable.name for name in PIPELINES for variable in pipeline.options_of(pipeline.stages_of(name))}
    assert set(ALL) == taken - {"CARDS", "LAYOUT", "RESULTS"}


@pytest.mark.parametrize("cards", [False, True], ids=["one card", "several cards"])
@pytest.mark.parametrize("target", list(PIPELINES))
def test_make_runs_the_stages_of_the_table_with_their_arguments(target: str, cards: bool, tmp_path: Path) -> None:
    given = {**ALL, **({"CARDS": "0,1", "LAYOUT": "copies"} if cards and target == "bench" else {})}
    code, started = _made(tmp_path, target, *(f"{name}={value}" for name, value in given.items()))
    choices = {name: [value] for name, value in given.items()} | {"RESULTS": [f"{tmp_path}/r s"]}
    expected = pipeline.steps(PIPELINES[target], choices, began_s=1)
    assert code == 0
    assert [stage for stage, _ in started] == [step.stage for step in expected]
    for (stage, words), step in zip(started, expected, strict=True):
        assert _named(words) == _named(step.arguments), stage


@pytest.mark.parametrize("target", list(PIPELINES))
def test_make_goes_on_after_the_same_exit_codes(target: str, tmp_path: Path) -> None:
    chain = PIPELINES[target]
    for number, step in enumerate(chain):
        for exit_code in (1, 5, 8, 10):
            code, started = _made(tmp_path, target, **{step.stage: exit_code})
            goes_on = goes_on_after(step.stage, exit_code)
            assert len(started) == (len(chain) if goes_on else number + 1), (step.stage, exit_code)
            # Make itself ends with 2 for any failure of a recipe.
            assert code == (0 if goes_on and not step.decides else 2), (step.stage, exit_code)


@pytest.mark.parametrize("target", ["load", "profile"])
def test_it_plans_where_there_is_no_plan_or_one_is_asked_for(target: str, tmp_path: Path) -> None:
    assert _made(tmp_path, target)[1][0][0] == "plan"
    (tmp_path / "r s").mkdir()
    (tmp_path / "r s/plan.json").touch()
    assert _made(tmp_path, target)[1][0][0] == "export"
    assert _made(tmp_path, target, "FORCE=1", "LAYERS=x", "MODELS_DIR=m")[1][0][0] == "export"
    # One list of variables serves both targets: all of them are tried with one.
    for name in sorted(pipeline.PLANNING) if target == "profile" else ("BOUND", "MODELS"):
        assert _made(tmp_path, target, f"{name}={ALL[name]}")[1][0][0] == "plan", name


@pytest.mark.parametrize(
    ("target", "is_set"), [*((name, True) for name in PIPELINES), ("run", False), ("report", False)]
)
def test_stages_of_a_pipeline_of_make_know_that_its_export_printed_the_failures(
    target: str, is_set: bool, tmp_path: Path
) -> None:
    stage = tmp_path / "python"
    stage.write_text('#!/bin/sh\necho "after export: $INFEROMETER_AFTER_EXPORT."\n')
    stage.chmod(0o755)
    names = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", cli.AFTER_EXPORT, *BY_NAME}
    env = {name: value for name, value in os.environ.items() if name not in names}
    command = ["make", target, "WHERE=system", f"PYTHON={stage}", f"RESULTS={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    said = {line for line in done.stdout.splitlines() if line.startswith("after export: ")}
    assert said == {f"after export: {'1' if is_set else ''}."}


PYTHON_3 = """#!/bin/sh
case "$2" in *hexversion*) echo python3 ;; *CDLL*) exit %d ;; esac
"""


@pytest.mark.parametrize(
    ("choices", "has_driver", "environment"),
    [
        (["CLAIM=own-h200"], True, ".venv-cuda"),
        (["CLAIM=own-h200"], False, ".venv"),
        (["CLAIM=own-h200", "DEVICE=cpu"], True, ".venv"),
        (["CLAIM=own-epyc"], True, ".venv"),
        (["CLAIM=timm-compile-ratio"], True, ".venv"),
        (["CLAIM=timm-compile-ratio", "DEVICE=cuda"], False, ".venv-cuda"),
        (["CLAIM=$(shell touch trap)"], True, ".venv"),
        (["CLAIM=x' touch trap;"], True, ".venv"),
    ],
)
def test_make_measures_a_claim_in_the_environment_of_its_device(
    choices: list[str], has_driver: bool, environment: str, tmp_path: Path
) -> None:
    (tmp_path / "python3").write_text(PYTHON_3 % (not has_driver))
    (tmp_path / "python3").chmod(0o755)
    names = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", *BY_NAME}
    env = {name: value for name, value in os.environ.items() if name not in names}
    env["PATH"] = f"{tmp_path}{os.pathsep}{env['PATH']}"
    command = ["make", "--dry-run", "reproduce", "WHERE=local", *choices]
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{environment}/bin/python -m harness.reproduce ")
    assert not (ROOT / "trap").exists()


def test_a_pipeline_ends_with_the_code_of_the_stage_that_stopped_it_or_of_the_one_that_decides() -> None:
    started: list[str] = []

    def start(stage: str, _arguments: Sequence[str]) -> int:
        started.append(stage)
        return {"export": 10, "run": 10, "aggregate": 4}.get(stage, 0)

    chain = pipeline.steps(PIPELINES["bench"], {})
    assert pipeline.run(chain, start, lambda: False) == 4
    assert started == ["plan", "export", "roof", "run", "load", "aggregate"]
    assert pipeline.run(chain[:5], start, lambda: True) == 10
    assert started[6:] == ["plan", "export", "build_engine", "roof", "run"]


# --- What Make would ignore ---------------------------------------------------------------------------------------


def _refused(target: str, *choices: str) -> str:
    """What Make prints on its error stream, with a stand-in for Python that does nothing; empty where it goes on."""
    names = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", *BY_NAME}
    env = {name: value for name, value in os.environ.items() if name not in names}
    command = ["make", *target.split(), "WHERE=system", "PYTHON=true", *choices]
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    assert (done.returncode == 0) is not done.stderr.startswith("Error: ")
    return done.stderr


@pytest.mark.parametrize(
    ("target", "stage"), [("run", "run"), ("export report", "report"), ("ab", "ab"), ("reproduce", "reproduce")]
)
def test_make_refuses_a_choice_of_the_plan_that_the_target_does_not_read(target: str, stage: str) -> None:
    for name in pipeline.PLANNING:
        if name == "DEVICE":
            continue  # it also names the environment, which every target reads
        read = stage in BY_NAME[name].stages
        said = _refused(target, f"{name}={ALL[name]}")
        assert bool(said) is not read, (name, said)
        if said:
            lines = said.splitlines()
            assert lines[0] == f"Error: `make {target.split(maxsplit=1)[0]}` does not read {name}."
            assert f"`make plan {name}=…`" in lines[1]


def test_make_takes_choices_of_the_plan_where_it_plans_and_empty_ones_anywhere() -> None:
    assert _refused("plan run", "MODELS=x") == ""
    assert _refused("run", "MODELS=") == ""


def test_make_takes_a_file_that_a_container_gets_and_no_name() -> None:
    for where, refused in (("docker", False), ("auto", False), ("system", True)):
        command = ["make", "--dry-run", "run", f"WHERE={where}", "PYTHON=true", "DOCKER=false"]
        for choice, expected in (("MODELS=nets/a.onnx", refused), ("MODELS=resnet18", True)):
            env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
            done = subprocess.run([*command, choice], cwd=ROOT, env=env, check=False, capture_output=True, text=True)
            assert ("does not read %s" in done.stdout) is expected, (where, choice)


def test_make_takes_no_value_of_a_refused_choice_for_a_command(tmp_path: Path) -> None:
    assert "does not read CONFIG" in _refused("run", f"CONFIG=$(shell touch {tmp_path}/ran)")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("choice", ["IMAGE=x", "IMAGE_RUN=x", "GPUS=device=1", "RUN_FLAGS=--memory=8g"])
def test_make_refuses_choices_of_a_container_where_none_is_used(choice: str) -> None:
    said = _refused("run", choice)
    assert f"{choice.partition('=')[0]} is of a container" in said
    assert "WHERE=docker" in said.splitlines()[1]


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ((), []),
        (("PORT=8080",), ["--port", "8080"]),  # the stage refuses it
        (("WEB=1",), ["--web", "--port", "0"]),
        (("WEB=1", "PORT=8080"), ["--web", "--port", "8080"]),
        (("WEB=0",), []),
    ],
)
def test_the_port_of_the_page_reaches_the_stage(choices: Sequence[str], words: list[str], tmp_path: Path) -> None:
    ((stage, given),) = _made(tmp_path, "watch", *choices)[1]
    assert (stage, given[2:]) == ("watch", words)


def test_a_port_without_a_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="PORT is of the page") as caught:
        watch.stage(["--port", "8080", "--results", str(tmp_path)])
    assert "make watch WEB=1 PORT=8080" in caught.value.hint
