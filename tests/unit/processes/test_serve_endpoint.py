"""A running service under load: its prompts as requests, its answers against the reference, its records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.aggregation.flags import Criteria
from harness.aggregation.load_rows import load_row
from harness.core import store
from harness.core.errors import CaseError, MissingInputError, UnavailableError
from harness.core.layout import Models, Results
from harness.core.protocol import LoadJob
from harness.core.schemas import LatencyBound, LoadCase, LoadRow, Measurement, Replication, ServiceRun, Tolerance
from harness.endpoints.contract import Completion, Prompt
from harness.endpoints.timeline import StreamSteps, Timeline
from harness.planning.resume import load_evidence, read_load_state
from harness.processes import serve_endpoint as module
from harness.processes.serve_endpoint import ExpectedAnswer, JudgedAnswers, PromptWorkload, serve_endpoint
from harness.serving.load_verdict import parse_bounds
from tests import synthetic_results as made
from tests.fixtures.fault_server import Behaviour, closed_port, fault_server


class _Loaded(PromptWorkload):
    """A workload of two prompts with a reference and one without, without files."""

    def __init__(self) -> None:
        self.samples = [Prompt(text, 2, (1, 2)) for text in ("a", "b", "c")]
        self.artifacts = {}
        self._answers = [ExpectedAnswer((5, 6), "five six"), ExpectedAnswer((7, 8), "seven eight"), None]
        self._pairs = self._distinct = ((2, 2),)


def timeline(replies: dict[int, Completion], sample: list[int]) -> Timeline:
    zeros = np.zeros(len(sample), np.int64)
    names = [
        *("scheduled", "issued", "serialised", "sent", "first", "done", "ended", "connect_ns"),
        *("request_bytes", "answer_bytes", "server_queue_ns", "server_compute_ns"),
    ]
    return Timeline(
        open_loop=True,
        **dict.fromkeys(names, zeros),  # type: ignore[arg-type]
        sample=np.array(sample, np.int64),
        failures=(None,) * len(sample),
        details={},
        steps=StreamSteps(np.zeros(len(sample) + 1, np.int64), zeros[:0], zeros[:0]),
        replies=replies,
        connections=1,
        reopened=0,
        waited=0,
        most_in_flight=1,
    )


def completion(text: str, ids: tuple[int, ...] | None = None) -> Completion:
    return Completion(text, ids, None, "length")


@pytest.mark.parametrize(
    ("reply", "equal"),
    [
        (completion("five six"), 1),
        (completion("five seven"), 0),
        (completion("other text", (5, 6)), 1),
        (completion("five six", (5, 7)), 0),
    ],
)
def test_ids_decide_where_there_are_any_and_else_the_text(reply: Completion, equal: int) -> None:
    judged = _Loaded().judge(timeline({0: reply}, [0]))
    assert (judged.compared, judged.equal, judged.distance, dict(judged.wrong)) == (1, equal, None, {})


@pytest.mark.parametrize(
    ("tokens", "finish", "wrong"),
    [
        (2, "stop", None),
        (None, "length", None),
        (1, "length", "1 instead of 2 tokens"),
        (3, "length", "3 instead of 2 tokens"),
        (None, "stop", "reason to stop is stop"),
        (None, None, "reason to stop is unknown"),
    ],
)
def test_an_answer_of_another_length_is_wrong_with_or_without_a_reference(
    tokens: int | None, finish: str | None, wrong: str | None
) -> None:
    reply = Completion("five six", None, tokens, finish)
    judged = _Loaded().judge(timeline({0: reply, 1: reply}, [0, 2]))
    assert judged.compared == 1
    if wrong is None:
        assert not judged.wrong
    else:
        assert sorted(judged.wrong) == [0, 1]
        assert all(wrong in why for why in judged.wrong.values())


def test_a_prompt_without_a_reference_is_not_compared() -> None:
    replies = {0: completion("seven eight"), 1: completion("x"), 2: completion("five six")}
    judged = _Loaded().judge(timeline(replies, [1, 2, 0]))
    assert (judged.compared, judged.equal) == (2, 2)


class _Distribution(PromptWorkload):
    """Three prompts of each of two pairs of lengths; the file has the second pair twice."""

    def __init__(self) -> None:
        self._distinct = [(2, 4), (3, 8)]
        self._pairs = ((2, 4), (3, 8), (3, 8))
        self.samples = [Prompt("", new, (0,) * length) for _ in range(3) for length, new in self._distinct]


def test_of_a_distribution_each_request_draws_its_lengths_and_asks_for_its_own_tokens() -> None:
    work = _Distribution()
    order = work.order(3_000, 5)
    assert order == work.order(3_000, 5) != work.order(3_000, 6)
    asked = work.tokens_asked(timeline({}, order))
    assert set(asked) == {4, 8}
    assert np.mean(np.array(asked) == 8) == pytest.approx(2 / 3, abs=0.05)
    # The prompts of a pair take turns.
    first = [place for place in order if place % 2 == 0]
    assert first[:4] == [*first[:3], first[0]]
    assert len(set(first[:3])) == 3


def test_a_missing_length_names_the_stage_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class _Export:
        model, folder = "m", None

        def prompt_set(self, *_: int) -> None:
            return None

    class _Load:
        pairs, slug = ((16, 8),), "m"

    class _Job:
        load, export, models = _Load(), "x", str(Path("models"))

    monkeypatch.setattr(module.store, "load", lambda *_: _Export())
    with pytest.raises(MissingInputError, match="no 8 tokens after prompts of 16"):
        PromptWorkload(_Job())  # type: ignore[arg-type]


STORED = 16
CRITERIA = Criteria(Tolerance(relative_l2=1e-4), judge_top1=False, target_ci=0.01, calibration=False)


@pytest.fixture(autouse=True)
def _short_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of the checks are for real services."""
    monkeypatch.setattr(module, "GUARD_PAIRS", 2)
    monkeypatch.setattr(module, "GUARD_NS", 1_000_000)
    monkeypatch.setattr(module, "patience_ns", lambda _: 300_000_000_000)  # no answer is late on a slow machine


