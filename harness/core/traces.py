"""Chrome's trace format, which Perfetto and chrome://tracing open: spans on one line of time.

Source: "Trace Event Format" (Google, 2016), complete events: `ph` is "X", `ts` and `dur` are in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.store import translate_storage_errors


@dataclass(frozen=True)
class Span:
    """One part of a run. start_ns, duration_ns: from the trace's own zero. about: what a click on it shows."""

    name: str
    kind: str
    start_ns: int
    duration_ns: int
    about: Mapping[str, str | int] = field(default_factory=dict)


def back_to_back(parts: Iterable[tuple[str, str, int]]) -> list[Span]:
    """(name, kind, duration in ns) of parts whose profiler tells no starts, one after the other."""
    spans, start = [], 0
    for name, kind, duration in parts:
        spans.append(Span(name, kind, start, duration))
        start += duration
    return spans


def save_trace(path: Path, process: str, spans: Iterable[Span]) -> None:
    """Write spans as one trace. StorageError where the disk does not take it."""
    named = {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": process}}
    events = [
        {
            "name": span.name,
            "cat": span.kind,
            "ph": "X",
            "pid": 0,
            "tid": 0,
            "ts": span.start_ns / 1e3,
            "dur": span.duration_ns / 1e3,
            "args": dict(span.about),
        }
        for span in spans
    ]
    with translate_storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"traceEvents": [named, *events], "displayTimeUnit": "ms"}), encoding="utf-8")
