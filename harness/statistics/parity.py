"""Parity with the fp32 reference: of output arrays, and of tokens, where a difference may be rounding (pure).

Tokens have two comparisons. Forced: at every step the decoder gets the reference's tokens as inputs, and its logits are
compared. Free: the tokens of timed requests. At the first free difference all inputs were still equal, so the forced
logits of that step show by how much the decoder's numbers differ there. A gap between two logits moves by at most twice
the largest difference of a logit: a different token is explained only where the reference's own gap, between its best
token and this one, is no larger than that. Where the reference's logits are not stored, the gap is the margin between
its two best tokens, the smallest that there can be. At a forced step the decoder's own logits are there: a different
token must be the best by them. Otherwise the token is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from harness.core.padding import Mask, applies
from harness.core.schemas import Parity, TokenParity

Outputs = Mapping[str, NDArray[np.generic]]

_INTEGERS = "iub"
"""Kinds of NumPy's types that may replace each other."""

_NAMES = frozenset(("int32", "int64", "uint32", "uint64"))
"""Types of a reference whose numbers are names (classes, tokens, places): the next number is no nearer than another.
Each counts as a one-hot vector, so that the cosine is the share of equal numbers. Smaller integers are pixels or
quantised numbers, and have a size."""

_MASKED_FROM = 1e3
"""Least magnitude of a mask, and how many times as large as every other value it is."""

PIECE = 1 << 16
"""Elements compared at a time. Whole arrays as float64 would count as the backend's peak memory, and page-fault."""

SMALL_SAMPLE = 0.1
"""Share of the median norm of the batch's samples. The distance of a sample with a smaller norm, such as one whose
outputs are almost zero, is divided by this share instead: otherwise rounding alone could give any relative distance.
Not of the mean: beside one sample of a million times the others' norm, the others would not count."""


INFINITELY_FAR = 1e30
"""A distance without a scale, or of outputs that cannot be compared: records hold no infinity."""


def compare(outputs: Outputs, reference: Outputs, classifier: bool, mask: Mask | None = None) -> Parity:
    """Distance of one batch of outputs from its reference.

    Both map output name → array of shape (batch, …). relative_l2 is ‖o − r‖ / ‖r‖ over all elements of an
    output, the worst over outputs; max_abs and cosine likewise. item_relative_l2 and item_cosine are those of the
    worst single sample: a batch of 64 hides one wholly wrong sample. top1_agreement is the share of equal arg-max
    over the last axis of the first output, for classifiers only. nonfinite counts values that are NaN in the outputs,
    or infinite on one side only; the same infinity on both sides is equal and part of no distance. The distance and
    cosine of integers of 32 and 64 bits are those of one-hot vectors. Of an output with a mask (-1e9, as in logits of
    tokens that may not be chosen) the other values are compared by themselves as well: beside it they would not count.

    mask: (batch, tokens) of padded inputs. Of outputs (batch, tokens, …) only the tokens that it shows are compared.

    Raises ValueError when an output is missing or has another shape or kind of elements, and when the reference
    contains NaN: such outputs cannot be compared at all.
    """
    first = next(iter(reference))
    _check_shapes(outputs, reference)
    samples = int(reference[first].shape[0])
    per_output = [_Sums.of(outputs[name], reference[name], samples, mask) for name in reference]
    nonfinite = sum(sums.nonfinite for sums in per_output)
    if nonfinite:
        return Parity(
            samples=samples, relative_l2=None, max_abs=None, cosine=None, top1_agreement=None, nonfinite=nonfinite
        )
    for name, sums in zip(reference, per_output, strict=True):
        if sums.undefined:
            raise ValueError(f"the reference of output `{name}` contains NaN")
    per_output += [
        _Sums.of(outputs[name], reference[name], samples, mask, lowest)
        for name in reference
        if (lowest := _mask_value(reference[name])) is not None
    ]
    top1 = None
    if classifier:
        agree = outputs[first].argmax(axis=-1) == reference[first].argmax(axis=-1)
        top1 = float(np.mean(agree[mask] if applies(mask, reference[first].shape) else agree))
    return Parity(
        samples=samples,
        relative_l2=max(sums.relative_l2() for sums in per_output),
        max_abs=max(sums.max_abs for sums in per_output),
        cosine=min(sums.cosine() for sums in per_output),
        top1_agreement=top1,
        nonfinite=0,
        item_relative_l2=max(sums.item_relative_l2() for sums in per_output),
        item_cosine=min(sums.item_cosine() for sums in per_output),
    )


