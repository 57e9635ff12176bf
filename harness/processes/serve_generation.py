"""A service that generates, in one process: decoders of each prepared batch size serve real replications.

Load → compile → tokens check → service times → replications, of which each is saved at once. Batching is static or
continuous (harness/timing/token_batching.py). Nothing is predicted: how long a batch takes depends on the lengths in
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.backends import backend_info
from harness.backends.decoder import Decoder, JoiningDecoder
from harness.backends.generation_files import files_read
from harness.core import store
from harness.core.errors import MissingInputError
from harness.core.host import environment
from harness.core.host.environment import loaded_runtimes
from harness.core.layout import LoadFiles, ModelFolder, Models, Results
from harness.core.protocol import Enter, LoadJob
from harness.core.schemas import GenerationExport, LoadCase, ServiceRun, TokenParity
from harness.core.store import digest_of
from harness.core.timestamps import utc_now
from harness.planning.load_cases import decoder_case
from harness.planning.resume import read_load_state, same_machine_check
from harness.processes.measure_generation import (
    CALIBRATION_SHAPE,
    calibration_prompts,
    decoder_of,
    find_prompt_set,
    joining_decoder_of,
    load_prompts,
    make_decoder_job,
)
from harness.processes.serve_load import prepare_to_measure, replication_record
from harness.serving.load_case import (
    LoadPoint,
    batch_policy,
    batch_sizes,
    draw_length_pairs,
    patience_ns,
    replication_phase,
    replication_schedule,
    replication_seed,
    service_digest,
)
from harness.statistics.parity import Ids, ParityTally, worst_token_parity
from harness.timing.clock import calibrate, now_ns
from harness.timing.process_counters import peak_bytes
from harness.timing.request_loops import WorkerThreads, serve
from harness.timing.token_batching import (
    ContinuousBatches,
    ServedBatch,
    StaticBatches,
    TokenRequest,
    generate_batch,
    left_padded,
)

LEAST_BATCHES, MOST_BATCHES = 3, 200
"""Batches of each prepared size whose service times are kept."""

WARM_TOKENS = 4
"""Tokens of the batch of each prepared size before a replication."""


def serve_generation(job: LoadJob, enter: Enter) -> None:
    """Measure what the load case lacks, and save each record when it is complete. Raises what a decoder raises."""
    results = Results(Path(job.results))
    files = results.load(job.load.load_id)
    service = _Service.opened(job, enter)
    machine, identity = prepare_to_measure(results, job.load, service.facts)
    run = _GenerationRun(job, files, service, identity, enter)
    same = same_machine_check(results, machine)
    state = read_load_state(job.load, files, job.settings_id, same)
    if state.service is None or state.service.artifacts_id != service.artifacts_id:
        run.measure_service()
        state = read_load_state(job.load, files, job.settings_id, same)
    for point, number in state.missing:
        run.replicate(point, number)
    enter("end")
    for decoder in service.decoders.values():
        decoder.close()


@dataclass(frozen=True)
class _PromptRows:
    """Prompts by length, (samples, length) each, and a tally against the answers of fp32 eager to the first of them;
    no tally where nothing is computed."""

    ids: Mapping[int, Ids]
    tallies: Mapping[int, ParityTally]
    rounding: Sequence[float] = ()
    """PromptSet.rounding of the lengths, in the precision of the case, where it was measured."""

    def requests(self, pairs: Sequence[tuple[int, int]], seed: int) -> list[TokenRequest]:
        """Requests of these lengths. The prompts of a length take turns; where they begin depends on the seed."""
        used: Counter[int] = Counter()
        drawn = []
        for length, new_tokens in pairs:
            row = (seed + used[length]) % len(self.ids[length])
            used[length] += 1
            drawn.append(TokenRequest(self.ids[length][row], row, new_tokens))
        return drawn


@dataclass(frozen=True)
class _Service:
    """The decoders by prepared size, and their common facts. joining: the only decoder of continuous batching."""

    decoders: Mapping[int, Decoder]
    joining: JoiningDecoder | None
    load_ns: Mapping[int, int]
    prompts: _PromptRows
    parity: TokenParity | None
    artifacts: Mapping[str, str]
    plugin: str | None

    @classmethod
    def opened(cls, job: LoadJob, enter: Enter) -> _Service:
        """Load every decoder, and compare its logits and tokens with those of fp32 eager."""
        load, info = job.load, backend_info(job.load.backend)
        sizes, longest = batch_sizes(load), (load.prompt_length or 1, load.new_tokens or 1)
        cases = {size: decoder_case(load, size, *longest) for size in sizes}
        if info.decoder_reads == "none":
            folder, export, shape = Models(Path(job.models)).folder(load.slug), None, CALIBRATION_SHAPE
            prompts, artifacts = _seeded(load, job.measurement.seed), dict[str, str]()
        else:
            if job.export is None or not Path(job.export).is_file():
                raise MissingInputError(f"{load.model} has no files for generation.", "Run `make export` first.")
            export = store.load(Path(job.export), GenerationExport, "make export")
            folder, shape = Models(Path(job.models)).folder(load.slug, export.folder), export.shape
            prompts, artifacts = _stored(load, export, folder)
            artifacts |= {file.path: file.sha256 for file in files_read(export, info, cases[sizes[0]])}
        decoders: dict[int, Decoder] = {}
        load_ns: dict[int, int] = {}
        joining: JoiningDecoder | None = None
        for size in sizes:
            enter("load")
            decoder_job = make_decoder_job(cases[size], job.threads, shape, folder, export)
            if load.batching == "continuous":
                decoders[size] = joining = joining_decoder_of(load.backend, decoder_job)
            else:
                decoders[size] = decoder_of(cases[size], decoder_job)
            load_ns[size] = _start_cold(decoders[size], prompts.requests(load.pairs[:1], 0), size, enter)
        if prompts.tallies:
            enter("tokens check")
            _force(decoders, prompts) if joining is None else _force_joining(joining, prompts)
        parity = worst_token_parity([tally.result() for tally in prompts.tallies.values()])
        return cls(decoders, joining, load_ns, prompts, parity, artifacts, info.plugin)

    @property
    def artifacts_id(self) -> str:
        return digest_of(dict(self.artifacts))

    @property
    def largest(self) -> Decoder:
        return self.decoders[max(self.decoders)]

    @property
    def facts(self) -> dict[str, str]:
        """Facts that change numbers, for the environment record."""
        return {**self.largest.build_facts(), **loaded_runtimes(), **environment.plugin_fact(self.plugin)}

    def warm(self) -> None:
        """A short batch of every size, after whatever the process did before."""
        length = min(self.prompts.ids)
        few = min(WARM_TOKENS, self.largest.job.new_tokens)
        for size, decoder in self.decoders.items():
            generate_batch(decoder, self.prompts.requests([(length, few)] * size, 0), size)


def _seeded(load: LoadCase, seed: int) -> _PromptRows:
    """Prompts of a decoder that computes nothing."""
    lengths = sorted({length for length, _ in load.pairs})
    return _PromptRows({length: calibration_prompts(load.max_batch, length, seed) for length in lengths}, {})


def _stored(load: LoadCase, export: GenerationExport, folder: ModelFolder) -> tuple[_PromptRows, dict[str, str]]:
    """Prompts and answers of the export, and the hashes of their files."""
    ids: dict[int, Ids] = {}
    tallies: dict[int, ParityTally] = {}
    hashes: dict[str, str] = {}
    rounding = []
    for length in sorted({length for length, _ in load.pairs}):
        most = max(new for prompt, new in load.pairs if prompt == length)
        chosen = find_prompt_set(export, length, most)
        for file in (chosen.prompts, chosen.reference):
            store.check_artifact(folder.root, file, "make export")
            hashes[file.path] = file.sha256
        rounding += [chosen.rounding[load.precision]] if load.precision in chosen.rounding else []
        ids[length], answer = load_prompts(folder, chosen)
        tallies[length] = ParityTally(answer.first(most))
    return _PromptRows(ids, tallies, rounding), hashes


def _start_cold(decoder: Decoder, requests: Sequence[TokenRequest], size: int, enter: Enter) -> int:
    """Load, compile and answer once; the time of all three in ns."""
    start = now_ns()
    decoder.load()
    if decoder.compiles:
        enter("compile")
        decoder.compile()
    enter("first request")
    generate_batch(decoder, requests, size)
    return now_ns() - start


def _stored_rows(prompts: _PromptRows) -> list[tuple[int, int]]:
    """(length, row) of every prompt with logits of the reference. Lengths take turns, so that they mix as they will
    under load."""
    return [
        (length, row)
        for row in range(max(len(tally.reference.logits) for tally in prompts.tallies.values()))
        for length, tally in prompts.tallies.items()
        if row < len(tally.reference.logits)
    ]


def _force(decoders: Mapping[int, Decoder], prompts: _PromptRows) -> None:
    """Compare the logits of every step: each stored prompt on the largest decoder, the first ones on every other."""
    stored, largest = _stored_rows(prompts), max(decoders)
    for first in range(0, len(stored), largest):
        _force_batch(decoders[largest], largest, stored[first : first + largest], prompts)
    for size, decoder in decoders.items():
        if size != largest:
            _force_batch(decoder, size, stored[:size], prompts)


def _force_batch(decoder: Decoder, size: int, judged: Sequence[tuple[int, int]], prompts: _PromptRows) -> None:
    """One batch of prompts, each (length, row), with the reference's tokens as inputs of every step."""
    ids, lengths = left_padded([prompts.ids[length][row] for length, row in judged], size)
    if len(set(lengths.tolist())) > 1:
        decoder.prefill_padded(ids, lengths)
    else:
        decoder.prefill(ids)
    wanted = [prompts.tallies[length].reference.tokens[row] for length, row in judged]
    for step in range(max(map(len, wanted))):
        if step:
            decoder.step()
        chosen, logits = np.array(decoder.tokens(), np.int64), decoder.logits()
        for place, (length, row) in enumerate(judged):
            if step < len(wanted[place]):
                prompts.tallies[length].force(row, step, logits[place])
                prompts.tallies[length].forced_token(row, step, int(chosen[place]))
                chosen[place] = wanted[place][step]
        decoder.force(chosen)


