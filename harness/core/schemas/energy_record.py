"""results/energy/<case_id>.json: what an inference costs in joules, from a pass of its own."""

from __future__ import annotations

from harness.core.schemas.vocabulary import Format2, Record, SettingsId


class Energy(Record):
    """What one inference of a case costs in electricity: measured back to back, in a pass of its own."""

    schema_version: Format2 = 2
    case_id: str
    settings_id: SettingsId
    created_at: str
    environment_id: str | None
    gpu: str
    uuid: str
    batch_size: int
    idle_w: float
    """Mean power of the card over `idle_ns`, before the first case came to it."""
    idle_ns: int
    energy_j: float
    """By the card's own counter over the window: everything, idle power included."""
    window_ns: int
    """From the first timed inference to the last, with what little lies between the blocks."""
    busy_ns: int
    """The blocks' part of it."""
    batches: int
    joules_per_inference: float
    """Of one batch: (energy_j - idle_w x window) / batches."""
    joules_per_item: float
