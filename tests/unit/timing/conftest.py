"""What a session changes of the whole process is put back."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def collector() -> Iterator[None]:
    yield
    gc.enable()
    gc.unfreeze()
