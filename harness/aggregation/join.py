"""The plan and its raw records → the summary (pure: functions that read records are passed in).

Records are loaded by blocks of cases and dropped after their drafts are made, so memory does not grow with them.
All drafts together give the comparisons with the limits and with other rows; then each row is built, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from harness.aggregation import admission, roofline
from harness.aggregation.across_rows import row_contexts
from harness.aggregation.admission import Copied, References
from harness.aggregation.flags import Criteria
from harness.aggregation.row import (
    CaseRecords,
    Draft,
    build_row,
    draft_of,
    with_figures,
)
from harness.aggregation.usage import timed_usage
from harness.core.errors import FormatError, InferometerError, StorageError
from harness.core.schemas import (
    Case,
    CpuRoof,
    EngineRecord,
    Environment,
    ExportRecord,
    Failed,
    LoadCase,
    Measured,
    Plan,
    Roof,
    Row,
    Summary,
    Usage,
    UsageSummary,
)

BLOCK = 80_000
"""Samples in memory at once, with those of the case that reaches the number: a call of NumPy on as many costs little
more than on those of one case."""

LEAST = 600
"""Samples that a case counts as at least: its records take memory too."""

MAX_NAMED = 20
"""Damaged files that the notes name individually; a thousand names would hide the other notes."""


@dataclass
class Notes:
    """Omissions and their reasons: records with the same reason count together, damaged files are named.

    named: the problem with a file, which begins with its path → the same with the file's name in a summary.
    """

    named: Callable[[str], str] = str
    other: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    reasons: dict[str, list[str]] = field(default_factory=dict)
    unwatched: dict[str, list[str]] = field(default_factory=dict)

    def add(self, later: Notes) -> None:
        """Add the notes about another part of the run."""
        self.other += [line for line in later.other if line not in self.other]
        self.damaged += later.damaged
        for present, added in ((self.reasons, later.reasons), (self.unwatched, later.unwatched)):
            for reason, names in added.items():
                present.setdefault(reason, []).extend(names)

    def note_file(self, error: InferometerError) -> None:
        """Remember one file that exists and cannot be used."""
        self.other.append(f"{self.named(error.problem)} {error.hint}")

    def leave_out(self, case_id: str, round_number: int, reason: str) -> None:
        """Remember one record that exists and must not be used."""
        self.reasons.setdefault(reason, []).append(f"{case_id}/{round_number}")

    def note_unwatched(self, case_id: str, round_number: int, reason: str) -> None:
        """Remember one record whose usage is unknown."""
        self.unwatched.setdefault(reason, []).append(f"{case_id}/{round_number}")

    def lines(self) -> tuple[str, ...]:
        """Everything that a reader of the summary has to know, one line each."""
        lines = [*self.other, *self.damaged[:MAX_NAMED]]
        if len(self.damaged) > MAX_NAMED:
            lines.append(f"… and {len(self.damaged) - MAX_NAMED} more damaged files.")
        for reason, names in self.reasons.items():
            lines.append(f"{_record_count(names)} left out ({_names_text(names)}): {reason}.")
        for reason, names in self.unwatched.items():
            lines.append(
                f"{_record_count(names)} kept although the machine's load is unknown ({_names_text(names)}): {reason}."
            )
        return tuple(lines)


def _record_count(names: Sequence[str]) -> str:
    return "1 record" if len(names) == 1 else f"{len(names)} records"


def _names_text(names: Sequence[str]) -> str:
    return f"{names[0]}{', …' if len(names) > 1 else ''}"


LoadUsage = Callable[[str, int], Usage | None]
"""(case id, round) → the monitor's record; raises as ReadRecord does."""


def with_usage(
    records: CaseRecords, load_usage: LoadUsage, environments: Mapping[str, Environment], notes: Notes
) -> CaseRecords:
    """The records, each with the monitor's summary or why there is none.

    Without the monitor's file no sample is left out; a flag (UNWATCHED) then lowers the row's grade, so that deleting a
    file never improves it.
    """
    if not records.measured:
        return records
    usage: dict[int, UsageSummary] = {}
    unwatched: dict[int, str] = {}
    for record in records.measured:
        usage_or_reason = _usage(record, load_usage)
        window = timed_usage(usage_or_reason) if isinstance(usage_or_reason, Usage) else None
        if window is not None:
            usage[record.round] = window
            continue
        unwatched[record.round] = (
            usage_or_reason if isinstance(usage_or_reason, str) else "the case ended before the monitor saw it timed"
        )
        notes.note_unwatched(record.case_id, record.round, unwatched[record.round])
    where = environments.get(records.measured[0].environment_id or "")
    return replace(records, usage=usage, unwatched=unwatched, environment=where)


