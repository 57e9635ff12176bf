"""Records on disk: written whole or not at all, and every way that a file can be wrong has its own message."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import store
from harness.core.errors import (
    CaseError,
    InferometerError,
    MalformedFileError,
    MissingInputError,
    NewerFormatError,
    OlderFormatError,
    StorageError,
)
from harness.core.lock import exclusive
from harness.core.schemas import Energy, Plan, Summary, Usage, Void
from harness.core.schemas.profile_record import ModelProfile
from tests import synthetic_results as made

CASE = made.case_of(made.RESNET, "onnxruntime", "fp32", 1)
PLAN = made.plan_of([made.RESNET], [CASE])
RECORD = made.measured(CASE, made.RESNET, 1, samples=10)


def test_a_record_comes_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "plan.json"
    assert store.save(path, PLAN)
    assert store.load(path, Plan, "make plan") == PLAN


def test_a_raw_record_comes_back_equal(tmp_path: Path) -> None:
    for name, record in (("m", RECORD), ("f", made.failed(CASE, 1))):
        store.save_raw(tmp_path / name, record)
        assert store.load_raw(tmp_path / name) == record


def test_unchanged_content_keeps_its_date(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    store.save(path, PLAN)
    os.utime(path, ns=(1, 1))
    assert not store.save(path, PLAN)
    assert path.stat().st_mtime_ns == 1
    assert store.save(path, PLAN.model_copy(update={"config": "other.yaml"}))
    assert path.stat().st_mtime_ns != 1


def test_a_crash_before_the_rename_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    store.save_bytes(path, b"old")

    def crash(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        store.save_bytes(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["plan.json"]
    assert path.read_bytes() == b"old"


def test_killed_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    store.save_bytes(path, b"old")
    code = (
        "import os, signal, sys; from pathlib import Path; from harness.core import store\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)\n"
        "store.save_bytes(Path(sys.argv[1]), b'new')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -9
    assert path.read_bytes() == b"old"


def test_others_can_read_written_files(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store.save_bytes(tmp_path / "file", b"")
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
        os.umask(0o077)
        store.save_bytes(tmp_path / "private", b"")
        assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "disk is full"), (errno.EDQUOT, "disk is full"), (errno.EACCES, "denied"), (errno.EROFS, "Read-")],
)
def test_the_systems_answers_become_storage_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=words) as caught:
        store.save_bytes(tmp_path / "file", b"content")
    assert caught.value.exit_code == 6
    assert str(tmp_path / "file") in caught.value.problem
    assert isinstance(caught.value.__cause__, OSError)


def test_other_system_errors_stay_bugs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int) -> None:
        raise OSError(errno.EINVAL, "odd")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="odd"):
        store.save_bytes(tmp_path / "file", b"content")


def test_a_file_in_the_way_of_a_folder_and_a_folder_in_the_way_of_a_file_are_storage_errors(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "below", tmp_path / "folder"):
        with pytest.raises(StorageError, match="could not be written"):
            store.save_bytes(path, b"")


@pytest.mark.parametrize("name", ["x" * 300, "circle/file", "file"])
def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="could not be written") as caught, exclusive(tmp_path / name / ".lock"):
        pass
    assert caught.value.hint.startswith("Name another: RESULTS=<folder>")


def test_a_file_in_place_of_a_folder_is_named_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be read: Not a directory") as caught:
        store.read_bytes(tmp_path / "file" / "plan.json", "make plan")
    assert caught.value.hint.startswith("Name another: RESULTS=<folder>")


def test_the_system_creates_no_folder_in_proc() -> None:
    with pytest.raises(StorageError, match="could not be written"), exclusive(Path("/proc/no-such-folder/.lock")):
        pass


def loading(path: Path) -> InferometerError:
    with pytest.raises(InferometerError) as caught:
        store.load(path, Plan, "make plan")
    assert str(path) in caught.value.problem
    return caught.value


def test_a_missing_file_names_the_command_that_makes_it(tmp_path: Path) -> None:
    error = loading(tmp_path / "plan.json")
    assert (type(error), error.exit_code, error.hint) == (MissingInputError, 3, "Run `make plan` first.")


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ('{"schema_version": 0, "anything": 1}', OlderFormatError, "format 0; this Inferometer writes format 2"),
        ('{"schema_version": 99}', NewerFormatError, "format 99; this Inferometer knows up to 2"),
        ('{"schema_version": 1, "plan_id": 5}', MalformedFileError, r"not a valid Plan: plan_id: .*string"),
        ('{"schema_version": 1, "plan_id"', MalformedFileError, "not a valid Plan"),
        ('{"schema_version": "one"}', MalformedFileError, "no readable schema_version"),
        ('{"schema_version": -1}', MalformedFileError, "no readable schema_version"),
        ('{"name": "something"}', MalformedFileError, "was not written by Inferometer"),
        ("", MalformedFileError, "was not written by Inferometer"),
        ("\0\0\0\0", MalformedFileError, "was not written by Inferometer"),
    ],
)
def test_each_way_of_being_wrong_has_its_message(tmp_path: Path, text: str, kind: type, words: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    error = loading(path)
    assert (type(error), error.exit_code) == (kind, 4)
    assert re.search(words, error.problem)
    assert "make plan" in error.hint or "RESULTS=" in error.hint


def test_an_unknown_field_and_a_nan_are_malformed(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    content = PLAN.model_dump(mode="json")
    for change in ({"extra": 1}, {"gates": {"fp32": {"relative_l2": float("nan")}}}):
        path.write_text(json.dumps({**content, **change}))
        assert type(loading(path)) is MalformedFileError


def test_a_folder_in_the_place_of_a_file_cannot_be_read(tmp_path: Path) -> None:
    assert loading(tmp_path).exit_code == 6


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("raw") / "1.json"
    store.save_raw(path, made.failed(CASE, 1))
    return path


def test_every_single_damaged_byte_is_detected(sealed: Path) -> None:
    whole = sealed.read_bytes()
    damaged = sealed.with_name("damaged.json")
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 0x01
        damaged.write_bytes(content)
        with pytest.raises(MalformedFileError, match=r"damaged\.json"):
            store.load_raw(damaged)


@given(data=st.data())
def test_any_cut_insertion_or_change_is_detected(sealed: Path, data: st.DataObject) -> None:
    whole = sealed.read_bytes()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 100)))
    content = whole[:start] + data.draw(st.binary(max_size=40)) + whole[end:]
    damaged = sealed.with_name("drawn.json")
    damaged.write_bytes(content)
    if content == whole:
        store.load_raw(damaged)
    else:
        with pytest.raises(MalformedFileError) as caught:
            store.load_raw(damaged)
        assert "measured again" in caught.value.hint


def test_a_raw_record_of_a_newer_format_is_not_called_damaged(tmp_path: Path) -> None:
    payload = b'{"schema_version":7,"status":"measured"}'
    digest = hashlib.sha256(payload).hexdigest().encode()
    (tmp_path / "1.json").write_bytes(b'{"sha256":"' + digest + b'","record":' + payload + b"}\n")
    with pytest.raises(NewerFormatError, match="format 7"):
        store.load_raw(tmp_path / "1.json")


def exported(folder: Path) -> made.ExportRecord:
    """An export record of small files that really exist, one of them ONNX weights beside their graph."""

    def file(name: str) -> made.Artifact:
        (folder / name).write_text(name)
        return made.Artifact(path=name, sha256=store.sha256_file(folder / name), size_bytes=len(name))

    record = made.export_record(made.RESNET)
    onnx = record.onnx["fp32"].model_copy(
        update={**file("model.onnx").model_dump(), "external_data": file("model.onnx.data")}
    )
    inputs = record.input_sets[0].model_copy(update={"inputs": file("in.npz"), "reference": file("out.npz")})
    return record.model_copy(
        update={"onnx": {"fp32": onnx}, "module": file("weights.safetensors"), "input_sets": (inputs,)}
    )


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data", "weights.safetensors", "in.npz", "out.npz"])
def test_each_file_of_an_export_is_checked(tmp_path: Path, name: str) -> None:
    record = exported(tmp_path)
    store.check_artifacts(tmp_path, record)
    (tmp_path / name).write_text("changed")
    with pytest.raises(MalformedFileError, match=rf"{name} has changed"):
        store.check_artifacts(tmp_path, record)
    (tmp_path / name).unlink()
    with pytest.raises(MalformedFileError, match=rf"{name} is missing"):
        store.check_artifacts(tmp_path, record)


def test_the_tail_of_a_log_is_its_end_and_survives_broken_text(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert store.tail(log) == ""
    log.write_bytes(b"\n".join(b"line %d" % number for number in range(100)) + b"\n\xff")
    assert store.tail(log, 3).splitlines()[:2] == ["line 98", "line 99"]


def test_the_tail_of_a_crash_is_its_stack(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Fatal Python error: Segmentation fault\n\nExtension modules: numpy, torch._C (total: 2)\n")
    assert store.tail(log) == "Fatal Python error: Segmentation fault\n"


def test_a_digest_depends_on_every_part_and_not_on_key_order() -> None:
    assert store.digest_of({"a": 1, "b": 2}) == store.digest_of({"b": 2, "a": 1})
    assert len({store.digest_of(1), store.digest_of("1"), store.digest_of(1, 1), store.digest_of([1])}) == 4


def test_a_refused_file_elsewhere_is_no_fault_of_our_folder(tmp_path: Path) -> None:
    """A model's own code may ask for a file while its folder is written."""
    ours = tmp_path / "models" / "mine" / "export.json"
    with pytest.raises(PermissionError), store.translate_storage_errors(ours):
        raise PermissionError(errno.EACCES, "Permission denied", "/data/weights.bin")
    for refused in (ours, ours.parent / "model.onnx", ours.parent, tmp_path / "models", None):
        with pytest.raises(StorageError), store.translate_storage_errors(ours):
            raise PermissionError(errno.EACCES, "Permission denied", None if refused is None else str(refused))


