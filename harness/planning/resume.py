"""The finished part of a run: turns with the same settings, case, artifacts, machine and libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from harness.aggregation import admission
from harness.aggregation.admission import foreign_file, foreign_service
from harness.aggregation.batch_times import batch_ns
from harness.aggregation.load_rows import LoadEvidence
from harness.backends import backend_info
from harness.core import store
from harness.core.errors import FormatError, InferometerError, MissingInputError, UsageError
from harness.core.host import environment
from harness.core.layout import ExportFiles, LoadFiles, Results
from harness.core.raw_files import RawFiles
from harness.core.schemas import (
    Case,
    EngineRecord,
    Environment,
    ExportRecord,
    Failed,
    Generated,
    GenerationExport,
    GenerationOptions,
    LoadBase,
    LoadCase,
    LoadEnergy,
    LoadFailure,
    Measured,
    Plan,
    Prediction,
    Replication,
    ServiceRun,
)
from harness.planning.schedule import GenerationTurn, Turn
from harness.serving.load_case import (
    LoadPoint,
    planned_points,
    prediction_digest,
    replication_digest,
    replication_schedule,
    requests_at_rate,
    service_digest,
)


def refuse_folder_of_ab(results: Results, stage: str) -> None:
    """Raise UsageError where `ab` wrote the folder, before a stage writes to it as if it were of one state: records
    would count as measured in turn, and another plan would leave those in turn without theirs."""
    if results.is_of_ab:
        raise UsageError(
            f"{results.root} has one of two states that were measured in turn, and `{stage}` is for one alone.",
            "`make ab FORCE=1` measures both again; or name another folder: RESULTS=<folder>.",
        )


@dataclass
class Finished:
    """Turns that need no new measurement (case id → round → process median in ns), and names of damaged files.

    unsound: ids of cases whose outputs are further from the reference than their tolerance allows.
    """

    plan: Plan | None = None
    medians: dict[str, dict[int, float]] = field(default_factory=dict)
    unsound: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def has(self, turn: Turn) -> bool:
        """Whether this turn is already measured."""
        number, case = turn
        return number in self.medians.get(case.case_id, {})

    def add(self, record: Measured, case: Case) -> None:
        """Add a measured record of a case."""
        self.medians.setdefault(record.case_id, {})[record.round] = batch_ns(record)
        tolerance = self.plan.tolerance(case.model, case.precision) if self.plan else None
        parity = record.parity_before
        if tolerance and parity and (parity.furthest is None or parity.furthest > tolerance.relative_l2):
            self.unsound.add(record.case_id)


def finished_turns(
    plan: Plan,
    turns: Sequence[Turn],
    exports: Mapping[str, ExportRecord],
    results: Results,
    elsewhere: frozenset[str] = frozenset(),
    engines: Mapping[str, Sequence[EngineRecord]] = MappingProxyType({}),
) -> Finished:
    """Read the raw files of the given turns. Failed turns are measured again; damaged files are named.

    exports, engines: by model name. elsewhere: backends whose libraries belong to another interpreter, so that the
    versions in this interpreter do not apply.
    """
    finished = Finished(plan)
    comparable = _comparable(plan, results, elsewhere)
    known = {model: admission.known_artifacts(export, engines.get(model, ())) for model, export in exports.items()}
    raw = RawFiles(results, plan.cases)
    places = {case.case_id: at for at, case in enumerate(plan.cases)}
    models = {slug: at for at, slug in enumerate(dict.fromkeys(case.slug for case in plan.cases))}

    def in_files(turn: Turn) -> tuple[int, int, int]:
        """Model by model: the samples of a model are in one file."""
        return models.get(turn[1].slug, 0), places.get(turn[1].case_id, 0), turn[0]

    for number, case in sorted(turns, key=in_files):
        try:
            record = raw.load(case.case_id, number)
        except MissingInputError:
            continue
        except FormatError as error:
            finished.notes.append(f"{error.problem} It is measured again.")
            continue
        if not isinstance(record, Measured) or record.settings_id != plan.settings_id:
            continue
        if (record.case_id, record.round) != (case.case_id, number):  # moved or copied: aggregate refuses it
            continue
        same = comparable(record.environment_id, case.backend)
        if same and admission.foreign_artifact(record, known.get(case.model, {})) is None:
            finished.add(record, case)
    return finished


def _comparable(plan: Plan, results: Results, elsewhere: frozenset[str]) -> Callable[[str | None, str], bool]:
    """(environment id, backend) → whether its samples are comparable with samples of this machine; read once each."""
    here = cache(partial(environment.collect, {}, plan.device))

    @cache
    def comparable(identity: str | None, backend: str) -> bool:
        return same_environment(identity, backend not in elsewhere, here(backend_info(backend).recorded), results)

    return comparable


def same_environment(identity: str | None, libraries: bool, here: Environment, results: Results) -> bool:
    """Whether samples of that environment are comparable with samples of the present environment."""
    if identity is None:
        return False
    try:
        there = store.load(results.environment(identity), Environment, "make run")
    except InferometerError:
        return False
    return not admission.differing_facts(there, here, libraries)


def same_machine_check(results: Results, here: Environment, libraries: bool = True) -> Callable[[LoadBase], bool]:
    """Whether a record is comparable with samples of the environment `here`. Each environment is read once."""

    @cache
    def is_same(identity: str | None) -> bool:
        return same_environment(identity, libraries, here, results)

    return lambda record: is_same(record.environment_id)


MADE_BY = "make load"

R = TypeVar("R", bound=LoadBase)

ForeignFileCheck = Callable[[ServiceRun], str | None]
"""Which loaded file is not of the present export; None where all are."""

Turns = list[tuple[LoadPoint, int]]
"""(point, number of the replication, from 1)."""


@dataclass
class LoadState:
    """The valid records of a load case. notes: damaged and old records, which are measured again."""

    service: ServiceRun | None = None
    service_sha256: str = ""
    prediction: Prediction | None = None
    points: tuple[LoadPoint, ...] = ()
    replications: dict[str, list[Replication]] = field(default_factory=dict)
    """By the name of the point."""
    missing: Turns = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    needs_replay: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing has to be measured."""
        return self.service is not None and not self.missing and (self.prediction is not None or not self.needs_replay)