def _force_joining(decoder: JoiningDecoder, prompts: _PromptRows) -> None:
    """Compare the logits of every stored prompt while others join and leave: one joins before each step, where a slot
    is free, and gets the reference's tokens as inputs."""
    waiting = _stored_rows(prompts)[::-1]
    running: dict[int, tuple[int, int, int]] = {}  # slot → length, row, step

    def judge(slots: Iterable[int]) -> None:
        chosen, logits = np.array(decoder.tokens(), np.int64), decoder.logits()
        for slot in slots:
            length, row, step = running[slot]
            tally = prompts.tallies[length]
            tally.force(row, step, logits[slot])
            tally.forced_token(row, step, int(chosen[slot]))
            forced[slot] = tally.reference.tokens[row][step]
            running[slot] = length, row, step + 1
            if step + 1 == len(tally.reference.tokens[row]):
                del running[slot]
                decoder.leave(slot)

    forced = np.zeros(decoder.job.batch_size, np.int64)
    while waiting or running:
        free = next((slot for slot in range(decoder.job.batch_size) if slot not in running), None)
        if waiting and free is not None:
            length, row = waiting.pop()
            running[free] = length, row, 0
            decoder.join(free, prompts.ids[length][row])
            judge([free])
        if running:
            decoder.force(forced)
            decoder.step()
            judge(list(running))


