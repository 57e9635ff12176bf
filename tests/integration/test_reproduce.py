"""A claim about the tiny module, through all stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core import store
from harness.core.host.environment import collect
from harness.core.layout import Results
from harness.core.schemas import Reproduction
from tests.fixtures.stages import QUICK, TINY, Folder

pytestmark = pytest.mark.stages


def claim(tmp_path: Path, **changes: Any) -> list[str]:
    """Write a claim that eager mode takes a second; the words that reproduce it."""
    common = {"model": TINY, "precision": "fp16", "batch_size": 4096}
    data = {
        "title": "The tiny module",
        "source": {"title": "a test"},
        "cards": [collect({}).machine.cpu],
        "models": [{"name": TINY, "published": "Tiny v1", "weights": "own"}],
        "common": common,
        "values": [
            {"name": "eager", "backend": "torch-eager", "latency_ms": 1000.0},
            {"name": "ort", "backend": "onnxruntime", "latency_ms": 1.0},
            {"name": "trt", "backend": "tensorrt", "latency_ms": 0.5},
        ],
        "ratios": [{"faster": "ort", "than": "eager"}],
        "substitutes": {"cpu": {"precision": "fp32", "batch_size": 256}},
        "measurement": {**QUICK, "rounds": 3, "steady_tolerance": 0.9},
        **changes,
    }
    folder = tmp_path / "claims"
    folder.mkdir(exist_ok=True)
    (folder / "tiny.yaml").write_text(json.dumps(data))
    return ["--claim", "tiny", "--claims", str(folder), "--device", "cpu"]


def test_a_claim_is_planned_measured_and_judged(folder: Folder, tmp_path: Path) -> None:
    done = folder("reproduce", *claim(tmp_path))
    place = folder.results.claim("tiny")
    reproduction = store.load(place.reproduction, Reproduction, "make reproduce")
    rows = {row.name: row for row in reproduction.rows}
    assert rows["trt"].reason == "tensorrt does not run on cpu"
    names = [(difference.name, difference.published, difference.here) for difference in rows["eager"].differences]
    assert names == [("model", "Tiny v1", TINY), ("precision", "fp16", "fp32"), ("batch size", "4096", "256")]
    # A neighbour may disturb the machine so much that there is no figure; then the grade is the reason.
    disturbed = "grade" in str(rows["ort / eager"].reason)
    assert disturbed or rows["eager"].reason == "another precision, another batch size"
    # Whatever the two take, it is not a factor of a thousand.
    assert rows["ort / eager"].verdict == ("NOT COMPARABLE" if disturbed else "NOT REPRODUCED")
    assert done.returncode == (0 if disturbed else 11), done.stderr
    if not disturbed:
        assert done.stderr.splitlines()[-2].startswith("Error: tiny: ")
    assert "How to read this" in place.reproduction_report.read_text()
    assert all(file.is_file() for file in (place.plan, place.summary, place.report, place.config))

    # The same folder is judged again without a process, and by other words of the claim.
    before = {path: path.stat().st_mtime_ns for path in place.raw.glob("*/*.json")}
    assert before
    again = folder("reproduce", *claim(tmp_path, ratios=[]), "--only-compare", str(place.root))
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in place.raw.glob("*/*.json")} == before


@pytest.mark.slow
def test_a_stage_that_refuses_stops_it_with_its_own_words(folder: Folder, tmp_path: Path) -> None:
    values = [{"name": "eager", "backend": "torch-eager", "latency_ms": 1.0}]
    broken = "module:tests.fixtures.models:not_there"
    words = claim(
        tmp_path,
        models=[{"name": broken, "weights": "own"}],
        common={"model": broken, "precision": "fp32", "batch_size": 1},
        values=values,
        ratios=[],
    )
    done = folder("reproduce", *words)
    assert done.returncode == 10
    assert "The export stage ended with exit code" in done.stderr
    assert not Results(folder.results.root).claim("tiny").reproduction.exists()
