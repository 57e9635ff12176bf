"""Reads the files of a run at work, repeatedly: each record once, without keeping its samples."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from harness.core import cli, packed, store, units
from harness.core.errors import FormatError, MissingInputError, StorageError
from harness.core.layout import LoadFiles, Results
from harness.core.lock import is_alive
from harness.core.packed import PackedRaw
from harness.core.schemas import (
    Case,
    Environment,
    Exporting,
    LoadBase,
    LoadCase,
    LoadFailure,
    Plan,
    Prediction,
    Replication,
    Running,
    ServiceRun,
    Usage,
)
from harness.core.timestamps import seconds_between, utc_now
from harness.live.progress import (
    EndedTurn,
    LiveExport,
    LiveRun,
    LoadSeen,
    ModelProgress,
    Progress,
    TurnCase,
    ended_turn,
    progress,
)
from harness.planning.load_cases import estimate_load
from harness.planning.resume import is_replication_of, replication_turns
from harness.processes.launcher import START_TIMEOUT_S
from harness.processes.load_launcher import SLACK as LOAD_SLACK
from harness.reporting.prose import conditions
from harness.serving.load_case import planned_points, prediction_digest, replication_digest, service_digest
from harness.timing.clock import now_ns

_SHARE = 0.02
"""Share of one CPU for looking. A look at 2,025 cases with 5,400 records took 70 ms on two EPYC vCPUs: every 3.5 s."""
_SHORTEST_S, _LONGEST_S = 1.0, 10.0
_LARGE_LONGEST_S = 60.0
"""The same for more cases than JSON is used for: a look at 100,000 takes seconds."""
_READING_NS = 5_000_000_000
"""Time of one look for packed results that it has not read yet."""
R = TypeVar("R", bound=LoadBase)
_Stamp = tuple[int, int] | None
"""(inode, time of the last change): differs after a file was replaced, also for its folder."""


class WatchedFolder:
    """A results folder, and the folders of its GPUs while models are spread over several. Writes nothing."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self.pause_s = _SHORTEST_S
        """Seconds until the next look: looking must not disturb the measurement."""
        self._plan: tuple[_Stamp, Plan] | None = None
        self._environments: dict[str, Environment] = {}
        self._folders: dict[Path, _Folder] = {}
        self._unread = False
        self._packed: dict[Path, tuple[_Stamp, tuple[EndedTurn | str, ...]]] = {}
        self._records: dict[Path, tuple[_Stamp, LoadBase | None]] = {}
        self._memory: dict[str, ModelProgress] = {}

    def look(self) -> Progress | None:
        """The progress; None while there is no plan. Raises FormatError where the plan cannot be used."""
        began = now_ns()
        try:
            return self._look()
        finally:
            large = self._plan is not None and len(self._plan[1].cases) > packed.PACK_FROM
            longest_s = _SHORTEST_S if self._unread else _LARGE_LONGEST_S if large else _LONGEST_S
            self.pause_s = min(max(_SHORTEST_S, (now_ns() - began) / 1e9 / _SHARE), longest_s)

    def _look(self) -> Progress | None:
        try:
            plan = self._current_plan()
        except MissingInputError:
            return None
        folders, now = (self._results, *self._results.gpu_folders()), utc_now()
        # Runs first: so a run never reports more turns done than the records that are read after it.
        runs = [result for folder in folders if (result := _run(folder, plan, now)) is not None]
        turns: list[EndedTurn | str] = []
        self._unread = False
        for folder in folders:
            stamps = _stamps(folder.raw)
            newer = {name for name in stamps if not name.endswith(store.PARQUET)}
            unpacked = self._unpacked(folder, plan, stamps)
            turns += (result for result in unpacked if _is_current(result, newer, folder))
            for case in plan.cases:
                if case.case_id in newer:
                    turns += self._contents(folder.raw_case(case.case_id), plan, case, stamps[case.case_id])
            for generated in plan.generations:
                place = folder.of_generation.raw_case(generated.case_id)
                turns += self._contents(place, plan, generated, _stamp(place))
        loads = {load.load_id: self._load(self._results.load(load.load_id), plan, load) for load in plan.loads}
        answers = [result for result in turns if isinstance(result, EndedTurn)]
        notes = [result for result in (*turns, *runs) if isinstance(result, str)]
        alive = [result for result in runs if not isinstance(result, str)]
        exports = [export for folder in folders if (export := _export(folder, now)) is not None]
        said = self._conditions(folders, answers)
        state = progress(plan, answers, alive, now, said, notes, exports, loads, self._memory)
        typed = {"command": cli.typed(state.command), "notes": tuple(map(cli.typed, state.notes))}
        return state.model_copy(update=typed)

    def _conditions(self, folders: Sequence[Results], answers: Sequence[EndedTurn]) -> str:
        """Machine, threads and libraries of the results."""
        for name in {answer.environment_id for answer in answers} - {None, *self._environments}:
            for folder in folders:
                with contextlib.suppress(MissingInputError, FormatError):  # aggregate names damaged ones
                    path = folder.environment(str(name))
                    self._environments[str(name)] = store.load(path, Environment, "make run")
        used = {answer.environment_id for answer in answers}
        known = {name: environment for name, environment in self._environments.items() if name in used}
        threads = units.either((answer.threads for answer in answers if answer.threads), "thread")
        parts = [conditions.machine_text(known), threads, conditions.library_versions(known)]
        return " · ".join(filter(None, parts)) if known and threads else ""

    def _current_plan(self) -> Plan:
        stamp = _stamp(self._results.plan)
        if self._plan is None or self._plan[0] != stamp:
            self._plan = stamp, store.load(self._results.plan, Plan, "make plan")
            self._folders.clear()
            self._packed.clear()
            self._memory.clear()
        return self._plan[1]

    def _unpacked(self, folder: Results, plan: Plan, stamps: Mapping[str, _Stamp]) -> Iterator[EndedTurn | str]:
        """Results in the Parquet files of a large run. A look reads new files for some seconds; the next goes on."""
        cases: dict[str, list[Case]] = {}
        for case in plan.cases:
            cases.setdefault(case.slug, []).append(case)
        files = {folder.packed_raw(slug): slug for slug in cases}
        files = {path: slug for path, slug in files.items() if path.name in stamps}
        until, bytes_left = now_ns() + _READING_NS, 0
        for path, slug in files.items():
            stamp = stamps[path.name]
            if self._packed.get(path, (None, ()))[0] != stamp:
                if now_ns() > until:
                    bytes_left += 1
                    continue
                self._packed[path] = stamp, tuple(_packed_turns(path, plan, cases[slug]))
            yield from self._packed[path][1]
        if bytes_left:
            self._unread = True
            yield f"Reading earlier results: {len(files) - bytes_left} of {len(files)} models."

    def _load(self, files: LoadFiles, plan: Plan, load: LoadCase) -> LoadSeen:
        """The present records of a load case. Damaged and other records count as missing: `make load` measures them."""
        service = self._record(files.service, ServiceRun)
        if service is None or not _belongs_to_plan(service, plan, service_digest(load)):
            return LoadSeen(failure=_failure(files, plan))
        prediction = self._record(files.prediction, Prediction)
        if prediction is not None and not _belongs_to_plan(prediction, plan, prediction_digest(load)):
            prediction = None
        numbers: dict[str, tuple[int, ...]] = {}
        for point, number in replication_turns(
            load, planned_points(load, prediction.peak_per_s if prediction else None)
        ):
            record = self._record(files.replication(point.name, number), Replication)
            if record is None or not _belongs_to_plan(record, plan, replication_digest(load)):
                continue
            if is_replication_of(record, load, point, number, service):
                numbers[point.name] = (*numbers.get(point.name, ()), number)
        return LoadSeen(
            served=True,
            predicted=prediction is not None,
            peak_per_s=prediction.peak_per_s if prediction else None,
            replications=numbers,
            failure=_failure(files, plan),
        )

    def _record(self, path: Path, kind: type[R]) -> R | None:
        """A record of load without its samples, read once; None where there is none that can be read."""
        stamp, before = _stamp(path), self._records.get(path)
        if before is None or before[0] != stamp:
            record: LoadBase | None = None
            if stamp is not None:
                with contextlib.suppress(MissingInputError, FormatError):
                    full_record = store.load(path, kind, "make load")
                    record = full_record.model_copy(
                        update={name: () for name in _SAMPLES if hasattr(full_record, name)}
                    )
            self._records[path] = before = stamp, record
        return before[1] if isinstance(before[1], kind) else None

    def _contents(self, folder: Path, plan: Plan, case: TurnCase, stamp: _Stamp) -> Sequence[EndedTurn | str]:
        """Results in a case's folder, and for each unusable file what is wrong with it."""
        before = self._folders.get(folder)
        if before is None or before.stamp != stamp or not before.settled:
            again = before is not None and before.stamp == stamp
            self._folders[folder] = _Folder(stamp, again, tuple(_answers(folder, plan, case)) if stamp else ())
        return self._folders[folder].contents


