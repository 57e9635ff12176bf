"""Join the plan with the raw records: a row for every planned case, measured, skipped, failed or missing.

reads   results/plan.json, exports/<slug>/export.json, raw/<case>/<round>.json and .usage.json, environments/*.json,
        roof.json, energy/*.json, load/<load_id>/…, copies/*.json, neighbours.json, summary.json of before;
        models/<slug>/engines/*.json
writes  results/summary.json, summary.csv, written/aggregate.json; the rows of a large run into summary.parquet

A summary that has more measured rows is not replaced, unless --force is given; then the exit code is 10.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

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
from harness.core.errors import CasesFailedError, FormatError, MissingInputError
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
from harness.core.text import portable
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
from harness.planning.resume import foreign_file_check, load_evidence, read_load_state
from harness.reporting.writers.csv import summary_text
from harness.serving.load_case import replication_digest


@without_garbage_collection()
def stage(arguments: Sequence[str]) -> None:
    """Read, join, write."""
    parser = cli.parser("harness.aggregate", __doc__)
    parser.add_argument("--force", action="store_true", help="replace a summary that has more measured rows, too")
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    results = Results(options.results)
    sums: dict[Path, str] = {}
    plan = store.load(results.plan, Plan, "make plan", sums)
    notes = Notes()
    models = Models(options.models_dir)
    before = load_before(results)
    exports, absent = load_exports(plan, results, models, notes, sums, before)
    environments = load_environments(results, notes, sums)

    raw = RawFiles(results, plan.cases)
    engines = {slug: built_engines(models.folder(slug), notes.other, sums) for slug in exports}
    copies = load_copies(plan, results, notes, sums)
    neighbours = load_neighbours(plan, results, notes, sums)
    calibration = _calibration()
    metrics, problems = installed_metrics()
    slots = environments_of_slots(results, copies, notes, sums)
    roof, created_at = load_roof(plan, results, notes, sums), utc_now()

    def part(plan: Plan, notes: Notes, sums: dict[Path, str], agreed: References | None = None) -> Summary:
        """The summary of the plan, or of some of its models."""
        joined = join(
            plan,
            exports,
            environments,
            partial(_load, raw, sums),
            partial(_load_usage, raw, sums),
            calibration=calibration,
            notes=notes,
            created_at=created_at,
            engines=engines,
            roof=roof,
            absent=absent,
            by_shape=neighbours is not None,
            agreed=agreed,
        )
        return with_devices(joined, copies, neighbours, slots)

    large: _Large | None = None
    if len(plan.cases) > packed.PACK_FROM:
        agreed = references(plan, environments, partial(_load, raw, {}), neighbours is not None)
        large = _by_model(plan, partial(part, agreed=agreed), metrics, results, _measured_before(before, results))
        summary = large.joined(notes, sums)
    else:
        summary = part(plan, notes, sums)
    energies = load_energies(plan, results, notes, sums)
    summary = with_generations(summary, plan, results, notes, sums, environments, energies, calibration)
    loads = load_loads(plan, results, exports, engines, environments, notes, sums)
    notes.other += problems
    inputs = file_sums.inputs_of(sums, results, models)
    noted = tuple(map(portable, notes.lines()))
    used = {identity: environments[identity] for row in loads for identity in row.environment_ids}
    update = {
        "energies": energies,
        "loads": loads,
        "environments": dict(sorted({**summary.environments, **used}.items())),
        "notes": noted,
        "inputs": inputs,
    }
    summary = with_custom(summary.model_copy(update=update), metrics)
    summary = summary.as_stored()
    lost = [*no_longer_measured(before, summary), *(large.lost if large else ())]
    if lost and not options.force:
        if large:
            large.writer.discard()
        raise MissingInputError(*_in_words(lost, before, results))
    _save(summary, large, results)
    _say(summary, results)
    if lost:
        raise CasesFailedError(
            f"{units.count(len(lost), 'row')} of the summary before {'are' if len(lost) > 1 else 'is'} lost.",
            "The report gives the reason of each; `make run` measures them again.",
        )


def _save(summary: Summary, large: _Large | None, results: Results) -> None:
    if large:
        large.writer.keep()
    store.save(results.summary, summary)
    if not large:
        results.packed_rows.unlink(missing_ok=True)
    text = b"".join(large.csv) if large else summary_text(summary).encode()
    file_sums.save(results, "aggregate", {results.summary_csv: text})


def _load(raw: RawFiles, sums: dict[Path, str], case_id: str, round_number: int) -> Measured | Failed | None:
    try:
        record = raw.load(case_id, round_number, sums)
    except MissingInputError:
        return None
    return store.portable_failure(record) if isinstance(record, Failed) else record


def _load_usage(raw: RawFiles, sums: dict[Path, str], case_id: str, round_number: int) -> Usage | None:
    try:
        return raw.load_usage(case_id, round_number, sums)
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
class _Large:
    """A run of so many cases that their rows are never in memory together."""

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


def _by_model(
    plan: Plan,
    part: Callable[[Plan, Notes, dict[Path, str]], Summary],
    metrics: Mapping[str, Installed],
    results: Results,
    measured_before: frozenset[str],
) -> _Large:
    """Aggregate each model by itself, in several processes, and write its rows to the file of rows."""
    cases: dict[str, list[Case]] = {}
    for case in plan.cases:
        cases.setdefault(case.slug, []).append(case)
    models = {model.slug: model for model in plan.models}
    blank = plan.model_copy(update={"cases": (), "models": (), "loads": (), "generations": ()})

    def model_part(slug: str) -> _ModelPart:
        notes, sums = Notes(), dict[Path, str]()
        ours = blank.model_copy(update={"cases": tuple(cases[slug]), "models": (models[slug],)})
        summary = with_custom(part(ours, notes, sums), metrics)
        stored = summary.model_copy(update={"rows": tuple(map(rounded_record, summary.rows))})
        lost = [row for row in stored.rows if row.status == "missing" and row.case_id in measured_before]
        rows, text = packed.written_rows(models[slug].name, stored.rows), summary_text(stored).encode()
        return _ModelPart(stored.model_copy(update={"rows": ()}), rows, text, lost, notes, sums)

    large = _Large(packed.RowsWriter(results.packed_rows), (), [], [], [], [], [])
    try:
        for piece in map_forked(model_part, list(cases)):
            large.writer.add(piece.rows)
            large.csv.append(piece.csv.partition(b"\n")[2] if large.csv else piece.csv)
            large.heads.append(piece.summary)
            large.lost += piece.lost
            large.notes.append(piece.notes)
            large.sums.append(piece.sums)
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


def _calibration() -> frozenset[str]:
    """The backends that compute nothing."""
    return frozenset(name for name, info in BACKENDS.items() if not info.computes)


def with_generations(
    summary: Summary,
    plan: Plan,
    results: Results,
    notes: Notes,
    sums: dict[Path, str],
    environments: Mapping[str, Environment],
    energies: Mapping[str, Energy],
    calibration: frozenset[str],
) -> Summary:
    """The summary with a row for every planned case of generation."""
    if not plan.generations:
        return summary
    records = results.of_generation
    needs = generation_needs(plan)
    exports = read_generation_exports(plan, [*needs], results, None)
    for name in exports.intact:
        store.load(results.export(needs[name].slug).generation, GenerationExport, "make export", sums)
    for name, why in exports.absent.items():
        notes.other.append(f"{name} was not exported for generation. {why.problem} {why.hint}")

    def load(case_id: str, round_number: int) -> Generated | Failed | None:
        try:
            record = store.load_generated(records.raw_file(case_id, round_number), sums)
        except MissingInputError:
            return None
        return store.portable_failure(record) if isinstance(record, Failed) else record

    def load_usage(case_id: str, round_number: int) -> Usage | None:
        try:
            return store.load(records.usage_file(case_id, round_number), Usage, "make generate", sums)
        except MissingInputError:
            return None

    source = GenerationSource(
        plan=plan,
        exports=exports.intact,
        absent={name: why.problem for name, why in exports.absent.items()},
        environments=environments,
        calibration=calibration,
        roof=load_roof(plan, results, notes, sums),
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


def load_before(results: Results) -> Summary | None:
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
    had: list[AnyRow] = [*_every(before), *before.loads]
    has: list[AnyRow] = [*_every(now), *now.loads]
    measured = {_id_of(row) for row in had if row.status == "measured"}
    return [row for row in has if _id_of(row) in measured and row.status == "missing"]


def _id_of(row: AnyRow) -> str:
    return row.load_id if isinstance(row, LoadRow) else row.case_id


def _every(summary: Summary) -> list[Row | GenerationRow]:
    """Rows of `run` and of `generate`."""
    return [*summary.rows, *summary.generations]


def _in_words(lost: Sequence[AnyRow], before: Summary | None, results: Results) -> tuple[str, str]:
    """(problem, hint)"""
    had: list[AnyRow] = [*_every(before), *before.loads] if before else []
    measured = sum(row.status == "measured" for row in had)
    if isinstance(before, PackedSummary):
        measured += sum(group.measured for group in before.row_groups)
    again = "make load" if all(isinstance(row, LoadRow) for row in lost) else "make run"
    return (
        f"{results.summary} has {measured} measured rows, and {len(lost)} of them would be missing now, as "
        f"{_id_of(lost[0])}: {lost[0].reason}. It was left as it is.",
        f"Measure them again: `{again}`; or give them up: `make aggregate FORCE=1`.",
    )


def load_exports(
    plan: Plan,
    results: Results,
    models: Models,
    notes: Notes,
    sums: dict[Path, str] | None = None,
    before: Summary | None = None,
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
                notes.other.append(f"{planned.name} was not exported. {failure.problem} {failure.hint}")
            exports[planned.slug] = read_export_record(plan, planned, files, sums if own else None)
        except (FormatError, MissingInputError) as error:
            problems[planned.slug] = error
            if not files.failure.is_file():
                notes.other.append(f"{error.problem} {error.hint}")
    unexplained = [error for slug, error in problems.items() if slug not in failed]
    if unexplained and not exports:
        raise unexplained[0]
    return exports, {slug: error.problem for slug, error in problems.items()}


def load_environments(results: Results, notes: Notes, sums: dict[Path, str]) -> dict[str, Environment]:
    """Environment records by id; unreadable files go into the notes."""
    environments: dict[str, Environment] = {}
    for path in sorted(results.environments.glob("*.json")):
        try:
            environments[path.stem] = store.load(path, Environment, "make run", sums)
        except FormatError as error:
            notes.other.append(f"{error.problem} {error.hint}")
    return environments


def load_roof(plan: Plan, results: Results, notes: Notes, sums: dict[Path, str]) -> Roof | CpuRoof | None:
    """The measured limits of the plan's device; None where they were not measured. Damaged files go into the notes."""
    if not results.roof.is_file():
        return None
    try:
        if plan.device == "cuda":
            return store.load(results.roof, Roof, "make roof", sums)
        return store.load(results.roof, CpuRoof, "make roof", sums)
    except FormatError as error:
        notes.other.append(f"{error.problem} {error.hint}")
        return None


