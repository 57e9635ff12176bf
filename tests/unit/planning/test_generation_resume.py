"""Which turns of generation are measured again after a change of the options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.core import store
from harness.core.host import environment
from harness.core.layout import Results
from harness.core.schemas import GenerationOptions
from harness.planning.resume import finished_generation_turns
from tests import synthetic_generation as made
from tests import synthetic_results


@pytest.mark.parametrize(
    ("options", "changes", "kept"),
    [
        ({}, {}, True),
        ({"requests": 9}, {}, False),
        ({"warmups": 4}, {}, False),
        # Eight requests of 10 ms each ended at the time limit.
        ({"requests": 9, "max_s": 0.07}, {"stop": "time limit"}, True),
        ({"requests": 9, "max_s": 1}, {"stop": "time limit"}, False),
    ],
)
def test_a_record_counts_where_it_has_as_much_as_the_options_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], changes: dict[str, Any], kept: bool
) -> None:
    monkeypatch.setattr(environment, "collect", lambda _build, _device="cpu", _also=(): synthetic_results.environment())
    results, turn = Results(tmp_path).of_generation, (1, made.CASE)
    identity = synthetic_results.ENVIRONMENT_ID
    store.save(results.environment(identity), synthetic_results.environment())
    warmups = (made.request(0),) * 3
    record = made.record(1, environment_id=identity, warmups=warmups, **changes)
    store.save_raw(results.raw_file(made.CASE.case_id, 1), record)
    plan = made.PLAN.model_copy(update={"generation": GenerationOptions(**options)})
    assert finished_generation_turns(plan, [turn], {"tiny": made.EXPORT}, results).has(turn) == kept
