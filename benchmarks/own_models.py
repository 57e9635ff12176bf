"""Are models of users measured, or is there a reason? Through plan, export, run and aggregate, in small groups.

    python -m benchmarks.own_models --backends torch-script,torch-compile module:mine:net model.onnx …
    python -m benchmarks.own_models --backends torch-eager --group 1 --path folder/of/modules module:mine:net

Prints a line a row: measured and its grade, or why it is not. Ends with 1 where a stage ended by a traceback, a row has
neither samples nor a reason, or a measured row is void without a flag that says why.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.core import store
from harness.core.layout import Results
from harness.core.schemas import Row, Summary

CHECKOUT = Path(__file__).parents[1]
SMALL = {
    "rounds": 1,
    "warmup_min_s": 0.01,
    "warmup_max_s": 0.2,
    "window_s": 0.01,
    "max_s": 0.2,
    "block_s": 0.02,
    "block_iterations": 5,
    "min_samples": 10,
    "parity_samples": 16,
    "timeout_s": 240.0,
}
"""Enough to see whether a row is measured, and nothing to quote."""


def main() -> int:
    """Measure group after group, print every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="as in MODELS, one an argument")
    parser.add_argument("--backends", default="torch-eager,torch-script,torch-compile,onnxruntime,openvino")
    parser.add_argument("--group", type=int, default=4, help="models of one run")
    parser.add_argument("--path", default="", help="folder of the user's own Python modules")
    given = parser.parse_args()
    wrong = 0
    for start in range(0, len(given.models), given.group):
        with tempfile.TemporaryDirectory() as folder:
            wrong += _group(Path(folder), given.models[start : start + given.group], given.backends, given.path)
    return 1 if wrong else 0


def _group(folder: Path, models: Sequence[str], backends: str, path: str) -> int:
    """Run one group of models and print its rows; how many of them, and of the stages, are wrong."""
    config = folder / "config.yaml"
    blocks = [{"backends": backends.split(",")}]
    config.write_text(json.dumps({"models": list(models), "matrix": blocks, "measurement": SMALL}))
    results = Results(folder / "results")
    places = ["--results", str(results.root), "--models-dir", str(folder / "models")]
    wrong = 0
    for stage, options in (("plan", ["--config", str(config)]), ("export", []), ("run", []), ("aggregate", [])):
        command = [sys.executable, "-m", f"harness.{stage}", *places, *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (path, str(CHECKOUT))))}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        for line in done.stderr.splitlines():
            print(f"  {stage}: {line}", flush=True)
        wrong += "Traceback" in done.stderr
        if stage == "plan" and done.returncode:
            return wrong
    rows = store.load(results.summary, Summary, "make aggregate").rows
    for row in rows:
        print(_line(row), flush=True)
    return wrong + sum(_unexplained(row) for row in rows)


def _line(row: Row) -> str:
    """A row in one line."""
    flags = "; ".join(f"{flag.name}: {flag.detail}" for flag in row.flags)
    said = f"{row.reason} {row.hint or ''}" if row.reason else flags
    return f"{row.model:40} {row.backend:14} {row.status:9} {row.grade or '-'}  {said}"


def _unexplained(row: Row) -> bool:
    """True for a row that has neither a number nor a reason."""
    return not row.reason if row.status != "measured" else row.grade == "F" and not row.flags


if __name__ == "__main__":
    sys.exit(main())