def load_energies(plan: Plan, results: Results, notes: Notes, sums: dict[Path, str]) -> dict[str, Energy]:
    """Results of the energy pass with this plan's settings, by case id; damaged files go into the notes."""
    energies: dict[str, Energy] = {}
    case_ids = [*(case.case_id for case in plan.cases), *(case.case_id for case in plan.generations)]
    for case_id, path in _existing(results.energy_file, case_ids):
        try:
            energy = store.load(path, Energy, "make energy", sums)
        except FormatError as error:
            notes.other.append(f"{error.problem} {error.hint}")
            continue
        if energy.case_id != case_id:
            notes.other.append(f"{path} holds the energy of {energy.case_id}: it was moved or copied. It was left out.")
        elif energy.settings_id == plan.settings_id:
            energies[case_id] = energy
    return energies


def load_loads(
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
    calibration = _calibration()
    kinds = {model.slug: model.kind for model in plan.models}
    for load in plan.loads:
        files, first = results.load(load.load_id), list[Environment]()

        def comparable(record: LoadBase, first: list[Environment] = first) -> bool:
            """Of the machine and libraries of the service times, which are read first."""
            there = environments.get(record.environment_id or "")
            first += [there] if there is not None and not first else []
            return there is not None and not differing_facts(there, first[0])

        export = exports.get(load.slug)
        foreign = foreign_file_check(load, export, engines.get(load.slug, ()), results.export(load.slug), sums)
        state = read_load_state(load, files, plan.settings_id, comparable, sums, foreign)
        notes.other += state.notes
        failure = _optional(files.failure, LoadFailure, notes, sums)
        energy = _optional(files.energy, LoadEnergy, notes, sums)
        if energy is not None and (energy.settings_id, energy.load_sha256) != (
            plan.settings_id,
            replication_digest(load),
        ):
            energy = None
        criteria, evidence = checks_for(plan, load, export, calibration), load_evidence(state, failure, energy)
        rows.append(load_row(load, kinds[load.slug], criteria, evidence))
    return tuple(rows)


def load_copies(plan: Plan, results: Results, notes: Notes, sums: dict[Path, str]) -> dict[str, Copies]:
    """Cases that ran on all devices at once, with this plan's settings, by case id; damaged files go into the notes."""
    by_case: dict[str, Copies] = {}
    for case_id, path in _existing(results.copies, [case.case_id for case in plan.cases]):
        try:
            copies = store.load(path, Copies, "make run LAYOUT=copies", sums)
        except FormatError as error:
            notes.other.append(f"{error.problem} {error.hint}")
            continue
        if copies.case_id != case_id:
            notes.other.append(f"{path} holds the case {copies.case_id}: it was moved or copied. It was left out.")
        elif copies.settings_id == plan.settings_id:
            by_case[case_id] = copies
    return by_case


def _existing(path_of: Callable[[str], Path], case_ids: Sequence[str]) -> list[tuple[str, Path]]:
    """The cases that have a file of their own in a folder, which is listed once: few of many cases have one."""
    names = {path.name for path in path_of("").parent.glob("*") if path.is_file()}
    return [(case_id, path) for case_id in case_ids if names and (path := path_of(case_id)).name in names]


def environments_of_slots(
    results: Results, copies: Mapping[str, Copies], notes: Notes, sums: dict[Path, str]
) -> dict[str, Environment]:
    """The environments of the samples on all devices, by id."""
    slots = max((len(case_copies.slots) for case_copies in copies.values()), default=0)
    environments: dict[str, Environment] = {}
    for place in range(slots):
        environments |= load_environments(results.copies_of(place), notes, sums)
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


def load_neighbours(plan: Plan, results: Results, notes: Notes, sums: dict[Path, str]) -> NeighbourCheck | None:
    """The check of rows that were spread over devices; None where they were not, or with other settings."""
    if not results.neighbours.is_file():
        return None
    try:
        check = store.load(results.neighbours, NeighbourCheck, "make run LAYOUT=cases", sums)
    except FormatError as error:
        notes.other.append(f"{error.problem} {error.hint}")
        return None
    return check if check.settings_id == plan.settings_id else None


R = TypeVar("R", bound=LoadBase)


def _optional(path: Path, kind: type[R], notes: Notes, sums: dict[Path, str]) -> R | None:
    """A record of load; None where there is none, or where it is damaged, which goes into the notes."""
    if not path.is_file():
        return None
    try:
        return store.load(path, kind, "make load", sums)
    except FormatError as error:
        notes.other.append(f"{error.problem} {error.hint}")
        return None


def _say(summary: Summary, results: Results) -> None:
    every = _every(summary)
    counts = Counter(row.status for row in every)
    if isinstance(summary, PackedSummary):
        measured, rows = (sum(getattr(group, name) for group in summary.row_groups) for name in ("measured", "rows"))
        said = f"{measured:,} measured, {rows - measured:,} without a figure"
        cli.say(f"{results.summary}: {rows:,} rows in {results.packed_rows.name}, {said}.")
    parts = [f"{counts[status]} {status}" for status in ("measured", "skipped", "failed", "missing") if counts[status]]
    if every or not (summary.loads or isinstance(summary, PackedSummary)):
        cli.say(f"{results.summary}: {units.count(len(every), 'row')}, {', '.join(parts) or 'none'}.")
    if summary.loads:
        done = sum(row.status == "measured" for row in summary.loads)
        cli.say(f"{results.summary}: {units.count(len(summary.loads), 'load case')}, {done} measured.")
    for note in summary.notes:
        cli.warn(note)


if __name__ == "__main__":
    cli.main(stage)
