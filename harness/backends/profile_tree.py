"""Times of nested parts from the marks that hooks left, run by run (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.profiling.launch_gaps import Span

ROOT = "(model)"
"""The model itself, whose own path is empty."""


@dataclass(frozen=True)
class SpanMark:
    """A part begins or ends. at_ns: on any clock; a part inside another part ends before it."""

    part: str
    begins: bool
    at_ns: int


@dataclass(frozen=True)
class Times:
    """Of one part: calls per run, time in it and in the parts that it calls, and time in it alone, in ns."""

    calls: float
    total_ns: int
    self_ns: int


_NONE = Times(0, 0, 0)


def times_of_run(marks: Iterable[SpanMark]) -> dict[str, Times]:
    """Part → its times in one run, in the order in which parts first began.

    A part that runs inside itself, as a module that calls itself, counts its inner time once as its own and twice in
    total. ValueError where marks do not nest.
    """
    found: dict[str, Times] = {}
    open_parts: list[list[int]] = []
    names: list[str] = []
    for mark in marks:
        if mark.begins:
            names.append(mark.part)
            open_parts.append([mark.at_ns, 0])
            found.setdefault(mark.part, _NONE)
            continue
        if not names or names[-1] != mark.part:
            raise ValueError(f"{mark.part} ends while {names[-1] if names else 'nothing'} runs")
        names.pop()
        began, inside = open_parts.pop()
        total, before = mark.at_ns - began, found[mark.part]
        found[mark.part] = Times(before.calls + 1, before.total_ns + total, before.self_ns + total - inside)
        if open_parts:
            open_parts[-1][1] += total
    if names:
        raise ValueError(f"{names[-1]} never ends")
    return found


def means(runs: Sequence[Mapping[str, Times]]) -> dict[str, Times]:
    """Part → its mean times over runs, 0 in a run without the part. Self times add up to the whole."""
    parts = dict.fromkeys(part for run in runs for part in run)
    return {part: _mean([run.get(part, _NONE) for run in runs]) for part in parts}


def _mean(times: Sequence[Times]) -> Times:
    return Times(
        calls=sum(time.calls for time in times) / len(times),
        total_ns=round(sum(time.total_ns for time in times) / len(times)),
        self_ns=round(sum(time.self_ns for time in times) / len(times)),
    )


def spans_of_run(marks: Iterable[SpanMark]) -> list[Span]:
    """The marks of one run, which nest, as spans of a trace that starts with the first mark."""
    spans: list[Span] = []
    opened: list[SpanMark] = []
    for mark in marks:
        if mark.begins:
            opened.append(mark)
        else:
            begin = opened.pop()
            spans.append(Span(mark.part, "module", begin.at_ns, mark.at_ns - begin.at_ns))
    return sorted(spans, key=lambda span: (span.start_ns, -span.duration_ns))
