"""Remedies of findings that other findings of the same row may explain (pure).

A backend is not to be mended where other work on the machine made its times longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.aggregation.grades import Finding

PROGRAMS = frozenset({"CPU_SHARED", "STARVED", "GPU_SHARED"})
"""Work of other programs: their remedy is to close these."""

BESIDES = frozenset(
    {
        *("STEAL", "CPU_QUOTA", "OVERSUBSCRIBED", "STOPPED", "MAJOR_FAULTS"),
        *("CLOCK_DRIFT", "THERMAL", "HW_SLOWDOWN"),
    }
)
"""What else makes times longer, whatever the backend does: closing other programs does not mend it."""

MACHINE = PROGRAMS | BESIDES

HELD_BACK = frozenset({"CPU_QUOTA", "STEAL"})
"""What keeps threads from a CPU though no other process here has it."""

SCATTER = BESIDES | {"TWO_SPEEDS", "DRIFT"}
"""What makes the medians of processes differ, besides other programs."""


def with_causes(findings: Sequence[Finding]) -> list[Finding]:
    """The findings; the remedy of one that others may explain begins with their names."""
    names = list(dict.fromkeys(found.flag.name for found in findings))
    return [_with_causes(found, [name for name in names if name in found.causes]) for found in findings]


def _with_causes(found: Finding, causes: Sequence[str]) -> Finding:
    if not causes:
        return found
    listed = " and ".join(filter(None, (", ".join(causes[:-1]), causes[-1])))
    remedy = f"{listed} may explain it: begin there. {found.flag.remedy}"
    return replace(found, flag=found.flag.model_copy(update={"remedy": remedy}))
