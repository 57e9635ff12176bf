"""Measure a plan on other machines through a runner: one machine measures a comparison group in all rounds.

local  on this host; needs nothing installed
ray    on the hosts of a Ray cluster that offer a host_slot (ADDRESS)
slurm  as exclusive jobs, by submitit (ADDRESS: partition)

A host runs one unit at a time. Where a worker is lost, the attempt is recorded with its reason, and the unit is tried
once more. The records of each machine stay in a folder of its own, with its own summary and report: machines are never
mixed.

reads   results/plan.json, exports/<slug>/export.json, the files of models/, engines
writes  results/machines/<machine>/…, attempts/<unit>/<number>.json, fleet.json, fleet.md, with several machines
        machines.md and charts/machines.png; meanwhile jobs/…
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from harness.aggregation import admission
from harness.core import archive, cli, file_sums, store
from harness.core.errors import CasesFailedError, FormatError, InferometerError, MissingInputError, UsageError
from harness.core.layout import Models, Results
from harness.core.lock import exclusive
from harness.core.safe_files import SizeLimit, path_inside, read
from harness.core.schemas import Attempt, AttemptReport, Fleet, FleetUnit, Measured, Plan
from harness.core.timestamps import utc_now
from harness.core.units import count
from harness.planning.exports import Exports, built_engines, read_exports
from harness.planning.resume import refuse_folder_of_ab
from harness.planning.schedule import select_cases
from harness.planning.work_units import WorkUnit, unit_request, work_units
from harness.processes.stage_process import run_stage
from harness.reporting.table import DocumentBlock
from harness.reporting.tables.machines_tables import fleet_document, machines_blocks
from harness.runners.execution import REPORT, installed_version
from harness.runners.local_runner import LocalRunner
from harness.runners.ray_runner import RayRunner
from harness.runners.runner import EndedAttempt, Requirements, Runner
from harness.runners.slurm_runner import SlurmRunner

RUNNERS = ("local", "ray", "slurm")
MOST_ATTEMPTS = 2
"""A unit whose worker is lost twice is not tried again by the same command."""
MEASURED = (0, CasesFailedError.exit_code)
"""Exit codes of a `run` that went through its plan."""


def stage(arguments: Sequence[str]) -> None:
    """Dispatch what is missing, then aggregate and report by machine."""
    parser = cli.parser("harness.dispatch", __doc__)
    parser.add_argument("--runner", choices=RUNNERS, default=RUNNERS[0], help="what runs the units (local)")
    parser.add_argument("--address", default="", help="address of the Ray cluster, or partition of Slurm")
    parser.add_argument("--force", action="store_true", help="measure again what is already there")
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    if options.address and options.runner == "local":
        raise UsageError(
            "ADDRESS is of a Ray cluster or of Slurm, and the runner is local.",
            f"make dispatch RUNNER=ray ADDRESS={shlex.quote(options.address)}; or RUNNER=slurm.",
        )
    results, models = Results(options.results), Models(options.models_dir)
    refuse_folder_of_ab(results, "dispatch")
    plan = store.load(results.plan, Plan, "make plan")
    if pickled := next((model.name for model in plan.models if model.name.startswith("pickle:")), None):
        raise UsageError(
            f"{pickled} is a pickle, and a worker unpickles nothing.",
            "Save the module with torch.export or as ONNX, or name a function of every host: MODELS=module:….",
        )
    exports = read_exports(plan, results, models)
    with exclusive(results.lock):
        shutil.rmtree(results.jobs, ignore_errors=True)
        start = partial(runner_of, options.runner, options.address, results)
        if options.force:
            with start():  # before anything is removed: its library and its cluster may be missing
                for folder in ("machines", "attempts"):
                    shutil.rmtree(results.root / folder, ignore_errors=True)
        fleet = dispatch(plan, exports, results, models, start)
        shutil.rmtree(results.jobs, ignore_errors=True)
        write_report(plan, fleet, results, models)
    incomplete = [unit for unit in fleet.units if unit.machine is None]
    if incomplete:
        last = incomplete[0].attempts[-1]
        raise CasesFailedError(
            f"{count(len(incomplete), 'unit')} without a result, as {last.unit_id}: {last.reason}",
            f"{results.fleet_report} has every attempt; the same command tries only these again.",
        )


def runner_of(name: str, address: str, results: Results) -> Runner:
    """The runner of a name. Raises UnavailableError where its library or its cluster is missing."""
    if name == "ray":
        return RayRunner(address)
    return SlurmRunner(results.jobs, address) if name == "slurm" else LocalRunner()


@dataclass
class _Unit:
    """A unit at work, and its attempts so far."""

    unit: WorkUnit
    attempts: list[Attempt]
    submitted_at: str = ""


def dispatch(
    plan: Plan,
    exports: Exports,
    results: Results,
    models: Models,
    start: Callable[[], Runner],
) -> Fleet:
    """Submit every unit without a complete attempt, and submit a lost one once more; returns all attempts.

    start: makes the runner, when there is anything to run.
    """
    units = [_Unit(unit, attempts_of(unit, results)) for unit in work_units(plan.cases)]
    open_units = {unit.unit.unit_id: unit for unit in units if not _is_complete(unit, plan, exports, results, models)}
    cli.say(f"{count(len(units), 'unit')} of compared cases, {len(open_units)} to measure.")
    if open_units:
        with start() as runner:
            for open_unit in open_units.values():
                _submit(open_unit, runner, plan, exports, results, models)
            tries = dict.fromkeys(open_units, 1)
            while tries:
                ended = runner.next_ended()
                open_unit = open_units[ended.unit_id]
                attempt = _save_attempt(open_unit, ended, runner.name, plan, results)
                cli.say(f"{ended.unit_id}, attempt {ended.number}: {_attempt_text(attempt)}")
                if attempt.outcome == "lost" and tries[ended.unit_id] < MOST_ATTEMPTS:
                    tries[ended.unit_id] += 1
                    _submit(open_unit, runner, plan, exports, results, models)
                else:
                    del tries[ended.unit_id]
    return Fleet(
        plan_id=plan.plan_id,
        settings_id=plan.settings_id,
        created_at=utc_now(),
        units=tuple(
            FleetUnit(
                unit_id=unit.unit.unit_id,
                cases=tuple(case.case_id for case in unit.unit.cases),
                attempts=tuple(unit.attempts),
            )
            for unit in units
        ),
    )


def attempts_of(unit: WorkUnit, results: Results) -> list[Attempt]:
    """The attempts of earlier commands, in order."""
    attempts: list[Attempt] = []
    for path in results.attempt(unit.unit_id, 1).parent.glob("*.json"):
        try:
            attempts.append(store.load(path, Attempt, "make dispatch"))
        except FormatError as error:
            cli.warn(f"{error.problem} It is left out.")
    return sorted(attempts, key=lambda attempt: attempt.number)


def _is_complete(unit: _Unit, plan: Plan, exports: Exports, results: Results, models: Models) -> bool:
    """Whether a complete attempt measured all rounds with these settings, on the present export and its engines."""
    machine = next((attempt.machine for attempt in reversed(unit.attempts) if attempt.outcome == "complete"), None)
    if machine is None:
        return False
    unread: list[str] = []  # a damaged engine record: its engine counts as another one
    for case in unit.unit.cases:
        export = exports.intact.get(case.model)
        engines = () if export is None else built_engines(models.folder(export.slug, export.folder), unread)
        known = admission.known_artifacts(export, engines)
        for number in range(1, plan.measurement.rounds + 1):
            try:
                record = store.load_raw(results.machine(machine).raw_file(case.case_id, number))
            except (FormatError, MissingInputError):
                return False
            if not isinstance(record, Measured) or record.settings_id != plan.settings_id:
                return False
            if admission.foreign_artifact(record, known) is not None:
                return False
    return True


def _submit(unit: _Unit, runner: Runner, plan: Plan, exports: Exports, results: Results, models: Models) -> None:
    number = len(unit.attempts) + 1
    request, files = unit_request(unit.unit, number, installed_version(), plan, exports, results, models)
    unit.submitted_at = utc_now()
    runner.submit(request, files, Requirements(gpus=int(plan.device == "cuda")))


def _save_attempt(unit: _Unit, ended: EndedAttempt, runner: str, plan: Plan, results: Results) -> Attempt:
    """Save an attempt, and the records of a complete one below its machine's folder."""
    report, reason = None, ended.lost
    if ended.archive is not None:
        try:
            report = _unpacked(unit, ended, plan, results)
        except InferometerError as error:
            reason = f"its archive is refused: {error.problem}"
    complete = report is not None and report.exit_code in MEASURED
    if report is not None and not complete:
        problem = cli.last_error(report.output)
        reason = problem[0] if problem else f"its run ended with exit code {report.exit_code}"
    attempt = Attempt(
        unit_id=ended.unit_id,
        number=ended.number,
        runner=runner,
        submitted_at=unit.submitted_at,
        ended_at=utc_now(),
        outcome="complete" if complete else "refused" if report is not None else "lost",
        machine=report.machine if report else None,
        hostname=report.hostname if report else None,
        reason=reason,
    )
    store.save(results.attempt(ended.unit_id, ended.number), attempt)
    unit.attempts.append(attempt)
    return attempt


