"""Boundary and mode of rows in words, and the columns that an e2e row has besides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from harness.core.schemas import Boundary, Mode, Part, Row, Split
from harness.render import units
from harness.render.ranking import TableKey
from harness.render.units import ABSENT, TimeUnit

BOUNDARIES: Mapping[Boundary, str] = {
    "compute": "inputs and outputs in memory as the backend reads and writes them",
    "transfer": "copies to the device and back included",
    "e2e": "from text or JPEG bytes to the answer; preprocessing and post-processing on one thread",
}
MODES: Mapping[Mode, str] = {
    "sync": "one batch in flight",
    "pipelined": "two batches in flight; a latency holds the wait behind the batch before",
    "offline": "throughput mode: back to back, only blocks are timed, so no batch has a latency",
}

OVERLAPPED = "three batches in flight, one in each stage; a latency holds the wait behind the batches before"
"""pipelined, at the transfer boundary."""

PARTS: Mapping[str, Callable[[Split], Part]] = {
    "preprocess": lambda split: split.preprocess,
    "inference": lambda split: split.inference,
    "postprocess": lambda split: split.postprocess,
}


def way_of(key: TableKey) -> tuple[str, str]:
    """(boundary, mode) of a table."""
    return key.boundary or "", key.mode or ""


def short(row: Row) -> str:
    """`e2e`, `offline`, `pipelined`; empty for the usual boundary and mode."""
    parts = (row.boundary if row.boundary != "compute" else "", row.mode if row.mode != "sync" else "")
    return " ".join(part for part in parts if part)


def stated(row: Row) -> str:
    """Boundary and mode as a condition; what is not usual is explained."""
    boundary = f"boundary {row.boundary}" + ("" if row.boundary == "compute" else f" ({BOUNDARIES[row.boundary]})")
    meant = OVERLAPPED if (row.boundary, row.mode) == ("transfer", "pipelined") else MODES[row.mode]
    mode = f"mode {row.mode}" + ("" if row.mode == "sync" else f" ({meant})")
    return f"{boundary}, {mode}"


def guide_lines(rows: Iterable[Row]) -> list[str]:
    """How to read what is not usual, for the boundaries and modes that there are."""
    found = {short(row) for row in rows if row.status == "measured"}
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
    return [line for name, line in lines.items() if name in found]


def time_name(row: Row, unit: TimeUnit) -> str:
    """What the headline of a table is: a latency, or what a batch takes of a block's time."""
    return f"time per batch (throughput mode) {unit.name}" if row.mode == "offline" else f"median {unit.name}"


def split_columns(rows: Iterable[Row]) -> dict[str, Callable[[Row], str]]:
    """Header → cell: median of each part and its share of the whole, where rows have parts."""
    found = [row.split for row in rows if row.split is not None]
    if not found:
        return {}
    # The parts are of very different size, so each column has the unit that suits it.
    chosen = {name: units.time_unit(part(split).median_ns for split in found) for name, part in PARTS.items()}
    return {f"{name} {unit.name} (share)": _cell(PARTS[name], unit) for name, unit in chosen.items()}


def _cell(part: Callable[[Split], Part], unit: TimeUnit) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        if row.split is None:
            return ABSENT
        found = part(row.split)
        return f"{units.in_unit(found.median_ns, unit)} ({found.share:.1%})"

    return cell
