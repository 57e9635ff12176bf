"""What to say when memory is over: the same two lines, whichever library noticed (pure)."""

from __future__ import annotations

import re

from harness.core.schemas import Device

_WORDS = re.compile(r"out ?of ?memory|failed to allocate|MemoryAllocation|ALLOC_FAILED|bad.alloc", re.IGNORECASE)
"""How torch, CUDA, ONNX Runtime and TensorRT say it; each has an exception type of its own."""


def tells_full_memory(text: str) -> bool:
    """True where a library's message says that memory is over."""
    return _WORDS.search(text) is not None


def out_of_memory(device: Device, batch: int) -> tuple[str, str]:
    """(problem, hint) with the batch to try."""
    where = "GPU memory" if device == "cuda" else "memory"
    smaller = f"Try BATCHES={batch // 2}" if batch > 1 else "Try a smaller model"
    return f"Out of {where} at batch {batch}.", f"{smaller}, or a device with more memory."
