"""What a server reports of its own time: in each answer, and as sums since its start (pure).

In an answer: the parameters `queue_ns` and `compute_ns` of KServe v2, or the header Server-Timing (W3C) with the names
`queue` and `compute` in milliseconds. As sums: Triton's statistics extension.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.endpoints.contract import Exchange, ServerTotals

_ENTRY = re.compile(r"\s*([A-Za-z0-9_-]{1,40})\s*((?:;[^,;]{0,200})*)")
_DURATION = re.compile(r";\s*dur\s*=\s*\"?([0-9]{1,12}(?:\.[0-9]{1,12})?)\"?\s*")
_MOST_NS = 1 << 60


def note_parameters(parameters: object, trace: Exchange) -> None:
    """Write the times in an answer's parameters into its trace."""
    if isinstance(parameters, Mapping):
        trace.server_queue_ns = _known(parameters.get("queue_ns"), trace.server_queue_ns)
        trace.server_compute_ns = _known(parameters.get("compute_ns"), trace.server_compute_ns)


def note_server_timing(header: str | None, trace: Exchange) -> None:
    """Write the times in a header Server-Timing into a trace."""
    for entry in (header or "").split(","):
        found = _ENTRY.fullmatch(entry)
        duration = _DURATION.search(found[2]) if found else None
        if found and duration:
            nanoseconds = round(float(duration[1]) * 1e6)
            if found[1] == "queue":
                trace.server_queue_ns = nanoseconds
            elif found[1] == "compute":
                trace.server_compute_ns = nanoseconds


def totals_of(models: object) -> ServerTotals | None:
    """The sums in the field `model_stats` of an answer, over all versions; None where it has another form."""
    if not isinstance(models, Sequence) or isinstance(models, str) or not models:
        return None
    try:
        return _sum([_totals(model) for model in models])
    except (KeyError, TypeError, AttributeError):
        return None


def _totals(model: Any) -> ServerTotals:
    statistics = model["inference_stats"]
    times = {name: _whole(statistics[name].get("ns", 0)) for name in _PARTS}
    return ServerTotals(
        requests=_whole(statistics["success"].get("count", 0)),
        failed=_whole(statistics["fail"].get("count", 0)),
        executions=_whole(model.get("execution_count", 0)),
        queue_ns=times["queue"],
        compute_input_ns=times["compute_input"],
        compute_infer_ns=times["compute_infer"],
        compute_output_ns=times["compute_output"],
    )


_PARTS = ("queue", "compute_input", "compute_infer", "compute_output")


def _sum(parts: Sequence[ServerTotals]) -> ServerTotals:
    names = ServerTotals.__dataclass_fields__
    return ServerTotals(**{name: sum(getattr(part, name) for part in parts) for name in names})


def _whole(value: object) -> int:
    # protobuf's JSON writes 64-bit integers as strings.
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 1 << 63:
        raise TypeError(value)
    return value


def _known(value: object, otherwise: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_NS:
        return value
    return otherwise
