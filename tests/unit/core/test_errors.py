"""The error tree: what its docstring draws is what there is. And what is said of an exception of another library."""

from __future__ import annotations

import pickle
import re

import pytest

from harness.core import cli, errors
from harness.core.errors import InferometerError, reason

BELOW = {"CasesFailedError": 10, "NotReproducedError": 11}
"""Ends of complete runs; the text below the tree has them."""


def classes(root: type[InferometerError]) -> list[type[InferometerError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in classes(child))]


def ours() -> dict[str, type[InferometerError]]:
    return {kind.__name__: kind for kind in classes(InferometerError) if kind.__module__ == errors.__name__}


def drawn() -> dict[str, tuple[int, int]]:
    """name → (depth, exit code) of the docstring's tree."""
    lines = re.findall(r"^    ([│├└─ ]*)(\w+Error) +(\d+) ", errors.__doc__ or "", re.MULTILINE)
    return {name: (len(branch) // 4, int(code)) for branch, name, code in lines}


def test_the_drawn_tree_is_the_real_one() -> None:
    tree = drawn()
    real = {
        name: (len(entry.__mro__) - len(InferometerError.__mro__), entry.exit_code)
        for name, entry in ours().items()
        if name not in BELOW
    }
    assert tree == real
    parents: list[str] = []
    for name, (depth, _) in tree.items():
        parents[depth:] = [name]
        if depth:
            assert ours()[name].__bases__ == (ours()[parents[depth - 1]],)


@pytest.mark.parametrize(("name", "code"), BELOW.items())
def test_the_exit_codes_below_the_tree_are_real(name: str, code: int) -> None:
    assert f"`{name}` (exit {code})" in (errors.__doc__ or "")
    assert getattr(errors, name).exit_code == code


def test_exit_codes_distinguish_the_branches_and_leave_the_shells_alone() -> None:
    branches = [entry.exit_code for entry in ours().values() if entry.__base__ is InferometerError]
    assert len(set(branches)) == len(branches)
    assert InferometerError.exit_code == cli.CRASHED
    assert cli.CRASHED not in branches
    assert all(0 < code < 126 for code in branches)


def test_errors_keep_both_lines_when_they_cross_a_process() -> None:
    for kind in ours().values():
        copy = pickle.loads(pickle.dumps(kind("problem", "hint")))  # noqa: S301 - our own bytes
        assert (type(copy), copy.problem, copy.hint, str(copy)) == (kind, "problem", "hint", "problem")


def chained() -> Exception:
    try:
        try:
            raise KeyError("weight")
        except KeyError as error:
            raise RuntimeError("step 1 of 3 failed\nsee the documentation") from error
    except RuntimeError as error:
        return error


def test_a_message_is_whole_on_one_line_without_colours() -> None:
    said = reason(
        ValueError("\x1b[31mLoad failed:\x1b[0m\n  in node\tConv_3:\r\n\x1b]8;;http://x\x1b\\no kernel\x1b]8;;\x1b\\ ")
    )
    assert said == "ValueError: Load failed: in node Conv_3: no kernel"


def test_the_cause_is_named() -> None:
    assert reason(chained()) == "RuntimeError: step 1 of 3 failed Caused by KeyError: 'weight'"


def test_a_cause_that_the_message_repeats_is_not_said_twice() -> None:
    error = ValueError("could not load: no such file")
    error.__cause__ = OSError("no such file")
    assert reason(error) == "ValueError: could not load: no such file"


def test_a_cause_in_the_middle_of_a_very_long_message_is_not_lost() -> None:
    error = ValueError(f"export failed\n{'advice ' * 300}\nthe cause\n{'advice ' * 300}")
    error.__cause__ = RuntimeError("the cause")
    assert reason(error) == "ValueError: export failed Caused by RuntimeError: the cause"


def test_a_circle_of_causes_ends() -> None:
    error, other = ValueError("one"), ValueError("other")
    error.__cause__, other.__cause__ = other, error
    assert reason(error) == "ValueError: one Caused by ValueError: other"


def test_of_a_very_long_message_both_ends_are_kept() -> None:
    said = reason(ValueError(f"begin {'x' * 5000} end"))
    assert said.startswith("ValueError: begin xxx")
    assert said.endswith("xxx end")
    assert len(said) < 1300


def test_a_full_stop_is_left_to_the_sentence_around_it() -> None:
    assert reason(ValueError("eval() is not supported yet.")) == "ValueError: eval() is not supported yet"


def test_an_exception_without_a_message_has_its_type() -> None:
    assert reason(RecursionError()) == "RecursionError"
