"""Measure every case of the plan, each in a fresh process per round, and keep the raw samples.

reads   results/plan.json, exports/<slug>/export.json and the files that it names, models/<slug>/engines/*.json
writes  results/raw/<case_id>/<round>.json, results/environments/<id>.json; while it runs, results/running.json; at its
        start and end the raw records of a large plan move into results/raw/<slug>.parquet
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence

from harness.aggregation.across_rows import FIRST_ROUND, slower_settings
from harness.core import cli, store
from harness.core.errors import CasesFailedError, UsageError
from harness.core.host import gpu, limits
from harness.core.layout import Models, Results
from harness.core.lock import exclusive
from harness.core.raw_files import pack_records, remove_records
from harness.core.schemas import Measured, Plan
from harness.core.units import count, either
from harness.planning.block_settings import parse_interpreters, threads_of
from harness.planning.exports import Exports, built_engines, keep_exports, read_exports
from harness.planning.resume import Finished, finished_turns, refuse_folder_of_ab
from harness.planning.run_time import sample_times, time_of_turns_in_words
from harness.planning.schedule import Turn, further_turns, is_over_budget, schedule, select_models
from harness.processes.pool import WorkerPool, split_off_unexported
from harness.timing.clock import now_ns, unix_s


def stage(arguments: Sequence[str]) -> None:
    """Measure the processes of the plan that the results folder lacks."""
    options = _options(arguments)
    elapsed_s = 0.0 if options.began is None else max(0.0, unix_s() - options.began)
    others = parse_interpreters(options.python)
    results, models = Results(options.results), Models(options.models_dir)
    refuse_folder_of_ab(results, "run")
    full_plan = store.load(results.plan, Plan, "make plan")
    if full_plan.generations and not full_plan.cases:
        raise UsageError(
            f"{results.plan} has only cases of generation, which `run` does not measure.",
            "`make generate` measures them.",
        )
    plan = select_models(full_plan, options.models)
    gpu.require(plan.device)
    exports = read_exports(plan, results, models)
    with exclusive(results.lock):
        keep_exports(exports, results)
        for folder in results.raw.glob("*"):
            store.sweep_temporary(folder)  # no other run writes here
        pack_records(full_plan, results)
        settings = plan.measurement
        turns = schedule(plan.cases, max(settings.rounds, settings.max_rounds or 0), settings.seed)
        if options.force:
            remove_records(turns, results)
            pack_records(full_plan, results, without={(case.case_id, number) for number, case in turns})
            _forget_compiled(turns, exports, models)
        damaged: list[str] = []
        engines = {
            name: built_engines(models.folder(export.slug, export.folder), damaged)
            for name, export in exports.intact.items()
        }
        done = finished_turns(plan, turns, exports.intact, results, frozenset(others), engines)
        for note in (*damaged, *done.notes):
            cli.warn(note)
        planned = [turn for turn in turns if turn[0] <= settings.rounds]
        open_turns = [turn for turn in planned if not done.has(turn)]
        todo = split_off_unexported(plan, open_turns, exports, results)
        unexported = len(open_turns) - len(todo)
        todo = [turn for turn in todo if not _is_slower_setting(turn, plan, done)]
        todo = todo or further_turns(plan.cases, done.medians, settings, elapsed_s)
        threads = settings.threads or limits.thread_count()
        cli.say(_announcement(plan, len(planned) - unexported, todo, threads))
        if todo:
            cases = [case for case in plan.cases if case.skip_reason is None and case.model not in exports.absent]
            known = sample_times(exports.intact.values())
            cli.say(f"Expected: {time_of_turns_in_words(todo, cases, settings, known, elapsed_s)}.")
        fork = options.isolation == "fork"
        with WorkerPool(plan, models, results, threads, len(todo), fork, others) as pool:
            failures = unexported + measure_all(plan, todo, done, pool, elapsed_s)
        pack_records(full_plan, results)
    if failures:
        raise CasesFailedError(
            f"{count(failures, 'measurement')} failed; the others are done.",
            "The report lists each with its reason; `make run` tries only the failed ones again.",
        )


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = cli.parser("harness.run", __doc__)
    parser.add_argument("--force", action="store_true", help="measure again what is already there")
    parser.add_argument(
        "--isolation", choices=("fork", "spawn"), default="fork", help="how a case gets its fresh process (fork)"
    )
    parser.add_argument(
        "--began",
        type=float,
        help="start of the whole command, in seconds since 1970: the budget counts from it",
    )
    cli.add_models(parser)
    cli.add_interpreters(parser)
    cli.add_folders(parser)
    return parser.parse_args(arguments)


def measure_all(plan: Plan, todo: Sequence[Turn], done: Finished, pool: WorkerPool, before_s: float) -> int:
    """Run every turn, then further rounds while they are requested; returns the number of failed processes, without
    those whose backend does not run the model.

    before_s: seconds that the command spent before this run, for example on exports.
    """
    started, settings = now_ns() - round(before_s * 1e9), plan.measurement
    failed: list[str] = []
    refused = 0
    while todo:
        for turn in todo:
            if _is_slower_setting(turn, plan, done):
                pool.progress.extend(-1)
                continue
            if turn[0] > settings.rounds and is_over_budget(settings, (now_ns() - started) / 1e9):
                break
            record = pool.measure(turn)
            if isinstance(record, Measured):
                done.add(record, turn[1])
            else:
                failed.append(record.case_id)
                refused += record.refused
        elapsed_s = (now_ns() - started) / 1e9
        todo = further_turns(plan.cases, done.medians, settings, elapsed_s, failed)
        pool.progress.extend(len(todo))
    return len(failed) - refused


def _is_slower_setting(turn: Turn, plan: Plan, done: Finished) -> bool:
    """True for a further round of a setting that was slower than another one in round 1: it is reported as tried."""
    number, case = turn
    return (
        number > FIRST_ROUND and case.tuned and case.case_id in slower_settings(plan.cases, done.medians, done.unsound)
    )


def _forget_compiled(turns: Sequence[Turn], exports: Exports, models: Models) -> None:
    """Remove compiled code as well, so that a forced run shows the full cost of compiling."""
    for case_id, model in {(case.case_id, case.model) for _, case in turns}:
        if model in exports.intact:
            export = exports.intact[model]
            shutil.rmtree(models.folder(export.slug, export.folder).compile_cache / case_id, ignore_errors=True)


def _announcement(plan: Plan, planned: int, todo: Sequence[Turn], threads: int) -> str:
    kept = planned - len(todo)
    before = f"; {kept} measured before are kept (`make run FORCE=1` measures again)" if kept > 0 else ""
    each = either([threads_of(case, threads) for _, case in todo] or [threads], "thread")
    return f"Plan {plan.plan_id}: {count(len(todo), 'process', 'processes')} to run with {each} each{before}."


if __name__ == "__main__":
    cli.main(stage)
