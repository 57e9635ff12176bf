"""spin as a decoder, static or continuous: a known TTFT and ITL. Its deviation is the error of the token loop."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.backends.decoder import JoiningDecoder
from harness.core.errors import CaseError
from harness.core.schemas import Placement
from harness.timing.clock import now_ns
from harness.zoo.families import known_duration

PREFILL = 10
"""A prefill, or the pass of a prompt that joins, waits this many times as long as a step."""


class SpinDecoder(JoiningDecoder):
    """A step waits for the duration in the model's name, a prefill for PREFILL of them; tokens() does the waiting."""

    def load(self) -> None:
        """Take the duration from the model's name."""
        if not known_duration.is_spin(self.job.model):
            raise CaseError(f"spin does not run {self.job.model}.", "Name the work: MODELS=spin:1ms.")
        self._step_ns = round(known_duration.duration_ns(self.job.model))
        self._end_ns = 0
        self._taken: set[int] = set()
        self._ids = np.zeros(self.job.batch_size, np.int64)

    def prefill(self, ids: NDArray[np.int64]) -> None:
        """Begin a prefill."""
        self._end_ns = now_ns() + PREFILL * self._step_ns

    def prefill_padded(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """A prefill takes the same time for every prompt."""
        self.prefill(ids)

    def join(self, slot: int, ids: NDArray[np.int64]) -> None:
        """Begin the pass of one prompt."""
        self._taken.add(slot)
        self._end_ns = now_ns() + PREFILL * self._step_ns

    def leave(self, slot: int) -> None:
        """Nothing is computed for an empty slot."""
        self._taken.discard(slot)

    def width(self) -> int:
        """The slots that are taken."""
        return len(self._taken)

    def step(self) -> None:
        """Begin a step."""
        self._end_ns = now_ns() + self._step_ns

    def tokens(self) -> NDArray[np.int64]:
        """Wait for its end, without giving the CPU away."""
        while now_ns() < self._end_ns:
            pass
        return self._ids

    def logits(self) -> NDArray[np.float32]:
        """There are none."""
        return np.zeros((self.job.batch_size, self.job.shape.vocabulary), np.float32)

    def force(self, ids: NDArray[np.int64]) -> None:
        """Nothing depends on tokens."""

    def cache_bytes(self) -> int:
        """There is no cache."""
        return 0

    def placement(self) -> Placement:
        """Runs in the interpreter, in no precision."""
        settings: dict[str, str | int | float | bool] = {
            "step_ns": self._step_ns,
            "prefill_ns": PREFILL * self._step_ns,
        }
        return Placement(device="cpu", precision="none", provider="CPython", settings=settings, dtype_census={})
