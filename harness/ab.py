"""Compare the working folder with a commit, a folder or another Python, both measured in turn in one run.

All measurements are those of `run`. Each case of a round runs in both states, directly one after the other, in random
order; the pairs are compared as in `compare --paired`.

reads   configs/<name>.yaml; the models of both states
writes  results/ab/: what the stages write of the state here, states.json, comparison.{json,md}, pr-comment.md,
        junit.xml; results/ab/against/: the same of the other state

Exit codes are those of `compare`; 10 where rows failed and no other row regressed.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.comparison.paired import ENOUGH_ROUNDS
from harness.comparison.verdicts import EQUIVALENCE
from harness.core import cli, file_sums, hints, store
from harness.core.errors import (
    CasesFailedError,
    ExportError,
    InferometerError,
    MissingInputError,
    NotComparableError,
    UnavailableError,
    UsageError,
)
from harness.core.host import gpu
from harness.core.layout import Models, Results
from harness.core.lock import exclusive
from harness.core.schemas import Plan, States
from harness.core.text import portable
from harness.core.units import count
from harness.pipeline import TEXTS, VARIABLES
from harness.planning.block_settings import parse_interpreters
from harness.planning.config import find_configuration, read_config
from harness.planning.exports import read_exports
from harness.processes.code_states import CodeState, InterleavedState, code_states, measure_in_turn, require_own_modules
from harness.processes.stage_process import run_stage
from harness.reporting import thresholds

ROUNDS = 10
"""Pairs of each row. In simulated rows that scatter by 1%, a 5% slow-down is detected in over 99% of cases where the
row is alone, and in 72% where it is one of thirty (docs/speed.md)."""


_OWN = {"CONFIG", "ROUNDS", "MODELS_DIR", "RESULTS"}
"""Variables that `plan` has too and that this stage reads itself."""

OF_PLAN = tuple(
    variable.option.removeprefix("--")
    for variable in VARIABLES
    if {"plan", "ab"} <= set(variable.stages) and variable.name not in _OWN
)
"""Options that choose what is measured, passed on to `plan`."""


def stage(arguments: Sequence[str]) -> None:
    """Prepare both states, measure them in turn, compare, and end as `compare` does."""
    options, of_plan = _options(arguments)
    place, models = Results(options.results.resolve()), Models(options.models_dir.resolve())
    pythons = parse_interpreters(options.python)
    with code_states(options.against, Path.cwd(), pythons, [place.root, models.root]) as (against, here):
        cli.say(f"{against.state.name} against {here.state.name}, both by this Inferometer")
        prepare = partial(_prepared, options=options, of_plan=of_plan)
        here_state = prepare("here", here, place.ab, models, None)
        against_state = prepare("against", against, place.ab.against, models, here_state)
        _require_own_modules(here_state, against_state)
        _require_models(against_state)
        with exclusive(place.ab.lock):
            _begin(States(against=against.state, here=here.state), here_state, against_state, options.force)
            failures = measure_in_turn(against_state, here_state)
        _end(here_state, against_state, failures, options)


def _options(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = cli.parser("harness.ab", __doc__)
    parser.add_argument("--against", default="", help="commit, folder, or backend=python, to compare this folder with")
    parser.add_argument(
        "--config",
        type=Path,
        default=Path("configs/quickstart.yaml"),
        help="for both states (%(default)s)",
    )
    parser.add_argument(
        "--rounds", type=int, help=f"pairs of processes per case ({ROUNDS}, or the configuration's if more)"
    )
    parser.add_argument("--threshold", action="append", default=[], help=TEXTS["--threshold"])
    parser.add_argument("--max-regression", help=TEXTS["--max-regression"])
    parser.add_argument("--equivalence", default=f"{EQUIVALENCE:.0%}", help=TEXTS["--equivalence"])
    parser.add_argument("--force", action="store_true", help="export and measure again what is already there")
    cli.add_interpreters(parser)
    cli.add_folders(parser)
    for name in OF_PLAN:
        parser.add_argument(f"--{name}", help=TEXTS[f"--{name}"])
    options = parser.parse_args(arguments)
    options.arguments = [portable(word) for word in arguments]
    # `compare` reads them after all measurements: a mistake ends the stage before them.
    thresholds.parse_all(options.threshold)
    thresholds.parse_margins(options.equivalence, options.max_regression)
    given = [(name, getattr(options, name.replace("-", "_"))) for name in OF_PLAN]
    if not options.against:
        raise UsageError("There is no state to compare with.", "make ab AGAINST=HEAD~1, or AGAINST=<folder>.")
    if options.rounds is None:
        options.rounds = max(ROUNDS, read_config(find_configuration(options.config)).measurement.rounds)
    if options.rounds < ENOUGH_ROUNDS:
        raise UsageError(
            f"{count(options.rounds, 'round')} give no verdict.", f"At least {ENOUGH_ROUNDS}: ROUNDS={ROUNDS}."
        )
    return options, [word for name, text in given if text for word in (f"--{name}", text)]


def _prepared(
    label: str,
    state: CodeState,
    results: Results,
    models: Models,
    other: InterleavedState | None,
    *,
    options: argparse.Namespace,
    of_plan: Sequence[str],
) -> InterleavedState:
    """Plan and export a state, and build its engines. other: the side that is already prepared."""
    show = cli.say if other is None else None
    config = options.config if other is None else find_configuration(options.config).resolve()
    where, folders = ["--results", str(results.root)], ["--models-dir", str(models.root)]
    run = partial(run_stage, code=state.code)
    cli.say(f"{label}: {state.state.name}")
    try:
        run("plan", "--ab", "--config", str(config), "--rounds", str(options.rounds), *of_plan, *where, show=show)
    except MissingInputError:
        if other is None:
            raise
        # The other state does not have a model's files yet: `export` gives the reason, and the others are measured.
        store.save(results.plan, other.plan)
    plan = _plan(results, other, options)
    if tuned := next((case for case in plan.cases if case.tuned), None):
        raise UsageError(
            f"{tuned.case_id} is tuned: an A/B run measures settings that are named.", "Name them: SETTINGS=default."
        )
    gpu.require(plan.device)
    force = ["--force"] if options.force else []
    try:
        _warn(label, run("export", *where, *folders, *force, show=cli.say))
    except (ExportError, MissingInputError, UnavailableError, UsageError) as error:
        if other is None:
            # Never exit code 2 (nothing could be compared): a change that cannot be built must not pass.
            raise ExportError(error.problem, error.hint) from error
        # The other state does not have this model yet: its rows say so.
        _warn(label, [f"{error.problem} {error.hint}"])
    if plan.device == "cuda":
        pythons = [word for backend, path in state.interpreters.items() for word in ("--python", f"{backend}={path}")]
        _warn(label, run("build_engine", *where, *folders, *pythons, *force, show=cli.say))
    if other is None:
        _warn(label, run("roof", *where, show=cli.say))
    elif other.results.roof.is_file():
        shutil.copyfile(other.results.roof, results.roof)
    return InterleavedState(label, state, plan, models, results, read_exports(plan, results, models))


def _plan(results: Results, other: InterleavedState | None, options: argparse.Namespace) -> Plan:
    """The plan of a state, as it was just saved. other: the side that is already prepared."""
    plan = store.load(results.plan, Plan, "make ab")
    if other is None:
        # Hints of its report name this command: `make run` would measure one state alone.
        line = hints.command_line(hints.front(), options.arguments, "ab")
        file_sums.save(results, "plan", {results.command: line.encode()})
    elif plan.config != other.plan.config:
        # Both sides have the same configuration, under the name that the user gave it.
        plan = plan.model_copy(update={"config": other.plan.config})
        store.save(results.plan, plan)
    return plan


def _require_own_modules(here_state: InterleavedState, against_state: InterleavedState) -> None:
    sources = [model.name.split(":") for model in here_state.plan.models if model.name.startswith("module:")]
    names = [parts[1] for parts in sources]
    if names and here_state.state.code.root != against_state.state.code.root:
        require_own_modules(against_state.state.code, here_state.state.code, names)
        require_own_modules(here_state.state.code, against_state.state.code, names)


def _require_models(against_state: InterleavedState) -> None:
    if against_state.exports.absent and not against_state.exports.intact:
        reason = next(iter(against_state.exports.absent.values()))
        problem = f"{against_state.state.state.name} has no model to compare with: {reason.problem}"
        raise NotComparableError(problem, "Measure this folder alone: make bench; or name a later commit.")


def _begin(states: States, here_state: InterleavedState, against_state: InterleavedState, force: bool) -> None:
    """Remove records of other states: a record does not name the code that it comes from."""
    path = here_state.results.states
    if force or not path.is_file() or store.load(path, States, "make ab") != states:
        for side in (here_state, against_state):
            with store.translate_storage_errors(side.results.raw):
                shutil.rmtree(side.results.raw, ignore_errors=True)
    store.save(path, states)


def _end(
    here_state: InterleavedState, against_state: InterleavedState, failures: int, options: argparse.Namespace
) -> None:
    here = Results(options.results).ab
    for side in (here_state, against_state):
        run_stage("aggregate", "--results", str(side.results.root), "--models-dir", str(side.models.root))
    given = [word for text in options.threshold for word in ("--threshold", text)]
    given += ["--max-regression", options.max_regression] if options.max_regression else []
    given += ["--equivalence", options.equivalence]
    verdict: InferometerError | None = None
    try:
        run_stage(
            "compare",
            "--paired",
            "--results",
            str(here.root),
            "--baseline",
            str(here.against.root),
            *given,
            show=cli.say,
        )
    except InferometerError as error:
        verdict = error
    run_stage("report", "--results", str(here.root), show=cli.say)
    if verdict is not None:
        raise verdict
    if failures:
        raise CasesFailedError(
            f"{count(failures, 'measurement')} failed; the others are compared.",
            f"{here.comparison_report} has the reason of each row; {_next(against_state, failures)}.",
        )


def _next(against_state: InterleavedState, failures: int) -> str:
    """What to do about failed measurements. To try again helps no model that the other state does not have."""
    plan, absent = against_state.plan, list(against_state.exports.absent)
    lacking = plan.measurement.rounds * sum(case.model in absent for case in plan.cases if case.skip_reason is None)
    again = "the same command tries only those again"
    if not lacking:
        return again
    named = f"{', '.join(absent[:3])}{', …' if len(absent) > 3 else ''}"
    without = f"{against_state.state.state.name} has no {named}: leave it out (MODELS=…), or name a later commit"
    return f"{without}; of the others {again}" if failures > lacking else without


def _warn(label: str, warnings: Sequence[str]) -> None:
    for text in warnings:
        cli.warn(f"{label}: {text}")


if __name__ == "__main__":
    cli.main(stage)