@dataclass(frozen=True)
class _Folder:
    """Contents of a case's folder. settled: read twice under one stamp, as a change may fall into the same tick."""

    stamp: _Stamp
    settled: bool
    contents: tuple[EndedTurn | str, ...]


def _stamps(folder: Path) -> dict[str, _Stamp]:
    """The stamp of everything in a folder, by name."""
    stamps: dict[str, _Stamp] = {}
    try:
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    seen = entry.stat()
                    stamps[entry.name] = seen.st_ino, seen.st_mtime_ns
    except OSError as error:
        raise StorageError(f"{folder} cannot be read: {error.strerror}.", "Check its owner and permissions.") from error
    return stamps


def _is_current(answer: EndedTurn | str, newer: Collection[str], folder: Results) -> bool:
    """Whether no JSON file replaces a packed result."""
    if isinstance(answer, str) or answer.case_id not in newer:
        return True
    return not folder.raw_file(answer.case_id, answer.round).is_file()


def _packed_turns(path: Path, plan: Plan, cases: Sequence[Case]) -> Iterator[EndedTurn | str]:
    """The results in a Parquet file, or what is wrong with it."""
    by_id = {case.case_id: case for case in cases}
    try:
        file = PackedRaw(path)
        for case_id, number in file:
            record, case = file.record(case_id, number), by_id.get(case_id)
            if record is not None and case is not None and record.settings_id == plan.settings_id:
                tolerance = plan.tolerance(case.model, case.precision)
                yield ended_turn(record, file.usage(case_id, number), tolerance)
    except (FormatError, MissingInputError) as error:
        yield f"{error.problem} {error.hint}"


