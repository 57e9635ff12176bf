"""Boundaries and modes in a plan: ids, what is refused, what is skipped, and choices of the command line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from harness.backends import BACKENDS, BackendInfo
from harness.core.errors import ConfigError
from harness.core.schemas import Plan
from harness.planning.config import parse_config
from harness.planning.matrix import make_plan, reason_to_skip_mode
from harness.planning.overrides import Overrides, apply_overrides
from harness.planning.schedule import round_turns
from harness.zoo import model_info


def plan(*blocks: dict[str, Any], models: tuple[str, ...] = ("minilm-l6",), **chosen: Any) -> Plan:
    config = parse_config({"models": list(models), "matrix": list(blocks)}, "my.yaml")
    return make_plan(apply_overrides(config, Overrides(**chosen)), "my.yaml", "0", merge=bool(chosen))


def refusal(**block: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        plan({"backends": ["onnxruntime"], **block})
    return caught.value


def ids(made: Plan) -> list[str]:
    return [case.case_id for case in made.cases]


STEM = "minilm-l6-openvino-cpu-fp32-b1-s128"


def test_the_usual_boundary_and_mode_have_no_suffix() -> None:
    assert ids(plan({"backends": ["openvino"]})) == [STEM]


def test_other_modes_and_boundaries_are_cases_of_their_own() -> None:
    made = plan(
        {"backends": ["openvino"], "modes": ["sync", "pipelined", "offline"]},
        {"backends": ["openvino"], "boundaries": ["e2e"]},
    )
    assert ids(made) == [STEM, f"{STEM}-pipelined", f"{STEM}-offline", f"{STEM}-e2e"]
    assert [(case.boundary, case.mode) for case in made.cases] == [
        ("compute", "sync"),
        ("compute", "pipelined"),
        ("compute", "offline"),
        ("e2e", "sync"),
    ]
    assert {case.skip_reason for case in made.cases} == {None}


@pytest.mark.parametrize(
    ("block", "words", "hint"),
    [
        ({"boundaries": ["transfer"]}, r"matrix\[0\].boundaries: on a CPU there is nothing to transfer", "`e2e`"),
        ({"boundaries": ["compute", "transfer"]}, "nothing to transfer", "`compute`"),
        ({"boundaries": ["e2e"], "modes": ["offline"]}, "sync mode, not in offline mode", "two blocks"),
        ({"boundaries": ["compute", "e2e"], "modes": ["sync", "offline"]}, "not in offline mode", "two blocks"),
        ({"modes": ["pipelined"]}, r"modes: none of these backends has the pipelined mode", "openvino"),
        ({"modes": ["pipelind"]}, "modes", "`pipelined`"),
        ({"boundaries": []}, "boundaries: the list is empty", "leave the key out"),
    ],
)
def test_impossible_cases_are_refused_with_a_hint(block: dict[str, Any], words: str, hint: str) -> None:
    error = refusal(**block)
    assert re.search(words, error.problem), error.problem
    assert hint in error.hint


def on_gpu(**block: Any) -> Plan:
    return plan({"backends": ["torch-eager", "noop"], **block}, device="cuda")


def test_the_transfer_boundary_is_a_gpus_and_of_backends_that_copy() -> None:
    cases = on_gpu(boundaries=["transfer"]).cases
    assert {case.boundary for case in cases} == {"transfer"}
    reasons = {case.backend: case.skip_reason for case in cases}
    assert reasons == {
        "torch-eager": None,
        "noop": "no transfer boundary: noop has no inputs and outputs of its own to copy",
    }


def test_every_backend_of_a_gpu_has_every_mode() -> None:
    cases = on_gpu(modes=["sync", "pipelined", "offline"]).cases
    assert {case.mode for case in cases} == {"sync", "pipelined", "offline"}
    assert {case.skip_reason for case in cases} == {None}


@pytest.mark.parametrize(
    ("boundary", "mode", "able"),
    [("transfer", "offline", "sync or pipelined"), ("e2e", "offline", "sync"), ("e2e", "pipelined", "sync")],
)
def test_a_boundary_with_parts_is_measured_where_they_can_be_distinguished(boundary: str, mode: str, able: str) -> None:
    with pytest.raises(ConfigError) as caught:
        on_gpu(boundaries=[boundary], modes=["sync", mode])
    assert f"the {boundary} boundary is measured in {able} mode, not in {mode} mode" in caught.value.problem
    assert f"`boundaries: [{boundary}]`" in caught.value.hint


def test_transfers_overlap_where_a_backend_can_copy_beside_a_pass() -> None:
    able = ["torch-eager", "torch-script", "onnxruntime", "onnxruntime-tensorrt", "tensorrt"]
    made = on_gpu(backends=[*able, "torch-compile", "noop"], boundaries=["transfer"], modes=["pipelined"])
    assert {case.mode for case in made.cases} == {"pipelined"}
    reasons = {case.backend: case.skip_reason for case in made.cases}
    assert [backend for backend, reason in reasons.items() if reason is None] == able
    assert (reasons["torch-compile"] or "").startswith("no transfer boundary in pipelined mode: its CUDA graphs")
    assert "inputs and outputs of its own" in (reasons["noop"] or "")
    assert all(case.case_id.endswith("-transfer-pipelined") for case in made.cases if not case.skip_reason)


def test_a_plugin_that_says_nothing_of_its_streams_is_not_taken_to_overlap() -> None:
    copying = BackendInfo("a.b:C", "copies", (), (), {"cuda": ("fp32",)}, "onnx", transfers=True)
    results = [
        reason_to_skip_mode("copying", copying, model_info("resnet18"), "cuda", "transfer", mode)
        for mode in ("sync", "pipelined")
    ]
    assert results == [None, "no transfer boundary in pipelined mode: its copies wait in one queue with its passes"]


def test_a_backend_without_the_mode_is_skipped_with_the_reason() -> None:
    made = plan({"backends": ["openvino", "onnxruntime", "torch-eager"], "modes": ["pipelined"]})
    reasons = {case.backend: case.skip_reason for case in made.cases}
    assert reasons.pop("openvino") is None
    for backend, reason in reasons.items():
        assert reason == f"{backend} has no pipelined mode: a call of it runs one request at a time"


def test_every_mode_that_a_backend_lacks_has_a_reason() -> None:
    for name, info in BACKENDS.items():
        assert "sync" in info.modes, name
        assert {"sync", "pipelined", "offline"} - set(info.modes) <= set(info.modes_not_offered), name


@pytest.mark.parametrize("model", ["onnx:./my.onnx", "module:a.b:c"])
def test_a_model_whose_preprocessing_is_not_known_has_no_e2e(model: str) -> None:
    (case,) = plan({"backends": ["onnxruntime"], "boundaries": ["e2e"]}, models=(model,)).cases
    assert case.skip_reason == f"no e2e boundary: how text or pictures become inputs of {model} is not known"


def test_a_backend_without_a_model_has_no_e2e() -> None:
    (case,) = plan({"backends": ["noop"], "boundaries": ["e2e"]}).cases
    assert "runs no model" in (case.skip_reason or "")


@pytest.mark.parametrize("model", ["resnet18", "torchvision:resnet34", "gpt2", "hf:some/model", "efficientnet-lite0"])
def test_models_with_known_preprocessing_have_e2e_and_only_then_raw_inputs(model: str) -> None:
    made = plan({"backends": ["onnxruntime"], "boundaries": ["e2e"]}, models=(model,))
    assert [case.skip_reason for case in made.cases] == [None]
    assert [planned.raw_inputs for planned in made.models] == [True]
    assert [planned.raw_inputs for planned in plan({"backends": ["onnxruntime"]}, models=(model,)).models] == [False]


OFFLINE = {"backends": ["openvino"], "modes": ["offline"]}
E2E = {"backends": ["openvino"], "boundaries": ["e2e"]}


def test_a_chosen_boundary_replaces_the_modes_too() -> None:
    assert ids(plan({"backends": ["openvino"]}, OFFLINE, E2E, boundaries=("e2e",))) == [f"{STEM}-e2e"]


def test_a_chosen_mode_replaces_the_boundaries_too() -> None:
    assert ids(plan({"backends": ["openvino"]}, OFFLINE, E2E, modes=("offline",))) == [f"{STEM}-offline"]


def test_both_chosen_are_taken_as_they_are() -> None:
    with pytest.raises(ConfigError):
        plan(E2E, boundaries=("e2e",), modes=("offline",))


def test_rows_that_are_never_compared_need_not_run_side_by_side() -> None:
    modes = {"backends": ["torch-eager", "openvino", "onnxruntime"], "modes": ["sync", "offline"]}
    order = [case.mode for _, case in round_turns(plan(modes).cases, 1, 7)]
    assert order in (["sync"] * 3 + ["offline"] * 3, ["offline"] * 3 + ["sync"] * 3)