def worst(parts: Iterable[Parity]) -> Parity | None:
    """The worst of several comparisons; top-1 agreement is the sample-weighted mean. None for no parts."""
    known = list(parts)
    if not known:
        return None
    nonfinite = sum(part.nonfinite for part in known)
    agreements = [(part.top1_agreement, part.samples) for part in known if part.top1_agreement is not None]
    counted = sum(samples for _, samples in agreements)
    return Parity(
        samples=sum(part.samples for part in known),
        relative_l2=None if nonfinite else max(part.relative_l2 or 0.0 for part in known),
        max_abs=None if nonfinite else max(part.max_abs or 0.0 for part in known),
        cosine=None if nonfinite else min(1.0 if part.cosine is None else part.cosine for part in known),
        top1_agreement=sum(a * n for a, n in agreements) / counted if counted else None,
        nonfinite=nonfinite,
        **worst_sample(known),
    )


def worst_sample(parts: Sequence[Parity]) -> dict[str, float | None]:
    """The fields of the worst sample over several comparisons; None where one of them did not compare samples."""
    distances, cosines = [part.item_relative_l2 for part in parts], [part.item_cosine for part in parts]
    return {
        "item_relative_l2": None if None in distances else max(filter(None, distances), default=0.0),
        "item_cosine": None
        if None in cosines
        else min((cosine for cosine in cosines if cosine is not None), default=None),
    }


def sample_distances(outputs: Outputs, reference: Outputs, rows: Sequence[int], mask: Mask | None) -> list[float]:
    """The relative L2 distance of each of these samples, the worst over outputs of floats; INFINITELY_FAR for one that
    cannot be compared. Nothing where no output has floats for each sample. Arguments as of `compare`; rows: places in
    the batch.
    """
    samples = len(next(iter(reference.values())))
    floats = {
        name: values
        for name, values in reference.items()
        if values.dtype.kind == "f" and values.shape[:1] == (samples,)
    }
    if not floats:
        return []
    distances = []
    for row in rows:
        own = {name: values[row : row + 1] for name, values in outputs.items() if values.ndim}
        expected = {name: values[row : row + 1] for name, values in floats.items()}
        try:
            found = compare(own, expected, classifier=False, mask=None if mask is None else mask[row : row + 1])
        except ValueError:
            found = None
        distances.append(INFINITELY_FAR if found is None or found.relative_l2 is None else found.relative_l2)
    return distances


def _check_shapes(outputs: Outputs, reference: Outputs) -> None:
    for name, expected in reference.items():
        if name not in outputs:
            raise ValueError(f"output `{name}` is missing; the backend gave: {', '.join(outputs) or 'nothing'}")
        if outputs[name].shape != expected.shape:
            raise ValueError(f"output `{name}` has shape {outputs[name].shape}, the reference {expected.shape}")
        ours, theirs = outputs[name].dtype, expected.dtype
        if ours.kind not in (_INTEGERS if theirs.kind in _INTEGERS else theirs.kind):
            raise ValueError(f"output `{name}` has elements of type {ours}, the reference {theirs}")


Numbers = NDArray[np.float64]


def _without_equal_infinities(ours: Numbers, theirs: Numbers) -> tuple[Numbers, Numbers, int]:
    """Both with zeros where either is not finite, and the number of those places, except where both hold the same
    infinity (a mask of -inf is right) or the reference alone is NaN."""
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if finite.all():
        return ours, theirs, 0
    lost = ~finite & (ours != theirs) & ~(np.isfinite(ours) & np.isnan(theirs))
    return np.where(finite, ours, 0.0), np.where(finite, theirs, 0.0), int(np.count_nonzero(lost))


def _mask_value(reference: NDArray[np.generic]) -> float | None:
    """The number that stands for minus infinity in a reference: its lowest one, in several places, and larger by far
    than all others; None where there is none."""
    if reference.dtype.kind != "f" or not reference.size:
        return None
    lowest = reference.min()
    if not np.isfinite(lowest) or lowest > -_MASKED_FROM:
        return None
    others = reference != lowest
    if np.count_nonzero(others) > reference.size - 2:
        return None
    finite = others & np.isfinite(reference)
    largest = float(np.max(np.abs(reference), where=finite, initial=0.0))
    return float(lowest) if 0 < _MASKED_FROM * largest <= -float(lowest) else None


