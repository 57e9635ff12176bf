"""The launch gaps of profiled cases, read from the traces beside their profiles."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from harness.core.layout import Results
from harness.measure.launch_gaps import LaunchGaps, launch_gaps_of
from harness.measure.profiled import Profiled


def traced_gaps(profiled: Iterable[Profiled], results: Results, warn: Callable[[str], None]) -> dict[str, LaunchGaps]:
    """Case id → the gaps of the first of its traces that tells work on a GPU; without cases that ran on a CPU, and
    those whose traces tell none. A trace that cannot be read is warned of."""
    found = {}
    for one in profiled:
        if one.row.device != "cuda" or one.parts is None:
            continue
        for name in one.parts.traces:
            gaps = _gaps(results.profile(one.row.case_id) / name, warn)
            if gaps is not None:
                found[one.row.case_id] = gaps
                break
    return found


def _gaps(path: Path, warn: Callable[[str], None]) -> LaunchGaps | None:
    try:
        told = json.loads(path.read_bytes())
        return launch_gaps_of(told["traceEvents"] if isinstance(told, dict) else told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        warn(
            f"{path} is no trace that can be read ({type(error).__name__}: {error}). `make profile FORCE=1` writes it."
        )
        return None
