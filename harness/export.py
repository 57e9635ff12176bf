"""Export the plan's models: weights, ONNX files, real inputs and fp32 reference outputs, checked against each other.

reads   results/plan.json, and the models' weights (packages, hub, your files)
writes  models/<slug>/<export>/{weights.safetensors, *.onnx, inputs*.npz, reference*.npz, export.json}, and its record
        once more as results/exports/<slug>/export.json; or export-failed.{json,log} there; for generation the same
        with generation.json, config.json, tokenizer/, prompts-p*.npz, generation-reference-p*.npz, decoder-*.onnx;
        while it runs, results/exporting.json; with --engine-jobs also what build_engine writes
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from harness.core import cli, store
from harness.core.content_addressed import content_name, publish, share_equal_files, staging_folder
from harness.core.errors import (
    CasesFailedError,
    ExportError,
    FormatError,
    InferometerError,
    MissingInputError,
    StorageError,
    UsageError,
    reason,
)
from harness.core.host import orphans
from harness.core.layout import ExportFiles, ModelFolder, Models, Results
from harness.core.lock import exclusive, wait_for_lock
from harness.core.safe_files import SizeLimit, read
from harness.core.schemas import ExportFailure, ExportRecord, GenerationExport, Plan, PlannedModel, Precision
from harness.core.text import portable, unknown_name
from harness.core.units import count
from harness.planning.engine_cases import engine_cases
from harness.planning.exports import onnx_refusal
from harness.planning.generation_cases import GenerationNeeds, generation_needs
from harness.processes import parallel_commands
from harness.processes.early_engines import EarlyEngines
from harness.processes.presence import ExportPresence
from harness.statistics.parity import compare
from harness.timing.clock import now_ns
from harness.zoo import model_info
from harness.zoo.identity import (
    DEFAULT_OPSET,
    ExportChoices,
    covers,
    intact_record,
    is_built,
    request_digest,
)

COMMAND = (sys.executable, "-m", "harness.export")
"""Exports one model beside others."""

LAST_WORDS_S = 30.0
"""Time for the exit handlers of a process that has sent its answer."""


def export(arguments: Sequence[str]) -> None:
    """Export every model of the plan; a failure is reported, and the other models are still exported."""
    options = _parser().parse_args(arguments)
    plan = store.load(Results(options.results).plan, Plan, "make plan")
    if options.max_length is not None and options.max_length < 1:
        raise UsageError(f"--max-length {options.max_length} leaves no token.", "At least 1: --max-length 128.")
    parallel_commands.check_jobs(options.export_jobs, "models cannot be exported", "EXPORT_JOBS=3")
    parallel_commands.check_jobs(options.engine_jobs, "engines cannot be built", "ENGINE_JOBS=4")
    choices = ExportChoices(
        plan.export.exporter, options.opset, options.output_name, options.max_length, options.cache_dir
    )
    selected = _selected(plan, options.models)
    results, models = Results(options.results), Models(options.models_dir)
    generating = _generating(plan, options.models)
    tasks: dict[str, list[Callable[[], bool]]] = {}
    for planned in selected:
        tasks.setdefault(planned.name, []).append(
            partial(_matrix_export, plan, planned, results, models, choices, options)
        )
    for name, needs in generating.items():
        tasks.setdefault(name, []).append(partial(_decoder_export, plan, needs, results, models, options))
    engines = _early_engines_of(plan, list(tasks), options)
    if len(tasks) > 1 and (options.export_jobs > 1 or engines):
        _export_in_processes(list(tasks), engines, plan.plan_id, results, options)
    else:
        _export_in_turn([(name, task) for name, own in tasks.items() for task in own], plan.plan_id, results, options)


def _export_in_turn(
    tasks: Sequence[tuple[str, Callable[[], bool]]], plan_id: str, results: Results, options: argparse.Namespace
) -> None:
    failed = partly = 0
    with closing(ExportPresence(results, plan_id, len(tasks), written=not options.beside)) as presence:
        for done, (name, task) in enumerate(tasks):
            presence.models(name, done)
            try:
                partly += task()
            except StorageError:
                raise
            except InferometerError as error:
                if len(tasks) == 1:
                    raise
                _say_failed(name, error)
                failed += 1
    _end(failed, partly, len(tasks))


def _early_engines_of(plan: Plan, names: Sequence[str], options: argparse.Namespace) -> list[str]:
    """The models whose engines are built while others are exported. None with --force, after which the stage of the
    engines builds each again."""
    if plan.device != "cuda" or options.engine_jobs == 1 or options.force:
        return []
    needing = {case.model for cases in engine_cases(plan, names).values() for case, _ in cases}
    return [name for name in names if name in needing]


def _export_in_processes(
    names: Sequence[str], engines: Sequence[str], plan_id: str, results: Results, options: argparse.Namespace
) -> None:
    """Export each model in a process of its own, several at the same time with a share of the CPUs each, and build the
    engines of exported models meanwhile."""
    order = f"{options.export_jobs} at the same time" if options.export_jobs > 1 else "one after the other"
    cli.say(f"{len(names)} models to export, {order}{'; engines of exported models meanwhile' if engines else ''}")
    commands = [[*COMMAND, *_options_of(options), "--models", name] for name in names]
    with (
        tempfile.TemporaryDirectory(prefix="inferometer-") as lists,
        closing(ExportPresence(results, plan_id, len(names))) as presence,
    ):
        early = EarlyEngines(engines, _engine_options_of(options), Path(lists))

        def progress(running: Sequence[int], ended: int) -> None:
            if running:
                presence.models(", ".join(names[number] for number in running), ended)
            else:  # engines alone are left
                presence.close()

        all_ended = parallel_commands.run(
            commands,
            options.export_jobs,
            cli.relay,
            progress,
            own_cpus=True,
            after=lambda number, end: early.exported(names[number], end),
            beside=early.next,
            most_beside=options.engine_jobs,
        )
    failed = partly = 0
    for name, ended in zip(names, all_ended, strict=True):
        if ended.code == CasesFailedError.exit_code:
            partly += 1
        elif ended.code:
            problem, hint = cli.last_error(ended.printed) or (
                f"The export of {name} ended with {ended.ending()}.",
                f"Export it alone to see more: python -m harness.export --models {name}.",
            )
            if ended.code == StorageError.exit_code:
                raise StorageError(problem, hint)
            _say_failed(name, ExportError(problem, hint))
            failed += 1
    _end(failed, partly, len(names))


def _options_of(options: argparse.Namespace) -> list[str]:
    """The options of a process that exports one model beside others."""
    values = {
        "--results": options.results,
        "--models-dir": options.models_dir,
        "--opset": options.opset,
        "--output-name": options.output_name,
        "--max-length": options.max_length,
        "--cache-dir": options.cache_dir,
    }
    words = [f"{option}={value}" for option, value in values.items() if value is not None]
    return [*words, "--beside", *(["--force"] if options.force else [])]


def _engine_options_of(options: argparse.Namespace) -> list[str]:
    """The options of every build of engines."""
    folders = ["--results", str(options.results), "--models-dir", str(options.models_dir)]
    return [*folders, *(f"--python={interpreter}" for interpreter in options.python)]


def _say_failed(name: str, error: InferometerError) -> None:
    cli.say(f"{name}: not exported")
    cli.show(error)


def _matrix_export(
    plan: Plan,
    planned: PlannedModel,
    results: Results,
    models: Models,
    choices: ExportChoices,
    options: argparse.Namespace,
) -> bool:
    """Export a model for `run`; True where a case lacks a file. Its error is stored and raised."""
    own = results.export(planned.slug)
    with _failure_recorded(own.failure):
        record = _ensure_export(_MatrixExport(plan, planned, own, models, choices, options.force))
    keep_export(record, own, results)
    return _say_refused(plan, planned, record)


def _decoder_export(
    plan: Plan, needs: GenerationNeeds, results: Results, models: Models, options: argparse.Namespace
) -> bool:
    """The export for `generate`."""
    own = results.export(needs.slug)
    with _failure_recorded(own.generation_failure):
        record = _ensure_generation_export(plan, needs, own, models, options)
    _keep_generation(record, own, results)
    return _say_refused_decoders(record, needs)


@contextmanager
def _failure_recorded(path: Path) -> Iterator[None]:
    """Around an export: its error is stored, for the stage whose rows will lack the model."""
    try:
        yield
    except StorageError:
        raise
    except InferometerError as error:
        store.save(path, ExportFailure(error=portable(error.problem), hint=portable(error.hint)))
        raise


@contextmanager
def _recording(results: Results) -> Iterator[None]:
    """Hold the results folder. Raises BusyError where a run holds it; waits for an export beside this one."""
    with wait_for_lock(results.export_lock), exclusive(results.lock):
        yield


def _ensure_generation_export(
    plan: Plan, needs: GenerationNeeds, own: ExportFiles, models: Models, options: argparse.Namespace
) -> GenerationExport:
    """The record of the model's files for generation; they are made where there are none."""
    from harness.zoo.generation.decoder_export import (  # noqa: PLC0415 - torch, as the child needs
        GenerationRequest,
        export_generation,
        intact_generation,
    )

    prompts = plan.generation.prompts
    request = GenerationRequest(
        info=model_info(needs.model),
        slug=needs.slug,
        weights=needs.weights,
        lengths=needs.lengths,
        batch_size=needs.batch_size,
        seed=plan.measurement.seed,
        onnx=needs.onnx,
        forms=needs.forms,
        rounded=needs.rounded,
        device=plan.device,
        prompts=None if prompts is None else Path(prompts).expanduser(),
        prompts_sha256=plan.generation.prompts_sha256,
        cache=options.cache_dir,
    )
    there = [] if options.force else models.generation_exports(needs.slug)
    record = next((generation for folder in there if (generation := intact_generation(folder, request))), None)
    if record is not None:
        cli.say(f"{needs.model}: up to date for generation")
        return record

    def make() -> Exported:
        watch = Stopwatch()
        home = models.folder(needs.slug).root
        with staging_folder(home) as staged:
            cli.say(f"{needs.model}: exporting for generation ({needs.weights} weights)")
            made = export_generation(request, ModelFolder(staged, home), watch.step, watch.seconds, now_ns)
            name = content_name(staged, made.request_sha256)
            made = made.model_copy(update={"folder": name})
            share_equal_files(staged, [other.root for other in models.generation_exports(needs.slug)])
            store.save(ModelFolder(staged).generation, made)
            target = models.folder(needs.slug, name)
            try:
                publish(staged, target.root)
            except FileExistsError:
                if intact_generation(target, request) is None:
                    with staging_folder(home) as damaged:  # removed when the block ends
                        target.root.rename(damaged / "damaged")
                        publish(staged, target.root)
        sets = count(len(made.sets), "set")
        cli.say(f"{needs.model}: {made.parameters:,} parameters, {sets} of prompts; {_seconds(made)}")
        return name, True

    name, _ = _run_forked(make, needs.model, own, plan.measurement.export_timeout_s)
    return store.load(models.folder(needs.slug, name).generation, GenerationExport, "make export")


