"""Live progress of a run: its plan compared with the records on disk (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import mean, median
from typing import Literal, TypeAlias

from pydantic import Field

from harness.aggregation.across_rows import slower_settings
from harness.aggregation.batch_times import batch_ns
from harness.core.schemas import (
    Case,
    Exporting,
    Failed,
    Generated,
    GenerationCase,
    LoadCase,
    Measured,
    Plan,
    Record,
    Running,
    Tolerance,
    Usage,
)
from harness.core.text import short_names
from harness.core.timestamps import seconds_between
from harness.serving.load_case import planned_points
from harness.statistics import estimators

TurnCase: TypeAlias = Case | GenerationCase
"""What is measured in rounds."""
Took = Mapping[tuple[str, int], float | None]
"""(case id, round) → seconds; None where no monitor watched."""


def expected_s(cases: Sequence[TurnCase], took: Took) -> dict[str, float]:
    """Expected seconds of a turn of each case, by case id; empty while no turn is known.

    Median of the nearest known turns: of the case, else of its model in its backend, of its backend, of the run.
    """
    known: dict[tuple[str, ...], list[float]] = {}
    by_id = {case.case_id: case for case in cases}
    for (name, _), seconds in took.items():
        if seconds is not None and name in by_id:
            for key in _keys(by_id[name]):
                known.setdefault(key, []).append(seconds)
    return {case.case_id: median(next(known[key] for key in _keys(case) if key in known)) for case in cases if known}


def left_s(
    run: Running, pending: Sequence[tuple[TurnCase, int]], expected: Mapping[str, float], now: str
) -> float | None:
    """Seconds until a run ends; None while no turn is known. Further rounds that the run may still add do not count.

    pending: pending turns, which have no result. Where a run measures existing results again, or where tuning will drop
    some turns, its number of turns differs; each turn is then assumed to take the average time.
    """
    if not expected:
        return None
    between = all((case.case_id, number) != (run.case_id, run.round) for case, number in pending)
    count = run.turns - run.done - between
    own = [expected[case.case_id] for case, _ in pending]
    total = sum(own) if count == len(own) else count * mean(expected.values())
    current = 0.0 if between else min(seconds_between(run.since, now), expected.get(run.case_id, 0.0))
    return max(0.0, total - max(0.0, current))


def _keys(case: TurnCase) -> tuple[tuple[str, ...], ...]:
    return ((case.case_id,), (case.model, case.backend), ("", case.backend), ())


class TurnMachine(Record):
    """Clock, temperature and power at the end of a turn; None where the machine does not report them."""

    of: Literal["GPU", "CPU"]
    mhz: float | None
    temperature_c: float | None
    power_w: float | None = None
    held_back: tuple[str, ...] = ()
    """Why a GPU's clock was reduced, by NVML's names."""


class EndedTurn(Record):
    """A turn that has ended."""

    case_id: str
    round: int
    started_at: str
    environment_id: str | None
    threads: int | None
    median_ns: float | None
    failure: str | None
    remarks: tuple[str, ...]
    unsound: bool
    """Whether outputs differ from the reference by more than the tolerance."""
    seconds: float | None
    """Duration of the process; None where no monitor watched it."""
    seen: TurnMachine | None


def ended_turn(record: Measured | Generated | Failed, usage: Usage | None, tolerance: Tolerance | None) -> EndedTurn:
    """A record without its samples. tolerance: for its outputs."""
    measured = record if isinstance(record, Measured) else None
    unsound = measured is not None and _is_unsound(measured, tolerance)
    return EndedTurn(
        case_id=record.case_id,
        round=record.round,
        started_at=record.started_at,
        environment_id=record.environment_id,
        threads=None if isinstance(record, Failed) else record.threads,
        median_ns=_median_ns(record),
        failure=f"failed in {record.phase}: {record.error}" if isinstance(record, Failed) else None,
        remarks=() if isinstance(record, Failed) else _remarks(record, unsound),
        unsound=unsound,
        seconds=usage.watched_ns / 1e9 if usage else None,
        seen=_machine_at_end(usage),
    )


def _median_ns(record: Measured | Generated | Failed) -> float | None:
    """Median time of a batch; of generation, of a step of the decoder."""
    if isinstance(record, Failed):
        return None
    return batch_ns(record) if isinstance(record, Measured) else estimators.median(record.latency_ns)


def _remarks(record: Measured | Generated, unsound: bool) -> tuple[str, ...]:
    remarks = ["void: outputs too far from the reference"] if unsound else []
    remarks += [] if record.steady else ["not steady"]
    remarks += [] if record.stop in ("converged", "requests") else [f"stopped at the {record.stop}"]
    return tuple(remarks)


def _is_unsound(record: Measured, tolerance: Tolerance | None) -> bool:
    distance = record.parity_before
    return bool(tolerance and distance and (distance.furthest is None or distance.furthest > tolerance.relative_l2))


def _machine_at_end(usage: Usage | None) -> TurnMachine | None:
    last = None if usage is None else usage.last
    if last is None:
        return None
    if gpu := last.gpu:
        return TurnMachine(
            of="GPU",
            mhz=gpu.sm_mhz,
            temperature_c=gpu.temperature_c,
            power_w=gpu.power_w,
            held_back=gpu.reasons,
        )
    if last.frequency_mhz is None and last.temperature_c is None:
        return None
    return TurnMachine(of="CPU", mhz=last.frequency_mhz, temperature_c=last.temperature_c)


RunState = Literal["waiting", "exporting", "running", "stopped", "complete"]
"""`waiting`: nothing was measured yet; `exporting`: an export is at work and no run is; `stopped`: no run is at work
and some turns have no result."""
RowState = Literal["skipped", "waiting", "running", "partly", "done", "failed", "beaten"]
"""`beaten`: another setting of the backend was faster in round 1, so this setting gets no further rounds."""


class Turning(Record):
    """A turn that is being measured."""

    case_id: str
    round: int
    seconds: float
    """Since it began."""
    lives: bool | None
    """False: its run has ended without removing this file; None: unknown, as it is in another container or machine."""


class ModelExport(Record):
    """A model that is being exported."""

    model: str
    number: int
    """Counted from 1."""
    models: int
    seconds: float
    """Since it began."""
    lives: bool | None
    """As in Turning."""


class LoadSeen(Record):
    """The valid records of a load case. peak_per_s: predicted; replications: their numbers by the name of the point."""

    served: bool = False
    """Whether its service times are measured."""
    predicted: bool = False
    peak_per_s: float | None = None
    replications: Mapping[str, tuple[int, ...]] = Field(default_factory=dict)
    failure: str | None = None


class CaseProgress(Record):
    """Progress of one case. Medians and range are over processes, in ns. Turns of a load case are replications."""

    case_id: str
    model: str
    backend: str
    precision: str
    batch_size: int
    sequence_length: int | None
    way: str
    """Setting, boundary and mode where they are not the usual ones; else empty. Of a load case scenario and policy."""
    turn: Literal["round", "replication"] = "round"
    state: RowState
    done: int
    planned: int
    measured: int
    """Turns with a median."""
    median_ns: float | None
    low_ns: float | None
    high_ns: float | None
    remarks: tuple[str, ...]


class Progress(Record):
    """Everything that a view shows. done, planned: turns, including further rounds that were measured."""

    plan_id: str
    config: str
    device: str
    state: RunState
    command: str
    """That measures what has no result yet."""
    done: int
    planned: int
    failed: int
    run_done: int | None
    """Of the run at work, which may measure existing results again; None unless exactly one run is at work."""
    run_turns: int | None
    elapsed_s: float | None
    left_s: float | None
    """None while unknown."""
    turning: tuple[Turning, ...]
    exporting: tuple[ModelExport, ...] = ()
    conditions: str
    """Machine, threads and libraries of the results; empty before the first."""
    seen: TurnMachine | None
    """At the end of the last turn."""
    rows: tuple[CaseProgress, ...]
    notes: tuple[str, ...]


LiveRun = tuple[Running, bool | None]
"""A run's file, and whether the run is alive; None where that is unknown."""
LiveExport = tuple[Exporting, bool | None]
"""The same for an export."""


