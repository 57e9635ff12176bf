"""Profiled rows to set side by side."""

from __future__ import annotations

from typing import Any

from harness.core.schemas import Flag
from harness.core.schemas.profile_record import LayerRow, OperatorRow, PartsProfile
from harness.profiling.read_profiles import Profiled
from harness.profiling.side_by_side import (
    MODEL,
    ComparedColumn,
)
from tests.synthetic_results import RESNET, case_of
from tests.synthetic_roof import BASE, profile

CPU_SHARED = Flag(name="CPU_SHARED", detail="others ran", remedy="Stop them.")


def row(name: str, self_ns: int, parent: str | None = None, depth: int = 0, **more: Any) -> LayerRow:
    return LayerRow(
        name=name, kind=more.pop("kind", "X"), parent=parent, depth=depth, self_ns=self_ns, total_ns=self_ns, **more
    )


def parts(*layers: LayerRow, operators: tuple[OperatorRow, ...] = ()) -> PartsProfile:
    spent = sum(layer.self_ns for layer in layers) + sum(
        max(entry.self_cpu_ns, entry.self_device_ns or 0) for entry in operators
    )
    plain_ns = spent + spent // 20
    return PartsProfile(
        layers=layers, operators=operators, traces=(), window_ns=plain_ns + 10, plain_ns=plain_ns, grade="A"
    )


def column(name: str, parts: PartsProfile, latency_ns: float | None = None) -> ComparedColumn:
    return ComparedColumn(name, name, parts, latency_ns)


def block(number: int, scale: int = 1) -> tuple[LayerRow, ...]:
    """One encoder layer of a module tree: 100 ns."""
    at = f"layer.{number}"
    return (
        row(at, 1 * scale, MODEL, 1),
        row(f"{at}.attn", 9 * scale, at, 2, group="attention"),
        row(f"{at}.attn.q", 10 * scale, f"{at}.attn", 3, group="attention"),
        row(f"{at}.attn.k", 10 * scale, f"{at}.attn", 3, group="attention"),
        row(f"{at}.attn.dropout", 2 * scale, f"{at}.attn", 3, kind="Dropout", group="attention"),
        row(f"{at}.out", 3 * scale, at, 2, group="mlp"),
        row(f"{at}.out.dense", 45 * scale, f"{at}.out", 3, group="mlp"),
        row(f"{at}.out.norm", 20 * scale, f"{at}.out", 3, group="normalisation"),
    )


EAGER = parts(row(MODEL, 5), row("embed", 15, MODEL, 1, group="embedding"), *block(0), *block(1))


GRAPH = parts(
    row("gather", 10, "embed", group="embedding"),
    row("copy", 4, group="layout"),
    *(
        node
        for number in (0, 1)
        for node in (
            row(f"q{number}", 5, f"layer.{number}.attn.q", group="attention"),
            row(f"k{number}", 5, f"layer.{number}.attn.k", group="attention"),
            row(f"softmax{number}", 4, f"layer.{number}.attn", group="attention"),
            row(f"dense+norm{number}", 30, f"layer.{number}.out.dense", group="mlp"),
        )
    ),
)


FUSED = parts(
    row("gather", 10, "embed", group="embedding"),
    row("qk0", 6, "layer.0.attn", group="attention"),
    row("out0", 20, "layer.0.out.dense", group="mlp"),
    row("region", 25, "layer", group="other"),
)


def columns(*, latencies: tuple[float | None, ...] = (None, None, None)) -> list[ComparedColumn]:
    names = ("eager", "graph", "fused")
    return [column(*entry) for entry in zip(names, (EAGER, GRAPH, FUSED), latencies, strict=True)]


def profiled(backend: str, parts: PartsProfile | None, **changes: Any) -> Profiled:
    case = case_of(RESNET, backend, "fp32", 1)
    model = profile(case, BASE)
    latency = changes.pop("latency_ns", None)
    achieved = model.achieved.model_copy(update={"latency_ns": latency})
    facts = {"case_id": f"{backend}-{len(changes)}-{changes.get('setting')}", "backend": backend, **changes}
    return Profiled(BASE.model_copy(update=facts), model.model_copy(update={"achieved": achieved}), parts)
