"""Records of two GPUs at once, made by hand: one is slower beside the other."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import (
    Copies,
    CopyFailure,
    CopyProcess,
    CopyTimes,
    DeviceSlot,
    NeighbourCheck,
    NeighbourSample,
)

SLOTS = tuple(
    DeviceSlot(name=str(n), device="cuda", gpu="A GPU", uuid=f"GPU-{n}", cpus=tuple(range(8 * n, 8 * n + 8)), near=True)
    for n in range(2)
)


def copies(case_id: str, slow: float) -> Copies:
    """Two GPUs, three rounds: 100/s each alone in 10 ms; together the second is slower by a factor."""

    def process(number: int, place: int) -> CopyProcess:
        factor = slow if place else 1.0
        alone = CopyTimes(latency_ns=10e6, per_s=100.0, batches=20)
        together = CopyTimes(latency_ns=10e6 * factor * (1 + number / 1000), per_s=100.0 / factor, batches=20)
        return CopyProcess(round=number, slot=place, alone=alone, together=together)

    return Copies(
        case_id=case_id,
        settings_id="s",
        created_at="2026-11-30T00:00:00+00:00",
        device="cuda",
        batch_size=1,
        slots=SLOTS,
        window_s=0.2,
        processes=tuple(process(number, place) for number in (1, 2, 3) for place in (0, 1)),
        failures=(CopyFailure(round=4, slot=0, reason="it crashed"),),
        least_overlap=0.98,
    )


def neighbours(names: Sequence[str]) -> NeighbourCheck:
    """The first case was slower beside the others by a fifth; of the second there is nothing to compare."""
    return NeighbourCheck(
        settings_id="s",
        created_at="2026-11-30T00:00:00+00:00",
        slots=SLOTS,
        assigned=dict.fromkeys(names, 0),
        wall_s=60.0,
        busy_s=(60.0, 50.0),
        samples=(
            NeighbourSample(case_id=names[0], slot=1, spread_ns=(1.2e7, 1.21e7, 1.2e7), alone_ns=(1e7, 1.001e7, 1e7)),
            NeighbourSample(case_id=names[1], slot=0, spread_ns=(1e7,), alone_ns=()),
        ),
    )
