"""A service in one process: it measures its own service times, predicts its peak, and serves real replications.

Every worker of the service is a thread with backend objects of its own, one for each prepared batch size, and waits for
its batches. With `in_flight` one thread issues batches to a library that computes asynchronously: on a CPU to one set
of such objects, on a GPU to one set for each batch in flight, because every object has a stream of its own.

Load → compile → reference check → service times → guards → prediction → replications, of which each is saved at once.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from harness.backends import backend_info
from harness.backends.base import Backend, Batch, construct
from harness.backends.batches import NO_BATCHES, BatchSet, empty_export, load_batches
from harness.backends.calibration.slowdown import slow_down, slowdown_of
from harness.backends.case_files import artifact_hashes, make_backend_job, read_case_export
from harness.core import store
from harness.core.errors import CaseError
from harness.core.host import environment
from harness.core.host.environment import loaded_runtimes
from harness.core.layout import LoadFiles, ModelFolder, Models, Results
from harness.core.padding import Mask
from harness.core.process_state import stay_here
from harness.core.protocol import CaseJob, Enter, LoadJob
from harness.core.schemas import (
    Environment,
    ExportRecord,
    GeneratedBatches,
    GuardTimes,
    LoadCase,
    OutputsTime,
    Parity,
    Placement,
    Repeats,
    Replication,
    ServiceRun,
)
from harness.core.store import digest_of
from harness.core.timestamps import utc_now
from harness.planning.load_cases import backend_case
from harness.planning.resume import LoadState, read_load_state, same_machine_check
from harness.serving import arrivals
from harness.serving.load_case import (
    LoadPoint,
    batch_policy,
    batch_sizes,
    patience_ns,
    replication_digest,
    replication_phase,
    replication_schedule,
    replication_seed,
    service_digest,
)
from harness.serving.load_verdict import least_requests
from harness.serving.peak_prediction import predict
from harness.statistics import parity
from harness.statistics.parity import Outputs
from harness.timing.clock import calibrate, now_ns
from harness.timing.issuing_thread import CalledBack, Flight, OnStreams, issue, issue_closed
from harness.timing.process_counters import CpuWatch, peak_bytes
from harness.timing.repeat_check import ALONE_PAIRS, Rewritable
from harness.timing.request_loops import SWITCH_S, Dispatches, WorkerThreads, serve, serve_closed
from harness.timing.rotation import batches_to_check
from harness.timing.service_times import Dispatcher, DispatcherOnStream, order_guard, repeat_guard, service_times
from harness.timing.session import (
    KEPT_OUTPUTS,
    KeptOutputs,
    compare_answers,
    disable_garbage_collection,
    run_repeat_check,
    with_new_samples,
)

DRAIN_NS = 5_000_000_000
"""After the time of an offline run, so long may its samples take."""

LEAST_CLOSED = 5
LOADGEN_LEAST = {"single-stream": least_requests(1, 0.9), "multi-stream": least_requests(1, 0.99)}
"""Fewest requests of a closed loop: by LoadGen's rules those of its early stopping for p90 and p99."""

RE_WARM_S = 0.1
"""Dispatches before each replication, after whatever the process did since the one before."""


def serve_load(job: LoadJob, enter: Enter) -> None:
    """Measure what the load case lacks, and save each record when it is complete. Raises what a backend raises."""
    results = Results(Path(job.results))
    files = results.load(job.load.load_id)
    threads = WorkerThreads(job.load.workers)
    with stay_here():
        service = _Service.opened(job, threads, enter)
    machine, identity = prepare_to_measure(results, job.load, service.facts)
    if job.load.in_flight:
        sys.setswitchinterval(SWITCH_S)  # callbacks must not wait for the issuing thread
    run = _LoadRun(job, files, threads, service, identity, enter)
    same = same_machine_check(results, machine)
    state = read_load_state(job.load, files, job.settings_id, same)
    if state.service is not None and state.service.artifacts_id != service.artifacts_id:
        state = LoadState(needs_replay=state.needs_replay)
    if state.service is None:
        run.measure_service()
        state = read_load_state(job.load, files, job.settings_id, same)
    if state.needs_replay and state.prediction is None:
        run.predict(state)
        state = read_load_state(job.load, files, job.settings_id, same)
    for point, number in state.missing:
        run.replicate(point, number)
    enter("end")
    closes = [worker.close for worker in service.workers]
    threads.in_turn(closes if threads.count > 1 else closes[::-1])