def progress(
    plan: Plan,
    answers: Iterable[EndedTurn],
    runs: Sequence[LiveRun],
    now: str,
    conditions: str = "",
    notes: Sequence[str] = (),
    exports: Sequence[LiveExport] = (),
    loads: Mapping[str, LoadSeen] | None = None,
    memory: dict[str, ModelProgress] | None = None,
) -> Progress:
    """The progress of a run. now: ISO 8601. loads: the present records of the load cases, by load_id.

    memory: of earlier looks at this plan, by model: what has not changed since is not made again.
    """
    every_case: list[TurnCase] = [*plan.cases, *plan.generations]
    alive = [run for run, lives in runs if lives is not False]
    names = dict.fromkeys([*(case.model for case in every_case), *(load.model for load in plan.loads)])
    short, at_work = short_names(names), {run.case_id for run in alive}
    models = _models_progress(
        every_case, answers, plan.measurement.rounds, at_work, short, {} if memory is None else memory
    )
    ordered = {row.case_id: row for model in models for row in model.rows}
    rows = tuple(ordered[case.case_id] for case in every_case)
    seen = loads or {}
    of_loads = (_load_row(load, seen.get(load.load_id, LoadSeen()), load.load_id in at_work) for load in plan.loads)
    rows += tuple(row.model_copy(update={"model": short[row.model]}) for row in of_loads)
    pending = [turn for model in models for turn in model.pending]
    latest = [model.latest for model in models if model.latest is not None]
    current = alive[0] if len(alive) == 1 else None
    left = None
    if current:
        runnable = [case for case in every_case if case.skip_reason is None]
        took = {key: seconds for model in models for key, seconds in model.took.items()}
        left = _left_s(current, plan, pending, expected_s(runnable, took), now)
    begun = bool(latest) or bool(runs) or any(load.served for load in seen.values())
    owing = bool(pending) or any(row.state in ("waiting", "partly") for row in rows)
    exporting = any(lives is not False for _, lives in exports)
    return Progress(
        plan_id=plan.plan_id,
        config=plan.config,
        device=plan.device,
        state=_state(bool(alive), exporting, begun, owing),
        command=_command(plan, rows),
        done=sum(row.done for row in rows),
        planned=sum(row.planned for row in rows),
        failed=sum(model.failed for model in models) + sum(bool(load.failure) for load in seen.values()),
        run_done=current.done if current else None,
        run_turns=current.turns if current else None,
        elapsed_s=max(0.0, seconds_between(current.started_at, now)) if current else None,
        left_s=left,
        turning=tuple(_turning(run, lives, now) for run, lives in runs),
        # Once there are measurements, an export that ended badly is no longer shown.
        exporting=tuple(_exporting(model, lives, now) for model, lives in exports if lives is not False or not begun),
        conditions=conditions,
        seen=max(latest, key=lambda answer: answer.started_at).seen if latest else None,
        rows=rows,
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class ModelProgress:
    """The part of one model in the progress. of: the results and cases at work that it was made of. latest: its last
    turn."""

    of: tuple[object, ...]
    rows: tuple[CaseProgress, ...]
    pending: tuple[tuple[TurnCase, int], ...]
    took: Took
    failed: int
    latest: EndedTurn | None


def _models_progress(
    cases: Sequence[TurnCase],
    answers: Iterable[EndedTurn],
    rounds: int,
    at_work: Set[str],
    short: Mapping[str, str],
    memory: dict[str, ModelProgress],
) -> list[ModelProgress]:
    """Each model, from the memory where its results are those of the look before."""
    planned: dict[str, list[TurnCase]] = {}
    for case in cases:
        planned.setdefault(case.model, []).append(case)
    model_of = {case.case_id: case.model for case in cases if case.skip_reason is None}
    own: dict[str, list[EndedTurn]] = {model: [] for model in planned}
    for answer in answers:
        if (model := model_of.get(answer.case_id)) is not None:
            own[model].append(answer)
    working: dict[str, list[str]] = {}
    for name in sorted(at_work & model_of.keys()):
        working.setdefault(model_of[name], []).append(name)
    for model, answered in own.items():
        of = (*answered, *working.get(model, ()))
        if model not in memory or memory[model].of != of:
            memory[model] = _model_progress(planned[model], answered, rounds, at_work, short[model], of)
    return [memory[model] for model in planned]


def _model_progress(
    cases: Sequence[TurnCase],
    answers: Sequence[EndedTurn],
    rounds: int,
    at_work: Set[str],
    name: str,
    of: tuple[object, ...],
) -> ModelProgress:
    runnable = [case for case in cases if case.skip_reason is None]
    turns: dict[str, dict[int, EndedTurn]] = {case.case_id: {} for case in runnable}
    for answer in answers:
        turns[answer.case_id][answer.round] = answer
    every = [answer for by_round in turns.values() for answer in by_round.values()]
    beaten = _beaten([case for case in runnable if isinstance(case, Case)], turns)
    made = (
        _row(case, turns.get(case.case_id, {}), rounds, case.case_id in at_work, case.case_id in beaten)
        for case in cases
    )
    return ModelProgress(
        of=of,
        rows=tuple(row if row.model == name else row.model_copy(update={"model": name}) for row in made),
        pending=tuple(
            (case, number)
            for case in runnable
            if case.case_id not in beaten
            for number in range(1, rounds + 1)
            if number not in turns[case.case_id]
        ),
        took={(answer.case_id, answer.round): answer.seconds for answer in every},
        failed=sum(answer.failure is not None for answer in every),
        latest=max(every, key=lambda answer: answer.started_at, default=None),
    )


def _command(plan: Plan, rows: Sequence[CaseProgress]) -> str:
    pending = {row.case_id for row in rows if row.state in ("waiting", "partly", "running")}
    if pending.isdisjoint(case.case_id for case in plan.cases):
        if not pending.isdisjoint(load.load_id for load in plan.loads):
            return "make load"
        if not pending.isdisjoint(case.case_id for case in plan.generations):
            return "make generate"
    return "make run"


def _left_s(
    run: Running, plan: Plan, pending: Sequence[tuple[TurnCase, int]], expected: Mapping[str, float], now: str
) -> float | None:
    """Seconds left of the stage that is at work; None for load, whose replications differ in length."""
    own = next(
        (cases for cases in (plan.cases, plan.generations) if run.case_id in {case.case_id for case in cases}), ()
    )
    names = {case.case_id for case in own}
    return left_s(run, [turn for turn in pending if turn[0].case_id in names], expected, now) if names else None


def _beaten(cases: Sequence[Case], turns: Mapping[str, Mapping[int, EndedTurn]]) -> frozenset[str]:
    medians = {
        name: {number: turn.median_ns for number, turn in rounds.items() if turn.median_ns is not None}
        for name, rounds in turns.items()
    }
    unsound = {name for name, rounds in turns.items() if any(turn.unsound for turn in rounds.values())}
    return slower_settings(cases, medians, unsound)


def _state(working: bool, exporting: bool, begun: bool, owing: bool) -> RunState:
    if working:
        return "running"
    if exporting:
        return "exporting"
    if not owing:
        return "complete"
    return "stopped" if begun else "waiting"


def _row(case: TurnCase, turns: Mapping[int, EndedTurn], rounds: int, at_work: bool, beaten: bool) -> CaseProgress:
    medians = [turn.median_ns for _, turn in sorted(turns.items()) if turn.median_ns is not None]
    planned = 0 if case.skip_reason else len(turns) if beaten else max(rounds, max(turns, default=0))
    return CaseProgress(
        case_id=case.case_id,
        model=case.model,
        backend=case.backend,
        precision=case.precision,
        batch_size=case.batch_size,
        sequence_length=case.sequence_length if isinstance(case, Case) else case.prompt_length,
        way=_way(case),
        state=_row_state(case, turns, planned, at_work, beaten),
        done=len(turns),
        planned=planned,
        measured=len(medians),
        median_ns=estimators.median(medians) if medians else None,
        low_ns=min(medians, default=None),
        high_ns=max(medians, default=None),
        remarks=(case.skip_reason,) if case.skip_reason else _remarks_by_round(turns),
    )


def _load_row(load: LoadCase, seen: LoadSeen, at_work: bool) -> CaseProgress:
    """The row of a load case. Before its peak is predicted, as many loads are planned as there will be where one meets
    the bound."""
    peak = seen.peak_per_s if seen.predicted else 1.0
    points = planned_points(load, peak)
    planned = 0 if load.skip_reason else len(points) * load.replications
    done = sum(len(numbers) for numbers in seen.replications.values())
    complete = seen.served and done >= planned and (seen.predicted or not load.replayed)
    state: RowState = "waiting"
    if load.skip_reason:
        state = "skipped"
    elif at_work:
        state = "running"
    elif seen.failure:
        state = "failed"
    elif complete:
        state = "done"
    elif seen.served:
        state = "partly"
    complete_points = sum(len(seen.replications.get(point.name, ())) >= load.replications for point in points)
    remarks = [f"{complete_points} of {len(points)} loads complete"] if planned and len(points) > 1 else []
    if seen.predicted:
        remarks.append(f"predicted peak {seen.peak_per_s:.4g}/s" if seen.peak_per_s else "no load meets the bound")
    remarks += [load.skip_reason or seen.failure or ""]
    return CaseProgress(
        case_id=load.load_id,
        model=load.model,
        backend=load.backend,
        precision=load.precision,
        batch_size=load.max_batch,
        sequence_length=load.sequence_length,
        way=_load_way(load),
        turn="replication",
        state=state,
        done=done,
        planned=planned,
        measured=0,
        median_ns=None,
        low_ns=None,
        high_ns=None,
        remarks=tuple(filter(None, remarks)),
    )


def _load_way(load: LoadCase) -> str:
    parts = [load.scenario, load.bounds_text, "" if load.setting == "default" else load.setting]
    parts += ["continuous batching"] if load.batching == "continuous" else []
    parts += [f"waits {load.max_delay_ns / 1e6:g} ms"] if load.max_delay_ns else []
    parts += [f"{load.in_flight} in flight"] if load.in_flight else []
    parts += [f"{load.workers} workers"] if load.workers > 1 and load.scenario != "concurrency" else []
    return " · ".join(filter(None, parts))


def _row_state(case: TurnCase, turns: Mapping[int, EndedTurn], planned: int, at_work: bool, beaten: bool) -> RowState:
    if case.skip_reason:
        return "skipped"
    if at_work:
        return "running"
    if any(turn.failure for turn in turns.values()):
        return "failed"
    if beaten:
        return "beaten"
    if not turns:
        return "waiting"
    return "done" if len(turns) >= planned else "partly"


def _remarks_by_round(turns: Mapping[int, EndedTurn]) -> tuple[str, ...]:
    """`round 2 failed in load: …`: each failure and remark once, with its rounds."""
    numbers: dict[str, list[int]] = {}
    for number, turn in sorted(turns.items()):
        for remark in (*([turn.failure] if turn.failure else []), *turn.remarks):
            numbers.setdefault(remark, []).append(number)
    return tuple(
        f"round{'s' if len(where) > 1 else ''} {', '.join(map(str, where))} {remark}"
        if len(where) < len(turns)
        else remark
        for remark, where in numbers.items()
    )


def _way(case: TurnCase) -> str:
    if isinstance(case, GenerationCase):
        return " · ".join([f"{case.new_tokens} tokens", *([] if case.setting == "default" else [case.setting])])
    usual = {"default", "compute", "sync"}
    return " · ".join(word for word in (case.setting, case.boundary, case.mode) if word not in usual)


def _turning(run: Running, lives: bool | None, now: str) -> Turning:
    return Turning(case_id=run.case_id, round=run.round, seconds=max(0.0, seconds_between(run.since, now)), lives=lives)


def _exporting(export: Exporting, lives: bool | None, now: str) -> ModelExport:
    seconds = max(0.0, seconds_between(export.since, now))
    return ModelExport(model=export.model, number=export.done + 1, models=export.models, seconds=seconds, lives=lives)
