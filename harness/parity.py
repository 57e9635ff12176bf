"""Outputs against the fp32 reference: pure functions on arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import Parity

Outputs = Mapping[str, NDArray[np.generic]]

PIECE = 1 << 16
"""Elements compared at a time. Whole arrays as float64 would count as peak memory of the backend, and fault pages."""


def compare(outputs: Outputs, reference: Outputs, classifier: bool) -> Parity:
    """Distance of one batch of outputs from its reference.

    Both map output name → array of shape (batch, …). relative_l2 is ‖o − r‖ / ‖r‖ over all elements of an
    output, the worst over outputs; max_abs and cosine likewise. top1_agreement is the share of equal arg-max
    over the last axis of the first output, for classifiers only. nonfinite counts what is NaN on one side, or infinite
    where the other is not; the same infinity on both sides is equal and in no distance.

    Raises ValueError when an output is missing or has another shape: such outputs cannot be compared at all.
    """
    first = next(iter(reference))
    _check_shapes(outputs, reference)
    found = [_Sums.of(outputs[name], reference[name]) for name in reference]
    samples = int(reference[first].shape[0])
    nonfinite = sum(sums.nonfinite for sums in found)
    if nonfinite:
        return Parity(
            samples=samples, relative_l2=None, max_abs=None, cosine=None, top1_agreement=None, nonfinite=nonfinite
        )
    top1 = None
    if classifier:
        agree = outputs[first].argmax(axis=-1) == reference[first].argmax(axis=-1)
        top1 = float(np.mean(agree))
    return Parity(
        samples=samples,
        relative_l2=max(sums.relative_l2() for sums in found),
        max_abs=max(sums.max_abs for sums in found),
        cosine=min(sums.cosine() for sums in found),
        top1_agreement=top1,
        nonfinite=0,
    )


def worst(parts: Iterable[Parity]) -> Parity | None:
    """The worst of several comparisons; top-1 agreement is the sample-weighted mean. None for no parts."""
    found = list(parts)
    if not found:
        return None
    nonfinite = sum(part.nonfinite for part in found)
    agreements = [(part.top1_agreement, part.samples) for part in found if part.top1_agreement is not None]
    counted = sum(samples for _, samples in agreements)
    return Parity(
        samples=sum(part.samples for part in found),
        relative_l2=None if nonfinite else max(part.relative_l2 or 0.0 for part in found),
        max_abs=None if nonfinite else max(part.max_abs or 0.0 for part in found),
        cosine=None if nonfinite else min(1.0 if part.cosine is None else part.cosine for part in found),
        top1_agreement=sum(a * n for a, n in agreements) / counted if counted else None,
        nonfinite=nonfinite,
    )


def _check_shapes(outputs: Outputs, reference: Outputs) -> None:
    for name, expected in reference.items():
        if name not in outputs:
            raise ValueError(f"output `{name}` is missing; the backend gave: {', '.join(outputs) or 'nothing'}")
        if outputs[name].shape != expected.shape:
            raise ValueError(f"output `{name}` has shape {outputs[name].shape}, the reference {expected.shape}")


def _without_equal_infinities(
    ours: NDArray[np.float64], theirs: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """The finite pairs, and the number of the others but those that are the same infinity: a mask of -inf is right."""
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if finite.all():
        return ours, theirs, 0
    lost = int(np.count_nonzero(~finite & (ours != theirs)))
    return ours[finite], theirs[finite], lost


@dataclass
class _Sums:
    """Over the elements of one output: what its distances are made of. Squares and products are sums of those."""

    nonfinite: int = 0
    difference: float = 0.0
    output: float = 0.0
    reference: float = 0.0
    product: float = 0.0
    max_abs: float = 0.0

    @classmethod
    def of(cls, output: NDArray[np.generic], reference: NDArray[np.generic]) -> _Sums:
        """Of two arrays of one shape; where one of them alone is not finite, only how often."""
        # Not by numpy.linalg: where nobody bounds its BLAS (`run` does), its threads fight with a backend's for cores.
        sums, ours, theirs = cls(), output.reshape(-1), reference.reshape(-1)
        for start in range(0, ours.size, PIECE):
            a = ours[start : start + PIECE].astype(np.float64)
            b = theirs[start : start + PIECE].astype(np.float64)
            a, b, lost = _without_equal_infinities(a, b)
            sums.nonfinite += lost
            if sums.nonfinite == 0 and a.size:
                difference = a - b
                sums.difference += float(np.sum(difference * difference))
                sums.output += float(np.sum(a * a))
                sums.reference += float(np.sum(b * b))
                sums.product += float(np.sum(a * b))
                sums.max_abs = max(sums.max_abs, float(np.max(np.abs(difference))))
        return sums

    def relative_l2(self) -> float:
        """‖o − r‖ / ‖r‖. A reference of zeros has no scale: any difference is then infinitely far, none is equal."""
        if self.reference:
            return math.sqrt(self.difference / self.reference)
        return 1e30 if self.max_abs else 0.0

    def cosine(self) -> float:
        """o·r / (‖o‖ ‖r‖); of zeros, 1 where both are."""
        norms = math.sqrt(self.output) * math.sqrt(self.reference)
        return min(self.product / norms, 1.0) if norms else float(self.relative_l2() == 0.0)
