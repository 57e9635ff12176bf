"""A GPU without a GPU."""

from __future__ import annotations

import pytest

from tests.fixtures import tensorrt
from tests.fixtures.computing_gpu import FakeGpu


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """The GPU of a recording TensorRT, installed in its place. Tests of other libraries have one of their own."""
    result = FakeGpu()
    tensorrt.install(monkeypatch, result)
    return result
