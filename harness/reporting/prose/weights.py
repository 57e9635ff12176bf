"""How the weights of a model were changed before they were measured, in words (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import ExportRecord, LoadRow, Row
from harness.reporting.tables.cold_start_table import Engines, engine_of


def weight_notes(rows: Sequence[Row | LoadRow], export: ExportRecord | None, engines: Engines) -> list[str]:
    """The conversion of a user's module to fp32, and how the ONNX files of int8 rows were quantised."""
    conversion = export.conversion if export and any(row.artifacts for row in rows) else None
    return [*([conversion] if conversion else []), *_quantisation_notes(rows, export, engines)]


def _quantisation_notes(rows: Sequence[Row | LoadRow], export: ExportRecord | None, engines: Engines) -> list[str]:
    """How the ONNX files of int8 rows were quantised, each way with its backends."""
    files = export.onnx_artifacts if export else ()
    ways = {file.path: file.quantisation or file.exporter for file in files}
    backends: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.precision == "int8":
            engine = engine_of(row, export, engines)
            for path in (engine.request.onnx,) if engine else row.artifacts:
                if path in ways:
                    backends.setdefault(ways[path], {})[row.backend] = None
    return [f"int8 in {', '.join(named)}: {way}." for way, named in backends.items()]
