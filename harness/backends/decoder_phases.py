"""One phase of a decoder as a pass that profilers time: the prefill, or a decode step at each place of an answer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.backends.decoder import Decoder
from harness.core.schemas.profile_record import Phase

Ids = NDArray[np.int64]


class DecoderPhase:
    """Passes of one phase, with the clock's boundaries of timing/token_session.py.

    prefill: from the prompt ids on the host to the first tokens there; each pass takes the next prompts. decode: from
    one token on the host to the next. Steps follow each other through an answer, as they do when it is timed, so that
    their mean is over all contexts of the answer; after its end the next prompts are prefilled outside the clock.
    """

    def __init__(self, decoder: Decoder, prompts: Ids, phase: Phase) -> None:
        """prompts: (samples, length). ValueError for a decode phase of one-token answers, which have no step."""
        if phase == "decode" and decoder.job.new_tokens < 2:
            raise ValueError("an answer of one token has no decode step")
        self.decoder, self.phase = decoder, phase
        self.ran: list[Phase] = []
        """The phase of each pass of the model, in order."""
        self._prompts, self._request, self._left = prompts, 0, 0

    @property
    def inputs(self) -> int:
        """Batches that the prompts make."""
        return max(1, len(self._prompts) // self.decoder.job.batch_size)

    @property
    def on_gpu(self) -> bool:
        """Whether passes run on a GPU."""
        return self.decoder.job.device == "cuda"

    def load(self) -> None:
        """Load the model."""
        self.decoder.load()

    def compile(self) -> None:
        """Compile the step, where steps are timed."""
        if self.phase == "decode":
            self.decoder.compile()

    def alone(self, passes: int) -> int:
        """Decode steps follow each other until the answer's end: begin a new answer for them."""
        if self.phase == "prefill":
            return passes
        self._begin()
        return min(passes, self._left)

    def select(self, index: int) -> None:
        """Prefill: take prompts `index` next. Decode: begin a new answer where the last one is complete."""
        if self.phase == "prefill":
            self._request = index
        elif not self._left:
            self._begin()

    def infer(self) -> None:
        """One prefill or one step."""
        self.ran.append(self.phase)
        if self.phase == "prefill":
            self.decoder.prefill(self._ids())
        else:
            self._left -= 1
            self.decoder.step()

    def synchronize(self) -> None:
        """Wait for the tokens, as the loop does."""
        self.decoder.tokens()

    def outputs(self) -> Ids:
        """The latest tokens."""
        return self.decoder.tokens().copy()

    def close(self) -> None:
        """Release the decoder."""
        self.decoder.close()

    def _begin(self) -> None:
        self.ran.append("prefill")
        self.decoder.prefill(self._ids())
        self.decoder.tokens()
        self._request += 1
        self._left = self.decoder.job.new_tokens - 1

    def _ids(self) -> Ids:
        size = self.decoder.job.batch_size
        rows = [(self._request * size + place) % len(self._prompts) for place in range(size)]
        return np.ascontiguousarray(self._prompts[rows])
