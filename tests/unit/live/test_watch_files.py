"""The files of a run, read while it writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.core import lock, store
from harness.core.errors import MalformedFileError, StorageError
from harness.core.layout import Results
from harness.core.schemas import Case, Failed, Measured
from harness.core.timestamps import utc_now
from harness.live.reader import WatchedFolder
from harness.processes.presence import ExportPresence, Presence
from tests.fixtures.watching import EAGER, ONNX, PLAN, record, row, running
from tests.synthetic_results import ENVIRONMENT_ID, environment, usage_of


@pytest.fixture
def results(tmp_path: Path) -> Results:
    result = Results(tmp_path)
    store.save(result.plan, PLAN)
    return result


def put(results: Results, found: Measured | Failed) -> Path:
    path = results.raw_file(found.case_id, found.round)
    store.save_raw(path, found)
    return path


def here(case: Case, number: int, pid: int) -> dict[str, object]:
    """A run's file that this machine can judge."""
    fields = {"pid": pid, "place": lock.place(), "started_at": utc_now(), "since": utc_now()}
    return running(case, number, done=0, **fields).model_dump()


def test_without_a_plan_there_is_nothing_to_see_and_then_there_is(tmp_path: Path) -> None:
    results, watched = Results(tmp_path), WatchedFolder(Results(tmp_path))
    assert watched.look() is None
    store.save(results.plan, PLAN)
    result = watched.look()
    assert result is not None
    assert result.state == "waiting"


def test_a_damaged_plan_is_an_error(results: Results) -> None:
    results.plan.write_text("{}")
    with pytest.raises(MalformedFileError):
        WatchedFolder(results).look()


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    with pytest.raises(StorageError, match="Not a directory"):
        WatchedFolder(Results(tmp_path / "results")).look()


def test_records_are_seen_as_they_come_change_and_go(results: Results) -> None:
    watched = WatchedFolder(results)
    path = put(results, record(EAGER, 1, 2.0))
    assert row(watched.look(), EAGER).median_ns == 2e6
    put(results, record(EAGER, 1, 3.0))
    assert row(watched.look(), EAGER).median_ns == 3e6
    assert [row(watched.look(), EAGER).median_ns for _ in range(3)] == [3e6] * 3
    path.unlink()
    assert row(watched.look(), EAGER).done == 0


