"""The token loop: instants, identities, and decoders of known behaviour."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.backends.calibration.spin import PREFILL, SpinDecoder
from harness.backends.decoder import DecoderJob
from harness.core.schemas import DecoderShape, GenerationOptions, Measurement, Placement
from harness.core.schemas.generation_record import ids_digest
from harness.statistics.parity import GreedyAnswer, Ids
from harness.statistics.token_times import RequestInstants
from harness.timing import token_session
from harness.timing.clock import now_ns
from harness.timing.token_session import PromptBatches, TokenMeasurements, run_token_session, time_request

SHAPE = DecoderShape(kind="causal", layers=2, heads=4, kv_heads=2, head_dim=8, hidden=32, vocabulary=50, longest=64)
NEW = 6


class Arithmetic:
    """Each token is a function of the whole prompt and of the tokens so far; its clock only moves when it works."""

    compiles = False

    def __init__(self, clock: list[int], stale: bool = False, keeps: bool = False, stall_at: int | None = None) -> None:
        self.clock, self.stale, self.keeps, self.stall_at = clock, stale, keeps, stall_at
        self.sums: Ids = np.zeros(0, np.int64)
        self.last: Ids = np.zeros(0, np.int64)
        self.seen: bytes = b""
        self.steps = 0

    def load(self) -> None: ...

    def compile(self) -> None: ...

    def compile_cached(self) -> bool | None:
        return None

    def prefill(self, ids: Ids) -> None:
        whole = (ids * np.arange(1, ids.shape[1] + 1)).sum(axis=1)
        self.sums = self.sums + whole if self.stale and self.sums.size else whole
        kept = self.keeps and ids.tobytes() == self.seen
        self.seen = ids.tobytes()
        self.clock[0] += 10 if kept else 1_000
        self.last = self.sums % 50
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        self.sums = self.sums * 3 + self.last + 1
        self.last = self.sums % 50
        self.clock[0] += 100_000 if self.steps == self.stall_at else 100

    def tokens(self) -> Ids:
        return self.last

    def logits(self) -> np.ndarray:
        result = np.zeros((len(self.last), 50), np.float32)
        result[np.arange(len(self.last)), self.last] = 5
        return result

    def force(self, ids: Ids) -> None:
        self.last = ids.copy()

    def cache_bytes(self) -> int:
        return 7

    def placement(self) -> Placement:
        return Placement(device="cpu", precision="fp32", provider="x", settings={}, dtype_census={})

    def close(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Time that moves only by work of the decoder, and by 1 at each look."""
    time = [0]

    def read() -> int:
        time[0] += 1
        return time[0]

    monkeypatch.setattr(token_session, "now_ns", read)
    return time


PROMPTS = np.random.default_rng(1).integers(0, 50, (16, 5))


def _truth(prompts: Ids) -> Ids:
    return time_request(Arithmetic([0]), prompts, NEW).tokens


def _reference() -> GreedyAnswer:
    tokens = _truth(PROMPTS[:4])
    logits = np.zeros((4, NEW, 50), np.float32)
    np.put_along_axis(logits, tokens[:, :, None], 5, axis=2)
    return GreedyAnswer(tokens, np.full((4, NEW), 5, np.float32), logits)


def _session(decoder: Arithmetic, new: int = NEW) -> TokenMeasurements:
    options, settings = GenerationOptions(requests=8), Measurement(warmup_min_s=0, warmup_max_s=0, min_s=0)
    return run_token_session(decoder, PROMPTS, _reference(), 2, new, options, settings, lambda _: None, 3)


def test_times_of_a_known_decoder_are_known(clock: list[int]) -> None:
    result = time_request(Arithmetic(clock), PROMPTS[:2], NEW)
    instants = RequestInstants(result.start_ns, result.token_ns)
    assert instants.ttft == 1_001
    assert instants.itl.tolist() == [101] * (NEW - 1)
    assert instants.ttft + int(instants.itl.sum()) == instants.end_to_end
    assert instants.tpot == 101
    assert result.tokens.shape == (2, NEW)


def test_one_token_has_no_itl_and_no_tpot(clock: list[int]) -> None:
    result = time_request(Arithmetic(clock), PROMPTS[:1], 1)
    instants = RequestInstants(result.start_ns, result.token_ns)
    assert (instants.itl.size, instants.tpot, instants.end_to_end) == (0, None, instants.ttft)


def test_a_decoder_of_known_duration_is_never_faster_than_that(tmp_path: Path) -> None:
    job = DecoderJob("spin:100us", tmp_path, SHAPE, "cpu", "fp32", 2, 4, 5, 1, tmp_path)
    decoder = SpinDecoder(job)
    decoder.load()
    result = time_request(decoder, PROMPTS[:2, :4], 5)
    instants = RequestInstants(result.start_ns, result.token_ns)
    assert instants.ttft >= PREFILL * 100_000
    assert instants.itl.min() >= 100_000
    assert now_ns() >= result.token_ns[-1]


def test_the_record_has_rows_digest_and_tokens(clock: list[int]) -> None:
    ids = PROMPTS[:2]
    record = time_request(Arithmetic(clock), ids, NEW).record([0, 1], ids)
    assert record.prompts_sha256 == ids_digest(ids.tolist())
    assert record.steps_ns == (101,) * (NEW - 1)
    assert np.array_equal(record.tokens, _truth(ids))


def test_batches_take_the_next_rows_and_the_warm_up_the_last_ones() -> None:
    batches = PromptBatches(PROMPTS, 3)
    assert batches.rows(0) == [0, 1, 2]
    assert batches.rows(5) == [15, 0, 1]
    assert batches.before(1) == [13, 14, 15]


def test_a_right_decoder_passes_every_check(clock: list[int]) -> None:
    result = _session(Arithmetic(clock))
    assert result.parity is not None
    assert result.reuse is not None
    assert (result.parity.free_sequences, result.parity.free_equal, result.parity.unexplained) == (4, 4, 0)
    assert (result.parity.steps, result.parity.forced_agreement, result.parity.max_abs) == (4 * NEW, 1.0, 0.0)
    assert (result.reuse.compared, result.reuse.unequal) == (2, 0)
    assert [request.prompts for request in result.requests[:2]] == [(0, 1), (2, 3)]
    assert all(request != other for request, other in zip(result.requests, result.requests[1:], strict=False))
    assert set(result.reuse.repeated_ns) == set(result.reuse.fresh_ns)


def test_a_cache_that_is_not_emptied_gives_wrong_tokens(clock: list[int]) -> None:
    result = _session(Arithmetic(clock, stale=True))
    assert result.parity is not None
    assert result.reuse is not None
    assert result.parity.relative_l2 is not None
    assert result.parity.relative_l2 > 1
    assert result.parity.free_equal == 0
    assert result.reuse.unequal == 2


def test_a_kept_prefix_shows_in_the_pairs(clock: list[int]) -> None:
    result = _session(Arithmetic(clock, keeps=True))
    assert result.reuse is not None
    assert max(result.reuse.repeated_ns) < min(result.reuse.fresh_ns)
