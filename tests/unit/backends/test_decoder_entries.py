"""What the table says of generation: which cases are skipped and why, and which files the others read."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest

from harness.backends import BUILT_IN, backend_info
from harness.backends.generation_files import decoder_key
from harness.backends.onnxruntime.decoder import count_products
from harness.backends.precision import onnx_precision
from harness.core.schemas import Device, GenerationCase, Precision
from harness.planning import generation_cases
from harness.zoo import model_info
from harness.zoo.model_files import facts_of


def skipped(
    backend: str, model: str, precision: Precision = "fp32", setting: str = "", weights: Any = "pretrained"
) -> str | None:
    table, info = backend_info(backend), model_info(model)
    device: Device = "cpu"
    chosen = setting or next(iter(table.decoder_settings_on(device)))
    facts = facts_of(info, weights)
    return generation_cases.reason_to_skip(backend, table, info, facts, device, precision, (8, 8), chosen)


@pytest.fixture
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


@pytest.mark.usefixtures("everything_installed")
def test_models_that_a_library_cannot_load_are_skipped_with_the_reason() -> None:
    assert skipped("ort-genai", "smollm2-135m") is None
    assert "no model of this type" in str(skipped("ort-genai", "gpt2"))
    assert "T5" in str(skipped("ort-genai", "t5-small"))
    assert skipped("llamacpp", "smollm2-135m", "int4") is None
    assert "come from none" in str(skipped("llamacpp", "smollm2-135m", "int4", weights="seeded"))
    assert "come from none" in str(skipped("llamacpp", "gpt2", "int4"))
    assert "4 bits" in str(skipped("llamacpp", "smollm2-135m", "fp32"))
    assert "SETTINGS=binding" in str(skipped("onnxruntime", "t5-small"))
    assert skipped("onnxruntime", "t5-small", setting="binding") is None
    assert "NNCF" in str(skipped("openvino", "gpt2", "int8"))
    assert "TensorRT 8.6" in str(skipped("tensorrt", "gpt2"))


@pytest.mark.parametrize(("backend", "precision"), [("ort-genai", "fp32"), ("llamacpp", "int4")])
def test_a_missing_optional_library_is_a_skipped_case_with_the_command_to_install_it(
    backend: str, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert f"pip install 'inferometer[{BUILT_IN[backend].extra}]'" in str(skipped(backend, "smollm2-135m", precision))
    assert skipped("onnxruntime", "smollm2-135m") is None, "its absence is a failure, as in other passes"


def case(backend: str, precision: Precision, setting: str) -> GenerationCase:
    return GenerationCase(
        case_id="one",
        model="gpt2",
        slug="gpt2",
        backend=backend,
        device="cpu",
        precision=precision,
        batch_size=1,
        prompt_length=8,
        new_tokens=8,
        weights="seeded",
        setting=setting,
    )


def test_each_case_reads_one_of_the_decoder_files() -> None:
    assert decoder_key(backend_info("onnxruntime"), case("onnxruntime", "int8", "in-place")) == "int8-in-place"
    assert decoder_key(backend_info("onnxruntime"), case("onnxruntime", "fp32", "binding")) == "fp32"
    assert decoder_key(backend_info("openvino"), case("openvino", "bf16", "states")) == "fp32"
    assert onnx_precision("tf32") == "fp32"


def test_the_file_of_int8_is_made_after_that_of_fp32() -> None:
    cases = [case("onnxruntime", "int8", "binding"), case("openvino", "bf16", "states")]
    assert generation_cases.file_precisions(cases) == ("fp32", "int8")
    assert generation_cases.file_precisions(cases[1:]) == ("fp32",)


@pytest.mark.parametrize(("bits", "level", "word"), [(8, 4, "int8"), (4, 4, "4-bit weights multiplied in int8")])
def test_products_are_counted_by_the_precision_that_ran(bits: int, level: int, word: str) -> None:
    onnx = pytest.importorskip("onnx")
    block = onnx.helper.make_node("MatMulNBits", ["x", "w"], ["y"], bits=bits, accuracy_level=level)
    assert count_products(["MatMulNBits", "MatMulNBits", "Softmax", "MatMul"], [block]) == {word: 2, "fp32": 1}
    assert count_products(["Gemm"], []) == {"fp32": 1}


def test_weights_that_are_not_multiplied_in_int8_are_not_called_int8() -> None:
    onnx = pytest.importorskip("onnx")
    block = onnx.helper.make_node("MatMulNBits", ["x", "w"], ["y"], bits=8, accuracy_level=1)
    assert "int8" not in count_products(["MatMulNBits"], [block])
