"""Rows and profiles whose possible gains are known."""

from __future__ import annotations

from typing import Any

from harness.core.schemas import Row
from harness.core.schemas.profile_record import (
    LayerRow,
    PartsProfile,
)
from harness.profiling.what_if import Improvement, what_if
from tests.synthetic_results import EFFICIENTNET, Synthetic, matrix, voided

SUMMARY = Synthetic(models=(EFFICIENTNET,), cases=matrix((EFFICIENTNET,))).summary()


BY_NAME = {(row.backend, row.precision, row.batch_size): row for row in SUMMARY.rows}


MS = 1_000_000


def row(backend: str, batch: int, ms: float, precision: str = "fp32", spread: float = 0.01, **changes: Any) -> Row:
    """A row with three processes around a median."""
    result = BY_NAME[backend, "fp32", batch]
    assert result.latency_ns is not None
    changes = {"precision": precision, "case_id": result.case_id.replace("fp32", precision), **changes}
    medians = tuple(ms * MS * factor for factor in (1 - spread, 1.0, 1 + spread))
    latency = result.latency_ns.model_copy(update={"median": ms * MS, "process_medians": medians})
    return voided(result.model_copy(update={"latency_ns": latency, "grade": "A", "flags": (), **changes}))


EAGER, ORT = row("torch-eager", 1, 20), row("onnxruntime", 1, 10)


def layer(name: str, ms: float, **more: Any) -> LayerRow:
    return LayerRow(**{"name": name, "kind": "X", "self_ns": ms * MS, "total_ns": ms * MS, **more})


TREE = (
    layer("(model)", 0, flops=100),
    layer("fc", 12, depth=1, parent="(model)", flops=100, group="linear"),
    layer("norm", 3, depth=1, parent="(model)", flops=0, group="normalisation"),
    layer("act", 5, depth=1, parent="(model)", flops=0, group="activation"),
    layer("words", 0.5, depth=1, parent="(model)", flops=0, group="embedding"),
)


GRAPH = (
    layer("node_1", 7, parent="fc", group="linear", members=("node_1", "node_act")),
    layer("node_2", 2, parent="norm", group="normalisation"),
    layer("Reorder", 1, group="layout"),
)


def parts(layers: tuple[LayerRow, ...], plain_ms: float, **more: Any) -> PartsProfile:
    times = {"window_ns": plain_ms * MS, "plain_ns": plain_ms * MS}
    return PartsProfile(**{"layers": layers, "operators": (), "traces": (), **times, **more})


PROFILES = {EAGER.case_id: parts(TREE, 20.5), ORT.case_id: parts(GRAPH, 10)}


def changes(*rows: Row, profiles: dict[str, PartsProfile] | None = None) -> list[Improvement]:
    (result,) = what_if(rows, profiles or {}, "torch-eager")
    assert (result.reason is None) == bool(result.changes)
    return list(result.changes)
