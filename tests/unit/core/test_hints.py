"""Hints that can be typed: the choices of the run in each command, in the words of the interface that was used."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from harness.api import ModelProfiler, detect_regressions, generate
from harness.api.configuration import KEYS
from harness.core import cli, hints
from harness.core.cli import in_words_of
from harness.core.errors import UsageError
from harness.core.hints import (
    Front,
    HintContext,
    choices_in,
    command_line,
    of_command,
    of_file,
    of_program,
    of_stage,
    typed,
    typed_html,
)
from harness.pipeline import BY_NAME
from harness.planning.config import READ_BY, ScenarioBlock

ROOT = Path(__file__).parents[3]
RUN = HintContext(
    planned={"CONFIG": "my config.yaml", "MODELS": "onnx:m.onnx", "MODELS_DIR": "/m", "RESULTS": "results/x"}
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Run `make run`.", "Run `make run MODELS_DIR=/m RESULTS=results/x`."),
        (
            "make plan BATCHES=1",
            "make plan CONFIG='my config.yaml' MODELS=onnx:m.onnx MODELS_DIR=/m RESULTS=results/x BATCHES=1",
        ),
        ("`make aggregate report`", "`make aggregate report MODELS_DIR=/m RESULTS=results/x`"),
        ("`make report`: see it", "`make report RESULTS=results/x`: see it"),
        (
            "`make bench RESULTS=other`",
            "`make bench CONFIG='my config.yaml' MODELS=onnx:m.onnx MODELS_DIR=/m RESULTS=other`",
        ),
        ("make compare BASELINE=<folder>.", "make compare RESULTS=results/x BASELINE=<folder>."),
        ("THRESHOLD='a<1ms; b>2/s', or so", "THRESHOLD='a<1ms; b>2/s', or so"),
        ("`make models`, make it so, remake run", "`make models`, make it so, remake run"),
        ("make image-cuda, make runs, make profile-layers", "make image-cuda, make runs, make profile-layers"),
    ],
)
def test_a_command_of_make_gets_the_choices_that_its_target_reads(text: str, expected: str) -> None:
    assert typed(text, RUN) == expected
    assert typed(expected, RUN) == expected, "a second time changes nothing"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`make run FORCE=1` again", "`inferometer run --models-dir /m --results results/x --force` again"),
        ("`make roof report`", "`inferometer roof --results results/x && inferometer report --results results/x`"),
        (
            "`make profile FORCE=1 DEPTH=2`.",
            "`inferometer profile --config 'my config.yaml' --models onnx:m.onnx --models-dir /m --results results/x "
            "--force --depth 2`.",
        ),
        ("Ask for fewer: ROUNDS=5.", "Ask for fewer: --rounds 5."),
        ("Run `make image-cuda`.", "Run `make image-cuda`."),
    ],
)
def test_the_command_inferometer_has_options(text: str, expected: str) -> None:
    assert typed(text, HintContext("inferometer", RUN.planned)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Leave BATCHING out; it is of PROMPTS.", "Leave --batching out; it is of --prompts."),
        ("`make models` lists them", "`inferometer models` lists them"),
        ("make watch WEB=1 PORT=…", "inferometer watch --results results/x --web --port …"),
        ("PORT=0 takes a free one", "--port 0 takes a free one"),
        (
            "make run LAYOUT=cases",
            "inferometer spread --models-dir /m --results results/x --layout cases",
        ),
        ("a COMMITTED row, MODELS_OF, {CONFIG}, $STORE, x/MODELS/y, A.CONFIG.B", None),
        ("NOT COMPARABLE, UNDECIDED, CLOCK_DRIFT, TORCH_LOGS=recompiles, CUDA_VISIBLE_DEVICES=0", None),
    ],
)
def test_a_variable_becomes_its_option_and_no_other_word_does(text: str, expected: str | None) -> None:
    context = HintContext("inferometer", RUN.planned)
    assert typed(text, context) == (text if expected is None else expected)
    assert typed(typed(text, context), context) == typed(text, context), "a second time changes nothing"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`make run FORCE=1` measures again.", "`force=True` measures again."),
        ("Give one: BOUND='p99<50ms,p50<9ms'.", 'Give one: bound="p99<50ms,p50<9ms".'),
        ("Name the loads: RATES=1,2.5", "Name the loads: rates=[1, 2.5]"),
        ("TOKENS=64, PROMPTS=<number>", "tokens=[64], prompts=[<number>]"),
        ("Leave it out: BACKENDS=…, or BACKENDS=a,b", 'Leave it out: backend=…, or backend=["a", "b"]'),
        ("(MODELS=timm:x@seeded)", '(weights="seeded")'),
        ("Leave WORKERS and IN_FLIGHT out", "Leave workers and in_flight out"),
        ("(INPUTS=<file>.npz)", "(input_data=…)"),
        ("Wait, or RESULTS=<folder>.", 'Wait, or folder="<folder>".'),
        ("make ab AGAINST=HEAD~1", 'against="HEAD~1"'),
        ("`make load`, `make generate`, `make ab`", "`load()`, `generate()`, `ab()`"),
        ("`make energy FORCE=1` again", "`inferometer energy --force` again"),
        ("CARDS=0,1; or `make load CONFIG=c.yaml`", "--cards 0,1; or `inferometer load --config c.yaml`"),
        ("Measure more rounds: `make bench ROUNDS=10`.", "Measure more rounds: `rounds=10`."),
        ("`make profile FORCE=1 PROFILE_RUNS=200`.", "`force=True, num_runs=200`."),
        ("Run `make export` again.", "Run `profile()` again."),
        ("`make selftest` tests it", "`inferometer selftest` tests it"),
    ],
)
def test_the_api_has_arguments(text: str, expected: str) -> None:
    assert typed(text, HintContext("api")) == expected


def test_a_page_changes_in_its_text_alone() -> None:
    page = '<script>"make run"</script><p>make run</p><style>make run</style><code>make roof</code>'
    assert typed_html(page, HintContext(planned={"RESULTS": "a<b"})) == (
        "<script>\"make run\"</script><p>make run RESULTS='a&lt;b'</p><style>make run</style>"
        "<code>make roof RESULTS='a&lt;b'</code>"
    )


@pytest.mark.parametrize(
    ("page", "by", "expected"),
    [
        ("<code>make run FORCE=1</code>.", "inferometer", "<code>inferometer run --force</code>."),
        ("<code>make run FORCE=1</code>.", "api", "<code>force=True</code>."),
        ("<code>ROUNDS=5</code>", "inferometer", "<code>--rounds 5</code>"),
        ("<p title='DEVICE=cuda'>", "api", "<p title='device=&quot;cuda&quot;'>"),
        (
            "<code>make compare BASELINE=&lt;folder&gt;</code>",
            "inferometer",
            "<code>inferometer compare --baseline &lt;folder&gt;</code>",
        ),
    ],
)
def test_a_command_of_a_page_ends_before_the_next_tag(page: str, by: Front, expected: str) -> None:
    assert typed_html(page, HintContext(by)) == expected


@pytest.mark.parametrize(
    ("command", "planned"),
    [
        (None, {}),
        ("python -m harness.plan --config configs/quickstart.yaml --results results --models-dir models", {}),
        ("python -m harness.plan --config configs/cuda.yaml --device cuda --models ''", {"DEVICE": "cuda"}),
        (
            "python -m harness.plan --config configs/smoke.yaml --backends openvino --tune --budget 10m "
            "--results r/try --models-dir '/m m'",
            {
                "CONFIG": "configs/smoke.yaml",
                "BACKENDS": "openvino",
                "RESULTS": "r/try",
                "MODELS_DIR": "/m m",
                "TUNE": "1",
            },
        ),
    ],
)
def test_the_plans_own_command_repeats_its_choices(command: str | None, planned: dict[str, str]) -> None:
    assert of_command(command) == HintContext("make", planned)


def test_a_container_has_the_commands_of_its_module() -> None:
    text = "`make run FORCE=1` again, or ROUNDS=5"
    assert typed(text, HintContext("module", {"RESULTS": "r"})) == (
        "`python -m harness run --results r --force` again, or --rounds 5"
    )


@pytest.mark.parametrize("by", ["make", "inferometer", "module", "api"])
def test_who_planned_is_kept_with_the_command(by: hints.Front) -> None:
    text = command_line(by, ["--models", "a b.onnx", "--results=r"])
    assert of_command(text) == HintContext(by, {"MODELS": "a b.onnx", "RESULTS": "r"})
    assert text.count("\n") == 1


def test_a_stage_knows_how_its_folder_was_planned(tmp_path: Path) -> None:
    planned = ["--models", "resnet18", "--results", "elsewhere", "--models-dir", "/m"]
    (tmp_path / "command.txt").write_text(command_line("make", planned))
    words = ["--results", str(tmp_path), "--force"]
    known = {"MODELS": "resnet18", "RESULTS": str(tmp_path)}
    assert of_stage("report", words, "make") == HintContext("make", {**known, "MODELS_DIR": "/m"})
    assert of_stage("run", words, "make") == HintContext("make", known)  # it looks in models/
    assert of_stage("run", [*words, "--models-dir", "models"], "make") == HintContext("make", known)
    assert of_stage("run", [*words, "--models-dir", "own"], "make") == HintContext(
        "make", {**known, "MODELS_DIR": "own"}
    )
    assert of_stage("plan", words, "make") == HintContext("make", {"RESULTS": str(tmp_path)})
    assert choices_in(words) == {"RESULTS": str(tmp_path)}
    assert choices_in(["--batches", "1", "--batches", "8"]) == {"BATCHES": "8"}
    # `ab` plans into a folder of its own: the plan beside it is another one.
    assert of_stage("ab", ["--config", "c.yaml", "--against", "HEAD"], "make").planned["CONFIG"] == "c.yaml"


@pytest.mark.parametrize(("by", "program"), [("make", "make"), ("module", "python -m harness")])
def test_the_cases_of_an_ab_run_are_measured_again_by_ab_alone(by: Front, program: str, tmp_path: Path) -> None:
    """`make run` in its folder would measure one state, and its records would count as measured in turn."""
    place = tmp_path / "ab"
    place.mkdir()
    words = ["--against", "HEAD~1", "--config", "c.yaml", "--results", str(tmp_path)]
    (place / "command.txt").write_text(command_line(by, words, "ab"))
    of_report = of_command((place / "command.txt").read_text())
    assert of_report == of_stage("report", ["--results", str(place)], by)
    for command in ("make run FORCE=1", "make ab FORCE=1", "make bench ROUNDS=12"):
        line = typed(f"`{command}`", of_report)
        assert line.startswith(f"`{program} ab ")
        for value in ("HEAD~1", "c.yaml", str(tmp_path)):
            assert value in line
        assert str(place) not in line
    assert str(place) in typed("`make selftest`", of_report)
    for command, more in (("make profile FORCE=1", True), ("make export", False)):
        line = typed(f"`{command}`", of_report)
        assert str(place) in line
        assert "c.yaml" not in line  # it would plan again, in this folder and for one state alone
        assert ("FORCE=1" in line or "--force" in line) == more


@pytest.mark.parametrize("by", ["make", "module"])
def test_the_other_state_of_an_ab_run_has_the_same_command(by: Front, tmp_path: Path) -> None:
    place = tmp_path / "ab"
    against = place / "against"
    against.mkdir(parents=True)
    words = ["--against", "HEAD~1", "--config", "c.yaml", "--results", str(tmp_path)]
    (place / "command.txt").write_text(command_line(by, words, "ab"))
    (against / "command.txt").write_text(command_line(by, ["--config", "/c.yaml", "--results", str(against)]))
    here, other = of_file(place / "command.txt"), of_file(against / "command.txt")
    assert other == of_stage("run", ["--results", str(against)], by)
    assert typed("make ab FORCE=1", other) == typed("make ab FORCE=1", here)
    assert str(against) in typed("make profile", other)


def test_a_process_of_a_stage_leaves_its_texts_for_the_stage_to_complete() -> None:
    text = "Run `make export`: it makes the file again."
    inner = of_program(ROOT / "harness" / "processes" / "profile_worker.py", [], "module")
    stage = of_program(ROOT / "harness" / "profile_ops.py", ["--results", "r", "--models-dir", "m"], "module")
    assert typed(text, inner) == text
    assert typed(typed(text, inner), stage) == (
        "Run `python -m harness export --results r --models-dir m`: it makes the file again."
    )


def test_the_hint_of_a_stage_is_a_command_that_make_takes(tmp_path: Path) -> None:
    """Typed as printed, quoting included: Make finds its target and every variable."""
    context = HintContext(planned={"RESULTS": f"{tmp_path}/r s", "MODELS": "a b.onnx", "CONFIG": "c's.yaml"})
    for text in ("make bench ROUNDS=3", "make profile FORCE=1", "make aggregate report", "make compare BASELINE=x"):
        words = shlex.split(typed(text, context))
        done = subprocess.run(
            [*words, "--dry-run", "WHERE=system", "PYTHON=true"], cwd=ROOT, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


# --- every text of the code ---------------------------------------------------------------------------------------


@cache
def _texts_of_the_code() -> tuple[tuple[Path, str], ...]:
    """(module, text) of every text, read once for all tests of this file."""
    paths = sorted((ROOT / "harness").rglob("*.py"))
    return tuple((path, text) for path in paths for text in _texts(ast.parse(path.read_text())))


def _texts(tree: ast.AST) -> Iterator[str]:
    """The strings of a module, without its documentation; `x` in place of what an f-string fills in."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in ast.walk(node) if part is not node}
    for node in joined:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation | parts:
            yield node.value


