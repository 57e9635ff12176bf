"""Join the plan with the raw records: a row for every planned case, measured, skipped, failed or missing.

reads   results/plan.json, exports/<slug>/export.json, raw/<case>/<round>.json and .usage.json, environments/*.json,
        roof.json, energy/*.json, load/<load_id>/…, copies/*.json, neighbours.json, the earlier summary.json;
        models/<slug>/engines/*.json
writes  results/summary.json, summary.csv, written/aggregate.json; the rows of a large run into summary.parquet

A summary with more measured rows is kept (exit code 3); --force replaces it (exit code 10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from harness.aggregation.admission import References, differing_facts
from harness.aggregation.generation_rows import GenerationSource, generation_rows, used_environments
from harness.aggregation.join import Notes, checks_for, join, references
from harness.aggregation.load_rows import load_row
from harness.aggregation.plugin_metrics import Installed, installed_metrics, with_custom
from harness.backends import BACKENDS
from harness.core import (
    cli,
    file_sums,
    packed,
    store,
    units,
)
from harness.core.errors import (
    CasesFailedError,
    ExportError,
    FormatError,
    MalformedFileError,
    MissingInputError,
    StorageError,
)
from harness.core.host.environment import environment_id
from harness.core.layout import Models, Results
from harness.core.parallel import map_forked, without_garbage_collection
from harness.core.raw_files import RawFiles
from harness.core.schemas import (
    Case,
    Copies,
    CpuRoof,
    Energy,
    EngineRecord,
    Environment,
    ExportRecord,
    Failed,
    Generated,
    GenerationExport,
    GenerationRow,
    LoadBase,
    LoadEnergy,
    LoadFailure,
    LoadRow,
    Measured,
    NeighbourCheck,
    PackedSummary,
    Plan,
    Roof,
    Row,
    RowGroup,
    Summary,
    Usage,
)
from harness.core.schemas.summary_record import rounded_record
from harness.core.text import portable_again
from harness.core.timestamps import utc_now
from harness.planning.exports import (
    built_engines,
    export_failure,
    export_files,
    read_export_record,
    read_generation_exports,
    request_difference,
)
from harness.planning.generation_cases import generation_needs
from harness.planning.matrix import plan_id
from harness.planning.resume import ForeignFileCheck, foreign_file_check, load_evidence, read_load_state
from harness.reporting.writers.csv import summary_text
from harness.serving.load_case import replication_digest

_UNEXPORTED = " was not exported"
"""In notes about exports that failed."""


@without_garbage_collection()
def stage(arguments: Sequence[str]) -> None:
    """Read, join, write."""
    parser = cli.parser("harness.aggregate", __doc__)
    parser.add_argument("--force", action="store_true", help="replace a summary that has more measured rows, too")
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    # Paths below `.` do not begin with the folder, by which a summary names files of models.
    results, models = Results(options.results), Models(options.models_dir if options.models_dir.parts else Path.cwd())
    notes, sums = Notes(partial(file_sums.problem_inside, results=results, models=models)), dict[Path, str]()
    before = _summary_before(results)
    inputs = _read_inputs(results, models, before, notes, sums)

    large: _LargeRun | None = None
    if len(inputs.plan.cases) > packed.PACK_FROM:
        large = _summarise_by_model(inputs, _measured_before(before, results))
        summary = large.joined(notes, sums)
    else:
        summary = _summarise(inputs, inputs.plan, notes, sums)
    summary = _with_other_rows(summary, inputs, notes, sums)
    notes.other += inputs.metric_problems
    update = {"notes": tuple(map(portable_again, notes.lines())), "inputs": file_sums.inputs_of(sums, results, models)}
    summary = with_custom(summary.model_copy(update=update), inputs.metrics).as_stored()

    lost = [*no_longer_measured(before, summary), *(large.lost if large else ())]
    if lost and not options.force:
        if large:
            large.writer.discard()
        raise MissingInputError(*_refusal(lost, before, results))
    _save(summary, large, results)
    _print_outcome(summary, results)
    if lost:
        raise CasesFailedError(
            f"{units.count(len(lost), 'row')} of the summary before {'are' if len(lost) > 1 else 'is'} lost.",
            "The report gives the reason of each; `make run` measures them again.",
        )


def _save(summary: Summary, large: _LargeRun | None, results: Results) -> None:
    if large:
        large.writer.keep()
    store.save(results.summary, summary)
    if not large:
        results.packed_rows.unlink(missing_ok=True)
    text = b"".join(large.csv) if large else summary_text(summary).encode()
    file_sums.save(results, "aggregate", {results.summary_csv: text})


@dataclass(frozen=True)
class _Inputs:
    """All that a summary is made of, except records that are read case by case.

    exports, engines: by slug. absent: by slug, why a model has no export. environments: by id; slot_environments: those
    of the samples on all devices. calibration: the backends that compute nothing. metrics: of plugins, by name. named:
    as in Notes.
    """

    plan: Plan
    results: Results
    raw: RawFiles
    exports: Mapping[str, ExportRecord]
    absent: Mapping[str, str]
    environments: Mapping[str, Environment]
    engines: Mapping[str, Sequence[EngineRecord]]
    copies: Mapping[str, Copies]
    neighbours: NeighbourCheck | None
    slot_environments: Mapping[str, Environment]
    roof: Roof | CpuRoof | None
    calibration: frozenset[str]
    metrics: Mapping[str, Installed]
    metric_problems: Sequence[str]
    created_at: str
    named: Callable[[str], str]


def _read_inputs(
    results: Results, models: Models, before: Summary | None, notes: Notes, sums: dict[Path, str]
) -> _Inputs:
    plan = read_plan(results, sums)
    exports, absent = read_exports(plan, results, models, notes, sums, before)
    environments = read_environments(results, notes, sums)
    unread: list[str] = []
    engines = {slug: built_engines(models.folder(slug), unread, sums) for slug in exports}
    notes.other += map(notes.named, unread)
    copies = read_copies(plan, results, notes, sums)
    neighbours = read_neighbours(plan, results, notes, sums)
    metrics, metric_problems = installed_metrics()
    return _Inputs(
        plan=plan,
        results=results,
        raw=RawFiles(results, plan.cases),
        exports=exports,
        absent=absent,
        environments=environments,
        engines=engines,
        copies=copies,
        neighbours=neighbours,
        slot_environments=read_slot_environments(results, copies, notes, sums),
        roof=read_roof(plan, results, notes, sums),
        calibration=_calibration_backends(),
        metrics=metrics,
        metric_problems=metric_problems,
        created_at=utc_now(),
        named=notes.named,
    )


def _calibration_backends() -> frozenset[str]:
    """The backends that compute nothing."""
    return frozenset(name for name, info in BACKENDS.items() if not info.computes)


def _summarise(
    inputs: _Inputs, plan: Plan, notes: Notes, sums: dict[Path, str], agreed: References | None = None
) -> Summary:
    """The summary of the plan, or of some of its models. agreed: as in join."""
    summary = join(
        plan,
        inputs.exports,
        inputs.environments,
        partial(_read_raw, inputs, sums),
        partial(_read_usage, inputs, sums),
        calibration=inputs.calibration,
        notes=notes,
        created_at=inputs.created_at,
        engines=inputs.engines,
        roof=inputs.roof,
        absent=inputs.absent,
        by_shape=inputs.neighbours is not None,
        agreed=agreed,
    )
    return with_devices(summary, inputs.copies, inputs.neighbours, inputs.slot_environments)


def _with_other_rows(summary: Summary, inputs: _Inputs, notes: Notes, sums: dict[Path, str]) -> Summary:
    """The summary with the results of `energy`, `generate` and `load`."""
    energies = read_energies(inputs.plan, inputs.results, notes, sums)
    summary = with_generations(summary, inputs, energies, notes, sums)
    loads = load_rows(inputs.plan, inputs.results, inputs.exports, inputs.engines, inputs.environments, notes, sums)
    used = {identity: inputs.environments[identity] for row in loads for identity in row.environment_ids}
    environments = dict(sorted({**summary.environments, **used}.items()))
    return summary.model_copy(update={"energies": energies, "loads": loads, "environments": environments})


@contextmanager
def _file_named(named: Callable[[str], str]) -> Iterator[None]:
    """Name the file of an error as a summary does."""
    try:
        yield
    except (FormatError, StorageError) as error:
        raise type(error)(named(error.problem), error.hint) from error


def _read_raw(inputs: _Inputs, sums: dict[Path, str], case_id: str, round_number: int) -> Measured | Failed | None:
    try:
        with _file_named(inputs.named):
            record = inputs.raw.load(case_id, round_number, sums)
    except MissingInputError:
        return None
    return store.passed_on_failure(record) if isinstance(record, Failed) else record


def _read_usage(inputs: _Inputs, sums: dict[Path, str], case_id: str, round_number: int) -> Usage | None:
    try:
        with _file_named(inputs.named):
            return inputs.raw.load_usage(case_id, round_number, sums)
    except MissingInputError:
        return None


@dataclass(frozen=True)
class _ModelPart:
    """The rows of one model on their way to the files. lost: rows that were measured before and are missing now."""

    summary: Summary
    rows: packed.WrittenRows
    csv: bytes
    lost: list[Row]
    notes: Notes
    sums: dict[Path, str]


@dataclass
class _LargeRun:
    """A run with so many cases that their rows are never in memory together. heads: by model, without rows."""

    writer: packed.RowsWriter
    groups: tuple[RowGroup, ...]
    heads: list[Summary]
    csv: list[bytes]
    lost: list[Row]
    notes: list[Notes]
    sums: list[dict[Path, str]]

    def joined(self, notes: Notes, sums: dict[Path, str]) -> Summary:
        """The summary without its rows; adds the notes and the sums of all models."""
        for note in self.notes:
            notes.add(note)
        for model_sums in self.sums:
            sums |= model_sums
        first = self.heads[0]
        began = [head.measured_from for head in self.heads if head.measured_from]
        ended = [head.measured_to for head in self.heads if head.measured_to]
        update = {
            "schema_version": store.PACKED,
            "measured_from": min(began, default=None),
            "measured_to": max(ended, default=None),
            "environments": {key: environment for head in self.heads for key, environment in head.environments.items()},
            "exports": {key: export for head in self.heads for key, export in head.exports.items()},
            "engines": {key: engine for head in self.heads for key, engine in head.engines.items()},
            "roof": next((head.roof for head in self.heads if head.roof), None),
            "rows": (),
            "row_groups": self.groups,
        }
        return PackedSummary(**{**dict(first), **update})


def _summarise_by_model(inputs: _Inputs, measured_before: frozenset[str]) -> _LargeRun:
    """Aggregate each model by itself, in several processes, and write its rows to the file of rows."""
    plan = inputs.plan
    cases: dict[str, list[Case]] = {}
    for case in plan.cases:
        cases.setdefault(case.slug, []).append(case)
    models = {model.slug: model for model in plan.models}
    blank = plan.model_copy(update={"cases": (), "models": (), "loads": (), "generations": ()})
    read = partial(_read_raw, inputs, {})
    agreed = references(plan, inputs.environments, read, inputs.neighbours is not None)

    def model_part(slug: str) -> _ModelPart:
        notes, sums = Notes(), dict[Path, str]()
        model_plan = blank.model_copy(update={"cases": tuple(cases[slug]), "models": (models[slug],)})
        summary = with_custom(_summarise(inputs, model_plan, notes, sums, agreed), inputs.metrics)
        stored = summary.model_copy(update={"rows": tuple(map(rounded_record, summary.rows))})
        lost = [row for row in stored.rows if row.status == "missing" and row.case_id in measured_before]
        rows, text = packed.written_rows(models[slug].name, stored.rows), summary_text(stored).encode()
        return _ModelPart(stored.model_copy(update={"rows": ()}), rows, text, lost, notes, sums)

    large = _LargeRun(packed.RowsWriter(inputs.results.packed_rows), (), [], [], [], [], [])
    try:
        for part in map_forked(model_part, list(cases)):
            large.writer.add(part.rows)
            large.csv.append(part.csv.partition(b"\n")[2] if large.csv else part.csv)
            large.heads.append(part.summary)
            large.lost += part.lost
            large.notes.append(part.notes)
            large.sums.append(part.sums)
        large.groups = large.writer.close()
    except BaseException:
        large.writer.discard()
        raise
    return large


def _measured_before(before: Summary | None, results: Results) -> frozenset[str]:
    """Ids of the cases that the existing summary has figures of."""
    if isinstance(before, PackedSummary):
        try:
            statuses = packed.PackedRows(results.packed_rows, before.row_groups).statuses()
        except (FormatError, MissingInputError):
            return frozenset()
    else:
        statuses = ((row.case_id, row.status) for row in (before.rows if before else ()))
    return frozenset(case_id for case_id, status in statuses if status == "measured")


def with_generations(
    summary: Summary, inputs: _Inputs, energies: Mapping[str, Energy], notes: Notes, sums: dict[Path, str]
) -> Summary:
    """The summary with a row for every planned case of generation."""
    plan, results, environments = inputs.plan, inputs.results, inputs.environments
    if not plan.generations:
        return summary
    records = results.of_generation
    needs = generation_needs(plan)
    exports = read_generation_exports(plan, [*needs], results, None)
    for name in exports.intact:
        store.load(results.export(needs[name].slug).generation, GenerationExport, "make export", sums)
    # An error of `export` begins with no path of these folders: its words stay.
    absent = {
        name: why.problem if isinstance(why, ExportError) else notes.named(why.problem)
        for name, why in exports.absent.items()
    }
    for name, problem in absent.items():
        notes.other.append(f"{name}{_UNEXPORTED} for generation. {problem} {exports.absent[name].hint}")

    def load(case_id: str, round_number: int) -> Generated | Failed | None:
        try:
            with _file_named(notes.named):
                record = store.load_generated(records.raw_file(case_id, round_number), sums)
        except MissingInputError:
            return None
        return store.passed_on_failure(record) if isinstance(record, Failed) else record

    def load_usage(case_id: str, round_number: int) -> Usage | None:
        try:
            with _file_named(notes.named):
                return store.load(records.usage_file(case_id, round_number), Usage, "make generate", sums)
        except MissingInputError:
            return None

    source = GenerationSource(
        plan=plan,
        exports=exports.intact,
        absent=absent,
        environments=environments,
        calibration=inputs.calibration,
        roof=inputs.roof,
        energies=energies,
    )
    rows = generation_rows(source, load, load_usage, notes.other.append)
    used, started = used_environments(plan, rows, load, environments)
    began = [moment for moment in (summary.measured_from, summary.measured_to, *started) if moment]
    return summary.model_copy(
        update={
            "generations": rows,
            "environments": {key: environments[key] for key in sorted({*summary.environments, *used})},
            "measured_from": min(began, default=None),
            "measured_to": max(began, default=None),
            "roof": summary.roof or source.roof,
        }
    )


def _summary_before(results: Results) -> Summary | None:
    """The existing summary; None where there is none of this format."""
    try:
        return store.load_head(results.summary, "make aggregate")
    except (FormatError, MissingInputError):
        return None


AnyRow = Row | GenerationRow | LoadRow


def no_longer_measured(before: Summary | None, now: Summary) -> list[AnyRow]:
    """Rows that were measured before and now have no valid sample. A row that is no longer in the plan is not lost, nor
    is a row that was measured again and failed."""
    if before is None:
        return []
    measured = {_id_of(row) for row in _all_rows(before) if row.status == "measured"}
    return [row for row in _all_rows(now) if _id_of(row) in measured and row.status == "missing"]


def _id_of(row: AnyRow) -> str:
    return row.load_id if isinstance(row, LoadRow) else row.case_id


def _case_rows(summary: Summary) -> list[Row | GenerationRow]:
    """Rows of `run` and of `generate`."""
    return [*summary.rows, *summary.generations]


def _all_rows(summary: Summary) -> list[AnyRow]:
    return [*_case_rows(summary), *summary.loads]


def _refusal(lost: Sequence[AnyRow], before: Summary | None, results: Results) -> tuple[str, str]:
    """(problem, hint) where a summary would lose measured rows."""
    measured = sum(row.status == "measured" for row in (_all_rows(before) if before else ()))
    if isinstance(before, PackedSummary):
        measured += sum(group.measured for group in before.row_groups)
    again = "make load" if all(isinstance(row, LoadRow) for row in lost) else "make run"
    return (
        f"{results.summary} has {measured} measured rows, and {len(lost)} of them would be missing now, as "
        f"{_id_of(lost[0])}: {lost[0].reason}. It was left as it is.",
        f"Measure them again: `{again}`; or give them up: `make aggregate FORCE=1`.",
    )


def read_exports(
    plan: Plan,
    results: Results,
    models: Models,
    notes: Notes,
    sums: dict[Path, str],
    before: Summary | None,
) -> tuple[dict[str, ExportRecord], dict[str, str]]:
    """The exports that the results were measured on, by slug, and why the other models have none.

    Unreadable files go into the notes. MissingInputError or FormatError is raised where no export can be read and
    `export` did not record why. Results of earlier versions have no export record: the record in their summary is used.
    """
    exports: dict[str, ExportRecord] = {}
    problems: dict[str, FormatError | MissingInputError] = {}
    failed: set[str] = set()
    for planned in (planned for planned in plan.models if planned.exported):
        files = export_files(planned.slug, results, models)
        earlier = None if before is None else before.exports.get(planned.name)
        own = files.root == results.export(planned.slug).root
        if earlier is not None and not own and request_difference(earlier, plan, planned) is None:
            exports[planned.slug] = earlier
            continue
        try:
            failure = export_failure(files.failure)
            if failure is not None:
                failed.add(planned.slug)
                notes.other.append(f"{planned.name}{_UNEXPORTED}. {failure.problem} {failure.hint}")
            exports[planned.slug] = read_export_record(plan, planned, files, sums if own else None)
        except (FormatError, MissingInputError) as error:
            problems[planned.slug] = error
            if not files.failure.is_file():
                notes.note_file(error)
    unexplained = [error for slug, error in problems.items() if slug not in failed]
    if unexplained and not exports:
        raise unexplained[0]
    return exports, {slug: notes.named(error.problem) for slug, error in problems.items()}


Record = TypeVar("Record", bound=BaseModel)


def _read(path: Path, kind: type[Record], made_by: str, notes: Notes, sums: dict[Path, str]) -> Record | None:
    """A record; None where there is no file, or where it is damaged, which goes into the notes."""
    if not path.is_file():
        return None
    try:
        return store.load(path, kind, made_by, sums)
    except FormatError as error:
        notes.note_file(error)
        return None


def read_plan(results: Results, sums: dict[Path, str]) -> Plan:
    """The plan. Raises MalformedFileError where its id, which reports show, is that of other content."""
    plan = store.load(results.plan, Plan, "make plan", sums)
    if plan.plan_id in (plan_id(plan), plan.settings_id):  # format 1 had one id for both
        return plan
    raise MalformedFileError(
        f"{results.plan} is not plan {plan.plan_id}: its cases, settings or tolerances were changed.",
        "Run `make plan`, or put back the plan of the run.",
    )


def read_environments(results: Results, notes: Notes, sums: dict[Path, str]) -> dict[str, Environment]:
    """Environment records by id. One whose name is not the hash of its content is left out, with a note."""
    paths = sorted(results.environments.glob("*.json"))
    records = {path: _read(path, Environment, "make run", notes, sums) for path in paths}
    known = {path: environment for path, environment in records.items() if environment is not None}
    changed = [path for path, environment in known.items() if environment_id(environment) != path.stem]
    notes.other += [
        notes.named(f"{path} was changed: its name is the hash of another environment.") for path in changed
    ]
    return {path.stem: environment for path, environment in known.items() if path not in changed}


def read_roof(plan: Plan, results: Results, notes: Notes, sums: dict[Path, str]) -> Roof | CpuRoof | None:
    """The measured limits of the plan's device; None where they were not measured."""
    if plan.device == "cuda":
        return _read(results.roof, Roof, "make roof", notes, sums)
    return _read(results.roof, CpuRoof, "make roof", notes, sums)


