"""Kills, hostile inputs, full disks and stopped processes: nothing lost, nothing false, no traceback.

    .venv/bin/python -m benchmarks.attack [--quick] [--kills 100] [--inputs 200] [--disks 40] [--stops 10]
                                          [--seed 1] [--only kills --number 13] [--only kills --first 60]

Before a release; `--quick` has one of each kind: its inputs and 4 kills run in `make test`, the others and 12 kills in
`make test-all`. Each attempt draws from its seed, kind and number alone, and a failure names the command that repeats
it. Of random instants the scheduler has a part, so that a repeat may have to be tried several times. docs/security.md
has the figures tried and held. Linux; full disks are a tmpfs where one may be mounted, else writes that the stage is
refused.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.forked_stages import LEAVING_S, FaultError, Folders, MissedError, Started, nothing_is_left
from benchmarks.hostile_inputs import KINDS, base, give
from harness import aggregate, export, report, run, share
from harness.core import cli, store
from harness.core.errors import InferometerError
from harness.core.host import orphans
from harness.core.schemas import ExportRecord, Measured, Running, Summary

ROOT = Path(__file__).parents[1]
SPINS = """
models: [spin:50us, spin:1ms]
matrix: [{backends: [spin], batch_sizes: [1]}]
measurement: {rounds: 2, warmup_min_s: 0.05, window_s: 0.01, block_s: 0.02, max_s: 0.1, min_samples: 10}
"""
LONG_SPIN = """
models: [spin:2ms]
matrix: [{backends: [spin], batch_sizes: [1]}]
measurement: {rounds: 1, warmup_min_s: 0.5, window_s: 0.05, block_s: 0.05, max_s: 2.5, target_ci: 0.000001}
"""
EXPORTED = """
models: ["module:tests.fixtures.models:tiny", "module:tests.fixtures.models:polluting"]
matrix: [{backends: [torch-eager], batch_sizes: [1]}]
measurement: {parity_samples: 16}
"""

# --- kills ----------------------------------------------------------------------------------------------------------

VICTIMS = ("stage", "worker", "monitor", "export", "case")


def kill(number: int, chooser: random.Random, place: Path) -> str:
    """SIGKILL at a random instant; the same command then ends with everything, and what was whole is left as it was."""
    victim = VICTIMS[number % len(VICTIMS)]
    (_kill_export if victim == "export" else _kill_run)(victim, chooser, Folders(place / "kill", place / "output"))
    return victim


def _kill_run(victim: str, chooser: random.Random, folders: Folders) -> None:
    planned = folders.planned(SPINS)
    running = folders.start(run.stage)
    pid = _wait_for(victim, running)
    time.sleep(chooser.uniform(0.0, 1.0 if victim != "case" else 0.1))
    _signal(pid, signal.SIGKILL)
    # A run whose monitor, worker or case is gone goes on with the next one.
    ended = running.wait()
    if victim != "stage" and ended.code not in (0, 10):
        raise FaultError(f"the run ended with {ended.code} after its {victim} was killed: {ended.err[-500:]}")
    nothing_is_left()
    kept = {path: when for path, when in folders.records().items() if store.load_raw(path).status == "measured"}
    folders.well(run.stage)
    now = folders.records()
    if lost := [str(path) for path, when in kept.items() if now.get(path) != when]:
        raise FaultError(f"measured again although it was whole: {lost}")
    if left := [str(path) for path in folders.results.raw.glob("*/.*")]:
        raise FaultError(f"temporary files stay: {left}")
    rows = folders.summary().rows
    if {row.case_id for row in rows} != {case.case_id for case in planned.cases}:
        raise FaultError(f"cases are lost: {[row.case_id for row in rows]}")
    if short := [row.case_id for row in rows if row.latency_ns is None or row.latency_ns.rounds != 2]:
        raise FaultError(f"rounds are lost: {short}")
    nothing_is_left()


def _wait_for(victim: str, running: Started) -> int:
    """The process id of a victim, once it is there."""
    if victim == "stage":
        return running.pid
    words = {
        "worker": "harness.processes.worker",
        "monitor": "harness.processes.monitor",
        "case": "harness.processes.worker",
    }[victim]
    while not running.poll():
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(running.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    depth = 2 if process.ppid() != running.pid else 1
                    if words in process.cmdline() and depth == (2 if victim == "case" else 1):
                        return process.pid
        time.sleep(0.005)
    raise MissedError


def _signal(pid: int, sent: signal.Signals) -> None:
    try:
        os.kill(pid, sent)
    except ProcessLookupError:
        raise MissedError from None


def _kill_export(_victim: str, chooser: random.Random, folders: Folders) -> None:
    # Here once: each stage that is forked would import torch and its relatives again.
    importlib.import_module("harness.zoo.exporting")
    planned = folders.planned(EXPORTED)
    first, second = planned.models
    folders.well(export.export, "--models", first.name)
    before = _content(folders.models.folder(first.slug).root)
    running = folders.start(export.export)
    time.sleep(chooser.uniform(0.0, 1.5))
    own = [running.pid, *(process.pid for process in _children(running.pid))]
    _signal(chooser.choice(own), signal.SIGKILL)
    ended = running.wait()
    if ended.code > 0:
        ended.refused()
    nothing_is_left()
    record = folders.models.folder(second.slug).record
    if record.is_file():
        _check_export(folders, second.slug)
    if _content(folders.models.folder(first.slug).root) != before:
        raise FaultError(f"the files of {first.name} changed")
    folders.well(export.export)
    for model in planned.models:
        _check_export(folders, model.slug)
    nothing_is_left()


def _check_export(folders: Folders, slug: str) -> None:
    record = store.load(folders.models.folder(slug).record, ExportRecord, "make export")
    store.check_artifacts(folders.models.folder(slug, record.folder).root, record)


def _children(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def _content(folder: Path) -> dict[str, str]:
    """sha256 by name, temporary files left out."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(folder)): store.sha256_file(path) for path in files}


