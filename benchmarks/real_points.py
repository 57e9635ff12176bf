"""How many real points of load runs lie where replay said they would. Run by hand on a quiet machine:

    .venv/bin/python -m benchmarks.real_points                 measures twenty points, which takes about seven minutes
    .venv/bin/python -m benchmarks.real_points FOLDER [...]    reads results folders of `make load`

For each point of each server case: p99 of its replications beside the 5-95% band of a single replication in replay,
and whether their median lies in the band. Where service times under load are those of the closed loop,
90% of replications do, and nearly all medians.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import pipeline
from harness.core import file_sums
from harness.core.layout import Results
from harness.core.schemas import LoadedPoint, LoadRow

REPLICATIONS = 2

_SERVER = {
    "scenario": "server",
    "bound": "p99<100ms",
    "factors": [0.5, 0.7, 0.9, 1.0, 1.1],
    # A p99 needs 662 requests.
    "requests": 700,
    "duration": "20s",
    "service_duration": "6s",
}

CONFIG = {
    "models": ["efficientnet-lite0", "minilm-l6"],
    "matrix": [{"backends": ["onnxruntime", "openvino"], "sequence_lengths": [32]}],
    "scenarios": [
        {**_SERVER, "models": ["efficientnet-lite0"], "max_batch": [1]},
        {**_SERVER, "models": ["minilm-l6"], "max_batch": [4]},
    ],
}
"""Two models in two backends at five loads: one without batching, one with batches of up to four."""


def measure(folder: Path, replications: int) -> None:
    """Plan, export, measure and aggregate the twenty points; what the folder has already is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "real-points.yaml"
    config.write_text(json.dumps(CONFIG, indent=1))  # JSON is YAML
    choices = {"CONFIG": [str(config)], "RESULTS": [str(folder)], "REPLICATIONS": [str(replications)]}

    def start(stage: str, arguments: Sequence[str]) -> int:
        return subprocess.run([sys.executable, "-m", f"harness.{stage}", *arguments], check=False).returncode

    began = time.monotonic()
    code = pipeline.run(pipeline.steps(pipeline.PARTS["load"], choices), start, lambda: False)
    if code:
        sys.exit(code)
    print(f"{time.monotonic() - began:.0f} s for the whole pipeline")


def points(folders: Sequence[Path]) -> Iterator[tuple[LoadRow, LoadedPoint]]:
    """Every real point that replay predicted, of sound rows."""
    for folder in folders:
        for row in file_sums.load_summary(Results(folder).summary).loads:
            if row.void is None:
                yield from ((row, point) for point in row.points if point.predicted is not None)


def line(row: LoadRow, point: LoadedPoint) -> tuple[str, bool, int]:
    """(text, whether the median of the p99 lies in the band, replications in the band)."""
    band, result = point.predicted and point.predicted.p99_band_ns, point.latency.get("p99")
    median = result.ns if result else None
    inside = bool(band and median and band.low <= median <= band.high)
    real = "infinite or too few requests" if median is None else f"{median / 1e6:8.2f} ms"
    said = f"{band.low / 1e6:.2f} to {band.high / 1e6:.2f} ms" if band else ""
    ratio = point.reality_over_replay.get("p99")
    return (
        f"{row.load_id:<60} {point.asked_per_s or 0:>9.4g}/s  p99 {real}  replay {said}  "
        f"reality/replay {'' if ratio is None else f'{ratio:.2f}'}  {point.in_band}/{point.replications} in the band",
        inside,
        point.in_band or 0,
    )


def table(folders: Sequence[Path]) -> None:
    """Print a line a point, and the shares."""
    result = [(point, *line(row, point)) for row, point in points(folders)]
    for _, text, _, _ in result:
        print(text)
    replications = sum(point.replications for point, *_ in result)
    inside = sum(in_band for *_, in_band in result)
    medians = sum(is_inside for _, _, is_inside, _ in result)
    print(f"{medians} of {len(result)} medians and {inside} of {replications} replications lie in replay's 90% band.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="results folders to read; none: measure")
    parser.add_argument("--into", type=Path, default=Path("results/real-points"), help="folder of a measurement")
    parser.add_argument("--replications", type=int, default=REPLICATIONS, help="of each point")
    options = parser.parse_args()
    if not options.folders:
        measure(options.into, options.replications)
    table(options.folders or [options.into])


if __name__ == "__main__":
    main()