CaseRecord = TypeVar("CaseRecord", Energy, Copies)


def _read_by_case(
    path_of: Callable[[str], Path],
    case_ids: Iterable[str],
    kind: type[CaseRecord],
    made_by: str,
    settings_id: str,
    notes: Notes,
    sums: dict[Path, str],
) -> dict[str, CaseRecord]:
    """Records with these settings by case id. path_of: the file of a case id."""
    # The folder is listed once: few of many cases have a file.
    names = {path.name for path in path_of("").parent.glob("*") if path.is_file()}
    records: dict[str, CaseRecord] = {}
    for case_id in case_ids if names else ():
        path = path_of(case_id)
        record = _read(path, kind, made_by, notes, sums) if path.name in names else None
        if record is None:
            continue
        if record.case_id != case_id:
            moved = f"{path} is of the case {record.case_id}: it was moved or copied. It was left out."
            notes.other.append(notes.named(moved))
        elif record.settings_id == settings_id:
            records[case_id] = record
    return records


def read_energies(plan: Plan, results: Results, notes: Notes, sums: dict[Path, str]) -> dict[str, Energy]:
    """Results of the energy pass with this plan's settings, by case id."""
    case_ids = [case.case_id for cases in (plan.cases, plan.generations) for case in cases]
    return _read_by_case(results.energy_file, case_ids, Energy, "make energy", plan.settings_id, notes, sums)


