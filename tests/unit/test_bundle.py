"""bundle and verify on a synthetic run: what is packed, and that each kind of damage is named."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import aggregate, bundle, report, share, verify
from harness.core import archive, store
from harness.core.errors import MalformedFileError, MissingInputError, UsageError
from harness.core.layout import BUNDLE_MANIFEST, Models, Results
from harness.core.schemas import Bundle, Plan, Summary
from harness.core.seal import sealed, unsealed
from tests.fixtures.forked import run_command_forked
from tests.synthetic_results import ENVIRONMENT_ID, MINILM, Synthetic, export_record, failed, matrix, named

Files = dict[str, bytes]


class Run:
    """A finished synthetic run on disk; `archive` is its bundle."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.results, self.models = Results(root / "results"), Models(root / "models")
        cases = matrix((MINILM,), batch_sizes=(1,))[:3]
        synthetic = Synthetic(**{"models": (MINILM,), "cases": cases, "rounds": 2, "samples": 40, **changes})
        synthetic.write(self.results.root, self.models.root)
        self.plan_id = named(synthetic.plan).plan_id
        self.folders = ["--results", str(self.results.root), "--models-dir", str(self.models.root)]
        self.make()

    def make(self) -> None:
        aggregate.stage(self.folders)
        report.stage([*self.folders[:2], "--no-charts"])

    @property
    def archive(self) -> Path:
        return self.results.bundle(self.plan_id)

    def pack(self) -> Files:
        bundle.stage(self.folders)
        return archive.unpack(self.archive)

    def replace(self, files: Files) -> None:
        self.archive.write_bytes(archive.pack(files, f"inferometer-{self.plan_id}"))

    def verify(self) -> None:
        verify.stage(["--bundle", str(self.archive)])

    def refusal(self) -> str:
        with pytest.raises(MalformedFileError) as caught:
            self.verify()
        assert "\n" not in caught.value.problem + caught.value.hint
        return caught.value.problem


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Files]:
    """A run that no test changes, and its bundle's files."""
    run = Run(tmp_path_factory.mktemp("run"))
    return run, run.pack()


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages of verify are forks; test_a_whole_bundle_verifies and the integration tests start them as users do."""
    patched = SimpleNamespace(run=run_command_forked, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(verify, "subprocess", patched)


@pytest.fixture
def copy(packed: tuple[Run, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same archive in a place of its own, to be damaged."""
    run = object.__new__(Run)
    run.results, run.models, run.folders = Results(tmp_path), packed[0].models, []
    run.plan_id = packed[0].plan_id
    run.replace(packed[1])
    monkeypatch.chdir(tmp_path)
    return run


