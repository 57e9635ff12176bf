"""What is said of an exception of another library."""

from __future__ import annotations

from harness.core.extensions import reason


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


def test_what_it_was_raised_from_is_named() -> None:
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
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert reason(one) == "ValueError: one Caused by ValueError: other"


def test_of_a_very_long_message_both_ends_are_kept() -> None:
    said = reason(ValueError(f"begin {'x' * 5000} end"))
    assert said.startswith("ValueError: begin xxx")
    assert said.endswith("xxx end")
    assert len(said) < 1300


def test_an_exception_without_a_message_has_its_type() -> None:
    assert reason(RecursionError()) == "RecursionError"
