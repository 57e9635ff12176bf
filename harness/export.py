"""Export the plan's models: weights, ONNX files, real inputs and fp32 reference outputs, checked against each other.

reads   results/plan.json, and the models' weights (packages, hub, your files)
writes  models/<slug>/{weights.safetensors, *.onnx, inputs*.npz, reference*.npz, export.json}, or export-failed.json
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.core import cli, store
from harness.core.errors import CasesFailedError, ExportError, InferometerError, StorageError, UsageError
from harness.core.layout import ModelFolder, Models, Results
from harness.core.names import unknown_name
from harness.core.schemas import ExportFailure, ExportRecord, Plan, PlannedModel, Precision
from harness.measure.clock import now_ns
from harness.parity import compare
from harness.planning.exports import refusal_of
from harness.zoo import model_info
from harness.zoo.request import Options, covers, intact_record, merged, request_digest

DEFAULT_EXPORTER = "dynamo"
DEFAULT_OPSET = 20
"""Both chosen by measurement: docs/decisions/0002-exporter.md."""


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
            record = _export_one(plan, planned, folder, options, given.force)
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


def _export_one(plan: Plan, planned: PlannedModel, folder: ModelFolder, options: Options, force: bool) -> ExportRecord:
    info, measurement = model_info(planned.name), plan.measurement
    digest = request_digest(info, planned, measurement.seed, measurement.parity_samples, options)
    earlier = None if force else intact_record(folder, digest)
    if earlier is not None and covers(earlier, planned):
        cli.say(f"{planned.name}: up to date")
        return earlier
    # torch and its relatives take seconds to import: only where there is something to do.
    from harness.zoo.exporting import Job, export_model  # noqa: PLC0415

    batch_sizes = tuple(sorted({case.batch_size for case in plan.cases if case.model == planned.name}))
    job = Job(
        info=info,
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
    return record


def _say_refused(plan: Plan, planned: PlannedModel, record: ExportRecord) -> bool:
    """Warn of each ONNX file that there is not; True where a case of the plan needs one of them."""
    reasons: dict[str, list[str]] = {}
    for name, failure in record.refused.items():
        reasons.setdefault(f"{failure.error} {failure.hint}", []).append(name)
    for reason, names in reasons.items():
        cli.warn(f"{planned.name}: no {', '.join(names)} ONNX file. {reason}")
    own = [case for case in plan.cases if case.model == planned.name and case.skip_reason is None]
    return any(refusal_of(record, case) for case in own)


def _forget_failure(folder: ModelFolder) -> None:
    # Where there is none a folder that may only be read is no error.
    if folder.failure.exists():
        with store.translate_storage_errors(folder.failure):
            folder.failure.unlink()


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