def _usage(record: Measured, load_usage: LoadUsage) -> Usage | str:
    """The monitor's record of a process, or why there is none."""
    try:
        usage = load_usage(record.case_id, record.round)
    except (FormatError, StorageError) as error:
        return error.problem.removesuffix(".")
    if usage is None:
        return "the monitor left no usage record"
    return admission.foreign_usage(usage, record) or usage


ReadRecord = Callable[[str, int], Measured | Failed | None]
"""(case id, round) → the record, None where there is none; raises FormatError or StorageError where it is unusable."""


def join(
    plan: Plan,
    exports: Mapping[str, ExportRecord],
    environments: Mapping[str, Environment],
    load: ReadRecord,
    load_usage: LoadUsage,
    *,
    calibration: frozenset[str],
    notes: Notes,
    created_at: str,
    engines: Mapping[str, Sequence[EngineRecord]] = MappingProxyType({}),
    roof: Roof | CpuRoof | None = None,
    absent: Mapping[str, str] = MappingProxyType({}),
    by_shape: bool = False,
    agreed: References | None = None,
) -> Summary:
    """A row for every planned case, in plan order.

    exports, engines: by slug. environments: by id. calibration: names of backends that compute nothing. notes: files
    already known to be unusable; this function adds what it leaves out. roof: limits of the device, if measured.
    absent: by slug, why there is no export to compare the records with. by_shape: the cases of one model were spread
    over devices (admission.References). agreed: `references` of a whole plan, where this is a part of it.
    """
    agreed = references(plan, environments, load, by_shape) if agreed is None else agreed
    artifacts = {slug: admission.known_artifacts(export, engines.get(slug, ())) for slug, export in exports.items()}
    kinds = {model.slug: model.kind for model in plan.models}
    drafts: list[Draft] = []
    copies = Copied()
    used: set[str] = set()
    started: list[str] = []

    def records_of(case: Case) -> CaseRecords:
        known = artifacts.get(case.slug, absent.get(case.slug))
        records = _records(
            plan, case, load, artifacts=known, machine=(environments, agreed), notes=notes, copies=copies
        )
        return with_usage(records, load_usage, environments, notes)

    for block in _blocks(plan.cases, records_of):
        for case, records in with_figures(block):
            checks = checks_for(plan, case, exports.get(case.slug), calibration)
            drafts.append(draft_of(case, kinds[case.slug], records, plan.measurement, checks))
            used.update(record.environment_id for record in records.measured if record.environment_id)
            started += [record.started_at for record in records.measured]
    blank = blank_summary(plan, exports, created_at)
    roof = _roof_of_device(roof, [environments[identity] for identity in used], notes)
    around = row_contexts(drafts, plan.cases, blank.exports, roof, plan.report.baseline_backend)
    rows = tuple(map(build_row, drafts, around))
    return blank.model_copy(
        update={
            "measured_from": min(started, default=None),
            "measured_to": max(started, default=None),
            "environments": {identity: environments[identity] for identity in sorted(used)},
            "engines": _loaded_engines(rows, blank.exports, engines),
            "roof": roof,
            "notes": notes.lines(),
            "rows": rows,
        }
    )


def _blocks(
    cases: Iterable[Case], records_of: Callable[[Case], CaseRecords]
) -> Iterator[list[tuple[Case, CaseRecords]]]:
    """Cases with their records, as many at a time as have BLOCK samples together."""
    block, size = list[tuple[Case, CaseRecords]](), 0
    for case in cases:
        block.append((case, records_of(case)))
        size += max(LEAST, sum(len(record.latency_ns) for record in block[-1][1].measured))
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def blank_summary(plan: Plan, exports: Mapping[str, ExportRecord], created_at: str) -> Summary:
    """A summary of the plan without anything measured."""
    return Summary(
        plan_id=plan.plan_id,
        settings_id=plan.settings_id,
        config=plan.config,
        config_sha256=plan.config_sha256,
        title=plan.report.title,
        baseline_backend=plan.report.baseline_backend,
        latency_limit_ms=plan.report.latency_limit_ms,
        charts=plan.report.charts,
        created_at=created_at,
        measured_from=None,
        measured_to=None,
        environments={},
        rounds=plan.measurement.rounds,
        exports={model.name: exports[model.slug] for model in plan.models if model.slug in exports},
        notes=(),
        rows=(),
    )