def _seconds(made: GenerationExport) -> str:
    return f"{sum(made.seconds.values()):.1f} s"


def _keep_generation(record: GenerationExport, own: ExportFiles, results: Results) -> None:
    """Record in the results which files their generation is measured on."""
    for path in (own.generation_failure, own.failure_log):
        if path.exists():
            with store.translate_storage_errors(path):
                path.unlink()
    if own.generation.is_file() and read(own.generation, SizeLimit.RECORD) == store.encoded(record):
        return
    with _recording(results):
        store.save(own.generation, record)


def _say_refused_decoders(record: GenerationExport, needs: GenerationNeeds) -> bool:
    """Warn of each missing decoder file; True where a case of the plan needs one of them."""
    keys = [*needs.onnx, *(f"{precision}-{form}" for precision in needs.onnx for form in needs.forms)]
    lacking = {key: record.refused[key] for key in keys if key in record.refused}
    for key, why in lacking.items():
        cli.warn(f"{record.model}: no {key} decoder file. {why.error} {why.hint}")
    return bool(lacking)


def _generating(plan: Plan, names: Sequence[str] | None) -> dict[str, GenerationNeeds]:
    """The needs of the models of the plan's cases of generation; only the requested models where names are given."""
    return {name: needs for name, needs in generation_needs(plan).items() if not names or name in names}


