"""The blocks of generation: their cases, and a line for each mistake before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import ConfigError, InferometerError, MalformedFileError, MissingInputError
from harness.core.schemas import Plan
from harness.plan import stage
from harness.planning.config import parse_config
from harness.planning.generation_cases import generation_needs
from harness.planning.matrix import make_plan
from harness.planning.schedule import generation_turns
from harness.zoo.input_files import length_pairs, prompt_lines


def planned(pairs: list[tuple[int, int]] | None = None, **block: Any) -> Plan:
    blocks = [{"backends": ["torch-eager"], **block}]
    config = parse_config({"models": [{"name": "gpt2", "weights": "seeded"}, "t5-small"], "generation": blocks}, "c")
    return make_plan(config, "c", "0" * 64, pairs=pairs or ())


def test_every_combination_of_the_lists_is_a_case() -> None:
    plan = planned(models=["gpt2"], batch_sizes=[1, 8], prompt_lengths=[16, 32], new_tokens=[4], precisions=["bf16"])
    assert [case.case_id for case in plan.generations] == [
        "gpt2-torch-eager-cpu-bf16-b1-p16-n4",
        "gpt2-torch-eager-cpu-bf16-b1-p32-n4",
        "gpt2-torch-eager-cpu-bf16-b8-p16-n4",
        "gpt2-torch-eager-cpu-bf16-b8-p32-n4",
    ]
    assert plan.cases == ()
    assert {case.weights for case in plan.generations} == {"seeded"}


def test_length_pairs_replace_the_lengths() -> None:
    plan = planned([(8, 2), (100, 50)], models=["gpt2"])
    assert [(case.prompt_length, case.new_tokens) for case in plan.generations] == [(8, 2), (100, 50)]


def test_the_needs_of_an_export() -> None:
    plan = planned(models=["gpt2"], batch_sizes=[1, 4], prompt_lengths=[16, 32], new_tokens=[4, 9])
    generation_need = generation_needs(plan)["gpt2"]
    assert (generation_need.lengths, generation_need.batch_size, generation_need.onnx) == ({16: 9, 32: 9}, 4, ())


def test_a_plan_without_generation_keeps_its_id() -> None:
    base = {"models": ["resnet18"], "matrix": [{"backends": ["torch-eager"]}]}
    plan = make_plan(parse_config(base, "c"), "c", "0" * 64)
    asked = json.loads(plan.model_dump_json())
    assert asked["generations"] == []
    other = parse_config({**base, "generating": {"requests": 9}}, "c")
    assert make_plan(other, "c", "0" * 64).plan_id == plan.plan_id


def test_only_cases_that_do_not_fit_are_skipped() -> None:
    plan = planned(prompt_lengths=[1000], new_tokens=[64])
    reasons = {case.model: case.skip_reason for case in plan.generations}
    assert reasons == {
        "gpt2": "prompt and output of 1000 + 64 need 1064 positions, and gpt2 has 1024",
        "t5-small": None,
    }


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({"models": ["gpt2"], "prompt_lengths": [1024]}, "need 1152 positions, and gpt2 has 1024"),
        ({"models": ["bert-base"]}, "bert-base is not among the models"),
        ({"backends": ["torch-script"]}, "torch-script does not generate"),
        ({"precisions": ["tf32"]}, "generates in tf32"),
        ({"settings": ["graph"]}, "setting"),
        ({"prompt_lengths": [0]}, "prompt_lengths"),
        ({"new_tokens": []}, "the list is empty"),
        ({"batchsizes": [1]}, "batchsizes"),
    ],
)
def test_an_impossible_case_is_reported_in_one_line(block: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        planned(**block)


def test_an_encoder_and_a_model_without_a_cache_are_refused(tmp_path: Path) -> None:
    for name, config, problem in (
        ("bert", {"model_type": "bert", "architectures": ["BertModel"]}, "is a BertModel, which gives no next token"),
        ("base", {"model_type": "gpt2", "architectures": ["GPT2Model"]}, "is a GPT2Model, which gives no next token"),
        ("mamba", {"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, "recurrent state"),
        ("gpt1", {"model_type": "openai-gpt", "architectures": ["OpenAIGPTLMHeadModel"]}, "no key-value cache"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ConfigError, match=problem):
            stage(_arguments(tmp_path, f"hf:{folder}"))


@pytest.mark.parametrize("config", [{"hidden_size": 8}, {"model_type": "gpt2"}, {"architectures": []}])
def test_a_folder_that_does_not_name_its_architecture_is_no_encoder(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="has no `architectures`") as caught:
        stage(_arguments(tmp_path, f"hf:{tmp_path}"))
    assert "`save_pretrained`" in caught.value.hint


def test_texts_need_a_tokenizer(tmp_path: Path) -> None:
    texts = tmp_path / "p.txt"
    texts.write_text("A prompt.\nAnother one.\n")
    with pytest.raises(ConfigError, match="gpt2 has no tokenizer here, and the prompts are texts"):
        stage([*_arguments(tmp_path, "gpt2@seeded"), "--prompts", f"16,{texts}"])
    with pytest.raises(MissingInputError, match="There is no file"):
        stage([*_arguments(tmp_path, "gpt2@seeded"), "--prompts", str(tmp_path / "no.txt")])


def _arguments(folder: Path, model: str) -> list[str]:
    where = ["--results", str(folder / "r"), "--models-dir", str(folder / "m")]
    return ["--config", "configs/generation.yaml", "--models", model, "--backends", "torch-eager", *where]


def test_a_file_of_pairs_and_a_file_of_texts(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("# prompt new\n128 64\n 16, 8\n\n128 64\n")
    assert length_pairs(path) == [(128, 64), (16, 8), (128, 64)]
    path.write_text("What is a token?\n12 and more\n")
    assert length_pairs(path) is None
    for text, problem in (("128 64\nwords\n", "entry 2"), ("128 0\n", "length of 0"), ("\n", "has no prompt")):
        path.write_text(text)
        with pytest.raises(InferometerError, match=problem):
            length_pairs(path)


def test_a_file_of_prompts_in_another_encoding_is_refused_and_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes("caf\u00e9 au lait\n".encode("latin-1"))
    with pytest.raises(MalformedFileError, match="is no text in UTF-8") as caught:
        stage([*_arguments(tmp_path, "smollm2-135m"), "--prompts", str(path)])
    assert "one prompt a line" in caught.value.hint
    path.write_text("\ufeff8 4\r\n16 4\r\n", newline="")
    assert length_pairs(path) == [(8, 4), (16, 4)]
    path.write_text("\ufeffOne prompt\u2028in one line.\nAnother.\n")
    assert prompt_lines(path) == ["One prompt\u2028in one line.", "Another."]


def test_rounds_keep_shapes_together_and_differ_in_order() -> None:
    plan = planned(models=["gpt2"], backends=["torch-eager", "torch-compile"], batch_sizes=[1, 2, 4, 8])
    turns = generation_turns(plan.generations, 2, 1)
    assert len(turns) == 16
    sizes = [case.batch_size for _, case in turns[:8]]
    assert all(sizes[place] == sizes[place + 1] for place in range(0, 8, 2))
    assert [case.case_id for _, case in turns[:8]] != [case.case_id for _, case in turns[8:]]


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("tensorrt", "tensorrt does not generate: TensorRT 8.6 has no operator for a cache"),
        ("onnxruntime-tensorrt", "onnxruntime-tensorrt does not generate: its decoder files are of operator set 23"),
        ("torch-script", "torch-script does not generate: a traced step has no cache as an input"),
        ("noop", "noop does not generate: it computes nothing"),
    ],
)
def test_a_backend_that_does_not_generate_is_a_skipped_row_with_its_reason(backend: str, reason: str) -> None:
    cases = planned(backends=["torch-eager", backend], models=["gpt2"]).generations
    skipped = [case for case in cases if case.backend == backend]
    assert skipped
    assert all(str(case.skip_reason).startswith(reason) for case in skipped)
    assert all(case.skip_reason is None for case in cases if case.backend == "torch-eager")


def test_alone_such_a_backend_is_an_error_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"tensorrt does not generate: TensorRT 8\.6 has no operator for a cache"):
        planned(backends=["tensorrt"], models=["gpt2"])


def test_int4_has_a_tolerance_where_something_generates_in_it() -> None:
    models = [{"name": "smollm2-135m"}]
    config = parse_config({"models": models, "generation": [{"backends": ["llamacpp"], "precisions": ["int4"]}]}, "c")
    plan = make_plan(config, "c", "0" * 64)
    assert plan.tolerance("smollm2-135m", "int4") is not None
    assert "int4" not in planned(models=["gpt2"]).gates


def test_the_rounding_of_floats_below_fp32_is_part_of_the_needs_of_an_export() -> None:
    plan = planned(models=["gpt2"], precisions=["fp32", "bf16"])
    assert generation_needs(plan)["gpt2"].rounded == ("bf16",)
