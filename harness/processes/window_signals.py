"""How a process that works beside others learns that its next window begins: a byte in a named pipe."""

from __future__ import annotations

import os

from harness.core.errors import CaseError
from harness.core.protocol import GO, OVER
from harness.core.schemas import Situation


class WindowSignals:
    """The reading end of the named pipe of one process (WindowRequest.fifo). Every wait is in the kernel.

    Both methods raise CaseError where the parent gives the windows up, or has ended.
    """

    def __init__(self, fifo: str) -> None:
        self._pipe = os.open(fifo, os.O_RDONLY)
        self._by_byte = {byte: situation for situation, byte in GO.items()}

    def next(self) -> Situation:
        """Wait for the next window of this process; returns its situation."""
        situation = self._by_byte.get(os.read(self._pipe, 1))
        if situation is None:
            raise _given_up()
        return situation

    def over(self) -> None:
        """Wait until the windows of all processes are over."""
        if os.read(self._pipe, 1) != OVER:
            raise _given_up()


def _given_up() -> CaseError:
    return CaseError(
        "The process of another device ended early, so the devices could not work together.",
        "Its own record has the reason; the same command tries again.",
    )