def read_load_state(
    load: LoadCase,
    files: LoadFiles,
    settings_id: str,
    same_machine: Callable[[LoadBase], bool],
    sums: dict[Path, str] | None = None,
    foreign: ForeignFileCheck | None = None,
) -> LoadState:
    """Read the records of a load case. same_machine: whether a record is comparable with this machine's. sums: as in
    store.load, of every record that was read. foreign: checks the files against the current export; None where there is
    none, and the files are not judged."""
    state = LoadState(needs_replay=load.replayed)
    sums = {} if sums is None else sums

    def read(path: Path, kind: type[R], digest: str) -> R | None:
        if not path.is_file():
            return None
        try:
            record = store.load(path, kind, MADE_BY, sums)
        except FormatError as error:
            state.notes.append(f"{error.problem} It is measured again.")
            return None
        own = (record.load_id, record.settings_id, record.load_sha256) == (load.load_id, settings_id, digest)
        return record if own and same_machine(record) else None

    state.service = service = read(files.service, ServiceRun, service_digest(load))
    if service is None:
        return state
    if foreign is not None and (why := foreign(service)) is not None:
        state.notes.append(f"{load.load_id}: {why}. `make load` measures it again.")
        state.service = None
        return state
    state.service_sha256 = sums[files.service]
    if state.needs_replay:
        prediction = read(files.prediction, Prediction, prediction_digest(load))
        if prediction is None or prediction.service_sha256 != state.service_sha256:
            return state
        state.prediction = prediction
    state.points = planned_points(load, state.prediction.peak_per_s if state.prediction else None)
    _add_replications(state, load, files, service, lambda path: read(path, Replication, replication_digest(load)))
    return state


def _add_replications(
    state: LoadState,
    load: LoadCase,
    files: LoadFiles,
    service: ServiceRun,
    read: Callable[[Path], Replication | None],
) -> None:
    times: dict[int, Path] = {}
    for point, number in replication_turns(load, state.points):
        path = files.replication(point.name, number)
        replication = read(path)
        if replication is not None and is_replication_of(replication, load, point, number, service):
            if (why := _not_measured(replication, load, point, path, times)) is None:
                state.replications.setdefault(point.name, []).append(replication)
                continue
            state.notes.append(f"{path}: {why}. It is measured again.")
        state.missing.append((point, number))


def foreign_file_check(
    load: LoadCase,
    export: ExportRecord | None,
    engines: Sequence[EngineRecord],
    files: ExportFiles,
    sums: dict[Path, str] | None = None,
) -> ForeignFileCheck | None:
    """The check of service times against the present export of their model, or its export for generation; None where
    there is none. sums: as in store.load."""
    if load.new_tokens is None:
        return None if export is None else lambda service: foreign_service(service, export, engines)
    if not files.generation.is_file():
        return None
    try:
        known = admission.generation_files(store.load(files.generation, GenerationExport, "make export", sums))
    except FormatError as error:
        problem = error.problem.rstrip(".")
        return lambda _: problem
    return lambda service: foreign_file(service.artifacts, known)


