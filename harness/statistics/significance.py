"""Significance tests: of two runs (Welch, ranks), of pairs (correlated t, signed ranks), and corrections for many tests
(Holm, Benjamini-Hochberg); pure. Why these tests: docs/decisions/0006-comparison.md, 0029-interleaved.md."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import pairwise


def welch_p(baseline: Sequence[float], current: Sequence[float]) -> float | None:
    """p of Welch's t on the logarithms of positive process medians (Biometrika 34, 1947); None without any spread.

    The runs are separate, so their rounds do not form pairs, and a machine that was restless in one run makes the two
    spreads unequal: hence neither a paired nor a pooled test.
    """
    return contrast_p([(current, 1), (baseline, -1)])


def contrast_p(groups: Sequence[tuple[Sequence[float], int]]) -> float | None:
    """p of the hypothesis that a signed sum of the groups' mean logarithms is 0; each group has its own spread."""
    moments = [(sign, len(values), *_mean_and_error(values)) for values, sign in groups]
    variance = math.fsum(error for *_, error in moments)
    if variance <= 0:
        return None
    # Welch-Satterthwaite; shares of the variance, because squares of tiny variances would vanish.
    shares = [(error / variance) ** 2 / (count - 1) for _, count, _, error in moments]
    distance = abs(math.fsum(sign * mean for sign, _, mean, _ in moments)) / math.sqrt(variance)
    return 2 * t_below(1 / math.fsum(shares), -distance)


def rank_p(baseline: Sequence[float], current: Sequence[float]) -> float:
    """p of the exact rank test (Mann and Whitney, Annals of Mathematical Statistics 18, 1947), two-sided.

    Needs no shape of the distribution, so that processes of two speeds do not mislead it. A tie counts half; a sum that
    is not whole is rounded towards no difference.
    """
    pairs, before = len(baseline) * len(current), sorted(baseline)
    wins = sum((bisect_left(before, after) + bisect_right(before, after)) / 2 for after in current)
    return _rank_p(len(baseline), len(current))[math.ceil(min(wins, pairs - wins))]


@cache
def _rank_p(first: int, second: int) -> list[float]:
    """Two-sided p by the smaller of the two rank sums: the share of the orders of the processes with at most that sum.

    The orders with each sum are the coefficients of the Gaussian binomial, the product of (1 - x^(other + i)) /
    (1 - x^i) over i from 1 to `first`.
    """
    orders = [1, *[0] * (first * second)]
    for step in range(1, first + 1):
        for place in range(len(orders) - 1, second + step - 1, -1):
            orders[place] -= orders[place - second - step]
        for place in range(step, len(orders)):
            orders[place] += orders[place - step]
    every, below, doubled = math.comb(first + second, first), 0, []
    for count in orders:
        below += count
        doubled.append(min(1.0, 2 * below / every))
    return doubled


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p in the order given (Holm, Scandinavian Journal of Statistics 6, 1979).

    Rejecting where it is < 0.05 gives one or more false alarms in at most 5% of tables, whatever the dependence between
    rows.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean of the logarithms, and its squared standard error."""
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    return mean, math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1) / len(logs)


def correlated_t_p(values: Sequence[float], correlation: float) -> float | None:
    """Two-sided p of a mean of 0, for values in order of time; None where they have no spread.

    Generalised least squares (Aitken, Proceedings of the Royal Society of Edinburgh 55, 1935) for a first-order
    autoregressive process: the share that the previous value explains is subtracted from each value (Prais and Winsten,
    Cowles Commission 383, 1954), then Student's t. Exact for normal values with this correlation.
    """
    count = len(values)
    first = math.sqrt(1 - correlation**2)
    rest = [now - correlation * before for before, now in pairwise(values)]
    white = [first * values[0], *rest]
    weights = [first, *[1 - correlation] * (count - 1)]
    power = math.fsum(weight**2 for weight in weights)
    mean = math.fsum(weight * value for weight, value in zip(weights, white, strict=True)) / power
    residual = math.fsum((value - mean * weight) ** 2 for weight, value in zip(weights, white, strict=True))
    # Where all values are equal, rounding leaves a residual of about 1e-16 of their size.
    if residual <= count * (1e-12 * max(map(abs, values))) ** 2:
        return None
    distance = abs(mean) * math.sqrt(power * (count - 1) / residual)
    return 2 * t_below(count - 1, -distance)


def signed_rank_p(values: Sequence[float]) -> float:
    """Two-sided p of the exact signed-rank test (Wilcoxon, Biometrics Bulletin 1, 1945).

    Assumes only that a value and its opposite are equally likely. Zeros are left out; ties get their middle rank. A sum
    that is not whole is rounded up, towards no difference.
    """
    sizes = sorted(abs(value) for value in values if value)
    if not sizes:
        return 1.0
    positive = math.fsum(
        (bisect_left(sizes, value) + bisect_right(sizes, value) + 1) / 2 for value in values if value > 0
    )
    every = len(sizes) * (len(sizes) + 1) / 2
    return _signed_rank_p(len(sizes))[math.ceil(min(positive, every - positive))]


@cache
def _signed_rank_p(count: int) -> list[float]:
    """Two-sided p by the smaller of the two sums of ranks: the share of sign choices with at most that sum."""
    counts = [1, *[0] * (count * (count + 1) // 2)]
    for rank in range(1, count + 1):
        for total in range(len(counts) - 1, rank - 1, -1):
            counts[total] += counts[total - rank]
    below, shares = 0, []
    for number in counts:
        below += number
        shares.append(min(1.0, 2 * below / 2**count))
    return shares


def benjamini_hochberg(p_values: Sequence[float], alpha: float) -> list[bool]:
    """Which hypotheses are rejected, in the order given, so that on average at most `alpha` of them are wrongly so."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    last = max((rank for rank, place in enumerate(order, 1) if p_values[place] <= alpha * rank / len(order)), default=0)
    chosen = set(order[:last])
    return [place in chosen for place in range(len(p_values))]


def t_below(freedom: float, value: float) -> float:
    """The probability of a value of Student's t up to this one."""
    from scipy import special  # noqa: PLC0415 - a fifth of the start of a stage, and few need it

    return float(special.stdtr(freedom, value))


def t_quantile(freedom: float, probability: float) -> float:
    """The value below which Student's t lies with this probability."""
    from scipy import special  # noqa: PLC0415 - as above

    return float(special.stdtrit(freedom, probability))
