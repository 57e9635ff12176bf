"""Two states from Python: what the stage is asked for, and that a regression is an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.api import ModelProfiler, runs
from harness.core import store
from harness.core.errors import RegressionError
from harness.core.layout import Results
from harness.core.schemas import Summary
from tests.fixtures.comparing import summary
from tests.synthetic_comparison import with_itself


@pytest.fixture(scope="module")
def measured() -> Summary:
    return summary(1)


def test_the_stage_gets_the_models_own_configuration_and_a_regression_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: Summary
) -> None:
    asked: list[str] = []

    def stage(name: str, *arguments: str, **_more: object) -> tuple[str, ...]:
        asked.extend((name, *arguments))
        results = Results(Path(arguments[arguments.index("--results") + 1]))
        store.save(results.ab.comparison, with_itself(measured))
        raise RegressionError("slower", "look")

    monkeypatch.setattr(runs, "run_stage", stage)
    profiler = ModelProfiler("minilm-l6", backend="onnxruntime", folder=tmp_path)
    result = profiler.ab("HEAD~1", rounds=8, max_regression="5%", force=True)
    assert result
    assert result.folder.name == "ab"
    assert asked[0] == "ab"
    for words in (["--against", "HEAD~1"], ["--rounds", "8"], ["--max-regression", "5%"], ["--force"]):
        assert " ".join(words) in " ".join(asked)
    config = Path(asked[asked.index("--config") + 1]).read_text()
    assert "minilm-l6" in config
    assert "onnxruntime" in config
