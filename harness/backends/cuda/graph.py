"""A CUDA graph of the work that a function enqueues on a stream (cuda-bindings; pycuda cannot capture graphs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.bindings import runtime

from harness.core.errors import CaseError


class Graph:
    """Captured once, launched with one call. The memory that it reads and writes is fixed at capture."""

    def __init__(self, stream: Any, enqueue: Callable[[], None]) -> None:
        """`stream`: a pycuda Stream. Raises CaseError where something enqueued cannot be captured."""
        self._stream = runtime.cudaStream_t(int(stream.handle))
        # Thread-local: another thread's call to CUDA (a library's own) must not spoil the capture.
        mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        _checked(runtime.cudaStreamBeginCapture(self._stream, mode))
        try:
            enqueue()
        finally:
            ended = runtime.cudaStreamEndCapture(self._stream)
        (self._graph,) = _checked(ended)
        (self._executable,) = _checked(runtime.cudaGraphInstantiate(self._graph, 0))
        self._launch = runtime.cudaGraphLaunch

    def launch(self) -> None:
        """Enqueue the whole graph. CaseError where it is refused: unseen, that would be the shortest time of all."""
        (code,) = self._launch(self._executable, self._stream)
        if code:
            raise _refused("launched", code)

    def close(self) -> None:
        """Free the graph."""
        runtime.cudaGraphExecDestroy(self._executable)
        runtime.cudaGraphDestroy(self._graph)


def _checked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of a runtime call without its error code; CaseError where the code is an error."""
    code, *results = answer
    if code:
        raise _refused("captured", code)
    return tuple(results)


def _refused(action: str, code: Any) -> CaseError:
    return CaseError(
        f"A CUDA graph could not be {action}: {code.name}.",
        "Choose a setting without a graph for this backend (SETTINGS=…; `settings:` in the configuration).",
    )
