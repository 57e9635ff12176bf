"""run's loop over further rounds, with a pool that a test makes up."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness import dispatch, energy, generate, load, plan, run, spread
from harness.core.errors import UsageError
from harness.core.layout import Results
from harness.core.schemas import Failed, Measured
from harness.planning.resume import Finished
from harness.planning.schedule import Turn, schedule
from tests.synthetic_results import RESNET, case_of, failed, measured, plan_of

CASES = [case_of(RESNET, backend, "fp32", 1) for backend in ("torch-eager", "openvino")]


class WorkerPool:
    """Measures at once; the rounds of openvino from `failing` on fail."""

    def __init__(self, failing: int = 99) -> None:
        self.failing = failing
        self.turns: list[tuple[int, str]] = []
        self.progress = SimpleNamespace(extend=lambda _number: None)

    def measure(self, turn: Turn) -> Measured | Failed:
        number, case = turn
        self.turns.append((number, case.backend))
        if case.backend == "openvino" and number >= self.failing:
            return failed(case, number)
        latency = 1_000_000 * (1 + number % 2)  # never narrow
        return measured(case, RESNET, number, latency_ns=(latency,) * 10)


def ran(pool: Any, **settings: Any) -> int:
    plan = plan_of((RESNET,), CASES, rounds=2)
    plan = plan.model_copy(update={"measurement": plan.measurement.model_copy(update=settings)})
    return run.measure_all(plan, schedule(CASES, 2, 1), Finished(), pool, 0.0)


def test_rounds_go_on_to_the_limit() -> None:
    pool = WorkerPool()
    assert ran(pool, max_rounds=4) == 0
    assert sorted(pool.turns) == [(number, name) for number in (1, 2, 3, 4) for name in ("openvino", "torch-eager")]


def test_a_case_that_fails_is_not_tried_again_in_every_pass() -> None:
    pool = WorkerPool(failing=3)
    assert ran(pool, max_rounds=5) == 1
    assert [number for number, name in pool.turns if name == "openvino"] == [1, 2, 3]
    assert [number for number, name in pool.turns if name == "torch-eager"] == [1, 2, 3, 4, 5]


def test_the_budget_ends_a_pass_in_its_middle_and_never_the_planned_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool()
    monkeypatch.setattr(run, "now_ns", lambda: len(pool.turns) * 1_000_000_000)
    assert ran(pool, max_rounds=9, budget_s=5.0) == 0
    assert len(pool.turns) == 5
    pool = WorkerPool()
    assert ran(pool, max_rounds=9, budget_s=0.5) == 0
    assert len(pool.turns) == 4


@pytest.mark.parametrize("measuring", [plan, run, spread, load, generate, energy, dispatch])
@pytest.mark.parametrize("state", ["here", "against"])
def test_the_folders_of_an_ab_run_are_refused(state: str, measuring: ModuleType, tmp_path: Path) -> None:
    """Records of one state alone would count as measured in turn with the other; another plan would leave those of both
    without theirs."""
    here = Results(tmp_path)
    here.states.touch()
    folder = here if state == "here" else here.against
    folder.root.mkdir(exist_ok=True)
    folder.plan.write_text("the plan of both states")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="one of two states that were measured in turn") as caught:
        measuring.stage(["--results", str(folder.root)])
    assert "`make ab FORCE=1`" in caught.value.hint
    assert folder.plan.read_text() == "the plan of both states"
    assert sorted(tmp_path.rglob("*")) == before


def test_ab_alone_plans_in_its_folders(tmp_path: Path) -> None:
    here = Results(tmp_path)
    here.states.touch()
    plan.stage(["--ab", "--config", "configs/smoke.yaml", "--backends", "noop", "--results", str(tmp_path)])
    assert here.plan.is_file()