@dataclass(frozen=True)
class _MatrixExport:
    """One model of the plan and its existing exports. own: the record that the results already have."""

    plan: Plan
    planned: PlannedModel
    own: ExportFiles
    models: Models
    options: ExportChoices
    force: bool

    def up_to_date(self, digest: str) -> ExportRecord | None:
        """An export of the same request, preferably the results' own. Its name follows from its content, so it is
        unchanged since."""
        if self.force:
            return None
        slug = self.planned.slug
        try:
            own = store.load(self.own.record, ExportRecord, "make export").folder
        except (FormatError, MissingInputError):
            own = None
        there = [*([self.models.folder(slug, own)] if own else []), *self.models.exports(slug)]
        records = (intact_record(folder, digest) for folder in there)
        return next((record for record in records if record and covers(record, self.planned)), None)


def _ensure_export(request: _MatrixExport) -> ExportRecord:
    """The record of the model's export; the model is exported where there is none."""
    plan, planned, slug = request.plan, request.planned, request.planned.slug
    info, measurement = model_info(planned.name), plan.measurement
    record: ExportRecord | None = None
    if not is_built(info):
        digest = request_digest(info, planned, measurement.seed, measurement.parity_samples, request.options)
        record = request.up_to_date(digest)
    if record is None:
        task, limit_s = partial(_export_model, request), measurement.export_timeout_s
        name, made = _run_forked(task, planned.name, request.own, limit_s)
        record = store.load(request.models.folder(slug, name).record, ExportRecord, "make export")
        if made:
            store.save(request.models.folder(slug).record, record)
            return record
    cli.say(f"{planned.name}: up to date")
    return record