def listed(files: Files) -> Files:
    """The files with a manifest that lists them: what a forger would do."""
    manifest = json.loads(unsealed(files[BUNDLE_MANIFEST]).content)
    rest = {name: content for name, content in files.items() if name != BUNDLE_MANIFEST}
    manifest["files"] = [
        {"path": name, "sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
        for name, content in sorted(rest.items())
    ]
    return {**rest, BUNDLE_MANIFEST: json.dumps(manifest, separators=(",", ":")).encode()}


def in_manifest(old: bytes, new: bytes) -> Callable[[Files], Files]:
    """A change under a seal that was made again: what the reader of a whole file refuses by itself."""

    def change(files: Files) -> Files:
        content = unsealed(files[BUNDLE_MANIFEST]).content
        assert old in content
        return {**files, BUNDLE_MANIFEST: sealed(content.replace(old, new, 1))}

    return change


def test_a_whole_bundle_verifies(copy: Run, capsys: pytest.CaptureFixture[str]) -> None:
    copy.verify()
    said = capsys.readouterr().out
    names = ("report-details.md", "report.md", "summary.csv", "summary.json")
    assert f"{', '.join(f'results/{name}' for name in names)} come out the same" in said
    assert f"Plan {copy.plan_id}" in said


def test_the_bundle_has_everything_that_the_report_was_made_of(packed: tuple[Run, Files]) -> None:
    run, files = packed
    plan = store.load(run.results.plan, Plan, "make plan")
    planned = [case for case in plan.cases if case.skip_reason is None]
    raw = {f"results/raw/{case.case_id}/{number}.json" for case in planned for number in (1, 2)}
    usage = {name.replace(".json", ".usage.json") for name in raw}
    rest = {"plan.json", "summary.json", "summary.csv", f"environments/{ENVIRONMENT_ID}.json"}
    rest |= {"report.md", "report-details.md"}
    expected = raw | usage | {f"results/{name}" for name in rest} | {"models/minilm-l6/export.json"}
    assert set(files) == expected | {BUNDLE_MANIFEST, "constraints.txt"}


@pytest.mark.usefixtures("forked")
def test_nothing_that_is_passed_on_names_a_folder_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, checkout = tmp_path / "me", Path(__file__).resolve().parents[2]
    monkeypatch.setenv("HOME", str(home))
    words = f"{home}/nets/net.py and {checkout}/harness/run.py failed"
    cases = matrix((MINILM,), batch_sizes=(1,))[:3]
    run = Run(tmp_path, cases=cases, change=lambda case, record: failed(case, record.round, error=words, hint=words))
    # As an earlier version wrote it: with the words as they are.
    for path in run.results.raw.glob("*/1.json"):
        record = store.load_raw(path).model_dump_json().replace("~/nets", f"{home}/nets").encode()
        seal = hashlib.sha256(record).hexdigest().encode()
        path.write_bytes(b'{"sha256":"' + seal + b'","record":' + record + b"}\n")
    assert str(home) in store.load_raw(path).error
    run.make()
    share.stage(["--results", str(run.results.root)])
    files = run.pack()
    page = {path.name: path.read_bytes() for path in run.results.root.glob("report.html")}
    tables = {path.name: path.read_bytes() for path in run.results.tables.glob("*.csv")}
    assert page
    assert tables
    for name, content in {**files, **page, **tables}.items():
        assert str(home).encode() not in content, name
        assert str(checkout).encode() not in content, name
    assert b"~/nets/net.py and harness/run.py failed" in files["results/summary.json"]
    assert "folders of this machine" not in capsys.readouterr().err
    run.verify()

    plan = store.load(run.results.plan, Plan, "test")
    store.save(run.results.plan, plan.model_copy(update={"config": f"{home}/own.yaml"}))
    run.make()
    run.pack()
    assert "results/plan.json and others name folders of this machine" in capsys.readouterr().err


@pytest.mark.usefixtures("forked")
def test_a_failed_record_is_the_same_from_every_folder_and_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message names the user's nets. Who works in that folder, or has it as home, did not change the record."""
    nets = tmp_path / "nets"
    nets.mkdir()
    run = Run(tmp_path, change=lambda case, record: failed(case, record.round, error=f"{nets}/net.onnx is no file"))
    monkeypatch.chdir(nets)
    run.make()
    monkeypatch.chdir(tmp_path)
    report.stage([*run.folders[:2], "--no-charts"])
    run.pack()
    monkeypatch.setenv("HOME", str(nets))
    report.stage([*run.folders[:2], "--no-charts"])
    run.verify()


DAMAGED: dict[str, Callable[[Run], Path]] = {
    "a record": lambda run: sorted(run.results.raw.glob("*/1.json"))[0],
    "a monitor's record": lambda run: sorted(run.results.raw.glob("*/1.usage.json"))[0],
    "an environment": lambda run: run.results.environment("0123456789ab"),
    "limits": lambda run: run.results.roof,
    "energy": lambda run: run.results.energy_file(store.load(run.results.plan, Plan, "test").cases[0].case_id),
    "an engine": lambda run: run.models.folder(MINILM.name).engine_record("fp16"),
}
TYPED = {
    "absolute": None,
    "relative": ("../models", "../results", "../models"),
    "here": ("../models", "../results", "."),
}
"""The working folder, from the results folder, and the two folders as the user types them there."""


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("damage", ["cut", "changed"])
@pytest.mark.parametrize("typed", TYPED)
@pytest.mark.parametrize("what", DAMAGED)
def test_a_bundle_with_a_damaged_record_verifies_however_its_folders_were_typed(
    what: str, typed: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    path = DAMAGED[what](run)
    if not path.is_file():
        store.save(path, export_record(MINILM))
    content = path.read_bytes()
    last = content.rindex(b"1")  # of the seal, or of the record below it
    path.write_bytes(content[:-30] if damage == "cut" else content[:last] + b"2" + content[last + 1 :])
    if (folders := TYPED[typed]) is not None:
        monkeypatch.chdir(run.results.root / folders[0])
        run.folders = ["--results", folders[1], "--models-dir", folders[2]]
    run.make()
    notes = " ".join(store.load(run.results.summary, Summary, "test").notes)
    name = path.relative_to(tmp_path).as_posix()
    assert f"{name.removeprefix('results/')} " in f" {notes} "
    assert "../" not in notes
    assert str(tmp_path) not in notes
    assert name in run.pack()
    run.verify()


def test_a_changed_record_that_no_note_names_is_refused(tmp_path: Path) -> None:
    """Damage after `aggregate`: the summary was computed from the whole record."""
    run = Run(tmp_path)
    files = run.pack()
    name = next(name for name in files if name.endswith(".usage.json"))
    at = files[name].index(b'"seal"') - 20
    run.replace(listed({**files, name: files[name][:at] + b" " + files[name][at:]}))
    assert f"{name} does not match its seal" in run.refusal()


def test_the_manifest_says_which_code_and_which_command(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.results.command.write_text("python -m harness.plan --config 'a b.yaml'\n")
    manifest = store.parse(Path("m"), run.pack()[BUNDLE_MANIFEST], Bundle, "make bundle")
    assert manifest.command == "python -m harness.plan --config 'a b.yaml'"
    assert (manifest.plan_id, manifest.git_dirty is None) == (run.plan_id, manifest.git_commit is None)


@pytest.mark.usefixtures("forked")
def test_the_record_of_an_export_comes_from_the_results(tmp_path: Path) -> None:
    run = Run(tmp_path)
    store.save(run.results.export(MINILM.name).record, export_record(MINILM))
    store.save(run.models.folder(MINILM.name).record, export_record(MINILM).model_copy(update={"weights": "seeded"}))
    run.make()
    files = run.pack()
    assert f"results/exports/{MINILM.name}/export.json" in files
    assert not [name for name in files if name.startswith("models/")]
    run.verify()


def test_the_same_files_give_the_same_archive(packed: tuple[Run, Files]) -> None:
    run, _ = packed
    first = run.archive.read_bytes()
    os.utime(run.results.report, (0, 0))
    run.archive.unlink()
    run.pack()
    assert run.archive.read_bytes() == first


def test_a_configuration_is_packed_only_as_it_was_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path)
    plan = store.load(run.results.plan, Plan, "make plan")
    config = tmp_path / "own.yaml"
    config.write_text("models: []\n")
    changes = {"config": str(config), "config_sha256": store.sha256_file(config)}
    store.save(run.results.plan, plan.model_copy(update=changes))
    run.make()
    assert run.pack()["config.yaml"] == b"models: []\n"
    config.write_text("models: [other]\n")
    assert "config.yaml" not in run.pack()
    assert "has changed since the plan" in capsys.readouterr().err


def test_a_summary_of_another_plan_is_not_packed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    plan = store.load(run.results.plan, Plan, "make plan")
    store.save(run.results.plan, plan.model_copy(update={"plan_id": "another", "cases": plan.cases[:1]}))
    with pytest.raises(UsageError, match="has other rows"):
        run.pack()


@pytest.mark.parametrize("name", ["plan", "summary", "report"])
def test_a_run_without_its_report_is_not_packed(tmp_path: Path, name: str) -> None:
    run = Run(tmp_path)
    getattr(run.results, name).unlink()
    with pytest.raises(MissingInputError, match=r"does not exist\.") as caught:
        run.pack()
    assert caught.value.hint.startswith("Run `make ")


def test_a_link_that_leads_out_is_not_packed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    secret = tmp_path / "secret.json"
    secret.write_text("mine")
    (run.results.environments / "x.json").symlink_to(secret)
    with pytest.raises(MalformedFileError, match="is a link that leads out of"):
        run.pack()


def test_a_missing_archive_is_two_lines() -> None:
    with pytest.raises(MissingInputError, match=r"There is no file nowhere\.tar\.xz"):
        verify.stage(["--bundle", "nowhere.tar.xz"])


def test_without_a_name_the_answer_is_the_next_command() -> None:
    with pytest.raises(UsageError, match="No bundle was named") as refused:
        verify.stage([])
    assert refused.value.hint.startswith("make verify BUNDLE=")


REPORT = "results/report.md"
RAW = "results/raw/minilm-l6-torch-eager-cpu-fp32-b1-s32/1.json"


def without(name: str) -> Callable[[Files], Files]:
    return lambda files: {key: value for key, value in files.items() if key != name}


def changed(name: str, old: bytes, new: bytes) -> Callable[[Files], Files]:
    def change(files: Files) -> Files:
        assert old in files[name]
        return {**files, name: files[name].replace(old, new, 1)}

    return change


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (changed(REPORT, b"minilm", b"maxilm"), f"{REPORT} does not match its checksum"),
        (changed(RAW, b"1", b"2"), f"{RAW} does not match its checksum"),
        (without(RAW), f"{RAW} is missing"),
        (lambda files: {**files, "results/more.json": b""}, "results/more.json is not in the manifest"),
        (without(BUNDLE_MANIFEST), f"it has no {BUNDLE_MANIFEST}"),
        (in_manifest(b'"schema_version": 1', b'"schema_version": "x"'), "no readable schema_version"),
        (lambda files: {**files, BUNDLE_MANIFEST: b"[]"}, "was not written by Inferometer"),
        (changed(BUNDLE_MANIFEST, b"results/report.md", b"results/report.mb"), "does not match its seal"),
        (in_manifest(b'"path": "results/report.md"', b'"path": "../report.md"'), "files.*path"),
    ],
)
def test_damage_is_named(copy: Run, packed: tuple[Run, Files], damage: Callable[[Files], Files], words: str) -> None:
    copy.replace(damage(packed[1]))
    said = copy.refusal()
    assert words in said or all(part in said for part in words.split(".*"))


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("forgery", "words"),
    [
        (changed(REPORT, b"minilm", b"maxilm"), f"{REPORT} differs from the one that its records give: line "),
        (
            changed("results/summary.csv", b"minilm", b"maxilm"),
            "results/summary.csv differs from the one that its records give",
        ),
        (
            without("results/summary.csv"),
            "results/summary.csv differs from the one that its records give: it is there only once",
        ),
        (without(RAW), "differs from the one that its records give"),
        (changed(RAW, b"1", b"2"), "differs from the one that its records give"),
        (without("results/plan.json"), "aggregate does not take its records: results/plan.json does not exist"),
        (lambda files: {**files, "results/charts/x.png": b"x"}, "results/charts/"),
        (lambda files: {**files, "harness/aggregate.py": b""}, "harness/aggregate.py does not belong in a bundle"),
        (lambda files: {**files, "matplotlibrc": b""}, "matplotlibrc does not belong in a bundle"),
    ],
)
def test_a_forgery_with_right_checksums_is_detected(
    copy: Run, packed: tuple[Run, Files], forgery: Callable[[Files], Files], words: str
) -> None:
    copy.replace(listed(forgery(packed[1])))
    assert words in copy.refusal()


def test_only_the_date_of_the_summary_may_differ() -> None:
    manifest = Bundle(plan_id="a", inferometer="0", git_commit=None, git_dirty=None, images=(), command=None, files=())
    check = lambda left, right: verify.check_derived(  # noqa: E731
        Path("x"), manifest, {"results/summary.json": left}, {"results/summary.json": right}
    )
    check(b'{\n  "created_at": "1",\n  "a": 1\n}', b'{\n  "created_at": "2",\n  "a": 1\n}')
    with pytest.raises(MalformedFileError, match="line 3"):
        check(b'{\n  "created_at": "1",\n  "a": 1\n}', b'{\n  "created_at": "2",\n  "a": 2\n}')


def test_records_that_take_forever_are_refused(copy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_TIMEOUT_S", 0.01)
    assert "aggregate needs more than 0.01 s for it" in copy.refusal()
