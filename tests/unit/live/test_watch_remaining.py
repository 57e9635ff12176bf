"""How long a run still takes."""

from __future__ import annotations

import pytest

from harness.live.progress import expected_s, left_s
from tests.fixtures.watching import EAGER, NOW, ONNX, OPENVINO, running
from tests.synthetic_results import RESNET, case_of

OTHER_MODEL = case_of(RESNET, "torch-eager", "fp32", 1)
OTHER_BATCH = case_of(RESNET, "torch-eager", "fp32", 4)
CASES = (EAGER, ONNX, OPENVINO, OTHER_MODEL, OTHER_BATCH)


def test_the_most_similar_turns_estimate_the_time_of_a_turn() -> None:
    took = {(EAGER.case_id, 1): 2.0, (EAGER.case_id, 2): 4.0, (OTHER_MODEL.case_id, 1): 10.0, (ONNX.case_id, 1): None}
    result = expected_s(CASES, took)
    assert result[EAGER.case_id] == 3.0  # its own turns
    assert result[OTHER_BATCH.case_id] == 10.0  # its model in its backend
    assert result[OPENVINO.case_id] == 4.0  # the run's median
    assert expected_s(CASES, {(EAGER.case_id, 1): 2.0})[OTHER_MODEL.case_id] == 2.0  # its backend
    assert expected_s(CASES, {(EAGER.case_id, 1): None}) == {}


def test_nothing_is_said_while_no_turn_is_known() -> None:
    assert left_s(running(EAGER, 1, done=0), [(EAGER, 1)], {}, NOW) is None


def test_pending_turns_are_added_up_less_the_time_of_the_running_one() -> None:
    expected = {EAGER.case_id: 5.0, ONNX.case_id: 3.0}
    pending = [(EAGER, 2), (ONNX, 2)]
    assert left_s(running(EAGER, 2, done=2, turns=4), pending, expected, NOW) == 7.0  # of 8 s, 1 s has passed
    late = running(ONNX, 2, done=2, turns=4, since="2026-11-28T09:00:00+00:00")
    assert left_s(late, pending, expected, NOW) == 5.0  # a turn that takes longer than expected adds nothing


def test_between_two_turns_the_one_that_has_ended_is_not_counted_again() -> None:
    expected = {EAGER.case_id: 5.0, ONNX.case_id: 3.0}
    assert left_s(running(EAGER, 2, done=2, turns=4), [(ONNX, 2)], expected, NOW) == 3.0


def test_turns_that_are_measured_again_take_as_long_as_the_average() -> None:
    expected = {EAGER.case_id: 5.0, ONNX.case_id: 3.0}
    run = running(EAGER, 1, done=0, turns=6)
    assert left_s(run, [(EAGER, 1)], expected, NOW) == pytest.approx(6 * 4.0 - 1.0)
