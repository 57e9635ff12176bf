"""This machine, as engines know it."""

from __future__ import annotations

from harness.core import gpu
from harness.engines import api
from harness.engines.request import Place


def here() -> Place:
    """TensorRT of this interpreter and the first visible GPU. ImportError without TensorRT, UnavailableError without
    NVML."""
    card = gpu.facts()
    return Place(api.version(), card.name, card.sm, card.driver)
