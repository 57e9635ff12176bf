"""Keep a results folder under results/published/<machine>/<date>/ and put its headline into the README.

    .venv/bin/python -m benchmarks.publish --results results --machine epyc-2-vcpu

Copies plan, summary, report, charts and environments as they are and packs the raw samples; the README's blocks between
markers are made from the copied summary, and a test holds the two together.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tarfile
from pathlib import Path

from tabulate import tabulate

from harness.core import store
from harness.core.layout import Results
from harness.core.schemas import Row, Summary
from harness.render import ranking, units
from harness.render.conditions import short_conditions

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
COPIED = ("plan.json", "summary.json", "summary.csv", "report.md", "selftest.json", "selftest.md")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--machine", required=True)
    options = parser.parse_args()
    summary = store.load(Results(options.results).summary, Summary, "make aggregate")
    target = ROOT / "results/published" / options.machine / (summary.measured_from or summary.created_at)[:10]
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in COPIED:
        if (options.results / name).is_file():
            shutil.copy(options.results / name, target / name)
    for folder in ("charts", "environments"):
        shutil.copytree(options.results / folder, target / folder)
    with tarfile.open(target / "raw.tar.xz", "w:xz") as archive:
        archive.add(options.results / "raw", "raw", filter=lambda info: None if info.name.endswith(".log") else info)
    README.write_text(with_headline(README.read_text(), summary, target.relative_to(ROOT)))
    print(target)


def with_headline(readme: str, summary: Summary, folder: Path) -> str:
    """The README with the block between its headline markers made from this summary."""
    block = f"<!-- headline {folder} -->\n{headline_block(summary, folder)}\n<!-- /headline -->"
    return re.sub(r"<!-- headline.*?-->.*?<!-- /headline -->", lambda _: block, readme, flags=re.DOTALL)


def headline_block(summary: Summary, folder: Path) -> str:
    """Chart, conditions and table of the batch-1 rows that were measured back to back with one in flight."""
    rows = [
        row
        for row in summary.rows
        if row.batch_size == 1 and (row.boundary, row.mode) == ("compute", "sync") and row.latency_ns
    ]
    rows = [row for row in rows if not ranking.is_calibration(row)]
    models = list(dict.fromkeys(row.model for row in rows))
    rows.sort(key=lambda row: (models.index(row.model), row.latency_ns.median if row.latency_ns else 0.0))
    table = tabulate(
        [_cells(row) for row in rows],
        headers=["model", "backend", "precision", "median ms", "95% CI", "speedup", "grade"],
        tablefmt="github",
        disable_numparse=True,
        colalign=("left", "left", "left", "right", "right", "right", "left"),
    )
    lengths = sorted({row.sequence_length for row in rows if row.sequence_length})
    return (
        f"![Latency by backend, batch 1, three models]({folder}/charts/overview.png)\n\n"
        f"{short_conditions(summary, rows)} Batch 1"
        f"{''.join(f', sequence {length}' for length in lengths)}. "
        f"[The whole report]({folder}/report.md).\n\n{table}"
    )


def _cells(row: Row) -> list[str]:
    model = row.model if row.weights == "pretrained" else f"{row.model} ({row.weights} weights)"
    if row.latency_ns is None or row.grade == "F":
        return [model, row.backend, row.precision, "void", "void", "void", row.grade or ""]
    speedup = "–" if row.speedup is None else f"{units.significant(row.speedup.ratio)}×"
    return [
        model,
        row.backend,
        row.precision,
        units.significant(row.latency_ns.median / 1e6),
        units.interval(row.latency_ns.ci95, 1e6),
        speedup,
        row.grade or "",
    ]


if __name__ == "__main__":
    main()
