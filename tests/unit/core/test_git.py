"""Which commit of Inferometer runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.host import git

ROOT = Path(__file__).parents[3]


def test_the_commit_is_that_of_the_checkout() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    head = git.printed_by_git(ROOT, "rev-parse", "HEAD")
    assert head is not None
    assert git.commit()[0] == head.strip()
