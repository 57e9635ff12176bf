"""Capture, replay and refusal of a CUDA graph at the boundary of cuda-bindings."""

from __future__ import annotations

import importlib
import sys
from enum import IntEnum
from typing import Any

import pytest

from harness.core.errors import CaseError
from tests.fixtures.computing_gpu import FakeGpu, Stream


class Code(IntEnum):
    """cudaError_t."""

    cudaSuccess = 0  # noqa: N815 - the library's own names
    cudaErrorStreamCaptureUnsupported = 900  # noqa: N815
    cudaErrorInvalidValue = 1  # noqa: N815


@pytest.fixture
def runtime(gpu: FakeGpu) -> Any:
    return sys.modules["cuda.bindings.runtime"]


def captured(gpu: FakeGpu, enqueue: Any) -> Any:
    return importlib.import_module("harness.backends.cuda.graph").Graph(Stream(gpu), enqueue)


def test_enqueued_work_is_recorded_once_and_done_at_each_launch(gpu: FakeGpu) -> None:
    done: list[str] = []
    graph = captured(gpu, lambda: gpu.enqueue("kernel", lambda: done.append("kernel")))
    assert done == []
    graph.launch()
    graph.launch()
    assert (done, gpu.calls) == (["kernel", "kernel"], ["launch", "launch"])
    graph.close()
    assert gpu.graphs == 0


def test_a_refused_launch_is_an_error_and_not_a_very_short_time(gpu: FakeGpu, runtime: Any) -> None:
    runtime.cudaGraphLaunch = lambda _graph, _stream: (Code.cudaErrorInvalidValue,)
    graph = captured(gpu, lambda: None)
    with pytest.raises(CaseError, match="could not be launched: cudaErrorInvalidValue"):
        graph.launch()


@pytest.mark.parametrize("step", ["cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"])
def test_a_failed_capture_names_the_reason_and_another_setting(gpu: FakeGpu, runtime: Any, step: str) -> None:
    setattr(runtime, step, lambda *_arguments: (Code.cudaErrorStreamCaptureUnsupported, None))
    with pytest.raises(CaseError, match="could not be captured: cudaErrorStreamCaptureUnsupported") as caught:
        captured(gpu, lambda: None)
    assert "without a graph" in caught.value.hint


def test_a_failure_while_capturing_ends_the_capture(gpu: FakeGpu) -> None:
    def fail() -> None:
        assert gpu.capturing is not None
        raise CaseError("The engine refuses.", "hint")

    with pytest.raises(CaseError, match="The engine refuses"):
        captured(gpu, fail)
    # Left open, whatever is called next on the stream would fail, and hide this reason.
    assert gpu.capturing is None
