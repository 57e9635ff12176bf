"""Resident memory of this process, from the kernel."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def resident_bytes() -> int:
    """Resident set now; the peak where the kernel does not tell (macOS)."""
    return _status("VmRSS") or _peak_by_rusage()


def peak_bytes() -> int:
    """Largest resident set since the process began."""
    return _status("VmHWM") or _peak_by_rusage()


def _status(field: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), None)


def _peak_by_rusage() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