@dataclass(frozen=True)
class _Sums:
    """The parts of one output's distances: sums of squares and products, one for each sample."""

    difference: Numbers
    output: Numbers
    reference: Numbers
    product: Numbers
    max_abs: float
    nonfinite: int
    undefined: bool
    """The reference holds NaN."""

    @classmethod
    def of(
        cls,
        output: NDArray[np.generic],
        reference: NDArray[np.generic],
        samples: int,
        mask: Mask | None = None,
        without: float | None = None,
    ) -> _Sums:
        """The sums of two arrays of one shape; where only one of them is not finite, only the number of such values.

        samples: of the batch. An array whose first axis has another length counts as one sample. without: a value of
        the reference whose places are left out.
        """
        # Not by numpy.linalg: unless BLAS threads are limited (`run` does), they take cores from a backend's threads.
        rows = samples if samples and output.ndim and output.shape[0] == samples else 1
        ours, theirs = output.reshape(rows, -1), reference.reshape(rows, -1)
        tokens = mask if applies(mask, reference.shape) else None
        sums = np.zeros((4, rows))
        max_abs, nonfinite, undefined = 0.0, 0, False
        for some, columns in _pieces(*ours.shape):
            a = ours[some, columns].astype(np.float64)
            b = theirs[some, columns].astype(np.float64)
            weight = np.ones_like(b)
            if tokens is not None:
                shown = _shown(tokens, some, columns, ours.shape[1])
                a[~shown] = b[~shown] = weight[~shown] = 0.0
            undefined = undefined or bool(np.isnan(b).any())
            a, b, lost = _without_equal_infinities(a, b)
            nonfinite += lost
            if without is not None:
                a[b == without] = b[b == without] = 0.0
            if nonfinite == 0:
                difference = a - b
                if reference.dtype.name in _NAMES:
                    equal = weight * (ours[some, columns] == theirs[some, columns])
                    products = (2 * (weight - equal), weight, weight, equal)
                else:
                    products = (difference * difference, a * a, b * b, a * b)
                for number, squares in enumerate(products):
                    sums[number, some] += squares.sum(axis=1)
                max_abs = max(max_abs, float(np.max(np.abs(difference))))
        return cls(sums[0], sums[1], sums[2], sums[3], max_abs, nonfinite, undefined)

    def relative_l2(self) -> float:
        """‖o − r‖ / ‖r‖. A reference of zeros has no scale: any difference is then infinitely far, none is 0."""
        reference = float(self.reference.sum())
        if reference:
            return math.sqrt(float(self.difference.sum()) / reference)
        return INFINITELY_FAR if self.max_abs else 0.0

    def cosine(self) -> float:
        """o·r / (‖o‖ ‖r‖); with zeros, 1 where both are zero, else 0."""
        norms = math.sqrt(float(self.output.sum())) * math.sqrt(float(self.reference.sum()))
        return min(float(self.product.sum()) / norms, 1.0) if norms else float(self.relative_l2() == 0.0)

    def item_relative_l2(self) -> float:
        """The largest ‖o − r‖ / ‖r‖ of one sample; SMALL_SAMPLE applies to samples that are small beside the others."""
        scale = np.maximum(self.reference, self._small)
        return math.sqrt(float(np.max(self.difference / scale))) if self._small else self.relative_l2()

    def item_cosine(self) -> float:
        """The smallest cosine of one sample; samples that are small beside the others have no direction to judge."""
        large = self.reference >= self._small
        if not self._small or not large.any():
            return self.cosine()
        norms = np.sqrt(self.output[large]) * np.sqrt(self.reference[large])
        cosines = np.divide(self.product[large], norms, out=np.zeros_like(norms), where=norms > 0)
        return min(float(cosines.min()), 1.0)

    @property
    def _small(self) -> float:
        """Square of the norm below which a sample counts as small."""
        return SMALL_SAMPLE**2 * float(np.median(self.reference) or self.reference.mean())


def _shown(mask: Mask, some: slice, columns: slice, width: int) -> Mask:
    """The mask of a piece of an output whose rows have `width` values."""
    token = np.arange(width)[columns] // (width // mask.shape[1])
    return mask[some][:, token]


def _pieces(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Parts of at most PIECE elements that cover an array: some whole rows, or a part of a row."""
    some = max(1, PIECE // max(columns, 1))
    for first in range(0, rows, some):
        for start in range(0, columns, PIECE):
            yield slice(first, first + some), slice(start, start + PIECE)


Ids = NDArray[np.int64]
Logits = NDArray[np.float32]


@dataclass(frozen=True)
class GreedyAnswer:
    """The greedy answer of fp32 eager. tokens, margins: (sequences, steps); logits: (stored, steps, vocabulary) of
    the first ones."""

    tokens: Ids
    margins: Logits
    logits: Logits

    def first(self, steps: int) -> GreedyAnswer:
        """The answer of the first steps alone."""
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

    def force(self, sequence: int, step: int, logits: Logits) -> None:
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
