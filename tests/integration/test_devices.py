"""Several devices of one host with real libraries: shares of the CPUs take the place of GPUs."""

from __future__ import annotations

import os

import pytest

from harness.core import store
from harness.core.schemas import Copies, Measured, NeighbourCheck
from tests.fixtures.stages import TINY, Folder, two_lines

pytestmark = [
    pytest.mark.stages,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"),
]
ONNX = {"backends": ["noop", "onnxruntime"]}


def test_copies_of_a_case_work_alone_and_together_and_both_reports_have_them(folder: Folder) -> None:
    plan = folder.plan(ONNX, models=(TINY,), rounds=2)
    done = folder("spread", "--cards", "0,1", "--layout", "copies")
    assert done.returncode == 0, done.stdout + done.stderr
    case = plan.cases[1].case_id
    copies = store.load(folder.results.copies(case), Copies, "make run")
    assert len(copies.processes) == 4
    assert {slot.device for slot in copies.slots} == {"cpu"}
    assert not set(copies.slots[0].cpus) & set(copies.slots[1].cpus)
    for place in (0, 1):
        record = store.load_raw(folder.results.copies_of(place).raw_file(case, 1))
        assert isinstance(record, Measured)
        assert len(record.windows) == len(record.blocks) == 4
        assert record.parity_timed is not None
        assert record.parity_timed.relative_l2 is not None
        assert record.parity_timed.relative_l2 < 1e-5
        assert record.cpu_use is not None
        assert record.cpu_use.affinity_end == copies.slots[place].cpus
    # Each waited while the other was alone.
    first, second = (
        store.load_raw(folder.results.copies_of(place).raw_file(case, 1)).windows  # type: ignore[union-attr]
        for place in (0, 1)
    )
    for window in first:
        for other in second:
            apart = window.end_ns <= other.start_ns or other.end_ns <= window.start_ns
            assert apart or {window.situation, other.situation} == {"together"}
    again = folder("spread", "--cards", "0,1", "--layout", "copies")
    assert "0 cases" in again.stdout
    summary = folder.summary()
    assert list(summary.copies) == [case]
    assert folder("report").returncode == 0
    assert "2 shares of the CPUs at once" in folder.results.report_details.read_text()
    assert "LAYOUT=copies" in folder.results.report.read_text()


def test_cases_are_spread_and_some_are_measured_alone_again(folder: Folder) -> None:
    plan = folder.plan({"backends": ["onnxruntime"], "batch_sizes": [1, 2]}, models=(TINY,), rounds=1)
    done = folder("spread", "--cards", "0,1", "--layout", "cases")
    assert done.returncode == 0, done.stdout + done.stderr
    check = store.load(folder.results.neighbours, NeighbourCheck, "make run")
    assert set(check.assigned) == {case.case_id for case in plan.cases}
    assert set(check.assigned.values()) == {0, 1}
    assert len(check.samples) == 2
    assert all(len(sample.alone_ns) == len(sample.spread_ns) == 1 for sample in check.samples)
    summary = folder.summary()
    assert [row.status for row in summary.rows] == ["measured"] * 2
    assert summary.neighbours == check


def test_a_layout_without_devices_is_refused(folder: Folder) -> None:
    folder.plan(ONNX, models=(TINY,))
    problem, hint = two_lines(folder("spread", "--layout", "copies"))
    assert ("CARDS names no device" in problem, "CARDS=all" in hint) == (True, True)
    problem, _ = two_lines(folder("spread", "--cards", "0", "--layout", "copies"))
    assert "One device" in problem