MAKEFILE = (ROOT / "Makefile").read_text()
ITS_WORDS = re.compile(
    r"(?<![\w./-])(?:make (?:{targets})|{names})(?![\w./-])".format(
        targets="|".join(re.findall(r"(?m)^([a-z-]+):.*## ", MAKEFILE)),
        names="|".join(re.findall(r"(?m)^([A-Z_]+) +\?=", MAKEFILE)),
    )
)
OF_MAKE_ALONE = re.compile("make (?:clean|image-[a-z-]+)|WHERE=[a-z]+")
"""What has no equal elsewhere: images, and folders that Make empties."""


@pytest.mark.parametrize("front", ["inferometer", "module", "api"])
def test_no_text_of_the_code_keeps_the_words_of_make(front: Front) -> None:
    kept = []
    for path, text in _texts_of_the_code():
        if path.name in ("hints.py", "pipeline.py"):  # the tables of these words
            continue
        printed = OF_MAKE_ALONE.sub("", typed(text, HintContext(front)))
        # A word alone is a key of a table.
        if text not in BY_NAME and ITS_WORDS.search(printed):
            kept.append(f"{path.relative_to(ROOT)}: {printed}")
    assert kept == []


def test_no_command_in_a_text_loses_a_variable() -> None:
    """A variable that a command does not take would be left out of its options."""
    commands = re.compile(r"make ([a-z-]+)((?: [A-Z_]+=(?:<[^>]*>|'[^']*'|[^\s`.;,<]+))+)")
    lost = []
    for path, text in _texts_of_the_code():
        for command in commands.finditer(text):
            printed = typed(command[0], HintContext("inferometer"))
            given = re.findall(r"([A-Z_]+)=", command[2])
            lost += [f"{path.name}: {printed}: {name}" for name in given if BY_NAME[name].option not in printed]
    assert lost == []


