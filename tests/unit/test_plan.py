"""What the plan stage says about a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import plan

SMOKE = Path(__file__).parents[2] / "configs/smoke.yaml"


@pytest.mark.parametrize(("rounds", "said"), [("1", "in 1 round\n"), ("2", "in 2 rounds\n")])
def test_one_round_is_a_round(rounds: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan.stage(["--config", str(SMOKE), "--rounds", rounds, "--results", str(tmp_path)])
    assert said in capsys.readouterr().out