def load_rows(
    plan: Plan,
    results: Results,
    exports: Mapping[str, ExportRecord],
    engines: Mapping[str, Sequence[EngineRecord]],
    environments: Mapping[str, Environment],
    notes: Notes,
    sums: dict[Path, str],
) -> tuple[LoadRow, ...]:
    """A row for every planned load case; damaged files go into the notes."""
    rows = []
    calibration = _calibration_backends()
    kinds = {model.slug: model.kind for model in plan.models}
    for load in plan.loads:
        files, comparable = results.load(load.load_id), _same_machine_check(environments)
        export = exports.get(load.slug)
        foreign = foreign_file_check(load, export, engines.get(load.slug, ()), results.export(load.slug), sums)
        state = read_load_state(load, files, plan.settings_id, comparable, sums, _named_check(foreign, notes.named))
        notes.other += map(notes.named, state.notes)
        failure = _read(files.failure, LoadFailure, "make load", notes, sums)
        energy = _read(files.energy, LoadEnergy, "make load", notes, sums)
        asked = (plan.settings_id, replication_digest(load))
        if energy is not None and (energy.settings_id, energy.load_sha256) != asked:
            energy = None
        criteria, evidence = checks_for(plan, load, export, calibration), load_evidence(state, failure, energy)
        rows.append(load_row(load, kinds[load.slug], criteria, evidence))
    return tuple(rows)


