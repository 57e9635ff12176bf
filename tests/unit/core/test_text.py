"""Unknown names: the nearest known one, and the list."""

from __future__ import annotations

import pytest

from harness.core.text import unknown_name


def test_a_near_name_is_proposed() -> None:
    problem, hint = unknown_name("backend", "onnxrutime", ["torch-eager", "onnxruntime"])
    assert problem == "Unknown backend `onnxrutime`."
    assert hint == "Did you mean `onnxruntime`? Known: onnxruntime, torch-eager."


@pytest.mark.parametrize(
    ("given", "meant"), [("FP32", "fp32"), ("OnnxRuntime", "onnxruntime"), ("onnx", "onnxruntime"), ("tf", None)]
)
def test_capitals_and_a_beginning_propose_a_name(given: str, meant: str | None) -> None:
    hint = unknown_name("value", given, ["fp32", "onnxruntime", "onnxruntime-tensorrt", "tf32-long"])[1]
    assert (f"Did you mean `{meant}`?" in hint) if meant else hint.startswith("Known: ")


def test_without_any_name_the_hint_says_so() -> None:
    assert unknown_name("candidate", "x", [])[1] == "None is known."


def test_a_far_name_gets_the_list_alone() -> None:
    assert unknown_name("backend", "zzz", ["b", "a"])[1] == "Known: a, b."
