"""The command `inferometer`, the same as `python -m harness` and the entry point of images: a stage or a pipeline.

inferometer                                      list the commands
inferometer bench model.onnx --batches 1,8       measure: from a configuration to a report
inferometer profile model.onnx                   profile: counts, memory, layers
inferometer <stage> [option …]                   one stage, as `python -m harness.<stage>`
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import pipeline
from harness.core import hints
from harness.core.cli import AFTER_EXPORT, main, parser, say
from harness.core.errors import UsageError
from harness.core.host.environment import version
from harness.core.layout import Results
from harness.core.schemas import Plan, Summary
from harness.core.store import load
from harness.core.text import unknown_name
from harness.reporting.first_page import outcome
from harness.timing.clock import unix_s

PIPELINES: Mapping[str, str] = {
    "bench": "Measure, from a configuration to a report: plan, export, engines on a GPU, roof, run, aggregate, report.",
    "generate": "Measure generation, token by token: plan, export, roof, generate, aggregate, report.",
    "load": "Measure latency against load and the peak within a bound; plans first where a bound, models, … are given.",
    "profile": "Profile the plan's cases, and report: counts, memory, layers; plans first where models, … are given.",
}
SAME_NAME = ("generate", "load")
"""Pipelines with the name of a stage: `harness.load` is the stage, which docker/stage runs in an image."""

_SIGNALLED = 128
"""Exit code of a process that signal n ended: 128 + n, as in shells."""


def command() -> None:
    """Entry point of `inferometer`: its hints are commands of `inferometer` too."""
    os.environ[hints.FRONT] = "inferometer"
    main(start)


def start(arguments: Sequence[str]) -> None:
    """List the commands, become a stage, or run a pipeline."""
    name, *rest = arguments or ("--help",)
    name = pipeline.ALIASES.get(name, name)
    if name in ("-h", "--help", "help"):
        say(overview())
    elif name == "--version":
        say(f"inferometer {version('inferometer') or '(not installed)'}")
    elif name in PIPELINES:
        _pipeline(name, rest)
    elif name in pipeline.STAGES:
        # Become the stage: its exit code and the signals that it gets are then its own.
        os.execv(sys.executable, _command(name, rest))  # noqa: S606 - a name of the table
    elif (stage := name.removeprefix("harness.")) != name and stage in (*pipeline.STAGES, *SAME_NAME):
        os.execv(sys.executable, _command(stage, rest))  # noqa: S606 - a name of the table
    else:
        raise UsageError(*unknown_name("command", name, (*PIPELINES, *pipeline.STAGES)))


def overview() -> str:
    """A line for each pipeline and for each stage."""
    program = hints.PROGRAMS.get(hints.front(), hints.PROGRAMS["module"])
    named = (*PIPELINES.items(), *((name, summary(name)) for name in pipeline.STAGES))
    lines = [f"  {name:<13} {text}" for name, text in named]
    usage = f"Usage: {program} <command> [option …]    (`<command> --help` lists its options; --version)"
    return "\n".join([usage, "", *lines])


def summary(stage: str) -> str:
    """The first line of a stage's docstring, read without importing what the stage imports."""
    spec = importlib.util.find_spec(f"harness.{stage}")
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def _pipeline(name: str, arguments: Sequence[str]) -> None:
    """Run a pipeline; exit with the code of the stage that stopped it, or of the stage that decides."""
    options = parser(f"harness.{name}" if hints.front() in hints.PROGRAMS else f"harness {name}", PIPELINES[name])
    options.allow_abbrev = False
    options.add_argument("model", nargs="*", help="models, as in --models: names, ONNX files, folders")
    for variable in pipeline.options_of(pipeline.stages_of(name)):
        if variable.switch:
            options.add_argument(
                variable.option, action="store_const", const="1", dest=variable.name, help=variable.text
            )
        else:
            options.add_argument(variable.option, dest=variable.name, metavar=variable.name, help=variable.text)
    options.add_argument("--json", action="store_true", help="end with one line of JSON about the outcome")
    given = options.parse_intermixed_args(arguments)
    choices = _choices(name, given)
    results = Results(Path(choices["RESULTS"][0]))
    signal.signal(signal.SIGTERM, lambda number, _: options.exit(_SIGNALLED + number))
    os.environ[AFTER_EXPORT] = "1"
    plans = name in ("bench", "generate") or not results.plan.is_file() or not pipeline.PLANNING.isdisjoint(choices)
    code = pipeline.run(
        pipeline.steps(pipeline.PIPELINES[name], choices, plans, int(unix_s())),
        _stage,
        lambda: _plan_is_for_gpu(results),
    )
    if given.json:
        say(_outcome(code, results))
    options.exit(code)


def _choices(command: str, given: argparse.Namespace) -> dict[str, list[str]]:
    """Choices of the user, by Make's name; the folders and the configuration are always among them."""
    named = {name: value for name, value in vars(given).items() if name in pipeline.BY_NAME and value is not None}
    choices = {name: [value] for name, value in named.items()}
    if given.model:
        choices["MODELS"] = [",".join([*given.model, *filter(None, [named.get("MODELS")])])]
    device = named.get("DEVICE")
    of_generation = command == "generate" or (command in ("load", "profile") and {"PROMPTS", "TOKENS"} & choices.keys())
    if "CONFIG" not in choices and of_generation and not (command == "load" and "ENDPOINT" in choices):
        choices["CONFIG"] = ["configs/generation.yaml"]
    elif "CONFIG" not in choices and device == "cuda":
        choices["CONFIG"] = ["configs/cuda.yaml"]
    return {"RESULTS": ["results"], "MODELS_DIR": ["models"], **choices}


def _plan_is_for_gpu(results: Results) -> bool:
    return load(results.plan, Plan, "make plan").device == "cuda"


def _stage(name: str, arguments: Sequence[str]) -> int:
    """Run a stage in a process of its own, and return its exit code."""
    with subprocess.Popen(_command(name, arguments)) as process:  # noqa: S603 - a name of the table
        try:
            code = _wait(process)
        finally:
            process.terminate()  # does nothing where the stage has ended; else this process got a signal to end
    return code if code >= 0 else _SIGNALLED - code


def _wait(process: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # Ctrl-C reaches the stage as well, and it prints what is kept


def _command(name: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", f"harness.{name}", *arguments]


def _outcome(code: int, results: Results) -> str:
    plan = load(results.plan, Plan, "make plan") if results.plan.is_file() else None
    summary = load(results.summary, Summary, "make aggregate") if results.summary.is_file() else None
    # A summary of an earlier plan is not about this run.
    current = summary if plan and summary and summary.plan_id == plan.plan_id else None
    return outcome(code, plan.plan_id if plan else None, current)


if __name__ == "__main__":
    os.environ.setdefault(hints.FRONT, "module")
    main(start)
