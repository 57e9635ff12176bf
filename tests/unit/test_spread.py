"""Models and cases over devices: one stage at a time on each, and records that merge without overwriting others."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import spread
from harness.core import store
from harness.core.errors import UsageError
from harness.core.host import environment, limits
from harness.core.layout import Models, Results
from harness.core.schemas import Case, DeviceSlot, Environment, NeighbourCheck, Plan
from harness.planning.exports import Exports
from harness.planning.schedule import select_cases
from harness.processes import device_slots
from harness.spread import (
    DevicePool,
    SpreadRequest,
    assign_slots,
    copy_records,
    is_measured,
    sampled_cases,
    spread_cases,
)
from tests import synthetic_devices
from tests import synthetic_results as made
from tests.synthetic_cuda import gpu_environment
from tests.synthetic_results import MINILM


def pinned(*names: str, cpus: bool = True) -> list[DeviceSlot]:
    results = []
    for place, name in enumerate(names):
        own = tuple(range(4 * place, 4 * place + 4)) if cpus else ()
        results.append(DeviceSlot(name=name, device="cuda", gpu="A", uuid=name, cpus=own, near=True))
    return results


def test_a_gpu_runs_one_stage_at_a_time_and_every_stage_runs_once(tmp_path: Path) -> None:
    busy: set[str] = set()
    seen: list[tuple[str, str]] = []
    guard = threading.Lock()

    def start(command: Sequence[str], environment: dict[str, str], log: Path) -> int:
        card = environment["CUDA_VISIBLE_DEVICES"]
        with guard:
            assert card not in busy
            busy.add(card)
            seen.append((command[-1], card))
        threading.Event().wait(0.01)
        with guard:
            busy.remove(card)
        return 1 if command[-1] == "two" else 0

    labels = ["one", "two", "three", "four", "five"]
    failures = DevicePool(pinned("0", "3", cpus=False), Results(tmp_path), start).run(
        [["run", label] for label in labels], labels
    )
    assert failures == 1
    assert sorted(label for label, _ in seen) == sorted(labels)
    assert {card for _, card in seen} == {"0", "3"}


def test_a_stage_runs_on_the_cpus_of_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[int, tuple[int, ...]] = {}
    monkeypatch.setattr(
        device_slots.os, "sched_setaffinity", lambda _pid, cpus: asked.update({threading.get_ident(): cpus})
    )
    started: dict[str, tuple[int, ...]] = {}

    def start(_command: Sequence[str], environment: dict[str, str], _log: Path) -> int:
        started[environment["CUDA_VISIBLE_DEVICES"]] = asked[threading.get_ident()]
        both.wait()
        return 0

    both = threading.Barrier(2, timeout=900)
    DevicePool(pinned("0", "1"), Results(tmp_path), start).run([["run"], ["run"]], ["a", "b"])
    assert started == {"0": (0, 1, 2, 3), "1": (4, 5, 6, 7)}


def test_records_of_one_model_are_shared_and_those_of_others_stay(tmp_path: Path) -> None:
    shapes = ((MINILM, 32), (made.RESNET, None))
    cases = [made.case_of(model, "onnxruntime", "fp32", 1, length) for model, length in shapes]
    whole, card = Results(tmp_path / "whole"), Results(tmp_path / "card")
    for place, text in ((whole, "old"), (card, "new")):
        for case in cases:
            place.raw_case(case.case_id).mkdir(parents=True)
            place.raw_file(case.case_id, 1).write_text(text)
    copy_records(cases[:1], card, whole)
    assert [whole.raw_file(case.case_id, 1).read_text() for case in cases] == ["new", "old"]


def test_a_plan_for_a_cpu_is_not_spread(tmp_path: Path) -> None:
    plan = made.plan_of([MINILM], [made.case_of(MINILM, "onnxruntime", "fp32", 1, 32)])
    Results(tmp_path).plan.write_text(plan.model_dump_json())
    with pytest.raises(UsageError, match="spread"):
        spread.stage(["--cards", "0,1", "--results", str(tmp_path)])


def test_a_duplicate_gpu_would_measure_two_models_at_once(tmp_path: Path) -> None:
    plan = made.plan_of([MINILM], [made.case_of(MINILM, "onnxruntime", "fp32", 1, 32)], device="cuda")
    Results(tmp_path).plan.write_text(plan.model_dump_json())
    with pytest.raises(UsageError, match="twice"):
        spread.stage(["--cards", "0, 0", "--results", str(tmp_path)])


def shaped(*shapes: tuple[str, int]) -> list[Case]:
    return [made.case_of(MINILM, backend, "fp32", batch, 32) for backend, batch in shapes]


BACKENDS = ("torch-eager", "onnxruntime", "openvino")


def test_cases_that_are_compared_stay_on_one_device_and_the_devices_get_equally_many() -> None:
    cases = shaped(*((backend, batch) for batch in (1, 2, 4, 8) for backend in BACKENDS))
    assigned = assign_slots(cases, 2, {})
    by_batch = {
        case.batch_size: {assigned[other.case_id] for other in cases if other.batch_size == case.batch_size}
        for case in cases
    }
    assert all(len(places) == 1 for places in by_batch.values())
    assert sorted(list(assigned.values()).count(place) for place in (0, 1)) == [6, 6]


def test_an_assignment_goes_on_where_some_cases_were_measured_before() -> None:
    cases = shaped(*((backend, batch) for batch in (1, 2) for backend in BACKENDS))
    before = {cases[0].case_id: 1}
    assert {assign_slots(cases, 2, before)[case.case_id] for case in cases[:3]} == {1}
    skipped = [case.model_copy(update={"skip_reason": "no"}) for case in cases]
    assert assign_slots(skipped, 2, {}) == {}


def test_the_sample_that_is_measured_alone_again_has_cases_of_every_device() -> None:
    cases = shaped(*(("onnxruntime", batch) for batch in range(1, 31)))
    plan = made.plan_of([MINILM], cases)
    assigned = {case.case_id: place % 3 for place, case in enumerate(cases)}
    result = sampled_cases(assigned, plan)
    assert len(result) == 3
    assert set(result.values()) == {0, 1, 2}
    assert result.items() <= assigned.items()
    assert len(sampled_cases({case.case_id: 0 for case in cases[:3]}, plan)) == 2
    assert sampled_cases({}, plan) == {}


def test_a_part_of_a_plan_keeps_its_ids() -> None:
    cases = [*shaped(("onnxruntime", 1)), made.case_of(made.RESNET, "onnxruntime", "fp32", 1, None)]
    plan = made.plan_of([MINILM, made.RESNET], cases)
    part = select_cases(plan, cases[:1])
    assert (part.plan_id, part.settings_id) == (plan.plan_id, plan.settings_id)
    assert [model.name for model in part.models] == [MINILM.name]


@pytest.mark.parametrize("layout", spread.LAYOUTS)
def test_a_forced_spread_that_is_interrupted_leaves_no_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    cases = shaped(("onnxruntime", 1), ("onnxruntime", 2))
    results, slots = Results(tmp_path), pinned("0", "1", cpus=False)
    store.save(results.plan, made.plan_of([MINILM], cases[:1], device="cuda"))
    copied = layout == "copies"
    old, other = (results.copies(case.case_id) if copied else results.raw_file(case.case_id, 1) for case in cases)
    alone = results.neighbours_alone.raw_file(cases[0].case_id, 1)
    for path in (old, other, results.neighbours, alone):
        store.save_bytes(path, b"old")
    monkeypatch.setattr(spread, "find_slots", lambda *_: slots)

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(spread, "_build", interrupted)
    with pytest.raises(KeyboardInterrupt):
        spread.stage(["--force", "--cards", "0,1", "--layout", layout, "--results", str(tmp_path)])
    assert not old.exists()
    assert other.exists()
    assert (results.neighbours.exists(), alone.exists()) == (copied, copied)


def measure_missing(command: Sequence[str], _environment: dict[str, str], _log: Path) -> int:
    """Replaces `run`: writes the records that its folder lacks."""
    folder = Results(Path(command[command.index("--results") + 1]))
    for case in store.load(folder.plan, Plan, "make plan").cases:
        if not folder.raw_file(case.case_id, 1).exists():
            store.save_raw(folder.raw_file(case.case_id, 1), made.measured(case, MINILM, 1))
    return 0


def test_a_second_command_keeps_the_times_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(step=10**9)
    monkeypatch.setattr(spread, "now_ns", lambda: next(seconds))
    results, slots = Results(tmp_path), pinned("0", "1", cpus=False)
    plan = made.plan_of([MINILM], shaped(("onnxruntime", 1), ("onnxruntime", 2)), rounds=1)
    asked = SpreadRequest(plan, results, Models(tmp_path), slots, [], {}, force=False)

    def spread_once() -> NeighbourCheck:
        assert spread_cases(asked, DevicePool(slots, results, measure_missing)) == 0
        return store.load(results.neighbours, NeighbourCheck, "make run")

    first = spread_once()
    assert (first.wall_s, sorted(first.busy_s)) == (3, [1, 2])
    again = spread_once()
    assert (again.wall_s, again.busy_s) == (first.wall_s, first.busy_s)
    results.raw_file(plan.cases[0].case_id, 1).unlink()
    more = spread_once()
    assert (more.wall_s, sum(more.busy_s)) == (6, 6)


def test_a_process_on_a_slot_has_its_cpus_and_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "cpu_quota", lambda: None)
    here, there = made.environment(), gpu_environment()
    assert there.gpu is not None
    upgraded = there.model_copy(update={"gpu": there.gpu.model_copy(update={"driver": "999.1", "uuid": "another"})})
    slot = DeviceSlot(name="1", device="cuda", gpu="A", uuid="1", cpus=(3, 2), near=True)
    result = spread.slot_environment(upgraded, slot, there)
    assert result.gpu == there.gpu.model_copy(update={"driver": "999.1"})
    assert (result.limits.affinity, result.limits.threads) == ((2, 3), 2)
    free = spread.slot_environment(here, slot.model_copy(update={"cpus": ()}), here)
    assert free.limits.affinity == here.limits.affinity


@pytest.mark.parametrize(
    ("artifacts", "there", "kept"),
    [
        ({}, made.environment(), True),
        ({"model.onnx": "0" * 64}, made.environment(), False),
        ({}, made.environment(cpu="Another CPU"), False),
        ({}, made.environment(threads=3), False),
        ({}, None, False),
    ],
)
def test_copies_of_another_file_or_machine_are_measured_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    artifacts: dict[str, str],
    there: Environment | None,
    kept: bool,
) -> None:
    monkeypatch.setattr(environment, "collect", lambda *_: made.environment())
    monkeypatch.setattr(limits, "thread_count", lambda *_: made.environment().limits.threads)
    results, slots = Results(tmp_path), pinned("0", "1", cpus=False)
    case = made.case_of(MINILM, "torch-eager", "fp32", 1, 32)
    plan = made.plan_of([MINILM], [case], rounds=3)
    copies = synthetic_devices.copies(case.case_id, 1.0)
    store.save(
        results.copies(case.case_id),
        copies.model_copy(update={"settings_id": plan.settings_id, "slots": tuple(slots)}),
    )
    for place, number in itertools.product(range(2), range(1, 4)):
        if there is not None:
            store.save(results.copies_of(place).environment(made.ENVIRONMENT_ID), there)
        record = made.measured(case, MINILM, number, samples=10, artifacts=artifacts)
        store.save_raw(results.copies_of(place).raw_file(case.case_id, number), record)
    export = made.export_record(MINILM)
    asked = SpreadRequest(plan, results, Models(tmp_path), slots, [], {}, force=False)
    assert is_measured(asked, case, Exports({MINILM.name: export}, {}), {}) == kept
