"""Nightly runs of which everything is known."""

from __future__ import annotations

from functools import cache
from typing import Any

from harness.comparison.run_history import analyse, run_of
from harness.core.schemas import (
    ComparedRow,
    Comparison,
    HistoryRun,
    Interval,
    Shift,
    Side,
    Summary,
)
from tests import synthetic_results as made

AT = "2026-11-30T00:00:00+00:00"


@cache
def summary() -> Summary:
    return made.Synthetic(models=(made.MINILM,), cases=made.matrix([made.MINILM])[:3]).summary()


def run(number: int, level: float = 1.0, **changes: Any) -> HistoryRun:
    """Night `number`, with every case at a level."""
    result = run_of(summary(), f"{number:040x}")
    assert result is not None
    day = f"2026-10-{number + 1:02d}T01:00:00+00:00"
    points = {
        name: point.model_copy(
            update={"process_medians": tuple(1e6 * level * (1 + n / 1e4 + (number % 3) / 1e3) for n in range(3))}
        )
        for name, point in result.points.items()
    }
    return result.model_copy(update={"run_id": f"n{number:02d}", "measured_from": day, "points": points, **changes})


def nights(levels: list[float]) -> list[HistoryRun]:
    return [run(number, level) for number, level in enumerate(levels)]


def candidate() -> Shift:
    return analyse(nights([1.0] * 15 + [1.1] * 10), [], AT).shifts[0]


def ab(verdict: str, ratio: float, against: str, here: str) -> Comparison:
    side = Side(path="p", plan_id="i", rounds=10, measured_from=None, measured_to=None)
    row = ComparedRow(
        case_id=candidate().case_id,
        model="m",
        backend="onnxruntime",
        precision="fp32",
        batch_size=1,
        sequence_length=None,
        boundary="compute",
        mode="sync",
        weights="seeded",
        verdict=verdict,  # type: ignore[arg-type]
        reason=None,
        baseline_ns=1e6,
        current_ns=ratio * 1e6,
        ratio=ratio,
        ci95=Interval(low=ratio - 0.01, high=ratio + 0.01),
        p_holm=0.001,
        fails=False,
        changed=(),
    )
    return Comparison(
        design="paired",
        created_at=AT,
        baseline=side.model_copy(update={"state": against}),
        current=side.model_copy(update={"state": here}),
        equivalence=0.01,
        max_regression=0.01,
        common_ratio=None,
        differences=(),
        rows=(row,),
        judgements=(),
    )
