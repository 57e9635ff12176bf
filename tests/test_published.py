"""What the README and results/published/ claim is what their files hold."""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path

import pytest

from benchmarks import publish
from benchmarks.publish import BLOCK, aggregated, copy, headline_block, published_runs, with_headline
from harness.comparison.run_history import analyse
from harness.core import store
from harness.core.layout import Models, Results, RunStore
from harness.core.schemas import EngineRecord, History, Measured, Plan, Summary
from harness.planning.run_store import load_decisions, load_runs
from tests.fixtures.forked import run_forked
from tests.synthetic_cuda import MODELS, cuda_run, cuda_summary, engines_of

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PUBLISHED = published_runs()
HISTORIES = sorted(path.parent for path in (ROOT / "results/published").glob("*/*/history.json"))
FOLDER = Path("results/published/h100/2026-11-27")


def folders(readme: str) -> list[str]:
    return [entry["folder"] for entry in BLOCK.finditer(readme)]


@pytest.mark.parametrize("folder", folders(README))
def test_each_headline_of_the_readme_is_made_from_its_published_summary(folder: str) -> None:
    summary = store.load(Results(ROOT / folder).summary, Summary, "make aggregate")
    text = next(entry["text"] for entry in BLOCK.finditer(README) if entry["folder"] == folder)
    assert text == headline_block(summary, Path(folder))


def test_every_machine_with_published_latencies_has_one_headline() -> None:
    with_rows = (folder for folder in PUBLISHED if '"rows": []' not in (folder / "summary.json").read_text())
    machines = sorted({str(folder.parent.relative_to(ROOT)) for folder in with_rows})
    assert machines
    assert sorted(str(Path(folder).parent) for folder in folders(README)) == machines
    assert len(re.findall("<!-- headline ", README)) == len(machines), "a block is not closed"


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_every_published_row_has_its_raw_samples(folder: Path, tmp_path: Path) -> None:
    with tarfile.open(folder / "raw.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    summary = store.load(Results(folder).summary, Summary, "make aggregate")
    plan = store.load(Results(folder).plan, Plan, "make plan")
    assert summary.plan_id == plan.plan_id
    assert {row.case_id for row in summary.rows} == {case.case_id for case in plan.cases}
    for row in summary.rows:
        if row.latency_ns is None:
            continue
        paths = (tmp_path / "raw" / row.case_id).glob("*.json")
        records = [store.load_raw(path) for path in sorted(paths) if path.stem.isdigit()]
        assert len([record for record in records if isinstance(record, Measured)]) == row.latency_ns.rounds
    for name, engine in summary.engines.items():
        record = folder / "engines" / Path(name).parts[0] / f"{Path(name).stem}.json"
        assert store.load(record, EngineRecord, "make engines") == engine


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_every_published_summary_follows_the_rules_of_this_commit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stage(name: str, *arguments: str | Path) -> None:
        done = run_forked(f"harness.{name}", [*map(str, arguments)], ROOT, os.environ)
        assert done.returncode == 0, done.stderr

    monkeypatch.setattr(publish, "_stage", stage)
    published = store.load(Results(folder).summary, Summary, "make aggregate")
    now = store.load(Results(aggregated(folder, tmp_path)).summary, Summary, "make aggregate")
    assert now.digest == published.digest, "run `python -m benchmarks.publish --again`"


@pytest.mark.parametrize("folder", HISTORIES, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_every_published_history_follows_from_its_runs(folder: Path) -> None:
    files = RunStore(folder)
    (runs, bad), (decisions, worse) = load_runs(files), load_decisions(files)
    published = store.load(files.history, History, "make history")
    assert not bad
    assert not worse
    assert analyse(runs, decisions, published.created_at) == published, "run `make history STORE=<folder>`"
    page = files.page.read_text()
    assert all(series.case_id in page for series in published.series)


# --- publishing ---------------------------------------------------------------------------------------------------


def test_a_machine_without_a_block_gets_the_first_one() -> None:
    old = "# Title\n\n<!-- headline results/published/cpu/2026-11-01 -->\nold\n<!-- /headline -->\n\nmore\n"
    both = with_headline(old, cuda_summary(), FOLDER)
    assert folders(both) == [str(FOLDER), "results/published/cpu/2026-11-01"]
    assert both.startswith("# Title\n\n<!-- headline results/published/h100")
    assert both.endswith(f"\n\n{old.partition('# Title')[2].lstrip()}")


def test_a_later_run_of_a_machine_replaces_its_own_block_alone() -> None:
    first = "a\n<!-- headline x/one/1 -->\nfirst\n<!-- /headline -->\nb\n"
    start = f"{first}<!-- headline x/two/1 -->\nsecond\n<!-- /headline -->\nc\n"
    edited = with_headline(start, cuda_summary(), Path("x/two/2"))
    assert folders(edited) == ["x/one/1", "x/two/2"]
    assert edited.startswith(first)
    assert edited.endswith("<!-- /headline -->\nc\n")
    assert "second" not in edited


def test_a_readme_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="no block"):
        with_headline("# Title\n", cuda_summary(), FOLDER)


def test_the_command_of_a_published_run_has_its_choices_and_no_folder(tmp_path: Path) -> None:
    command = tmp_path / "command.txt"
    command.write_text(
        "inferometer plan --device cuda --models minilm-l6 --settings fused+packed --inputs texts.txt --tune "
        "--results /somewhere/r --models-dir /somewhere/m\n"
    )
    words = "--device cuda --models minilm-l6 --settings fused+packed --inputs texts.txt --tune"
    assert sorted(publish.command_without_folders(command).split()) == sorted(f"python -m harness.plan {words}".split())


def test_everything_a_gpu_run_is_based_on_is_copied(tmp_path: Path) -> None:
    results, models, target = tmp_path / "results", tmp_path / "models", tmp_path / "published"
    run = cuda_run()
    run.write(results, models)
    files = Results(results)
    summary = cuda_summary()
    store.save(files.summary, summary)
    assert run.roof is not None
    store.save(files.roof, run.roof)
    files.charts.mkdir()
    files.energy_file("a-case").parent.mkdir()
    files.energy_file("a-case").write_text("{}")
    for model in MODELS:
        for engine in engines_of(model):
            store.save(Models(models).folder(model.name).engine_record(Path(engine.engine.path).stem), engine)
    unused = Models(models).folder("resnet50").engine_record("never-loaded")
    unused.write_text("{}")
    files.log_file(summary.rows[0].case_id, 1).write_text("noise")
    copy(results, models, summary, target)
    copied = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    loaded = {f"engines/{Path(name).parts[0]}/{Path(name).stem}.json" for name in summary.engines}
    assert {"plan.json", "summary.json", "roof.json", "energy/a-case.json", "raw.tar.xz", *loaded} <= copied
    assert not any("never-loaded" in name for name in copied)
    with tarfile.open(target / "raw.tar.xz") as archive:
        assert not any(name.endswith(".log") for name in archive.getnames())