def _unpacked(unit: _Unit, ended: EndedAttempt, plan: Plan, results: Results) -> AttemptReport:
    """The report of an archive; its records are written where its run was complete.

    Raises MalformedFileError for an archive of another attempt, or with a file that a unit does not leave.
    """
    packed = results.jobs / "archives" / f"{ended.unit_id}-{ended.number}.tar.xz"
    store.save_bytes(packed, ended.archive or b"")
    files = archive.unpack(packed)
    report = store.parse(packed, files.pop(REPORT, b"{}"), AttemptReport, "make dispatch")
    if (report.unit_id, report.attempt) != (ended.unit_id, ended.number):
        raise MissingInputError(f"it is of {report.unit_id}, attempt {report.attempt}", "make dispatch")
    if report.exit_code in MEASURED:
        folder = results.machine(report.machine)
        own = tuple(f"raw/{case.case_id}/" for case in unit.unit.cases)
        for case in unit.unit.cases:
            shutil.rmtree(folder.raw_case(case.case_id), ignore_errors=True)
        for name, content in files.items():
            if name.startswith((*own, "environments/")):
                store.save_bytes(path_inside(folder.root, name), content)
    return report


def _attempt_text(attempt: Attempt) -> str:
    where = f" on {attempt.hostname} ({attempt.machine})" if attempt.machine else ""
    return f"{attempt.outcome}{where}{f': {attempt.reason}' if attempt.reason else ''}"


