"""One pass of a PyTorch call captured in a CUDA graph of our own, on our own stream."""

from __future__ import annotations

from typing import Any

import torch

from harness.backends.torch_place import Call, Tensors
from harness.core.errors import CaseError
from harness.core.extensions import reason


class Replay:
    """Launches the captured pass and returns its outputs, whose memory the next launch overwrites."""

    def __init__(self, call: Call, arguments: Tensors, stream: torch.cuda.Stream, pool: Any) -> None:
        """Raises CaseError where the pass does something that cannot be captured.

        pool: memory that several graphs take turns in. That is safe because only one of them runs at a time, and its
        outputs are read before another one is launched.
        """
        self._arguments = arguments  # their memory is the graph's
        self._graph = torch.cuda.CUDAGraph()
        try:
            # Thread-local: a library's own thread must not spoil the capture.
            with torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                self._outputs = call(*arguments)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise CaseError(
                f"A pass could not be captured in a CUDA graph: {reason(error)}",
                "Choose a setting without a graph for this backend (SETTINGS=…; `settings:` in the configuration).",
            ) from error
        self._replay = self._graph.replay

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """Launch; the arguments are read from where they lay at capture."""
        self._replay()
        return self._outputs

    def close(self) -> None:
        """Free the graph."""
        self._graph.reset()
