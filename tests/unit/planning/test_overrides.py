"""Choices of the command line laid over a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import ConfigError, UsageError
from harness.core.schemas import Plan
from harness.planning.config import Config, parse_config, read_config
from harness.planning.matrix import make_plan
from harness.planning.overrides import DEFAULT_MAX_ROUNDS, Overrides, apply_overrides, left_out

TWO_BLOCKS = {
    "models": ["minilm-l6", {"name": "resnet18", "weights": "seeded"}, "resnet50"],
    "matrix": [
        {"backends": ["torch-eager", "onnxruntime"], "batch_sizes": [1, 4], "models": ["minilm-l6", "resnet18"]},
        {"backends": ["openvino"], "batch_sizes": [16], "models": ["resnet18"]},
    ],
}


def config(data: dict[str, Any] = TWO_BLOCKS) -> Config:
    return parse_config(data, "my.yaml")


def planned(data: dict[str, Any] = TWO_BLOCKS, **chosen: Any) -> Plan:
    return make_plan(apply_overrides(config(data), Overrides(**chosen)), "my.yaml", "", merge=True)


def column(plan: Plan, field: str) -> set[Any]:
    return {getattr(case, field) for case in plan.cases}


def test_no_choice_changes_nothing() -> None:
    assert apply_overrides(config(), Overrides()) == config()


@pytest.mark.parametrize(
    ("choice", "field", "values"),
    [
        ("backends", "backend", ("noop", "openvino")),
        ("precisions", "precision", ("bf16",)),
        ("batch_sizes", "batch_size", (2, 32)),
    ],
)
def test_a_chosen_list_replaces_the_list_of_every_block(choice: str, field: str, values: tuple[Any, ...]) -> None:
    data = {**TWO_BLOCKS, "matrix": [{**block, "backends": ["torch-eager"]} for block in TWO_BLOCKS["matrix"]]}
    assert column(planned(data, **{choice: values}), field) == set(values)


NAMED = {
    "device": "cuda",
    "models": [{"name": "resnet18", "weights": "seeded"}, {"name": "minilm-l6", "weights": "seeded"}],
    "matrix": [
        {"backends": ["tensorrt", "torch-eager"], "precisions": ["fp16"], "batch_sizes": [8]},
        {"backends": ["onnxruntime", "tensorrt"], "precisions": ["fp16"], "settings": ["nhwc+graph", "static+graph"]},
        {"backends": ["torch-eager"], "models": ["resnet18"]},
    ],
}
"""Entries that name backends, with settings of some."""


def cases_of(plan: Plan) -> set[tuple[str, str, str, int, str]]:
    return {(case.model, case.backend, case.precision, case.batch_size, case.setting) for case in plan.cases}


def test_a_chosen_backend_keeps_the_entries_that_name_it_and_no_other() -> None:
    assert cases_of(planned(NAMED, backends=("torch-eager",))) == {
        ("resnet18", "torch-eager", "fp16", 8, "default"),
        ("minilm-l6", "torch-eager", "fp16", 8, "default"),
        ("resnet18", "torch-eager", "fp32", 1, "default"),
    }
    chosen = Overrides(backends=("torch-eager",))
    assert left_out(config(NAMED), chosen) == ("1 of 3 entries of `matrix`: they name other backends",)


def test_an_entry_keeps_the_settings_of_the_backends_that_are_left() -> None:
    plan = planned(NAMED, backends=("onnxruntime",), models=("resnet18",))
    assert cases_of(plan) == {("resnet18", "onnxruntime", "fp16", 1, "nhwc+graph")}
    chosen = Overrides(backends=("onnxruntime",))
    assert left_out(config(NAMED), chosen) == (
        "2 of 3 entries of `matrix`: they name other backends",
        "static+graph, a setting of other backends",
    )
    # Settings of the command line replace them all.
    plan = planned(NAMED, backends=("tensorrt",), models=("resnet18",), settings=("dynamic+graph",))
    assert {case.setting for case in plan.cases} == {"dynamic+graph"}


def test_a_backend_that_no_entry_names_replaces_those_of_all_without_their_settings() -> None:
    plan = planned(NAMED, backends=("torch-script",), models=("resnet18",))
    assert cases_of(plan) == {
        ("resnet18", "torch-script", "fp16", 8, "default"),
        ("resnet18", "torch-script", "fp16", 1, "default"),
        ("resnet18", "torch-script", "fp32", 1, "default"),
    }
    both = planned(NAMED, backends=("torch-script", "torch-eager"), models=("resnet18",))
    assert cases_of(both) == cases_of(plan) | {
        ("resnet18", "torch-eager", "fp16", 8, "default"),
        ("resnet18", "torch-eager", "fp32", 1, "default"),
    }
    assert left_out(config(NAMED), Overrides(backends=("torch-script",))) == (
        "nhwc+graph, static+graph, settings of other backends",
    )


def test_a_chosen_model_is_measured_though_the_backends_entries_name_others() -> None:
    matrix = [{"backends": ["torch-compile"], "models": ["minilm-l6"], "batch_sizes": [4]}, {"backends": ["openvino"]}]
    data = {"models": [{"name": "minilm-l6", "weights": "seeded"}, "resnet50"], "matrix": matrix}
    assert column(planned(data, backends=("torch-compile",)), "model") == {"minilm-l6"}
    plan = planned(data, backends=("torch-compile",), models=("resnet50",))
    assert [(case.model, case.backend, case.batch_size) for case in plan.cases] == [("resnet50", "torch-compile", 4)]


def test_a_chosen_backend_keeps_the_entries_of_generation_that_name_it() -> None:
    generation = [
        {"backends": ["torch-eager"], "prompt_lengths": [16], "new_tokens": [8]},
        {"backends": ["onnxruntime"], "prompt_lengths": [32], "new_tokens": [8], "settings": ["numpy"]},
        {"backends": ["llamacpp"], "precisions": ["int4"], "prompt_lengths": [64], "new_tokens": [8]},
    ]
    data = {"models": ["smollm2-135m"], "generation": generation}
    plan = planned(data, backends=("torch-eager",))
    assert [(case.backend, case.precision, case.prompt_length) for case in plan.generations] == [
        ("torch-eager", "fp32", 16)
    ]
    plan = planned(data, backends=("llamacpp",))
    assert [(case.backend, case.precision, case.prompt_length) for case in plan.generations] == [
        ("llamacpp", "int4", 64)
    ]
    assert left_out(config(data), Overrides(backends=("llamacpp",))) == (
        "2 of 3 entries of `generation`: they name other backends",
    )


def test_the_published_table_of_a_gpu_is_planned_for_each_of_its_backends() -> None:
    table = read_config(Path("configs/cuda-table.yaml"))
    for name in {name for block in table.matrix for name in block.backends}:
        own = {case.case_id for case in make_plan(table, "", "").cases if case.backend == name}
        plan = make_plan(apply_overrides(table, Overrides(backends=(name,))), "", "", merge=True)
        assert {case.case_id for case in plan.cases} == own


QUANTISED = {"backends": ["onnxruntime"], "precisions": ["int8"]}


def test_a_choice_that_leaves_nothing_of_a_block_drops_it() -> None:
    data = {**TWO_BLOCKS, "matrix": [{"backends": ["torch-eager", "onnxruntime"]}, QUANTISED]}
    assert column(planned(data, backends=("torch-eager",)), "precision") == {"fp32"}
    assert column(planned(data, backends=("onnxruntime",)), "precision") == {"fp32", "int8"}
    # Where nothing would be left, the plan says why.
    with pytest.raises(ConfigError, match="none of these backends runs int8"):
        planned({**TWO_BLOCKS, "matrix": [QUANTISED]}, backends=("torch-eager",))
    with pytest.raises(ConfigError, match="Unknown backend"):
        planned(data, backends=("torch-eagr",))


def test_chosen_sequence_lengths_reach_text_models_only() -> None:
    plan = planned(sequence_lengths=(8, 16))
    assert {case.sequence_length for case in plan.cases if case.model == "minilm-l6"} == {8, 16}
    assert {case.sequence_length for case in plan.cases if case.model == "resnet18"} == {None}


def test_rounds_are_replaced_and_the_rest_of_the_measurement_stays() -> None:
    data = {**TWO_BLOCKS, "measurement": {"rounds": 3, "max_s": 1.5}}
    plan = planned(data, rounds=7)
    assert (plan.measurement.rounds, plan.measurement.max_s) == (7, 1.5)
    assert plan.settings_id == planned(data).settings_id


def test_the_device_is_replaced() -> None:
    assert apply_overrides(config(), Overrides(device="cuda")).device == "cuda"


def test_chosen_models_keep_the_choices_of_their_blocks() -> None:
    plan = planned(models=("resnet18",))
    assert column(plan, "model") == {"resnet18"}
    assert {(case.backend, case.batch_size) for case in plan.cases} == {
        *((backend, size) for backend in ("torch-eager", "onnxruntime") for size in (1, 4)),
        ("openvino", 16),
    }
    assert column(plan, "weights") == {"seeded"}


def test_a_model_that_no_block_covers_gets_the_first_blocks_lists() -> None:
    for name in ("resnet50", "mobilenet_v2"):
        plan = planned(models=(name, "resnet18"))
        results = {(case.backend, case.batch_size) for case in plan.cases if case.model == name}
        assert results == {(backend, size) for backend in ("torch-eager", "onnxruntime") for size in (1, 4)}
        assert column(plan, "model") == {name, "resnet18"}


def test_a_block_for_all_models_covers_every_chosen_one() -> None:
    data = {"models": ["resnet18"], "matrix": [{"backends": ["noop"]}, {"backends": ["openvino"]}]}
    plan = planned(data, models=("resnet50", "minilm-l6"))
    assert len(plan.cases) == 4
    assert column(plan, "model") == {"resnet50", "minilm-l6"}


def test_weights_can_be_named_with_the_model() -> None:
    plan = planned(models=("resnet18@pretrained", "minilm-l6@seeded"))
    assert {(case.model, case.weights) for case in plan.cases} == {
        ("resnet18", "pretrained"),
        ("minilm-l6", "seeded"),
    }


def test_an_at_sign_of_a_path_is_no_weights() -> None:
    plan = planned(models=("onnx:./a@b.onnx",))
    assert column(plan, "model") == {"onnx:./a@b.onnx"}


def test_a_choice_without_a_name_is_an_error() -> None:
    with pytest.raises(UsageError, match="`@seeded` names no model"):
        planned(models=("@seeded",))


def test_one_model_twice_is_an_error_even_with_other_weights() -> None:
    with pytest.raises(ConfigError, match="is named twice"):
        planned(models=("resnet18", "resnet18@pretrained"))


def test_chosen_settings_reach_the_blocks_whose_backends_have_them() -> None:
    blocks = [
        {"backends": ["torch-eager", "onnxruntime", "tensorrt"], "precisions": ["fp16"], "tune": True},
        {"backends": ["torch-eager"], "precisions": ["fp32"]},
    ]
    data = {"device": "cuda", "models": [{"name": "resnet18", "weights": "seeded"}], "matrix": blocks}
    cases = planned(data, settings=["static+graph", "nhwc+graph"]).cases
    assert [(case.backend, case.precision, case.setting, case.tuned) for case in cases] == [
        ("torch-eager", "fp16", "default", False),
        ("onnxruntime", "fp16", "nhwc+graph", False),
        ("tensorrt", "fp16", "static+graph", False),
        ("torch-eager", "fp32", "default", False),
    ]
    with pytest.raises(ConfigError, match="Unknown setting `nhwc\\+grpah`"):
        planned(data, settings=["static+graph", "nhwc+grpah"])


def test_unknown_choices_are_errors_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="resnet19") as caught:
        planned(models=("resnet19",))
    assert "`resnet18`?" in caught.value.hint
    with pytest.raises(ConfigError, match="openvno") as caught:
        planned(backends=("openvno",))
    assert "`openvino`?" in caught.value.hint


def test_blocks_that_a_choice_made_overlap_are_merged() -> None:
    plan = planned(backends=("noop",), batch_sizes=(1,))
    ids = [case.case_id for case in plan.cases]
    assert sorted(ids) == sorted(set(ids))
    assert {case.model for case in plan.cases} == {"minilm-l6", "resnet18"}


@pytest.mark.parametrize("choice", [{"target_interval": 0.005}, {"budget_s": 600.0}])
def test_an_interval_or_a_budget_allows_further_rounds(choice: dict[str, Any]) -> None:
    plan = planned(**choice)
    assert plan.measurement.max_rounds == DEFAULT_MAX_ROUNDS
    assert {name: getattr(plan.measurement, name) for name in choice} == choice
    assert plan.settings_id == planned().settings_id
    assert planned(rounds=30, **choice).measurement.max_rounds == 30


def test_a_named_limit_of_rounds_is_kept() -> None:
    assert planned(max_rounds=7, budget_s=60.0).measurement.max_rounds == 7
    data = {**TWO_BLOCKS, "measurement": {"max_rounds": 9}}
    assert planned(data, budget_s=60.0).measurement.max_rounds == 9
    assert planned().measurement.max_rounds is None


@pytest.mark.parametrize("choice", [{"rounds": 5, "max_rounds": 4}, {"rounds": 101}, {"max_rounds": 101}])
def test_rounds_that_contradict_each_other(choice: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        planned(**choice)


def test_a_chosen_precision_goes_to_the_entries_whose_backends_run_it() -> None:
    data = {
        "models": ["minilm-l6"],
        "matrix": [{"backends": ["torch-eager", "onnxruntime"]}, {"backends": ["onnxruntime"], "boundaries": ["e2e"]}],
    }
    chosen = Overrides(precisions=("fp32", "bf16"))
    plan = planned(data, precisions=("fp32", "bf16"))
    assert {(case.boundary, case.precision) for case in plan.cases if case.skip_reason is None} == {
        ("compute", "fp32"),
        ("compute", "bf16"),
        ("e2e", "fp32"),
    }
    assert left_out(config(data), chosen) == ("bf16 of onnxruntime (e2e, sync)",)


def test_chosen_backends_leave_out_blocks_that_none_of_them_runs() -> None:
    data = {
        "models": ["minilm-l6"],
        "matrix": [{"backends": ["torch-eager", "onnxruntime"], "precisions": ["fp32", "bf16"]}],
    }
    plan = planned(data, backends=("onnxruntime",))
    assert {(case.backend, case.precision) for case in plan.cases} == {("onnxruntime", "fp32")}
    assert left_out(config(data), Overrides(backends=("onnxruntime",))) == ("bf16 of onnxruntime (compute, sync)",)
    with pytest.raises(ConfigError, match="none of these backends runs bf16") as refused:
        planned(data, backends=("onnxruntime",), precisions=("bf16",))
    assert refused.value.hint.endswith(" Leave bf16 out, or choose another backend.")


def test_a_precision_that_no_entry_runs_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"matrix\[0\].precisions: none of these backends runs bf16"):
        planned({"models": ["minilm-l6"], "matrix": [{"backends": ["onnxruntime"]}]}, precisions=("fp32", "bf16"))
