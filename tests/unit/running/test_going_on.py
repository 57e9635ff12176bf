"""Which failures a run survives, in one table, and in Make, which cannot read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.running.going_on import goes_on_after

MAKEFILE = (Path(__file__).parents[3] / "Makefile").read_text()


@pytest.mark.parametrize(
    ("stage", "exit_code", "goes_on"),
    [
        ("plan", 0, True),
        ("plan", 10, False),
        ("export", 10, True),
        ("export", 8, False),
        ("build_engine", 5, True),
        ("roof", 5, True),
        ("run", 10, True),
        ("run", 130, False),
    ],
)
def test_the_table(stage: str, exit_code: int, goes_on: bool) -> None:
    assert goes_on_after(stage, exit_code) is goes_on


def test_make_goes_on_after_the_same_exit_codes() -> None:
    engines = {code for code in range(256) if goes_on_after("build_engine", code)}
    export = {code for code in range(256) if goes_on_after("export", code)}
    lists = re.findall(r"case \$\$code in ([\d|]+)\) ;;", MAKEFILE)
    found = [{int(code) for code in one.split("|")} for one in lists]
    roof = {code for code in range(256) if goes_on_after("roof", code)}
    assert found == [export, engines, roof, export, engines], "bench and profile"
    run = {code for code in range(256) if goes_on_after("run", code)}
    assert {int(code) for code in re.findall(r"\$\$code -ne (\d+)", MAKEFILE)} == run
