"""Export the plan's models: weights, ONNX files, real inputs and fp32 reference outputs, checked against each other.

reads   results/plan.json, and the models' weights (packages, hub, your files)
writes  models/<slug>/{weights.safetensors, *.onnx, inputs*.npz, reference*.npz, export.json},
        or export-failed.{json,log}
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from harness.core import cli, orphans, store
from harness.core.errors import CasesFailedError, ExportError, InferometerError, StorageError, UsageError
from harness.core.extensions import reason
from harness.core.layout import ModelFolder, Models, Results
from harness.core.names import unknown_name
from harness.core.orphans import die_with_parent
from harness.core.schemas import ExportFailure, ExportRecord, Plan, PlannedModel, Precision
from harness.measure.clock import now_ns
from harness.parity import compare
from harness.planning.exports import refusal_of
from harness.zoo import model_info
from harness.zoo.request import Options, covers, intact_record, merged, request_digest

DEFAULT_EXPORTER = "dynamo"
DEFAULT_OPSET = 20
"""Both chosen by measurement: docs/decisions/0002-exporter.md."""

LAST_WORDS_S = 30.0
"""For the exit handlers of a process that has answered."""


def export(arguments: Sequence[str]) -> None:
    """Export every model of the plan; one that fails is named, and does not keep the others from being exported."""
    given = _parser().parse_args(arguments)
    plan = store.load(Results(given.results).plan, Plan, "make plan")
    if given.max_length is not None and given.max_length < 1:
        raise UsageError(f"--max-length {given.max_length} leaves no token.", "At least 1: --max-length 128.")
    options = Options(given.exporter, given.opset, given.output_name, given.max_length, given.cache_dir)
    selected = _selected(plan, given.models)
    failed = partly = 0
    for planned in selected:
        folder = Models(given.models_dir).folder(planned.slug)
        try:
            record = None if given.force else _up_to_date(plan, planned, folder, options)
            if record is None:
                task = partial(_export_one, plan, planned, folder, options, given.force)
                _in_own_process(task, planned.name, folder, plan.measurement.export_timeout_s)
                record = store.load(folder.record, ExportRecord, "make export")
            else:
                cli.say(f"{planned.name}: up to date")
        except StorageError:
            raise
        except InferometerError as error:
            # `run` tells it in the model's rows.
            store.save(folder.failure, ExportFailure(error=error.problem, hint=error.hint))
            if len(selected) == 1:
                raise
            cli.say(f"{planned.name}: not exported")
            cli.show(error)
            failed += 1
        else:
            _forget_failure(folder)
            partly += _say_refused(plan, planned, record)
    _end(failed, partly, len(selected))


def _in_own_process(task: Callable[[], None], name: str, folder: ModelFolder, limit_s: float) -> None:
    """Run a task in a fork: whatever a model's code does to its process ends that process alone. It ends at the time
    limit, and all that it started ends with it.

    Raises the InferometerError that the task raised, and ExportError where it raised something else, crashed or came to
    the limit; folder.failure_log then holds where, if that is not our own diagnosis.
    """
    # Before the fork: else every model would import torch and its relatives again.
    importlib.import_module("harness.zoo.exporting")
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    orphans.adopt()
    others = orphans.children()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stack:
        process = context.Process(target=_answer, args=(task, name, folder.failure_log, stack, sending, os.getpid()))
        process.start()
        sending.close()
        try:
            # Not the pipe alone: a process that the model's code started may hold its other end open.
            in_time = bool(multiprocessing.connection.wait([receiving, process.sentinel], limit_s))
            ended = _received(receiving)
            process.join(LAST_WORDS_S if in_time else 0)
        finally:
            # Threads of the model's code may keep it from ending although it has answered.
            if process.is_alive() and process.pid is not None:
                orphans.end_group(process.pid)
            process.join()
            orphans.sweep(keep=others)
        _keep_stack(stack, folder)
    if not in_time:
        raise ExportError(
            f"The export of {name} timed out: it did not end within {limit_s:g} s.",
            f"Raise `measurement.export_timeout_s` in the configuration, or leave {name} out: MODELS=….",
        )
    if ended is None:
        raise ExportError(_ending(name, process.exitcode or 0), _look_into(folder.failure_log))
    if isinstance(ended, InferometerError):
        raise ended


def _answer(task: Callable[[], None], name: str, log: Path, stack: IO[str], sending: Connection, parent: int) -> None:
    """Run the task and send how it ended: True, or an InferometerError."""
    os.setsid()  # so that the time limit ends what it starts as well
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    faulthandler.enable(stack)
    ended: InferometerError | bool = True
    try:
        task()
    except InferometerError as error:
        ended = type(error)(error.problem, error.hint)
        if error.__cause__ is not None:
            traceback.print_exc(file=stack)
    except BaseException as error:
        # Also SystemExit, RecursionError and whatever else a model's code, and the libraries that read it, raise.
        traceback.print_exc(file=stack)
        ended = ExportError(f"The export of {name} raised {reason(error)}.", _look_into(log))
    stack.flush()
    sending.send(ended)


def _received(receiving: Connection) -> InferometerError | bool | None:
    """What the process sent; None where it ended before."""
    try:
        found: InferometerError | bool | None = receiving.recv() if receiving.poll() else None
    except EOFError:
        found = None
    return found


def _keep_stack(stack: IO[str], folder: ModelFolder) -> None:
    stack.seek(0)
    if text := stack.read():
        store.save_bytes(folder.failure_log, text.encode(errors="replace"))


def _ending(name: str, code: int) -> str:
    if code < 0:
        return f"The export of {name} crashed with signal {-code} ({signal.strsignal(-code)})."
    return f"The export of {name} ended its own process with exit code {code}."


def _look_into(log: Path) -> str:
    return f"{log} holds where; build and call the model by itself in Python."


def _up_to_date(plan: Plan, planned: PlannedModel, folder: ModelFolder, options: Options) -> ExportRecord | None:
    found = intact_record(folder, _digest(plan, planned, options))
    return found if found is not None and covers(found, planned) else None


def _digest(plan: Plan, planned: PlannedModel, options: Options) -> str:
    info, measurement = model_info(planned.name), plan.measurement
    return request_digest(info, planned, measurement.seed, measurement.parity_samples, options)


def _export_one(plan: Plan, planned: PlannedModel, folder: ModelFolder, options: Options, force: bool) -> None:
    """Export one model; what an earlier export serves besides is made again with it."""
    from harness.zoo.exporting import Job, export_model  # noqa: PLC0415 - torch and its relatives

    measurement, digest = plan.measurement, _digest(plan, planned, options)
    earlier = None if force else intact_record(folder, digest)
    batch_sizes = tuple(sorted({case.batch_size for case in plan.cases if case.model == planned.name}))
    job = Job(
        info=model_info(planned.name),
        planned=planned if earlier is None else merged(earlier, planned),
        batch_sizes=batch_sizes,
        seed=measurement.seed,
        samples=measurement.parity_samples,
        request_sha256=digest,
        folder=folder,
        options=options,
    )
    cli.say(f"{planned.name}: exporting ({planned.weights} weights)")
    watch = Stopwatch()
    record = export_model(job, watch.step, watch.seconds, compare)
    store.save(folder.record, record)
    cli.say(f"{planned.name}: {_told(record)}")


def _say_refused(plan: Plan, planned: PlannedModel, record: ExportRecord) -> bool:
    """Warn of each ONNX file that there is not; True where a case of the plan needs one of them."""
    reasons: dict[str, list[str]] = {}
    for name, failure in record.refused.items():
        reasons.setdefault(f"{failure.error} {failure.hint}", []).append(name)
    for why, names in reasons.items():
        cli.warn(f"{planned.name}: no {', '.join(names)} ONNX file. {why}")
    own = [case for case in plan.cases if case.model == planned.name and case.skip_reason is None]
    return any(refusal_of(record, case) for case in own)


def _forget_failure(folder: ModelFolder) -> None:
    for path in (folder.failure, folder.failure_log):
        # Where there is none a folder that may only be read is no error.
        if path.exists():
            with store.translate_storage_errors(path):
                path.unlink()


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


def _told(record: ExportRecord) -> str:
    """What was made, in one line."""
    files = [
        f"{precision} ONNX (opset {file.opset}, {file.exporter}), {_worst(record, precision):.1e} from the reference"
        for precision, file in record.onnx.items()
    ]
    return f"{'; '.join(files or ['weights alone'])}; {sum(record.seconds.values()):.1f} s"


def _worst(record: ExportRecord, precision: Precision) -> float:
    return max((check.relative_l2 for check in record.checks if check.precision == precision), default=0.0)


def _selected(plan: Plan, asked: Sequence[str] | None) -> list[PlannedModel]:
    """The plan's models that need files, or those of them that were asked for by name."""
    known = {planned.name: planned for planned in plan.models}
    for name in asked or ():
        if name not in known:
            raise UsageError(*unknown_name("model of this plan", name, known))
        if not known[name].exported:
            cli.say(f"{name}: nothing to export, as none of its cases that run needs a file")
    return [planned for name, planned in known.items() if planned.exported and (not asked or name in asked)]


def _end(failed: int, partly: int, selected: int) -> None:
    """Raise what the stage ends with: ExportError where there is nothing to go on with."""
    if not failed and partly:
        raise CasesFailedError(
            f"{partly} of {selected} models lack an ONNX file that rows of the plan need.",
            "Those rows will fail with the reason above; what PyTorch runs is exported and can be measured.",
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
    parser.add_argument("--exporter", choices=("dynamo", "torchscript"), default=DEFAULT_EXPORTER)
    parser.add_argument("--opset", type=int, default=DEFAULT_OPSET, help=f"ONNX operator set ({DEFAULT_OPSET})")
    parser.add_argument("--output-name", help="name of the first output, instead of the model's usual one")
    parser.add_argument(
        "--max-length", type=int, metavar="TOKENS", help="longest sequence; a plan above it is an error"
    )
    parser.add_argument("--cache-dir", type=Path, help="where downloaded weights are kept (the libraries' own folders)")
    parser.add_argument("--force", action="store_true", help="export anew even where nothing changed")
    return parser


if __name__ == "__main__":
    cli.main(export)
