"""Profiles of the same model in several backends, line by line: the sources of their difference in time (pure).

The time is divided by group, or by module of the model. In both, each backend's lines add up to the sum of its parts
(reconcile.parts_total), so the gains of all lines add up to the difference between two backends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.aggregation.flags import GroupKey
from harness.core.schemas import Row
from harness.core.schemas.profile_record import LayerRow, PartsProfile
from harness.profiling.launch_gaps import IdleShare, idle_share, kernel_busy_ns
from harness.profiling.layers import group_of_operator
from harness.profiling.read_profiles import Profiled
from harness.profiling.reconcile import are_kernels, parts_total

MODEL = "(model)"
"""The model itself, as profiles name it."""

NO_MODULE = "not assigned to a module"

_PASSING_ON = frozenset({"Dropout", "Dropout1d", "Dropout2d", "Identity", "StochasticDepth", "DropPath"})
"""Classes that compute nothing during inference. A graph without them has fused nothing."""


def module_of(row: LayerRow, layers: Sequence[LayerRow]) -> str | None:
    """The module of a row's own time: the row itself in a tree, else the module that the node came from."""
    return row.name if is_tree(layers) else row.parent


def is_tree(layers: Sequence[LayerRow]) -> bool:
    """Whether rows are modules: only modules contain each other."""
    return any(row.depth for row in layers)


def shared_modules(profiles: Sequence[Sequence[LayerRow]]) -> dict[str, str]:
    """Module → its line: its own, or the line of a module that contains it; in the model's order.

    A module that is missing in some profile goes to the nearest module around it that all profiles have. The other
    modules directly inside it that contain no modules go to it too: the missing module was fused with one of them.
    """
    trees_first = sorted(profiles, key=lambda layers: not is_tree(layers))  # whose rows are in the model's order
    known = [[module for row in layers if (module := module_of(row, layers)) is not None] for layers in trees_first]
    modules = list(dict.fromkeys(module for names in known for module in names))
    inside = [{around for module in names for around in (module, *_ancestors(module))} for names in known]
    everywhere = set.intersection(*inside) if inside else set()
    idle = {row.name for layers in profiles for row in layers if row.kind in _PASSING_ON and is_tree(layers)}
    lines = {module: _nearest(module, everywhere) for module in modules}
    fused = {lines[module] for module in modules if module not in everywhere and module not in idle}
    holding = {around for module in modules for around in _ancestors(module)}
    for module in modules:
        around = next(iter(_ancestors(module)), MODEL)
        if lines[module] == module and module not in holding and around in fused:
            lines[module] = around
    return lines


def _ancestors(module: str) -> Iterable[str]:
    """The modules that contain a module, from the inside out; none for the model itself."""
    if module == MODEL:
        return
    while "." in module:
        module = module.rpartition(".")[0]
        yield module
    yield MODEL


def _nearest(module: str, everywhere: set[str]) -> str:
    return next((name for name in (module, *_ancestors(module)) if name in everywhere), MODEL)


_FIRST_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass(frozen=True)
class ComparedColumn:
    """One backend in a comparison.

    name: unique in the comparison. latency_ns: the median that `run` measured; None where the results have none.
    """

    case_id: str
    name: str
    parts: PartsProfile
    latency_ns: float | None

    @property
    def parts_ns(self) -> int:
        """The sum of the parts of one inference, and of the column's lines."""
        return parts_total(self.parts, are_kernels(self.parts)) or 0

    @property
    def factor(self) -> float | None:
        """Sum of the parts over the measured latency."""
        return self.parts_ns / self.latency_ns if self.latency_ns else None

    @property
    def kernels_alone(self) -> bool:
        """Whether its parts are GPU kernels, also by module, without the time in which no kernel ran."""
        return are_kernels(self.parts)

    @property
    def idle_share(self) -> IdleShare | None:
        """The share of the measured latency, else of the plain one, in which no kernel ran; None without kernels."""
        return idle_share(self.parts, self.latency_ns)

    @property
    def idle_ns(self) -> int:
        """The time of that latency in which no kernel ran; 0 where the parts are not kernels, and include it."""
        latency_ns = self.parts.plain_ns if self.latency_ns is None else self.latency_ns
        return round(max(0.0, latency_ns - kernel_busy_ns(self.parts))) if self.kernels_alone else 0