@pytest.fixture
def behaviour() -> Behaviour:
    return Behaviour()


@pytest.fixture
def port(behaviour: Behaviour) -> Iterator[int]:
    with fault_server(behaviour) as opened:
        yield opened


def job_for(root: Path, port: int, **fields: object) -> LoadJob:
    """A job on an exported model that doubles: 16 inputs x of three numbers, and their reference y."""
    folder = Models(root / "models").folder("minilm-l6")
    folder.root.mkdir(parents=True, exist_ok=True)
    x = np.arange(STORED * 3, dtype=np.float32).reshape(STORED, 3) + 1
    np.savez(folder.root / "inputs-32.npz", allow_pickle=False, x=x)
    np.savez(folder.root / "reference-32.npz", allow_pickle=False, y=2 * x)
    store.save(folder.record, made.export_record(made.MINILM))
    load = {
        "load_id": "doubler",
        "model": "minilm-l6",
        "slug": "minilm-l6",
        "backend": "endpoint",
        "device": "cpu",
        "precision": "fp32",
        "sequence_length": 32,
        "weights": "pretrained",
        "scenario": "server",
        "bound": LatencyBound(quantile=0.9, limit_ns=250_000_000),
        "rates": (200.0,),
        "replications": 2,
        "requests": 20,
        "service_s": 0.05,
        "replication_s": 0.1,
        "endpoint": f"kserve+http://127.0.0.1:{port}/v2/models/double",
        **fields,
    }
    return LoadJob(
        load=LoadCase.model_validate(load),
        settings_id="settings",
        measurement=Measurement(parity_samples=STORED),
        threads=1,
        results=str(root / "results"),
        models=str(root / "models"),
        export=str(folder.record),
    )


def row_of(job: LoadJob) -> tuple[LoadRow, ServiceRun, list[Replication]]:
    state = read_load_state(
        job.load, Results(Path(job.results)).load(job.load.load_id), job.settings_id, lambda _: True
    )
    assert state.service is not None
    row = load_row(job.load, "text", CRITERIA, load_evidence(state, None))
    return row, state.service, [record for records in state.replications.values() for record in records]


def test_each_request_is_a_batch_of_its_own_with_the_times_of_its_client(tmp_path: Path, port: int) -> None:
    job = job_for(tmp_path, port)
    phases: list[str] = []
    serve_endpoint(job, phases.append)
    row, service, records = row_of(job)
    assert phases[:4] == ["endpoint check", "reference check", "service times", "guards"]
    assert service.placement.provider == "doubler 1.0"
    assert len(service.service_ns[1]) >= 20
    assert [record.number for record in records] == [1, 2]
    for record in records:
        assert record.sizes == (1,) * 20
        assert record.ready_ns == record.scheduled_ns
        assert all(ready <= start <= done for ready, start, done in zip(*times(record), strict=True))
        assert record.client is not None
        assert record.client.compared == 20
        assert record.client.server is not None
        assert record.client.server.requests == 20
        assert record.parity is not None
        assert record.parity.relative_l2 == 0
    assert records[0].schedule_sha256 != records[1].schedule_sha256
    assert (row.status, row.void, row.endpoint) == ("measured", None, job.load.endpoint)
    (point,) = row.points
    assert (point.requests, point.failed, point.mean_batch) == (40, 0, 1.0)
    assert point.client is not None
    assert (point.client.compared, point.client.reopened) == (40, 0)
    assert (point.client.server_queue_ns, point.client.server_batch) == (10, 1.0)
    assert point.added_p99_ns is None
    assert any("takes CPU time" in note for note in row.notes)


