"""The launch gaps of a profile, read from the traces beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from harness.core.errors import MalformedFileError
from harness.core.regular import Limit, read
from harness.core.schemas.profile_parts import LaunchGaps, OperatorRow, PartsProfile
from harness.measure.launch_gaps import launch_gaps_of


def with_launch_gaps(parts: PartsProfile, folder: Path, warn: Callable[[str], None]) -> PartsProfile:
    """The profile with the gaps of the first of its traces that has work on a GPU; as it is where it has kept them, has
    no kernels, or no trace does. folder: of the traces. A trace that cannot be read is warned of."""
    if parts.launch_gaps is not None or not any(row.self_device_ns for row in parts.operators):
        return parts
    for name in parts.traces:
        found = _gaps(folder / name, parts.operators, warn)
        if found is not None and found.kernels_ns:
            return parts.model_copy(update={"launch_gaps": found})
    return parts


def _gaps(path: Path, operators: tuple[OperatorRow, ...], warn: Callable[[str], None]) -> LaunchGaps | None:
    try:
        told = json.loads(read(path, Limit.TRACE))
        return launch_gaps_of(told["traceEvents"] if isinstance(told, dict) else told, operators)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, MalformedFileError) as error:
        warn(
            f"{path} is no trace that can be read ({type(error).__name__}: {error}). `make profile FORCE=1` writes it."
        )
        return None
