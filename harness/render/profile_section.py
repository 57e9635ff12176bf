"""The report's section "Profile": what models cost, and where the time goes, side by side (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas.profile import ModelProfile
from harness.core.schemas.profile_parts import PartsProfile
from harness.render.markdown import section
from harness.render.profile_layers import groups_table, modules_table
from harness.render.profile_model import model_tables


def profile_section(profiles: Sequence[ModelProfile], parts: Mapping[str, PartsProfile], folder: str) -> str:
    """All of it; empty where nothing was profiled.

    parts: by case id, for the cases that have them; folder: of the profiles, relative to the report.
    """
    links = {found.case_id: _files(found.case_id, parts.get(found.case_id), folder) for found in profiles}
    shapes: dict[tuple[str, int | None, int], list[ModelProfile]] = {}
    for found in profiles:
        if found.case_id in parts:
            shapes.setdefault((found.model, found.sequence_length, found.batch_size), []).append(found)
    compared = [_shape(kin, {_name(found): parts[found.case_id] for found in kin}) for kin in shapes.values()]
    return "\n\n".join(text for text in (model_tables(profiles, links), *compared) if text)


def _shape(kin: Sequence[ModelProfile], named: Mapping[str, PartsProfile]) -> str:
    """Groups of layers and modules of one model at one shape, a column a backend."""
    groups = groups_table(named)
    if not groups:
        return ""
    first = kin[0]
    length = f", sequence length {first.sequence_length}" if first.sequence_length else ""
    title = f"Where the time of {first.model} goes at batch {first.batch_size}{length}"
    how = "By each backend's own profiler, which costs time itself."
    return section(title, how, groups, modules_table(named), level=3)


def _name(found: ModelProfile) -> str:
    way = "" if found.setting == "default" else f" {found.setting}"
    return f"{found.backend} {found.precision}{way}"


def _files(case_id: str, parts: PartsProfile | None, folder: str) -> list[str]:
    names = ["model.json", *(["parts.md", *parts.traces] if parts else [])]
    return [f"{folder}/{case_id}/{name}" for name in names]
