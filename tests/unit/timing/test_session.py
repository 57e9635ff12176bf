"""One case from load to close, seen by a backend that writes down every call."""

from __future__ import annotations

import gc
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from harness.core.errors import CaseError
from harness.core.schemas import Clock, DeviceSamples, Placement
from harness.timing import (
    clock,
    loop,
    repeat_check,
    session,
)
from harness.timing.modes import Sync
from harness.timing.repeat_check import NewBatches
from harness.timing.rotation import passes_beside_timing
from harness.timing.session import KEPT_OUTPUTS, Measurements, run_session
from tests.fixtures.loops import settings

MS = 1_000_000
BATCHES = 8
PLACEMENT = Placement(device="cpu", precision="fp32", provider="fake", settings={}, dtype_census={})

pytestmark = pytest.mark.usefixtures("collector")


def reference(index: int) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs that no two batches share."""
    return {"logits": np.random.default_rng(index).normal(size=(2, 5)).astype(np.float32)}


def inputs() -> list[dict[str, np.ndarray[Any, Any]]]:
    return [{"x": np.random.default_rng(index).normal(size=(2, 3)).astype(np.float32)} for index in range(BATCHES)]


class Recording:
    """Right answers by default; every call costs time on its own clock and is written down."""

    def __init__(self, compiles: bool = False, answer: Callable[[int, int], Any] | None = None) -> None:
        self.compiles = compiles
        self.calls: list[str] = []
        self.now_ns = 0
        self.index = -1
        self.inferences = 0
        self.collector: set[tuple[str, bool]] = set()
        self._phase = ""
        self._answer = answer or (lambda index, number: reference(index))

    def note(self, call: str, cost_ns: int = 0) -> None:
        self.calls.append(call)
        self.now_ns += cost_ns

    def refresh(self, index: int) -> None:
        self.note("refresh")

    def enter(self, phase: str) -> None:
        self._phase = phase
        self.note(f"[{phase}]")

    def load(self) -> None:
        self.note("load", 100 * MS)

    def compile(self) -> None:
        self.note("compile", 2_000 * MS)

    def compile_cached(self) -> bool | None:
        self.note("cached?", 3 * MS)
        return False

    def select(self, index: int) -> None:
        self.index = index
        self.note("select", MS)

    def infer(self) -> None:
        self.collector.add((self._phase, gc.isenabled()))
        self.note("infer", 5 * MS)
        self.inferences += 1

    def synchronize(self) -> None:
        self.note("sync", 2 * MS)

    def outputs(self) -> Any:
        self.note("outputs")
        return self._answer(self.index, self.inferences)

    def placement(self) -> Placement:
        self.note("placement")
        return PLACEMENT

    def close(self) -> None:
        self.note("close")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Measurements]:
    def call(backend: Recording, right: Any = reference, **changes: float) -> Measurements:
        for module in (loop, session, repeat_check, clock):
            monkeypatch.setattr(module, "now_ns", lambda: backend.now_ns)
        mode = Sync(backend, BATCHES)
        return run_session(backend, mode, right, True, settings(**changes), backend.enter, inputs())

    return call


Run = Callable[..., Measurements]
ONE = "select infer sync "


@pytest.mark.parametrize("compiles", [False, True])
def test_the_order_of_calls_is_exactly_the_contract(run: Run, compiles: bool) -> None:
    backend = Recording(compiles)
    run(backend)
    compiled = r"\[compile\] cached\? compile " if compiles else ""
    order = (
        rf"\[load\] load {compiled}\[first inference\] {ONE}"
        rf"\[reference check\] ({ONE}outputs ){{{BATCHES}}}"
        rf"\[warm-up\] ({ONE})+"
        rf"\[measure\] (({ONE})+outputs )+"
        rf"\[outputs check\] placement \[repeat check\] refresh {ONE}"
        rf"((refresh {ONE}outputs ){{2}}refresh select ){{{repeat_check.LEAST_PAIRS}}}"
        rf"((refresh {ONE}){{2}}refresh select )*"
        r"close "
    )
    assert re.fullmatch(order, " ".join(backend.calls) + " ")


@pytest.mark.parametrize("number", [1, 2])
def test_a_process_of_a_slow_model_makes_as_many_passes_beside_timing_as_a_plan_expects(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    class Slow(Recording):
        def infer(self) -> None:
            super().infer()
            self.now_ns += 500 * MS

    backend = Slow()
    for module in (loop, session, repeat_check, clock):
        monkeypatch.setattr(module, "now_ns", lambda: backend.now_ns)
    new = NewBatches(rows={index: [0] for index in range(BATCHES)}, inputs=lambda i: inputs()[i], reference=reference)
    mode = Sync(backend, BATCHES)
    run_session(
        backend, mode, reference, True, settings(), backend.enter, inputs(), round_number=number, new=lambda: new
    )
    text = re.sub(r"\[warm-up\].*\[outputs check\]", "", " ".join(backend.calls))
    assert text.split().count("infer") == passes_beside_timing(BATCHES, number)


def test_cold_costs_are_the_calls_own_time(run: Run) -> None:
    cold = run(Recording(compiles=True)).cold_ns
    assert (cold.load, cold.first_inference, cold.compile_cached) == (100 * MS, 7 * MS, False)
    assert cold.compile == 2_000 * MS


def test_a_backend_that_compiles_nothing_has_no_compile_cost(run: Run) -> None:
    cold = run(Recording(compiles=False)).cold_ns
    assert (cold.compile, cold.compile_cached) == (None, None)


def test_right_answers_have_no_distance_before_and_while_timing(run: Run) -> None:
    result = run(Recording())
    for parity, batches in ((result.parity_before, BATCHES), (result.parity_timed, len(result.timed.blocks))):
        assert parity is not None
        assert (parity.relative_l2, parity.nonfinite, parity.top1_agreement) == (0.0, 0, 1.0)
        assert parity.samples == 2 * min(batches, KEPT_OUTPUTS)


def test_large_answers_are_kept_for_the_check_one_at_a_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    size = reference(0)["logits"].nbytes
    for room, batches in ((2 * size, 2), (2 * size - 1, 1), (0, 1)):
        monkeypatch.setattr(session, "KEPT_BYTES", room)
        result = run(Recording())
        assert result.parity_timed is not None
        assert len(result.timed.blocks) > 2
        assert result.parity_timed.samples == 2 * batches


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_outputs_are_wrong_outputs(run: Run, nothing: Any) -> None:
    with pytest.raises(ValueError, match="output `logits` is missing"):
        run(Recording(answer=lambda *_: nothing))


def test_no_outputs_of_timed_passes_are_wrong_outputs(run: Run) -> None:
    turns = itertools.cycle((True, False))
    with pytest.raises(ValueError, match="output `logits` is missing"):
        run(Recording(answer=after_check(lambda index: reference(index) if next(turns) else {})))


def test_arrays_that_change_after_they_were_returned_are_compared_as_they_were(run: Run) -> None:
    class Late(Recording):
        def outputs(self) -> Any:
            right = super().outputs()
            if self.inferences <= 1 + BATCHES:
                return right
            arrays = {name: np.zeros_like(values) for name, values in right.items()}
            self.late.append((arrays, right))
            return arrays

        def placement(self) -> Placement:
            for arrays, right in self.late:
                arrays["logits"][:] = right["logits"]
            return super().placement()

        def __init__(self) -> None:
            super().__init__()
            self.late: list[Any] = []

    result = run(Late())
    assert result.parity_timed is not None
    assert result.parity_timed.relative_l2 == 1.0


def test_a_placement_of_another_kind_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recording, "placement", lambda _: {"device": "cpu"})
    with pytest.raises(CaseError, match="gave dict and no Placement"):
        run(Recording())


def after_check(wrong: Callable[[int], Any]) -> Callable[[int, int], Any]:
    """Right until every batch has been checked, wrong from then on."""
    return lambda index, number: reference(index) if number <= 1 + BATCHES else wrong(index)


def test_an_answer_that_goes_wrong_while_timing_is_detected(run: Run) -> None:
    result = run(Recording(answer=after_check(lambda index: {"logits": -reference(index)["logits"]})))
    assert result.parity_before is not None
    assert result.parity_timed is not None
    assert result.parity_before.relative_l2 == 0.0
    assert result.parity_timed.relative_l2 == pytest.approx(2.0)


def test_nan_that_only_the_timed_path_shows_is_detected(run: Run) -> None:
    result = run(Recording(answer=after_check(lambda index: {"logits": np.full((2, 5), np.nan)})))
    assert result.parity_before is not None
    assert result.parity_timed is not None
    assert result.parity_before.nonfinite == 0
    assert result.parity_timed.nonfinite > 0
    assert result.parity_timed.relative_l2 is None


def test_the_answer_to_another_batch_is_wrong(run: Run) -> None:
    stuck = run(Recording(answer=after_check(lambda index: reference(0))))
    assert stuck.parity_timed is not None
    assert stuck.parity_timed.relative_l2 is not None
    assert stuck.parity_timed.relative_l2 > 0.1
    always = run(Recording(answer=lambda index, number: reference(0)))
    assert always.parity_before is not None
    assert always.parity_before.relative_l2 is not None
    assert always.parity_before.relative_l2 > 0.1


def test_an_output_of_another_shape_or_name_is_an_error(run: Run) -> None:
    for wrong in ({"logits": np.zeros((2, 4))}, {"other": np.zeros((2, 5))}):
        with pytest.raises(ValueError, match="logits"):
            run(Recording(answer=after_check(lambda index, wrong=wrong: wrong)))


def test_a_backend_that_computes_nothing_has_no_parity(run: Run) -> None:
    result = run(Recording(answer=lambda index, number: {}), lambda _: {})
    assert (result.parity_before, result.parity_timed) == (None, None)


def test_nothing_is_collected_inside_the_loop(run: Run) -> None:
    gc.enable()
    backend = Recording()
    run(backend)
    assert {enabled for phase, enabled in backend.collector if phase in ("warm-up", "measure")} == {False}
    assert gc.get_freeze_count() > 0


def test_samples_come_from_the_loop_and_memory_from_the_kernel(run: Run) -> None:
    result = run(Recording())
    assert set(result.timed.samples_ns) == set(result.warm_up.samples_ns) == {7 * MS}
    assert result.memory.baseline_rss_bytes > 1 << 20
    assert result.memory.peak_rss_bytes > result.memory.baseline_rss_bytes - (4 << 20)  # the kernel's counters lag
    assert result.placement == PLACEMENT


@pytest.mark.parametrize("name", ["load", "compile", "infer", "outputs", "placement"])
def test_an_error_leaves_the_phase_that_it_happened_in(run: Run, name: str) -> None:
    backend = Recording(compiles=True)

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    setattr(backend, name, fail)
    with pytest.raises(ZeroDivisionError):
        run(backend)
    entered = [call for call in backend.calls if call.startswith("[")]
    expected = {"infer": "[first inference]", "outputs": "[reference check]", "placement": "[outputs check]"}
    assert entered[-1] == expected.get(name, f"[{name}]")


def test_the_gpus_clock_is_asked_before_its_context_goes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Recording()
    clock_of_events = Clock(name="CUDA events", resolution_ns=500.0, overhead_ns=1)

    def device(mode: Sync, used: int) -> DeviceSamples:
        backend.note("device")
        return DeviceSamples(clock=clock_of_events, device_ns=(MS,) * used, enqueue_ns=(MS,) * used)

    monkeypatch.setattr(Sync, "device_samples", device)
    result = run(backend)
    assert backend.calls.index("device") < backend.calls.index("[repeat check]")
    assert backend.calls[-1] == "close"
    assert result.device is not None
    assert len(result.device.device_ns) == len(result.timed.samples_ns)


def test_the_time_of_outputs_is_kept_beside_the_time_of_a_copy(run: Run) -> None:
    class Lazy(Recording):
        def outputs(self) -> Any:
            self.now_ns += 30 * MS
            return super().outputs()

    result = run(Lazy())
    assert result.outputs_time is not None
    assert set(result.outputs_time.outputs_ns) == {30 * MS}
    assert len(result.outputs_time.outputs_ns) == len(result.timed.blocks)
    assert (set(result.outputs_time.copy_ns), result.outputs_time.arrays) == ({0}, 1)
    assert set(result.timed.samples_ns) == {7 * MS}


def test_waits_for_a_cpu_are_kept_beside_the_time_of_outputs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter(range(0, 1000, 3))
    monkeypatch.setattr(session, "caller_wait_ns", lambda: next(waits))
    counted = run(Recording()).outputs_time
    monkeypatch.setattr(session, "caller_wait_ns", lambda: None)
    uncounted = run(Recording()).outputs_time
    assert counted is not None
    assert counted.waited_ns == (3,) * len(counted.outputs_ns)
    assert uncounted is not None
    assert uncounted.waited_ns == ()


def test_a_backend_that_answers_from_memory_is_seen_after_the_loop(run: Run) -> None:
    honest = run(Recording(answer=lambda index, number: reference(number if number > 200 else index)))
    assert honest.repeats is not None
    assert set(honest.repeats.fresh_ns) == set(honest.repeats.repeated_ns) == {7 * MS}
    stuck = run(Recording()).repeats
    assert stuck is not None
    assert stuck.unchanged == stuck.compared == repeat_check.LEAST_PAIRS


def test_a_backend_that_computes_nothing_has_no_repeat_check(run: Run) -> None:
    result = run(Recording(answer=lambda index, number: {}), lambda _: {})
    assert (result.repeats, result.outputs_time) == (None, None)


def test_a_cpu_has_no_device_samples(run: Run) -> None:
    assert run(Recording()).device is None


def test_a_pass_that_writes_into_its_input_is_noted(run: Callable[..., Measurements]) -> None:
    given_inputs = inputs()

    class Writing(Recording):
        def infer(self) -> None:
            super().infer()
            given_inputs[self.index]["x"] *= 2

    def measured(backend: Recording) -> Measurements:
        mode = Sync(backend, BATCHES)
        return run_session(backend, mode, reference, True, settings(), backend.enter, given_inputs)

    backend = Writing()
    run(backend)  # its clock
    assert measured(backend).inputs_changed
    assert not run(Recording()).inputs_changed


def test_making_the_object_is_a_part_of_loading(run: Callable[..., Measurements]) -> None:
    backend = Recording()
    alone = run(backend).cold_ns
    mode = Sync(backend, BATCHES)
    made = run_session(backend, mode, reference, True, settings(), backend.enter, inputs(), constructed_ns=7 * MS)
    assert made.cold_ns.load == alone.load + 7 * MS


@pytest.mark.parametrize("masked", [True, False])
def test_outputs_for_padding_are_no_difference(masked: bool, run: Callable[..., Measurements]) -> None:
    mask = np.array([[True, True, False], [True, False, False]])

    def states(index: int) -> dict[str, np.ndarray[Any, Any]]:
        return {"y": np.random.default_rng(index).normal(size=(2, 3, 4)).astype(np.float32)}

    backend = Recording(answer=lambda index, number: {"y": np.where(mask[:, :, None], states(index)["y"], 0)})
    run(backend, states)  # its clock
    masks = [mask] * BATCHES if masked else []
    mode = Sync(backend, BATCHES)
    made = run_session(backend, mode, states, False, settings(), backend.enter, inputs(), masks=masks)
    distances = [part.relative_l2 for part in (made.parity_before, made.parity_timed) if part is not None]
    assert len(distances) == 2
    assert all((distance == 0) == masked for distance in distances)