_SAMPLES = ("scheduled_ns", "sizes", "ready_ns", "start_ns", "done_ns", "worker", "service_ns", "points", "map")


def _belongs_to_plan(record: LoadBase, plan: Plan, digest: str) -> bool:
    return (record.settings_id, record.load_sha256) == (plan.settings_id, digest)


def _failure(files: LoadFiles, plan: Plan) -> str | None:
    """Why the latest process of a load case ended early."""
    with contextlib.suppress(MissingInputError, FormatError):
        failure = store.load(files.failure, LoadFailure, "make load")
        if failure.settings_id == plan.settings_id:
            return f"failed in {failure.phase}: {failure.error}"
    return None


def _answers(folder: Path, plan: Plan, case: TurnCase) -> Iterator[EndedTurn | str]:
    for number in sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()):
        result = _answer(folder / f"{number}.json", folder / f"{number}.usage.json", plan, case, number)
        if result is not None:
            yield result


def _answer(raw: Path, usage: Path, plan: Plan, case: TurnCase, number: int) -> EndedTurn | str | None:
    """The result in a raw file, or what is wrong with the file; None where it has other settings or is gone."""
    try:
        record = store.load_raw(raw) if isinstance(case, Case) else store.load_generated(raw)
    except MissingInputError:
        return None  # removed since it was listed: a run measures it again
    except FormatError as error:
        return f"{error.problem} {error.hint}"
    if (record.settings_id, record.case_id, record.round) != (plan.settings_id, case.case_id, number):
        return None
    try:
        watched = store.load(usage, Usage, "make run")
    except (MissingInputError, FormatError):
        watched = None  # the monitor has not written it yet, or there was none
    return ended_turn(record, watched, plan.tolerance(case.model, case.precision))


def _run(folder: Results, plan: Plan, now: str) -> LiveRun | str | None:
    try:
        running = store.load(folder.running, Running, "make run")
    except MissingInputError:
        return None
    except FormatError as error:
        return f"{error.problem} {error.hint}"
    if running.plan_id != plan.plan_id:
        return f"A run of plan {running.plan_id} was at work here; the plan is now {plan.plan_id}."
    alive = is_alive(running.pid, running.place, running.started_at)
    loaded = [load for load in plan.loads if load.load_id == running.case_id]
    longest_s = plan.measurement.timeout_s + START_TIMEOUT_S + LOAD_SLACK * estimate_load(loaded)[1]
    if alive is None and seconds_between(running.since, now) > longest_s:
        alive = False  # in any place: no turn lasts so long
    return running, alive


_LONGEST_EXPORT_S = 24 * 3600
"""For one model in another container or machine; after it, its stage counts as ended. Exports have no time limit."""


def _export(folder: Results, now: str) -> LiveExport | None:
    """The export at work; None without one. It may belong to an earlier plan: the machine is busy anyway."""
    try:
        exporting = store.load(folder.exporting, Exporting, "make export")
    except (MissingInputError, FormatError):
        return None  # the next model writes it again
    alive = is_alive(exporting.pid, exporting.place, exporting.started_at)
    if alive is None and seconds_between(exporting.since, now) > _LONGEST_EXPORT_S:
        alive = False
    return exporting, alive


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}.", "Check its owner and permissions.") from error
    return status.st_ino, status.st_mtime_ns
