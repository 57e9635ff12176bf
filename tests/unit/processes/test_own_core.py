"""The launching thread on a CPU of its own, read back and given back."""

from __future__ import annotations

import os
import threading

import pytest

from harness.core.errors import CaseError
from harness.core.host import limits
from harness.core.schemas import Placement
from harness.processes import own_core
from harness.processes.own_core import BEGINS, OwnCore

PLACEMENT = Placement(device="cuda", precision="fp16", provider="ATen", settings={"threads": 2}, dtype_census={})


def test_from_the_warm_up_on_the_launching_thread_has_a_cpu_of_its_own_and_the_others_the_rest() -> None:
    before = limits.affinity()
    if len(before) < 2:
        pytest.skip("one CPU")
    ended, started = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: (started.set(), ended.wait()))
    other.start()
    started.wait()
    phases: list[str] = []
    core = OwnCore(True, phases.append)
    try:
        core.enter("load")
        assert limits.affinity() == before
        core.enter(BEGINS)
        assert limits.affinity() == before[-1:]
        assert other.native_id is not None
        assert os.sched_getaffinity(other.native_id) == set(before[:-1])
        end = core.end(PLACEMENT)
    finally:
        own_core.bind_threads(before, before)
        ended.set()
        other.join()
    assert end.settings == {"threads": 2, "launching_cpus": 1}
    assert limits.affinity() == before
    assert phases == ["load", BEGINS]


def test_without_the_setting_nothing_is_bound_or_recorded() -> None:
    before = limits.affinity()
    core = OwnCore(False, lambda phase: None)
    core.enter(BEGINS)
    assert limits.affinity() == before
    assert core.end(PLACEMENT) == PLACEMENT


def test_a_process_of_one_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "affinity", lambda: (3,))
    with pytest.raises(CaseError, match="one alone"):
        OwnCore(True, lambda phase: None).enter(BEGINS)