@dataclass(frozen=True)
class SideBySideLine:
    """One part of the model. times_ns: a time per column; None where nothing ran under this name.

    modules: the modules whose time it is; empty for a group, and for time that is not reported by module.
    """

    name: str
    times_ns: tuple[int | None, ...]
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class SideBySide:
    """Columns, the fastest first, and lines, the largest gain first."""

    columns: tuple[ComparedColumn, ...]
    lines: tuple[SideBySideLine, ...]

    @property
    def fastest(self) -> ComparedColumn:
        """The column that the others are compared with."""
        return self.columns[0]

    @property
    def slowest(self) -> ComparedColumn:
        """The last column: a gain is its time minus the fastest column's."""
        return self.columns[-1]

    @property
    def gain_ns(self) -> int:
        """Parts of the slowest column minus parts of the fastest, in ns: the sum of all lines' gains."""
        return self.slowest.parts_ns - self.fastest.parts_ns

    @property
    def idle_gain_ns(self) -> int:
        """Time without a kernel in the slowest column minus that in the fastest, in ns."""
        return self.slowest.idle_ns - self.fastest.idle_ns

    @property
    def measured_gain_ns(self) -> float | None:
        """Measured latency of the slowest column minus the fastest column's, in ns; None where one is unknown."""
        if self.slowest.latency_ns is None or self.fastest.latency_ns is None:
            return None
        return self.slowest.latency_ns - self.fastest.latency_ns


def line_gain_ns(line: SideBySideLine) -> int:
    """Time of a line in the slowest column minus that in the fastest, in ns; below 0 where the slowest needs less."""
    return (line.times_ns[-1] or 0) - (line.times_ns[0] or 0)


def by_group(columns: Sequence[ComparedColumn]) -> SideBySide | None:
    """A line per group. In a column without layers, operators of unknown group are one line. None below two columns.

    A kernel that fuses several modules counts for the group of its product.
    """
    ordered = _fastest_first(columns)
    in_blocks = any(row.group in ("attention", "mlp") for column in ordered for row in column.parts.layers)
    return _joined_columns(ordered, [_ns_by_group(column.parts, in_blocks) for column in ordered])


def by_module(columns: Sequence[ComparedColumn]) -> SideBySide | None:
    """A line per module that all columns report; fused modules are one line, named after the module around them.

    Only of columns whose profilers report modules; None with fewer than two.
    """
    ordered = _fastest_first([column for column in columns if any(row.parent for row in column.parts.layers)])
    lines = shared_modules([column.parts.layers for column in ordered])
    spent = [
        _summed(
            (lines.get(module_of(row, column.parts.layers) or "", NO_MODULE), row.self_ns)
            for row in column.parts.layers
        )
        for column in ordered
    ]
    members: dict[str, tuple[str, ...]] = {}
    for module, name in lines.items():
        members[name] = (*members.get(name, ()), module)
    return _joined_columns(ordered, spent, members)


def merged_blocks(side: SideBySide) -> SideBySide:
    """The comparison with one line for modules that differ only in the number of their block: `layer.*.mlp`."""
    alike_lines: dict[str, list[SideBySideLine]] = {}
    for line in side.lines:
        alike_lines.setdefault(_FIRST_NUMBER.sub("*", line.name, count=1), []).append(line)
    lines = [lines[0] if len(lines) == 1 else _sum_of(name, lines) for name, lines in alike_lines.items()]
    return SideBySide(side.columns, _sorted_by_gain(lines))


def _sum_of(name: str, lines: Sequence[SideBySideLine]) -> SideBySideLine:
    times = [
        [spent for spent in column if spent is not None]
        for column in zip(*(line.times_ns for line in lines), strict=True)
    ]
    return SideBySideLine(
        name,
        tuple(sum(column) if column else None for column in times),
        tuple(module for line in lines for module in line.modules),
    )


def _fastest_first(columns: Iterable[ComparedColumn]) -> list[ComparedColumn]:
    """The columns with parts; by measured latency where all have it, else by the latency in the profiling process."""
    timed = [column for column in columns if column.parts_ns]
    measured = all(column.latency_ns is not None for column in timed)
    return sorted(timed, key=lambda column: (column.latency_ns or 0) if measured else column.parts.plain_ns)


def _joined_columns(
    columns: Sequence[ComparedColumn],
    spent: Sequence[Mapping[str, int]],
    members: Mapping[str, tuple[str, ...]] | None = None,
) -> SideBySide | None:
    if len(columns) < 2:
        return None
    names = dict.fromkeys(name for times in spent for name in times)
    lines = [
        SideBySideLine(name, tuple(times.get(name) for times in spent), (members or {}).get(name, ())) for name in names
    ]
    return SideBySide(tuple(columns), _sorted_by_gain(lines))


