"""The e2e boundary: from text or JPEG bytes to the answer, in three parts that add up to the sample.

preprocess   text or JPEG bytes → input arrays: tokenise, or decode and transform; on the calling thread alone
inference    the arrays are handed to the backend, one forward pass, its outputs are handed back as copies
postprocess  outputs → the answer: probabilities of the likeliest classes, a sentence embedding, the next token
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness.core.new_inputs import Arrays
from harness.core.schemas import Block, SplitSamples
from harness.timing import clock
from harness.timing.modes import Inference, Mode
from harness.timing.repeat_check import Rewritable

RawSample = bytes | str
"""A JPEG file, or a text."""


_AGAIN = 2
"""Batches that the repeat check prepares again: in many e2e samples, decoding takes most of the time."""


class Fed(Inference, Protocol):
    """A backend that takes new arrays while it runs."""

    def feed(self, batch: Arrays) -> None:
        """Let the next infer() use these arrays."""


class EndToEnd(Mode):
    """Sync, with everything that a caller must do before and after the inference."""

    def __init__(
        self,
        backend: Fed,
        raw: Sequence[Sequence[RawSample]],
        prepare: Callable[[Sequence[RawSample]], Arrays],
        answer: Callable[[Arrays, Arrays], object],
    ) -> None:
        """`raw`: the batches as a caller has them; `answer` takes the outputs and the prepared inputs."""
        super().__init__(backend, len(raw))
        self._fed = backend
        self._raw = raw
        self._prepare = prepare
        self._answer = answer
        self._parts: tuple[array[int], array[int], array[int]] = (array("q"), array("q"), array("q"))
        self._chosen = raw[0]

    def select_batch(self, index: int) -> None:
        """Select the batch that run_once() starts from."""
        self._chosen = self._raw[index]

    def run_once(self) -> None:
        """Run from the raw samples to the answer."""
        batch = self._prepare(self._chosen)
        self._fed.feed(batch)
        self._fed.infer()
        self._fed.synchronize()
        self._answer(self._fed.outputs(), batch)

    def rewritable(self, batches: Sequence[Arrays]) -> Rewritable:
        """The inference part alone, on arrays of the first batches: no raw samples give an input between two others."""
        del batches
        prepared = [
            {name: np.array(values) for name, values in self._prepare(batch).items()} for batch in self._raw[:_AGAIN]
        ]
        backend, latest = self._fed, dict[str, NDArray[np.generic]]()
        chosen = 0

        def make_ready(index: int) -> None:
            nonlocal chosen
            chosen = index

        def run_once() -> None:
            backend.feed(prepared[chosen])
            backend.infer()
            backend.synchronize()
            latest.update(backend.outputs())

        return Rewritable(prepared, make_ready, run_once, lambda: dict(latest))

    def block(
        self, samples: array[int], first: int, block_ns: int, min_iterations: int, deadline: int | None = None
    ) -> Block:
        """Time each sample and its parts."""
        backend, raw, batches, now_ns = self._fed, self._raw, self.batches, clock.now_ns
        feed, infer, synchronize, outputs = backend.feed, backend.infer, backend.synchronize, backend.outputs
        prepare, answer = self._prepare, self._answer
        before, between, after = self._parts_for(len(samples))
        last = len(samples)
        position = first
        block_start = now_ns()
        earliest_end = block_start + block_ns
        wanted = first + min_iterations
        while True:
            chosen = raw[position % batches]
            start = now_ns()
            batch = prepare(chosen)
            prepared = now_ns()
            feed(batch)
            infer()
            synchronize()
            arrays = outputs()
            inferred = now_ns()
            answer(arrays, batch)
            end = now_ns()
            samples[position] = end - start
            before[position] = prepared - start
            between[position] = inferred - prepared
            after[position] = end - inferred
            position += 1
            if position == last or (end >= earliest_end and position >= wanted) or (deadline and end >= deadline):
                return Block(iterations=position - first, wall_ns=end - block_start)

    def split_samples(self, used: int) -> SplitSamples:
        """The parts of each measured sample."""
        before, between, after = (tuple(part[:used]) for part in self._parts)
        return SplitSamples(preprocess=before, inference=between, postprocess=after)

    def _parts_for(self, length: int) -> tuple[array[int], array[int], array[int]]:
        # Allocated once for warm-up and once for measuring, with the first block of each.
        if len(self._parts[0]) != length:
            empty = bytes(8 * length)
            self._parts = (array("q", empty), array("q", empty), array("q", empty))
        return self._parts
