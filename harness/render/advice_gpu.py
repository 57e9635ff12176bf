"""Rules about what bounds a GPU: submitting, small kernels, and engines that must be built first (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.core.schemas import Row
from harness.measure.rows import median_ns
from harness.render import ranking, units
from harness.render.group import Group, Recommendation, interval, listed
from harness.render.series import name
from harness.reporting.tables import cold_start as cold
from harness.reporting.tables.engines import engine_of

ENQUEUE_BOUND = "ENQUEUE_BOUND"


def launches(group: Group) -> Iterator[Recommendation]:
    """Rows in which the GPU waits for the host, and rows of kernels too small to fill it."""
    waiting = [row for row in group.rows if _waits_for_host(row)]
    if waiting:
        text = (
            f"the GPU waits for the host's launches with {_where(waiting)}: a setting with a CUDA graph submits a "
            "whole pass with one call; a larger batch hides them behind computing."
        )
        yield group.recommendation("launches", text, tuple(row.case_id for row in waiting))
    small = [row for row in group.rows if row not in waiting and row.roofline and row.roofline.limit == "launch"]
    if small:
        text = (
            f"with {_where(small)} neither arithmetic nor memory is near its limit: kernels too small for the GPU, "
            "each waiting for the one before, so a larger batch or fewer, fused kernels gain most."
        )
        yield group.recommendation("small kernels", text, tuple(row.case_id for row in small))
    slow = [row for row in group.rows if row not in waiting and row.roofline and row.roofline.limit == "kernels"]
    if slow:
        text = (
            f"with {_where(slow)} most of the time grows with the batch and yet neither limit is near: other or "
            "fused kernels (a compiler, another layout or setting) can gain more than fewer launches."
        )
        yield group.recommendation("slow kernels", text, tuple(row.case_id for row in slow))


def engine_cost(group: Group) -> Iterator[Recommendation]:
    """After how many batches an engine has repaid its build, against the next best backend without one."""
    pairs: dict[tuple[str, str], list[tuple[Row, Row, float]]] = {}
    for row in sorted((row for row in group.rows if row.mode == "sync"), key=lambda row: row.batch_size):
        build_ns, best = _build_ns(group, row), _next_best(group, row)
        if build_ns is not None and best is not None:
            pairs.setdefault((name(row), name(best)), []).append((row, best, build_ns))
    for (engine, other), found in pairs.items():
        counts = [f"{_repaid(*one)} at batch {one[0].batch_size}" for one in found]
        builds = list(dict.fromkeys(units.duration(bound(ns for *_, ns in found)) for bound in (min, max)))
        text = (
            f"building the engines of {engine} ({' to '.join(builds)} each) is repaid against {other}, the next best, "
            f"after {listed(counts)} (batches); a built engine is kept for this GPU, driver and TensorRT."
        )
        yield group.recommendation("engine", text, tuple(one.case_id for row, best, _ in found for one in (row, best)))


def _waits_for_host(row: Row) -> bool:
    flagged = any(flag.name == ENQUEUE_BOUND for flag in row.flags)
    return flagged or (row.roofline is not None and row.roofline.limit == "host")


def _where(rows: Sequence[Row]) -> str:
    """`torch-eager fp16 at batch 1 and 8, and …`."""
    batches: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda row: row.batch_size):
        batches.setdefault(name(row), []).append(row.batch_size)
    return listed([f"{who} at batch {listed([str(size) for size in sizes])}" for who, sizes in batches.items()])


def _build_ns(group: Group, row: Row) -> float | None:
    engine = engine_of(row, group.export, group.engines)
    return None if engine is None else engine.build_s * 1e9


def _next_best(group: Group, row: Row) -> Row | None:
    """The fastest row of this shape without an engine, where `row` is faster beyond both intervals."""
    peers = [other for other in group.rows if ranking.shape(other) == ranking.shape(row)]
    others = [other for other in peers if _build_ns(group, other) is None]
    best = min(others, key=median_ns, default=None)
    ours, theirs = interval(row), interval(best) if best else None
    return None if ours is None or theirs is None or ours.high >= theirs.low else best


def _repaid(row: Row, best: Row, build_ns: float) -> str:
    assert row.latency_ns is not None and best.latency_ns is not None  # noqa: PT018, S101 - chosen by _next_best
    found = cold.repaid_after(build_ns, best.latency_ns, row.latency_ns)
    assert found is not None  # noqa: S101 - their intervals do not touch
    return cold.requests(*found)