def prepare_to_measure(results: Results, load: LoadCase, facts: dict[str, str]) -> tuple[Environment, str]:
    """Save the environment of a loaded service and stop the garbage collector; the environment and its id."""
    machine = environment.collect(facts, load.device, backend_info(load.backend).recorded)
    identity = environment.save(results, machine)
    disable_garbage_collection()
    return machine, identity


@dataclass(frozen=True)
class _Loaded:
    """One worker's backends, by prepared size, with the start-up cost and the reference check of each.

    known: digests of the answers to stored batches.
    """

    backends: Mapping[int, Backend]
    batches: Mapping[int, BatchSet]
    load_ns: Mapping[int, int]
    parity: Mapping[int, Parity]
    known: Mapping[int, frozenset[bytes]]
    placement: Placement
    dispatcher: Dispatcher

    def check_repeats(self, size: int, seed: int) -> Repeats:
        """Passes on new inputs beside passes on stored ones, as `run` has them; afterwards the inputs are as before."""
        batches, runs = self.batches[size], self._rewritable(size)
        repeats = run_repeat_check(runs, batches.reference, (seed, size), self.known[size], ALONE_PAIRS)
        return with_new_samples(repeats, runs, batches.new, 1, batches.masks)

    def guard_repeats(self, size: int, seed: int) -> GuardTimes:
        """Passes on one stored input beside passes on stored inputs in rotation."""
        return repeat_guard(self._rewritable(size), seed)

    def _rewritable(self, size: int) -> Rewritable:
        backend, batches = self.backends[size], self.batches[size]

        def make_ready(index: int) -> None:
            backend.refresh(index)
            backend.select(index)

        def run_once() -> None:
            backend.infer()
            backend.synchronize()

        backend.activate()
        return Rewritable(batches.inputs, make_ready, run_once, backend.outputs)

    def time_outputs(self, size: int) -> OutputsTime | None:
        """How long outputs() takes after passes on stored inputs; None where there are none."""
        backend, kept = self.backends[size], KeptOutputs(self.backends[size].outputs)
        backend.activate()
        for index in range(min(KEPT_OUTPUTS, len(self.batches[size].inputs))):
            backend.select(index)
            backend.infer()
            backend.synchronize()
            kept.take(index)
        return kept.time()

    def close(self) -> None:
        """Release what outlives the process. Everything is measured and saved by now: a library that fails while it
        closes leaves its words in the log, and the process ends."""
        for backend in reversed(list(self.backends.values())):
            try:
                backend.activate()
                backend.close()
            except Exception:
                traceback.print_exc()


class _Service:
    """All workers of the service, and their common facts."""

    def __init__(
        self, workers: Sequence[_Loaded], export: ExportRecord, files: Mapping[str, str], job: LoadJob
    ) -> None:
        first = workers[0].backends[batch_sizes(job.load)[0]]
        info = backend_info(job.load.backend)
        factor = slowdown_of(job.load.backend)
        self.workers = workers
        self.export = export
        self.artifacts = dict(files)
        self.artifacts_id = digest_of(self.artifacts)
        self.facts = {**first.build_facts(), **loaded_runtimes(), **environment.plugin_fact(info.plugin)}
        stretched = None if factor is None else f"every inference was stretched by {factor:g} on purpose"
        self.notes = tuple(filter(None, (first.on_purpose(), stretched)))

    @classmethod
    def opened(cls, job: LoadJob, threads: WorkerThreads, enter: Enter) -> _Service:
        """Load and check every backend object, each on the thread of its worker, one after the other."""
        load, info = job.load, backend_info(job.load.backend)
        files: dict[str, str] = {}
        if info.artifact == "none":
            export, folder = empty_export(backend_case(load, 1)), Models(Path(job.models)).folder(load.slug)
        else:
            export, folder = read_case_export(job_at_batch(job, 1))
        open_worker = partial(_open_worker, job, export, folder, files, enter)
        bodies = [partial(open_worker, number) for number in range(load.sets)]
        return cls(threads.in_turn(bodies), export, files, job)

    @property
    def dispatchers(self) -> list[Dispatcher]:
        return [worker.dispatcher for worker in self.workers]

    def distance(self, size: int, index: int, outputs: Batch) -> Parity:
        """Of the outputs for an input batch of a prepared size from the fp32 outputs."""
        batches = self.workers[0].batches[size]
        return parity.compare(outputs, batches.reference(index), self.export.classifier, batches.masks[index])


