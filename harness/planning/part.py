"""A part of a plan: some of its models, as when they are spread over several cards (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.errors import UsageError
from harness.core.names import unknown_name
from harness.core.schemas import Plan


def of_models(plan: Plan, names: Sequence[str] | None) -> Plan:
    """The plan with the cases of these models alone; all of it where none are named.

    Samples of both are the same: nothing else changes, the plan's id least of all. UsageError for a name that the plan
    does not have.
    """
    if not names:
        return plan
    known = [model.name for model in plan.models]
    for name in names:
        if name not in known:
            raise UsageError(*unknown_name("model of this plan", name, known))
    return plan.model_copy(
        update={
            "models": tuple(model for model in plan.models if model.name in names),
            "cases": tuple(case for case in plan.cases if case.model in names),
        }
    )