def test_a_change_within_the_tick_of_another_is_not_lost(results: Results) -> None:
    watched = WatchedFolder(results)
    path = put(results, record(EAGER, 1, 2.0))
    stamp = path.parent.stat()
    watched.look()
    put(results, record(EAGER, 2, 2.0))
    os.utime(path.parent, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert row(watched.look(), EAGER).done == 2


def test_unchanged_files_are_not_read_again(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    load = store.load_raw
    monkeypatch.setattr(store, "load_raw", lambda path: (reads.append(path), load(path))[1])
    put(results, record(EAGER, 1))
    watched = WatchedFolder(results)
    for _ in range(5):
        watched.look()
    assert len(reads) == 2


def test_later_records_of_the_monitor_are_read_as_well(results: Results) -> None:
    watched = WatchedFolder(results)
    put(results, record(EAGER, 1))
    store.save(results.running, running(EAGER, 2, done=1, since=utc_now()))
    result = watched.look()
    assert result is not None
    assert result.left_s is None
    store.save(results.usage_file(EAGER.case_id, 1), usage_of(EAGER.case_id, 1))
    result = watched.look()
    assert result is not None
    assert result.left_s is not None


def test_damaged_and_foreign_records_are_no_answers(results: Results) -> None:
    put(results, record(EAGER, 1, settings_id="another"))
    damaged = put(results, record(ONNX, 1))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    moved = results.raw_file(ONNX.case_id, 2)
    store.save_raw(moved, record(EAGER, 2))
    result = WatchedFolder(results).look()
    assert result is not None
    assert (result.done, result.state) == (0, "waiting")
    assert [str(damaged) in note for note in result.notes] == [True]


def test_conditions_are_those_of_the_measured_records(results: Results) -> None:
    watched = WatchedFolder(results)
    put(results, record(EAGER, 1))
    result = watched.look()
    assert result is not None
    assert result.conditions == ""
    store.save(results.environment(ENVIRONMENT_ID), environment())
    result = watched.look()
    assert result is not None
    assert "8481C" in result.conditions
    assert "2 threads · torch 2.14.1" in result.conditions


@pytest.mark.parametrize(("pid", "state"), [(os.getpid(), "running"), (2**22 + 1, "stopped")], ids=["alive", "gone"])
def test_a_run_is_at_work_while_its_process_lives(results: Results, pid: int, state: str) -> None:
    store.save(results.running, running(EAGER, 1, done=0).model_copy(update=here(EAGER, 1, pid)))
    result = WatchedFolder(results).look()
    assert result is not None
    assert result.state == state


def test_a_run_elsewhere_is_given_up_when_no_turn_could_last_so_long(results: Results) -> None:
    watched = WatchedFolder(results)
    store.save(results.running, running(EAGER, 1, done=0, since=utc_now()))
    result = watched.look()
    assert result is not None
    assert [entry.lives for entry in result.turning] == [None]
    store.save(results.running, running(EAGER, 1, done=0, since="2020-01-01T00:00:00+00:00"))
    result = watched.look()
    assert result is not None
    assert [entry.lives for entry in result.turning] == [False]


def test_a_run_of_another_plan_and_a_damaged_file_are_named(results: Results) -> None:
    watched = WatchedFolder(results)
    store.save(results.running, running(EAGER, 1, done=0, plan_id="another"))
    result = watched.look()
    assert result is not None
    assert result.turning == ()
    assert "another" in result.notes[0]
    results.running.write_text("{}")
    result = watched.look()
    assert result is not None
    assert str(results.running) in result.notes[0]


def test_models_that_are_spread_over_gpus_are_seen_in_the_folders_of_the_gpus(results: Results) -> None:
    for place, case in enumerate((EAGER, ONNX)):
        put(results.gpu_folder(place), record(case, 1))
        store.save(results.gpu_folder(place).running, running(case, 2, done=1, since=utc_now()))
    result = WatchedFolder(results).look()
    assert result is not None
    assert (result.done, len(result.turning)) == (2, 2)
    assert (result.left_s, result.run_turns) == (None, None)


def test_looking_writes_nothing_and_takes_breaks(results: Results) -> None:
    put(results, record(EAGER, 1))
    before = {path: path.stat().st_mtime_ns for path in results.root.rglob("*")}
    watched = WatchedFolder(results)
    watched.look()
    assert {path: path.stat().st_mtime_ns for path in results.root.rglob("*")} == before
    assert 1.0 <= watched.pause_s <= 10.0


def test_a_run_writes_its_current_case_and_takes_the_file_away(results: Results) -> None:
    presence = Presence(results, PLAN.plan_id)
    presence.turn(ONNX.case_id, 2, done=3, turns=9)
    result = WatchedFolder(results).look()
    assert result is not None
    assert (result.state, result.run_done, result.run_turns) == ("running", 3, 9)
    assert [(entry.case_id, entry.round, entry.lives) for entry in result.turning] == [(ONNX.case_id, 2, True)]
    presence.close()
    presence.close()
    assert not results.running.exists()


def test_an_export_is_seen_while_its_process_lives(results: Results) -> None:
    presence = ExportPresence(results, "another plan", 2)
    presence.models("resnet50", 0)
    result = WatchedFolder(results).look()
    assert result is not None
    assert (result.state, [(entry.model, entry.number, entry.lives) for entry in result.exporting]) == (
        "exporting",
        [("resnet50", 1, True)],
    )
    presence.close()
    result = WatchedFolder(results).look()
    assert result is not None
    assert (result.state, result.exporting) == ("waiting", ())
