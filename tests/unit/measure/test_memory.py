"""Resident memory as the kernel counts it."""

from __future__ import annotations

import pytest

from harness.measure import memory


def test_the_peak_remembers_what_was_given_back() -> None:
    before = memory.resident_bytes()
    block = bytearray(b"x" * (64 << 20))
    held = memory.resident_bytes()
    del block
    assert held - before > 48 << 20
    assert memory.peak_bytes() >= held
    assert memory.peak_bytes() >= memory.resident_bytes()


def test_without_proc_the_peak_is_asked_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = memory.peak_bytes()
    monkeypatch.setattr(memory, "_status", lambda field: None)
    assert memory.peak_bytes() == pytest.approx(peak, rel=0.2)
    assert memory.resident_bytes() > 1 << 20
