"""Generation under load → row: decoders of known duration, by the real loop on a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.aggregation.flags import Criteria
from harness.aggregation.load_rows import LoadEvidence, load_row
from harness.aggregation.token_load import token_samples, within_bounds
from harness.core.schemas import (
    Clock,
    LoadCase,
    LoadRow,
    Placement,
    Replication,
    ServiceRun,
    TokenParity,
    Tolerance,
)
from harness.serving.load_case import batch_policy, planned_points
from harness.serving.load_verdict import combined_verdict, parse_bounds
from harness.timing.request_loops import Dispatches, serve
from harness.timing.token_batching import ContinuousBatches, StaticBatches, TokenRequest
from tests.fixtures.simulated_clock import KnownDecoder, KnownJoiner, SimulatedClock, alone, in_place

MS = 1_000_000
CLOCK = Clock(name="simulated", resolution_ns=1, overhead_ns=0)
BASE = {"settings_id": "s", "load_sha256": "l", "artifacts_id": "a", "started_at": "now", "environment_id": "e"}
EQUAL = TokenParity(
    sequences=2,
    steps=8,
    max_abs=1e-6,
    relative_l2=1e-6,
    cosine=1.0,
    nonfinite=0,
    forced_agreement=1.0,
    free_sequences=2,
    free_equal=2,
)
PLACED = Placement(device="cpu", precision="fp32", provider="p", settings={}, dtype_census={})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    return in_place(monkeypatch)


def case(bound: str, **more: Any) -> LoadCase:
    first, *further = parse_bounds(bound)
    usual = {
        "load_id": "m-b-server",
        "model": "m",
        "slug": "m",
        "backend": "b",
        "device": "cpu",
        "precision": "fp32",
        "sequence_length": None,
        "weights": "seeded",
        "scenario": "server",
        "bound": first,
        "further_bounds": tuple(further),
        "prompt_length": 8,
        "new_tokens": 5,
        "rates": (10.0,),
    }
    return LoadCase.model_validate({**usual, **more})


def replication(
    clock: SimulatedClock,
    load: LoadCase,
    scheduled_ms: list[int],
    new_tokens: list[int],
    number: int = 1,
    step_ns: Callable[[int], int] = lambda _: MS,
    fails: tuple[int, ...] = (),
    parity: TokenParity | None = EQUAL,
) -> Replication:
    """A prefill takes 10 ms."""
    decoder = KnownDecoder(clock, 1, 10 * MS, step_ns, fails)
    batches = StaticBatches({1: decoder}, [TokenRequest(np.zeros(8, np.int64), 0, new) for new in new_tokens])
    scheduled = [at * MS for at in scheduled_ms]
    result = serve(scheduled, batch_policy(load), [batches.run], alone, 1 << 60)
    return recorded(load, scheduled, result, batches, parity, number)


def recorded(
    load: LoadCase,
    scheduled: list[int],
    found: Dispatches,
    batches: StaticBatches | ContinuousBatches,
    parity: TokenParity | None,
    number: int = 1,
) -> Replication:
    return Replication.model_validate(
        {
            **BASE,
            "load_id": load.load_id,
            "point": "r10",
            "number": number,
            "scenario": "server",
            "rate_per_s": 10.0,
            "workers": 1,
            "max_batch": 1,
            "max_delay_ns": 0,
            "seed": number,
            "threads": 1,
            "clock": CLOCK,
            "scheduled_ns": scheduled,
            "requests": len(scheduled),
            "generated": batches.record(found.zero_ns, parity),
            **{name: getattr(found, name) for name in vars(found) if name != "zero_ns"},
        }
    )


def row(load: LoadCase, records: list[Replication], **more: Any) -> LoadRow:
    service = {
        **BASE,
        "load_id": load.load_id,
        "artifacts": {},
        "threads": 1,
        "workers": 1,
        "clock": CLOCK,
        "load_ns": {1: MS},
        "service_ns": {1: (14 * MS,)},
        "parity": {},
        "token_parity": EQUAL,
        "placement": PLACED,
        "peak_rss_bytes": 1,
    }
    evidence = LoadEvidence(
        service=ServiceRun.model_validate({**service, **more}),
        points=planned_points(load, None),
        replications={"r10": records},
    )
    return load_row(load, "text", Criteria(Tolerance(relative_l2=1e-4), False, 0.01, False), evidence)


def test_times_count_from_the_scheduled_instant_and_add_up_to_the_latency(clock: SimulatedClock) -> None:
    load = case("ttft_p50<1s")
    record = replication(clock, load, [0, 5, 100], [3, 2, 1])
    results = token_samples(load, record, np.zeros(3, bool))
    assert results is not None
    assert (results.ttft / MS).tolist() == [10, 17, 10]
    assert [(own / MS).tolist() for own in results.gaps] == [[1, 1], [1], []]
    latency = results.done - np.array(record.scheduled_ns)
    assert [first + own.sum() for first, own in zip(results.ttft, results.gaps, strict=True)] == latency.tolist()
    (point,) = row(load, [record]).points
    assert point.latency["p50"].ns == 12 * MS  # of 12, 18 and 10: a request is done with its own last token
    assert point.tokens is not None
    assert (point.tokens.ttft["p50"].ns, point.tokens.itl["p50"].ns) == (10 * MS, MS)
    assert (point.tokens.one_token, point.tokens.useful_share) == (1, 1.0)
    assert point.tokens.tokens_per_s == pytest.approx(6 / 0.110)


def test_a_stalled_token_is_in_the_itl_p99_and_in_the_ttft_behind_it(clock: SimulatedClock) -> None:
    load = case("itl_p99<5ms")
    count = 700
    instants = [20 * number for number in range(count)]

    def step(number: int) -> int:
        return 500 * MS if number % 400 == 40 else MS

    (point,) = row(load, [replication(clock, load, instants, [5] * count, step_ns=step)]).points
    assert point.tokens is not None
    # Seven of 2,800 are stalled, and half a second of requests waits behind each of them.
    assert point.tokens.itl["p99"].ns == MS
    assert (point.judged[0].bound, point.judged[0].over_share) == ("itl_p99<5ms", 7 / 2800)
    assert (point.tokens.ttft["p99"].ns or 0) > 400 * MS
    assert point.goodput == 1 - 7 / count
    many = row(
        load, [replication(clock, load, instants, [5] * count, step_ns=lambda n: 500 * MS if n % 50 == 9 else MS)]
    )
    tokens = many.points[0].tokens
    assert tokens is not None
    assert tokens.itl["p99"].ns == 500 * MS


def test_goodput_needs_every_bound_and_counts_failures_as_scheduled(clock: SimulatedClock) -> None:
    # Four requests: good, failed, one slow step (its own ITL), one late first token.
    load = case("ttft_p90<15ms,itl_p90<2ms")
    record = replication(
        clock,
        load,
        [0, 100, 200, 201],
        [5, 5, 5, 5],
        step_ns=lambda number: 3 * MS if number == 5 else MS,
        fails=(1,),
    )
    samples = token_samples(load, record, np.array([False, True, False, False]))
    latency = np.array([14, np.inf, 17, 30]) * MS
    assert within_bounds(load.bounds, latency, samples).tolist() == [True, False, False, False]
    (point,) = row(load, [record]).points
    assert (point.goodput, point.failed) == (0.25, 1)
    shares = {entry.bound: entry.over_share for entry in point.judged}
    # A failed request has an infinite TTFT, and all of its times between tokens are over.
    assert shares == {"ttft_p90<15ms": 0.5, "itl_p90<2ms": (4 + 1) / 16}
    assert point.tokens is not None
    assert point.tokens.tokens_per_s == pytest.approx(15 / (max(record.done_ns) / 1e9))


def test_a_request_is_within_an_itl_bound_by_the_share_of_its_own_gaps(clock: SimulatedClock) -> None:
    load = case("itl_p75<2ms")
    one_of_four = replication(clock, load, [20], [5], step_ns=lambda number: 3 * MS if number == 1 else MS)
    two_of_four = replication(clock, load, [20], [5], step_ns=lambda number: 3 * MS if number < 2 else MS)
    assert [row(load, [record]).points[0].goodput for record in (one_of_four, two_of_four)] == [1.0, 0.0]


def test_a_verdict_needs_every_bound(clock: SimulatedClock) -> None:
    count = 500
    instants = [20 * number for number in range(count)]

    def verdicts(bound: str) -> tuple[str | None, list[str]]:
        load = case(bound)
        records = [replication(clock, load, instants, [5] * count, number) for number in (1, 2, 3)]
        (point,) = row(load, records).points
        return point.verdict, [entry.verdict for entry in point.judged]

    assert verdicts("ttft_p99<12ms,itl_p99<2ms") == ("PASS", ["PASS", "PASS"])
    assert verdicts("ttft_p99<12ms,itl_p99<900us") == ("FAIL", ["PASS", "FAIL"])
    assert combined_verdict(["PASS", "UNDECIDED"]) == "UNDECIDED"
    assert combined_verdict(["LOAD NOT REACHED", "FAIL"]) == "LOAD NOT REACHED"


def test_wrong_or_uncompared_tokens_void_the_row(clock: SimulatedClock) -> None:
    load = case("ttft_p90<1s")
    right = replication(clock, load, [20], [5])
    assert row(load, [right]).void is None
    wrong = replication(clock, load, [20], [5], parity=EQUAL.model_copy(update={"free_equal": 1, "unexplained": 1}))
    assert "differ from fp32 eager" in (row(load, [wrong]).void or "")
    assert "were not compared" in (row(load, [right], token_parity=None).void or "")
    far = EQUAL.model_copy(update={"relative_l2": 1e-3})
    assert "from fp32 eager, above" in (row(load, [right], token_parity=far).void or "")
    # What rounding alone makes of these prompts is no fault of the decoder.
    assert row(load, [right], token_parity=far, rounding=6e-4).void is None
    elsewhere = PLACED.model_copy(update={"precision": "bf16"})
    assert row(load, [right], placement=elsewhere).void == "it ran in bf16 on cpu"


def test_static_batching_is_said(clock: SimulatedClock) -> None:
    record = replication(clock, case("ttft_p90<1s"), [20], [5])
    assert row(case("ttft_p90<1s", max_batch=4), [record]).notes[0].startswith("static batching")


def test_the_stall_of_a_join_is_in_the_itl_of_those_that_run(clock: SimulatedClock) -> None:
    load = case("ttft_p90<12ms,itl_p90<2ms", max_batch=2, batching="continuous")
    decoder = KnownJoiner(clock, 2, 10 * MS, lambda _: MS)
    scheduled = [0, 11 * MS, 100 * MS, 111 * MS, 200 * MS]
    requests = [TokenRequest(np.zeros(8, np.int64), 0, new) for new in (5, 2, 5, 2, 5)]
    batches = ContinuousBatches(decoder, 2, requests)
    record = recorded(load, scheduled, batches.serve(scheduled, 1 << 60), batches, EQUAL)
    results = token_samples(load, record, np.zeros(5, bool))
    assert results is not None
    assert (results.ttft / MS).tolist() == [10, 10, 10, 10, 10]
    # The first waits for the join of the second between its second token and its third.
    assert [(own / MS).tolist() for own in results.gaps] == [[1, 11, 1, 1], [1], [1, 11, 1, 1], [1], [1, 1, 1, 1]]
    (point,) = (counted := row(load, [record])).points
    assert (point.goodput, point.mean_batch, point.added_p99_ns) == (3 / 5, 14 / 12, None)
    assert {entry.bound: entry.over_share for entry in point.judged} == {"ttft_p90<12ms": 0, "itl_p90<2ms": 2 / 14}
    assert point.tokens is not None
    assert (point.tokens.useful_share, point.dispatch_p99_ns) == (1.0, 0.0)
    assert (counted.batching, counted.notes[0].partition(":")[0]) == ("continuous", "continuous batching")


def streamed(load: LoadCase, tokens: tuple[int, int], failed: tuple[int, ...] = ()) -> Replication:
    """Two requests of a service at 20 and 40 ms, each with chunks 10, 11 and 13 ms later."""
    scheduled = [20 * MS, 40 * MS]
    unseen = dict.fromkeys(("serialise_ns", "send_ns", "server_queue_ns", "server_compute_ns"), (-1, -1))
    client = {
        **unseen,
        **dict.fromkeys(("request_bytes", "answer_bytes", "connections", "waited", "most_in_flight", "compared"), 0),
        "connect_ns": (0, 0),
        "first_ns": [at + 10 * MS for at in scheduled],
        "equal": 0,
        "steps": {
            "offsets": (0, 3, 6),
            "at_ns": [at + step * MS for at in scheduled for step in (10, 11, 13)],
            "tokens": (1, *tokens) * 2,
        },
    }
    return Replication.model_validate(
        {
            **BASE,
            "load_id": load.load_id,
            "point": "r10",
            "number": 1,
            "scenario": "server",
            "rate_per_s": 10.0,
            "workers": 1,
            "max_batch": 1,
            "max_delay_ns": 0,
            "seed": 1,
            "threads": 1,
            "clock": CLOCK,
            "scheduled_ns": scheduled,
            "requests": 2,
            "sizes": (1, 1),
            "ready_ns": scheduled,
            "start_ns": scheduled,
            "done_ns": [at + 13 * MS for at in scheduled],
            "worker": (0, 0),
            "failed": failed,
            "client": client,
        }
    )


def test_the_steps_of_a_stream_are_tokens_only_where_each_has_one() -> None:
    load = case("ttft_p50<11ms,itl_p50<1500us", endpoint="openai+http://h/v1/completions", new_tokens=3)
    (point,) = row(load, [streamed(load, (1, 1))]).points
    assert point.tokens is not None
    assert (point.tokens.ttft["p50"].ns, point.tokens.itl["p50"].ns) == (10 * MS, 1.5 * MS)
    assert [entry.over_share for entry in point.judged] == [0.0, 0.5]
    assert (point.goodput, point.tokens.useful_share) == (1.0, None)
    result = row(load, [streamed(load, (2, 1))])
    chunked = result.points[0].tokens
    assert chunked is not None
    assert (chunked.ttft["p50"].ns, chunked.itl) == (10 * MS, {})
    assert any("held against the steps of the streams" in note for note in result.notes)


def test_a_failed_stream_has_an_infinite_ttft_and_infinite_times_between_all_its_tokens() -> None:
    load = case("ttft_p50<11ms,itl_p50<1500us", endpoint="openai+http://h/v1/completions", new_tokens=3)
    (point,) = row(load, [streamed(load, (1, 1), failed=(1,))]).points
    assert point.tokens is not None
    assert point.tokens.ttft["p50"].infinite
    assert [entry.over_share for entry in point.judged] == [0.5, 3 / 4]
    assert point.goodput == 0.5
    assert point.tokens.tokens_per_s == pytest.approx(3 / 0.053)
