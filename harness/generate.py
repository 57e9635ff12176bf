"""Measure generation token by token, each case of the plan in a fresh process per round.

reads   results/plan.json, exports/<slug>/generation.json and the files that it names
writes  results/generation/<case_id>/<round>.json, results/environments/<id>.json; while it runs, results/running.json
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from harness.core import cli, store
from harness.core.errors import CasesFailedError, InferometerError, UsageError
from harness.core.host import gpu, limits
from harness.core.layout import Models, Results
from harness.core.lock import exclusive
from harness.core.raw_files import remove_records
from harness.core.schemas import Failed, GenerationCase, Plan
from harness.core.units import count
from harness.planning.block_settings import parse_interpreters
from harness.planning.exports import GenerationExports, read_generation_exports, unmeasured_lines
from harness.planning.generation_cases import generation_needs
from harness.planning.resume import finished_generation_turns, refuse_folder_of_ab
from harness.planning.run_time import expected_sample_times, time_of_generation_in_words
from harness.planning.schedule import GenerationTurn, generation_turns, select_models
from harness.processes.pool import WorkerPool, save_unexported


def stage(arguments: Sequence[str]) -> None:
    """Measure the processes of the plan's generation that the results folder lacks."""
    parser = cli.parser("harness.generate", __doc__)
    parser.add_argument("--force", action="store_true", help="measure again what is already there")
    cli.add_models(parser)
    cli.add_interpreters(parser)
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    others = parse_interpreters(options.python)
    results, models = Results(options.results), Models(options.models_dir)
    refuse_folder_of_ab(results, "generate")
    plan = select_models(store.load(results.plan, Plan, "make plan"), options.models)
    if not plan.generations:
        raise UsageError(
            f"{results.plan} has no case of generation.",
            "Plan from a configuration with a `generation` block: `make generate` takes configs/generation.yaml.",
        )
    gpu.require(plan.device)
    exports = read_generation_exports(plan, [*generation_needs(plan)], results, models)
    records = results.of_generation
    with exclusive(results.lock):
        for folder in records.raw.glob("*"):
            store.sweep_temporary(folder)  # no other run writes here
        turns = generation_turns(plan.generations, plan.measurement.rounds, plan.measurement.seed)
        if options.force:
            remove_records(turns, records)
            _forget_compiled(turns, exports, models)
        done = finished_generation_turns(plan, turns, exports.intact, records, frozenset(others))
        for note in done.notes:
            cli.warn(note)
        open_turns = [turn for turn in turns if not done.has(turn)]
        todo = _split_off_unexported(plan, open_turns, exports, records)
        kept = f"; {len(turns) - len(open_turns)} measured before are kept" if len(open_turns) < len(turns) else ""
        threads = plan.measurement.threads or limits.thread_count()
        cli.say(f"Plan {plan.plan_id}: {count(len(todo), 'process', 'processes')} of generation to run{kept}.")
        if todo:
            known = expected_sample_times(plan, exports.intact.values())
            cli.say(f"Expected: {time_of_generation_in_words(todo, plan, known)}.")
        failures = len(open_turns) - len(todo)
        with WorkerPool(plan, models, results, threads, len(todo), True, others) as pool:
            failures += sum(isinstance(pool.generate(turn), Failed) for turn in todo)
    if failures:
        raise CasesFailedError(
            f"{count(failures, 'measurement')} failed; the others are done.",
            "The report lists each with its reason; `make generate` tries only the failed ones again.",
        )


def _split_off_unexported(
    plan: Plan, turns: Sequence[GenerationTurn], exports: GenerationExports, records: Results
) -> list[GenerationTurn]:
    """The turns that can be measured; every other one gets a failed record, and its model a warning."""
    measurable: list[GenerationTurn] = []
    refused: list[tuple[GenerationCase, InferometerError]] = []
    for turn in turns:
        case = turn[1]
        reason = exports.reason_against(case) or _too_few_prompts(exports, case)
        if reason is None:
            measurable.append(turn)
            continue
        refused.append((case, reason))
        save_unexported(plan, turn, reason, records, store.load_generated)
    for line in unmeasured_lines(refused):
        cli.warn(line)
    return measurable


def _too_few_prompts(exports: GenerationExports, case: GenerationCase) -> UsageError | None:
    """Why the prompts of a case cannot differ in every request; None where they can, or where it reads no prompts."""
    export = exports.intact.get(case.model)
    prompts = None if export is None else export.prompt_set(case.prompt_length, case.new_tokens)
    if prompts is None or prompts.samples > case.batch_size:
        return None
    return UsageError(
        f"A batch of {case.batch_size} has all {count(prompts.samples, 'different prompt')} of {case.prompt_length} "
        "tokens, so that no request would have new ones.",
        f"Write more than {case.batch_size} prompts, or make BATCHES smaller.",
    )


def _forget_compiled(turns: Sequence[GenerationTurn], exports: GenerationExports, models: Models) -> None:
    """Remove compiled code as well, so that a forced run shows the full cost of compiling."""
    for name in {case.model for _, case in turns} & exports.intact.keys():
        export = exports.intact[name]
        shutil.rmtree(models.folder(export.slug, export.folder).decoder_cache, ignore_errors=True)


if __name__ == "__main__":
    cli.main(stage)
