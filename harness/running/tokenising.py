"""How long a text model's tokenizer takes for one batch, on the host and apart from the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import Case, ExportRecord
from harness.core.schemas.profile_parts import Tokenising
from harness.measure.clock import now_ns
from harness.measure.middle import middle_mean
from harness.zoo.tokenising import texts_of

_WARM_UP_RUNS = 3


def tokenising(
    case: Case, export: ExportRecord, folder: Path, batch: Mapping[str, NDArray[np.generic]], runs: int
) -> Tokenising:
    """Time `runs` preparations of the texts behind `batch`, up to ids and mask as arrays, on the calling thread."""
    found = texts_of(case, export, folder, batch)
    if isinstance(found, str):
        return Tokenising(time_ns=None, texts=case.batch_size, tokens_a_text=case.sequence_length, by=found)
    for _ in range(_WARM_UP_RUNS):
        found.prepare(found.items)
    spans = []
    for _ in range(runs):
        begin = now_ns()
        found.prepare(found.items)
        spans.append(now_ns() - begin)
    by = f"measured: {found.source}, one thread, ids and mask as arrays"
    return Tokenising(time_ns=middle_mean(spans), texts=len(found.items), tokens_a_text=case.sequence_length, by=by)