# --- full disks -----------------------------------------------------------------------------------------------------


def fill(number: int, chooser: random.Random, place: Path) -> str:
    """A disk that has room for few bytes: two lines, nothing half written, and with room the same commands complete."""
    with _small_disk(place / "disk") as disk:
        folders = Folders(disk / "full", place / "output")
        if disk == place / "disk" and number % 4 == 0:
            _fill_while_measuring(chooser, folders, disk)
            return "run"
        _fill_while_reporting(chooser, folders, disk)
        return "aggregate, report, share"


def _fill_while_measuring(chooser: random.Random, folders: Folders, disk: Path) -> None:
    folders.planned(SPINS)
    filler = _filler(disk, chooser.randrange(0, 60_000))
    ended = folders.call(run.stage)
    if ended.code:
        ended.refused()
    before = folders.records()
    filler.unlink()
    folders.well(run.stage)
    after = folders.records()
    if lost := [str(path) for path, when in before.items() if _is_measured(path) and after.get(path) != when]:
        raise FaultError(f"measured again although it was whole: {lost}")
    if any(row.latency_ns is None or row.latency_ns.rounds != 2 for row in folders.summary().rows):
        raise FaultError("rounds are lost")


def _fill_while_reporting(chooser: random.Random, folders: Folders, disk: Path) -> None:
    base(folders)
    room = chooser.randrange(0, 120_000)
    filler = _filler(disk, room) if disk.is_mount() else None
    prepare = None if filler is not None else lambda: _refuse_writes(chooser.randrange(1, 12))
    for stage, more in ((aggregate.stage, ()), (report.stage, ("--no-charts",)), (share.stage, ())):
        ended = folders.call(stage, *more, prepare=prepare)
        if ended.code:
            ended.refused()
        if folders.results.summary.is_file():
            store.load(folders.results.summary, Summary, "make aggregate")  # whole, or not there
    if filler is not None:
        filler.unlink()
    for stage, more in ((aggregate.stage, ()), (report.stage, ("--no-charts",)), (share.stage, ())):
        folders.well(stage, *more)


def _is_measured(path: Path) -> bool:
    return isinstance(store.load_raw(path), Measured)


@contextmanager
def _small_disk(where: Path) -> Iterator[Path]:
    """A tmpfs of some MiB; an ordinary folder where none may be mounted."""
    where.mkdir(parents=True)
    words = ["/bin/mount", "-t", "tmpfs", "-o", "size=4m", "none", str(where)]
    mounted = os.geteuid() == 0 and not subprocess.run(words, capture_output=True, check=False).returncode
    try:
        yield where
    finally:
        if mounted:
            subprocess.run(["/bin/umount", "--lazy", str(where)], check=False)


def _filler(disk: Path, room: int) -> Path:
    """A file that leaves so many bytes of a disk."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    with path.open("r+b") as file:
        file.truncate(max(0, path.stat().st_size - room))
    return path


def _refuse_writes(after: int) -> None:
    """In a stage's process: the disk is full from the n-th file on."""
    real, left = tempfile.mkstemp, [after]

    def refuse(**places: object) -> tuple[int, str]:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, os.strerror(28), str(places.get("dir")))
        return real(**places)  # type: ignore[call-overload, no-any-return]

    store.tempfile.mkstemp = refuse  # type: ignore[attr-defined]


# --- stopped processes ----------------------------------------------------------------------------------------------

STOPPED = ("case", "monitor", "worker", "stage")


