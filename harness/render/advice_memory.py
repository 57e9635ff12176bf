"""The rule about memory that a backend gives back and asks for again in each inference (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from harness.core.schemas import Row
from harness.render import units
from harness.render.group import Group, Recommendation, listed
from harness.render.series import name

MANY_FAULTS = 256
"""Minor page faults an inference that are worth a word: 1 MiB in pages of 4 KiB, about 0.1 ms or more."""

KEEP = "MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_MMAP_THRESHOLD_=1000000000"


def page_faults(group: Group) -> Iterator[Recommendation]:
    """Rows on a CPU whose inferences fault in pages that an earlier inference had already."""
    found = [(row, faults) for row in group.rows if (faults := _faults(row)) >= MANY_FAULTS]
    if not found:
        return
    told = [f"{units.whole(faults)} with {name(row)} at batch {row.batch_size}" for row, faults in found]
    text = (
        f"page faults in each inference: {listed(told)}. The C library gives memory back to the system and asks for it "
        f"again, and the system clears each page. `{KEEP} make bench RESULTS=…` measures what keeping it would bring; "
        "an allocator such as jemalloc or tcmalloc (LD_PRELOAD) keeps it as well."
    )
    yield group.recommendation("page faults", text, tuple(row.case_id for row, _ in found))


def _faults(row: Row) -> int:
    """Of one inference, on average over the timed loops of all rounds; 0 where it was not watched."""
    if row.device != "cpu" or row.usage is None or row.latency_ns is None or not row.latency_ns.n:
        return 0
    return round(row.usage.minor_faults / row.latency_ns.n)
