"""Unknown names: the nearest known one, and the list."""

from __future__ import annotations

from harness.core.text import unknown_name


def test_a_near_name_is_proposed() -> None:
    problem, hint = unknown_name("backend", "onnxrutime", ["torch-eager", "onnxruntime"])
    assert problem == "Unknown backend `onnxrutime`."
    assert hint == "Did you mean `onnxruntime`? Known: onnxruntime, torch-eager."


def test_a_far_name_gets_the_list_alone() -> None:
    assert unknown_name("backend", "zzz", ["b", "a"])[1] == "Known: a, b."
