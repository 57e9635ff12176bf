"""Loads a running service: requests and their expected answers, a closed loop, guards, and real replications.

The service is another process, here or on another machine. Nothing is predicted: how it batches and how many workers it
has is unknown. Every kept answer is compared with the fp32 reference.

Check → reference check → service times → guard → service times → replications.
"""

from __future__ import annotations

import gc
import random
import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.backends import backend_info
from harness.backends.batches import BatchSet, load_batches
from harness.backends.case_files import artifact_hashes, read_case_export
from harness.core import store
from harness.core.errors import CaseError
from harness.core.host import environment
from harness.core.layout import LoadFiles, Models, Results
from harness.core.protocol import Enter, LoadJob
from harness.core.schemas import GenerationExport, GuardTimes, Parity, Placement, Repeats, Replication, ServiceRun
from harness.core.store import digest_of
from harness.core.timestamps import utc_now
from harness.endpoints import open_endpoint
from harness.endpoints.contract import Completion, Endpoint, EndpointFacts, Exchange, Prompt, Sample, Tensors
from harness.endpoints.issuing import issue_closed_loop, issue_open_loop, kept_step
from harness.endpoints.target import parse_target
from harness.endpoints.timeline import Timeline, client_times, end_instants
from harness.planning.resume import LoadState, read_load_state, same_machine_check
from harness.processes.measure_generation import find_prompt_set
from harness.processes.serve_load import job_at_batch
from harness.serving import arrivals
from harness.serving.load_case import (
    LoadPoint,
    draw_places,
    patience_ns,
    replication_digest,
    replication_phase,
    replication_schedule,
    replication_seed,
    service_digest,
)
from harness.statistics import parity
from harness.timing.clock import calibrate, now_ns
from harness.timing.process_counters import peak_bytes
from harness.timing.repeat_check import ALONE_PAIRS, Rewritable, check_repeats
from harness.zoo.input_files import read_arrays


@dataclass(frozen=True)
class JudgedAnswers:
    """Kept answers against the reference. distance: of arrays, the worst; wrong: why an answer cannot be compared, by
    request; equal: completions with the reference's tokens or text."""

    compared: int
    distance: Parity | None = None
    wrong: Mapping[int, str] = field(default_factory=dict)
    equal: int | None = None


