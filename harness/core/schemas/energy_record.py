"""results/energy/<case_id>.json: energy of an inference in joules, from a separate pass."""

from __future__ import annotations

from harness.core.schemas.vocabulary import Format2, Record, SettingsId


class Energy(Record):
    """Electrical energy of one inference of a case: measured back to back, in a separate pass."""

    schema_version: Format2 = 2
    case_id: str
    settings_id: SettingsId
    created_at: str
    environment_id: str | None
    gpu: str
    uuid: str
    batch_size: int
    idle_w: float
    """Mean power of the GPU over `idle_ns`, before the first case used it."""
    idle_ns: int
    energy_j: float
    """From the GPU's own counter over the window: all energy, idle power included."""
    window_ns: int
    """From the first timed inference to the last, with the short gaps between the blocks."""
    busy_ns: int
    """The part of `window_ns` inside the blocks."""
    batches: int
    joules_per_inference: float
    """Of one batch: (energy_j - idle_w x window) / batches."""
    joules_per_item: float
