"""What the rows of one table cost in electricity, from the pass that measures nothing else (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas import Energy, Row
from harness.render import units
from harness.render.markdown import table
from harness.render.series import setting_columns
from harness.render.units import ABSENT

_ITEM = {"image": "image", "text": "sequence", "tensor": "sample"}


def energy_table(rows: Sequence[Row], energies: Mapping[str, Energy]) -> str:
    """Joules a batch and an item of each row that was metered, how, and how many were not; empty where none was."""
    sound = [row for row in rows if row.latency_ns is not None and row.grade != "F"]
    found = [(row, energies[row.case_id]) for row in sound if row.case_id in energies]
    if not found:
        return ""
    by_length = any(row.sequence_length for row, _ in found)
    settings = setting_columns([row for row, _ in found])
    headers = ["backend", "precision", *settings, "batch", *(["seq"] if by_length else [])]
    headers += ["J a batch", f"J {_article(found[0][0])}", "GPU W"]
    lines = [
        [
            *(row.backend, row.precision, *(cell(row) for cell in settings.values()), str(row.batch_size)),
            *([str(row.sequence_length or ABSENT)] if by_length else []),
            units.significant(energy.joules_per_inference),
            units.significant(energy.joules_per_item),
            f"{energy.energy_j / (energy.window_ns / 1e9):.0f}",
        ]
        for row, energy in found
    ]
    return "\n\n".join(filter(None, [_how(found[0][1]), table(headers, lines), _missing(len(sound) - len(found))]))


def _missing(number: int) -> str:
    return f"Without a figure yet: {units.count(number, 'row')} of this table; `make energy` goes on." if number else ""


def _article(row: Row) -> str:
    word = _ITEM[row.kind]
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _how(energy: Energy) -> str:
    return (
        f"Conditions: {energy.gpu}, back to back in a pass of its own, by the GPU's energy counter over "
        f"{energy.window_ns / 1e9:.1f} s or about so a row; {energy.idle_w:.0f} W idle, measured over "
        f"{energy.idle_ns / 1e9:.0f} s before, are subtracted. The host's own power is not in it."
    )