def _roof_of_device(roof: Roof | CpuRoof | None, used: Iterable[Environment], notes: Notes) -> Roof | CpuRoof | None:
    """The limits; None where they are of another device than the samples."""
    reason = roofline.other_device(roof, used) if roof else None
    if reason is not None:
        notes.other.append(reason)
    return None if reason else roof


def _loaded_engines(
    rows: Iterable[Row], exports: Mapping[str, ExportRecord], engines: Mapping[str, Sequence[EngineRecord]]
) -> dict[str, EngineRecord]:
    """The engines among the files that rows loaded, by the model's slug and the file's path."""
    loaded = {(exports[row.model].slug, path) for row in rows if row.model in exports for path in row.artifacts}
    return {
        f"{slug}/{record.engine.path}": record
        for slug, records in engines.items()
        for record in records
        if (slug, record.engine.path) in loaded
    }


def checks_for(plan: Plan, case: Case | LoadCase, export: ExportRecord | None, calibration: frozenset[str]) -> Criteria:
    """The criteria for the row of a case."""
    sets = () if export is None else export.input_sets
    return Criteria(
        tolerance=plan.tolerance(case.model, case.precision),
        # Near-tied logits of random weights flip by rounding alone: their arg-max means nothing.
        judge_top1=export is not None and export.classifier and case.weights != "seeded",
        target_ci=plan.measurement.target_ci,
        calibration=case.backend in calibration,
        exchanged=next((made.exchanged for made in sets if made.sequence_length == case.sequence_length), None),
    )


def _records(
    plan: Plan,
    case: Case,
    load: ReadRecord,
    *,
    artifacts: Mapping[str, str] | str | None,
    machine: tuple[Mapping[str, Environment], References],
    notes: Notes,
    copies: Copied,
) -> CaseRecords:
    measured: list[Measured] = []
    failed: list[Failed] = []
    left_out: list[tuple[int, str]] = []
    damaged: list[tuple[int, str]] = []
    for number, content in _rounds(plan, case, load):
        if isinstance(content, str):
            damaged.append((number, content))
            notes.damaged.append(content)
            continue
        reason = admission.foreign_record(content, plan.settings_id, case.case_id, number) or (
            _unmeasured(content, case, copies) or _foreign(content, case, artifacts, *machine)
            if isinstance(content, Measured)
            else None
        )
        if reason is not None:
            left_out.append((number, reason))
            notes.leave_out(case.case_id, number, reason)
        elif isinstance(content, Measured):
            measured.append(content)
        else:
            failed.append(content)
    return CaseRecords(tuple(measured), tuple(failed), tuple(left_out), tuple(damaged))


def _rounds(plan: Plan, case: Case, load: ReadRecord) -> Iterator[tuple[int, Measured | Failed | str]]:
    """(round, record or the problem with its file) of the rounds that the plan admits and that left a file."""
    if case.skip_reason is not None:
        return
    for number in range(1, max(plan.measurement.rounds, plan.measurement.max_rounds or 0) + 1):
        try:
            record = load(case.case_id, number)
        except (FormatError, StorageError) as error:
            yield number, error.problem
        else:
            if record is not None:
                yield number, record


def _unmeasured(record: Measured, case: Case, copies: Copied) -> str | None:
    """Why a record cannot be what its process measured."""
    if case.mode != "offline" and not record.latency_ns:
        return f"it has no samples, which {case.mode} mode has"
    if record.parity_timed is not None and not record.artifacts:
        return "it names no file that it loaded"
    return copies.of(record)


def _foreign(
    record: Measured,
    case: Case,
    artifacts: Mapping[str, str] | str | None,
    environments: Mapping[str, Environment],
    agreed: References,
) -> str | None:
    if isinstance(artifacts, str | None):
        if record.artifacts:
            return f"unknown what was measured: {(artifacts or 'there is no export').rstrip('.')}"
        artifacts = {}
    return admission.foreign_artifact(record, artifacts) or admission.foreign_machine(
        record.environment_id, case, environments, agreed
    )


def references(plan: Plan, environments: Mapping[str, Environment], load: ReadRecord, by_shape: bool) -> References:
    """The environments that records must agree with."""
    if admission.all_agree(environments):
        return References()
    used = [
        (case, record.environment_id, record.started_at)
        for case in sorted(plan.cases, key=lambda case: case.slug)  # the samples of a model are in one file
        for _, record in _rounds(plan, case, load)
        if isinstance(record, Measured) and record.settings_id == plan.settings_id and record.environment_id
    ]
    return admission.references(used, environments, by_shape)
