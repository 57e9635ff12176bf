"""The report's section "Profile": what models cost, and where the time goes, side by side (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas.profile import ModelProfile
from harness.core.schemas.profile_parts import PartsProfile
from harness.render.markdown import section
from harness.render.profile_layers import groups_table, mark
from harness.render.profile_model import model_tables


def profile_section(
    profiles: Sequence[ModelProfile], parts: Mapping[str, PartsProfile], folder: str, compared: Sequence[str] = ()
) -> str:
    """All of it; empty where nothing was profiled.

    parts: by case id, for the cases that have them; folder: of the profiles, relative to the report; compared: the
    sections that set backends side by side.
    """
    links = {found.case_id: _files(found, parts.get(found.case_id), folder) for found in profiles}
    shapes: dict[tuple[str, int | None, int], list[ModelProfile]] = {}
    for found in profiles:
        if found.case_id in parts:
            shapes.setdefault((found.model, found.sequence_length, found.batch_size), []).append(found)
    alone = [
        _shape(kin, {_name(found): parts[found.case_id] for found in kin})
        for kin in shapes.values()
        # What differs in the backend alone stands side by side already, but for profiles that show nothing.
        if len({found.backend for found in kin}) == 1
        or len({found.precision for found in kin}) > 1
        or any(mark(parts[found.case_id]) for found in kin)
    ]
    return "\n\n".join(text for text in (model_tables(profiles, links), *compared, *alone) if text)


def _shape(kin: Sequence[ModelProfile], named: Mapping[str, PartsProfile]) -> str:
    """Groups of layers of one model at one shape, a column a backend and precision."""
    groups = groups_table(named)
    if not groups:
        return ""
    first = kin[0]
    length = f", sequence length {first.sequence_length}" if first.sequence_length else ""
    title = f"Where the time of {first.model} goes at batch {first.batch_size}{length}"
    how = "By each backend's own profiler, which costs time itself."
    if any(map(mark, named.values())):
        how += " Nothing is concluded from the times of marked columns; each case's `parts.md` says why."
    return section(title, how, groups, level=3)


def _name(found: ModelProfile) -> str:
    way = "" if found.setting == "default" else f" {found.setting}"
    return f"{found.backend} {found.precision}{way}"


def _files(found: ModelProfile, parts: PartsProfile | None, folder: str) -> list[str]:
    names = ["model.json", *found.memory_files, *(["parts.md", *parts.traces] if parts else [])]
    return [f"{folder}/{found.case_id}/{name}" for name in names]
