"""The map of batching policies: the predicted peak by largest batch and delay, a panel per deployment (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import LoadRow, MapCell
from harness.reporting import units
from harness.reporting.charts.load_curve_chart import tags
from harness.reporting.charts.spec import Heat, HeatCell, HeatPanel
from harness.reporting.load_groups import LoadGroup, computing, delay_text, names, ranked

MAX_PANELS = 4
"""Panels of one chart: the first of the ranking."""

COLOUR = "#0072B2"


def batching_map(key: LoadGroup, rows: Sequence[LoadRow], conditions: str) -> Heat | None:
    """The map of each server row that has one; None without any in which a policy meets the bound."""
    shown = [row for row in ranked(rows) if len(row.map) > 1 and any(cell.rate_per_s for cell in row.map)]
    alike = {_deployed(row): row for row in reversed(shown)}
    kept = [row for row in shown if alike[_deployed(row)] is row][:MAX_PANELS]
    if not kept:
        return None
    called = names(kept, policy=False)
    panels = tuple(
        _panel(row, ", ".join(filter(None, (called[row.load_id], computing(row)))), ranked(rows)) for row in kept
    )
    bound = kept[0].bound.text if kept[0].bound else ""
    reading = (
        f"Cell: highest load within {bound}, in requests/s, by replay of the measured service times; not verified by "
        "itself. Bold: the highest. Framed: measured policies. A batch of one never waits. Colours: each panel by "
        "itself."
    )
    return Heat(f"{key.model}: batching map", "Batching map", reading, conditions, panels, COLOUR)


def _deployed(row: LoadRow) -> tuple[str, str, str, str]:
    """What rows share that differ only in the policy that was measured."""
    return row.backend, row.precision, row.setting, computing(row)


def _panel(row: LoadRow, title: str, rows: Sequence[LoadRow]) -> HeatPanel:
    cells = {(cell.max_batch, cell.max_delay_ns): cell for cell in row.map}
    batches = sorted({batch for batch, _ in cells})
    delays = sorted({delay for _, delay in cells})
    measured = {(one.max_batch, one.max_delay_ns) for one in rows if _deployed(one) == _deployed(row)}
    best = max((cell.rate_per_s or 0.0 for cell in row.map), default=0.0)

    def cell(batch: int, delay: int) -> HeatCell:
        # A batch of one has one policy, whatever the delay.
        found = cells.get((batch, delay)) or cells.get((batch, 0))
        key = (batch, delay if batch > 1 else 0)
        return _cell(found, batch, delay, key in measured and (batch > 1 or delay == delays[0]), best)

    return HeatPanel(
        title,
        "largest delay (ms)",
        "largest batch",
        tuple(f"{delay / 1e6:g}" for delay in delays),
        tuple(map(str, reversed(batches))),
        tuple(tuple(cell(batch, delay) for delay in delays) for batch in reversed(batches)),
        tags(row),
    )


def _cell(found: MapCell | None, batch: int, delay: int, chosen: bool, best: float) -> HeatCell:
    policy = f"batch {batch}, delay {delay_text(delay)}"
    if found is None or found.rate_per_s is None:
        return HeatCell(None, "no load", f"{policy}: no load meets the bound", chosen)
    text = units.significant(found.rate_per_s)
    lines = [f"<b>{policy}</b>: {text}/s within the bound"]
    lines += [f"at {units.significant(one.rate_per_s)}/s: p99 {units.duration(one.p99_ns)}" for one in found.points]
    return HeatCell(found.rate_per_s, text, "<br>".join(lines), chosen, found.rate_per_s == best)
