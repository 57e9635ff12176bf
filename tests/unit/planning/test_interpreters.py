"""Which Python runs which backend, as `BACKEND_PYTHONS=` and `--python` give it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.planning.block_settings import parse_interpreters


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A virtual environment's: a link to an interpreter elsewhere."""
    link = tmp_path / "venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(sys.executable)
    return link


def test_without_a_word_every_backend_runs_in_this_python() -> None:
    assert parse_interpreters([]) == {}
    assert parse_interpreters([""]) == {}


def test_several_are_in_one_text_or_in_several_and_the_last_word_counts(python: Path) -> None:
    other = Path(sys.executable)
    given = [f"tensorrt={python},onnxruntime={other}", f"torch-eager={python}", f"onnxruntime={python}"]
    assert parse_interpreters(given) == dict.fromkeys(("tensorrt", "onnxruntime", "torch-eager"), python)


def test_a_virtual_environments_link_is_not_followed(python: Path) -> None:
    # Called by the name of what it points to, it would not see the environment's packages.
    assert parse_interpreters([f"tensorrt={python}"])["tensorrt"] == python
    assert python.resolve() != python


def test_a_command_is_searched_and_a_path_is_made_absolute(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.chdir(python.parents[2])
    for given in ("python", "venv/bin/python", "./venv/bin/python"):
        assert parse_interpreters([f"tensorrt={given}"]) == {"tensorrt": python}


def test_a_path_may_hold_the_sign_itself(python: Path, tmp_path: Path) -> None:
    link = tmp_path / "a=b"
    link.symlink_to(python)
    assert parse_interpreters([f"tensorrt={link}"]) == {"tensorrt": link}


@pytest.mark.parametrize("text", ["tensorrt", "tensorrt=", "/usr/bin/python3"])
def test_half_a_word_is_shown_with_a_whole_one(text: str) -> None:
    with pytest.raises(UsageError, match="is not <backend>=<python>") as caught:
        parse_interpreters([text])
    assert text in caught.value.problem
    assert "BACKEND_PYTHONS=tensorrt=/" in caught.value.hint


def test_an_unknown_backend_gets_the_nearest_name(python: Path) -> None:
    with pytest.raises(UsageError, match="Unknown backend `tensort`") as caught:
        parse_interpreters([f"tensort={python}"])
    assert "Did you mean `tensorrt`?" in caught.value.hint


def test_an_interpreter_that_cannot_run_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "python"
    plain.write_text("not executable")
    for path in (plain, tmp_path / "absent", tmp_path):
        with pytest.raises(UsageError, match="named for tensorrt, is not an executable") as caught:
            parse_interpreters([f"tensorrt={path}"])
        assert str(path) in caught.value.problem


def test_of_a_virtual_environment_its_python_is_named(python: Path) -> None:
    with pytest.raises(UsageError) as caught:
        parse_interpreters([f"tensorrt={python.parents[1]}"])
    assert caught.value.hint == f"BACKEND_PYTHONS=tensorrt={python}"
