"""Keep a results folder under results/published/<machine>/<date>/ and put its headline into the README.

    .venv/bin/python -m benchmarks.publish --results results --models-dir models --machine h100-sxm
    .venv/bin/python -m benchmarks.publish --again

Copies plan, environments and the records of engines, limits and energy as they are, packs the raw samples, and makes
summary, report and charts from them. The README's blocks between markers are made from the summaries, one a machine,
and a test holds them together. With --profile the folder ends in -profile (or in --label), has the profiles too, and
the README stays as it is; --no-headline also leaves the README alone. Load, generation and copies on several GPUs are
published from the same folder. With --again every published folder is aggregated and reported from its own raw samples
by today's rules.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePath, PurePosixPath

from harness import pipeline
from harness.core import hints, store
from harness.core.layout import Models, Results
from harness.core.schemas import Plan, Row, Summary
from harness.planning.matrix import plan_id
from harness.reporting import ranking
from harness.reporting.first_page import answer_table
from harness.reporting.prose.conditions import short_conditions
from harness.reporting.writers.markdown import blocks_text

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PUBLISHED = Path("results/published")
FILES = (
    *("plan.json", "summary.json", "summary.csv", "report.md", "report-details.md", "roof.json"),
    *("selftest.json", "selftest.md", "neighbours.json"),
)
RAW = ("raw", "load", "generation", "copies")
"""Folders of raw samples, packed into one archive."""
MAX_LINES = 10
"""Of the table in a README's block."""
FOLDER_CHOICES = ("RESULTS", "MODELS_DIR")
"""Variables that name folders of the machine that measured."""
FOLDERS = ("charts", "environments")
PROFILES = "profiles"
BLOCK = re.compile(r"<!-- headline (?P<folder>\S+) -->\n(?P<text>.*?)\n<!-- /headline -->", flags=re.DOTALL)


