"""Outputs against the fp32 reference: pure functions on arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import Parity

Outputs = Mapping[str, NDArray[np.generic]]


def compare(outputs: Outputs, reference: Outputs, classifier: bool) -> Parity:
    """Distance of one batch of outputs from its reference.

    Both map output name → array of shape (batch, …). relative_l2 is ‖o − r‖ / ‖r‖ over all elements of an
    output, the worst over outputs; max_abs and cosine likewise. top1_agreement is the share of equal arg-max
    over the last axis of the first output, for classifiers only.

    Raises ValueError when an output is missing or has another shape: such outputs cannot be compared at all.
    """
    first = next(iter(reference))
    _check_shapes(outputs, reference)
    nonfinite = sum(int(np.count_nonzero(~np.isfinite(_f64(outputs[name])))) for name in reference)
    samples = int(reference[first].shape[0])
    if nonfinite:
        return Parity(
            samples=samples, relative_l2=None, max_abs=None, cosine=None, top1_agreement=None, nonfinite=nonfinite
        )
    distances = [_distance(_f64(outputs[name]), _f64(reference[name])) for name in reference]
    top1 = None
    if classifier:
        agree = outputs[first].argmax(axis=-1) == reference[first].argmax(axis=-1)
        top1 = float(np.mean(agree))
    return Parity(
        samples=samples,
        relative_l2=max(d[0] for d in distances),
        max_abs=max(d[1] for d in distances),
        cosine=min(d[2] for d in distances),
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


def _f64(array: NDArray[np.generic]) -> NDArray[np.float64]:
    return np.asarray(array, dtype=np.float64)


def _distance(output: NDArray[np.float64], reference: NDArray[np.float64]) -> tuple[float, float, float]:
    difference = output - reference
    norm = _norm(reference)
    norms = norm * _norm(output)
    # A reference of zeros has no scale: any difference is then infinitely far, none is equal.
    relative = _norm(difference) / norm if norm else (0.0 if not difference.any() else 1e30)
    cosine = float(np.sum(output * reference)) / norms if norms else float(relative == 0.0)
    return relative, float(np.max(np.abs(difference), initial=0.0)), min(cosine, 1.0)


def _norm(array: NDArray[np.float64]) -> float:
    # Not numpy.linalg.norm: BLAS would use threads of its own, which fight for the cores with a backend's that spin.
    return math.sqrt(float(np.sum(np.square(array))))
