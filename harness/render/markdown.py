"""Markdown as GitHub reads it: tables and escaping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tabulate import tabulate


def escape(text: str) -> str:
    """Text that stays one cell: no pipes that split it, no line breaks that end it."""
    return " ".join(text.replace("|", "\\|").split())


WORDS = frozenset(
    {
        *("backend", "precision", "grade", "status", "case", "reason", "what to do", "fact", "value"),
        *("verdict", "threshold", "baseline", "now", "note", "model", "setting", "setting (batch)"),
        *("layer", "kind", "from module", "group", "operator", "inputs", "output", "fused from", "module"),
        *("engine", "profile", "by precision", "kept in fp32", "limit", "clock held back by"),
        *("on disk", "file", "held by"),
        *("gain", "known how", "rule", "from", "to", "rests on"),
        *("flag", "meaning", "check", "why not in the others"),
    }
)
"""Headers of columns that hold words; all others hold figures and are aligned to the right."""


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A GitHub table: words to the left, figures to the right."""
    cells = [[escape(cell) for cell in row] for row in rows]
    align = ["left" if name in WORDS else "right" for name in headers]
    # disable_numparse: tabulate would turn `1.20` into 1.2 and drop the digit that says how precise it is.
    return tabulate(cells, [escape(name) for name in headers], tablefmt="github", colalign=align, disable_numparse=True)


def section(title: str, *paragraphs: str, level: int = 2) -> str:
    """A heading and what stands below it; empty paragraphs are left out."""
    return "\n\n".join([f"{'#' * level} {title}", *(text for text in paragraphs if text)])