def _named_check(foreign: ForeignFileCheck | None, named: Callable[[str], str]) -> ForeignFileCheck | None:
    """The check, whose reason names an unreadable file as a summary does."""
    if foreign is None:
        return None
    return lambda service: None if (why := foreign(service)) is None else named(why)


def _same_machine_check(environments: Mapping[str, Environment]) -> Callable[[LoadBase], bool]:
    """Whether a record has the machine and libraries of the first checked record, which has the service times."""
    first: Environment | None = None

    def comparable(record: LoadBase) -> bool:
        nonlocal first
        environment = environments.get(record.environment_id or "")
        if environment is None:
            return False
        first = first or environment
        return not differing_facts(environment, first)

    return comparable


def read_copies(plan: Plan, results: Results, notes: Notes, sums: dict[Path, str]) -> dict[str, Copies]:
    """Cases that ran on all devices at once, with this plan's settings, by case id."""
    case_ids, made_by = [case.case_id for case in plan.cases], "make run LAYOUT=copies"
    return _read_by_case(results.copies, case_ids, Copies, made_by, plan.settings_id, notes, sums)


def read_slot_environments(
    results: Results, copies: Mapping[str, Copies], notes: Notes, sums: dict[Path, str]
) -> dict[str, Environment]:
    """The environments of the samples on all devices, by id."""
    slots = max((len(case_copies.slots) for case_copies in copies.values()), default=0)
    environments: dict[str, Environment] = {}
    for place in range(slots):
        environments |= read_environments(results.copies_of(place), notes, sums)
    return environments


