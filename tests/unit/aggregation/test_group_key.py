"""What a group of rows has in common."""

from __future__ import annotations

import pytest

from harness.aggregation.flags import GroupKey
from tests.synthetic_results import MINILM, case_of

CASE = case_of(MINILM, "openvino", "fp32", 1, 32)
OTHER = {
    "model": "another",
    "weights": "own",
    "device": "cuda",
    "boundary": "e2e",
    "mode": "offline",
    "sequence_length": 128,
    "batch_size": 8,
    "backend": "onnxruntime",
    "precision": "bf16",
    "setting": "graph",
}


def test_every_field_is_tried() -> None:
    assert tuple(OTHER) == GroupKey._fields


@pytest.mark.parametrize("field", OTHER)
def test_cases_that_differ_in_a_field_meet_only_where_a_group_may_differ_in_it(field: str) -> None:
    other = CASE.model_copy(update={field: OTHER[field]})
    assert GroupKey.of(other) != GroupKey.of(CASE)
    assert GroupKey.of(other).without(field) == GroupKey.of(CASE).without(field)
    rest = [name for name in OTHER if name != field]
    assert GroupKey.of(other).without(*rest) != GroupKey.of(CASE).without(*rest)
