"""How many real points of load runs lie where replay said they would. Run by hand on a quiet machine:

    make load MODELS=… BOUND='p99<50ms' RESULTS=results/quiet
    python -m benchmarks.real_points results/quiet […]

For each point of each server case: p99 of its replications beside the 5-95% band of a single replication in replay,
and whether their median lies in the band. Where service times under load are those of the closed loop,
90% of replications do, and nearly all medians.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.core import chain
from harness.core.layout import Results
from harness.core.schemas import LoadedPoint, LoadRow


def points(folders: Sequence[Path]) -> Iterator[tuple[LoadRow, LoadedPoint]]:
    """Every real point that replay predicted, of sound rows."""
    for folder in folders:
        for row in chain.load_summary(Results(folder).summary).loads:
            if row.void is None:
                yield from ((row, point) for point in row.points if point.predicted is not None)


def line(row: LoadRow, point: LoadedPoint) -> tuple[str, bool, int]:
    """(text, whether the median of the p99 lies in the band, replications in the band)."""
    band, found = point.predicted and point.predicted.p99_band_ns, point.latency.get("p99")
    median = found.ns if found else None
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


def main(folders: Sequence[Path]) -> None:
    """Print a line a point, and the shares."""
    found = [(point, *line(row, point)) for row, point in points(folders)]
    for _, text, _, _ in found:
        print(text)
    replications = sum(point.replications for point, *_ in found)
    inside = sum(in_band for *_, in_band in found)
    medians = sum(is_inside for _, _, is_inside, _ in found)
    print(f"{medians} of {len(found)} medians and {inside} of {replications} replications lie in replay's 90% band.")


if __name__ == "__main__":
    main([Path(text) for text in sys.argv[1:]] or [Path("results")])
