"""Changed records that were sealed again: impossible numbers, copies, and times of another clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.aggregation import checks
from harness.aggregation.usage import timed_usage
from harness.core import store
from harness.core.errors import MalformedFileError
from harness.core.schemas import Case, Measured, Row, Usage
from harness.core.seal import sealed
from tests import synthetic_results as made

CASE = made.case_of(made.RESNET, "onnxruntime", "fp32", 1)
OTHER = made.case_of(made.RESNET, "openvino", "fp32", 1)


def row_of(change: Callable[[Case, Measured], Measured | None], case: Case = CASE) -> tuple[Row, tuple[str, ...]]:
    run = made.Synthetic(models=(made.RESNET,), cases=[CASE, OTHER], samples=120, change=change)
    summary = run.summary()
    return next(row for row in summary.rows if row.case_id == case.case_id), summary.notes


def changed(**update: Any) -> Callable[[Case, Measured], Measured]:
    return lambda case, record: record.model_copy(update=update) if case == CASE else record


def details(row: Row) -> dict[str, str]:
    return {flag.name: flag.detail for flag in row.flags}


def scaled(record: Measured, factor: float) -> Measured:
    """The same process, had its clock run at another speed during samples and blocks alone."""
    blocks = tuple(block.model_copy(update={"wall_ns": int(block.wall_ns * factor)}) for block in record.blocks)
    samples = tuple(int(value * factor) for value in record.latency_ns)
    return record.model_copy(update={"latency_ns": samples, "blocks": blocks})


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("latency_ns.0", -1),
        ("warmup_ns.0", -1),
        ("round", 0),
        ("threads", 0),
        ("blocks", []),
        ("blocks.0.iterations", 0),
        ("blocks.0.wall_ns", -1),
        ("clock.overhead_ns", -1),
        ("cpu_use.wall_ns", 0),
        ("cpu_use.cpu_ns", -1),
        ("cpu_use.waited_ns", -1),
        ("parity_timed.relative_l2", -1e-9),
        ("parity_timed.top1_agreement", 1.5),
        ("parity_before.samples", -1),
        ("memory.peak_rss_bytes", -1),
        ("cold_ns.load", -1),
        ("repeats.fresh_ns.0", -1),
        ("outputs_time.outputs_ns", []),
        ("outputs_time.waited_ns", [1]),
    ],
)
def test_a_number_that_nothing_can_measure_makes_a_damaged_file(tmp_path: Path, place: str, value: Any) -> None:
    record = json.loads(made.measured(CASE, made.RESNET, 1, 120).model_dump_json())
    *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    inner = record
    for part in path:
        inner = inner[part]
    inner[last] = value
    file, body = tmp_path / "1.json", json.dumps(record)
    file.write_text(f'{{"sha256":"{made.sha(body)}","record":{body}}}\n')
    with pytest.raises(MalformedFileError) as caught:
        store.load_raw(file)
    assert place.split(".", maxsplit=1)[0] in caught.value.problem


def test_the_monitor_cannot_have_seen_a_negative_use(tmp_path: Path) -> None:
    usage = json.loads(made.usage_of(CASE.case_id, 1).model_dump_json())
    usage["samples"][0]["cpu_percent"] = -1.0
    file = tmp_path / "1.usage.json"
    file.write_bytes(sealed(json.dumps(usage).encode() + b"\n"))
    with pytest.raises(MalformedFileError):
        store.load(file, Usage, "make run")


def test_the_times_of_another_round_count_once() -> None:
    first: dict[str, Measured] = {}

    def copied(case: Case, record: Measured) -> Measured:
        kept = first.setdefault(case.case_id, record)
        return kept.model_copy(update={"round": record.round}) if case == CASE else record

    row, notes = row_of(copied)
    assert row.latency_ns is not None
    assert row.latency_ns.rounds == 1
    assert f"its times are those of {CASE.case_id}/1: it was copied" in details(row)["ROUNDS_MISSING"]
    assert any("it was copied" in note for note in notes)


@pytest.mark.parametrize("kept", ["latency_ns", "cpu_use"])
def test_the_times_of_another_case_are_no_times_of_this_one(kept: str) -> None:
    first: dict[int, Measured] = {}

    def copied(case: Case, record: Measured) -> Measured:
        if case == CASE:
            first[record.round] = record
            return record
        return record.model_copy(update={kept: getattr(first[record.round], kept)})

    row, _ = row_of(copied, OTHER)
    assert (row.status, row.latency_ns) == ("missing", None)
    assert "it was copied" in (row.reason or "")


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        ({"artifacts": {}}, "it names no file that it loaded"),
        ({"latency_ns": ()}, "it has no samples, which sync mode has"),
    ],
)
def test_a_record_without_files_or_samples_is_left_out(update: dict[str, Any], reason: str) -> None:
    row, _ = row_of(changed(**update))
    assert (row.status, row.reason) == ("missing", reason)


def test_samples_and_blocks_of_a_faster_clock_leave_time_out() -> None:
    def faster(case: Case, record: Measured) -> Measured:
        assert record.cpu_use is not None
        warm_up_ns = record.cpu_use.wall_ns - sum(block.wall_ns for block in record.blocks)
        record = record.model_copy(update={"warmup_wall_ns": warm_up_ns})
        return scaled(record, 0.25) if case == CASE else record

    row, _ = row_of(faster)
    assert row.grade == "C"
    assert "25%" not in details(row)["SAMPLES_MISMATCH"]
    assert "90% needed" in details(row)["SAMPLES_MISMATCH"]
    assert row_of(faster, OTHER)[0].grade == "A"


@pytest.mark.parametrize(("factor", "flagged"), [(0.25, True), (0.8, True), (0.96, False), (1.04, False), (2.0, True)])
def test_the_clock_of_the_monitor_saw_as_much_time_pass(factor: float, flagged: bool) -> None:
    record = made.measured(CASE, made.RESNET, 1, 120)
    assert record.cpu_use is not None
    usage = timed_usage(made.stretched(made.usage_of(CASE.case_id, 1), record))
    assert usage is not None
    watched = usage.model_copy(update={"watched_ns": round(record.cpu_use.wall_ns / factor)})
    findings, _ = checks.check_rounds(CASE, checks.timed_rounds([record], {1: watched}, {}, made.environment()))
    result = {entry.flag.name: entry for entry in findings}
    assert ("SAMPLES_MISMATCH" in result) is flagged
    assert not flagged or result["SAMPLES_MISMATCH"].flag.detail.endswith("s by the monitor's")


@pytest.mark.parametrize(("waited", "flagged"), [(0.04, True), (0.3, False)])
def test_where_the_process_waited_for_a_cpu_the_monitor_waited_too(waited: float, flagged: bool) -> None:
    record = made.measured(CASE, made.RESNET, 1, 120)
    window = made.cpu_use(threads=1, waited_ns=int(waited * 3e9))
    busy = record.model_copy(update={"cpu_use": window, "threads": 1})
    usage = timed_usage(made.stretched(made.usage_of(CASE.case_id, 1), busy))
    assert usage is not None
    late = usage.model_copy(update={"watched_ns": round(1.2 * window.wall_ns)})
    findings, _ = checks.check_rounds(CASE, checks.timed_rounds([busy], {1: late}, {}, made.environment()))
    result = {entry.flag.name for entry in findings}
    assert ("SAMPLES_MISMATCH" in result, "STARVED" in result) == (flagged, not flagged)


def test_a_process_that_says_it_reached_its_goal_has_to_show_it() -> None:
    row, _ = row_of(
        lambda case, record: (
            record.model_copy(
                update={"blocks": (record.blocks[0].model_copy(update={"iterations": 120, "wall_ns": 6_000_000_000}),)}
            )
            if case == CASE
            else record
        )
    )
    assert "stopped before its goal in 3 of 3 rounds" in details(row)["NOT_CONVERGED"]


@pytest.mark.parametrize("which", ["parity_before", "parity_timed"])
@pytest.mark.parametrize("empty", [True, False])
def test_outputs_that_were_not_compared_before_and_during_timing_are_unchecked(which: str, empty: bool) -> None:
    parity = made.parity_of(CASE, made.RESNET, samples=0) if empty else None
    row, _ = row_of(changed(**{which: parity}))
    assert row.grade == "C"
    assert "PARITY_UNCHECKED" in details(row)


def test_rounds_with_different_numbers_of_threads_are_no_row() -> None:
    row, _ = row_of(
        lambda case, record: record.model_copy(update={"threads": 1 + record.round % 2}) if case == CASE else record
    )
    assert row.grade == "C"
    assert details(row)["OTHER_THREADS"] == "the rounds were given different numbers of threads: 1, 2"
