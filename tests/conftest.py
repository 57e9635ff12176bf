"""Which tests may run at the same time: those of different files, by pytest-xdist (`make test`)."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONG_FIRST = ("docker", "integration", "browser")
"""Folders of long files: one that begins last would run alone at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder, file = _place(item)
        # All tests of containers share the images that they build; those of a file share what its fixtures measured.
        item.add_marker(pytest.mark.xdist_group(folder if folder == "docker" else file))
    items.sort(key=lambda item: _turn(_place(item)[0]))


def _place(item: pytest.Item) -> tuple[str, str]:
    file = item.path.relative_to(TESTS)
    return file.parts[0], str(file)


def _turn(folder: str) -> int:
    return LONG_FIRST.index(folder) if folder in LONG_FIRST else len(LONG_FIRST)
