"""How far a run has come, from its plan and what is on disk."""

from __future__ import annotations

from harness.core.schemas import GpuSample
from harness.live.progress import TurnMachine
from tests.fixtures.watching import (
    EAGER,
    ONNX,
    OPENVINO,
    PLAN,
    SKIPPED,
    answered,
    everything,
    half_done,
    record,
    row,
    running,
    state,
)
from tests.synthetic_results import MINILM, case_of, failed, parity_of, plan_of, usage_of, usage_sample


def test_before_a_run_everything_waits_and_a_skipped_case_says_why() -> None:
    result = state([])
    assert (result.state, result.done, result.planned) == ("waiting", 0, 9)
    assert (row(result, SKIPPED).state, row(result, SKIPPED).planned) == ("skipped", 0)
    assert row(result, SKIPPED).remarks == ("there are no bf16 kernels",)
    assert row(result, EAGER).state == "waiting"
    assert (result.left_s, result.elapsed_s, result.seen) == (None, None, None)


def test_a_run_at_work_shows_medians_running_and_failed_cases() -> None:
    result = half_done()
    assert (result.state, result.done, result.planned, result.failed) == ("running", 4, 9, 1)
    eager = row(result, EAGER)
    assert (eager.done, eager.planned, eager.measured, eager.state) == (2, 3, 2, "partly")
    assert (eager.median_ns, eager.low_ns, eager.high_ns) == (4.5e6, 4e6, 5e6)
    assert row(result, ONNX).state == "running"
    assert row(result, ONNX).remarks == ("not steady",)
    assert row(result, OPENVINO).state == "failed"
    assert row(result, OPENVINO).remarks[0].startswith("failed in load: ")
    assert [(entry.case_id, entry.round, entry.seconds, entry.lives) for entry in result.turning] == [
        (ONNX.case_id, 2, 1.0, True)
    ]
    assert (result.elapsed_s, result.run_done, result.run_turns) == (60.0, 4, 9)


def test_remarks_name_the_rounds_that_they_are_about() -> None:
    some = [record(EAGER, 1, stop="time limit"), record(EAGER, 2), record(EAGER, 3, stop="time limit")]
    assert row(state(answered(*some)), EAGER).remarks == ("rounds 1, 3 stopped at the time limit",)


def test_outputs_too_far_from_the_reference_make_a_row_void_at_once() -> None:
    far = record(EAGER, 1, parity_before=parity_of(EAGER, MINILM, relative_l2=0.5))
    lost = record(ONNX, 1, parity_before=parity_of(ONNX, MINILM, relative_l2=None))
    result = state(answered(far, lost, record(OPENVINO, 1)))
    void = ("void: outputs too far from the reference",)
    assert (row(result, EAGER).remarks, row(result, ONNX).remarks, row(result, OPENVINO).remarks) == (void, void, ())


def test_a_run_that_stopped_is_not_one_that_waits() -> None:
    result = state(answered(record(EAGER, 1)))
    assert (result.state, result.left_s) == ("stopped", None)


def test_a_file_of_a_run_that_is_gone_makes_nothing_run() -> None:
    result = state(answered(record(EAGER, 1)), [(running(ONNX, 1, done=1), False)])
    assert result.state == "stopped"
    assert row(result, ONNX).state == "waiting"
    assert [entry.lives for entry in result.turning] == [False]
    assert (result.elapsed_s, result.run_turns) == (None, None)


def test_a_run_in_an_unknown_state_counts_as_running() -> None:
    result = state([], [(running(EAGER, 1, done=0), None)])
    assert (result.state, result.turning[0].lives) == ("running", None)


def test_complete_is_when_every_turn_has_an_answer_and_a_failure_is_one() -> None:
    result = state(everything())
    assert (result.state, result.done) == ("complete", result.planned)
    assert {row(result, case).state for case in (EAGER, ONNX, OPENVINO)} == {"done"}
    lacking = [entry for entry in everything() if (entry.case_id, entry.round) != (EAGER.case_id, 3)]
    assert state([*lacking, *answered(failed(EAGER, 3))]).state == "complete"
    assert state(lacking).state == "stopped"


def test_further_rounds_count_as_planned_once_they_are_measured() -> None:
    result = state([*everything(), *answered(record(EAGER, 4))], [(running(ONNX, 4, done=1, turns=2), True)])
    assert (row(result, EAGER).done, row(result, EAGER).planned) == (4, 4)
    assert (result.done, result.planned, result.state) == (10, 10, "running")


def test_a_setting_that_was_beaten_in_round_1_owes_no_more_rounds() -> None:
    slow, fast = (
        case_of(MINILM, "onnxruntime", "fp32", 1, 32, setting=name, tuned=True).model_copy(update={"case_id": name})
        for name in ("default", "fused")
    )
    plan = plan_of((MINILM,), (slow, fast))
    records = answered(record(slow, 1, 9.0), *(record(fast, number, 3.0) for number in (1, 2, 3)), plan=plan)
    result = state(records, plan=plan)
    assert (row(result, slow).state, row(result, slow).planned) == ("beaten", 1)
    assert (row(result, fast).state, row(result, fast).way) == ("done", "fused")
    assert result.state == "complete"


def test_answers_of_cases_that_the_plan_skips_or_lacks_are_none() -> None:
    other = case_of(MINILM, "noop", "fp32", 1, 32)
    plan = plan_of((MINILM,), (*PLAN.cases, other))
    result = state(answered(record(other, 1), record(SKIPPED, 1), plan=plan))
    assert (result.state, result.done, row(result, SKIPPED).done) == ("waiting", 0, 0)


def test_the_gpu_is_shown_as_it_was_at_the_end_of_the_last_turn() -> None:
    hot = GpuSample(
        sm_mhz=1_530,
        memory_mhz=2_619,
        temperature_c=81,
        power_w=692.5,
        utilisation_percent=99,
        memory_used_bytes=1 << 30,
        reasons=("sw_power_cap",),
        other_processes=0,
    )
    watch = lambda case_id, number: usage_of(case_id, number, [usage_sample(1, gpu=hot)])  # noqa: E731
    early = answered(record(EAGER, 1, started_at="2026-11-28T10:00:00+00:00"))
    late = answered(record(ONNX, 1, started_at="2026-11-28T10:00:09+00:00"), watch=watch)
    wanted = TurnMachine(of="GPU", mhz=1_530, temperature_c=81, power_w=692.5, held_back=("sw_power_cap",))
    assert state([*late, *early]).seen == wanted
    assert state(early).seen is None


def test_rows_have_the_short_names_of_tables() -> None:
    cases = tuple(case.model_copy(update={"model": "onnx:/data/net.onnx"}) for case in PLAN.cases)
    result = state([], plan=PLAN.model_copy(update={"cases": cases}))
    assert {row.model for row in result.rows} == {"net.onnx"}
