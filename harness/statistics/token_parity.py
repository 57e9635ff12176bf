"""Whether a decoder gives the tokens of fp32 eager, and whether a different token is a matter of rounding (pure).

Two comparisons. Forced: at every step the decoder gets the reference's tokens as inputs, and its logits are compared.
Free: the tokens of timed requests. At the first free difference all inputs were still equal, so the forced logits of
that step show by how much the decoder's numbers differ there. A gap between two logits moves by at most twice the
largest difference of a logit: a different token is explained only where the reference's own gap, between its best
token and this one, is no larger than that. Where the reference's logits are not stored, the gap is the margin between
its two best tokens, the smallest that there can be. At a forced step the decoder's own logits are there: a different
token must be the best by them. Otherwise the token is wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import TokenParity

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class GreedyAnswer:
    """Of fp32 eager. tokens, margins: (sequences, steps); logits: (stored, steps, vocabulary) of the first ones."""

    tokens: Ids
    margins: Floats
    logits: Floats

    def first(self, steps: int) -> GreedyAnswer:
        """Its beginning."""
        return GreedyAnswer(self.tokens[:, :steps], self.margins[:, :steps], self.logits[:, :steps])


@dataclass
class ParityTally:
    """Adds up comparisons of one process."""

    reference: GreedyAnswer
    moved: dict[tuple[int, int], float] = field(default_factory=dict)
    """(sequence, step) → twice the largest difference of a logit."""
    _best: dict[tuple[int, int], Ids] = field(default_factory=dict)
    """(sequence, step) → the tokens with the decoder's own highest logit: several where they are equal."""
    _agree: int = 0
    _forced: int = 0
    _unexplained: int = 0
    _max_abs: float = 0.0
    _worst_l2: float = 0.0
    _worst_cosine: float = 1.0
    _nonfinite: int = 0
    _free: int = 0
    _equal: int = 0
    _first: tuple[int, float, float] | None = None

    def force(self, sequence: int, step: int, logits: Floats) -> None:
        """One forced step of a sequence with stored logits. logits: (vocabulary,); step: from 0."""
        ours = logits.astype(np.float64)
        theirs = self.reference.logits[sequence, step].astype(np.float64)
        self._forced += 1
        lost = int(np.count_nonzero(~np.isfinite(ours)))
        if lost:
            self._nonfinite += lost
            return
        difference = ours - theirs
        largest = float(np.abs(difference).max())
        # A decoder of several batch sizes is compared with each of them.
        self.moved[sequence, step] = max(2 * largest, self.moved.get((sequence, step), 0.0))
        self._best[sequence, step] = np.flatnonzero(ours == ours.max())
        self._max_abs = max(self._max_abs, largest)
        norm = math.sqrt(float(theirs @ theirs))
        self._worst_l2 = max(self._worst_l2, math.sqrt(float(difference @ difference)) / norm if norm else 0.0)
        product = norm * math.sqrt(float(ours @ ours))
        self._worst_cosine = min(self._worst_cosine, float(ours @ theirs) / product if product else 1.0)
        self._agree += int(ours.argmax()) == int(self.reference.tokens[sequence, step])

    def forced_token(self, sequence: int, step: int, chosen: int) -> None:
        """The token that the decoder itself chose at a forced step: the reference's, or the best by its own logits.

        Right logits beside wrong tokens would pass for right. Call force() for the step before.
        """
        own = self._best.get((sequence, step), ())
        if chosen != int(self.reference.tokens[sequence, step]) and chosen not in own:
            self._unexplained += 1

    def free(self, sequence: int, tokens: Ids) -> None:
        """The tokens of a timed request for a prompt with a reference. tokens: (steps,)."""
        self._free += 1
        wanted = self.reference.tokens[sequence, : len(tokens)]
        differing = np.flatnonzero(tokens != wanted)
        if not differing.size:
            self._equal += 1
            return
        step = int(differing[0])
        margin, moved = float(self.reference.margins[sequence, step]), self._moved(sequence, step)
        if self._first is None or step < self._first[0]:
            self._first = step, margin, moved
        if self._gap(sequence, step, int(tokens[step])) > moved:
            self._unexplained += 1

    def after_forcing(self) -> ParityTally:
        """The same forced comparison, and no free sequence yet."""
        return replace(self, _unexplained=0, _free=0, _equal=0, _first=None)

    def result(self) -> TokenParity:
        """Everything so far."""
        lost = self._nonfinite > 0
        return TokenParity(
            sequences=len(self.reference.logits),
            steps=self._forced,
            max_abs=None if lost else self._max_abs,
            relative_l2=None if lost else self._worst_l2,
            cosine=None if lost else min(1.0, self._worst_cosine),
            nonfinite=self._nonfinite,
            forced_agreement=self._agree / self._forced if self._forced else 0.0,
            free_sequences=self._free,
            free_equal=self._equal,
            first_difference=None if self._first is None else self._first[0] + 1,
            first_margin=None if self._first is None else self._first[1],
            first_moved=None if self._first is None else self._first[2],
            unexplained=self._unexplained,
        )

    def _moved(self, sequence: int, step: int) -> float:
        """Where the step's logits are not stored: the largest of all that are."""
        return self.moved.get((sequence, step), 2 * self._max_abs)

    def _gap(self, sequence: int, step: int, token: int) -> float:
        """How far the reference has a token below its own; the margin where its logits are not stored."""
        if sequence >= len(self.reference.logits):
            return float(self.reference.margins[sequence, step])
        logits = self.reference.logits[sequence, step].astype(np.float64)
        if not 0 <= token < logits.size:
            return math.inf
        return float(logits[self.reference.tokens[sequence, step]] - logits[token])


def worst_token_parity(parts: list[TokenParity]) -> TokenParity | None:
    """The worst of several processes, figure by figure; counts are sums. None without any."""
    if not parts:
        return None
    lost = any(part.nonfinite for part in parts)
    differing = [part for part in parts if part.first_difference is not None]
    first = min(differing, key=lambda part: part.first_difference or 0) if differing else None
    return TokenParity(
        sequences=max(part.sequences for part in parts),
        steps=sum(part.steps for part in parts),
        max_abs=None if lost else max(part.max_abs or 0.0 for part in parts),
        relative_l2=None if lost else max(part.relative_l2 or 0.0 for part in parts),
        cosine=None if lost else min(1.0 if part.cosine is None else part.cosine for part in parts),
        nonfinite=sum(part.nonfinite for part in parts),
        forced_agreement=min(part.forced_agreement for part in parts),
        free_sequences=sum(part.free_sequences for part in parts),
        free_equal=sum(part.free_equal for part in parts),
        first_difference=None if first is None else first.first_difference,
        first_margin=None if first is None else first.first_margin,
        first_moved=None if first is None else first.first_moved,
        unexplained=sum(part.unexplained for part in parts),
    )
