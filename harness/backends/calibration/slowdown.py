"""A backend made slower on purpose, so that a test can check that a slow-down is detected.

Set INFEROMETER_SLOWDOWN=<backend>:<factor>, such as `onnxruntime:1.05`. Each record says so in its notes and the row is
flagged: a number made this way can never pass for a measurement.
"""

from __future__ import annotations

import os

from harness.backends.base import Backend
from harness.core.errors import CaseError
from harness.timing.clock import now_ns

VARIABLE = "INFEROMETER_SLOWDOWN"


def slowdown_of(backend: str) -> float | None:
    """The factor requested for this backend, None without one. Raises CaseError for a value that is not a factor."""
    text = os.environ.get(VARIABLE, "")
    name, _, factor = text.partition(":")
    if name != backend:
        return None
    try:
        number = float(factor)
    except ValueError:
        number = 0.0
    if not 1.0 <= number <= 10.0:
        raise CaseError(f"{VARIABLE}={text} is not <backend>:<factor from 1 to 10>.", f"Unset {VARIABLE}.")
    return number


def slow_down(backend: Backend, factor: float) -> None:
    """Stretch every infer() of this object by the factor, by a busy wait."""
    infer, synchronize = backend.infer, backend.synchronize

    def stretched() -> None:
        start = now_ns()
        infer()
        synchronize()
        end = start + int((now_ns() - start) * factor)
        while now_ns() < end:
            pass

    if backend.job.in_flight:
        raise CaseError("A slow-down on purpose does not reach batches in flight.", f"Unset {VARIABLE}, or IN_FLIGHT.")
    backend.infer = stretched  # type: ignore[method-assign]  # the point of the hook
