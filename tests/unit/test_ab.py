"""The two states of `make ab` get the same configuration."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness import ab
from harness.core import store
from harness.core.errors import CasesFailedError, MissingInputError, UsageError
from harness.core.layout import Models, Results
from harness.core.schemas import Plan
from harness.planning.exports import Exports
from tests.synthetic_results import MINILM, RESNET, case_of, plan_of


class PlannedError(Exception):
    """Ends the stage after its first command."""


@pytest.mark.parametrize("name", ["smoke", "configs/smoke.yaml"])
def test_a_configuration_is_known_by_its_name_in_both_states(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = []

    def plan(_stage: str, *words: str, **_more: Any) -> None:
        configs.append(Path(words[words.index("--config") + 1]))
        raise PlannedError

    monkeypatch.setattr(ab, "run_stage", plan)
    monkeypatch.chdir(tmp_path)
    state = SimpleNamespace(code=None, state=SimpleNamespace(name="HEAD~1"))
    options = Namespace(config=Path(name), rounds=6, arguments=[])
    with pytest.raises(PlannedError):
        ab._prepared(
            "b",
            cast("Any", state),
            Results(tmp_path),
            Models(tmp_path),
            cast("Any", object()),
            options=options,
            of_plan=[],
        )
    assert configs[0].is_absolute()
    assert configs[0].is_file()


def test_a_file_that_the_other_state_lacks_leaves_its_other_models_to_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan is the plan here; `export` gives the reason of each model."""
    stages = []

    def run(stage: str, *_words: str, **_more: Any) -> list[str]:
        stages.append(stage)
        if stage == "plan":
            raise MissingInputError("There is no Python module nets.", "Install it.")
        raise PlannedError

    monkeypatch.setattr(ab, "run_stage", run)
    (tmp_path / "c.yaml").touch()
    state = cast("Any", SimpleNamespace(code=None, state=SimpleNamespace(name="HEAD~1")))
    options = Namespace(config=tmp_path / "c.yaml", rounds=6, force=False, arguments=[])
    results, plan = Results(tmp_path), plan_of([], [])
    prepare = partial(ab._prepared, "b", state, results, Models(tmp_path), options=options, of_plan=[])
    with pytest.raises(MissingInputError):
        prepare(None)
    with pytest.raises(PlannedError):
        prepare(cast("Any", SimpleNamespace(plan=plan)))
    assert stages == ["plan", "plan", "export"]
    assert store.load(results.plan, Plan, "make plan") == plan


@pytest.mark.parametrize(
    ("absent", "failures", "hint"),
    [
        ([], 2, "the same command tries only those again."),
        (["minilm-l6"], 4, "HEAD~1 has no minilm-l6: leave it out (MODELS=…), or name a later commit."),
        (["minilm-l6"], 5, "name a later commit; of the others the same command tries only those again."),
    ],
)
def test_no_model_that_the_other_state_lacks_is_tried_again(
    absent: list[str], failures: int, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ab, "run_stage", lambda *_words, **_more: [])
    plan = plan_of((RESNET, MINILM), [case_of(model, "openvino", "fp32", 1) for model in (RESNET, MINILM)], rounds=4)
    exports = Exports({}, dict.fromkeys(absent, MissingInputError("It has no such file.", "Name it.")))
    sides = [
        cast(
            "Any",
            SimpleNamespace(
                plan=plan,
                exports=exports,
                results=Results(tmp_path),
                models=Models(tmp_path),
                state=SimpleNamespace(state=SimpleNamespace(name="HEAD~1")),
            ),
        )
        for _ in range(2)
    ]
    options = Namespace(results=tmp_path, threshold=[], max_regression=None, equivalence="1%")
    with pytest.raises(CasesFailedError) as caught:
        ab._end(*sides, failures, options)
    assert caught.value.hint.endswith(hint)


@pytest.mark.parametrize(
    "words",
    [
        ("--threshold", "latency_p50<1parsec"),
        ("--threshold", "fast"),
        ("--max-regression", "5"),
        ("--equivalence", "x"),
        ("--max-regression", "1%", "--equivalence", "2%"),
    ],
)
def test_a_wrong_limit_ends_the_stage_before_anything_is_measured(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        ab._options(["--against", "HEAD", *words])


@pytest.mark.parametrize(("asked", "rounds"), [(6, ab.ROUNDS), (20, 20)])
def test_more_rounds_of_the_configuration_are_kept(asked: int, rounds: int, tmp_path: Path) -> None:
    configuration = tmp_path / "b.yaml"
    configuration.write_text(
        f"models: [resnet18]\nmatrix: [{{backends: [torch-eager]}}]\nmeasurement: {{rounds: {asked}}}\n"
    )
    options, _ = ab._options(["--against", "HEAD", "--config", str(configuration)])
    assert options.rounds == rounds
    options, _ = ab._options(["--against", "HEAD", "--config", str(configuration), "--rounds", "7"])
    assert options.rounds == 7
