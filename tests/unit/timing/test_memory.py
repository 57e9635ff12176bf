"""Resident memory as the kernel counts it."""

from __future__ import annotations

import mmap

import pytest

from harness.timing import session

COUNTERS_LAG = 4 << 20
"""The kernel adds up its per-processor counters only now and then."""


def test_the_peak_remembers_what_was_given_back() -> None:
    before = session.resident_bytes()
    block = mmap.mmap(-1, 64 << 20)  # pages that no allocator has kept
    for page in range(0, len(block), mmap.PAGESIZE):
        block[page] = 1
    held = session.resident_bytes()
    block.close()
    assert held - before > 48 << 20
    assert session.peak_bytes() >= held - COUNTERS_LAG
    assert session.peak_bytes() - session.resident_bytes() > 48 << 20


def test_without_proc_the_peak_is_asked_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = session.peak_bytes()
    monkeypatch.setattr(session, "_status", lambda field: None)
    assert session.peak_bytes() == pytest.approx(peak, rel=0.2)
    assert session.resident_bytes() > 1 << 20
