"""The audit's report: its results, and never "all well" where no service was asked."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

AUDIT = runpy.run_path(str(Path(__file__).parents[2] / ".ci/audit.py"))
CLEAN = {"name": "a", "version": "1", "vulns": []}
HIT = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1", "3"], "aliases": []}]}
OPEN = {"name": "c", "version": "3", "vulns": [{"id": "GHSA-x", "fix_versions": [], "aliases": []}]}
UNKNOWN = {"name": "d", "skip_reason": "not found"}


def lines(*packages: Any) -> list[str]:
    result: list[str] = AUDIT["report"]({"dependencies": list(packages)}, "constraints.txt")
    return result


def test_a_vulnerability_is_named_with_the_version_that_mends_it() -> None:
    assert lines(CLEAN, HIT, OPEN) == [
        "b 2: PYSEC-1, fixed in 2.1, 3",
        "c 3: GHSA-x, fixed in no version yet",
        "constraints.txt: 3 packages audited, 2 with known vulnerabilities.",
    ]


def test_unknown_packages_are_counted() -> None:
    assert lines(CLEAN, UNKNOWN) == [
        "constraints.txt: 1 packages audited, 0 with known vulnerabilities; 1 not known to the service."
    ]


@pytest.mark.parametrize("text", ["", "Traceback …", "[]", '{"dependencies": [{"name": "d", "skip_reason": "x"}]}'])
def test_where_no_service_answers_it_says_so_in_two_lines(text: str) -> None:
    said = AUDIT["report"](AUDIT["parsed"](text), "constraints.txt")
    assert len(said) == 2
    assert said[0].startswith("Not audited: no advisory service answered")
