"""Profiled cases that differ in their backend alone, and so can stand side by side (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.core.schemas import Row
from harness.measure.profiled import Profiled
from harness.measure.side_by_side import Column, SideBySide, by_group, by_module, folded


@dataclass(frozen=True)
class Alike:
    """Two backends or more with the same model, weights, device, precision, batch and sequence length.

    rows: one a backend, in the order of the summary. modules: None where fewer than two backends tell modules.
    """

    rows: tuple[Row, ...]
    groups: SideBySide
    modules: SideBySide | None

    @property
    def shape(self) -> str:
        """What they have in common, in words: `minilm-l6, fp32, batch 1, sequence 128`."""
        return f"{self.rows[0].model}, {self.setting}"

    @property
    def setting(self) -> str:
        """The same without the model: `fp32, batch 1, sequence 128`."""
        first = self.rows[0]
        length = (f"sequence {first.sequence_length}",) if first.sequence_length else ()
        return ", ".join((first.precision, f"batch {first.batch_size}", *length))


def alike(profiled: Iterable[Profiled]) -> list[Alike]:
    """The comparisons that profiles allow, in their order; of a backend with several settings, the fastest one."""
    kin: dict[tuple[object, ...], list[Profiled]] = {}
    for one in profiled:
        row = one.row
        key = (row.model, row.weights, row.device, row.precision, row.batch_size, row.sequence_length)
        kin.setdefault(key, []).append(one)
    return [found for together in kin.values() if (found := _compared(together))]


def _compared(kin: Sequence[Profiled]) -> Alike | None:
    backends: dict[str, list[tuple[Profiled, Column]]] = {}
    for one in kin:
        if one.parts is not None:
            backends.setdefault(one.row.backend, []).append((one, _column(one)))
    chosen = [min(settings, key=_speed) for settings in backends.values()]
    columns = [column for _, column in chosen]
    groups, modules = by_group(columns), by_module(columns)
    if groups is None:
        return None
    return Alike(tuple(one.row for one, _ in chosen), groups, folded(modules) if modules else None)


def _column(one: Profiled) -> Column:
    assert one.parts is not None  # noqa: S101 - asked by _compared
    way = "" if one.row.setting == "default" else f" {one.row.setting}"
    return Column(one.row.case_id, f"{one.row.backend}{way}", one.parts, one.model.achieved.latency_ns)


def _speed(found: tuple[Profiled, Column]) -> tuple[bool, float]:
    """Measured before unmeasured, then the faster."""
    column = found[1]
    return column.latency_ns is None, column.latency_ns or column.parts.plain_ns