def replication_turns(load: LoadCase, points: tuple[LoadPoint, ...]) -> Iterator[tuple[LoadPoint, int]]:
    """Every replication of every point. The points take turns, so that a drift is no difference between them."""
    for number in range(1, load.replications + 1):
        turned = (number - 1) % len(points) if points else 0
        for point in (*points[turned:], *points[:turned]):
            yield point, number


def is_replication_of(record: Replication, load: LoadCase, point: LoadPoint, number: int, service: ServiceRun) -> bool:
    """Whether a record is this replication, of the same files as the service times, with as many requests as asked.

    The number of requests at a rate follows from the bound, which is in no digest of a replication.
    """
    if point.rate_per_s is not None and record.requests != requests_at_rate(load, point.rate_per_s):
        return False
    return (record.point, record.number, record.artifacts_id) == (point.name, number, service.artifacts_id)


def _not_measured(
    record: Replication, load: LoadCase, point: LoadPoint, path: Path, times: dict[int, Path]
) -> str | None:
    """Why a record is not what a service did with the schedule of its seed, which every backend gets at this rate.
    times: by hash of the times of a replication, its file."""
    if (why := record.impossible) is not None:
        return why
    if point.rate_per_s and not _is_schedule(record.scheduled_ns, replication_schedule(load, point, record.seed)):
        return "its schedule is not that of its seed and rate"
    first = times.setdefault(hash((record.start_ns, record.done_ns)), path)
    return None if first == path else f"its times are those of {first.parent.name}/{first.name}: it was copied"


def _is_schedule(instants: Sequence[int], drawn: Sequence[int]) -> bool:
    # Another libm may move an instant by a nanosecond.
    return len(instants) == len(drawn) and np.allclose(instants, drawn, 1e-9, 10)


def load_evidence(
    state: LoadState, failure: LoadFailure | None = None, energy: LoadEnergy | None = None
) -> LoadEvidence:
    """The valid records of a load case as its row is made of them.

    failure: why the latest process of the case ended early, where it did; energy: of its replications.
    """
    return LoadEvidence(state.service, state.prediction, state.points, state.replications, failure, energy)


NEARLY = 0.9
"""Share of the time limit that the requests of a process take which it ended."""


@dataclass
class FinishedGeneration:
    """Turns that need no new measurement, and notes about damaged files."""

    done: set[tuple[str, int]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def has(self, turn: GenerationTurn) -> bool:
        """Whether this turn is already measured."""
        number, case = turn
        return (case.case_id, number) in self.done


def finished_generation_turns(
    plan: Plan,
    turns: Sequence[GenerationTurn],
    exports: Mapping[str, GenerationExport],
    results: Results,
    elsewhere: frozenset[str] = frozenset(),
) -> FinishedGeneration:
    """Read the raw files of the turns. A record counts where its settings, files, machine and libraries are the present
    ones.

    results: Results.of_generation. elsewhere: backends whose libraries belong to another interpreter.
    """
    finished = FinishedGeneration()
    comparable = _comparable(plan, results, elsewhere)
    for turn in turns:
        number, case = turn
        path = results.raw_file(case.case_id, number)
        if not path.is_file():
            continue
        try:
            record = store.load_generated(path)
        except FormatError as error:
            finished.notes.append(f"{error.problem} It is measured again.")
            continue
        if (
            isinstance(record, Failed)
            or not _belongs_to_plan(record, turn, plan)
            or not has_enough_requests(record, plan.generation)
        ):
            continue
        known = admission.generation_files(exports.get(case.model))
        if comparable(record.environment_id, case.backend) and admission.foreign_artifact(record, known) is None:
            finished.done.add((case.case_id, number))
    return finished


def _belongs_to_plan(record: Generated, turn: GenerationTurn, plan: Plan) -> bool:
    number, case = turn
    return (record.case_id, record.round, record.settings_id) == (case.case_id, number, plan.settings_id)


def has_enough_requests(record: Generated, options: GenerationOptions) -> bool:
    """Whether a record has the warm-ups and requests of these options, or went on for as long as they allow."""
    if len(record.warmups) < options.warmups:
        return False
    # Before the first request and after the last one the process works a little, and the time limit counts it.
    timed_s = (record.requests[-1].token_ns[-1] - record.requests[0].start_ns) / 1e9
    out_of_time = record.stop == "time limit" and timed_s >= NEARLY * options.max_s
    return out_of_time or len(record.requests) >= options.requests
