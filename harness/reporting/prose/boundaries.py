"""Boundary and mode of rows in words, and the parts of an e2e row (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from harness.core.schemas import Boundary, LatencyPart, ModeName, Row, Split
from harness.reporting.ranking import TableKey

BOUNDARIES: Mapping[Boundary, str] = {
    "compute": "model only",
    "transfer": "copies to the device and back included (boundary transfer)",
    "e2e": "from text or JPEG bytes to the answer (boundary e2e), preprocessing and post-processing on one thread",
}
MODES: Mapping[ModeName, str] = {
    "sync": "one request at a time",
    "pipelined": "two batches in flight (mode pipelined), so a latency includes the wait behind the batch before",
    "offline": "batches back to back (mode offline): only blocks are timed, so no batch has a latency",
}

OVERLAPPED = (
    "three batches in flight (mode pipelined), one in each stage, so a latency includes the wait behind the batches "
    "before"
)
"""Text for the mode pipelined at the transfer boundary."""

BRIEF: Mapping[str, str] = {
    "compute": "model only",
    "transfer": "with copies",
    "e2e": "end to end",
    "sync": "one request at a time",
    "pipelined": "pipelined",
    "offline": "offline",
}

PARTS: Mapping[str, Callable[[Split], LatencyPart]] = {
    "preprocess": lambda split: split.preprocess,
    "inference": lambda split: split.inference,
    "postprocess": lambda split: split.postprocess,
}


def boundary_and_mode(key: TableKey) -> tuple[str, str]:
    """(boundary, mode) of a table."""
    return key.boundary or "", key.mode or ""


def short_mode(row: Row) -> str:
    """`e2e`, `offline`, `pipelined`; empty for the usual boundary and mode."""
    parts = (row.boundary if row.boundary != "compute" else "", row.mode if row.mode != "sync" else "")
    return " ".join(part for part in parts if part)


def mode_condition(row: Row) -> str:
    """Boundary and mode in words, as a condition."""
    mode = OVERLAPPED if (row.boundary, row.mode) == ("transfer", "pipelined") else MODES[row.mode]
    return f"{BOUNDARIES[row.boundary]}, {mode}"


def brief_mode(row: Row) -> str:
    """Boundary and mode in a few words: `model only, one request at a time`."""
    return f"{BRIEF[row.boundary]}, {BRIEF[row.mode]}"


def guide_lines(rows: Iterable[Row]) -> list[str]:
    """Explanations of the unusual boundaries and modes among the rows."""
    shown = {short_mode(row) for row in rows if row.status == "measured"}
    lines = {
        "e2e": "**preprocess, inference, postprocess**: the parts of each e2e sample, as median of process medians and "
        "share of the time of all samples. Preprocessing is the model's own tokenizer, or JPEG decoding and its "
        "transform; inference hands the arrays over and copies the outputs back; post-processing makes the five "
        "likeliest classes, a sentence embedding or the next token.",
        "pipelined": "**pipelined**: two batches in flight; a latency runs from submission to completion, the wait "
        "behind the other batch included.",
        "transfer pipelined": "**transfer pipelined**: three batches in flight, one copied to the device, one "
        "computing, one copied back, each on a stream of its own; a latency runs from submission to completion, the "
        "wait behind the batches before included.",
        "offline": "**time per batch (throughput mode)**: wall time of blocks of batches, back to back, by their "
        "number; no single batch is timed, so there are no percentiles.",
    }
    return [line for name, line in lines.items() if name in shown]