def _open_worker(
    job: LoadJob, export: ExportRecord, folder: ModelFolder, files: dict[str, str], enter: Enter, number: int
) -> _Loaded:
    """Load and check a worker's backend of each prepared size. files: gets the hashes of the files that were read."""
    load, info = job.load, backend_info(job.load.backend)
    backends: dict[int, Backend] = {}
    batches: dict[int, BatchSet] = {}
    load_ns: dict[int, int] = {}
    distances: dict[int, Parity] = {}
    known: dict[int, frozenset[bytes]] = {}
    placement: Placement | None = None
    for size in batch_sizes(load):
        enter("load")
        case_job = job_at_batch(job, size)
        if info.artifact == "none":
            batches[size] = NO_BATCHES
        else:
            batches[size] = load_batches(folder.root, export, case_job.case, job.measurement.parity_samples)
        if info.setting(case_job.case.device, case_job.case.setting).own_core:
            raise CaseError(
                "A service has several threads that launch, and none gets a CPU of its own.",
                "Choose a setting without `own-core` for loads.",
            )
        backend_job = make_backend_job(case_job, export, folder, batches[size].inputs, load.in_flight or 0)
        files.update(artifact_hashes(export, case_job.case, backend_job.engine))
        backends[size] = backend = construct(info.target_on(load.device), backend_job)
        factor = slowdown_of(load.backend)
        if factor is not None:
            slow_down(backend, factor)
        load_ns[size] = _start_cold(backend, enter)
        if load.in_flight and load.device == "cuda" and backend.shares_outputs:
            raise CaseError(
                f"Passes of {load.backend} in {load.setting} write to the same memory: none may overlap.",
                "Serve with WORKERS in place of IN_FLIGHT, or in another setting (SETTINGS=…).",
            )
        enter("reference check")
        checked = batches_to_check(len(batches[size].inputs), number + 1)
        distance, known[size] = compare_answers(_answers(backend, batches[size], checked), export.classifier)
        if distance is not None:
            distances[size] = distance
        placement = backend.placement()  # some libraries report it of the object loaded last
    if placement is None:
        raise CaseError(f"{load.load_id} prepares no batch size.", "Write the plan again: make plan.")
    counts = {size: (backend, len(batches[size].inputs)) for size, backend in backends.items()}
    return _Loaded(backends, batches, load_ns, distances, known, placement, Dispatcher(counts))


def replication_record(
    job: LoadJob,
    point: LoadPoint,
    number: int,
    identity: tuple[str, str],
    started_at: str,
    scheduled: Sequence[int],
    dispatches: Dispatches,
    workers: int,
    distance: Parity | None = None,
    generated: GeneratedBatches | None = None,
) -> Replication:
    """The record of a served replication.

    identity: ids of the artifacts and of the environment. scheduled: empty for a closed loop. distance: of its last
    outputs from the reference. generated: tokens, of a service that generates.
    """
    load = job.load
    return Replication(
        load_id=load.load_id,
        settings_id=job.settings_id,
        load_sha256=replication_digest(load),
        artifacts_id=identity[0],
        started_at=started_at,
        environment_id=identity[1],
        point=point.name,
        number=number,
        scenario=load.scenario,
        rate_per_s=point.rate_per_s,
        clients=point.clients,
        workers=workers,
        max_batch=load.max_batch,
        max_delay_ns=load.max_delay_ns,
        seed=replication_seed(job.measurement.seed, number),
        schedule_sha256=arrivals.digest(np.array(scheduled, np.int64)) if scheduled else None,
        threads=job.threads,
        clock=calibrate(),
        scheduled_ns=tuple(scheduled),
        requests=len(scheduled) or sum(dispatches.sizes),
        sizes=dispatches.sizes,
        ready_ns=dispatches.ready_ns,
        start_ns=dispatches.start_ns,
        done_ns=dispatches.done_ns,
        worker=dispatches.worker,
        failed=dispatches.failed,
        unseen_ns=dispatches.unseen_ns,
        error=dispatches.error,
        timed_out=dispatches.timed_out,
        parity=distance,
        generated=generated,
    )


