"""The e2e boundary from load to close: order of calls, parts that add up, outputs of what was prepared."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from harness.core.schemas import Measurement, Placement
from harness.timing import (
    clock,
    loop,
    repeat_check,
    session,
)
from harness.timing.end_to_end import EndToEnd
from harness.timing.session import Measurements, run_session

MS = 1_000_000
BATCHES = 8
COST_NS = {"prepare": 3 * MS, "feed": MS, "infer": 5 * MS, "sync": 2 * MS, "outputs": MS // 2, "answer": MS // 4}
ITEMS = [[f"text {index}", "other"] for index in range(BATCHES)]

pytestmark = pytest.mark.usefixtures("collector")


def logits(index: int) -> dict[str, Any]:
    return {"logits": np.random.default_rng(index).normal(size=(2, 5)).astype(np.float32)}


class Recording:
    """Answers what it was last fed; every call costs time on its own clock and is written down."""

    compiles = False

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.now_ns = 0
        self.fed: Any = None
        self.answered: list[tuple[Any, Any]] = []
        self.forget = False

    def note(self, call: str) -> None:
        self.calls.append(call)
        self.now_ns += COST_NS.get(call, 0)

    def enter(self, phase: str) -> None:
        self.calls.append(f"[{phase}]")

    def load(self) -> None:
        self.note("load")

    def compile_cached(self) -> None:
        return None

    def select(self, index: int) -> None:
        raise AssertionError("an e2e case feeds what it prepared and selects nothing")

    def prepare(self, items: Sequence[bytes | str]) -> dict[str, Any]:
        self.note("prepare")
        return {"ids": int(str(items[0]).split()[1]) + np.arange(0, 800, 100)}

    def feed(self, batch: Any) -> None:
        self.note("feed")
        if not (self.forget and self.fed is not None):
            self.fed = batch

    def infer(self) -> None:
        self.note("infer")

    def synchronize(self) -> None:
        self.note("sync")

    def outputs(self) -> dict[str, Any]:
        self.note("outputs")
        return logits(int(self.fed["ids"][0]))

    def answer(self, outputs: Any, batch: Any) -> object:
        self.note("answer")
        self.answered.append((outputs, batch))
        return outputs["logits"].argmax()

    def placement(self) -> Placement:
        return Placement(device="cpu", precision="fp32", provider="fake", settings={}, dtype_census={})

    def close(self) -> None:
        self.note("close")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Recording], Measurements]:
    def call(backend: Recording) -> Measurements:
        for module in (loop, session, repeat_check, clock):
            monkeypatch.setattr(module, "now_ns", lambda: backend.now_ns)
        mode = EndToEnd(backend, ITEMS, backend.prepare, backend.answer)
        settings = Measurement.model_validate({"max_samples": 500})
        return run_session(backend, mode, logits, True, settings, backend.enter)

    return call


Run = Callable[[Recording], Measurements]
ONE = "prepare feed infer sync outputs answer "


def test_the_order_of_calls_is_exactly_the_contract(run: Run) -> None:
    backend = Recording()
    run(backend)
    order = (
        rf"\[load\] load \[first inference\] {ONE}"
        rf"\[reference check\] ({ONE}outputs ){{{BATCHES}}}"
        rf"\[warm-up\] ({ONE})+"
        rf"\[measure\] (({ONE})+outputs )+"
        r"\[outputs check\] \[repeat check\] prepare prepare "
        rf"(feed infer sync outputs ){{{2 * repeat_check.LEAST_PAIRS + 1},}}"
        r"close "
    )
    assert re.fullmatch(order, " ".join(backend.calls) + " ")


def test_new_inputs_are_fed_as_arrays_and_timed_with_their_outputs(run: Run) -> None:
    result = run(Recording()).repeats
    assert result is not None
    assert set(result.fresh_ns) == set(result.repeated_ns) == {8 * MS + MS // 2}


def test_the_parts_are_the_calls_own_time_and_add_up_to_the_sample(run: Run) -> None:
    result = run(Recording())
    assert result.split is not None
    whole = list(result.timed.samples_ns)
    parts = list(zip(result.split.preprocess, result.split.inference, result.split.postprocess, strict=True))
    assert [sum(part) for part in parts] == whole
    assert set(parts) == {(3 * MS, 8 * MS + MS // 2, MS // 4)}


def test_the_first_answer_is_timed_from_the_samples_to_the_answer(run: Run) -> None:
    assert run(Recording()).cold_ns.first_inference == sum(COST_NS.values())


def test_every_batch_is_prepared_again_and_answered_from_its_own_outputs(run: Run) -> None:
    backend = Recording()
    result = run(backend)
    assert result.parity_before is not None
    assert result.parity_timed is not None
    assert (result.parity_before.relative_l2, result.parity_timed.relative_l2) == (0.0, 0.0)
    for outputs, batch in backend.answered:
        assert np.array_equal(outputs["logits"], logits(int(batch["ids"][0]))["logits"])
    assert {int(batch["ids"][0]) for _, batch in backend.answered} == set(range(BATCHES))


def test_a_backend_that_keeps_its_old_inputs_is_detected(run: Run) -> None:
    backend = Recording()
    backend.forget = True
    result = run(backend)
    for parity in (result.parity_before, result.parity_timed):
        assert parity is not None
        assert parity.relative_l2 is not None
        assert parity.relative_l2 > 0.1