def keep_export(record: ExportRecord, own: ExportFiles, results: Results) -> None:
    """Record in the results which export they are measured on; not while they are measured on a different export."""
    for path in (own.failure, own.failure_log):
        # Without such a file, a read-only folder is no error.
        if path.exists():
            with store.translate_storage_errors(path):
                path.unlink()
    if own.record.is_file() and read(own.record, SizeLimit.RECORD) == store.encoded(record):
        return
    with _recording(results):
        store.save(own.record, record)


Exported = tuple[str, bool]
"""Name of the export's folder, and whether it was made just now."""


def _run_forked(task: Callable[[], Exported], name: str, files: ExportFiles, limit_s: float) -> Exported:
    """Run a task in a forked process, so that a crash of a model's code ends only that process. At the time limit, the
    process and all processes that it started are ended.

    Raises the InferometerError that the task raised. Raises ExportError where the task raised another error, crashed or
    reached the limit; files.failure_log then holds the traceback, if the failure is not our own diagnosis.
    """
    # Before the fork: else every model would import torch and related libraries again.
    importlib.import_module("harness.zoo.exporting")
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    orphans.adopt_descendants()
    others = orphans.children()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stack:
        process = context.Process(target=_answer, args=(task, name, files.failure_log, stack, sending, os.getpid()))
        process.start()
        sending.close()
        try:
            # Not only the pipe: a process that the model's code started may hold its other end open.
            in_time = bool(multiprocessing.connection.wait([receiving, process.sentinel], limit_s))
            ended = _received(receiving)
            process.join(LAST_WORDS_S if in_time else 0)
        finally:
            # Threads of the model's code may keep the process alive after its answer.
            if process.is_alive() and process.pid is not None:
                orphans.end_group(process.pid)
            process.join()
            orphans.kill_children(keep=others)
        _keep_stack(stack, files)
    if not in_time:
        raise ExportError(
            f"The export of {name} timed out: it did not end within {limit_s:g} s.",
            f"Raise `measurement.export_timeout_s` in the configuration, or leave {name} out: MODELS=….",
        )
    if ended is None:
        raise ExportError(_ending(name, process.exitcode or 0), _look_into(files.failure_log))
    if isinstance(ended, InferometerError):
        raise ended
    return ended


