"""From a configuration to cases: nothing twice, nothing that cannot be, a reason for everything that is skipped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.backends import BACKENDS, BackendInfo
from harness.core.errors import ConfigError
from harness.core.schemas import Measurement, Plan, Tolerance
from harness.planning import matrix
from harness.planning.config import parse_config, read_config
from harness.planning.matrix import make_plan, plan_id, settings_id
from harness.planning.run_time import estimate_s, range_in_words

ON_CPU = [name for name, info in BACKENDS.items() if "cpu" in info.precisions]
CONFIGS = sorted(Path(__file__).parents[3].joinpath("configs").glob("*.yaml"))


def plan(*blocks: dict[str, Any], models: list[Any] | None = None, **more: Any) -> Plan:
    data = {"models": models or ["resnet18", "minilm-l6"], "matrix": list(blocks), **more}
    return make_plan(parse_config(data, "my.yaml"), "my.yaml", "0" * 64)


def refusal(*blocks: dict[str, Any], **more: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        plan(*blocks, **more)
    return caught.value


def test_a_block_is_every_combination_and_sequence_lengths_are_for_text() -> None:
    made = plan({"backends": ["noop", "onnxruntime"], "batch_sizes": [1, 8], "sequence_lengths": [16, 32]})
    assert len(made.cases) == 2 * 2 + 2 * 2 * 2
    assert {case.sequence_length for case in made.cases if case.model == "resnet18"} == {None}
    assert "minilm-l6-onnxruntime-cpu-fp32-b8-s32" in {case.case_id for case in made.cases}
    assert "resnet18-noop-cpu-fp32-b1" in {case.case_id for case in made.cases}


@pytest.mark.parametrize(
    ("models", "block", "words", "hint"),
    [
        (["resnet81"], {}, "Unknown model `resnet81`", "`resnet18`?"),
        (["tests"], {}, "Unknown model `tests`", "For the folder of that name: `./tests`"),
        (None, {"backends": ["torch-eagre"]}, "Unknown backend `torch-eagre`", "`torch-eager`?"),
        (None, {"models": ["resnet50"]}, r"matrix\[0\].models: resnet50 is not among", "resnet18, minilm-l6"),
        (None, {"models": []}, r"matrix\[0\].models: the list is empty", "leave `models` out"),
        (["resnet18", "resnet18"], {}, r"models\[1\]: resnet18 is named twice", "once"),
        ([{"name": "module:a.b:c", "weights": "seeded"}], {}, r"models\[0\]: .* no `seeded` weights", "own"),
        (None, {"batch_sizes": [1, 1]}, "duplicate case resnet18-noop-cpu-fp32-b1", "overlap"),
        (None, {"precisions": ["int8"]}, r"precisions: none of these backends runs int8 on cpu", "computes nothing"),
        (["module:a.b"], {}, "names no source", "module:<python path>:<function>"),
    ],
)
def test_impossible_cases_are_refused_with_a_hint(
    models: list[Any] | None, block: dict[str, Any], words: str, hint: str
) -> None:
    error = refusal({"backends": ["noop"], **block}, models=models)
    assert re.search(words, error.problem), error.problem
    assert hint.lower() in error.hint.lower()


def test_two_blocks_may_not_overlap() -> None:
    first = {"backends": ["noop"], "batch_sizes": [1, 2]}
    assert "duplicate case" in refusal(first, {"backends": ["noop"], "batch_sizes": [2]}).problem


def test_a_backend_that_does_not_run_on_the_device_is_refused() -> None:
    error = refusal({"backends": ["openvino"]}, device="cuda")
    assert error.problem == "my.yaml: matrix[0].backends: openvino does not run on cuda."
    assert error.hint.startswith("On cuda: ")


def test_an_unknown_baseline_is_refused_with_the_nearest() -> None:
    error = refusal({"backends": ["noop"]}, report={"baseline_backend": "torch-eagre"})
    assert "report.baseline_backend: Unknown backend" in error.problem
    assert "`torch-eager`?" in error.hint


def test_a_precision_that_one_backend_has_is_skipped_with_a_reason_for_the_others() -> None:
    made = plan({"backends": ["torch-eager", "onnxruntime"], "precisions": ["bf16"]}, models=["resnet18"])
    reasons = {case.backend: case.skip_reason for case in made.cases}
    assert reasons == {"torch-eager": None, "onnxruntime": "ONNX Runtime has bf16 kernels for a few operators only"}


def test_an_onnx_file_has_no_module_for_pytorch() -> None:
    made = plan({"backends": ["torch-eager", "onnxruntime"]}, models=["onnx:./my.onnx"])
    reasons = {case.backend: case.skip_reason for case in made.cases}
    assert reasons["onnxruntime"] is None
    assert "no PyTorch module" in (reasons["torch-eager"] or "")


def test_models_without_cases_are_not_planned() -> None:
    made = plan({"backends": ["noop"], "models": ["resnet18"]})
    assert [model.name for model in made.models] == ["resnet18"]


def test_fp16_onnx_is_planned_only_where_a_case_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        **BACKENDS,
        "half-onnx": BackendInfo("m:C", "", (), (), {"cpu": ("fp16",)}, "onnx"),
        "half-module": BackendInfo("m:C", "", (), (), {"cpu": ("fp16",)}, "module"),
    }
    monkeypatch.setattr(matrix, "BACKENDS", table)
    monkeypatch.setattr(matrix, "backend_info", table.__getitem__)

    def planned(*backends: str) -> tuple[str, ...]:
        block = {"backends": ["onnxruntime", *backends], "precisions": ["fp32", "fp16"]}
        return plan(block, models=["resnet18"]).models[0].onnx_precisions

    assert planned("half-onnx") == ("fp32", "fp16")
    assert planned("half-module") == ("fp32",)  # ONNX Runtime's fp16 case is there, and skipped
    assert plan({"backends": ["onnxruntime"]}, models=["resnet18"]).models[0].onnx_precisions == ("fp32",)


def test_int8_onnx_is_planned_only_where_a_case_loads_it() -> None:
    block = {"backends": ["torch-eager", "onnxruntime", "openvino"], "precisions": ["int8"]}
    made = plan(block, models=["resnet18", "minilm-l6", "onnx:own.onnx"])
    skipped = {(case.model, case.backend) for case in made.cases if case.skip_reason}
    assert skipped == {
        *((model, "torch-eager") for model in ("resnet18", "minilm-l6", "onnx:own.onnx")),
        # Dynamic quantisation, which OpenVINO does not run in int8.
        ("minilm-l6", "openvino"),
        ("onnx:own.onnx", "openvino"),
    }
    assert {model.onnx_precisions for model in made.models} == {("fp32", "int8")}
    alone = plan({**block, "backends": ["torch-eager", "openvino"]}, models=["resnet18", "minilm-l6"])
    assert [model.onnx_precisions for model in alone.models] == [("fp32", "int8"), ("fp32",)]
    reasons = {case.skip_reason for case in alone.cases if case.case_id.startswith("minilm-l6-openvino")}
    assert all("in fp32" in (reason or "") for reason in reasons)


def test_fp8_is_of_three_backends_on_a_gpu_and_every_other_says_why_not() -> None:
    backends = [name for name, info in BACKENDS.items() if "cuda" in info.precisions and not info.remote]
    made = plan({"backends": backends, "precisions": ["fp8"]}, models=["minilm-l6"], device="cuda")
    assert {case.backend for case in made.cases if not case.skip_reason} == {
        "torch-eager",
        "torch-compile",
        "torch-aoti",
    }
    reasons = {case.backend: case.skip_reason for case in made.cases if case.skip_reason}
    assert (
        reasons["tensorrt"]
        == reasons["torch-script"]
        == "fp8 is measured through torch-eager, torch-compile and torch-aoti"
    )
    assert "computes nothing" in (reasons["noop"] or "")
    assert [model.onnx_precisions for model in made.models] == [("fp32",)]
    assert made.tolerance("minilm-l6", "fp8") is not None
    assert "fp8" not in plan({"backends": backends}, models=["minilm-l6"], device="cuda").gates
    refused = refusal({"backends": ["torch-eager"], "precisions": ["fp8"]})
    assert "none of these backends runs fp8 on cpu" in refused.problem
    assert "converts fp8 to fp32" in refused.hint


def test_int8_engines_start_from_their_own_form_of_static_models_alone() -> None:
    block = {"backends": ["tensorrt"], "precisions": ["int8"]}
    made = plan(block, models=["resnet18", "minilm-l6"], device="cuda")
    assert [model.onnx_variants for model in made.models] == [("fp32-opset17", "int8-opset17"), ()]
    (reason,) = {case.skip_reason for case in made.cases if case.model == "minilm-l6"}
    assert "dynamically quantised" in (reason or "")


def test_a_backend_of_convolutions_is_skipped_for_text_and_loads_the_file_of_its_precision() -> None:
    block = {"backends": ["cudnn"], "precisions": ["fp16"], "settings": ["graph", "folded+graph"]}
    made = plan(block, models=["resnet18", "minilm-l6"], device="cuda")
    assert {model.name: model.onnx_precisions for model in made.models}["resnet18"] == ("fp32", "fp16")
    assert [case.case_id for case in made.cases if case.skip_reason is None] == [
        "resnet18-cudnn-cuda-fp16-b1",
        "resnet18-cudnn-cuda-fp16-b1-folded+graph",
    ]
    assert {case.skip_reason for case in made.cases if case.model == "minilm-l6"} == {
        "it runs convolutional networks with one picture as input"
    }


def test_planned_sequence_lengths_are_those_of_the_cases() -> None:
    made = plan(
        {"backends": ["noop"], "sequence_lengths": [64, 16]}, {"backends": ["openvino"], "models": ["minilm-l6"]}
    )
    lengths = {model.name: model.sequence_lengths for model in made.models}
    assert lengths == {"resnet18": (), "minilm-l6": (16, 64, 128)}


def other(value: Any) -> Any:
    return 1 if value is None else value + 1 if isinstance(value, int) else value / 2


@pytest.mark.parametrize("field", Measurement.model_fields)
def test_the_settings_id_changes_only_with_settings_that_decide_a_sample(field: str) -> None:
    settings = Measurement()
    changed = settings.model_copy(update={field: other(getattr(settings, field))})
    assert changed != settings
    same = field in ("rounds", "max_rounds", "target_interval", "budget_s", "timeout_s", "export_timeout_s")
    assert (settings_id("cpu", changed) == settings_id("cpu", settings)) is same


def test_the_settings_id_changes_with_the_device_and_not_with_the_cases() -> None:
    assert settings_id("cpu", Measurement()) != settings_id("cuda", Measurement())
    small, large = plan({"backends": ["noop"]}), plan({"backends": ["openvino"], "batch_sizes": [1, 2, 3]})
    assert small.settings_id == large.settings_id == settings_id("cpu", Measurement())


ASKED: dict[str, Any] = {"models": ["resnet18"], "matrix": [{"backends": ["torch-eager", "onnxruntime"]}]}


@pytest.mark.parametrize(
    "change",
    [
        {"matrix": [{"backends": ["torch-eager", "onnxruntime", "openvino"]}]},
        {"matrix": [{"backends": ["onnxruntime", "torch-eager"]}]},
        {"matrix": [{"backends": ["torch-eager", "onnxruntime"], "settings": ["1-thread"]}]},
        {"models": [{"name": "resnet18", "weights": "seeded"}]},
        {"models": [{"name": "resnet18", "gates": {"fp32": {"relative_l2": 0.5}}}]},
        {"gates": {"fp32": {"relative_l2": 0.5}}},
        {"measurement": {"rounds": 5}},
        {"measurement": {"max_rounds": 7, "budget_s": 60.0}},
        {"report": {"baseline_backend": "onnxruntime"}},
        {"report": {"latency_limit_ms": 20.0}},
        {"engines": {"optimization_level": 5}},
    ],
    ids=str,
)
def test_plans_that_ask_or_judge_otherwise_have_other_ids_and_share_their_settings(change: dict[str, Any]) -> None:
    first = make_plan(parse_config(ASKED, "config.yaml"), "config.yaml", "0")
    other = make_plan(parse_config({**ASKED, **change}, "config.yaml"), "config.yaml", "0")
    assert (first.plan_id == other.plan_id, first.settings_id == other.settings_id) == (False, True)


def test_other_measurement_settings_make_both_ids_others() -> None:
    first, other = plan({"backends": ["noop"]}), plan({"backends": ["noop"]}, measurement={"max_s": 3.0})
    assert (first.plan_id == other.plan_id, first.settings_id == other.settings_id) == (False, False)


def test_every_tolerance_and_limit_that_a_configuration_sets_is_part_of_the_plan_id() -> None:
    """Whatever fields are added: a row is judged by the plan, and two plans that judge otherwise are two."""
    first = make_plan(parse_config(ASKED, "config.yaml"), "config.yaml", "0")
    tolerance = Tolerance(relative_l2=0.1, top1_agreement=0.5, cosine=0.5)
    first = first.model_copy(update={"gates": {"fp32": tolerance}})
    parts = {"measurement": first.measurement, "report": first.report, "engines": first.engines}
    free = {("report", "title"), ("report", "charts"), ("measurement", "export_timeout_s")}
    for name, part in parts.items():
        for field in type(part).model_fields:
            changed = part.model_copy(update={field: "another"})
            other = plan_id(first.model_copy(update={name: changed}))
            assert (other == plan_id(first)) == ((name, field) in free), f"{name}.{field}"
    for field in Tolerance.model_fields:
        other = plan_id(first.model_copy(update={"gates": {"fp32": tolerance.model_copy(update={field: 0.25})}}))
        assert other != plan_id(first), f"gates.{field}"


def test_the_plan_id_does_not_depend_on_the_path_of_the_configuration_or_the_title_of_the_report() -> None:
    first = make_plan(parse_config(ASKED, "config.yaml"), "config.yaml", "0")
    named = {**ASKED, "report": {"title": "Another", "charts": False}}
    other = make_plan(parse_config(named, "elsewhere/copy.yaml"), "elsewhere/copy.yaml", "1")
    assert first.plan_id == other.plan_id == plan_id(other)


def test_another_exporter_is_another_plan_and_the_usual_one_leaves_the_id_as_it_was() -> None:
    first, usual, other = (
        plan({"backends": ["onnxruntime"]}, **more)
        for more in ({}, {"export": {"exporter": "dynamo"}}, {"export": {"exporter": "torchscript"}})
    )
    assert first.plan_id == usual.plan_id != other.plan_id
    assert (first.export.exporter, other.export.exporter) == ("dynamo", "torchscript")
    assert "export" not in first.model_dump(exclude_defaults=True)
    assert first.settings_id == other.settings_id  # samples are distinguished by the hash of the file that they loaded
    assert refusal({"backends": ["onnxruntime"]}, export={"exporter": "dynamic"}).hint.startswith(
        "Did you mean `dynamo`"
    )


names = st.sampled_from(["resnet18", "minilm-l6", "module:a.b:c", "module:a.c:c", "onnx:x/m.onnx", "onnx:y/m.onnx"])
block_lists = st.fixed_dictionaries(
    {
        "backends": st.lists(st.sampled_from(ON_CPU), min_size=1, unique=True),
        "precisions": st.just(["fp32"]),
        "batch_sizes": st.lists(st.integers(1, 300), min_size=1, max_size=4, unique=True),
        "sequence_lengths": st.lists(st.integers(1, 300), min_size=1, max_size=3, unique=True),
    }
)


@given(models=st.lists(names, min_size=1, unique=True), block=block_lists)
def test_case_ids_are_unique_and_can_name_folders(models: list[str], block: dict[str, Any]) -> None:
    made = plan(block, models=list(models))
    ids = [case.case_id for case in made.cases]
    texts = sum(name == "minilm-l6" for name in models)
    shapes = len(block["batch_sizes"]) * (len(models) - texts + texts * len(block["sequence_lengths"]))
    assert len(set(ids)) == len(ids) == shapes * len(block["backends"])
    assert all(len(name) < 200 and Path(name).name == name for name in ids)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_configuration_that_we_ship_plans(path: Path) -> None:
    made = make_plan(read_config(path), str(path), "")
    assert any(case.skip_reason is None for case in (*made.cases, *made.generations))
    low, high = estimate_s(made)
    assert 0 < low <= high


@given(rounds=st.integers(1, 100), maximum=st.floats(0.1, 100), warm=st.floats(0, 100), low=st.floats(0, 1))
def test_the_estimate_is_ordered_and_grows_with_rounds(rounds: int, maximum: float, warm: float, low: float) -> None:
    settings = {"max_s": maximum, "warmup_max_s": warm, "warmup_min_s": min(low, warm)}
    block = {"backends": ["noop", "torch-compile"]}
    once = estimate_s(plan(block, measurement={**settings, "rounds": 1}))
    many = estimate_s(plan(block, measurement={**settings, "rounds": rounds}))
    assert 0 < many[0] <= many[1]
    assert many >= once


def test_an_estimate_in_words() -> None:
    assert range_in_words((2.0, 60.0)) == "2 s to 60 s"
    assert range_in_words((120.0, 7200.0)) == "2 min to 2.0 h"
    assert range_in_words((5.0, 5.2)) == "about 5 s"