def published_runs() -> list[Path]:
    """The published folders of runs, without those of histories (benchmarks/history_demo.py)."""
    return sorted(path.parent for path in (ROOT / PUBLISHED).glob("*/*/plan.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--models-dir", type=Path, default=Path("models"))
    parser.add_argument("--machine")
    parser.add_argument("--again", action="store_true", help="aggregate every published folder by today's rules")
    parser.add_argument("--label", default="", help="ends the folder's name where a machine has two runs of one day")
    parser.add_argument("--no-headline", action="store_true", help="leave the README as it is")
    parser.add_argument("--profile", action="store_true", help="publish the profiles of this run, and no headline")
    options = parser.parse_args()
    if options.again:
        for place in published_runs():
            again(place)
            print(place)
        return
    if options.machine is None:
        parser.error("name the machine: --machine h100-sxm")
    summary = store.load(Results(options.results).summary, Summary, "make aggregate")
    day = (summary.measured_from or summary.created_at)[:10]
    label = options.label or ("profile" if options.profile else "")
    folder = PUBLISHED / options.machine / (f"{day}-{label}" if label else day)
    copy(options.results, options.models_dir, summary, ROOT / folder)
    if (command := Results(options.results).command).is_file():
        Results(ROOT / folder).command.write_text(command_without_folders(command))
    if options.profile:
        # TensorBoard's files say once more what the traces beside them say.
        left_out = shutil.ignore_patterns("events.out.*")
        shutil.copytree(options.results / PROFILES, ROOT / folder / PROFILES, ignore=left_out)
    again(ROOT / folder)  # with a command that names no folder of the machine that measured
    if not (options.profile or options.no_headline):
        published = store.load(Results(ROOT / folder).summary, Summary, "make aggregate")
        README.write_text(with_headline(README.read_text(), published, folder))
    print(ROOT / folder)


def copy(results: Path, models: Path, summary: Summary, target: Path) -> None:
    """Make `target` again from a results folder, its charts as PNG alone.

    Records of engines are those that the rows of the summary loaded.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in FILES:
        if (results / name).is_file():
            shutil.copy(results / name, target / name)
    for name in FOLDERS:
        if (results / name).is_dir():
            shutil.copytree(results / name, target / name, ignore=shutil.ignore_patterns("*.svg"))
    for path in (results / "energy").glob("*.json"):
        _copy(path, target / "energy" / path.name)
    for engine in map(PurePosixPath, summary.engines):
        slug, name = engine.parts[0], engine.stem
        record = Models(models).folder(slug).engine_record(name)
        _copy(record, target / "engines" / slug / record.name)
    with tarfile.open(target / "raw.tar.xz", "w:xz") as archive:
        for name in RAW:
            if (results / name).is_dir():
                archive.add(results / name, name, filter=lambda info: None if info.name.endswith(".log") else info)
    for path in (results / "exports").glob("*/generation.json"):
        _copy(path, target / "exports" / path.parent.name / path.name)


def again(folder: Path) -> None:
    """Aggregate and report a published folder from its raw samples, in place, with its block of the README."""
    with tempfile.TemporaryDirectory(prefix="inferometer-publish-") as scratch:
        results = aggregated(folder, Path(scratch))
        _stage("report", "--results", results)
        summary = store.load(Results(results).summary, Summary, "make aggregate")
        for name in ("plan.json", "summary.json", "summary.csv", "report.md", "report-details.md"):
            shutil.copy(results / name, folder / name)
        shutil.rmtree(folder / "charts")
        shutil.copytree(results / "charts", folder / "charts", ignore=shutil.ignore_patterns("*.svg"))
        if (results / PROFILES).is_dir():
            shutil.copytree(results / PROFILES, folder / PROFILES, dirs_exist_ok=True)
    place = folder.relative_to(ROOT)
    if f"<!-- headline {place} -->" in README.read_text():
        README.write_text(with_headline(README.read_text(), summary, place))


def aggregated(folder: Path, scratch: Path) -> Path:
    """A results folder below `scratch`, aggregated by today's rules from what a published folder holds.

    The records of exports are those of the published summary: the exported files themselves are not published.
    """
    results, models = scratch / "results", scratch / "models"
    shutil.copytree(folder, results, ignore=shutil.ignore_patterns("charts", "engines", "raw.tar.xz"))
    with tarfile.open(folder / "raw.tar.xz") as archive:
        archive.extractall(results, filter="data")
    plan = store.load(Results(folder).plan, Plan, "make plan")
    # Plans from before had the id of their settings.
    store.save(Results(results).plan, plan.model_copy(update={"plan_id": plan_id(plan)}))
    if plan.config.startswith("configs/") and not Results(results).command.is_file():
        Results(results).command.write_text(command_of(plan))
    before = store.load(Results(folder).summary, Summary, "make aggregate")
    for export in before.exports.values():
        store.save(Models(models).folder(export.slug).record, export)
    for path in (folder / "engines").glob("*/*.json"):
        _copy(path, Models(models).folder(path.parent.name).engine_record(path.stem))
    _stage("aggregate", "--results", results, "--models-dir", models)
    return results


def command_without_folders(command: Path) -> str:
    """The plan command of a results folder with all choices, for any folder: reports name it in their hints."""
    choices = {name: [value] for name, value in hints.of_file(command).planned.items() if name not in FOLDER_CHOICES}
    return hints.command_line("make", pipeline.arguments("plan", choices))


def command_of(plan: Plan) -> str:
    """A plan command of the same configuration, device and models, for runs that were published without their own."""
    models = ",".join(f"{model.name}@seeded" if model.weights == "seeded" else model.name for model in plan.models)
    words = ["--config", plan.config, "--device", plan.device, *(["--models", models] if models else [])]
    return hints.command_line("make", words)


def _stage(name: str, *arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", f"harness.{name}", *map(str, arguments)], cwd=ROOT, check=True)


def with_headline(readme: str, summary: Summary, folder: Path) -> str:
    """The README with this machine's block made from the summary; in front of all others where it has none yet.

    Raises ValueError where the README has no block at all: then the place of its headline is unknown.
    """
    block = f"<!-- headline {folder} -->\n{headline_block(summary, folder)}\n<!-- /headline -->"
    result = list(BLOCK.finditer(readme))
    if not result:
        raise ValueError("README.md has no block between <!-- headline … --> and <!-- /headline -->")
    own = next((entry for entry in result if Path(entry["folder"]).parent == folder.parent), None)
    if own is None:
        return f"{readme[: result[0].start()]}{block}\n\n{readme[result[0].start() :]}"
    return f"{readme[: own.start()]}{block}{readme[own.end() :]}"


def headline_block(summary: Summary, folder: PurePath) -> str:
    """A README's block on one machine: chart, conditions, and the answers in at most MAX_LINES lines.

    folder: of the published run, as the README links to it.
    """
    first: dict[tuple[str, ...], list[Row]] = {}
    for key, result in ranking.by_table(summary.rows):
        first.setdefault(key[:3], result)
    rows = [row for result in first.values() for row in result]
    models = len({row.model for row in rows})
    alt = f"Latency by backend at the smallest batch, {models} model{'' if models == 1 else 's'}"
    return (
        f"![{alt}]({folder}/charts/overview.png)\n\n"
        f"{short_conditions(summary, rows)} [The whole report]({folder}/report.md).\n\n"
        f"{blocks_text([answer_table(summary, MAX_LINES)])}"
    )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


if __name__ == "__main__":
    main()
