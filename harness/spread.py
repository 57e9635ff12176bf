"""Measure a plan on several devices of one host at the same time; LAYOUT says how.

models  each GPU builds one engine at a time, then measures one model at a time: rows of a model are of one GPU
cases   the cases are spread, to finish sooner; cases that are compared stay on one GPU. Then some of them are measured
        alone again, which shows whether the neighbours disturbed the rows
copies  each case runs on every GPU at once, and on each alone, in windows of the same processes: scaling, interference

Models and cases are measured by `run`: this stage starts it with a GPU and CPUs of its own, and merges the records.
With a plan for CPUs, `cases` and `copies` use shares of the CPUs as devices.

reads   results/plan.json, exports/<slug>/export.json
writes  what build_engine and run write; meanwhile results/cards/<gpu>/…; results/neighbours.json, neighbours/…;
        results/copies/<case_id>.json, copies/slots/<slot>/…
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from harness.aggregation.admission import comparison_groups, differing_facts, foreign_artifact, known_artifacts
from harness.aggregation.batch_times import batch_ns
from harness.aggregation.join import checks_for
from harness.aggregation.scaling import copies_of, disturbance, scaling
from harness.backends import backend_info
from harness.core import cli, packed, store
from harness.core.errors import CasesFailedError, FormatError, MissingInputError, UsageError
from harness.core.host import environment, limits
from harness.core.layout import Models, Results
from harness.core.lock import exclusive
from harness.core.safe_files import open_to_write
from harness.core.schemas import Case, Copies, DeviceSlot, Environment, Measured, NeighbourCheck, NeighbourSample, Plan
from harness.core.timestamps import utc_now
from harness.core.units import count, percent, significant
from harness.planning.block_settings import parse_interpreters
from harness.planning.exports import Exports, built_engines, keep_exports, read_exports
from harness.planning.resume import refuse_folder_of_ab
from harness.planning.schedule import select_cases
from harness.processes.copies import WINDOW_S, CopiesPool
from harness.processes.device_slots import find_slots, pin_to_cpus, slot_variables
from harness.processes.pool import split_off_unexported
from harness.timing.clock import now_ns

LAYOUTS = ("models", "cases", "copies")

SAMPLED_SHARE = 0.1
LEAST_SAMPLED, MOST_SAMPLED = 2, 8
"""Cases that are measured alone again after a spread: a tenth, and a number that takes minutes at most."""

Command = Sequence[str]
Start = Callable[[Command, dict[str, str], Path], int]
"""(command, environment, file for its output) → exit code."""


@dataclass(frozen=True)
class SpreadRequest:
    """A spread as asked for. passed: options for the stages that it starts."""

    plan: Plan
    results: Results
    models: Models
    slots: Sequence[DeviceSlot]
    passed: Sequence[str]
    interpreters: Mapping[str, Path]
    force: bool


def stage(arguments: Sequence[str]) -> None:
    """Build, then measure, on every device at once."""
    parser = cli.parser("harness.spread", __doc__)
    parser.add_argument("--cards", default="", help="GPUs: all, or as CUDA_VISIBLE_DEVICES names them: 0,1,2,3")
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        default=LAYOUTS[0],
        help="models or cases are spread, or copies of each case run on all (models)",
    )
    parser.add_argument("--force", action="store_true", help="build and measure again what is already there")
    cli.add_interpreters(parser)
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    results = Results(options.results)
    refuse_folder_of_ab(results, "spread")
    plan = store.load(results.plan, Plan, "make plan")
    if len(plan.cases) > packed.PACK_FROM:
        raise UsageError(
            f"A plan of more than {packed.PACK_FROM:,} cases cannot be spread over devices.",
            "Plan a part of the models in each results folder: make plan MODELS=… RESULTS=<folder>",
        )
    if plan.device != "cuda" and options.layout == "models":
        raise UsageError("Only a plan for GPUs can be spread over them by model.", "make plan DEVICE=cuda")
    others = parse_interpreters(options.python)
    slots = find_slots(options.cards, plan.device)
    passed = ["--models-dir", str(options.models_dir), *(["--force"] if options.force else [])]
    for text in options.python:
        passed += ["--python", text]
    request = SpreadRequest(plan, results, Models(options.models_dir), slots, passed, others, options.force)
    with exclusive(results.lock):
        if options.force:
            forget(plan, options.layout, results)
        pool = DevicePool(slots, results, run_to_end)
        failures = _build(request, pool) if plan.device == "cuda" else 0
        failures += {"models": _models, "cases": spread_cases, "copies": _copies}[options.layout](request, pool)
    if failures:
        raise CasesFailedError(
            f"{count(failures, 'measurement')} or started stages did not end well.",
            f"Their messages are above and below {results.root / 'logs'}; the same command tries the missing ones.",
        )


def forget(plan: Plan, layout: str, results: Results) -> None:
    """Remove the old records first: a forced spread that is interrupted must not present them as new."""
    cases = [case.case_id for case in plan.cases if case.skip_reason is None]
    if layout == "copies":
        old = [results.copies(name) for name in cases]
    else:
        old = [*map(results.raw_case, cases), results.neighbours, results.neighbours_alone.root]
    for path in old:
        with store.translate_storage_errors(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _build(request: SpreadRequest, pool: DevicePool) -> int:
    """Build the missing engines on all devices; returns the number of failures."""
    listed = _engines_to_build(request.results, request.passed)
    wanted = listed or []
    cli.say(f"{count(len(wanted), 'engine')} to build on {_slots_text(request.slots)}.")
    build = [
        ["build_engine", "--results", str(request.results.root), *request.passed, "--engines", name] for name in wanted
    ]
    return pool.run(build, wanted) + (listed is None)


def _slots_text(slots: Sequence[DeviceSlot]) -> str:
    if slots[0].device == "cpu":
        return f"{count(len(slots), 'share')} of the CPUs ({', '.join(map(_cpus_in_words, slots))})"
    pinned = {slot.near for slot in slots if slot.cpus}
    how = {True: "near CPUs", False: "an equal share of the CPUs each"}[min(pinned)] if pinned else "all CPUs"
    kinds = ", ".join(sorted({slot.gpu or "" for slot in slots}))
    return f"{count(len(slots), 'GPU')} ({kinds}; {how})"


def _cpus_in_words(slot: DeviceSlot) -> str:
    return f"{slot.cpus[0]} to {slot.cpus[-1]}" if len(slot.cpus) > 1 else str(slot.cpus[0])


# --- models -------------------------------------------------------------------------------------------------------


def _models(request: SpreadRequest, pool: DevicePool) -> int:
    plan, results = request.plan, request.results
    names = [model.name for model in plan.models]
    cli.say(f"{count(len(names), 'model')} to measure on {_slots_text(request.slots)}.")
    for place, name in enumerate(names):
        copy_records([case for case in plan.cases if case.model == name], results, results.gpu_folder(place))
        shutil.copyfile(results.plan, results.gpu_folder(place).plan)
    own = [str(results.gpu_folder(place).root) for place in range(len(names))]
    measure = [
        ["run", "--results", root, *request.passed, "--models", name] for root, name in zip(own, names, strict=True)
    ]
    failures = pool.run(measure, names)
    for place, name in enumerate(names):
        copy_records([case for case in plan.cases if case.model == name], results.gpu_folder(place), results)
        shutil.rmtree(results.gpu_folder(place).root, ignore_errors=True)
    return failures


# --- cases --------------------------------------------------------------------------------------------------------


def spread_cases(request: SpreadRequest, pool: DevicePool) -> int:
    """Spread the comparison groups, then measure a sample of the cases alone again."""
    plan, results, slots = request.plan, request.results, request.slots
    before = _earlier_check(request)
    assigned = assign_slots(plan.cases, len(slots), before.assigned if before else {})
    cli.say(f"{count(len(assigned), 'case')} to measure on {_slots_text(slots)}.")
    own = [[case for case in plan.cases if assigned.get(case.case_id) == place] for place in range(len(slots))]
    old = _write_times(assigned, results)
    began = now_ns()
    ended: dict[int, int] = {}
    commands = []
    for place, cases in enumerate(own):
        copy_records(cases, results, results.gpu_folder(place))
        store.save(results.gpu_folder(place).plan, select_cases(plan, cases))
        commands.append(["run", "--results", str(results.gpu_folder(place).root), *request.passed])
    failures = pool.run_each(commands, [f"cases-{place}" for place in range(len(slots))], ended)
    for place, cases in enumerate(own):
        copy_records(cases, results.gpu_folder(place), results)
        shutil.rmtree(results.gpu_folder(place).root, ignore_errors=True)
    check = NeighbourCheck(
        settings_id=plan.settings_id,
        created_at=utc_now(),
        slots=tuple(slots),
        assigned=assigned,
        wall_s=(now_ns() - began) / 1e9,
        busy_s=tuple((ended[place] - began) / 1e9 for place in range(len(slots))),
        samples=(),
    )
    check = with_earlier_times(check, before, old, _write_times(assigned, results))
    store.save(results.neighbours, check)
    return failures + _alone_again(request, pool, check)


WriteTimes = Mapping[Path, int]
"""When each measured record was written, in ns. A copy keeps it."""


def _write_times(assigned: Collection[str], results: Results) -> WriteTimes:
    """Path → modification time in ns of the measured records of these cases."""
    stamps: dict[Path, int] = {}
    for path in (path for case_id in assigned for path in results.raw_case(case_id).glob("*.json")):
        try:
            if isinstance(store.load_raw(path), Measured):
                stamps[path] = path.stat().st_mtime_ns
        except (FormatError, MissingInputError):
            continue
    return stamps


def with_earlier_times(
    check: NeighbourCheck, before: NeighbourCheck | None, old: WriteTimes, new: WriteTimes
) -> NeighbourCheck:
    """The times of both commands where records of an earlier one are kept; of the earlier one where none is new."""
    kept = old.items() & new.items()
    if before is None or not kept:
        return check
    if new.items() <= old.items():
        return check.model_copy(update={"wall_s": before.wall_s, "busy_s": before.busy_s})
    busy_s = tuple(earlier + other for earlier, other in zip(before.busy_s, check.busy_s, strict=True))
    return check.model_copy(update={"wall_s": before.wall_s + check.wall_s, "busy_s": busy_s})


def _earlier_check(request: SpreadRequest) -> NeighbourCheck | None:
    """The check of an earlier spread with these settings and slots, whose assignment goes on."""
    try:
        check = store.load(request.results.neighbours, NeighbourCheck, "make run LAYOUT=cases")
    except (FormatError, MissingInputError):
        return None
    same = check.settings_id == request.plan.settings_id and check.slots == tuple(request.slots)
    return check if same and not request.force else None


def assign_slots(cases: Sequence[Case], slots: int, before: Mapping[str, int]) -> dict[str, int]:
    """Case id → slot. All cases of a comparison group get one slot: the one of `before`, else the one with the fewest
    cases; large groups come first (Graham, longest processing time first: SIAM J. Appl. Math. 17, 1969)."""
    loads, assigned = [0] * slots, dict[str, int]()
    for group in sorted(comparison_groups(cases).values(), key=len, reverse=True):
        place = next((before[case.case_id] for case in group if case.case_id in before), loads.index(min(loads)))
        loads[place] += len(group)
        assigned |= {case.case_id: place for case in group}
    return assigned


def _alone_again(request: SpreadRequest, pool: DevicePool, check: NeighbourCheck) -> int:
    """Measure a sample of the cases again while no other device works, and save the check; returns failures."""
    plan, results = request.plan, request.results
    spread_ns = {case_id: _medians(results, case_id, plan) for case_id in check.assigned}
    computing = {case.case_id for case in plan.cases if backend_info(case.backend).computes}
    measured = {name: place for name, place in check.assigned.items() if spread_ns[name] and name in computing}
    chosen = sampled_cases(measured, plan)
    cli.say(f"{count(len(chosen), 'case')} to measure alone again: whether the neighbours disturbed the rows.")
    alone, failures = results.neighbours_alone, 0
    for place in sorted(set(chosen.values())):
        cases = [case for case in plan.cases if chosen.get(case.case_id) == place]
        copy_records(cases, results, alone, samples=False)
        store.save(alone.plan, select_cases(plan, cases))
        command = ["run", "--results", str(alone.root), *request.passed]
        failures += pool.run_on(place, command, f"alone-{place}") != 0
    samples = tuple(
        NeighbourSample(case_id=name, slot=place, spread_ns=spread_ns[name], alone_ns=_medians(alone, name, plan))
        for name, place in chosen.items()
    )
    store.save(results.neighbours, check.model_copy(update={"samples": samples}))
    for sample in samples:
        disturbed = disturbance(sample)
        remark = (
            f"{percent(disturbed.value - 1)} slower beside the others: {disturbed.verdict}"
            if disturbed
            else "not measured"
        )
        cli.say(f"{sample.case_id}: {remark}")
    return failures


def sampled_cases(assigned: Mapping[str, int], plan: Plan) -> dict[str, int]:
    """The cases that are measured alone again, at random, with their slots: from every slot in turn."""
    wanted = min(MOST_SAMPLED, max(LEAST_SAMPLED, math.ceil(SAMPLED_SHARE * len(assigned))))
    chance = random.Random(plan.measurement.seed)  # noqa: S311 - a sample, not a secret
    by_slot: dict[int, list[str]] = {}
    for case_id, place in assigned.items():
        by_slot.setdefault(place, []).append(case_id)
    mixed = [chance.sample(names, len(names)) for _, names in sorted(by_slot.items())]
    in_turn = [names[turn] for turn in range(max(map(len, mixed), default=0)) for names in mixed if turn < len(names)]
    return {case_id: assigned[case_id] for case_id in in_turn[:wanted]}


def _medians(results: Results, case_id: str, plan: Plan) -> tuple[float, ...]:
    """Process medians of a case in the planned rounds; empty where one is missing."""
    medians = []
    for number in range(1, plan.measurement.rounds + 1):
        try:
            record = store.load_raw(results.raw_file(case_id, number))
        except (FormatError, MissingInputError):
            return ()
        if not isinstance(record, Measured) or record.settings_id != plan.settings_id:
            return ()
        medians.append(batch_ns(record))
    return tuple(medians)


# --- copies -------------------------------------------------------------------------------------------------------


def _copies(request: SpreadRequest, _pool: DevicePool) -> int:
    """Run every case on all devices, alone and together; returns the number of failed processes."""
    plan, results, slots = request.plan, request.results, request.slots
    if len(slots) < 2:
        raise UsageError("One device cannot work together with another.", "Name several: CARDS=0,1; or CARDS=all.")
    exports = read_exports(plan, results, request.models)
    keep_exports(exports, results)
    cases, failures = _cases_to_copy(request, exports)
    rounds = plan.measurement.rounds
    cli.say(f"{count(len(cases), 'case')}, {count(rounds, 'round')} each, on {_slots_text(slots)}: alone and together.")
    with CopiesPool(plan, request.models, results, slots, request.interpreters) as working:
        for done, case in enumerate(cases, 1):
            records = {
                (number, place): record
                for number in range(1, rounds + 1)
                for place, record in enumerate(working.measure(case, number))
            }
            checks = checks_for(plan, case, exports.intact.get(case.model), frozenset())
            copies = copies_of(case, slots, records, plan.settings_id, WINDOW_S, utc_now(), checks)
            store.save(results.copies(case.case_id), copies)
            failures += len(copies.failures)
            cli.say(f"{done}/{len(cases)} {case.case_id}: {_copies_text(copies)}")
    return failures


def _cases_to_copy(request: SpreadRequest, exports: Exports) -> tuple[list[Case], int]:
    """(cases that are to be measured, number of cases that cannot be)."""
    plan, results = request.plan, request.results
    runnable = [case for case in plan.cases if case.skip_reason is None and backend_info(case.backend).computes]
    present: dict[tuple[str, ...], Environment] = {}
    open_cases = [case for case in runnable if request.force or not is_measured(request, case, exports, present)]
    turns = split_off_unexported(plan, [(1, case) for case in open_cases], exports, results)
    return [case for _, case in turns], len(open_cases) - len(turns)


def is_measured(
    request: SpreadRequest, case: Case, exports: Exports, present: dict[tuple[str, ...], Environment]
) -> bool:
    """Whether a complete record with these settings, slots and files, of this machine and its libraries, is there.

    present: the environment here by the distributions that backends record; filled as needed.
    """
    rounds, results = request.plan.measurement.rounds, request.results
    export, unread = exports.intact.get(case.model), list[str]()
    engines = () if export is None else built_engines(request.models.folder(export.slug, export.folder), unread)
    known = known_artifacts(export, engines)
    try:
        copies = store.load(results.copies(case.case_id), Copies, "make run LAYOUT=copies")
        complete = len(copies.processes) == rounds * len(request.slots)
        if not complete or copies.settings_id != request.plan.settings_id or copies.slots != tuple(request.slots):
            return False
        also = backend_info(case.backend).recorded
        here = present.setdefault(also, present.get(also) or environment.collect({}, request.plan.device, also))
        for place, slot in enumerate(request.slots):
            for number in range(1, rounds + 1):
                own = results.copies_of(place)
                record = store.load_raw(own.raw_file(case.case_id, number))
                if not isinstance(record, Measured) or foreign_artifact(record, known) is not None:
                    return False
                there = store.load(own.environment(record.environment_id or ""), Environment, "make run LAYOUT=copies")
                if differing_facts(
                    there, slot_environment(here, slot, there), case.backend not in request.interpreters
                ):
                    return False
    except (FormatError, MissingInputError):
        return False
    return True


def slot_environment(here: Environment, slot: DeviceSlot, there: Environment) -> Environment:
    """The environment that a process on a slot has now. The slot's uuid names its GPU, whose other facts are as before;
    only its driver may be another one."""
    own = {
        "affinity": tuple(sorted(slot.cpus)) or here.limits.affinity,
        "threads": limits.thread_count(len(slot.cpus) or None),
    }
    gpu = here.gpu
    if gpu is not None and there.gpu is not None:
        gpu = there.gpu.model_copy(update={"driver": gpu.driver, "cuda": gpu.cuda})
    return here.model_copy(update={"gpu": gpu, "limits": here.limits.model_copy(update=own)})


def _copies_text(copies: Copies) -> str:
    figures = scaling(copies)
    if figures is None:
        return f"FAILED: {copies.failures[0].reason}" if copies.failures else "FAILED: nothing was measured"
    slow = [f"{slot.slot.name} ({', '.join(slot.straggles)})" for slot in figures.slots if slot.straggles]
    return (
        f"{significant(figures.together_per_s)}/s together, efficiency {percent(figures.efficiency.value)}, "
        f"latency ×{figures.interference.value:.3f}" + (f", stragglers: {', '.join(slow)}" if slow else "")
    )


# --- stages on devices --------------------------------------------------------------------------------------------


class DevicePool:
    """Runs stages on devices, one at a time on each."""

    def __init__(self, slots: Sequence[DeviceSlot], results: Results, start: Start) -> None:
        self._start = start
        self._logs = results.root / "logs"
        self._slots = slots
        self._free: SimpleQueue[DeviceSlot] = SimpleQueue()
        for slot in slots:
            self._free.put(slot)

    def run(self, stages: Sequence[Command], labels: Sequence[str]) -> int:
        """Run all stages as devices become free; returns how many ended with an exit code other than 0."""
        with ThreadPoolExecutor(len(self._slots)) as threads:
            codes = list(threads.map(self._run_command, stages, labels))
        return sum(code != 0 for code in codes)

    def run_each(self, stages: Sequence[Command], labels: Sequence[str], ended: dict[int, int]) -> int:
        """Run one stage on each device, all at once; `ended` gets the time at which each ended, by place."""

        def run_at(place: int) -> int:
            code = self.run_on(place, stages[place], labels[place])
            ended[place] = now_ns()
            return code

        with ThreadPoolExecutor(len(self._slots)) as threads:
            codes = list(threads.map(run_at, range(len(self._slots))))
        return sum(code != 0 for code in codes)

    def run_on(self, place: int, words: Command, label: str) -> int:
        """Run one stage on the device of this place; returns its exit code."""
        with ThreadPoolExecutor(1) as thread:  # a thread of its own, whose CPUs are then set
            return thread.submit(self._on, self._slots[place], words, label).result()

    def _run_command(self, words: Command, label: str) -> int:
        with self._slot() as slot:
            return self._on(slot, words, label)

    def _on(self, slot: DeviceSlot, words: Command, label: str) -> int:
        pin_to_cpus(slot)
        log = self._logs / f"spread-{label.replace('/', '-')}.log"
        environment = {**os.environ, **slot_variables(slot)}
        code = self._start([sys.executable, "-m", f"harness.{words[0]}", *words[1:]], environment, log)
        thing = "GPU" if slot.device == "cuda" else "share of the CPUs"
        cli.say(
            f"{words[0]} {label} on {thing} {slot.name}: " + ("done" if code == 0 else f"exit code {code}, see {log}")
        )
        return code

    @contextmanager
    def _slot(self) -> Iterator[DeviceSlot]:
        slot = self._free.get()
        try:
            yield slot
        finally:
            self._free.put(slot)


def run_to_end(command: Command, environment: dict[str, str], log: Path) -> int:
    """Run one stage to its end."""
    with store.translate_storage_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        handle = open_to_write(log)
    with os.fdopen(handle, "wb") as output:
        done = subprocess.run(command, env=environment, stdout=output, stderr=output, check=False)  # noqa: S603
    return done.returncode


def _engines_to_build(results: Results, passed: Sequence[str]) -> list[str] | None:
    """Names of missing engines, as listed by the stage that builds them; None where it failed."""
    with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
        path = Path(folder) / "engines.json"
        command = [sys.executable, "-m", "harness.build_engine", "--results", str(results.root), *passed]
        command += ["--only-list", "--list-file", str(path)]
        listing = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
        if listing.returncode:
            # No engines can be built here: their rows fail with the reason, and the other rows are measured.
            cli.warn(listing.stderr.strip() or "the engines could not be listed")
            return None
        # A plan without engines ends before it has a list.
        return list(map(str, json.loads(path.read_bytes()))) if path.is_file() else []


def copy_records(cases: Collection[Case], source: Results, target: Results, samples: bool = True) -> None:
    """Copy the records of these cases, their exports and the environments; the target keeps its records of others.

    samples: False leaves the raw samples out.
    """
    with store.translate_storage_errors(target.root):
        target.root.mkdir(parents=True, exist_ok=True)
        own = [source.raw_case(case.case_id) for case in cases] if samples else []
        slugs = dict.fromkeys(case.slug for case in cases)
        for folder in (*own, source.environments, *(source.export(slug).root for slug in slugs)):
            if folder.is_dir():
                shutil.copytree(folder, target.root / folder.relative_to(source.root), dirs_exist_ok=True)


if __name__ == "__main__":
    cli.main(stage)
