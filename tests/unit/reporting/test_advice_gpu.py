"""Rules about a GPU: who waits for launches, who has small kernels, and when an engine is repaid."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from harness.core.schemas import Interval, Row
from harness.reporting.prose.recommendations import (
    Candidates,
    Recommendation,
    backend_choice,
    engine_cost,
    fixed_cost,
    launches,
)
from tests.synthetic_cuda import cuda_summary

SUMMARY = cuda_summary()
BY_ID = {row.case_id: row for row in SUMMARY.rows}
ENGINE = BY_ID["bert-base-tensorrt-cuda-fp16-b1-s128-static+graph"]
FUSED = BY_ID["bert-base-onnxruntime-cuda-fp16-b1-s128-fused+graph"]
COMPILED = BY_ID["bert-base-torch-compile-cuda-fp16-b1-s128-reduce-overhead"]
EAGER = BY_ID["bert-base-torch-eager-cuda-fp16-b1-s128"]


def timed(row: Row, ms: float, **changes: Any) -> Row:
    assert row.latency_ns is not None
    ends = Interval(low=ms * 0.99e6, high=ms * 1.01e6)
    latency = row.latency_ns.model_copy(update={"median": ms * 1e6, "ci95": ends})
    return row.model_copy(update={"latency_ns": latency, **changes})


def advice(rule: Callable[[Candidates], Iterable[Recommendation]], *rows: Row) -> list[Recommendation]:
    group = Candidates("a model", rows, BY_ID, SUMMARY.exports["bert-base"], None, SUMMARY.engines)
    return list(rule(group))


def test_rows_that_wait_for_launches_get_the_advice_of_graphs() -> None:
    (single,) = advice(launches, EAGER)
    assert single.rule == "launches"
    assert "torch-eager fp16 at batch 1: a setting with a CUDA graph" in single.text
    assert single.case_ids == (EAGER.case_id,)


def test_small_kernels_are_another_matter() -> None:
    (single,) = advice(launches, ENGINE)
    assert single.rule == "small kernels"
    assert "tensorrt fp16 at batch 1 neither" in single.text


def test_slow_kernels_are_distinguished_from_small_ones() -> None:
    assert ENGINE.roofline is not None
    slow = ENGINE.model_copy(update={"roofline": ENGINE.roofline.model_copy(update={"limit": "kernels"})})
    (single,) = advice(launches, slow)
    assert single.rule == "slow kernels"
    assert "can gain more than fewer launches" in single.text


def test_a_row_at_its_limit_or_without_one_is_silent() -> None:
    large = BY_ID["bert-base-tensorrt-cuda-fp16-b128-s128-static+graph"]
    assert large.roofline is not None
    assert large.roofline.limit == "compute"
    assert advice(launches, large, ENGINE.model_copy(update={"roofline": None})) == []


def test_an_engine_is_repaid_against_the_next_best() -> None:
    rows = (timed(ENGINE, 1.0), timed(FUSED, 2.0), timed(COMPILED, 3.0))
    (single,) = advice(engine_cost, *rows)
    # 38.1 s for 1 ms a batch.
    assert single.text.startswith(
        "an engine of tensorrt fp16 (built in 38.1 s) saves time over onnxruntime fp16, the next"
    )
    assert "after 38,100 [" in single.text
    assert "] batches of 1. " in single.text
    assert single.case_ids == (ENGINE.case_id, FUSED.case_id)


def test_an_engine_that_is_not_clearly_faster_is_never_repaid() -> None:
    assert advice(engine_cost, timed(ENGINE, 1.0), timed(FUSED, 1.01)) == []
    assert advice(engine_cost, timed(ENGINE, 2.0), timed(FUSED, 1.0)) == []
    assert advice(engine_cost, timed(ENGINE, 1.0)) == []
    assert advice(engine_cost, timed(FUSED, 1.0), timed(COMPILED, 3.0)) == []


def test_fixed_cost_is_left_to_the_rules_of_the_gpu() -> None:
    larger = BY_ID["bert-base-torch-eager-cuda-fp16-b8-s128"]
    assert advice(fixed_cost, EAGER, larger) == []
    assert len(advice(fixed_cost, *(row.model_copy(update={"device_ns": None}) for row in (EAGER, larger)))) == 1


def test_the_fastest_is_named_in_the_precision_that_most_share_with_its_setting() -> None:
    fp32 = timed(BY_ID["bert-base-torch-eager-cuda-fp32-b1-s128"], 0.5)
    (single,) = advice(backend_choice, timed(ENGINE, 1.0), timed(FUSED, 2.0), fp32)
    assert single.text.startswith("tensorrt (static+graph) is fastest at batch 1 in fp16: 1.00 ms")


def test_an_engine_that_a_row_of_grade_c_beats_is_not_recommended() -> None:
    rows = (timed(ENGINE, 1.0), timed(FUSED, 2.0))
    group = Candidates(
        "a model", rows, BY_ID, SUMMARY.exports["bert-base"], None, SUMMARY.engines, (timed(COMPILED, 0.5),)
    )
    assert list(engine_cost(group)) == []
    slower = dataclasses.replace(group, flagged=(timed(COMPILED, 1.5),))
    assert len(list(engine_cost(slower))) == 1
