"""The issuing loop and the HTTP clients against a server that misbehaves."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from harness.core.errors import UnavailableError, UsageError
from harness.endpoints import open_endpoint
from harness.endpoints.contract import Exchange, Prompt, RequestFailureError, Sample
from harness.endpoints.issuing import issue_closed_loop, issue_open_loop, kept_step
from harness.endpoints.target import parse_target
from harness.endpoints.timeline import Timeline
from harness.timing.clock import now_ns
from tests.fixtures.fault_server import GUARD_S, Behaviour, closed_port, fault_server

SECOND = 1_000_000_000
GUARD_NS = GUARD_S * SECOND
"""Deadline of requests that get their answer, or their failure, at once."""
SAMPLES: list[Sample] = [{"x": np.full((2, 3), value, np.float32)} for value in range(4)]
WORDS: list[Sample] = [Prompt("once upon", 5)]
STEPS = [(0.0, {"text": letter}) for letter in "abcde"]


def kserve(port: int) -> str:
    return f"kserve+http://127.0.0.1:{port}/v2/models/double"


def completions(port: int) -> str:
    return f"openai+http://127.0.0.1:{port}/v1/completions"


def load(
    behaviour: Behaviour,
    requests: int = 8,
    gap_ns: int = 2_000_000,
    samples: Sequence[Sample] = SAMPLES,
    url: Callable[[int], str] = kserve,
    **options: int,
) -> Timeline:
    """An open loop against a fault server, of which the checks before it are not scripted."""
    script = behaviour.script
    behaviour.script = lambda _: "good"
    with fault_server(behaviour) as port:
        endpoint = open_endpoint(parse_target(url(port)))
        endpoint.check(samples[0], GUARD_NS)
        behaviour.count, behaviour.connections, behaviour.script = 0, 0, script
        order = [number % len(samples) for number in range(requests)]
        schedule = np.arange(requests, dtype=np.int64) * gap_ns
        options.setdefault("timeout_ns", GUARD_NS)
        return issue_open_loop(endpoint, samples, order, schedule, **options)


def test_answers_belong_to_their_requests_and_instants_are_in_order() -> None:
    behaviour = Behaviour()
    run = load(behaviour, 12)
    assert run.counts() == {}
    for number, reply in run.replies.items():
        assert np.array_equal(reply["y"], 2 * SAMPLES[number % 4]["x"])  # type: ignore[index]
    assert len(run.replies) == 12
    assert np.array_equal(run.scheduled, np.arange(12) * 2_000_000)
    steps = (run.scheduled, run.issued, run.serialised, run.sent, run.first, run.done)
    assert all(np.all(earlier <= later) for earlier, later in itertools.pairwise(steps))
    assert np.array_equal(run.latency_ns(), run.done - run.scheduled)
    assert np.all(run.server_queue_ns == 1000)
    assert np.all(run.server_compute_ns == 2000)
    assert np.all(run.answer_bytes > 24)
    assert run.reopened == 0
    assert behaviour.connections == run.connections


FAULTS = {
    "status 503": "server error",
    "status 404": "rejected",
    "redirect": "redirect",
    "half": "closed",
    "closed": "closed",
    "reset": "closed",
    "cut chunk": "closed",
    "garbage": "malformed",
    "bad length": "malformed",
    "bad chunk": "malformed",
    "long head": "malformed",
    "not json": "malformed",
    "deep": "malformed",
    "a list": "malformed",
    "other shape": "malformed",
    "no outputs": "malformed",
    "huge": "too large",
}


@pytest.mark.parametrize("way", FAULTS)
def test_each_fault_is_a_failure_of_its_request_alone(way: str) -> None:
    run = load(Behaviour(script=lambda number: way if number == 3 else "good"))
    assert run.counts() == {FAULTS[way]: 1}
    assert np.isinf(run.latency_ns()).sum() == 1
    assert run.details.keys() == {FAULTS[way]}


@pytest.mark.parametrize("way", ["silent", "drip"])
def test_a_request_without_an_answer_ends_at_its_deadline(way: str) -> None:
    # No other request: on a busy machine it might come to its deadline as well.
    run = load(Behaviour(script=lambda _: way), 1, timeout_ns=SECOND // 4)
    assert run.counts() == {"timeout": 1}
    assert np.isinf(run.latency_ns()).all()


def test_a_server_that_is_gone_refuses_every_request_and_ends_nothing() -> None:
    behaviour = Behaviour()
    with fault_server(behaviour) as port:
        endpoint = open_endpoint(parse_target(kserve(port)))
        endpoint.check(SAMPLES[0], GUARD_NS)
    gone = open_endpoint(parse_target(kserve(closed_port())))
    run = issue_open_loop(gone, SAMPLES, [0] * 6, np.arange(6, dtype=np.int64), GUARD_NS)
    assert run.counts() == {"refused": 6}
    assert np.isinf(run.latency_ns()).all()
    assert len(run.failures) == 6


@pytest.mark.parametrize(("way", "reopened"), [("chunked", 0), ("says close", 4), ("closes idle", 4), ("good", 0)])
def test_a_connection_is_used_again_unless_the_server_closed_it(way: str, reopened: int) -> None:
    behaviour = Behaviour(script=lambda _: way)
    run = load(behaviour, 5, gap_ns=20_000_000, most_in_flight=1)
    assert run.counts() == {}
    assert run.reopened == reopened
    assert behaviour.connections == 1 + reopened


def test_one_slow_answer_delays_no_other_request() -> None:
    # The first request to arrive, whichever that is, is answered when all others are there: one that waited for it
    # would never come.
    behaviour = Behaviour(script=lambda number: "when all came" if number == 0 else "good", expected=60)
    run = load(behaviour, 60)
    assert run.counts() == {}
    assert behaviour.count == 60
    assert run.most_in_flight > 1


def test_nothing_is_dropped_when_no_thread_is_free_and_latency_counts_from_the_schedule() -> None:
    run = load(Behaviour(service_s=0.01), 20, gap_ns=1_000_000, most_in_flight=1)
    assert run.counts() == {}
    assert run.waited > 10
    assert run.most_in_flight == 1
    # One after the other, each of 10 ms at least: the last is done 200 ms after the start, and was due at 19 ms.
    assert run.latency_ns()[-1] >= 20 * 10e6 - 19e6
    assert np.all(np.diff(run.issued) > 0)


def test_threads_are_added_while_more_requests_are_in_flight() -> None:
    run = load(Behaviour(script=lambda _: "when all came", expected=80), 80, gap_ns=1_000_000)
    assert run.counts() == {}
    assert run.connections >= 80
    assert run.most_in_flight == 80


def test_a_closed_loop_has_no_schedule() -> None:
    behaviour = Behaviour(service_s=0.002)
    with fault_server(behaviour) as port:
        endpoint = open_endpoint(parse_target(kserve(port)))
        endpoint.check(SAMPLES[0], GUARD_NS)
        run = issue_closed_loop(endpoint, SAMPLES, [0, 1, 2, 3] * 5, 4, GUARD_NS)
    assert run.counts() == {}
    assert not run.open_loop
    assert np.array_equal(run.scheduled, run.issued)
    assert np.all(run.issued >= 0)  # since the start: an instant below 0 would be one that was not reached
    assert 1 <= run.most_in_flight <= 4
    assert run.connections == 4
    assert len(run.replies) == 20


def test_an_error_of_our_own_is_raised_and_not_counted() -> None:
    with fault_server(Behaviour()) as port, pytest.raises(TypeError):
        issue_open_loop(open_endpoint(parse_target(completions(port))), SAMPLES, [0], np.zeros(1, np.int64), GUARD_NS)


def test_every_kth_answer_is_kept_where_all_are_too_many() -> None:
    assert kept_step(100, 10, 1000) == 1
    assert kept_step(100, 11, 1000) == 2
    run = load(Behaviour(), 7, keep_every=3)
    assert sorted(run.replies) == [0, 3, 6]


def test_a_schedule_that_goes_back_is_refused() -> None:
    endpoint = open_endpoint(parse_target(kserve(1)))
    for bad in ([5, 1], [-1, 2], [1]):
        with pytest.raises(ValueError, match="not sorted"):
            issue_open_loop(endpoint, SAMPLES, [0, 0], np.array(bad, np.int64), GUARD_NS)


def test_a_wrong_answer_becomes_a_failure() -> None:
    run = load(Behaviour(), 4).with_wrong([2], "relative distance 0.5")
    assert run.counts() == {"wrong output": 1}
    assert np.isinf(run.latency_ns()[2])
    assert run.details == {"wrong output": "relative distance 0.5"}


# --- streams -----------------------------------------------------------------------------------------------------


def test_steps_of_a_stream_have_instants_and_the_count_says_their_tokens() -> None:
    run = load(Behaviour(steps=STEPS, usage=5), 3, samples=WORDS, url=completions)
    assert run.counts() == {}
    assert run.steps.offsets.tolist() == [0, 5, 10, 15]
    assert set(run.steps.tokens.tolist()) == {1}
    assert len(run.step_gaps_ns()) == 12
    assert [reply.text for reply in run.replies.values()] == ["abcde"] * 3  # type: ignore[union-attr]
    assert np.array_equal(run.first, run.steps.at[run.steps.offsets[:-1]])
    assert np.all(run.steps.at[run.steps.offsets[1:] - 1] <= run.done)
    # The gaps and the first instant add up to the last one.
    assert run.first_ns()[0] + run.step_gaps_ns()[:4].sum() == run.steps.at[4] - run.scheduled[0]


def test_a_step_of_several_tokens_is_not_a_token() -> None:
    steps = [(0.0, {"text": "ab", "token_ids": [7, 8]}), (0.0, {"text": "c", "token_ids": [9]}), (0.0, {"text": ""})]
    run = load(Behaviour(steps=steps, usage=3), 1, samples=WORDS, url=completions)
    assert run.steps.tokens.tolist() == [2, 1]
    reply = run.replies[0]
    assert reply.ids == (7, 8, 9)  # type: ignore[union-attr]
    assert reply.tokens == 3  # type: ignore[union-attr]


def test_steps_of_unknown_size_stay_unknown() -> None:
    run = load(Behaviour(steps=STEPS, usage=9), 1, samples=WORDS, url=completions)
    assert set(run.steps.tokens.tolist()) == {-1}
    assert run.replies[0].tokens == 9  # type: ignore[union-attr]
    without = load(Behaviour(steps=STEPS), 1, samples=WORDS, url=completions)
    assert without.replies[0].tokens is None  # type: ignore[union-attr]


def test_without_a_count_the_end_by_length_says_how_many_tokens_came() -> None:
    ends = [*STEPS, (0.0, {"text": "", "finish_reason": "length"})]
    run = load(Behaviour(steps=ends), 1, samples=WORDS, url=completions)
    assert set(run.steps.tokens.tolist()) == {1}
    fewer = load(Behaviour(steps=ends[1:]), 1, samples=WORDS, url=completions)
    assert set(fewer.steps.tokens.tolist()) == {-1}


STREAM_FAULTS = {"cut": "closed", "no end mark": "closed", "error within": "server error", "no stream": "malformed"}


@pytest.mark.parametrize("way", STREAM_FAULTS)
def test_a_stream_that_ends_early_is_a_failure_with_its_steps_kept(way: str) -> None:
    behaviour = Behaviour(lambda number: way if number == 1 else "good", steps=STEPS, usage=5)
    run = load(behaviour, 3, samples=WORDS, url=completions)
    assert run.counts() == {STREAM_FAULTS[way]: 1}
    kept = np.diff(run.steps.offsets)
    assert kept[run.failed].tolist() == [{"no stream": 0, "no end mark": 5}.get(way, 2)]
    assert kept[~run.failed].tolist() == [5, 5]
    assert len(run.step_gaps_ns()) == 8
    assert np.array_equal(np.isinf(run.first_ns()), run.failed)


def test_a_stalled_token_shows_in_the_gaps_and_past_the_deadline_as_a_failure() -> None:
    steps = [*STEPS[:2], (0.5, {"text": "c"}), *STEPS[3:]]
    run = load(Behaviour(steps=steps, usage=5), 1, samples=WORDS, url=completions)
    # The token before it may be read late: then a part of the stall is in the time of that one.
    assert run.first_ns()[0] + run.step_gaps_ns()[:2].sum() >= 0.5e9
    assert run.step_gaps_ns().size == 4
    stalled = Behaviour(lambda _: "stalled token", steps=STEPS)
    run = load(stalled, 1, samples=WORDS, url=completions, timeout_ns=3 * SECOND)
    assert run.counts() == {"timeout": 1}
    assert run.steps.offsets.tolist() == [0, 2]


def test_a_request_is_greedy_streamed_and_of_the_asked_length() -> None:
    behaviour = Behaviour(steps=STEPS)
    load(behaviour, 1, samples=[Prompt("once", 5, (3, 4))], url=completions)
    assert behaviour.seen[-1]["body"] == {
        "model": "writer",
        "prompt": [3, 4],
        "max_tokens": 5,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "return_token_ids": True,
    }


# --- the check before a run ----------------------------------------------------------------------------------------


def checked(behaviour: Behaviour, sample: Sample, url: Callable[[int], str] = kserve) -> tuple[str, tuple[str, ...]]:
    with fault_server(behaviour) as port:
        facts = open_endpoint(parse_target(url(port))).check(sample, GUARD_NS)
    assert facts.loopback
    return facts.form, facts.notes


def test_a_server_without_raw_bytes_gets_json_and_it_is_noted() -> None:
    behaviour = Behaviour(takes_binary=False)
    form, notes = checked(behaviour, SAMPLES[1])
    assert form == "json"
    assert any("raw bytes" in note for note in notes)
    run = load(behaviour, 3)
    assert all(np.array_equal(reply["y"], 2 * SAMPLES[n]["x"]) for n, reply in run.replies.items())  # type: ignore[index]


def test_a_server_without_ids_or_extensions_gets_less_and_it_is_noted() -> None:
    prompt = Prompt("once", 5, (3, 4))
    assert checked(Behaviour(steps=STEPS), prompt, completions) == ("ids", ())
    form, notes = checked(Behaviour(steps=STEPS, takes_ids=False), prompt, completions)
    assert (form, len(notes)) == ("text", 1)
    form, notes = checked(Behaviour(steps=STEPS, takes_ids=False, takes_extensions=False), prompt, completions)
    assert (form, len(notes)) == ("text", 2)


METADATA = {"name": "double", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]}


@pytest.mark.parametrize(
    ("sample", "problem"),
    [
        ({"z": np.ones((2, 3), np.float32)}, "needs input `x`"),
        ({"x": np.ones((2, 3), np.float32), "z": np.ones(1, np.float32)}, "has inputs `x`"),
        ({"x": np.ones((2, 3), np.int64)}, "takes FP32 for `x`, and this model has INT64"),
        ({"x": np.ones((2, 4), np.float32)}, "takes the shape [-1, 3] for `x`"),
        ({"x": np.ones((2, 3), np.complex64)}, "KServe v2 cannot carry"),
        (WORDS[0], "takes tensors"),
    ],
)
def test_a_service_of_another_model_is_an_error_of_two_lines(sample: Sample, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        checked(Behaviour(metadata=METADATA), sample)
    assert problem in caught.value.problem


def test_arrays_for_completions_are_an_error() -> None:
    with pytest.raises(UsageError, match="takes arrays"):
        checked(Behaviour(), SAMPLES[0], completions)


def test_a_model_that_the_server_lacks_is_an_error() -> None:
    with pytest.raises(UsageError, match="no model `other`") as caught:
        checked(Behaviour(), WORDS[0], lambda port: completions(port) + "?model=other")
    assert "writer" in caught.value.hint


@pytest.mark.parametrize("way", ["status 500", "redirect", "half", "garbage", "silent"])
def test_a_service_that_fails_the_check_is_an_error_of_two_lines(way: str) -> None:
    with fault_server(Behaviour(script=lambda _: way)) as port, pytest.raises(UnavailableError) as caught:
        open_endpoint(parse_target(kserve(port))).check(SAMPLES[0], SECOND // 5)
    assert "did not answer a first request" in caught.value.problem


def test_a_missing_service_is_an_error_of_two_lines() -> None:
    for url in (kserve, completions):
        sample = SAMPLES[0] if url is kserve else WORDS[0]
        with pytest.raises(UnavailableError, match="refused") as caught:
            open_endpoint(parse_target(url(closed_port()))).check(sample, GUARD_NS)
        assert caught.value.hint == "Start the server, or check host and port."


def test_totals_of_a_server_are_read_before_and_after() -> None:
    behaviour = Behaviour()
    with fault_server(behaviour) as port:
        endpoint = open_endpoint(parse_target(kserve(port)))
        before = endpoint.totals(GUARD_NS)
        connection = endpoint.connect()
        for _ in range(3):
            connection.exchange(SAMPLES[0], now_ns() + GUARD_NS, Exchange())
        after = endpoint.totals(GUARD_NS)
        connection.close()
    assert before is not None
    assert after is not None
    result = after.since(before)
    assert (result.requests, result.executions, result.queue_ns, result.compute_infer_ns) == (3, 3, 30, 300)


def test_a_key_travels_and_a_message_never_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_API_KEY", "key-123")
    behaviour = Behaviour(script=lambda _: "status 401")
    with fault_server(behaviour) as port, pytest.raises(UnavailableError) as caught:
        open_endpoint(parse_target(kserve(port))).check(SAMPLES[0], GUARD_NS)
    assert behaviour.seen[-1]["headers"]["Authorization"] == "Bearer key-123"
    assert "key-123" not in caught.value.problem + caught.value.hint


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert load(Behaviour(), 2).counts() == {}


def test_a_failure_keeps_its_words_short_and_plain() -> None:
    failure = RequestFailureError("rejected", "a\x1b[31m\n" + "x" * 10_000)
    assert failure.detail.isprintable()
    assert len(failure.detail) <= 300


def test_no_client_loads_grpc_before_it_is_named() -> None:
    code = "import sys, harness.endpoints.issuing, harness.endpoints.kserve_grpc, harness.endpoints.completions; "
    code += "print([name for name in ('grpc', 'google.protobuf', 'torch', 'requests') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
