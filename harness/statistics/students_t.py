"""Student's t distribution by SciPy, which takes a fifth of the start of a stage: imported when a test needs it."""

from __future__ import annotations


def below(freedom: float, value: float) -> float:
    """The probability of a value up to this one."""
    from scipy import special  # noqa: PLC0415 - see above

    return float(special.stdtr(freedom, value))


def quantile(freedom: float, probability: float) -> float:
    """The value below which it lies with this probability."""
    from scipy import special  # noqa: PLC0415 - see above

    return float(special.stdtrit(freedom, probability))
