"""Loads a running service: one client in a closed loop, guards, and real replications, of which each is saved at once.

The service is another process, here or on another machine. Nothing is predicted: how it batches and how many workers it
has is unknown. Every kept answer is compared with the fp32 reference.

Check → reference check → service times → guard → replications.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.backends import backend_info
from harness.core import store
from harness.core.errors import CaseError
from harness.core.host import environment
from harness.core.layout import LoadFiles, Results
from harness.core.protocol import LoadJob
from harness.core.schemas import GuardTimes, Placement, Replication, ServiceRun
from harness.core.store import digest_of
from harness.core.timestamps import utc_now
from harness.endpoints import open_endpoint
from harness.endpoints.contract import Endpoint, EndpointFacts
from harness.endpoints.issuing import drive, drive_closed, keep_every
from harness.endpoints.target import parse_target
from harness.endpoints.timeline import Timeline, client_times, ended
from harness.planning.resume import LoadState, state_of
from harness.processes.endpoint_workload import Judged, Workload, workload_of
from harness.processes.load_process import same_machine
from harness.serving import arrivals
from harness.serving.load_case import LoadStep, patience_ns, replication_digest, requests_at, seed_of, service_digest
from harness.timing.clock import calibrate
from harness.timing.session import peak_bytes

Enter = Callable[[str], None]

MOST_CHECKED = 16
"""Stored inputs that are sent before anything is timed."""

CHECK_NS = 60_000_000_000
"""Longest wait for one answer of the checks: a service may load its model at the first request."""

CLOSED_TIMEOUT_NS = 60_000_000_000

SERVICE_TIMES = (20, 2_000)
"""Fewest and most requests of the closed loop that measures service times."""

WARM_UP = 8
WARM_UP_S = 2.0
"""Requests before each replication, one after the other, and the time after which fewer are enough."""

GUARD_PAIRS = 12
GUARD_NS = 30_000_000
"""Length of one block of a pair, in service times; at least three requests."""
GUARD_S = 20.0
"""Of all pairs; a slow service has fewer, but at least four."""

OFFLINE_IN_FLIGHT = 64
"""Requests in flight of the offline scenario, whose requests are all due at once."""

LEAST_CLOSED = 5


def serve_endpoint(job: LoadJob, enter: Enter) -> None:
    """Measure what the load case of a running service lacks, and save each record when it is complete."""
    results = Results(Path(job.results))
    files = results.load(job.load.load_id)
    run = _EndpointRun.opened(job, files, enter)
    served = {"endpoint": f"{run.facts.server} {run.facts.version}".strip()}
    where = environment.collect(served, job.load.device, backend_info(job.load.backend).recorded)
    identity = environment.environment_id(where)
    store.save(results.environment(identity), where)
    gc.collect()
    gc.freeze()
    same = same_machine(results, identity, where)
    state = state_of(job.load, files, job.settings_id, same)
    if state.service is None or state.service.artifacts_id != run.artifacts_id:
        run.measure_service(identity)
        state = state_of(job.load, files, job.settings_id, same)
    for step, number in state.missing:
        run.replicate(step, number, identity, _median_ns(state))
    enter("end")


@dataclass(frozen=True)
class _EndpointRun:
    """Measures and saves the records of one load case. checked: answers to stored inputs, before anything is timed."""

    job: LoadJob
    files: LoadFiles
    endpoint: Endpoint
    facts: EndpointFacts
    work: Workload
    checked: Judged
    answer_bytes: int
    enter: Enter

    @classmethod
    def opened(cls, job: LoadJob, files: LoadFiles, enter: Enter) -> _EndpointRun:
        """Check the service, and compare its answers to all stored inputs with the reference."""
        enter("endpoint check")
        work = workload_of(job)
        endpoint = open_endpoint(parse_target(job.load.endpoint or ""))
        facts = endpoint.check(work.samples[0], CHECK_NS)
        enter("reference check")
        stored = range(min(len(work.samples), MOST_CHECKED))
        first = drive_closed(endpoint, work.samples, stored, 1, CHECK_NS)
        if first.details:
            kind, said = next(iter(first.details.items()))
            raise CaseError(f"The service failed a request before any load: {kind}: {said}.", "Its own log says why.")
        judged = work.judge(first)
        if judged.wrong and job.load.new_tokens is not None:
            raise CaseError(
                f"An answer has not the length that was asked for: {next(iter(judged.wrong.values()))}.",
                "Serve with a server that takes ignore_eos, or ask for fewer tokens: TOKENS=<number>.",
            )
        if judged.wrong:
            raise CaseError(
                f"The service's outputs are not those of {job.load.model}: {next(iter(judged.wrong.values()))}.",
                "Serve the ONNX file of this export (models/<model>/<export>/model.onnx), with all its outputs.",
            )
        if judged.compared and judged.equal == 0:
            raise CaseError(
                f"None of {judged.compared} answers has the tokens or text of greedy fp32 {job.load.model}.",
                "Serve the same weights, and the same tokenizer: `?model=<name>` chooses one of several models.",
            )
        answer = int(first.answer_bytes.max())
        return cls(job, files, endpoint, facts, work, judged, answer, enter)

    @property
    def artifacts_id(self) -> str:
        """Another version of the server, or another form of payload, is another service."""
        facts = self.facts
        return digest_of(self.work.artifacts, facts.url, facts.server, facts.version, facts.form)

    def measure_service(self, identity: str) -> None:
        """Service times with one client, the guard, and what is known about the service."""
        load, facts = self.job.load, self.facts
        self.enter("service times")
        started_at = utc_now()
        short = self._alone(self.work.order(LEAST_CLOSED, self.job.measurement.seed))
        count = _count_for(load.service_s, _typical_ns(short), *SERVICE_TIMES)
        run = self._alone(self.work.order(count, self.job.measurement.seed))
        self.enter("guards")
        record = ServiceRun(
            load_id=load.load_id,
            settings_id=self.job.settings_id,
            load_sha256=service_digest(load),
            artifacts_id=self.artifacts_id,
            started_at=started_at,
            environment_id=identity,
            artifacts=self.work.artifacts,
            threads=self.job.threads,
            workers=1,
            clock=calibrate(),
            load_ns={},
            service_ns={load.max_batch: tuple((run.done - run.issued).tolist())},
            repeat_input=self._repeat_guard(_typical_ns(run)),
            parity={} if self.checked.distance is None else {load.max_batch: self.checked.distance},
            placement=_placement(facts),
            peak_rss_bytes=peak_bytes(),
            notes=_notes(facts, self.checked),
        )
        store.save(self.files.service, record, indent=None)

    def replicate(self, step: LoadStep, number: int, identity: str, typical_ns: float) -> None:
        """One real replication of one point."""
        load = self.job.load
        seed = seed_of(self.job.measurement.seed, number)
        self._closed(self.work.order(_count_for(WARM_UP_S, typical_ns, 1, WARM_UP), seed), 1)
        self.enter(f"replication {number} of {step.name}")
        started_at = utc_now()
        before = self.endpoint.totals(CHECK_NS)
        run, schedule_sha256 = self._one(step, seed, typical_ns)
        after = self.endpoint.totals(CHECK_NS)
        self.enter("outputs check")
        judged = self.work.judge(run)
        run = run.with_wrong(tuple(judged.wrong), next(iter(judged.wrong.values()), ""))
        server = after.since(before) if before is not None and after is not None else None
        order = np.argsort(run.issued, kind="stable") if not run.open_loop else np.arange(len(run.issued))
        if not run.open_loop:
            run = run.reordered(order)
        offline = load.scenario == "offline"
        samples = load.max_batch if offline else 1
        record = Replication(
            load_id=load.load_id,
            settings_id=self.job.settings_id,
            load_sha256=replication_digest(load),
            artifacts_id=self.artifacts_id,
            started_at=started_at,
            environment_id=identity,
            point=step.name,
            number=number,
            scenario=load.scenario,
            rate_per_s=step.rate_per_s,
            clients=step.clients,
            workers=step.clients or 1,
            max_batch=load.max_batch,
            max_delay_ns=0,
            seed=seed,
            schedule_sha256=schedule_sha256,
            threads=self.job.threads,
            clock=calibrate(),
            scheduled_ns=tuple(run.scheduled.tolist()) if load.scenario == "server" else (),
            requests=len(run.issued) * samples,
            sizes=(samples,) * len(run.issued),
            ready_ns=tuple((run.issued if offline else run.scheduled).tolist()),
            start_ns=tuple(run.issued.tolist()),
            done_ns=tuple(ended(run).tolist()),
            worker=(0,) * len(run.issued),
            failed=tuple(np.flatnonzero(run.failed).tolist()),
            error=next((f"{kind}: {said}" for kind, said in run.details.items()), None),
            parity=judged.distance,
            client=client_times(run, judged.compared, judged.equal, server),
            new_tokens=self.work.asked(run),
        )
        store.save(self.files.replication(step.name, number), record, indent=None)

    def _one(self, step: LoadStep, seed: int, typical_ns: float) -> tuple[Timeline, str | None]:
        """The requests of a replication, and the digest of their schedule where they have one."""
        load = self.job.load
        if load.scenario == "server":
            if step.rate_per_s is None:
                raise CaseError(f"{step.name} has no rate.", "Write the plan again: make plan.")
            count = requests_at(load, step.rate_per_s)
            draw = arrivals.loadgen if load.method == "loadgen" else arrivals.poisson
            schedule = draw(step.rate_per_s, count, seed)
            kept, order = keep_every(count, self.answer_bytes), self.work.order(count, seed)
            run = drive(self.endpoint, self.work.samples, order, schedule, patience_ns(load), keep_every=kept)
            return run, arrivals.digest(schedule)
        clients = step.clients or (OFFLINE_IN_FLIGHT if load.scenario == "offline" else 1)
        count = _count_for(load.replication_s * clients, typical_ns, LEAST_CLOSED * clients, load.requests)
        return self._closed(self.work.order(count, seed), clients), None

    def _closed(self, order: Sequence[int], clients: int) -> Timeline:
        kept = keep_every(len(order), self.answer_bytes)
        return drive_closed(self.endpoint, self.work.samples, order, clients, CLOSED_TIMEOUT_NS, keep_every=kept)

    def _alone(self, order: Sequence[int]) -> Timeline:
        """A closed loop of one client, of which every request is answered. Raises CaseError where one fails: its time
        is no time of the service."""
        run = self._closed(order, 1)
        if run.details:
            kind, said = next(iter(run.details.items()))
            raise CaseError(f"A request failed without load: {kind}: {said}.", "The server's own log says why.")
        return run

    def _repeat_guard(self, typical_ns: float) -> GuardTimes:
        """Pairs of blocks: inputs in rotation, and one stored input each time. A cache of answers would show."""
        chance = random.Random(self.job.measurement.seed)  # noqa: S311 - an order, not a secret
        count = max(3, round(GUARD_NS / typical_ns))
        usual, other = list[float](), list[float]()
        pairs = _count_for(GUARD_S, 4 * count * typical_ns, min(2, GUARD_PAIRS // 2), GUARD_PAIRS // 2)
        for number, usual_first in enumerate(chance.sample([True, False] * pairs, 2 * pairs)):
            for is_usual in (usual_first, not usual_first):
                order = self.work.order(count, number) if is_usual else [number % len(self.work.samples)] * count
                run = self._alone(order)
                (usual if is_usual else other).append(float(np.mean(run.done - run.issued)))
        return GuardTimes(usual_ns=tuple(usual), other_ns=tuple(other))


def _placement(facts: EndpointFacts) -> Placement:
    return Placement(
        device="service",
        precision="unknown",
        provider=f"{facts.server} {facts.version}".strip() or "unknown",
        settings={"address": facts.url, "payload": facts.form, "same machine": facts.loopback},
        dtype_census={},
    )


def _notes(facts: EndpointFacts, checked: Judged) -> tuple[str, ...]:
    alone = f"Without load {checked.equal} of {checked.compared} answers are those of greedy fp32."
    shared = ("The client runs on the service's machine and takes CPU time from it.",) if facts.loopback else ()
    return (*facts.notes, *(() if checked.equal is None else (alone,)), *shared)


def _typical_ns(run: Timeline) -> float:
    return float(max(1.0, np.median(run.done - run.issued)))


def _median_ns(state: LoadState) -> float:
    times = [time for sizes in state.service.service_ns.values() for time in sizes] if state.service else []
    return float(np.median(times)) if times else 1e6


def _count_for(seconds: float, typical_ns: float, least: int, most: int) -> int:
    return max(least, min(most, round(seconds * 1e9 / typical_ns)))
