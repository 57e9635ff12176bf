"""What is passed on names no folder of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.text import portable, portable_path
from harness.zoo.sources import portable_name


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a working directory in it."""
    here = tmp_path / "me" / "work"
    here.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.chdir(here)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{home}/net.onnx is missing", "~/net.onnx is missing"),
        ('File "{home}/work/net.py", line 3', 'File "net.py", line 3'),
        ("in {home}/work: no file", "in .: no file"),
        ("--results={home}/results", "--results=~/results"),
        ("{home}2/net.onnx and x{home}/net.onnx", "{home}2/net.onnx and x{home}/net.onnx"),
        ("nothing of the kind", "nothing of the kind"),
    ],
)
def test_folders_of_the_machine_are_left_out(somewhere: Path, text: str, expected: str) -> None:
    home = str(somewhere / "me")
    result = portable(text.format(home=home))
    assert result == expected.format(home=home)
    assert portable(result) == result


def test_the_checkout_is_one_of_them() -> None:
    checkout = Path(__file__).resolve().parents[3]
    assert portable(f"{checkout}/harness/run.py: it failed") == "harness/run.py: it failed"


def test_a_path_can_be_read_back(somewhere: Path) -> None:
    home = somewhere / "me"
    assert portable_path("net.onnx") == "net.onnx"
    assert portable_path("/data/net.onnx") == "/data/net.onnx"
    assert portable_path(str(home / "work" / "net.onnx")) == "./net.onnx"
    result = portable_path(str(home / "nets" / "net.onnx"))
    assert (result, Path(result).expanduser()) == ("~/nets/net.onnx", home / "nets" / "net.onnx")
    assert portable_name(f"onnx:{home}/net.onnx") == "onnx:~/net.onnx"
    assert portable_name("module:net:build") == "module:net:build"
    assert portable_name("resnet18") == "resnet18"