def with_devices(
    summary: Summary,
    copies: Mapping[str, Copies],
    neighbours: NeighbourCheck | None,
    environments: Mapping[str, Environment],
) -> Summary:
    """The summary with the cases that ran on all devices. A missing row of such a case says so."""
    reason = "it ran only on all devices at once (LAYOUT=copies)"
    rows = tuple(
        row.model_copy(update={"reason": reason, "hint": "`make run` measures it by itself."})
        if row.status == "missing" and row.case_id in copies
        else row
        for row in summary.rows
    )
    known = {**environments, **summary.environments}
    return summary.model_copy(
        update={"rows": rows, "copies": dict(copies), "neighbours": neighbours, "environments": known}
    )


def read_neighbours(plan: Plan, results: Results, notes: Notes, sums: dict[Path, str]) -> NeighbourCheck | None:
    """The check of rows that were spread over devices; None where they were not, or with other settings."""
    check = _read(results.neighbours, NeighbourCheck, "make run LAYOUT=cases", notes, sums)
    return check if check is not None and check.settings_id == plan.settings_id else None


def _print_outcome(summary: Summary, results: Results) -> None:
    rows = _case_rows(summary)
    counts = Counter(row.status for row in rows)
    if isinstance(summary, PackedSummary):
        measured = sum(group.measured for group in summary.row_groups)
        total = sum(group.rows for group in summary.row_groups)
        outcome = f"{measured:,} measured, {total - measured:,} without a figure"
        cli.say(f"{results.summary}: {total:,} rows in {results.packed_rows.name}, {outcome}.")
    parts = [f"{counts[status]} {status}" for status in ("measured", "skipped", "failed", "missing") if counts[status]]
    if rows or not (summary.loads or isinstance(summary, PackedSummary)):
        cli.say(f"{results.summary}: {units.count(len(rows), 'row')}, {', '.join(parts) or 'none'}.")
    if summary.loads:
        done = sum(row.status == "measured" for row in summary.loads)
        cli.say(f"{results.summary}: {units.count(len(summary.loads), 'load case')}, {done} measured.")
    for note in summary.notes:
        if not (cli.after_export() and _UNEXPORTED in note):  # the export stage printed it, and the run refers to it
            cli.warn(note)


if __name__ == "__main__":
    cli.main(stage)
