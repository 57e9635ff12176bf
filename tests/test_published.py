"""What the README and results/published/ claim is what their files hold."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from benchmarks.publish import headline_block
from harness.core import store
from harness.core.layout import Results
from harness.core.schemas import Measured, Plan, Summary

ROOT = Path(__file__).parents[1]
PUBLISHED = sorted((ROOT / "results/published").glob("*/*"))


def test_the_headline_of_the_readme_is_made_from_the_published_summary() -> None:
    readme = (ROOT / "README.md").read_text()
    found = re.search(r"<!-- headline (\S+) -->\n(.*?)\n<!-- /headline -->", readme, flags=re.DOTALL)
    assert found is not None, "the README has no headline block: benchmarks/publish.py writes it"
    folder = Path(found.group(1))
    summary = store.load(Results(ROOT / folder).summary, Summary, "make aggregate")
    assert found.group(2) == headline_block(summary, folder)


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
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
        records = [store.load_raw(path) for path in sorted((tmp_path / "raw" / row.case_id).glob("[0-9].json"))]
        assert len([record for record in records if isinstance(record, Measured)]) == row.latency_ns.rounds
