"""One changed character in any file of a results folder: the next stage that reads it refuses it or names it."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness import aggregate, bundle, compare, plan, report, share, verify
from harness.core import archive, cli, file_sums, store
from harness.core.errors import InferometerError, MalformedFileError, MissingInputError
from harness.core.layout import BUNDLE_MANIFEST, Models, Results
from harness.core.schemas import CpuLimits, CpuRoof, Plan, Summary
from harness.core.seal import sealed, unsealed
from tests.synthetic_results import MINILM, Synthetic, environment, export_record, matrix

CONFIG = {
    "models": ["spin:1ms"],
    "matrix": [{"backends": ["spin"], "precisions": ["fp32"], "batch_sizes": [1]}],
}
ROOF = CpuRoof(
    created_at="2026-11-29T00:00:00+00:00",
    environment_id="c0ffee123456",
    device=environment().machine.cpu,
    machine=environment().machine,
    cpus=2,
    cache_bytes=32 << 20,
    limits=(CpuLimits(threads=2, flops={"fp32": 400e9}, copy_bytes_per_s=20e9),),
    unmeasured={},
)
PLACES = 5
"""Characters that are changed in each file."""


class Run:
    """A results folder of every stage that a CPU has, without a process having been measured."""

    def __init__(self, root: Path) -> None:
        self.results, self.models = Results(root / "results"), Models(root / "models")
        self.folders = ["--results", str(self.results.root), "--models-dir", str(self.models.root)]
        self.only = self.folders[:2]

    def make(self) -> Run:
        cases = matrix((MINILM,), batch_sizes=(1,))[:2]
        run = Synthetic(models=(MINILM,), cases=cases, rounds=2, samples=40)
        self.results.root.mkdir(parents=True)
        config = self.results.root.parent / "config.yaml"
        config.write_text(json.dumps(CONFIG))
        plan.stage(["--config", str(config), *self.folders])  # for command.txt
        run.write(self.results.root, self.models.root)
        store.save(self.results.export(MINILM.name).record, export_record(MINILM))
        store.save(self.results.roof, ROOF)
        aggregate.stage(self.folders)
        report.stage([*self.only, "--no-charts"])
        share.stage(self.only)
        with_threshold = [*self.only, "--threshold", "latency_p50<100s"]
        compare.stage(with_threshold)
        report.stage(self.only)
        return self

    def copy(self, root: Path) -> Run:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.results.root.parent, root)
        return Run(root)

    def inputs(self) -> list[Path]:
        results = store.load(self.results.summary, Summary, "make aggregate").inputs
        return [self.results.root / name for name in results if not name.startswith(file_sums.MODELS)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("whole")).make()


def change(path: Path, place: int) -> None:
    """Another digit for a digit, another letter for what is none."""
    content = bytearray(path.read_bytes())
    old = content[place]
    content[place] = ord("7") if chr(old).isdigit() and old != ord("7") else ord("8") if old != ord("8") else ord("9")
    path.write_bytes(content)


def places(path: Path) -> list[int]:
    """Some of the places of a file: digits above all, since these pass for others."""
    content = path.read_bytes()
    chosen = random.Random(path.name)  # noqa: S311 - no secret
    digits = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
    return [0, len(content) - 1, *chosen.choices(digits or range(len(content)), k=PLACES - 2)]


def refused(stage: Callable[[list[str]], None], options: list[str], path: Path) -> None:
    with pytest.raises(InferometerError) as caught:
        stage(options)
    assert path.name in caught.value.problem or str(path.parent.name) in caught.value.problem, caught.value.problem
    assert "\n" not in caught.value.problem + caught.value.hint
    assert caught.value.exit_code > 1


def aggregated_or_noted(run: Run, path: Path) -> None:
    """`aggregate` refuses the file, or the summary names it among what was left out."""
    said: Sequence[str]
    try:
        aggregate.stage(run.folders)
        said = store.load(run.results.summary, Summary, "make aggregate").notes
    except InferometerError as error:
        said = [error.problem]
    named = path.name.split(".")[0]
    by_id = named if len(named) > 8 else path.name  # an environment is named by its id
    assert any(by_id in line or path.name in line or f"{path.parent.name}/{named}" in line for line in said), said


def test_a_changed_character_of_any_input_is_seen_by_every_stage_after_it(whole: Run, tmp_path: Path) -> None:
    inputs = [path.relative_to(whole.results.root) for path in whole.inputs()]
    kinds = {str(name.parts[0]) for name in inputs}
    assert kinds == {"plan.json", "exports", "environments", "raw", "roof.json"}
    assert any(name.name.endswith(".usage.json") for name in inputs)
    for name in inputs:
        for place in places(whole.results.root / name):
            run = whole.copy(tmp_path / "damaged")
            path = run.results.root / name
            change(path, place)
            refused(report.stage, [*run.only, "--no-charts"], path)
            refused(share.stage, run.only, path)
            refused(compare.stage, [*run.only, "--threshold", "latency_p50<100s"], path)
            refused(bundle.stage, run.folders, path)
            aggregated_or_noted(run, path)


def test_a_changed_character_of_any_other_file_is_seen_by_the_stage_that_reads_it(whole: Run, tmp_path: Path) -> None:
    readers: dict[str, tuple[Callable[[list[str]], None], str]] = {
        "summary.json": (report.stage, "only"),
        "command.txt": (report.stage, "only"),
        "written/plan.json": (report.stage, "only"),
        "written/aggregate.json": (bundle.stage, "folders"),
        "written/report.json": (bundle.stage, "folders"),
        "summary.csv": (bundle.stage, "folders"),
        "report.md": (bundle.stage, "folders"),
        "report-details.md": (bundle.stage, "folders"),
    }
    for chart in whole.results.charts.iterdir():
        readers[f"charts/{chart.name}"] = (bundle.stage, "folders")
    read_by_none = {
        "metrics.prom",
        "comparison.md",
        "pr-comment.md",
        "junit.xml",
        ".lock",
        "written/share.json",
        "written/compare.json",
    }
    with_a_test_of_their_own = {"comparison.json", "report.html"}
    there = {str(path.relative_to(whole.results.root)) for path in whole.results.root.rglob("*") if path.is_file()}
    there -= {str(path.relative_to(whole.results.root)) for path in whole.inputs()}
    there = {name for name in there if not name.startswith("tables/")}
    assert there == readers.keys() | read_by_none | with_a_test_of_their_own
    for name, (stage, options) in readers.items():
        for place in places(whole.results.root / name):
            run = whole.copy(tmp_path / "damaged")
            change(run.results.root / name, place)
            refused(stage, getattr(run, options), run.results.root / name)


def test_a_changed_comparison_is_left_out_of_the_report_and_said(
    whole: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = whole.copy(tmp_path / "damaged")
    change(run.results.comparison, 300)
    report.stage([*run.only, "--no-charts"])
    assert "comparison.json has changed since it was written" in capsys.readouterr().err
    assert '<section id="comparison"' not in run.results.report_page.read_text()


def test_a_changed_page_is_not_logged(whole: Run, tmp_path: Path) -> None:
    run = whole.copy(tmp_path / "damaged")
    change(run.results.report_page, 5000)
    refused(share.stage, [*run.only, "--mlflow", "sqlite:///never.db"], run.results.report_page)


def test_a_record_that_was_changed_before_it_was_packed_is_refused_by_verify(whole: Run, tmp_path: Path) -> None:
    """Also where the manifest lists the changed file."""
    run = whole.copy(tmp_path / "packed")
    bundle.stage(run.folders)
    path = run.results.bundle(store.load(run.results.plan, Plan, "make plan").plan_id)
    verify.stage(["--bundle", str(path)])
    files = archive.unpack(path)
    manifest = json.loads(unsealed(files.pop(BUNDLE_MANIFEST)).content)
    name = "results/roof.json"
    files[name] = files[name].replace(b"400", b"401", 1)
    for entry in manifest["files"]:
        entry["sha256"] = hashlib.sha256(files[entry["path"]]).hexdigest()
    files[BUNDLE_MANIFEST] = json.dumps(manifest, separators=(",", ":")).encode()
    path.write_bytes(archive.pack(files, "inferometer-forged"))
    with pytest.raises(MalformedFileError, match=r"results/roof\.json does not match its seal"):
        verify.stage(["--bundle", str(path)])


def test_a_file_that_was_measured_again_makes_the_summary_old(whole: Run, tmp_path: Path) -> None:
    """Its own checksum is right: only the chain shows it."""
    run = whole.copy(tmp_path / "again")
    path = next(path for path in run.inputs() if path.name == "1.json")
    record = store.load_raw(path)
    store.save_raw(path, record.model_copy(update={"started_at": "2026-11-30T00:00:00Z"}))
    with pytest.raises(MalformedFileError, match=r"1\.json has changed since .*summary\.json was computed") as caught:
        report.stage(run.only)
    assert "`make aggregate report`" in caught.value.hint
    aggregate.stage(run.folders)
    report.stage([*run.only, "--no-charts"])


def test_a_seal_made_again_by_hand_is_detected_by_the_chain(whole: Run, tmp_path: Path) -> None:
    run = whole.copy(tmp_path / "forged")
    path = next(path for path in run.inputs() if path.parent.name == "environments")
    path.write_bytes(sealed(unsealed(path.read_bytes()).content.replace(b"Intel", b"Other")))
    refused(report.stage, run.only, path)


def test_a_missing_input_stops_the_bundle_and_no_report(whole: Run, tmp_path: Path) -> None:
    """A summary may be kept without its samples; a bundle is the whole run."""
    run = whole.copy(tmp_path / "some")
    next(path for path in run.inputs() if path.name == "1.json").unlink()
    report.stage([*run.only, "--no-charts"])
    with pytest.raises(MissingInputError, match=r"1\.json is gone"):
        bundle.stage(run.folders)


def test_the_plan_of_the_next_run_is_warned_of(whole: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = whole.copy(tmp_path / "next")
    result = store.load(run.results.plan, Plan, "make plan")
    store.save(run.results.plan, result.model_copy(update={"plan_id": "another"}))
    report.stage([*run.only, "--no-charts"])
    assert f"is of plan {result.plan_id}" in capsys.readouterr().err


def test_a_baseline_is_held_against_its_own_folder(whole: Run, tmp_path: Path) -> None:
    run, baseline = whole.copy(tmp_path / "now"), whole.copy(tmp_path / "before")
    path = baseline.inputs()[0]
    change(path, 200)
    refused(compare.stage, [*run.only, "--baseline", str(baseline.results.root)], path)
    kept = tmp_path / "kept.json"
    shutil.copy(baseline.results.summary, kept)
    compare.stage([*run.only, "--baseline", str(kept), "--threshold", "latency_p50<100s"])
    change(kept, 2000)
    refused(compare.stage, [*run.only, "--baseline", str(kept)], kept)


def test_files_without_seals_are_read_and_said(whole: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As older versions wrote them."""
    run = whole.copy(tmp_path / "old")
    for path in (run.results.summary, run.results.plan):
        path.write_bytes(unsealed(path.read_bytes()).content)
    shutil.rmtree(run.results.root / "written")
    store.UNSEALED.clear()
    cli.main(report.stage, [*run.only, "--no-charts"])
    said = capsys.readouterr().err
    assert f"Warning: {run.results.summary} and 1 more carry no seal" in said
    store.UNSEALED.clear()
    cli.main(report.stage, [*whole.only, "--no-charts"])
    assert "no seal" not in capsys.readouterr().err
