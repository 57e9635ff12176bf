"""The order of test files, which `make test` runs side by side (pytest-xdist, --dist loadfile)."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONG_FIRST = ("integration", "browser")
"""Folders of long files: one that begins last would run alone at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _turn(item.path.relative_to(TESTS).parts[0]))


def _turn(folder: str) -> int:
    return LONG_FIRST.index(folder) if folder in LONG_FIRST else len(LONG_FIRST)