@dataclass(frozen=True)
class _GenerationRun:
    """Measures and saves the records of a load case."""

    job: LoadJob
    files: LoadFiles
    service: _Service
    environment_id: str
    enter: Enter

    def measure_service(self) -> None:
        """Times of whole batches of drawn requests, back to back, after one of each size that is not timed."""
        load, service, seed = self.job.load, self.service, self.job.measurement.seed
        self.enter("service times")
        started_at = utc_now()
        times: dict[int, tuple[int, ...]] = {}
        for size, decoder in service.decoders.items():
            drawn = service.prompts.requests(draw_length_pairs(load, (MOST_BATCHES + 1) * size, seed), 0)
            generate_batch(decoder, drawn[:size], size)
            spent, began = list[int](), now_ns()
            for number in range(1, MOST_BATCHES + 1):
                start = now_ns()
                generate_batch(decoder, drawn[number * size : (number + 1) * size], size)
                spent.append(now_ns() - start)
                if number >= LEAST_BATCHES and now_ns() - began >= load.service_s * 1e9:
                    break
            times[size] = tuple(spent)
        purpose = service.largest.on_purpose()
        record = ServiceRun(
            load_id=load.load_id,
            settings_id=self.job.settings_id,
            load_sha256=service_digest(load),
            artifacts_id=service.artifacts_id,
            started_at=started_at,
            environment_id=self.environment_id,
            artifacts=dict(service.artifacts),
            threads=self.job.threads,
            workers=1,
            clock=calibrate(),
            load_ns=dict(service.load_ns),
            service_ns=times,
            parity={},
            token_parity=service.parity,
            rounding=max(service.prompts.rounding, default=None),
            placement=service.largest.placement(),
            peak_rss_bytes=peak_bytes(),
            notes=() if purpose is None else (purpose,),
        )
        store.save(self.files.service, record, indent=None)

    def replicate(self, point: LoadPoint, number: int) -> None:
        """One real replication of one point."""
        load, service = self.job.load, self.service
        seed = replication_seed(self.job.measurement.seed, number)
        instants = replication_schedule(load, point, seed)
        pairs = draw_length_pairs(load, len(instants), seed)
        requests = service.prompts.requests(pairs, seed)
        service.warm()
        self.enter(replication_phase(point, number))
        started_at = utc_now()
        # Requests that wait longer count as not served.
        end_ns = instants[-1] + patience_ns(load)
        batches: StaticBatches | ContinuousBatches
        if service.joining is not None:
            batches = ContinuousBatches(service.joining, load.max_batch, requests)
            dispatches = batches.serve(instants, end_ns)
        else:
            batches = StaticBatches(service.decoders, requests)
            dispatches = serve(instants, batch_policy(load), [batches.run], WorkerThreads(1).all_at_once, end_ns)
        self.enter("outputs check")
        record = replication_record(
            self.job,
            point,
            number,
            (service.artifacts_id, self.environment_id),
            started_at,
            instants,
            dispatches,
            workers=1,
            generated=batches.record(dispatches.zero_ns, _compared(batches.batches, service.prompts)),
        )
        store.save(self.files.replication(point.name, number), record, indent=None)


def _compared(batches: Sequence[ServedBatch], prompts: _PromptRows) -> TokenParity | None:
    """Tokens of every served request whose prompt has a reference, up to its own last one."""
    if not prompts.tallies:
        return None
    tallies = {length: tally.after_forcing() for length, tally in prompts.tallies.items()}
    for batch in batches:
        if batch.timed is None:
            continue
        for place, request in enumerate(batch.requests):
            tally = tallies[len(request.prompt)]
            if request.row < len(tally.reference.tokens):
                tally.free(request.row, batch.timed.tokens[place][: request.new_tokens])
    return worst_token_parity([tally.result() for tally in tallies.values()])
