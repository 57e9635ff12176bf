"""What stands beside a case's profile for people and for TensorBoard: chart, event file, the section on memory."""

from __future__ import annotations

import importlib.util

from harness.core import store
from harness.core.layout import Results
from harness.core.schemas.profile import ModelProfile
from harness.core.schemas.profile_memory import MemoryProfile
from harness.core.schemas.profile_parts import PartsProfile
from harness.render.profile_memory import memory_figure
from harness.reporting.charts.matplotlib_drawer import image
from harness.reporting.tables.allocations import memory_section


def memory_of(results: Results, case_id: str) -> MemoryProfile | None:
    """The record; None where the backend's library tells nothing, or an older version profiled the case."""
    path = results.memory_profile(case_id)
    return store.load(path, MemoryProfile, "make profile") if path.is_file() else None


def memory_text(results: Results, case_id: str) -> str:
    """The section of parts.md; empty without a record."""
    found = memory_of(results, case_id)
    chart = results.memory_chart(case_id)
    return "" if found is None else memory_section(found, chart.name if chart.is_file() else None)


def forget_usage(results: Results, case_id: str) -> None:
    """Remove what a monitor saw of earlier repeats, of which there may have been more."""
    for path in results.profile(case_id).glob("*.usage.json"):
        with store.translate_storage_errors(path):
            path.unlink()


def memory_files(results: Results, case_id: str) -> tuple[str, ...]:
    """Draw the chart of a pass that allocated something; returns the names of all files about memory."""
    found = memory_of(results, case_id)
    if found is None:
        return ()
    names = [results.memory_profile(case_id).name, *([found.snapshot] if found.snapshot else [])]
    if not found.at_ns:
        return tuple(names)
    figure = memory_figure(f"Memory in one pass: {case_id}", found)
    store.save_bytes(results.memory_chart(case_id), image(figure, "png"))
    return (*names, results.memory_chart(case_id).name)


def write_events(results: Results, model: ModelProfile, parts: PartsProfile | None, text: str) -> None:
    """Write the case's event file, so that `tensorboard --logdir results/profiles` shows a run a case. Nothing where
    TensorBoard is not installed: nobody opens it there."""
    if importlib.util.find_spec("tensorboard") is None:
        return
    from harness.reporting.writers.tensorboard import event_file  # noqa: PLC0415 - TensorBoard is no dependency

    store.save_bytes(results.profile_events(model.case_id), event_file(model, parts, text))
