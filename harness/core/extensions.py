"""Lists the plugins of installed packages: their entry points of one group, found without importing anything.

https://packaging.python.org/en/latest/specifications/entry-points/
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any


@dataclass(frozen=True)
class Extension:
    """One entry point. load: imports its module and returns its object; raises what that module raises."""

    name: str
    distribution: str
    version: str
    load: Callable[[], Any]

    @property
    def origin(self) -> str:
        """Distribution and version, as records have them."""
        return f"{self.distribution} {self.version}"


def installed(group: str) -> tuple[list[Extension], list[str]]:
    """(entry points of a group by name, distributions that name the group in a file that cannot be read)."""
    extensions: list[Extension] = []
    unreadable: list[str] = []
    seen: set[str] = set()
    # metadata.entry_points() would stop at the first malformed file, even one of an unrelated package.
    for distribution in metadata.distributions():
        if group not in _entry_points_of(distribution):
            continue
        name = distribution.metadata["Name"] or "a distribution without a name"
        if name.lower() in seen or _is_shadowed(distribution, name):
            continue
        seen.add(name.lower())
        try:
            points = distribution.entry_points.select(group=group)
        except (TypeError, UnicodeDecodeError):  # a line without `=`, or bytes that are not text
            unreadable.append(f"{name} {distribution.version}")
            continue
        extensions += [Extension(point.name, name, distribution.version, point.load) for point in points]
    return sorted(extensions, key=lambda extension: (extension.name, extension.distribution)), sorted(unreadable)


def _entry_points_of(distribution: metadata.Distribution) -> str:
    try:
        return distribution.read_text("entry_points.txt") or ""
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")


def _is_shadowed(distribution: metadata.Distribution, name: str) -> bool:
    """Whether another copy, perhaps without these entry points, comes earlier on the path: Python imports that copy."""
    first = next(iter(metadata.distributions(name=name)), distribution)
    return first.locate_file("") != distribution.locate_file("")


def reason(error: BaseException) -> str:
    """`ImportError: no module named x` on one line, with the exception that caused it.

    The whole message without colours and line breaks: messages of libraries often begin with the failure and end with
    its reason. The middle of a very long message is left out. Where an exception has a cause, the result has the first
    line of the exception and all of the cause, unless the exception already repeats the cause in short.
    """
    cause = error
    seen = {id(error)}
    while cause.__cause__ is not None and id(cause.__cause__) not in seen:
        cause = cause.__cause__
        seen.add(id(cause))
    whole, inner = _message(error), _message(cause)
    if cause is error or (inner in whole and len(whole) <= _LONGEST):
        return _named(error, _shortened(whole))
    return f"{_named(error, _shortened(_message(error, lines=1)))} Caused by {_named(cause, _shortened(inner))}"


_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f]")
"""ECMA-48 control sequences (colours, links) and other control characters, except line breaks and tabs."""

_LONGEST = 1200
"""Longest message of a library, in characters. A message of torch.onnx has several thousand, with the reason in the
middle of the exception that caused it."""


def _message(error: BaseException, lines: int | None = None) -> str:
    """The message on one line; lines: only so many of its first lines."""
    printed = [" ".join(line.split()) for line in _COLOURS.sub("", str(error)).splitlines()]
    return " ".join([line for line in printed if line][:lines])


def _shortened(text: str) -> str:
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half].rstrip()} … {text[-half:].lstrip()}"


def _named(error: BaseException, text: str) -> str:
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
