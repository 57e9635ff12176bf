from __future__ import annotations

from typing import Any

import pytest

from harness.backends import BACKENDS
from harness.core.errors import ConfigError
from harness.core.schemas import Plan
from harness.planning.block_settings import threads_of
from harness.planning.config import parse_config
from harness.planning.matrix import make_plan


def plan(model: str = "resnet18", **block: Any) -> Plan:
    config = {"device": "cuda", "models": [{"name": model, "weights": "seeded"}], "matrix": [block]}
    return make_plan(parse_config(config, "x.yaml"), "x.yaml", "")


def test_without_a_word_every_backend_runs_in_its_usual_setting_and_the_id_stays_short() -> None:
    cases = plan(backends=["onnxruntime", "tensorrt"]).cases
    assert [case.setting for case in cases] == ["graph", "static+graph"]
    assert [case.case_id for case in cases] == [
        "resnet18-onnxruntime-cuda-fp32-b1",
        "resnet18-tensorrt-cuda-fp32-b1",
    ]
    assert not any(case.tuned for case in cases)


def test_named_settings_reach_the_backends_that_have_them_and_are_in_the_id() -> None:
    cases = plan(backends=["onnxruntime", "tensorrt"], settings=["plain", "nhwc+graph"]).cases
    assert [(case.backend, case.setting) for case in cases] == [
        ("onnxruntime", "plain"),
        ("onnxruntime", "nhwc+graph"),
        ("tensorrt", "static+graph"),
    ]
    assert cases[0].case_id == "resnet18-onnxruntime-cuda-fp32-b1-plain"


@pytest.mark.parametrize(("model", "left_out"), [("resnet18", "fused+graph"), ("bert-base", "nhwc+graph")])
def test_tuning_tries_the_short_list_that_fits_the_model(model: str, left_out: str) -> None:
    cases = plan(model, backends=["onnxruntime", "torch-script"], precisions=["fp16"], tune=True).cases
    tried = [case.setting for case in cases if case.backend == "onnxruntime"]
    listed = BACKENDS["onnxruntime"].settings_on("cuda")
    kind = "text" if model == "bert-base" else "image"
    assert tried == [name for name, entry in listed.items() if entry.tried and kind in entry.kinds]
    assert left_out not in tried
    assert all(case.tuned for case in cases if case.backend == "onnxruntime")
    # One setting alone is not tried against anything.
    assert [case.tuned for case in cases if case.backend == "torch-script"] == [False]


def test_a_setting_of_one_precision_is_left_out_of_the_others() -> None:
    tried = {
        precision: [case.setting for case in plan(backends=["onnxruntime"], precisions=[precision], tune=True).cases]
        for precision in ("fp32", "fp16")
    }
    assert "nhwc+tf32+bias+graph" in tried["fp16"]
    assert tried["fp32"] == [name for name in tried["fp16"] if "tf32" not in name]
    named = plan(backends=["onnxruntime"], precisions=["fp32"], settings=["nhwc+tf32+graph"]).cases
    assert [case.setting for case in named] == ["graph"]


def test_a_variant_is_exported_only_where_a_setting_loads_it() -> None:
    assert plan("bert-base", backends=["onnxruntime"], precisions=["fp16"]).models[0].onnx_variants == ()
    tuned = plan("bert-base", backends=["onnxruntime"], precisions=["fp16"], tune=True).models[0]
    assert (tuned.onnx_precisions, tuned.onnx_variants) == (("fp32", "fp16"), ("fp16-fused",))


def test_an_unknown_setting_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="Unknown setting `grpah`") as caught:
        plan(backends=["onnxruntime"], settings=["grpah"])
    assert "graph" in caught.value.hint


def test_settings_and_tuning_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="tune"):
        plan(backends=["onnxruntime"], settings=["graph"], tune=True)


def test_int8_files_are_not_planned_for_onnxruntime_on_a_gpu_and_the_reason_is_named() -> None:
    with pytest.raises(ConfigError, match="int8") as caught:
        plan(backends=["onnxruntime"], precisions=["int8"])
    assert "QLinearConv" in caught.value.hint
    config = {"device": "cuda", "models": [{"name": "onnx:own.onnx"}], "matrix": [{"backends": ["onnxruntime"]}]}
    (case,) = make_plan(parse_config(config, "x.yaml"), "x.yaml", "", quantised={"onnx:own.onnx": "static"}).cases
    assert case.precision == "int8"
    assert case.skip_reason is not None
    assert "QLinearConv" in case.skip_reason


def test_a_cpu_has_one_setting_with_the_old_ids() -> None:
    config = {"models": [{"name": "resnet18", "weights": "seeded"}], "matrix": [{"backends": ["onnxruntime"]}]}
    (case,) = make_plan(parse_config(config, "x.yaml"), "x.yaml", "").cases
    assert (case.case_id, case.setting) == ("resnet18-onnxruntime-cpu-fp32-b1", "default")


def on_cpu(**block: Any) -> Plan:
    config = {"models": [{"name": "resnet18", "weights": "seeded"}], "matrix": [block]}
    return make_plan(parse_config(config, "x.yaml"), "x.yaml", "")


def test_on_a_cpu_numbers_of_threads_are_settings_of_every_backend_that_computes() -> None:
    cases = on_cpu(backends=["noop", "openvino"], settings=["1-thread", "default", "16-threads"]).cases
    assert [(case.backend, case.setting, threads_of(case, 2)) for case in cases] == [
        ("noop", "default", 2),
        ("openvino", "default", 2),
        ("openvino", "1-thread", 1),
        ("openvino", "16-threads", 16),
    ]
    assert cases[-1].case_id == "resnet18-openvino-cpu-fp32-b1-16-threads"


@pytest.mark.parametrize("name", ["1-threads", "2-thread", "0-threads", "02-threads", "99999-threads", "-2-threads"])
def test_only_one_spelling_of_a_number_of_threads_is_a_setting(name: str) -> None:
    with pytest.raises(ConfigError, match=f"Unknown setting `{name}`") as caught:
        on_cpu(backends=["onnxruntime"], settings=[name])
    assert "2-threads" in caught.value.hint


def test_on_a_gpu_they_are_none() -> None:
    with pytest.raises(ConfigError, match="Unknown setting `2-threads`"):
        plan(backends=["onnxruntime"], settings=["2-threads"])
