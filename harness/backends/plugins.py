"""Backends of installed packages (docs/plugins.md): their entries for the table, checked before they are used.

An entry point of the group `inferometer.backends` has the backend's name and gives a BackendInfo, or a function without
arguments that returns it. Stages import its module, so it must not import the libraries that compute.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.backends.info import BackendInfo
from harness.core import errors, plugin_discovery, store
from harness.core.plugin_discovery import Plugin

GROUP = "inferometer.backends"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_NAME = 40


@dataclass(frozen=True)
class PluginRefused:
    """A plugin that cannot be used, as the two lines of an error."""

    problem: str
    hint: str = "Repair or uninstall that package; docs/plugins.md says what it must provide."


class PluginTable(Mapping[str, BackendInfo]):
    """The built-in entries, then those of plugins, by name.

    A plugin is read when its name, or the whole table, is first used: its module imports harness.backends itself, and a
    process that measures one backend does not need the plugins of others.
    """

    def __init__(self, built_in: Mapping[str, BackendInfo]) -> None:
        self._built_in = built_in
        self._read: dict[str, BackendInfo | list[PluginRefused]] = {}

    def __getitem__(self, name: str) -> BackendInfo:
        if name in self._built_in:
            return self._built_in[name]
        entry = self._plugin(name)
        if isinstance(entry, BackendInfo):
            return entry
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from (name for name in self._points if isinstance(self._plugin(name), BackendInfo))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def refused(self, name: str) -> list[PluginRefused]:
        """Installed plugins of that name that cannot be used."""
        entry = self._plugin(name)
        return entry if isinstance(entry, list) else []

    def all_refused(self) -> list[PluginRefused]:
        """Every installed plugin that cannot be used."""
        problem = "cannot be used: its entry_points.txt is not readable"
        unreadable = [PluginRefused(f"The plugin {origin} {problem}.") for origin in self._installed[1]]
        return [*(refusal for name in self._points for refusal in self.refused(name)), *unreadable]

    @cached_property
    def _installed(self) -> tuple[list[Plugin], list[str]]:
        return plugin_discovery.installed(GROUP)

    @cached_property
    def _points(self) -> dict[str, list[Plugin]]:
        by_name: dict[str, list[Plugin]] = {}
        for point in self._installed[0]:
            by_name.setdefault(point.name, []).append(point)
        return by_name

    def _plugin(self, name: str) -> BackendInfo | list[PluginRefused]:
        if name in self._points and name not in self._read:
            self._read[name] = _read(name, self._points[name], self._built_in)
        return self._read.get(name, [])


def _read(name: str, points: list[Plugin], built_in: Mapping[str, BackendInfo]) -> BackendInfo | list[PluginRefused]:
    """The entry of the only package that provides a backend, or the fault of each package that does."""
    problem = _name_problem(name, points, built_in)
    entries = [(point, problem or _entry(point, built_in)) for point in points]
    for _, entry in entries:
        if isinstance(entry, BackendInfo):
            return entry
    return [
        PluginRefused(f"The backend `{name}` of {point.origin} cannot be used: {wrong}.") for point, wrong in entries
    ]


def _name_problem(name: str, points: list[Plugin], built_in: Mapping[str, BackendInfo]) -> str | None:
    if name in built_in:
        return "a backend of Inferometer's own has that name"
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        return f"a name has small letters, digits and single dashes, at most {_LONGEST_NAME} characters"
    return f"{' and '.join(point.origin for point in points)} both have one" if len(points) > 1 else None


def _entry(point: Plugin, built_in: Mapping[str, BackendInfo]) -> BackendInfo | str:
    """The entry that an entry point gives, or a description of its fault."""
    before = set(sys.modules)
    try:
        given: Any = point.load()
        given = given() if callable(given) else given
    except (Exception, SystemExit) as error:  # a fault of a foreign package must not stop the others
        return errors.reason(error)
    if not isinstance(given, BackendInfo):
        return f"it gives {type(given).__name__} and no BackendInfo"
    return _wrong(given, built_in, set(sys.modules) - before) or replace(given, plugin=point.distribution)


def _wrong(info: BackendInfo, built_in: Mapping[str, BackendInfo], imported: set[str]) -> str | None:
    try:
        TypeAdapter(BackendInfo).validate_python(vars(info))
    except ValidationError as error:
        return store.first_problem(error)
    offered = [*info.precisions.values(), *(info.decoder_precisions or {}).values()]
    if not offered or not all(offered):
        return "precisions: no device, or a device without any"
    if info.computes is (info.artifact == "none"):
        return "computes: what loads no artifact has no reference to be checked against, and the other way round"
    heavy = {name for entry in (info, *built_in.values()) for name in entry.requires} & imported
    if heavy:
        return f"reading its entry imports {', '.join(sorted(heavy))}, which only the process that runs it may do"
    return None
