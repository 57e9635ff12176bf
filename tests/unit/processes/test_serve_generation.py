"""A load case of a decoder, from its job to its records and its row: spin, which needs no files."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from harness.aggregation.flags import Criteria
from harness.aggregation.load_rows import load_row
from harness.backends.calibration.spin import SpinDecoder
from harness.core.errors import MissingInputError
from harness.core.layout import Results
from harness.core.protocol import LoadJob
from harness.core.schemas import LoadCase, Measurement, Replication
from harness.planning.resume import LoadState, load_evidence, read_load_state
from harness.processes.serve_generation import serve_generation
from harness.serving.load_verdict import parse_bounds

PAIRS = ((8, 4), (3, 2), (3, 1))


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    """The service freezes and disables the collector of its process."""
    yield
    gc.enable()
    gc.unfreeze()


def job_for(root: Path, **fields: object) -> LoadJob:
    bounds = parse_bounds("ttft_p50<1s,itl_p50<1s")
    load = {
        "load_id": "spinning",
        "model": "spin:20us",
        "slug": "spin-20us",
        "backend": "spin",
        "device": "cpu",
        "precision": "fp32",
        "sequence_length": None,
        "weights": "own",
        "scenario": "server",
        "bound": bounds[0],
        "further_bounds": bounds[1:],
        "rates": (400.0,),
        "max_batch": 4,
        # Every batch waits until it is full, so that lengths mix whatever the machine does.
        "max_delay_ns": 50_000_000,
        "replications": 2,
        "requests": 30,
        "service_s": 0.01,
        "replication_s": 0.1,
        "prompt_length": 8,
        "new_tokens": 4,
        "lengths": PAIRS,
        **fields,
    }
    return LoadJob(
        load=LoadCase.model_validate(load),
        settings_id="settings",
        measurement=Measurement(),
        threads=1,
        results=str(root / "results"),
        models=str(root / "models"),
        export=str(root / "none.json"),
    )


def state(job: LoadJob) -> LoadState:
    return read_load_state(job.load, Results(Path(job.results)).load(job.load.load_id), job.settings_id, lambda _: True)


def test_every_request_has_its_own_tokens_in_order(tmp_path: Path) -> None:
    job, phases = job_for(tmp_path), list[str]()
    serve_generation(job, phases.append)
    result = state(job)
    assert result.complete
    assert result.prediction is None
    assert phases[-4:] == ["outputs check", "replication 2 of r400", "outputs check", "end"]
    assert result.service is not None
    assert set(result.service.service_ns) == {1, 2, 4}
    for record in result.replications["r400"]:
        _check_order(record)
    row = load_row(job.load, "text", Criteria(None, False, 0.01, True), load_evidence(result))
    assert (row.status, row.void) == ("measured", None)
    (point,) = row.points
    assert (point.requests, point.failed) == (2 * 40, 0)
    assert point.tokens is not None
    assert 0 < (point.tokens.useful_share or 0) < 1
    assert point.tokens.one_token > 0


def _check_order(record: Replication) -> None:
    """scheduled <= start <= each token <= end of the batch, one instant for each token of the longest output."""
    tokens = record.generated
    assert tokens is not None
    assert set(zip(tokens.prompt_tokens, tokens.new_tokens, strict=True)) == set(PAIRS)
    request = 0
    for size, slots, start, done, instants in zip(
        record.sizes, tokens.slots, record.start_ns, record.done_ns, tokens.token_ns, strict=True
    ):
        own = range(request, request + size)
        assert len(instants) == max(tokens.new_tokens[place] for place in own)
        assert max(record.scheduled_ns[place] for place in own) <= start <= instants[0]
        assert all(earlier < later for earlier, later in pairwise((*instants, done + 1)))
        assert slots in (1, 2, 4)
        assert size <= slots < 2 * size or slots == size
        request += size
    assert request == record.requests


def test_requests_join_a_decoder_of_known_durations(tmp_path: Path) -> None:
    """Spin: a join takes 10 steps of 20 µs, and 40 requests come in 100 ms, so that they overlap."""
    job = job_for(tmp_path, batching="continuous", max_delay_ns=0, load_id="joining", rates=(4000.0,), requests=400)
    serve_generation(job, lambda _: None)
    result = state(job)
    assert result.complete
    assert result.service is not None
    assert set(result.service.service_ns) == {4}
    step, join = 20_000, 200_000
    for record in result.replications["r4000"]:
        tokens = record.generated
        assert tokens is not None
        assert tokens.joined is not None
        assert set(record.sizes) == set(tokens.slots) == {1}
        assert set(record.worker) <= {0, 1, 2, 3}
        passes = sum(len(instants) - 1 for instants in tokens.token_ns)
        assert tokens.joined.tokens == record.requests + passes
        assert tokens.joined.steps < passes, "several requests share a step"
        for scheduled, ready, start, done, new, instants in zip(
            record.scheduled_ns,
            record.ready_ns,
            record.start_ns,
            record.done_ns,
            tokens.new_tokens,
            tokens.token_ns,
            strict=True,
        ):
            assert scheduled <= ready <= start
            assert (len(instants), instants[-1]) == (new, done)
            assert instants[0] - start >= join
            assert all(later - earlier >= step for earlier, later in pairwise(instants))
        # Between two tokens of a request others may join, each for 10 steps.
        joins = sorted(record.start_ns)
        stalls = [
            (later - earlier, sum(earlier <= at < later for at in joins))
            for instants in tokens.token_ns
            for earlier, later in pairwise(instants)
        ]
        assert all(gap >= step + joined * join for gap, joined in stalls)
        assert any(joined for _, joined in stalls)
    row = load_row(job.load, "text", Criteria(None, False, 0.01, True), load_evidence(result))
    assert (row.status, row.void, row.batching) == ("measured", None, "continuous")
    (point,) = row.points
    assert 1 < point.mean_batch <= 4
    assert point.added_p99_ns is None
    assert point.tokens is not None
    assert point.tokens.useful_share == 1.0
    assert any(note.startswith("continuous batching") for note in row.notes)


def test_measured_records_stay_and_only_the_rest_is_measured(tmp_path: Path) -> None:
    job = job_for(tmp_path)
    serve_generation(job, lambda _: None)
    files = Results(Path(job.results)).load("spinning")
    kept = files.replication("r400", 1).read_bytes()
    files.replication("r400", 2).unlink()
    phases = list[str]()
    serve_generation(job, phases.append)
    assert [phase for phase in phases if phase.startswith(("service", "replication"))] == ["replication 2 of r400"]
    assert files.replication("r400", 1).read_bytes() == kept


def test_a_decoder_that_fails_once_loses_that_batch_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phases = ["start"]

    def step(decoder: SpinDecoder) -> None:
        if phases[-1] == "replication 1 of r400":
            phases.append("after the failure")
            raise ValueError("no memory for the cache")

    monkeypatch.setattr(SpinDecoder, "step", step)
    job = job_for(tmp_path, lengths=(), max_batch=1)
    serve_generation(job, phases.append)
    failed = [record for record in state(job).replications["r400"] if record.failed]
    (record,) = failed
    assert record.error == "ValueError: no memory for the cache"
    row = load_row(job.load, "text", Criteria(None, False, 0.01, True), load_evidence(state(job)))
    assert row.points[0].failed == 1
    assert np.isclose(row.points[0].goodput or 0, 1 - 1 / row.points[0].requests)


def test_a_model_without_its_files_names_the_stage_that_makes_them(tmp_path: Path) -> None:
    job = job_for(tmp_path, backend="torch-eager", model="gpt2", slug="gpt2")
    with pytest.raises(MissingInputError, match="no files for generation"):
        serve_generation(job, lambda _: None)
