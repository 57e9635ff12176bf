"""What TensorRT reports: its functions return None, and tell the reason only to a logger."""

from __future__ import annotations

from typing import Any

import tensorrt


class Log(tensorrt.ILogger):  # type: ignore[misc]
    """Keeps the errors."""

    def __init__(self) -> None:
        tensorrt.ILogger.__init__(self)
        self.errors: list[str] = []

    def log(self, severity: Any, message: str) -> None:
        """Called by the library."""
        if severity in (tensorrt.ILogger.INTERNAL_ERROR, tensorrt.ILogger.ERROR):
            self.errors.append(message)
