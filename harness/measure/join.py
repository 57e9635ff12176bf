"""The plan and its raw records → the summary (pure: how a record is read is handed in).

Records are asked for case by case and dropped once a draft is made of them, so memory does not grow with their number.
What the limits and other rows show of each follows from all drafts; then each row is built, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from harness.core.errors import FormatError, StorageError
from harness.core.schemas import (
    Case,
    CpuRoof,
    EngineRecord,
    Environment,
    ExportRecord,
    Failed,
    Measured,
    Plan,
    Roof,
    Row,
    Summary,
)
from harness.measure import admission, roofline
from harness.measure.across import contexts
from harness.measure.admission import References
from harness.measure.grades import Checks
from harness.measure.notes import Notes
from harness.measure.summarise import CaseRecords, Draft, build_row, draft_of
from harness.measure.witness import LoadUsage, witnessed

Load = Callable[[str, int], Measured | Failed | None]
"""(case id, round) → the record, None where there is none; raises FormatError or StorageError where it is unusable."""


def join(
    plan: Plan,
    exports: Mapping[str, ExportRecord],
    environments: Mapping[str, Environment],
    load: Load,
    load_usage: LoadUsage,
    *,
    calibration: frozenset[str],
    notes: Notes,
    created_at: str,
    engines: Mapping[str, Sequence[EngineRecord]] = MappingProxyType({}),
    roof: Roof | CpuRoof | None = None,
    absent: Mapping[str, str] = MappingProxyType({}),
) -> Summary:
    """A row for every planned case, in plan order.

    exports, engines: by slug. environments: by id. calibration: names of backends that compute nothing. notes: what was
    already found unusable; what this function leaves out is added. roof: limits of the device, if they were measured.
    absent: by slug, why there is no export that the records could be held against.
    """
    agreed = _references(plan, environments, load)
    artifacts = {slug: admission.known_artifacts(export, engines.get(slug, ())) for slug, export in exports.items()}
    kinds = {model.slug: model.kind for model in plan.models}
    drafts: list[Draft] = []
    used: set[str] = set()
    started: list[str] = []
    for case in plan.cases:
        records = _records(
            plan,
            case,
            load,
            artifacts=artifacts.get(case.slug, absent.get(case.slug)),
            machine=(environments, agreed),
            notes=notes,
        )
        records = witnessed(records, load_usage, environments, notes)
        checks = checks_for(plan, case, exports.get(case.slug), calibration)
        drafts.append(draft_of(case, kinds[case.slug], records, plan.measurement, checks))
        used.update(record.environment_id for record in records.measured if record.environment_id)
        started += [record.started_at for record in records.measured]
    blank = blank_summary(plan, exports, created_at)
    roof = _own_roof(roof, [environments[identity] for identity in used], notes)
    around = contexts(drafts, plan.cases, blank.exports, roof, plan.report.baseline_backend)
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


def _own_roof(roof: Roof | CpuRoof | None, used: Iterable[Environment], notes: Notes) -> Roof | CpuRoof | None:
    """The limits, unless they are those of another device than the samples'."""
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


def checks_for(plan: Plan, case: Case, export: ExportRecord | None, calibration: frozenset[str]) -> Checks:
    """What the row of a case is judged against."""
    return Checks(
        gate=plan.gate(case.model, case.precision),
        # Near-tied logits of random weights flip on rounding alone: their arg-max says nothing.
        judge_top1=export is not None and export.classifier and case.weights != "seeded",
        target_ci=plan.measurement.target_ci,
        calibration=case.backend in calibration,
    )


def _records(
    plan: Plan,
    case: Case,
    load: Load,
    *,
    artifacts: Mapping[str, str] | str | None,
    machine: tuple[Mapping[str, Environment], References],
    notes: Notes,
) -> CaseRecords:
    measured: list[Measured] = []
    failed: list[Failed] = []
    left_out: list[tuple[int, str]] = []
    damaged: list[tuple[int, str]] = []
    for number, found in _rounds(plan, case, load):
        if isinstance(found, str):
            damaged.append((number, found))
            notes.damaged.append(found)
            continue
        reason = _refusal(found, plan.settings_id, case.case_id, number) or (
            _foreign(found, case, artifacts, *machine) if isinstance(found, Measured) else None
        )
        if reason is not None:
            left_out.append((number, reason))
            notes.leave_out(case.case_id, number, reason)
        elif isinstance(found, Measured):
            measured.append(found)
        else:
            failed.append(found)
    return CaseRecords(tuple(measured), tuple(failed), tuple(left_out), tuple(damaged))


def _rounds(plan: Plan, case: Case, load: Load) -> Iterator[tuple[int, Measured | Failed | str]]:
    """(round, record or the problem with its file) of the rounds that the plan admits and that left a file."""
    if case.skip_reason is not None:
        return
    for number in range(1, max(plan.measurement.rounds, plan.measurement.max_rounds or 0) + 1):
        try:
            found = load(case.case_id, number)
        except (FormatError, StorageError) as error:
            yield number, error.problem
        else:
            if found is not None:
                yield number, found


def _refusal(record: Measured | Failed, settings_id: str, case_id: str, number: int) -> str | None:
    if (record.case_id, record.round) != (case_id, number):
        return f"the file holds {record.case_id} round {record.round}: it was moved or copied"
    return admission.other_settings(record, settings_id)


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


def _references(plan: Plan, environments: Mapping[str, Environment], load: Load) -> References:
    """The environments that records must agree with."""
    if admission.all_agree(environments):
        return References()
    used = [
        (case, found.environment_id, found.started_at)
        for case in plan.cases
        for _, found in _rounds(plan, case, load)
        if isinstance(found, Measured) and found.settings_id == plan.settings_id and found.environment_id
    ]
    return admission.references(used, environments)