def test_each_argument_of_the_api_exists() -> None:
    calls = [*vars(ModelProfiler).values(), ModelProfiler, generate, detect_regressions]
    known = {name for call in calls if callable(call) for name in inspect.signature(call).parameters}
    known |= {*KEYS, *READ_BY, *ScenarioBlock.model_fields}
    arguments = {name: typed(f"{name}=1", HintContext("api")).partition("=")[0] for name in BY_NAME}
    assert {argument for argument in arguments.values() if not argument.startswith("--")} <= known


# --- the interface that was used ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "environment", "hint"),
    [
        (["-m", "harness.plan", "--batches", "0"], {}, "For example: --batches 8."),
        (["-m", "harness", "plan", "--batches", "0"], {}, "For example: --batches 8."),
        (["-m", "harness.plan", "--batches", "0"], {"INFEROMETER_FRONT": "make"}, "For example: BATCHES=8."),
        (["-m", "harness.plan", "--batches", "1", "--max-rounds", "x"], {}, "For example: --max-rounds 8."),
        (["-m", "harness.plan", "--device", "gpu"], {}, "python -m harness.plan --help"),
        (["-m", "harness", "plan", "--device", "gpu"], {}, "python -m harness plan --help"),
        (["-m", "harness.plan", "--device", "x"], {"INFEROMETER_FRONT": "make"}, "`make` alone lists all variables."),
    ],
)
def test_a_mistake_is_answered_in_the_words_of_the_caller(
    command: list[str], environment: dict[str, str], hint: str
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "INFEROMETER_FRONT"} | environment
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"Hint:  {hint}"


