"""llama.cpp with continuous batching: a slot is a sequence of one context.

All sequences share its cells (`kv_unified`), as in llama.cpp's own server: where each has its own, a step over
sequences whose numbers have a gap is computed in two parts, and each part reads the weights.
"""

from __future__ import annotations

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from harness.backends.decoder import JoiningDecoder
from harness.backends.llamacpp.decoder import LlamaCppDecoder, view


class LlamaCppSlots(JoiningDecoder, LlamaCppDecoder):
    """A join is one llama_decode of a prompt, a step is one of the latest token of every sequence."""

    unified = True

    def load(self) -> None:
        """As for static batches, with no sequence in the cache."""
        super().load()
        self._lengths: dict[int, int] = {}
        self._latest = self._tokens = np.zeros(self.job.batch_size, np.int64)
        self._computed: list[int] = []

    def join(self, slot: int, ids: NDArray[np.int64]) -> None:
        """Remove what the slot holds, and decode the prompt; only its last position gets logits."""
        self.tokens()
        self.leave(slot)
        batch = self._prompts[slot]
        wanted = view(batch.logits, self.job.prompt_length, np.int8)
        wanted[:] = 0
        wanted[len(ids) - 1] = 1
        self._run(batch, ids, np.arange(len(ids)))
        self._computed, self._lengths[slot] = [slot], len(ids)

    def leave(self, slot: int) -> None:
        """Free the cells of the slot."""
        llama_cpp.llama_memory_seq_rm(self._cache, slot, -1, -1)
        self._lengths.pop(slot, None)

    def width(self) -> int:
        """The sequences that are there."""
        return len(self._lengths)

    def step(self) -> None:
        """Decode the latest token of every sequence."""
        latest, slots = self.tokens(), sorted(self._lengths)
        for place, slot in enumerate(slots):
            self._one.seq_id[place][0] = slot
        self._run(self._one, latest[slots], np.array([self._lengths[slot] for slot in slots]))
        self._computed = slots
        for slot in slots:
            self._lengths[slot] += 1

    def tokens(self) -> NDArray[np.int64]:
        """The largest logit of each sequence of the latest call; the others keep theirs."""
        if self._tokens is None:
            self._latest[self._computed] = self._rows(len(self._computed)).argmax(-1)
            self._tokens = self._latest
        return self._tokens

    def logits(self) -> NDArray[np.float32]:
        """Of the latest call, each at its slot."""
        found = np.zeros((self.job.batch_size, self._vocabulary), np.float32)
        found[self._computed] = self._rows(len(self._computed))
        return found

    def force(self, ids: NDArray[np.int64]) -> None:
        """Replace the latest tokens."""
        self._latest = self._tokens = np.array(ids, np.int64)

    def _make_batches(self) -> None:
        slots = range(self.job.batch_size)
        self._prompts = [self._batch_of(1, self.job.prompt_length, first=slot) for slot in slots]
        self._one = self._batch_of(self.job.batch_size, 1)
