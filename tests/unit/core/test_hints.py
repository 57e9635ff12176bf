"""Hints that can be typed: the choices of the run in each command, in the words of whoever asked."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from harness.core import hints
from harness.core.hints import (
    Front,
    HintContext,
    choices_in,
    command_line,
    of_command,
    of_stage,
    typed,
    typed_html,
)

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
        ("`make run FORCE=1` measures again.", "`force=True` measures again."),
        ("Measure more rounds: `make bench ROUNDS=10`.", "Measure more rounds: `rounds=10`."),
        ("`make profile FORCE=1 PROFILE_RUNS=200`.", "`force=True, num_runs=200`."),
        ("Run `make export` again.", "Run `profile()` again."),
        ("`make selftest` tests it", "`make selftest` tests it"),
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
def test_the_plans_own_command_says_what_to_plan_again(command: str | None, planned: dict[str, str]) -> None:
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


def test_the_hint_of_a_stage_is_a_command_that_make_takes(tmp_path: Path) -> None:
    """Typed as printed, quoting included: Make finds its target and every variable."""
    context = HintContext(planned={"RESULTS": f"{tmp_path}/r s", "MODELS": "a b.onnx", "CONFIG": "c's.yaml"})
    for text in ("make bench ROUNDS=3", "make profile FORCE=1", "make aggregate report", "make compare BASELINE=x"):
        words = shlex.split(typed(text, context))
        done = subprocess.run(
            [*words, "--dry-run", "WHERE=system", "PYTHON=true"], cwd=ROOT, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
