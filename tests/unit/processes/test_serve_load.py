"""A service on a simulated GPU, one thread that issues: its sets of objects, their records, and what it refuses."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.backends.base import Backend
from harness.backends.batches import BatchSet
from harness.core import store
from harness.core.errors import CaseError
from harness.core.host import environment
from harness.core.layout import Results
from harness.core.protocol import LoadJob
from harness.core.schemas import Environment, LoadCase, Replication, ServiceRun
from harness.planning.config import parse_config
from harness.planning.matrix import make_plan
from harness.processes import serve_load
from harness.timing.repeat_check import NewBatches
from harness.timing.session import compare_answers
from tests.fixtures import tensorrt
from tests.fixtures.computing_gpu import FakeGpu

REPLICATION = {"replications": 2, "duration": "0.05s", "service_duration": "0.05s", "requests": 40}
SCENARIO = {"scenario": "server", "bound": "p50<9s", "rates": [400], "max_batch": [2], **REPLICATION}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    result = FakeGpu()
    tensorrt.install(monkeypatch, result)
    result.late = random.Random(1).randrange  # noqa: S311 - an order, not a secret
    collect = environment.collect

    def on_cpu(build: dict[str, str], _device: str, also: tuple[str, ...] = ()) -> Environment:
        return collect(build, "cpu", also)

    monkeypatch.setattr(environment, "collect", on_cpu)
    monkeypatch.setattr("harness.timing.service_times.WARM_UP_S", 0.01)
    monkeypatch.setattr(serve_load, "RE_WARM_S", 0.01)
    monkeypatch.setattr(LoadCase, "replayed", False)  # replay of a service that takes no time is not what is tested
    before = sys.getswitchinterval()
    yield result
    sys.setswitchinterval(before)
    gc.unfreeze()
    gc.enable()


def served(tmp_path: Path, **more: object) -> tuple[LoadCase, Results]:
    config = {
        "device": "cuda",
        "models": ["spin:1ms"],
        "matrix": [{"backends": ["noop"]}],
        "scenarios": [{**SCENARIO, **more}],
    }
    plan = make_plan(parse_config(config, "here.yaml"), "here.yaml", "0" * 64, loads_alone=True)
    (load,) = plan.loads
    assert load.skip_reason is None
    folders = {"results": str(tmp_path / "results"), "models": str(tmp_path / "models")}
    job = LoadJob(load=load, settings_id=plan.settings_id, measurement=plan.measurement, threads=1, **folders)
    serve_load.serve_load(job, lambda phase: None)
    return load, Results(tmp_path / "results")


def replications(results: Results) -> list[Replication]:
    return [store.load(path, Replication, "make load") for path in sorted(results.loads.glob("*/r400/*.json"))]


@pytest.mark.parametrize(("more", "sets"), [({"in_flight": [3]}, 3), ({}, 1)], ids=["in flight", "a worker"])
def test_each_batch_in_flight_has_objects_with_streams_of_their_own(
    more: dict[str, object], sets: int, gpu: FakeGpu, tmp_path: Path
) -> None:
    load, results = served(tmp_path, **more)
    assert (load.parallel, load.sets) == (sets, sets)
    assert len(gpu.streams) == 2 * sets  # of batch sizes 1 and 2
    assert gpu.contexts == 0  # every object is closed
    service = store.load(results.load(load.load_id).service, ServiceRun, "make load")
    assert (service.workers, {size: len(times) >= sets for size, times in service.service_ns.items()}) == (
        sets,
        {1: True, 2: True},
    )
    matches = replications(results)
    assert len(matches) == 2
    for single in matches:
        assert (single.workers, single.failed, single.timed_out, sum(single.sizes)) == (
            sets,
            (),
            False,
            len(single.scheduled_ns),
        )
        assert set(single.worker) == set(range(sets))
        assert len(single.unseen_ns) == (len(single.sizes) if more else 0)
        for start, done, unseen in zip(single.start_ns, single.done_ns, single.unseen_ns, strict=False):
            assert 0 < unseen <= done - start


def test_batches_in_flight_of_an_offline_run_keep_all_streams_at_work(gpu: FakeGpu, tmp_path: Path) -> None:
    lengths = {"scenario": "offline", "duration": "0.05s", "replications": 1, "max_batch": [2], "in_flight": [2]}
    config = {"bound": None, "rates": [], **lengths}
    _, results = served(tmp_path, **config)
    (path,) = results.loads.glob("*/all/1.json")
    replication = store.load(path, Replication, "make load")
    assert set(replication.worker) == {0, 1}
    assert replication.workers == 2


def test_objects_whose_passes_share_memory_are_refused(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the table of settings does not say so."""
    monkeypatch.setattr(Backend, "shares_outputs", True)
    with pytest.raises(CaseError, match="none may overlap") as error:
        served(tmp_path, in_flight=[2])
    assert "WORKERS" in error.value.hint
    served(tmp_path, workers=[1])