def times(record: Replication) -> tuple[tuple[int, ...], ...]:
    return record.ready_ns, record.start_ns, record.done_ns


def test_only_missing_records_are_measured_again(tmp_path: Path, behaviour: Behaviour, port: int) -> None:
    job = job_for(tmp_path, port)
    serve_endpoint(job, lambda _: None)
    files = Results(Path(job.results)).load(job.load.load_id)
    before = files.replication("r200", 1).read_bytes()
    files.replication("r200", 2).unlink()
    asked = behaviour.count
    serve_endpoint(job, lambda _: None)
    assert files.replication("r200", 1).read_bytes() == before
    assert files.replication("r200", 2).is_file()
    # The first request, the reference check, the warm-up and one replication.
    assert behaviour.count - asked == 1 + STORED + module.WARM_UP + 20


def test_failures_are_counted_by_kind_and_fail_the_load(
    tmp_path: Path, behaviour: Behaviour, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "patience_ns", lambda _: 5_000_000_000)
    job = job_for(tmp_path, port, replications=3)
    serve_endpoint(job.model_copy(update={"load": job.load.model_copy(update={"replications": 1})}), lambda _: None)
    ways = ("status 503", "good", "half", "silent", "good", "good", "good", "good")
    last = behaviour.count + 1 + STORED + module.WARM_UP
    behaviour.script = lambda number: "good" if number < last else ways[(number - last) % 8]
    serve_endpoint(job.model_copy(update={"load": job.load.model_copy(update={"replications": 2})}), lambda _: None)
    row, _, records = row_of(job)
    client = records[1].client
    assert client is not None
    assert {kind: len(failure.requests) for kind, failure in client.failures.items()} == {
        "timeout": 3,
        "closed": 3,
        "server error": 3,
    }
    assert client.failures["server error"].first.startswith("HTTP 503")
    assert len(records[1].failed) == 9
    (point,) = row.points
    assert point.failed == 9
    assert point.goodput is not None
    assert point.goodput <= 31 / 40
    assert point.latency["p90"].infinite or point.latency["p90"].ns is None


def test_wrong_answers_void_the_row(tmp_path: Path, behaviour: Behaviour, port: int) -> None:
    job = job_for(tmp_path, port, replications=1)
    serve_endpoint(job, lambda _: None)
    assert row_of(job)[0].void is None
    last = behaviour.count + 1 + STORED + module.WARM_UP
    behaviour.script = lambda number: "wrong" if number > last else "good"
    files = Results(Path(job.results)).load(job.load.load_id)
    files.replication("r200", 1).unlink()
    serve_endpoint(job, lambda _: None)
    assert "above the tolerance" in (row_of(job)[0].void or "")


@pytest.mark.parametrize(("fast_from", "void"), [("guards", False), ("replication 1 of r200", True)])
def test_a_service_that_is_slow_for_a_while_is_not_void_and_one_that_is_faster_under_load_is(
    fast_from: str, void: bool, tmp_path: Path, behaviour: Behaviour, port: int
) -> None:
    def enter(phase: str) -> None:
        first = phase not in phases
        phases.append(phase)
        if first:
            behaviour.service_s = {"service times": 0.02, fast_from: 0.0}.get(phase, behaviour.service_s)

    phases: list[str] = []
    job = job_for(tmp_path, port, replications=1)
    serve_endpoint(job, enter)
    assert ("under load (p50)" in (row_of(job)[0].void or "")) is void


def test_a_service_that_keeps_answers_by_their_input_is_void(tmp_path: Path, behaviour: Behaviour, port: int) -> None:
    behaviour.service_s, behaviour.remembers = 0.02, True
    job = job_for(tmp_path, port, replications=1)
    serve_endpoint(job, lambda _: None)
    row, service, _ = row_of(job)
    assert service.repeats is not None
    assert service.repeats.missing is None
    assert "work was skipped" in (row.void or "")


@pytest.mark.parametrize(
    ("fields", "sizes", "clients"),
    [
        ({"scenario": "single-stream"}, 1, 1),
        ({"scenario": "multi-stream", "max_batch": 4}, 1, 1),
        ({"scenario": "offline", "max_batch": 2}, 2, 1),
        ({"scenario": "concurrency", "clients": (3,)}, 1, 3),
    ],
)
def test_closed_loops(fields: dict[str, object], sizes: int, clients: int, tmp_path: Path, port: int) -> None:
    job = job_for(tmp_path, port, bound=None, rates=(), replications=1, replication_s=0.02, **fields)
    serve_endpoint(job, lambda _: None)
    row, _, (record,) = row_of(job)
    assert set(record.sizes) == {sizes}
    assert record.scheduled_ns == ()
    assert list(record.start_ns) == sorted(record.start_ns)
    assert record.workers == clients
    assert record.requests == sum(record.sizes)
    (point,) = row.points
    assert point.samples_per_s > 0
    assert point.verdict is None


