"""Surroundings that unit tests of several folders need."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def outside_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of GitHub Actions is set."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which Python finds modules and installed packages."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path
