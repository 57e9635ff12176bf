"""worker: the process that measures. Started by `run`, one server per backend; it forks a new process per case.

The server only imports the backend's libraries once. So a case starts in milliseconds and still has an address space, a
thread pool and library state of its own (docs/decisions/0004-fresh-processes.md).

reads   jobs, one JSON line each, from standard input; results/exports/<slug>/export.json and the files that it names
writes  results/raw/<case_id>/<round>.{json,log}, results/environments/<id>.json; events to standard output
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import os
import signal
import sys
import traceback
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NoReturn

from harness.backends import backend_info
from harness.backends.base import construct_class, is_out_of_memory, out_of_memory
from harness.backends.batches import NO_BATCHES, empty_export, load_batches, load_raw_batches
from harness.backends.calibration.slowdown import slow_down, slowdown_of
from harness.backends.case_files import artifact_hashes, make_backend_job, read_case_export
from harness.backends.info import import_target
from harness.core import cli, store
from harness.core.errors import InferometerError, NotSupportedError, StorageError, reason
from harness.core.host import environment
from harness.core.host.environment import loaded_runtimes
from harness.core.host.orphans import (
    adopt_descendants,
    die_with_parent,
    end_all_with,
    kill_children,
)
from harness.core.layout import Models, Results
from harness.core.process_state import stay_here
from harness.core.protocol import (
    ANY_JOB,
    WINDOW_ENDED,
    AnyJob,
    CaseJob,
    Ended,
    Enter,
    Entered,
    Event,
    GenerationCaseJob,
    LoadJob,
    Ready,
    Started,
    TurnJob,
)
from harness.core.safe_files import open_to_write
from harness.core.schemas import Case, Failed, Generated, GenerationCase, LoadCase, Measured
from harness.core.timestamps import utc_now
from harness.planning.load_cases import backend_case
from harness.processes.load_failure import save_failure
from harness.processes.measure_generation import measure_generation
from harness.processes.own_core import OwnCore
from harness.processes.serve_endpoint import serve_endpoint
from harness.processes.serve_generation import serve_generation
from harness.processes.serve_load import serve_load
from harness.timing.clock import calibrate, now_ns
from harness.timing.end_to_end import EndToEnd
from harness.timing.loop import measure
from harness.timing.modes import Mode
from harness.timing.session import mode_for, run_session
from harness.timing.windows import WindowedPart, WindowSignals


def stage(arguments: Sequence[str]) -> None:
    """Serve jobs until standard input ends; with --once, measure one job in this process."""
    parser = cli.parser("harness.processes.worker", __doc__)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--once", action="store_true", help="no fork: one job, for comparison with the server")
    options = parser.parse_args(arguments)
    runner = os.getppid()
    die_with_parent(runner)
    adopt_descendants()
    emit = _emitter()
    info = backend_info(options.backend)
    os.environ.update(info.environment)
    for module in info.preload:
        if importlib.util.find_spec(module.partition(".")[0]) is not None:
            importlib.import_module(module)
    absent = tuple(name for name in info.requires if importlib.util.find_spec(name.partition(".")[0]) is None)
    if not options.once:
        end_all_with(runner)  # also if the run stage is killed
    emit(Ready(threads=_thread_count(), absent=absent))
    for line in sys.stdin:
        job = ANY_JOB.validate_json(line).with_absolute_paths()
        if options.once:
            _measure_and_exit(job, emit)
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()  # so that a time limit also ends compilers that the case started
            die_with_parent(server)
            adopt_descendants()  # so that the CPU time of what the case starts counts, in any session
            _measure_and_exit(job, emit)
        _, status = os.waitpid(pid, 0)
        kill_children()  # ends all that the case started and left, in any session: this process is now its parent
        emit(Ended(code=os.waitstatus_to_exitcode(status)))


def _measure_and_exit(job: AnyJob, emit: Callable[[Event], None]) -> NoReturn:
    """Measure or serve, save, and exit without running exit handlers that belong to the server."""
    emit(Started(pid=os.getpid()))  # from the case itself: its server may go on later than its first phase begins
    phases = ["start"]

    def enter(phase: str) -> None:
        phases.append(phase)
        emit(Entered(phase=phase))

    code = 0
    try:
        if isinstance(job, LoadJob):
            _serve_load_case(job, enter, phases)
        else:
            _measure_turn(job, enter, phases)
    except StorageError as error:
        traceback.print_exc()
        code = error.exit_code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


def _measure_turn(job: TurnJob, enter: Enter, phases: Sequence[str]) -> None:
    """Measure a case and save its record, or the failure with its phase: the last of `phases`."""
    results = Results(Path(job.results))
    if isinstance(job, GenerationCaseJob):
        results = results.of_generation
    log = _log_to(results.log_file(job.case.case_id, job.round))
    try:
        record: Measured | Generated | Failed
        if isinstance(job, GenerationCaseJob):
            record = measure_generation(job, results, enter)
        else:
            record = _measure_case(job, results, enter)
        store.check_size(record, "Lower `measurement.max_samples`.")
    except StorageError:
        raise
    except BaseException as error:  # a model's own code may also exit, or raise something that is no Exception
        traceback.print_exc()
        record = failed_record(job, error, phases[-1], log)
    store.save_raw(results.raw_file(job.case.case_id, job.round), record)
    if not isinstance(record, Failed):
        log.unlink(missing_ok=True)


def _service_of(load: LoadCase) -> Callable[[LoadJob, Enter], None]:
    """The function that serves a load case: with a decoder here, a running service, or a backend."""
    if load.generates_here:
        return serve_generation
    return serve_load if load.endpoint is None else serve_endpoint


def _serve_load_case(job: LoadJob, enter: Enter, phases: Sequence[str]) -> None:
    """Serve a load case, whose process saves several records; record the failure with its phase."""
    files = Results(Path(job.results)).load(job.load.load_id)
    log = _log_to(files.log)
    try:
        with stay_here():
            _service_of(job.load)(job, enter)
        log.unlink(missing_ok=True)
    except StorageError:
        raise
    except BaseException as error:  # as above
        traceback.print_exc()
        problem, hint = _problem_and_hint(error, backend_case(job.load, job.load.max_batch), log)
        sys.stderr.flush()
        save_failure(job, files, problem, hint, phases[-1], store.tail(log))


def _measure_case(job: CaseJob, results: Results, enter: Enter) -> Measured:
    case, started_at = job.case, utc_now()
    info = backend_info(case.backend)
    if info.artifact == "none":
        export, folder, batches = empty_export(case), Models(Path(job.models)).folder(case.slug), NO_BATCHES
    else:
        export, folder = read_case_export(job)
        batches = load_batches(folder.root, export, case, job.measurement.parity_samples)
    backend_job = make_backend_job(job, export, folder, batches.inputs)
    backend_class = import_target(info.target_on(case.device))
    began = now_ns()
    backend = construct_class(backend_class, backend_job)
    constructed_ns = now_ns() - began
    factor = slowdown_of(case.backend)
    if factor is not None:
        slow_down(backend, factor)
    stretched = None if factor is None else f"every inference was stretched by {factor:g} on purpose"
    mode: Mode
    if case.boundary == "e2e":
        raw = load_raw_batches(folder.root, export, case, job.measurement.parity_samples)
        mode, reference = EndToEnd(backend, raw.samples, raw.prepare, raw.answer), raw.reference
    else:
        mode, reference = mode_for(case, backend, len(batches.inputs)), batches.reference
    # A backend that computes nothing shows the harness overhead, and no share of CPU time judges it.
    settings = job.measurement if info.computes else job.measurement.model_copy(update={"min_s": 0.0})
    seed = (job.measurement.seed, job.round, zlib.crc32(case.case_id.encode()))
    windowed = None
    if job.windows is not None:
        windowed = WindowedPart(job.windows, WindowSignals(job.windows.fifo), lambda: enter(WINDOW_ENDED))
    core = OwnCore(info.setting(case.device, case.setting).own_core, enter)
    with stay_here():
        measurements = run_session(
            backend,
            mode,
            reference,
            export.classifier,
            settings,
            core.enter,
            batches.inputs,
            seed,
            job.round,
            timed_part=windowed or measure,
            constructed_ns=constructed_ns,
            masks=batches.masks,
            new=batches.new,
        )
    placement = core.end(measurements.placement)
    enter("record")
    facts = {**backend.build_facts(), **loaded_runtimes(), **environment.plugin_fact(info.plugin)}
    machine = environment.collect(facts, case.device, info.recorded)
    environment_id = environment.save(results, machine)
    return Measured(
        case_id=case.case_id,
        round=job.round,
        settings_id=job.settings_id,
        started_at=started_at,
        environment_id=environment_id,
        artifacts=artifact_hashes(export, case, backend_job.engine),
        threads=job.threads,
        clock=calibrate(),
        warmup_ns=tuple(measurements.warm_up.samples_ns),
        latency_ns=tuple(measurements.timed.samples_ns),
        split_ns=measurements.split,
        device=measurements.device,
        blocks=measurements.timed.blocks,
        steady=measurements.warm_up.steady,
        stop=measurements.timed.stop,
        parity_before=measurements.parity_before,
        parity_timed=measurements.parity_timed,
        placement=placement,
        memory=measurements.memory,
        cold_ns=measurements.cold_ns,
        repeats=measurements.repeats,
        outputs_time=measurements.outputs_time,
        notes=tuple(filter(None, (backend.on_purpose(), stretched))),
        cpu_use=measurements.cpu_use,
        stops=measurements.stops,
        warmup_wall_ns=measurements.warm_up.elapsed_ns,
        inputs_changed=measurements.inputs_changed,
        windows=tuple(windowed.windows) if windowed else (),
    )


def _problem_and_hint(error: BaseException, case: Case | GenerationCase, log: Path) -> tuple[str, str]:
    """(problem, hint) of whatever ended a case."""
    if isinstance(error, InferometerError):
        return error.problem, error.hint
    if isinstance(error, MemoryError):  # of Python and NumPy, for host memory; GPU libraries raise other errors
        return out_of_memory("cpu", case.batch_size)
    if is_out_of_memory(str(error)):
        return out_of_memory(case.device, case.batch_size)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"{sys.executable} has no module {error.name}.",
            f"Install it there, or name another Python: make run BACKEND_PYTHONS={case.backend}=/path/to/python.",
        )
    return reason(error), f"Full log: {log}."


def failed_record(job: TurnJob, error: BaseException, phase: str, log: Path) -> Failed:
    """The record of a case that an error ended in a phase. log: of the case, whose end the record keeps."""
    problem, hint = _problem_and_hint(error, job.case, log)
    sys.stderr.flush()
    return Failed(
        case_id=job.case.case_id,
        round=job.round,
        settings_id=job.settings_id,
        started_at=utc_now(),
        environment_id=None,
        error=problem,
        hint=hint,
        phase=phase,
        stderr_tail=store.tail(log),
        refused=isinstance(error, NotSupportedError),
    )


def _log_to(log: Path) -> Path:
    """Send all output of this process and its libraries to the case's log; a crash leaves its stack there."""
    with store.translate_storage_errors(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        handle = open_to_write(log)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    faulthandler.enable()
    # The server's standard input holds the jobs: a model's code that reads input must not read them.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return log


def _emitter() -> Callable[[Event], None]:
    """A function that sends events on the original standard output, which libraries can then no longer write to."""
    events: IO[str] = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def emit(event: Event) -> None:
        # One short write per event: parent and forked child share the pipe, and short writes are not split.
        try:
            events.write(event.model_dump_json() + "\n")
        except BrokenPipeError:
            # The run stage was killed, and the kernel's signal will end this process: that is no failure of the case
            # and must not be recorded as a failure.
            os._exit(1)

    return emit


def _thread_count() -> int:
    """Threads of this process, as the kernel counts them; 1 where it reports none."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else 1


if __name__ == "__main__":
    cli.main(stage)