def job_at_batch(job: LoadJob, size: int) -> CaseJob:
    """The job of one case at a batch size, as a backend's loader takes it."""
    return CaseJob(
        case=backend_case(job.load, size),
        round=1,
        settings_id=job.settings_id,
        measurement=job.measurement,
        threads=job.threads,
        results=job.results,
        models=job.models,
        export=job.export,
        engines=job.engines,
    )


def _start_cold(backend: Backend, enter: Enter) -> int:
    """Load, compile and answer once; the time of all three in ns."""
    start = now_ns()
    backend.load()
    if backend.compiles:
        enter("compile")
        backend.compile()
    enter("first inference")
    backend.activate()
    backend.select(0)
    backend.infer()
    backend.synchronize()
    return now_ns() - start


def _answers(
    backend: Backend, batches: BatchSet, indices: Iterable[int]
) -> Iterator[tuple[Outputs, Outputs, Mask | None]]:
    """As in harness/timing/session.py, of a backend object that no mode drives."""
    for index in indices:
        backend.select(index)
        backend.infer()
        backend.synchronize()
        if expected := batches.reference(index):
            yield backend.outputs() or {}, expected, batches.masks[index]


@dataclass(frozen=True)
class _LoadRun:
    """Measures and saves the records of a load case."""

    job: LoadJob
    files: LoadFiles
    threads: WorkerThreads
    service: _Service
    environment_id: str
    enter: Enter

    def measure_service(self) -> None:
        """Save the service times, the guards, and the facts of the loaded service."""
        load, service, seed = self.job.load, self.service, self.job.measurement.seed
        sizes = batch_sizes(load)
        self.enter("service times")
        started_at = utc_now()
        for worker in service.dispatchers:
            worker.reorder(seed)
        served = partial(self._closed_loop, service.dispatchers)
        watch = CpuWatch()
        times = service_times(served, load.parallel, sizes, load.service_s)
        cpu_use = watch.end()
        first, computes = service.dispatchers[0], bool(service.workers[0].parity)
        repeated = other = repeats = outputs_time = None
        if computes:
            self.enter("guards")
            repeated = self.threads.in_turn([lambda: service.workers[0].guard_repeats(sizes[0], seed)])[0]
            other = self.threads.in_turn([lambda: order_guard(first, sizes[0], seed)])[0]
            repeats = self.threads.in_turn([lambda: service.workers[0].check_repeats(sizes[0], seed)])[0]
            outputs_time = self.threads.in_turn([lambda: service.workers[0].time_outputs(sizes[0])])[0]
        by_size = {
            size: parity.worst(worker.parity[size] for worker in service.workers if size in worker.parity)
            for size in sizes
        }
        record = ServiceRun(
            load_id=load.load_id,
            settings_id=self.job.settings_id,
            load_sha256=service_digest(load),
            artifacts_id=service.artifacts_id,
            started_at=started_at,
            environment_id=self.environment_id,
            artifacts=service.artifacts,
            threads=self.job.threads,
            workers=load.parallel,
            clock=calibrate(),
            load_ns=dict(service.workers[0].load_ns),
            service_ns=times,
            repeat_input=repeated,
            other_order=other,
            repeats=repeats,
            outputs_time=outputs_time,
            cpu_use=cpu_use,
            parity={size: distance for size, distance in by_size.items() if distance is not None},
            placement=service.workers[0].placement,
            peak_rss_bytes=peak_bytes(),
            notes=service.notes,
        )
        store.save(self.files.service, record, indent=None)

    def predict(self, state: LoadState) -> None:
        """Replay on the service times."""
        self.enter("prediction")
        if state.service is None:
            raise CaseError("The service times could not be saved.", "Free some space and run the same command again.")
        seed = self.job.measurement.seed
        prediction = predict(self.job.load, state.service, state.service_sha256, seed, utc_now())
        store.save(self.files.prediction, prediction, indent=None)

    def replicate(self, point: LoadPoint, number: int) -> None:
        """One real replication of one point."""
        load, service = self.job.load, self.service
        seed = replication_seed(self.job.measurement.seed, number)
        clients = point.clients or load.parallel
        workers = service.dispatchers[:clients]
        self._warm(workers)
        for place, worker in enumerate(workers):
            worker.reorder(seed + place)
        self.enter(replication_phase(point, number))
        started_at = utc_now()
        scheduled: list[int] = []
        if load.scenario == "server":
            scheduled = replication_schedule(load, point, seed)
            # Requests that wait longer count as not served.
            dispatches = self._open(scheduled, workers, scheduled[-1] + patience_ns(load))
        else:
            dispatches = self._closed(workers)
        self.enter("outputs check")
        record = replication_record(
            self.job,
            point,
            number,
            (service.artifacts_id, self.environment_id),
            started_at,
            scheduled,
            dispatches,
            workers=clients,
            distance=parity.worst(self._latest(workers)) if not dispatches.failed else None,
        )
        store.save(self.files.replication(point.name, number), record, indent=None)

    def _closed(self, workers: Sequence[Dispatcher]) -> Dispatches:
        load = self.job.load
        duration_ns = round(load.replication_s * 1e9)
        if load.scenario == "offline":
            # One query of all samples: everything is there at the start.
            each = self.threads.in_turn([lambda: _offline_samples(load, workers[0].run, duration_ns)])[0]
            samples = each * load.parallel
            return self._open([0] * samples, workers, 10 * duration_ns + DRAIN_NS)
        least = LOADGEN_LEAST.get(load.scenario, 1) if load.method == "loadgen" else LEAST_CLOSED
        return self._closed_loop(workers, load.max_batch, load.requests, duration_ns, least)

    def _open(self, scheduled: Sequence[int], workers: Sequence[Dispatcher], limit_ns: int) -> Dispatches:
        """The open loop, by workers that wait for their batches, or by one thread that issues them."""
        policy = batch_policy(self.job.load)
        if self.job.load.in_flight:
            return issue(scheduled, policy, self._flight(workers), limit_ns, DRAIN_NS)
        runs = [worker.run for worker in workers]
        return serve(scheduled, policy, runs, self.threads.all_at_once, limit_ns)

    def _closed_loop(
        self, workers: Sequence[Dispatcher], size: int, requests: int, duration_ns: int, least: int = 1
    ) -> Dispatches:
        """Batches of one size from all of these workers, or with as many in flight as there may be."""
        if self.job.load.in_flight:
            return issue_closed(self._flight(workers), size, requests, duration_ns, least)
        runs = [worker.run for worker in workers]
        return serve_closed(runs, size, self.threads.all_at_once, requests, duration_ns, least)

    def _flight(self, workers: Sequence[Dispatcher]) -> Flight:
        """The places of one run on the issuing thread."""
        load = self.job.load
        if load.device == "cuda":
            return OnStreams([DispatcherOnStream(worker) for worker in workers])
        return CalledBack(workers[0].start, load.parallel)

    def _warm(self, workers: Sequence[Dispatcher]) -> None:
        sizes = batch_sizes(self.job.load)
        for size in sizes:
            self._closed_loop(workers, size, 1 << 20, int(RE_WARM_S * 1e9 / len(sizes)))

    def _latest(self, workers: Sequence[Dispatcher]) -> list[Parity]:
        """The outputs of each backend object's last pass, which was timed, against the reference."""
        kept = self.threads.in_turn([worker.latest for worker in workers])
        return [
            self.service.distance(size, index, outputs)
            for of_worker in kept
            for size, index, outputs in of_worker
            if outputs
        ]


def _offline_samples(load: LoadCase, run: Callable[[int], None], duration_ns: int) -> int:
    """Samples of one worker that take about the duration, by whole batches; at most the requests of the case."""
    start = now_ns()
    run(load.max_batch)
    batches = max(1, min(duration_ns // max(1, now_ns() - start), -(-load.requests // load.max_batch)))
    return batches * load.max_batch
