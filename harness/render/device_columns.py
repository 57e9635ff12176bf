"""What a device adds to a table: on a GPU the times by its clock and the parts of a transfer; its limits (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from harness.core.schemas import DeviceTimes, Row
from harness.measure.roofline import CPU_CLEARLY_SHORTER, MIN_SHARE
from harness.render import units
from harness.render.units import ABSENT, TimeUnit

PARTS: Mapping[str, Callable[[DeviceTimes], float | None]] = {
    "H2D": lambda times: times.h2d,
    "compute": lambda times: times.compute,
    "D2H": lambda times: times.d2h,
}
"""Of the transfer boundary; left out where no row has them."""


def device_columns(rows: Iterable[Row], unit: TimeUnit) -> dict[str, Callable[[Row], str]]:
    """Header → cell, in the unit of the host's latency beside it; empty where no row has a GPU's clock."""
    seen = [row.device_ns for row in rows if row.device_ns is not None and row.grade != "F"]
    if not seen:
        return {}
    columns = {f"device {unit.name}": _cell(lambda times: times.device, unit)}
    parts = {name: part for name, part in PARTS.items() if any(part(times) is not None for times in seen)}
    columns |= {f"{name} {unit.name}": _cell(part, unit) for name, part in parts.items()}
    if any(times.overlap is not None for times in seen):
        columns["copies hidden"] = _shown(lambda times: ABSENT if times.overlap is None else f"{times.overlap:.0%}")
    columns[f"enqueue {unit.name}"] = _cell(lambda times: times.enqueue, unit)
    return columns


def guide_lines(rows: Iterable[Row]) -> list[str]:
    """How to read these columns, where there are any."""
    rows = list(rows)
    found = [row for row in rows if row.device_ns is not None]
    lines = {
        "device": "**device, enqueue**: the same inferences by the GPU's event clock (between two events on the "
        "backend's own stream), and the host's time until the last of their work was submitted; medians of process "
        "medians. The median beside them is the host's: from before the submission until all is known to be done.",
        "transfer": "**H2D, compute, D2H**: the copy from pinned host memory, the pass, and the copy back, by events. "
        "**copies hidden**: share of the copies' time that ran behind computing, 1 − (time per batch − compute) / "
        "(H2D + D2H), time per batch being wall time by batches.",
        "setting": "**setting**: the named way in which the backend ran (`configs/README.md`). Where several were "
        "tried, the fastest of round 1 got the other rounds and is in the tables; the others are listed below.",
        "roofline": f"**of the best, of the best copy**: shares of the best matrix product and the best copy that were "
        f"measured on this GPU. **limit**: *compute* or *memory* where one share is {MIN_SHARE:.0%} or more, *host* "
        "where submitting takes as long as running. Below both, *launch* where at least half of the time does not grow "
        "with the batch (many small kernels, each waiting for the one before), and *kernels* where it does (slow "
        "kernels, or intermediate results that go through memory); – where only one batch size was measured.",
        "roofline of a CPU": "**of the best, of the best copy**: shares of the best matrix products and copies that "
        "were measured on this CPU with as many threads, each multiplying on its own; no precision counts as "
        "slower than fp32, by way of which a library may compute. The time is that of a pass: of the e2e boundary the "
        "inference alone, of the modes offline and pipelined wall time a batch. A copy's share may pass 100% where "
        "weights stay in a cache; a product's may where the clock was higher than while the limits were measured, and "
        f"from {1 / CPU_CLEARLY_SHORTER:.0%} on the row is void. **limit**: *compute* where the product's share is "
        f"{MIN_SHARE:.0%} or more, *memory* where the copy's is larger and the least traffic of a pass exceeds the "
        "last-level cache; – where neither is near: small operators, slow kernels, intermediate results.",
    }
    there = {
        "device": bool(found),
        "transfer": any(row.device_ns and row.device_ns.h2d is not None for row in found),
        "setting": any(row.setting != "default" for row in found),
        "roofline": any(row.roofline for row in found),
        "roofline of a CPU": any(row.roofline for row in rows if row.device == "cpu"),
    }
    return [line for name, line in lines.items() if there[name]]


def _cell(part: Callable[[DeviceTimes], float | None], unit: TimeUnit) -> Callable[[Row], str]:
    return _shown(lambda times: units.in_unit(part(times), unit))


def _shown(figure: Callable[[DeviceTimes], str]) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        if row.grade == "F":
            return "void"
        return ABSENT if row.device_ns is None else figure(row.device_ns)

    return cell
