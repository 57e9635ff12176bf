"""A table for a terminal: plain columns (pure)."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

from harness.reporting.table import Table


def table_text(table: Table[Any]) -> str:
    """Headers, a line, and the rows; Markdown in cells stays as it is."""
    cells = table.cells()
    align = table.aligned if cells else None
    return tabulate(cells, table.headers, tablefmt="simple", colalign=align, disable_numparse=True)
