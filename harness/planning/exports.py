"""The exports that a plan measures, and why a model has none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.backends import backend_info
from harness.backends.generation_files import decoder_key
from harness.core import cli, store
from harness.core.errors import (
    ExportError,
    FormatError,
    InferometerError,
    MalformedFileError,
    MissingInputError,
    StorageError,
    UsageError,
)
from harness.core.layout import ExportFiles, ModelFolder, Models, Results
from harness.core.schemas import (
    Case,
    EngineRecord,
    ExportFailure,
    ExportRecord,
    GenerationCase,
    GenerationExport,
    LoadCase,
    Plan,
    PlannedModel,
)
from harness.planning.matrix import onnx_files


@dataclass(frozen=True)
class Exports:
    """Exports by model name. intact: records whose files are as written. absent: why the other models have none.

    samples: number of different inputs that every case needs.
    """

    intact: Mapping[str, ExportRecord]
    absent: Mapping[str, InferometerError]
    samples: int = 0

    def reason_against(self, case: Case) -> InferometerError | None:
        """Why a case cannot be measured; None where it can, also without an export if its backend needs none."""
        if backend_info(case.backend).artifact == "none":
            return None
        record = self.intact.get(case.model)
        if record is None:
            return self.absent.get(case.model)
        return onnx_refusal(record, case) or missing_inputs(record, case, self.samples)


def onnx_refusal(export: ExportRecord, case: Case) -> ExportError | None:
    """Why the export has no ONNX file for a case; None where it has the file or the case needs none."""
    names = [precision if form is None else f"{precision}-{form}" for precision, form in onnx_files(case)]
    refused = [export.refused[name] for name in names if name in export.refused]
    # Of two files an engine is built from one, and TensorRT decides which.
    return ExportError(refused[0].error, refused[0].hint) if refused and len(refused) == len(names) else None


def missing_inputs(export: ExportRecord, case: Case, samples: int) -> MissingInputError | None:
    """The inputs that an export lacks for a case: its sequence length, enough samples, or raw samples; else None."""
    own = [
        inputs
        for inputs in export.input_sets
        if inputs.sequence_length == case.sequence_length and (inputs.complete or inputs.samples >= samples)
    ]
    lengths = "" if case.sequence_length is None else f" of sequence length {case.sequence_length}"
    if not own:
        problem = f"The export of {export.model} has no {samples} inputs{lengths}."
    elif case.boundary == "e2e" and own[0].raw is None:
        problem = f"The export of {export.model} has no raw inputs{lengths}, which the e2e boundary starts from."
    else:
        return None
    return MissingInputError(problem, "Run `make export` again: the plan has changed since.")


def request_difference(export: ExportRecord, plan: Plan, planned: PlannedModel) -> str | None:
    """How the request of an export differs from the plan's; None where it is the same.

    Its sequence lengths and files are checked for each case separately.
    """
    pairs = [(export.model, planned.name), (f"{export.weights} weights", f"{planned.weights} weights")]
    if export.request is not None:  # earlier versions did not store it
        pairs.append((f"seed {export.request.seed}", f"seed {plan.measurement.seed}"))
        pairs.append((f"the exporter {export.request.exporter}", f"the exporter {plan.export.exporter}"))
    return next(
        (f"it is of {exported}, and the plan asks for {asked}" for exported, asked in pairs if exported != asked), None
    )


class ExportReasons:
    """Texts about missing exports: each reason once, and then a reference to it.

    Where `export` ran in the same command, it printed the reasons of exports that failed.
    """

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def text(self, subject: str, reason: InferometerError) -> str:
        """One line. subject: the consequence, as `resnet18 is not measured`."""
        failed = isinstance(reason, ExportError)
        if failed and (cli.after_export() or reason.problem in self._printed):
            return f"{subject}: its export failed, see above."
        self._printed.add(reason.problem)
        return f"{subject}. {reason.problem} {reason.hint}"


def unmeasured_lines(refused: Iterable[tuple[Case | GenerationCase | LoadCase, InferometerError]]) -> list[str]:
    """A line for each model and reason, with the backends that it keeps from measuring it."""
    groups: dict[tuple[str, str], tuple[InferometerError, dict[str, None]]] = {}
    for case, reason in refused:
        groups.setdefault((case.model, reason.problem), (reason, {}))[1][case.backend] = None
    reasons = ExportReasons()
    return [
        reasons.text(f"{model} is not measured on {', '.join(backends)}", reason)
        for (model, _), (reason, backends) in groups.items()
    ]


def export_files(slug: str, results: Results, models: Models) -> ExportFiles:
    """The records of a model's export: those in the results that are measured on it.

    Results without such a record, as in earlier versions, are measured on the model's latest export.
    """
    own = results.export(slug)
    return own if own.record.is_file() or own.failure.is_file() else models.folder(slug)


def read_export(plan: Plan, planned: PlannedModel, results: Results, models: Models) -> ExportRecord:
    """The export that a model's results are measured on.

    Raises ExportError with the message of `export` where it failed, MissingInputError or FormatError where there is
    none, and MalformedFileError where it was made for another request than the plan's.
    """
    files = export_files(planned.slug, results, models)
    failure = export_failure(files.failure)
    if failure is not None:
        raise failure
    return read_export_record(plan, planned, files)


def export_failure(path: Path) -> ExportError | None:
    """The error of `export` in the record of its last failure; None where there is none. Raises FormatError where it is
    unreadable."""
    if not path.is_file():
        return None
    failure = store.load(path, ExportFailure, "make export")
    return ExportError(failure.error, failure.hint)


def read_export_record(
    plan: Plan, planned: PlannedModel, files: ExportFiles, sums: dict[Path, str] | None = None
) -> ExportRecord:
    """The record of a model's export, whether or not a later export failed. sums: as in store.load. Raises as
    read_export."""
    record = store.load(files.record, ExportRecord, "make export", sums)
    why = request_difference(record, plan, planned)
    if why is not None:
        raise MalformedFileError(f"{files.record} answers another request: {why}.", "Run `make export` again.")
    return record


def read_exports(plan: Plan, results: Results, models: Models) -> Exports:
    """The plan's exports, with their files checked against their hashes.

    Raises the first reason where no model has an export and `export` left no error: it has not run yet.
    """
    records: dict[str, ExportRecord] = {}
    absent: dict[str, InferometerError] = {}
    for planned in (planned for planned in plan.models if planned.exported):
        try:
            record = read_export(plan, planned, results, models)
            store.check_artifacts(models.folder(record.slug, record.folder).root, record)
        except (ExportError, FormatError, MissingInputError) as error:
            absent[planned.name] = error
        else:
            records[planned.name] = record
    _refuse_none(records, absent)
    return Exports(records, absent, plan.measurement.parity_samples)


def known_exports(plan: Plan, results: Results, models: Models) -> list[ExportRecord | GenerationExport]:
    """The records of the plan's exports that are here, before `export` has looked at them; first those for generation,
    of which a model may have several with other prompts, the latest last."""
    records: list[ExportRecord | GenerationExport] = []
    for slug in dict.fromkeys(case.slug for case in plan.generations):
        own = results.export(slug)
        there = [own] if own.generation.is_file() else models.generation_exports(slug)[::-1]
        for files in there:
            with suppress(FormatError, MissingInputError):
                records.append(store.load(files.generation, GenerationExport, "make export"))
    for planned in (planned for planned in plan.models if planned.exported):
        with suppress(FormatError, MissingInputError):
            records.append(read_export_record(plan, planned, export_files(planned.slug, results, models)))
    return records


def _refuse_none(intact: Collection[str], absent: Mapping[str, InferometerError]) -> None:
    """Raise the first reason where no model has an export and `export` left no error: it has not run yet."""
    reasons = list(absent.values())
    if reasons and not intact and not any(isinstance(reason, ExportError) for reason in reasons):
        raise reasons[0]


def keep_exports(exports: Exports, results: Results) -> None:
    """Record in the results which exports they are measured on, where `export` was run for other results."""
    for record in exports.intact.values():
        own = results.export(record.slug)
        if not own.record.is_file():
            store.save(own.record, record)


def built_engines(
    folder: ModelFolder, notes: list[str], sums: dict[Path, str] | None = None
) -> tuple[EngineRecord, ...]:
    """The record of each engine in the folder, by name; the notes name unreadable records. sums: as in store.load."""
    built = []
    for path in sorted(folder.engines.glob("*.json")):
        try:
            built.append(store.load(path, EngineRecord, "make engines", sums))
        except (FormatError, StorageError) as error:
            notes.append(f"{error.problem} {error.hint}")
    return tuple(built)


@dataclass(frozen=True)
class GenerationExports:
    """Exports by model name; absent: why the other models have none."""

    intact: Mapping[str, GenerationExport]
    absent: Mapping[str, InferometerError]

    def reason_against(self, case: GenerationCase) -> InferometerError | None:
        """Why a case cannot be measured; None where it can."""
        info = backend_info(case.backend)
        if info.decoder_reads == "none":
            return None
        record = self.intact.get(case.model)
        if record is None:
            return self.absent.get(case.model)
        key = decoder_key(info, case)
        if info.decoder_reads == "onnx" and key in record.refused:
            return ExportError(record.refused[key].error, record.refused[key].hint)
        if info.decoder_reads == "gguf" and record.gguf is None:
            return UsageError(f"{case.model} comes from no GGUF file.", f"Leave {case.backend} out for it.")
        if record.prompt_set(case.prompt_length, case.new_tokens) is None:
            return MissingInputError(
                f"The export of {case.model} lacks prompts of {case.prompt_length} tokens.", "Run `make export` again."
            )
        return None


def read_generation_exports(
    plan: Plan, names: Sequence[str], results: Results, models: Models | None
) -> GenerationExports:
    """The exports of these models. models: the folder in which their files are checked; None leaves that out.

    Raises the first reason where no model has one and `export` left no error: it has not run yet.
    """
    slugs = {case.model: case.slug for case in plan.generations}
    exports: dict[str, GenerationExport] = {}
    absent: dict[str, InferometerError] = {}
    for name in names:
        files = results.export(slugs[name])
        try:
            if (failure := export_failure(files.generation_failure)) is not None:
                raise failure
            record = store.load(files.generation, GenerationExport, "make export")
            if models is not None:
                store.check_artifacts(models.folder(record.slug, record.folder).root, record)
        except (ExportError, FormatError, MissingInputError) as error:
            absent[name] = error
        else:
            exports[name] = record
    _refuse_none(exports, absent)
    return GenerationExports(exports, absent)
