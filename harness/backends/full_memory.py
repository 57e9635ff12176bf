"""What to say when memory is over: the same two lines, whichever library noticed (pure)."""

from __future__ import annotations

from harness.core.schemas import Device


def out_of_memory(device: Device, batch: int) -> tuple[str, str]:
    """(problem, hint) with the batch to try."""
    where = "GPU memory" if device == "cuda" else "memory"
    smaller = f"Try BATCHES={batch // 2}" if batch > 1 else "Try a smaller model"
    return f"Out of {where} at batch {batch}.", f"{smaller}, or a device with more memory."
