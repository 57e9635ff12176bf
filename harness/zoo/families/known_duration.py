"""`spin:<duration>`: work of known duration instead of a model, for the self-test of the harness.

`spin:1ms` takes 1 ms in every process. Processes of real work differ, and verdicts must stay right then:

spin:1ms:two-speeds    a process is fast or slow, at random and for as long as it lives
spin:1ms:scatter       each process has a speed of its own, log-normal around the named speed
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping
from statistics import NormalDist

from harness.core.errors import ConfigError

PREFIX = "spin:"
STEADY, TWO_SPEEDS, SCATTER = "steady", "two-speeds", "scatter"

SLOW = 1.38
"""Of the fast speed: eager PyTorch's on two EPYC vCPUs, 76 ms and 55 ms (docs/speed.md)."""
SPREAD = 0.05
"""Standard deviation over processes, on logarithms: between the first and the second quartile of the rows that were
published from two EPYC vCPUs on 2026-11-28 (0.04 and 0.09)."""

KINDS: Mapping[str, str] = {
    STEADY: "every process takes the same time",
    TWO_SPEEDS: f"a process takes 1 or {SLOW:g} times the duration, at random",
    SCATTER: f"durations of processes are log-normal with a standard deviation of {SPREAD:.0%}",
}
"""A description of each kind of work."""

VARIABLE = "INFEROMETER_DRAW"
"""Environment variable, any text: another text draws other speeds for the same processes of a plan."""

_UNITS_NS = {"us": 1_000, "ms": 1_000_000}
_FORM = re.compile(rf"(\d+(?:\.\d+)?)(us|ms)(?::({TWO_SPEEDS}|{SCATTER}))?")


def is_spin(name: str) -> bool:
    """Whether a model's name means work of known duration."""
    return name.startswith(PREFIX)


def duration_ns(name: str) -> int:
    """Nanoseconds of `spin:50us`, `spin:1ms`, `spin:20ms:scatter`. Raises ConfigError for anything else."""
    number, unit, _ = _parts(name)
    return round(float(number) * _UNITS_NS[unit])


def kind_of(name: str) -> str:
    """The kind of a name, a key of KINDS. Raises ConfigError for any other name."""
    return _parts(name)[2] or STEADY


def slug(name: str) -> str:
    """`spin-50us` or `spin-1ms-scatter`, also the folder's name."""
    _parts(name)
    return "spin-" + name.removeprefix(PREFIX).replace(".", "_").replace(":", "-")


def factor(name: str, process: str) -> float:
    """How many times its duration the work takes in a process; the same process of the same draw has always the same.

    process: names it among all processes of a run, as `<seed>/<case>/<round>`.
    """
    kind = kind_of(name)
    if kind == STEADY:
        return 1.0
    digest = hashlib.sha256(f"{os.environ.get(VARIABLE, '')}/{process}".encode()).digest()
    uniform = (int.from_bytes(digest[:6], "big") + 0.5) / 2**48
    if kind == TWO_SPEEDS:
        return SLOW if uniform < 0.5 else 1.0
    return math.exp(NormalDist(0.0, SPREAD).inv_cdf(uniform))


def _parts(name: str) -> tuple[str, str, str | None]:
    match = _FORM.fullmatch(name.removeprefix(PREFIX))
    if match is None:
        raise ConfigError(
            f"`{name}` names no duration.",
            f"Write spin:50us or spin:20ms; spin:1ms:{TWO_SPEEDS} or spin:1ms:{SCATTER}.",
        )
    return match[1], match[2], match[3]
