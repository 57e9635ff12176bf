"""Phases of generation as rows of their own."""

from __future__ import annotations

from harness.aggregation.generation_rows import GenerationRecords, GenerationSource, generation_row
from harness.core.schemas import GenerationRow
from harness.profiling.phases import phase_bytes, phase_case, phase_rows, phases_of
from tests.synthetic_generation import CASE, EXPORT, PLAN, record

ROW: GenerationRow = generation_row(
    GenerationSource(PLAN, {CASE.model: EXPORT}, {}, {}, frozenset()),
    CASE,
    GenerationRecords(measured=[record(1), record(2)]),
)


def test_a_phase_has_an_id_of_its_own_and_the_latency_that_a_request_has() -> None:
    prefill, decode = phase_rows([ROW], lambda _: True)
    assert (prefill.case_id, decode.case_id) == (f"{CASE.case_id}-prefill", f"{CASE.case_id}-decode")
    assert (prefill.model, decode.model) == ("tiny: prefill", "tiny: decode step, 4 tokens")
    assert prefill.latency_ns is not None
    assert decode.latency_ns is not None
    # TTFT and ITL of the records.
    assert (prefill.latency_ns.median, decode.latency_ns.median) == (1_000_000, 100_000)
    assert (decode.grade, decode.sequence_length) == (ROW.grade, CASE.prompt_length)


def test_an_answer_of_one_token_has_no_decode_step() -> None:
    assert phases_of(CASE.model_copy(update={"new_tokens": 1})) == ("prefill",)


def test_only_rows_that_compare_with_a_profiled_phase_are_added() -> None:
    other = ROW.model_copy(update={"case_id": "tiny-onnxruntime", "backend": "onnxruntime"})
    longer = ROW.model_copy(update={"case_id": "long", "prompt_length": 9})
    results = phase_rows([ROW, other, longer], f"{CASE.case_id}-decode".__eq__)
    assert [row.case_id for row in results] == [f"{CASE.case_id}-decode", "tiny-onnxruntime-decode"]


def test_a_step_reads_the_weights_and_the_cache_at_half_of_the_answer() -> None:
    positions = {"prefill": 5, "decode": 5 + 2 - 1}
    for phase in phases_of(CASE):
        cached = 2 * 2 * 2 * 8 * positions[phase] * CASE.batch_size
        assert phase_bytes(CASE, phase, EXPORT) == 4 * (1_000 + cached)
    assert phase_bytes(CASE.model_copy(update={"precision": "int8"}), "decode", EXPORT) is None


def test_the_case_of_a_phase_keeps_the_setting() -> None:
    case = phase_case(CASE.model_copy(update={"setting": "graph"}), "decode", "tiny")
    assert (case.setting, case.slug, case.boundary, case.mode) == ("graph", "tiny", "compute", "sync")