class Workload(ABC):
    """Samples that take turns, and their reference."""

    samples: Sequence[Sample]
    artifacts: dict[str, str]
    """sha256 by name of the files that were read."""

    @abstractmethod
    def judge(self, run: Timeline) -> JudgedAnswers:
        """Compare the kept answers of a run."""

    def order(self, count: int, seed: int) -> list[int]:
        """Samples in random rounds: each appears once before any appears again."""
        chance = random.Random(seed)  # noqa: S311 - an order, not a secret
        stored = len(self.samples)
        rounds = [number for _ in range(-(-count // stored)) for number in chance.sample(range(stored), stored)]
        return rounds[:count]

    def tokens_asked(self, run: Timeline) -> tuple[int, ...]:
        """Tokens that each request asked for, where requests differ in it."""
        return ()

    @abstractmethod
    def check_repeats(self, endpoint: Endpoint, facts: EndpointFacts, seed: int) -> Repeats:
        """Requests with new inputs beside requests with stored ones."""


class TensorWorkload(Workload):
    """Batches of arrays, and the fp32 outputs for each."""

    def __init__(self, job: LoadJob) -> None:
        own = job_at_batch(job, job.load.max_batch)
        export, folder = read_case_export(own)
        self._batches: BatchSet = load_batches(folder.root, export, own.case, job.measurement.parity_samples)
        self._classifier = export.classifier
        self.samples = self._batches.inputs
        self.artifacts = artifact_hashes(export, own.case)

    def judge(self, run: Timeline) -> JudgedAnswers:
        """Distances by harness/statistics/parity.py; an output that is missing or has another shape is wrong."""
        distances, wrong = list[Parity](), dict[int, str]()
        for number in sorted(run.replies):
            index = int(run.sample[number])
            reference, mask = self._batches.reference(index), self._batches.masks[index]
            try:
                distances.append(parity.compare(run.replies[number], reference, self._classifier, mask))  # type: ignore[arg-type]
            except ValueError as error:
                wrong[number] = str(error)
        return JudgedAnswers(len(run.replies), parity.worst(distances), wrong)

    def check_repeats(self, endpoint: Endpoint, facts: EndpointFacts, seed: int) -> Repeats:
        """New inputs are made of two stored ones."""
        return _check_repeats(endpoint, self._batches.inputs, lambda batch: batch, self._batches.reference, seed)


def _check_repeats(
    endpoint: Endpoint,
    stored: Sequence[Tensors],
    sample_of: Callable[[Tensors], Sample],
    reference: Callable[[int], Tensors],
    seed: int,
) -> Repeats:
    """On one connection. A service that keeps answers by their input has those to all stored inputs by now, and those
    to the new inputs of an earlier check: no two checks have the same seed. sample_of: the request of some arrays."""
    batches = [{name: np.array(values) for name, values in batch.items()} for batch in stored[:MOST_CHECKED]]
    connection, place, answer = endpoint.connect(), 0, dict[str, NDArray[np.generic]]()

    def make_ready(index: int) -> None:
        nonlocal place
        place = index

    def run_once() -> None:
        nonlocal answer
        reply = connection.exchange(sample_of(batches[place]), now_ns() + CHECK_NS, Exchange())
        answer = {} if isinstance(reply, Completion) else dict(reply)

    try:
        runs = Rewritable(batches, make_ready, run_once, lambda: answer)
        return check_repeats(runs, reference, (seed, secrets.randbits(64)), ALONE_PAIRS)
    finally:
        connection.close()


class PromptWorkload(Workload):
    """Prompts, and what greedy fp32 answers to the first of them; of a distribution each pair of lengths has its own.

    The pairs take turns in the samples, so that the first ones, which are checked before anything is timed, have
    different lengths.
    """

    samples: Sequence[Prompt]

    def __init__(self, job: LoadJob) -> None:
        load = job.load
        export = store.load(Path(job.export or ""), GenerationExport, "make export")
        folder = Models(Path(job.models)).folder(load.slug, export.folder).root
        distinct = [*dict.fromkeys(load.pairs)]
        sets = [_answered(export, folder, *pair) for pair in distinct]
        rows = min(len(prompts) for prompts, _ in sets)
        self.samples = [prompts[row] for row in range(rows) for prompts, _ in sets]
        self._answers = [answers.get(row) for row in range(rows) for _, answers in sets]
        self._pairs, self._distinct = load.pairs, distinct
        chosen = [find_prompt_set(export, *pair) for pair in distinct]
        files = (*export.tokenizer, *(file for stored in chosen for file in (stored.prompts, stored.reference)))
        self.artifacts = {file.path: file.sha256 for file in files}

    def order(self, count: int, seed: int) -> list[int]:
        """The sample of each request. With a distribution each request draws its lengths; the prompts of a pair take
        turns."""
        if len(self._distinct) == 1:
            return super().order(count, seed)
        width = len(self._distinct)
        rows, used = len(self.samples) // width, Counter[int]()
        places = []
        for place in draw_places(len(self._pairs), count, seed):
            pair = self._distinct.index(self._pairs[place])
            places.append((seed + used[pair]) % rows * width + pair)
            used[pair] += 1
        return places

    def tokens_asked(self, run: Timeline) -> tuple[int, ...]:
        """The tokens that each request asks for, with a distribution of lengths."""
        return tuple(self.samples[int(place)].new_tokens for place in run.sample) if len(self._distinct) > 1 else ()

    def judge(self, run: Timeline) -> JudgedAnswers:
        """Equal ids where the server reports them, else equal text. A server in another precision answers otherwise
        where two tokens are almost as likely, so an unequal answer is no failure. One of another length is wrong: it
        took less, or more, work than was asked for."""
        compared = equal = 0
        wrong = dict[int, str]()
        for number, reply in sorted(run.replies.items()):
            if not isinstance(reply, Completion):
                continue
            place = int(run.sample[number])
            if (why := _other_length(reply, self.samples[place].new_tokens)) is not None:
                wrong[number] = why
            answer = self._answers[place]
            if answer is None:
                continue
            compared += 1
            equal += reply.ids == answer.ids if reply.ids else reply.text == answer.text
        return JudgedAnswers(compared, wrong=wrong, equal=equal)

    def check_repeats(self, endpoint: Endpoint, facts: EndpointFacts, seed: int) -> Repeats:
        """The repeat check on prompts of one length, by their token ids."""
        first = self.samples[0]
        if facts.form != "ids" or first.ids is None:
            return Repeats(missing="the server takes text, and new prompts are made of token ids")
        alike = [sample.ids for sample in self.samples if sample.ids and len(sample.ids) == len(first.ids)]

        def prompt(batch: Tensors) -> Prompt:
            return Prompt(first.text, first.new_tokens, tuple(batch["ids"].tolist()))

        return _check_repeats(endpoint, [{"ids": np.array(ids)} for ids in alike], prompt, lambda _: {}, seed)


@dataclass(frozen=True)
class ExpectedAnswer:
    """The answer of greedy fp32 to a prompt."""

    ids: tuple[int, ...]
    text: str


def _answered(
    export: GenerationExport, folder: Path, length: int, tokens: int
) -> tuple[list[Prompt], dict[int, ExpectedAnswer]]:
    """Prompts of a length, and by row the answers to the first of them."""
    chosen = find_prompt_set(export, length, tokens)
    ids: NDArray[np.int64] = read_arrays(folder / chosen.prompts.path)["ids"].astype(np.int64)
    expected = read_arrays(folder / chosen.reference.path)["tokens"][:, :tokens].astype(np.int64)
    texts, answers = _texts_of(export, folder, ids, expected)
    prompts = [Prompt(text, tokens, tuple(row)) for text, row in zip(texts, ids.tolist(), strict=True)]
    rows = zip(expected.tolist(), answers, strict=True)
    return prompts, {number: ExpectedAnswer(tuple(row), text) for number, (row, text) in enumerate(rows)}


def make_workload(job: LoadJob) -> Workload:
    """The workload of a load case. Raises FormatError or MissingInputError where a file is missing."""
    return TensorWorkload(job) if job.load.new_tokens is None else PromptWorkload(job)


def _other_length(reply: Completion, asked: int) -> str | None:
    """Why an answer has not the number of tokens that was asked for; None where it has, or ended by that limit."""
    if reply.tokens is not None:
        return None if reply.tokens == asked else f"{reply.tokens} instead of {asked} tokens"
    if reply.finish == "length":
        return None
    return f"the server gives no number of tokens, and its reason to stop is {reply.finish or 'unknown'}, not length"


def _texts_of(
    export: GenerationExport, folder: Path, ids: NDArray[np.int64], expected: NDArray[np.int64]
) -> tuple[list[str], list[str]]:
    """Prompts and expected answers as text; empty prompts where the model has no tokenizer here."""
    file = next((entry for entry in export.tokenizer if entry.path.endswith("tokenizer.json")), None)
    if file is None:
        return [""] * len(ids), [""] * len(expected)
    from tokenizers import Tokenizer  # noqa: PLC0415 - of the model libraries, for completions alone

    tokenizer = Tokenizer.from_file(str(folder / file.path))
    prompts = [tokenizer.decode(row, skip_special_tokens=False) for row in ids.tolist()]
    texts = [
        tokenizer.decode([*prompt, *answer], skip_special_tokens=False)
        for prompt, answer in zip(ids.tolist(), expected.tolist(), strict=False)
    ]
    return prompts, [text[len(prompt) :] for prompt, text in zip(prompts, texts, strict=False)]


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

REPEATS_S = 120.0
"""Of requests with new inputs and of those beside them: where they would take longer, there are none."""

OFFLINE_IN_FLIGHT = 64
"""Requests in flight of the offline scenario, whose requests are all due at once."""

LEAST_CLOSED = 5


def serve_endpoint(job: LoadJob, enter: Enter) -> None:
    """Measure what the load case of a running service lacks, and save each record when it is complete."""
    results = Results(Path(job.results))
    files = results.load(job.load.load_id)
    run = _EndpointRun.opened(job, files, enter)
    served = {"endpoint": f"{run.facts.server} {run.facts.version}".strip()}
    machine = environment.collect(served, job.load.device, backend_info(job.load.backend).recorded)
    identity = environment.save(results, machine)
    gc.collect()
    gc.freeze()
    same = same_machine_check(results, machine)
    state = read_load_state(job.load, files, job.settings_id, same)
    if state.service is None or state.service.artifacts_id != run.artifacts_id:
        run.measure_service(identity)
        state = read_load_state(job.load, files, job.settings_id, same)
    for point, number in state.missing:
        run.replicate(point, number, identity, _median_ns(state))
    enter("end")


@dataclass(frozen=True)
class _EndpointRun:
    """Measures and saves the records of one load case. checked: answers to stored inputs, before anything is timed."""

    job: LoadJob
    files: LoadFiles
    endpoint: Endpoint
    facts: EndpointFacts
    work: Workload
    checked: JudgedAnswers
    answer_bytes: int
    enter: Enter

    @classmethod
    def opened(cls, job: LoadJob, files: LoadFiles, enter: Enter) -> _EndpointRun:
        """Check the service, and compare its answers to all stored inputs with the reference."""
        enter("endpoint check")
        work = make_workload(job)
        endpoint = open_endpoint(parse_target(job.load.endpoint or ""))
        facts = endpoint.check(work.samples[0], CHECK_NS)
        enter("reference check")
        stored = range(min(len(work.samples), MOST_CHECKED))
        first = issue_closed_loop(endpoint, work.samples, stored, 1, CHECK_NS)
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
        """Save the service times with one client, the guard, and the facts of the service."""
        load, facts = self.job.load, self.facts
        self.enter("service times")
        started_at = utc_now()
        short = self._alone(self.work.order(LEAST_CLOSED, self.job.measurement.seed))
        count = _count_for(load.service_s, _typical_ns(short), *SERVICE_TIMES)
        # Half of them before the guards and half after: a disturbance seldom lasts so long.
        order = self.work.order(count, self.job.measurement.seed)
        first = self._alone(order[: count // 2])
        self.enter("guards")
        typical_ns = _typical_ns(first)
        guard, repeats = self._repeat_guard(typical_ns), self._repeats(typical_ns)
        self.enter("service times")
        second = self._alone(order[count // 2 :])
        times = [time for run in (first, second) for time in (run.done - run.issued).tolist()]
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
            service_ns={load.max_batch: tuple(times)},
            repeat_input=guard,
            repeats=repeats,
            parity={} if self.checked.distance is None else {load.max_batch: self.checked.distance},
            placement=_placement(facts),
            peak_rss_bytes=peak_bytes(),
            notes=_notes(facts, self.checked),
        )
        store.save(self.files.service, record, indent=None)

    def replicate(self, point: LoadPoint, number: int, identity: str, typical_ns: float) -> None:
        """One real replication of one point."""
        load = self.job.load
        seed = replication_seed(self.job.measurement.seed, number)
        self._closed(self.work.order(_count_for(WARM_UP_S, typical_ns, 1, WARM_UP), seed), 1)
        self.enter(replication_phase(point, number))
        started_at = utc_now()
        before = self.endpoint.totals(CHECK_NS)
        run, schedule_sha256 = self._replicate_once(point, seed, typical_ns)
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
            point=point.name,
            number=number,
            scenario=load.scenario,
            rate_per_s=point.rate_per_s,
            clients=point.clients,
            workers=point.clients or 1,
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
            done_ns=tuple(end_instants(run).tolist()),
            worker=(0,) * len(run.issued),
            failed=tuple(np.flatnonzero(run.failed).tolist()),
            error=next((f"{kind}: {said}" for kind, said in run.details.items()), None),
            parity=judged.distance,
            client=client_times(run, judged.compared, judged.equal, server),
            new_tokens=self.work.tokens_asked(run),
        )
        store.save(self.files.replication(point.name, number), record, indent=None)

    def _replicate_once(self, point: LoadPoint, seed: int, typical_ns: float) -> tuple[Timeline, str | None]:
        """The requests of a replication, and the digest of their schedule where they have one."""
        load = self.job.load
        if load.scenario == "server":
            schedule = np.array(replication_schedule(load, point, seed), np.int64)
            count = len(schedule)
            kept, order = kept_step(count, self.answer_bytes), self.work.order(count, seed)
            run = issue_open_loop(self.endpoint, self.work.samples, order, schedule, patience_ns(load), keep_every=kept)
            return run, arrivals.digest(schedule)
        clients = point.clients or (OFFLINE_IN_FLIGHT if load.scenario == "offline" else 1)
        count = _count_for(load.replication_s * clients, typical_ns, LEAST_CLOSED * clients, load.requests)
        return self._closed(self.work.order(count, seed), clients), None

    def _closed(self, order: Sequence[int], clients: int) -> Timeline:
        kept = kept_step(len(order), self.answer_bytes)
        return issue_closed_loop(self.endpoint, self.work.samples, order, clients, CLOSED_TIMEOUT_NS, keep_every=kept)

    def _alone(self, order: Sequence[int]) -> Timeline:
        """A closed loop of one client, of which every request is answered. Raises CaseError where one fails: its time
        is no time of the service."""
        run = self._closed(order, 1)
        if run.details:
            kind, said = next(iter(run.details.items()))
            raise CaseError(f"A request failed without load: {kind}: {said}.", "The server's own log says why.")
        return run

    def _repeats(self, typical_ns: float) -> Repeats:
        if 2 * ALONE_PAIRS * typical_ns > REPEATS_S * 1e9:
            return Repeats(missing=f"its requests would take more than {REPEATS_S:g} s")
        return self.work.check_repeats(self.endpoint, self.facts, self.job.measurement.seed)

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
                # A single request that waited for a CPU would move a mean.
                (usual if is_usual else other).append(float(np.median(run.done - run.issued)))
        return GuardTimes(usual_ns=tuple(usual), other_ns=tuple(other))


def _placement(facts: EndpointFacts) -> Placement:
    return Placement(
        device="service",
        precision="unknown",
        provider=f"{facts.server} {facts.version}".strip() or "unknown",
        settings={"address": facts.url, "payload": facts.form, "same machine": facts.loopback},
        dtype_census={},
    )


def _notes(facts: EndpointFacts, checked: JudgedAnswers) -> tuple[str, ...]:
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
