"""Which cases of a plan are profiled, and which files a model can be loaded from (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from harness.core.schemas import Artifact, Case, EngineRecord, ExportRecord
from harness.core.schemas.profile import FileSize


def profiled_cases(cases: Iterable[Case], computing: Iterable[str]) -> list[Case]:
    """Every cell at the compute boundary that computes, in the plan's order; one planned in two modes comes once.

    computing: backends that compute anything.
    """
    names, found = frozenset(computing), dict[Case, Case]()
    for case in cases:
        if case.skip_reason is None and case.boundary == "compute" and case.backend in names:
            found.setdefault(case.model_copy(update={"mode": "sync", "case_id": ""}), case)
    return list(found.values())


def files_of(export: ExportRecord, engines: Iterable[EngineRecord]) -> tuple[FileSize, ...]:
    """Sizes on disk of a model: weights for PyTorch, ONNX files with what lies beside them, engines."""
    weights = export.module
    onnx = [*export.onnx.items(), *export.onnx_variants.items()]
    return (
        *((_size("weights", "fp32", weights.path, [weights]),) if weights else ()),
        *(_size("onnx", name, file.path, file.files()) for name, file in onnx),
        *(_size("engine", made.request.precision, made.engine.path, [made.engine]) for made in engines),
    )


def _size(kind: Literal["weights", "onnx", "engine"], name: str, path: str, files: Iterable[Artifact]) -> FileSize:
    return FileSize(kind=kind, name=name, path=path, size_bytes=sum(file.size_bytes for file in files))
