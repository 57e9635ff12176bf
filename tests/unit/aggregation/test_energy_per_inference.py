"""Energy of one inference: idle power taken off, windows long enough, every cell once."""

from __future__ import annotations

from typing import Any

import pytest

from harness.aggregation.energy_per_inference import EnergySpent, Meter, energy_of, metered_cases, settings_with_window
from harness.core.errors import CaseError
from harness.core.host.gpu import GpuHandle, facts_of
from harness.core.schemas import Block, Case, Measured, Measurement, OutputsTime, Stops
from tests.fixtures.nvml import FakeNvml
from tests.synthetic_results import EFFICIENTNET, case_of, measured

CASE = case_of(EFFICIENTNET, "onnxruntime", "fp32", 4)
GPU = facts_of(GpuHandle(FakeNvml(), "the card"))
S = 1_000_000_000
IDLE = EnergySpent(energy_j=350.0, window_ns=5 * S)  # 70 W


def record(batches: int) -> Measured:
    blocks = (Block(iterations=batches, wall_ns=6 * S),)
    return measured(CASE, EFFICIENTNET, 1, 10).model_copy(update={"latency_ns": (), "blocks": blocks})


def test_the_counter_is_in_millijoules() -> None:
    spent = EnergySpent.between(Meter(1_000_000, 2 * S), Meter(4_000_000, 8 * S))
    assert (spent.energy_j, spent.window_ns, spent.watts) == (3_000, 6 * S, 500)


def test_idle_power_is_taken_off_over_the_whole_window() -> None:
    energy = energy_of(record(1_000), 4, EnergySpent(energy_j=3_000.0, window_ns=6 * S), IDLE, GPU)
    assert energy.joules_per_inference == pytest.approx((3_000 - 70 * 6) / 1_000)
    assert energy.joules_per_item == pytest.approx(energy.joules_per_inference / 4)
    assert (energy.idle_w, energy.energy_j, energy.batches, energy.busy_ns) == (70, 3_000, 1_000, 6 * S)
    assert (energy.gpu, energy.uuid, energy.case_id) == (GPU.name, GPU.uuid, CASE.case_id)


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (EnergySpent(energy_j=3_000.0, window_ns=4_900_000_000), "4.9 s only"),
        (EnergySpent(energy_j=420.0, window_ns=6 * S), "something else ran there"),
    ],
)
def test_an_unreliable_reading_is_no_energy(spent: EnergySpent, words: str) -> None:
    with pytest.raises(CaseError, match=words):
        energy_of(record(1_000), 4, spent, IDLE, GPU)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stops": Stops(continued=("measure",))}, "stopped and continued"),
        ({"stops": Stops(suspended_ns=S)}, "suspended for 1.0 s"),
        ({"blocks": (Block(iterations=500, wall_ns=4 * S),)}, "2.0 s of 6.0 s lie between its blocks"),
        ({"blocks": (*[Block(iterations=100, wall_ns=S)] * 3, Block(iterations=100, wall_ns=3 * S))}, "took 50%"),
    ],
)
def test_a_case_that_was_held_up_has_no_energy(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CaseError, match=words):
        energy_of(
            record(1_000).model_copy(update=changes), 4, EnergySpent(energy_j=3_000.0, window_ns=6 * S), IDLE, GPU
        )


def test_copies_of_large_outputs_between_the_blocks_hold_nothing_up() -> None:
    """DistilBERT, batch 128, in ONNX Runtime on an H200: a copy took 50 ms, and five of them voided an honest case."""
    settings, copy_ns = settings_with_window(Measurement(), 5.0), 50_000_000
    block_ns = int(settings.block_s * S)
    blocks = [Block(iterations=600, wall_ns=block_ns)] * round(5 * S / block_ns)
    spent = EnergySpent(energy_j=3_000.0, window_ns=len(blocks) * (block_ns + copy_ns))
    changed = record(1_000).model_copy(update={"blocks": tuple(blocks)})
    assert energy_of(changed, 128, spent, IDLE, GPU).batches == 600 * len(blocks)


@pytest.mark.parametrize(
    ("copies_s", "window_s", "accepted"),
    [
        ((0.0598, 0.0632), 5.1, True),  # DistilBERT, batch 128, in torch.compile on an H200
        ((0.0598, 0.0632), 5.3, False),  # held up for 0.2 s more
        ((0.0598, 0.2632), 5.3, False),  # held up while it copied
        ((0.5, 0.5), 6.0, False),  # copies alone are more than a tenth
    ],
)
def test_known_copies_of_outputs_hold_nothing_up(copies_s: tuple[float, ...], window_s: float, accepted: bool) -> None:
    changes = {
        "blocks": (Block(iterations=1058, wall_ns=3_687_124_843), Block(iterations=360, wall_ns=1_252_122_682)),
        "outputs_time": OutputsTime(outputs_ns=tuple(int(s * S) for s in copies_s), copy_ns=(18_000_000,), arrays=1),
    }
    changed = record(1_418).model_copy(update=changes)
    spent = EnergySpent(energy_j=3_400.0, window_ns=int(window_s * S))
    if accepted:
        assert energy_of(changed, 128, spent, IDLE, GPU).batches == 1_418
    else:
        with pytest.raises(CaseError, match="lie between its blocks"):
            energy_of(changed, 128, spent, IDLE, GPU)


def case(**changes: Any) -> Case:
    return CASE.model_copy(update=changes)


def test_a_case_in_two_modes_is_measured_once_and_back_to_back() -> None:
    cases = [
        case(case_id="one"),
        case(case_id="one-offline", mode="offline"),
        case(case_id="two", batch_size=8),
        case(case_id="copies", boundary="transfer"),
        case(case_id="skipped", precision="bf16", skip_reason="it cannot"),
        case(case_id="empty", backend="computes-nothing"),
    ]
    results = metered_cases(cases, ["onnxruntime"])
    assert [name for name, _ in results] == ["one", "two"]
    assert [(entry.case_id, entry.mode) for _, entry in results] == [("one", "offline"), ("two", "offline")]


def test_a_pass_ends_by_its_time_and_keeps_the_warm_up_of_the_plan() -> None:
    plan = Measurement(warmup_min_s=0.7, parity_samples=16)
    settings = settings_with_window(plan, 6.0)
    assert (settings.warmup_min_s, settings.parity_samples, settings.max_s) == (0.7, 16, 6.0)
    assert settings.block_s == 3.0, "each block is followed by a copy of the outputs, in which the GPU does nothing"
    assert Measurement.model_validate(settings.model_dump()) == settings