def write_report(plan: Plan, fleet: Fleet, results: Results, models: Models) -> None:
    """Aggregate and report by machine, and write which machine measured what."""
    store.save(results.fleet, fleet)
    by_machine: dict[str, list[str]] = {}
    for unit in fleet.units:
        if unit.machine is not None:
            by_machine.setdefault(unit.machine, []).extend(unit.cases)
    for machine, names in by_machine.items():
        folder = results.machine(machine)
        cases = [case for case in plan.cases if case.case_id in set(names)]
        part = select_cases(plan, cases)
        store.save(folder.plan, part)
        if results.command.is_file():
            store.save_bytes(folder.command, read(results.command, SizeLimit.TEXT))
        for slug in dict.fromkeys(case.slug for case in cases):
            if results.export(slug).root.is_dir():
                shutil.copytree(results.export(slug).root, folder.export(slug).root, dirs_exist_ok=True)
        where = ["--results", str(folder.root)]
        run_stage("aggregate", *where, "--models-dir", str(models.root), "--force")
        run_stage("report", *where)
    across: Sequence[DocumentBlock | None] = ()
    measured = {name: folder for name, folder in results.machines().items() if folder.summary.is_file()}
    if len(measured) > 1:
        run_stage("compare", "--across", "--results", str(results.root))
        place = results.machines_chart
        image = f"![Speed-up by machine]({place.parent.name}/{place.name})" if place.is_file() else None
        summaries = {name: file_sums.load_summary(folder.summary) for name, folder in measured.items()}
        across = machines_blocks(summaries, image)
    store.save_bytes(results.fleet_report, cli.typed(fleet_document(fleet, across)).encode())
    cli.say(f"Report: {results.fleet_report}, and report.md of each machine below {results.root / 'machines'}.")


if __name__ == "__main__":
    cli.main(stage)