def _sorted_by_gain(lines: Iterable[SideBySideLine]) -> tuple[SideBySideLine, ...]:
    return tuple(sorted(lines, key=lambda line: -line_gain_ns(line)))


def _ns_by_group(parts: PartsProfile, in_blocks: bool) -> dict[str, int]:
    if parts.layers:
        return _summed((row.group, row.self_ns) for row in parts.layers)
    on_gpu = are_kernels(parts)
    times = ((row, (row.self_device_ns or 0) if on_gpu else row.self_cpu_ns) for row in parts.operators)
    return _summed((group_of_operator(row.name, in_blocks), spent) for row, spent in times if spent)


def _summed(times: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, spent in times:
        sums[name] = sums.get(name, 0) + spent
    return sums


@dataclass(frozen=True)
class ComparedProfiles:
    """Profile group: two or more backends with the same model, weights, device, precision, batch and sequence length.

    rows: one per backend, in the order of the summary. modules: None where fewer than two backends report modules.
    left_out: (name, why) of profiled backends whose profiles may not be compared.
    """

    rows: tuple[Row, ...]
    groups: SideBySide
    modules: SideBySide | None
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def shape(self) -> str:
        """Their common model and shape in words: `minilm-l6, fp32, batch 1, sequence 128`."""
        return f"{self.rows[0].model}, {self.setting}"

    @property
    def setting(self) -> str:
        """The shape without the model: `fp32, batch 1, sequence 128`."""
        return _setting(self.rows[0])


@dataclass(frozen=True)
class NotCompared:
    """A profile group of two or more backends that is not compared, because too few of their profiles can be trusted.
    left_out: (name, why)."""

    shape: str
    left_out: tuple[tuple[str, str], ...]


def compared_profiles(profiled: Iterable[Profiled]) -> list[ComparedProfiles]:
    """The comparisons that profiles allow, in their order. Of a backend with several settings, the fastest is used."""
    return [
        comparison
        for together in _profile_groups(profiled)
        if isinstance(comparison := _compared(together), ComparedProfiles)
    ]


def not_compared(profiled: Iterable[Profiled]) -> list[NotCompared]:
    """The profile groups that cannot be compared because of their profiles."""
    return [
        comparison
        for together in _profile_groups(profiled)
        if isinstance(comparison := _compared(together), NotCompared)
    ]


def _profile_groups(profiled: Iterable[Profiled]) -> list[list[Profiled]]:
    group: dict[GroupKey, list[Profiled]] = {}
    for case in profiled:
        key = GroupKey.of(case.row).without("boundary", "mode", "backend", "setting")
        group.setdefault(key, []).append(case)
    return list(group.values())


def _compared(group: Sequence[Profiled]) -> ComparedProfiles | NotCompared | None:
    backends: dict[str, list[tuple[Profiled, ComparedColumn]]] = {}
    left_out: dict[str, tuple[str, str]] = {}
    for case in group:
        if case.parts is None:
            continue
        column, why = _column(case), case.doubt
        if why is None:
            backends.setdefault(case.row.backend, []).append((case, column))
        else:
            left_out.setdefault(case.row.backend, (column.name, why))
    chosen = [min(settings, key=_speed) for settings in backends.values()]
    without = tuple(pair for backend, pair in left_out.items() if backend not in backends)
    columns = [column for _, column in chosen]
    groups, modules = by_group(columns), by_module(columns)
    if groups is None:
        return NotCompared(_shape(group[0].row), without) if without and len(columns) + len(without) > 1 else None
    return ComparedProfiles(
        tuple(case.row for case, _ in chosen), groups, merged_blocks(modules) if modules else None, without
    )


def _shape(row: Row) -> str:
    return f"{row.model}, {_setting(row)}"


def _setting(row: Row) -> str:
    length = (f"sequence {row.sequence_length}",) if row.sequence_length else ()
    return ", ".join((row.precision, f"batch {row.batch_size}", *length))


def _column(profiled: Profiled) -> ComparedColumn:
    assert profiled.parts is not None  # noqa: S101 - asked by _compared
    setting = "" if profiled.row.setting == "default" else f" {profiled.row.setting}"
    return ComparedColumn(
        profiled.row.case_id, f"{profiled.row.backend}{setting}", profiled.parts, profiled.model.achieved.latency_ns
    )


def _speed(pair: tuple[Profiled, ComparedColumn]) -> tuple[bool, float]:
    """Sort key: measured before unmeasured, then the faster first."""
    column = pair[1]
    return column.latency_ns is None, column.latency_ns or column.parts.plain_ns
