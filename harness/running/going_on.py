"""Exit codes after which the stages that follow still have their say; every other stage has to end with 0."""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.errors import CasesFailedError, ExportError, UnavailableError

_GOES_ON: Mapping[str, tuple[int, ...]] = {
    # Some models were not exported: their rows say why, the others are measured.
    "export": (0, CasesFailedError.exit_code),
    # No TensorRT, or an engine that was not built: its rows say so, the others are measured.
    "build_engine": (0, UnavailableError.exit_code, ExportError.exit_code),
    # The limits cannot be measured here: rows say that they were not held against them.
    "roof": (0, UnavailableError.exit_code),
    # Some cases failed: the run is complete, and the report lists them.
    "run": (0, CasesFailedError.exit_code),
    # Rows that the summary had before were given up because --force said so.
    "aggregate": (0, CasesFailedError.exit_code),
}


def goes_on_after(stage: str, exit_code: int) -> bool:
    """Whether the way to a report goes on after this stage ended so."""
    return exit_code in _GOES_ON.get(stage, (0,))