# --- files of format 1, which had one id for the plan and for its settings -----------------------------------------

FORMAT_1 = Path(__file__).parents[2] / "golden/format-1"
OLD_ID = "5f0c9a7e2b11"


@pytest.mark.parametrize(("name", "kind", "version"), [("plan", Plan, 2), ("summary", Summary, 3)])
def test_an_old_plan_and_summary_have_one_id_for_both(
    name: str, kind: type[Plan | Summary], version: int, tmp_path: Path
) -> None:
    result = store.load(FORMAT_1 / f"{name}.json", kind, "make plan")
    assert (result.schema_version, result.plan_id, result.settings_id) == (version, OLD_ID, OLD_ID)
    store.save(tmp_path / "again.json", result)
    assert store.load(tmp_path / "again.json", kind, "make plan").model_dump_json() == result.model_dump_json()


@pytest.mark.parametrize("version", [1, 2])
def test_the_figures_of_a_void_row_of_an_old_summary_are_aside(version: int, tmp_path: Path) -> None:
    old = json.loads((FORMAT_1 / "summary.json").read_bytes())
    ids = {"plan_id": "another", "settings_id": OLD_ID} if version == 2 else {}
    old["rows"] = [{**row, "grade": "F"} if row["grade"] == "B" else row for row in old["rows"]]
    (tmp_path / "summary.json").write_text(json.dumps({**old, "schema_version": version, **ids}))
    summary = store.load(tmp_path / "summary.json", Summary, "make aggregate")
    void = [(row, then) for row, then in zip(summary.rows, old["rows"], strict=True) if then["grade"] == "F"]
    assert void
    for row, then in void:
        now = row.model_dump(mode="json")
        assert row.void is not None
        assert row.void.latency_ns is not None
        assert row.void.latency_ns.median == then["latency_ns"]["median"]
        assert row.void.throughput_per_s == then["throughput_per_s"]
        assert row.parity is not None
        assert {now[name] for name in Void.model_fields if name != "custom"} == {None}
    assert [row.void for row in summary.rows if row.grade != "F"] == [None] * (len(summary.rows) - len(void))
    assert [row for row in summary.rows if row.latency_ns and row.grade != "F"]
    store.save(tmp_path / "again.json", summary)
    assert store.load(tmp_path / "again.json", Summary, "make aggregate").digest == summary.digest


