"""Profiled cases that differ in their backend alone, and so can stand side by side (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.core.schemas import Row
from harness.measure.profiled import Profiled
from harness.measure.rows import GroupKey
from harness.measure.side_by_side import Column, SideBySide, by_group, by_module, folded


@dataclass(frozen=True)
class Alike:
    """Two backends or more with the same model, weights, device, precision, batch and sequence length.

    rows: one a backend, in the order of the summary. modules: None where fewer than two backends tell modules.
    left_out: (name, why) of backends that were profiled, and whose profiles show nothing that may be compared.
    """

    rows: tuple[Row, ...]
    groups: SideBySide
    modules: SideBySide | None
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def shape(self) -> str:
        """What they have in common, in words: `minilm-l6, fp32, batch 1, sequence 128`."""
        return f"{self.rows[0].model}, {self.setting}"

    @property
    def setting(self) -> str:
        """The same without the model: `fp32, batch 1, sequence 128`."""
        return _setting(self.rows[0])


@dataclass(frozen=True)
class NotCompared:
    """Two backends or more that were profiled alike, and could stand side by side if more of their profiles could be
    trusted. left_out: (name, why)."""

    shape: str
    left_out: tuple[tuple[str, str], ...]


def alike(profiled: Iterable[Profiled]) -> list[Alike]:
    """The comparisons that profiles allow, in their order; of a backend with several settings, the fastest one."""
    return [found for together in _kin(profiled) if isinstance(found := _compared(together), Alike)]


def not_compared(profiled: Iterable[Profiled]) -> list[NotCompared]:
    """Those that they would allow if nothing were wrong with them."""
    return [found for together in _kin(profiled) if isinstance(found := _compared(together), NotCompared)]


def _kin(profiled: Iterable[Profiled]) -> list[list[Profiled]]:
    kin: dict[GroupKey, list[Profiled]] = {}
    for one in profiled:
        key = GroupKey.of(one.row).without("boundary", "mode", "backend", "setting")
        kin.setdefault(key, []).append(one)
    return list(kin.values())


def _compared(kin: Sequence[Profiled]) -> Alike | NotCompared | None:
    backends: dict[str, list[tuple[Profiled, Column]]] = {}
    left_out: dict[str, tuple[str, str]] = {}
    for one in kin:
        if one.parts is None:
            continue
        column, why = _column(one), one.doubt
        if why is None:
            backends.setdefault(one.row.backend, []).append((one, column))
        else:
            left_out.setdefault(one.row.backend, (column.name, why))
    chosen = [min(settings, key=_speed) for settings in backends.values()]
    without = tuple(pair for backend, pair in left_out.items() if backend not in backends)
    columns = [column for _, column in chosen]
    groups, modules = by_group(columns), by_module(columns)
    if groups is None:
        return NotCompared(_shape(kin[0].row), without) if without and len(columns) + len(without) > 1 else None
    return Alike(tuple(one.row for one, _ in chosen), groups, folded(modules) if modules else None, without)


def _shape(row: Row) -> str:
    return f"{row.model}, {_setting(row)}"


def _setting(row: Row) -> str:
    length = (f"sequence {row.sequence_length}",) if row.sequence_length else ()
    return ", ".join((row.precision, f"batch {row.batch_size}", *length))


def _column(one: Profiled) -> Column:
    assert one.parts is not None  # noqa: S101 - asked by _compared
    way = "" if one.row.setting == "default" else f" {one.row.setting}"
    return Column(one.row.case_id, f"{one.row.backend}{way}", one.parts, one.model.achieved.latency_ns)


def _speed(found: tuple[Profiled, Column]) -> tuple[bool, float]:
    """Measured before unmeasured, then the faster."""
    column = found[1]
    return column.latency_ns is None, column.latency_ns or column.parts.plain_ns
