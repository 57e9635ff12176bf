"""`python -m harness`, and what an image starts: lists the stages, becomes one of them, or runs them all.

python -m harness                      what there is
python -m harness <stage> [option …]   one stage, as `python -m harness.<stage>`
python -m harness bench [option …]     the whole way from a configuration to a report
"""

from __future__ import annotations

import ast
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.core.cli import add_folders, main, parser, say
from harness.core.errors import UsageError
from harness.core.layout import Results
from harness.core.schemas import Plan, Summary
from harness.core.store import load
from harness.measure.clock import unix_s
from harness.render.outcome import outcome
from harness.running.going_on import goes_on_after

STAGES = (
    *("plan", "export", "build_engine", "roof", "run", "watch", "spread", "energy", "profile_ops"),
    *("aggregate", "report", "share", "compare", "ab", "reproduce", "bundle", "verify", "models", "selftest"),
)
BENCH = "Everything in one go: plan, export, engines on a GPU, roof, run, aggregate, report."
_SIGNALLED = 128
"""Exit code of what signal n ended: 128 + n, as shells have it."""


def start(arguments: Sequence[str]) -> None:
    """List what there is, become a stage, or run them all."""
    name, *rest = arguments or ("--help",)
    if name in ("-h", "--help"):
        say(overview())
    elif name == "bench":
        _bench(rest)
    elif name in STAGES:
        # Become the stage: its exit code and the signals that it gets are then its own.
        os.execv(sys.executable, _command(name, rest))  # noqa: S606 - a name of the table
    else:
        raise UsageError(f"There is no stage `{name}`.", f"Known: bench, {', '.join(STAGES)}.")


def overview() -> str:
    """A line for `bench` and for each stage."""
    lines = [f"  {name:<13} {text}" for name, text in (("bench", BENCH), *((name, summary(name)) for name in STAGES))]
    usage = "Usage: python -m harness <stage> [option …]    (--help after a stage lists its options)"
    return "\n".join([usage, "", *lines])


def summary(stage: str) -> str:
    """The first line of a stage's docstring, read without importing what the stage imports."""
    spec = importlib.util.find_spec(f"harness.{stage}")
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    text = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].removeprefix(f"{stage}: ")
    return text[:1].upper() + text[1:]


def _bench(arguments: Sequence[str]) -> None:
    """Plan, export, measure and report; leaves with the exit code of the stage that stopped it, or of `run`."""
    options = parser("harness bench", f"{BENCH}\n\nOptions that are not listed here are those of `plan`.")
    options.allow_abbrev = False  # or --models, an option of plan, would be taken for --models-dir
    options.add_argument(
        "--config", help="configuration (configs/quickstart.yaml, or configs/cuda.yaml with --device cuda)"
    )
    options.add_argument("--device", choices=("cpu", "cuda"), help="instead of the configuration's")
    options.add_argument("--json", action="store_true", help="end with one line of JSON about the outcome")
    add_folders(options)
    chosen, of_plan = options.parse_known_args(arguments)
    config = chosen.config or f"configs/{'cuda' if chosen.device == 'cuda' else 'quickstart'}.yaml"
    device = ("--device", chosen.device) if chosen.device else ()
    signal.signal(signal.SIGTERM, lambda number, _: options.exit(_SIGNALLED + number))
    code = _stages(chosen.results, chosen.models_dir, ("--config", config, *device, *of_plan))
    if chosen.json:
        say(_outcome(code, Results(chosen.results)))
    options.exit(code)


def _stages(results: Path, models: Path, of_plan: Sequence[str]) -> int:
    """Run the stages in order until one fails; the exit code, CasesFailedError's where the run is complete."""
    place = ("--results", str(results))
    both = (*place, "--models-dir", str(models))
    began = unix_s()
    if code := _stage("plan", *of_plan, *both):
        return code
    if not goes_on_after("export", code := _stage("export", *both)):
        return code
    on_gpu = load(Results(results).plan, Plan, "make plan").device == "cuda"
    if on_gpu and not goes_on_after("build_engine", code := _stage("build_engine", *both)):
        return code
    if not goes_on_after("roof", code := _stage("roof", *place)):
        return code
    measured = _stage("run", *both, "--began", str(began))
    if not goes_on_after("run", measured):
        return measured
    return _stage("aggregate", *both) or _stage("report", *place, "--print") or measured


def _stage(name: str, *arguments: str) -> int:
    """Run a stage in a process of its own, and return its exit code."""
    with subprocess.Popen(_command(name, arguments)) as process:  # noqa: S603 - a name of the table
        try:
            code = _wait(process)
        finally:
            process.terminate()  # nothing where the stage is over; else this process was told to end
    return code if code >= 0 else _SIGNALLED - code


def _wait(process: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # Ctrl-C reaches the stage as well, which says what is kept


def _command(name: str, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", f"harness.{name}", *arguments]


def _outcome(code: int, results: Results) -> str:
    plan = load(results.plan, Plan, "make plan") if results.plan.is_file() else None
    found = load(results.summary, Summary, "make aggregate") if results.summary.is_file() else None
    # A summary of an earlier plan says nothing about this run.
    current = found if plan and found and found.plan_id == plan.plan_id else None
    return outcome(code, plan.plan_id if plan else None, current)


if __name__ == "__main__":
    main(start)