@pytest.mark.parametrize(
    ("name", "kind", "identity"),
    [("usage", Usage, OLD_ID), ("energy", Energy, "6a822519d312"), ("model", ModelProfile, "p")],
)
def test_an_old_record_calls_its_settings_a_plan(
    name: str, kind: type[Usage | Energy | ModelProfile], identity: str, tmp_path: Path
) -> None:
    result = store.load(FORMAT_1 / f"{name}.json", kind, "make run")
    assert (result.schema_version, result.settings_id) == (2, identity)
    store.save(tmp_path / "again.json", result)
    assert '"plan_id"' not in (tmp_path / "again.json").read_text()
    assert store.load(tmp_path / "again.json", kind, "make run") == result


@pytest.mark.parametrize("name", ["measured", "failed"])
def test_an_old_raw_record_calls_its_settings_a_plan(name: str, tmp_path: Path) -> None:
    result = store.load_raw(FORMAT_1 / f"{name}.json")
    assert (result.status, result.schema_version, result.settings_id) == (name, 2, OLD_ID)
    store.save_raw(tmp_path / "again.json", result)
    assert store.load_raw(tmp_path / "again.json") == result


def test_a_new_plan_without_its_settings_is_malformed_and_not_taken_for_an_old_one(tmp_path: Path) -> None:
    content = PLAN.model_dump(mode="json")
    del content["settings_id"]
    (tmp_path / "plan.json").write_text(json.dumps(content))
    assert "settings_id" in loading(tmp_path / "plan.json").problem


def test_a_long_log_is_read_from_its_end_and_cut_with_a_note(tmp_path: Path) -> None:
    log = tmp_path / "1.log"
    with log.open("wb") as file:
        file.truncate(1 << 33)  # takes no space on the disk, and would take 8 GiB of memory
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast words\n")
    assert store.tail(log).endswith("last words")
    store.shorten_log(log)
    assert log.stat().st_size < store.MAX_LOG_BYTES + 100
    assert log.read_bytes().startswith(b"[8,5")
    assert store.tail(log).endswith("last words")


def test_a_record_that_no_reader_would_take_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.check_size(RECORD, "Lower it.")
    monkeypatch.setattr(store, "MAX_RECORD_BYTES", 2_000)
    with pytest.raises(CaseError, match="2,000 are the most that is read"):
        store.check_size(RECORD, "Lower it.")


def test_temporary_files_of_killed_writers_are_swept_and_those_of_others_stay(tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in (".1.json.abcdefgh", ".2.json.abcdefgh", ".lock"))
    for path in (old, young, other):
        path.write_text("half")
    for path in (old, other):
        os.utime(path, (1, 1))
    store.save_bytes(tmp_path / "plan.json", b"content")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".2.json.abcdefgh", ".lock", "plan.json"]
    store.sweep_temporary(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "plan.json"]