def test_make_names_itself_to_its_stages(tmp_path: Path) -> None:
    stage = tmp_path / "python"
    stage.write_text('#!/bin/sh\nprintf %s "$INFEROMETER_FRONT"\n')
    stage.chmod(0o755)
    command = ["make", "--silent", "plan", "WHERE=system", f"PYTHON={stage}"]
    env = {**os.environ, "INFEROMETER_FRONT": "module"}
    done = subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    assert done.stdout.endswith("make")


def test_an_error_of_a_call_has_the_words_of_the_api() -> None:
    @in_words_of("api")
    def call() -> None:
        raise UsageError("DEVICE=cuda was asked for.", "Run with DEVICE=cpu, or `make energy`.")

    with pytest.raises(UsageError, match=r'device="cuda" was asked for\.') as caught:
        call()
    assert caught.value.problem == 'device="cuda" was asked for.'
    assert caught.value.hint == 'Run with device="cpu", or `inferometer energy`.'


def test_help_names_the_options_of_its_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    for front, named in (("inferometer", "--device cuda, not --tune"), ("make", "DEVICE=cuda, not TUNE")):
        monkeypatch.setenv("INFEROMETER_FRONT", front)
        options = cli.parser("harness.plan", "Plan with DEVICE=cuda.")
        options.add_argument("--x", help="with DEVICE=cuda, not TUNE")
        assert f"with {named}" in options.format_help()