def _answer(
    task: Callable[[], Exported], name: str, log: Path, stack: IO[str], sending: Connection, parent: int
) -> None:
    """Run the task and send its result, or an InferometerError."""
    orphans.fork_guarded(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    faulthandler.enable(stack)
    ended: InferometerError | Exported
    try:
        ended = task()
    except InferometerError as error:
        ended = type(error)(error.problem, error.hint)
        if error.__cause__ is not None:
            traceback.print_exc(file=stack)
    except BaseException as error:
        # Also SystemExit, RecursionError and any other error of a model's code and of the libraries that read it.
        traceback.print_exc(file=stack)
        ended = ExportError(f"The export of {name} raised {reason(error)}.", _look_into(log))
    stack.flush()
    sending.send(ended)


def _received(receiving: Connection) -> InferometerError | Exported | None:
    """The answer of the process; None where it ended without an answer."""
    try:
        answer: InferometerError | Exported | None = receiving.recv() if receiving.poll() else None
    except EOFError:
        answer = None
    return answer


def _keep_stack(stack: IO[str], files: ExportFiles) -> None:
    stack.seek(0)
    if text := stack.read():
        store.save_bytes(files.failure_log, text.encode(errors="replace"))


def _ending(name: str, code: int) -> str:
    if code < 0:
        return f"The export of {name} crashed with signal {-code} ({signal.strsignal(-code)})."
    return f"The export of {name} ended its own process with exit code {code}."


def _look_into(log: Path) -> str:
    return f"{log} holds where; build and call the model by itself in Python."


def _export_model(request: _MatrixExport) -> Exported:
    """Export one model into a new folder, whose name follows from its content."""
    from harness.zoo.exporting import ExportJob, export_model, identify  # noqa: PLC0415 - torch and related libraries

    plan, planned, models, measurement = request.plan, request.planned, request.models, request.plan.measurement
    home = models.folder(planned.slug).root
    watch = Stopwatch()
    with staging_folder(home) as staged:
        job = ExportJob(
            info=model_info(planned.name),
            planned=planned,
            batch_sizes=tuple(sorted({case.batch_size for case in plan.cases if case.model == planned.name})),
            seed=measurement.seed,
            samples=measurement.parity_samples,
            folder=ModelFolder(staged, home),
            options=request.options,
        )
        try:
            identified = identify(job, watch.step)
            if is_built(job.info) and (current := request.up_to_date(identified.request_sha256)) and current.folder:
                return current.folder, False
            cli.say(f"{planned.name}: exporting ({planned.weights} weights)")
            record = export_model(job, identified, watch.step, watch.seconds, compare, now_ns)
        except InferometerError as error:
            raise type(error)(
                _without_staged_path(error.problem, staged), _without_staged_path(error.hint, staged)
            ) from error.__cause__
        refused = {
            name: ExportFailure(
                error=portable(_without_staged_path(why.error, staged)),
                hint=portable(_without_staged_path(why.hint, staged)),
            )
            for name, why in record.refused.items()
        }
        name = content_name(staged, record.request_sha256)
        record = record.model_copy(update={"folder": name, "refused": refused})
        _publish(record, staged, models)
    cli.say(f"{planned.name}: {_files_of(record)}")
    if record.conversion is not None:
        cli.say(f"{planned.name}: {record.conversion}")
    return name, True


def _without_staged_path(text: str, staged: Path) -> str:
    """A message without the path of the staged folder, which is renamed or removed afterwards."""
    return text.replace(f"{staged}{os.sep}", "")


def _publish(record: ExportRecord, staged: Path, models: Models) -> None:
    """Move the staged folder to the other exports, unless it is already there."""
    target = models.folder(record.slug, record.folder)
    share_equal_files(staged, [other.root for other in models.exports(record.slug)])
    store.save(ModelFolder(staged).record, record)
    try:
        publish(staged, target.root)
    except FileExistsError:
        if intact_record(target, record.request_sha256) is not None:
            return
        with staging_folder(staged.parent) as damaged:  # removed when the block ends
            target.root.rename(damaged / "damaged")
            publish(staged, target.root)


def _say_refused(plan: Plan, planned: PlannedModel, record: ExportRecord) -> bool:
    """Warn of each missing ONNX file; True where a case of the plan needs one of them."""
    reasons: dict[str, list[str]] = {}
    for name, failure in record.refused.items():
        reasons.setdefault(f"{failure.error} {failure.hint}", []).append(name)
    for why, names in reasons.items():
        cli.warn(f"{planned.name}: no {', '.join(names)} ONNX file. {why}")
    own = [case for case in plan.cases if case.model == planned.name and case.skip_reason is None]
    return any(onnx_refusal(record, case) for case in own)


class Stopwatch:
    """Seconds by step. `with watch.step("load"): …` adds to what the step already has."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the wall seconds of the block to `name`."""
        started_ns = now_ns()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + (now_ns() - started_ns) / 1e9


def _files_of(record: ExportRecord) -> str:
    """The files of the export, in one line."""
    files = [
        f"{precision} ONNX (opset {file.opset}, {file.exporter}), {_worst(record, precision):.1e} from the reference"
        for precision, file in record.onnx.items()
    ]
    return f"{'; '.join(files or ['weights alone'])}; {sum(record.seconds.values()):.1f} s"


def _worst(record: ExportRecord, precision: Precision) -> float:
    return max((check.relative_l2 for check in record.checks if check.precision == precision), default=0.0)


def _selected(plan: Plan, names: Sequence[str] | None) -> list[PlannedModel]:
    """The plan's models that need files; only the requested ones where names are given."""
    known = {planned.name: planned for planned in plan.models}
    generating = {case.model for case in plan.generations} | set(generation_needs(plan))
    for name in names or ():
        if name not in {*known, *generating}:
            raise UsageError(*unknown_name("model of this plan", name, {*known, *generating}))
        if name not in known:
            continue
        if not known[name].exported:
            cli.say(f"{name}: nothing to export, as none of its cases that run needs a file")
    return [planned for name, planned in known.items() if planned.exported and (not names or name in names)]


def _end(failed: int, partly: int, selected: int) -> None:
    """Raise the error that the stage ends with: ExportError where no later stage can continue."""
    if not failed and partly:
        raise CasesFailedError(
            f"{partly} of {selected} models lack a file that rows of the plan need.",
            "Those rows will fail with the reason above; the rows of PyTorch can be measured.",
        )
    if not failed:
        return
    kind = ExportError if failed == selected else CasesFailedError
    raise kind(
        f"{failed} of {selected} models were not exported.",
        "Each is named above with its reason; `make export` tries only those again.",
    )


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser("harness.export", __doc__)
    cli.add_folders(parser)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these models of the plan")
    parser.add_argument("--opset", type=int, default=DEFAULT_OPSET, help=f"ONNX operator set ({DEFAULT_OPSET})")
    parser.add_argument("--output-name", help="name of the first output in ONNX files, instead of the usual one")
    parser.add_argument(
        "--max-length", type=int, metavar="TOKENS", help="longest sequence; a plan above it is an error"
    )
    parser.add_argument("--cache-dir", type=Path, help="where downloaded weights are kept (the libraries' own folders)")
    parser.add_argument("--force", action="store_true", help="export again even where nothing changed")
    parser.add_argument("--export-jobs", type=int, default=1, metavar="N", help="models to export at the same time (1)")
    parser.add_argument(
        "--engine-jobs",
        type=int,
        default=1,
        metavar="N",
        help="TensorRT engines to build at the same time (1); above 1 while other models are exported; "
        "no gain was measured for convolutional networks",
    )
    cli.add_interpreters(parser)
    parser.add_argument(
        "--beside",
        action="store_true",
        help="set by an export that starts others: do not write exporting.json",
    )
    return parser


if __name__ == "__main__":
    cli.main(export)
