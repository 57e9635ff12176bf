"""The valid records of a load case as its row is made of them."""

from __future__ import annotations

from harness.aggregation.load_rows import LoadEvidence
from harness.core.schemas import LoadEnergy, LoadFailure
from harness.planning.load_resume import LoadState


def evidence_of(state: LoadState, failure: LoadFailure | None = None, energy: LoadEnergy | None = None) -> LoadEvidence:
    """failure: why the latest process of the case ended early, where it did; energy: of its replications."""
    return LoadEvidence(state.service, state.prediction, state.steps, state.replications, failure, energy)
