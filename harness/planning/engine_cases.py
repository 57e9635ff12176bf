"""The cases of a plan that load a TensorRT engine (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.backends import BACKENDS
from harness.backends.tensorrt.engine_request import Options, merged_options
from harness.core.schemas import Case, Plan
from harness.planning.load_cases import served_cases


def engine_cases(plan: Plan, names: Sequence[str] | None) -> dict[str, list[tuple[Case, Options]]]:
    """Runnable cases that load an engine, with their setting's options, by the model's slug; names: of these models
    alone."""
    asked_by: dict[str, list[tuple[Case, Options]]] = {}
    # A load case serves with an engine of each batch size.
    for case in (*plan.cases, *served_cases(plan.loads)):
        info = BACKENDS[case.backend]
        if info.artifact == "engine" and case.skip_reason is None and (not names or case.model in names):
            options = merged_options(plan.engines, info.setting(case.device, case.setting).options)
            asked_by.setdefault(case.slug, []).append((case, options))
    return asked_by