def test_a_missing_service_or_another_model_fails_before_any_load(
    tmp_path: Path, behaviour: Behaviour, port: int
) -> None:
    with pytest.raises(UnavailableError, match="refused"):
        serve_endpoint(job_for(tmp_path, closed_port()), lambda _: None)
    behaviour.output = "z"
    with pytest.raises(CaseError, match="not those of minilm-l6: output `y` is missing"):
        serve_endpoint(job_for(tmp_path, port), lambda _: None)


def test_a_failed_request_of_the_guard_fails_the_case(tmp_path: Path, behaviour: Behaviour, port: int) -> None:
    phases: list[str] = []
    behaviour.script = lambda _: "status 503" if "guards" in phases else "good"
    job = job_for(tmp_path, port)
    with pytest.raises(CaseError, match="failed without load: server error"):
        serve_endpoint(job, phases.append)
    assert phases[-1] == "guards"
    assert not Results(Path(job.results)).load(job.load.load_id).service.exists()


class _Prompts(PromptWorkload):
    """One prompt of two tokens, whose answer is `ab`, without files."""

    def __init__(self) -> None:
        self.samples = [Prompt("once", 2)]
        self.artifacts = {}
        self._answers = [ExpectedAnswer((5, 6), "ab")]
        self._pairs = self._distinct = ((1, 2),)


@pytest.mark.parametrize(
    ("letters", "problem"), [("cd", "None of 1 answers has the tokens or text of greedy fp32"), ("a", "1 instead of 2")]
)
def test_completions_of_another_model_or_length_fail_before_any_load(
    letters: str, problem: str, tmp_path: Path, behaviour: Behaviour, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "make_workload", lambda _: _Prompts())
    behaviour.steps = [(0.0, {"text": letter}) for letter in letters]
    behaviour.usage = len(letters)
    url = f"openai+http://127.0.0.1:{port}/v1/completions"
    with pytest.raises(CaseError, match=problem):
        serve_endpoint(job_for(tmp_path, port, endpoint=url, prompt_length=1, new_tokens=2), lambda _: None)


@pytest.mark.parametrize(("usage", "one_each"), [(2, True), (4, False)])
def test_a_stream_is_judged_by_bounds_on_its_tokens(
    usage: int, one_each: bool, tmp_path: Path, behaviour: Behaviour, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "make_workload", lambda _: _Prompts())
    monkeypatch.setattr(_Prompts, "judge", lambda *_: JudgedAnswers(1, equal=1))
    behaviour.steps = [(0.0, {"text": "a"}), (0.0, {"text": "b"})]
    behaviour.usage = usage
    bounds = parse_bounds("ttft_p50<500ms,itl_p50<500ms")
    fields = {"prompt_length": 1, "new_tokens": usage, "bound": bounds[0], "further_bounds": bounds[1:]}
    job = job_for(tmp_path, port, endpoint=f"openai+http://127.0.0.1:{port}/v1/completions", **fields)
    serve_endpoint(job, lambda _: None)
    row, _, records = row_of(job)
    (point,) = row.points
    assert point.requests == 40
    assert point.tokens is not None
    assert point.tokens.ttft["p50"].ns is not None
    # Two chunks of two tokens each are two steps, and no time between tokens is known.
    assert bool(point.tokens.itl) is one_each
    assert [entry.bound for entry in point.judged] == [bound.text for bound in bounds]
    assert any("held against the steps" in note for note in row.notes) is not one_each
    for record in records:
        assert record.client is not None
        assert record.client.steps is not None
        assert len(record.client.steps.at_ns) == 2 * record.requests


def test_a_service_that_keeps_the_answers_to_prompts_is_named(
    tmp_path: Path, behaviour: Behaviour, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Several(_Prompts):
        def __init__(self) -> None:
            super().__init__()
            self.samples = [Prompt("once", 2, (place, place + 1, place + 2, place + 3)) for place in range(1, 60, 4)]

    monkeypatch.setattr(module, "make_workload", lambda _: Several())
    monkeypatch.setattr(Several, "judge", lambda *_: JudgedAnswers(1, equal=1))
    behaviour.service_s, behaviour.remembers = 0.02, True
    behaviour.steps, behaviour.usage = [(0.0, {"text": "a"}), (0.0, {"text": "b"})], 2
    fields = {"prompt_length": 4, "new_tokens": 2, "replications": 1}
    job = job_for(tmp_path, port, endpoint=f"openai+http://127.0.0.1:{port}/v1/completions", **fields)
    serve_endpoint(job, lambda _: None)
    row = row_of(job)[0]
    assert row.void is None
    assert any("the server keeps answers or caches of prompts" in note for note in row.notes)
