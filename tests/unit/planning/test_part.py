from __future__ import annotations

import pytest

from harness.core.errors import UsageError
from harness.planning.schedule import select_models
from tests import synthetic_results as made

PLAN = made.plan_of(
    [made.MINILM, made.RESNET],
    [made.case_of(made.MINILM, "onnxruntime", "fp32", 1, 32), made.case_of(made.RESNET, "onnxruntime", "fp32", 1)],
)


def test_without_names_a_plan_stays_as_it_is() -> None:
    assert select_models(PLAN, None) is PLAN
    assert select_models(PLAN, []) is PLAN


def test_a_part_has_the_cases_of_its_models_and_the_same_id() -> None:
    part = select_models(PLAN, ["resnet50"])
    assert [case.model for case in part.cases] == [model.name for model in part.models] == ["resnet50"]
    assert part.plan_id == PLAN.plan_id
    assert part.measurement == PLAN.measurement


def test_an_unknown_model_names_those_of_the_plan() -> None:
    with pytest.raises(UsageError, match="resnet05"):
        select_models(PLAN, ["resnet05"])
