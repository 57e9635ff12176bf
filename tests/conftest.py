"""The order of test files, which `make test` runs side by side (pytest-xdist, --dist loadfile)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONG_FIRST = ("integration", "browser")
"""Folders of long files: one that begins last would run alone at the end."""
FAKED = ("tensorrt", "pycuda", "pynvml", "cuda", "openvino", "onnxruntime")


@pytest.fixture(autouse=True)
def _no_fake_is_left() -> Iterator[None]:
    """A fake library that outlives its test breaks the imports of those that follow in the same process."""
    yield
    left = [name for name in FAKED if getattr(sys.modules.get(name), "__spec__", sys) is None]
    for name in left:
        del sys.modules[name]
    assert not left, f"fakes left in sys.modules: {left}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _turn(item.path.relative_to(TESTS).parts[0]))


def _turn(folder: str) -> int:
    return LONG_FIRST.index(folder) if folder in LONG_FIRST else len(LONG_FIRST)
