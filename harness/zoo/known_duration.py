"""`spin:<duration>`: not a model but work whose duration is known, for the self-test of the harness."""

from __future__ import annotations

import re

from harness.core.errors import ConfigError

PREFIX = "spin:"
_UNITS_NS = {"us": 1_000, "ms": 1_000_000}
_FORM = re.compile(r"(\d+(?:\.\d+)?)(us|ms)")


def is_spin(name: str) -> bool:
    """Whether a model's name means work of known duration."""
    return name.startswith(PREFIX)


def duration_ns(name: str) -> int:
    """Nanoseconds of `spin:50us`, `spin:1ms`, `spin:20ms`. Raises ConfigError for anything else."""
    found = _FORM.fullmatch(name.removeprefix(PREFIX))
    if found is None:
        raise ConfigError(f"`{name}` names no duration.", "Write spin:50us or spin:20ms.")
    return round(float(found.group(1)) * _UNITS_NS[found.group(2)])


def slug(name: str) -> str:
    """`spin-50us`, also the folder's name."""
    duration_ns(name)
    return "spin-" + name.removeprefix(PREFIX).replace(".", "_")