def stop(number: int, chooser: random.Random, place: Path) -> str:
    """SIGSTOP and SIGCONT at random instants: the row of a case that was stopped says so, and none is lost."""
    victim = STOPPED[number % len(STOPPED)]
    folders = Folders(place / "stop", place / "output")
    folders.planned(LONG_SPIN)
    running = folders.start(run.stage)
    case = _wait_for("case", running)
    pid = case if victim == "case" else _wait_for(victim, running)
    time.sleep(chooser.uniform(0.2, 1.5))
    _signal(pid, signal.SIGSTOP)
    seen = victim == "case" and _hit(case, folders)
    time.sleep(chooser.uniform(0.3, 1.2))
    _signal(pid, signal.SIGCONT)
    ended = running.wait()
    if ended.code:
        raise FaultError(f"the run ended with {ended.code}: {ended.err[-500:]}")
    nothing_is_left()
    (row,) = folders.summary().rows
    flags = [flag.name for flag in row.flags]
    if row.latency_ns is None:
        raise FaultError("its samples are lost")
    if victim == "case" and not seen:
        raise MissedError
    if victim == "case" and ("STOPPED" not in flags or row.grade in ("A", "B")):
        raise FaultError(f"it was stopped, and its row has grade {row.grade} and the flags {flags}")
    if victim != "case" and "STOPPED" in flags:
        raise FaultError(f"the {victim} was stopped and not the case, and its row has the flags {flags}")
    return victim


def _hit(case: int, folders: Folders) -> bool:
    """Whether the case is alive and measured just now: a stop of a process that has written its record is too late."""
    deadline = time.monotonic() + LEAVING_S
    with suppress(psutil.NoSuchProcess, InferometerError):
        # The signal takes effect when the process next gets a CPU.
        while psutil.Process(case).status() != psutil.STATUS_STOPPED:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        result = store.load(folders.results.running, Running, "make run")
        return not folders.results.raw_file(result.case_id, result.round).is_file()
    return False


# --- all of them ----------------------------------------------------------------------------------------------------

Attack = Callable[[int, random.Random, Path], str]
"""One attempt: its number, its chance and a folder of its own; returns its kind. Raises FaultError or MissedError."""

MAX_MISSES = 10
PROGRESS = 10
"""Attempts between two lines about how far an attack has come."""


@dataclass
class Score:
    """Of one sort of attack."""

    tried: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    fell: list[str] = field(default_factory=list)


def attack(name: str, entry: Attack, numbers: Sequence[int], seed: int, place: Path) -> Score:
    """All attempts of one sort."""
    score = Score()
    for number in numbers:
        chooser = random.Random(f"{seed}/{name}/{number}")  # noqa: S311 - instants and bytes, not secrets
        folder = place / f"{name}-{number}"
        score.tried += 1
        try:
            score.kinds[_tried(entry, number, chooser, folder)] += 1
        except FaultError as error:
            again = f"python -m benchmarks.attack --seed {seed} --only {name} --number {number}"
            score.fell.append(f"{name} {number}: {error}\n  again: {again}")
            cli.warn(score.fell[-1])
        finally:
            orphans.kill_children()
            shutil.rmtree(folder, ignore_errors=True)
        if score.tried % PROGRESS == 0 and score.tried < len(numbers):
            cli.say(f"{name}: {score.tried - len(score.fell)} of {score.tried} held so far")
    return score


def _tried(entry: Attack, number: int, chooser: random.Random, folder: Path) -> str:
    for _ in range(MAX_MISSES):
        try:
            folder.mkdir(parents=True)
            return entry(number, chooser, folder)
        except MissedError:
            orphans.kill_children()
            shutil.rmtree(folder, ignore_errors=True)
    raise FaultError(f"it hit nothing in {MAX_MISSES} tries")


def main(arguments: Sequence[str] | None = None) -> None:
    """Attack, and leave with 1 where anything did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one of each kind")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--disks", type=int, default=40)
    parser.add_argument("--stops", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("kills", "inputs", "disks", "stops"))
    parser.add_argument("--number", type=int, help="of the one attempt to make")
    parser.add_argument("--first", type=int, default=0, help="number of the first attempt, to go on with")
    options = parser.parse_args(arguments)
    attacks: Mapping[str, tuple[Attack, int, int]] = {
        "kills": (kill, options.kills, 4),
        "inputs": (give, options.inputs, len(KINDS)),
        "disks": (fill, options.disks, 2),
        "stops": (stop, options.stops, 2),
    }
    os.chdir(ROOT)
    orphans.adopt_descendants()
    fell = 0
    with tempfile.TemporaryDirectory(prefix="inferometer-attack-") as place:
        for name, (entry, count, few) in attacks.items():
            if options.only not in (None, name):
                continue
            numbers = (
                range(options.first, few if options.quick else count) if options.number is None else [options.number]
            )
            began = time.monotonic()
            score = attack(name, entry, numbers, options.seed, Path(place))
            fell += len(score.fell)
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(score.kinds.items()))
            held = score.tried - len(score.fell)
            cli.say(f"{name}: {held} of {score.tried} held in {time.monotonic() - began:.0f} s ({kinds})")
    if fell:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
