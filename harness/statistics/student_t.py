"""Student's t distribution by SciPy, whose import takes a third of a stage's start-up: only a test of a difference
needs it.
"""

from __future__ import annotations


def probability_below(statistic: float, freedom: float) -> float:
    """Probability of a value up to this statistic."""
    from scipy import special  # noqa: PLC0415 - see above

    return float(special.stdtr(freedom, statistic))


def quantile(probability: float, freedom: float) -> float:
    """The statistic below which a value lies with this probability."""
    from scipy import special  # noqa: PLC0415 - see above

    return float(special.stdtrit(freedom, probability))