Values = NDArray[np.float32]


def right(values: Values) -> Values:
    return np.tanh(values @ np.arange(1, 13, dtype=np.float32).reshape(4, 3) / 100)


class Answering:
    """A backend on arrays of the host, with any function of the input."""

    def __init__(self, batches: BatchSet, answer: Callable[[Values], Values]) -> None:
        self._batches, self._answer = batches, answer

    def select(self, index: int) -> None:
        self._values = self._batches.inputs[index]["x"]

    def infer(self) -> None:
        self._outputs = {"y": self._answer(self._values)}

    def outputs(self) -> dict[str, Values]:
        return self._outputs

    def refresh(self, index: int) -> None:
        pass

    def activate(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


@pytest.mark.parametrize("honest", [True, False])
def test_answers_that_are_made_up_for_new_inputs_are_far_from_their_reference(honest: bool) -> None:
    random = np.random.default_rng(1)
    stored = [np.random.default_rng(number).normal(size=(2, 4)).astype(np.float32) for number in range(8)]
    fresh = [
        np.stack([0.3 * values[0] + 0.7 * stored[number - 1][0], values[1]]) for number, values in enumerate(stored)
    ]
    rows = {number: [0] for number in range(8)}
    new = NewBatches(rows, lambda at: {"x": fresh[at]}, lambda at: {"y": right(fresh[at])})
    answers = [{"y": right(values)} for values in stored]
    inputs = tuple({"x": values.copy()} for values in stored)
    batches = BatchSet(inputs, answers.__getitem__, (None,) * 8, lambda: new)

    def made_up(values: Values) -> Values:
        distances = [np.abs(entry - values).sum() for entry in stored]
        answer = answers[int(np.argmin(distances))]["y"]
        noise = random.normal(size=answer.shape).astype(np.float32) / 1e3
        return answer if min(distances) == 0 else answer * (1 + noise)

    backend: Any = Answering(batches, right if honest else made_up)
    nothing: Any = None
    loaded = serve_load._Loaded({2: backend}, {2: batches}, {2: 0}, {}, {2: frozenset()}, nothing, nothing)
    repeats = loaded.check_repeats(2, 7)
    assert repeats.missing is None
    assert len(repeats.new_l2) == 4
    assert max(repeats.new_l2) < 1e-6 if honest else min(repeats.new_l2) > 1e-2
    assert all(np.array_equal(values["x"], stored[number]) for number, values in enumerate(inputs))


@pytest.mark.parametrize("honest", [True, False])
def test_a_new_input_that_gets_the_answer_of_the_nearest_stored_one_is_counted(honest: bool) -> None:
    stored = [np.random.default_rng(number).normal(size=(2, 4)).astype(np.float32) for number in range(8)]
    answers = [{"y": right(values)} for values in stored]
    batches = BatchSet(tuple({"x": values.copy()} for values in stored), answers.__getitem__, (None,) * 8)

    def nearest(values: Values) -> Values:
        return answers[int(np.argmin([np.abs(entry - values).sum() for entry in stored]))]["y"]

    backend: Any = Answering(batches, right if honest else nearest)
    distance, known = compare_answers(serve_load._answers(backend, batches, range(8)), False)
    assert distance is not None
    assert distance.relative_l2 == 0
    assert len(known) == 8
    nothing: Any = None
    loaded = serve_load._Loaded({2: backend}, {2: batches}, {2: 0}, {}, {2: known}, nothing, nothing)
    repeats = loaded.check_repeats(2, 7)
    assert repeats.compared == 8
    assert repeats.unchanged == (0 if honest else repeats.compared)
