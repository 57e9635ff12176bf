"""GitHub's Markdown: tables and escaping, and documents in which text from outside is never HTML or a link."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from harness.core import text as sanitize
from harness.core.text import paragraphs
from harness.reporting.table import Align, DocumentBlock, Table, titled_blocks


def escape(text: str) -> str:
    """Text for one cell, without pipes and line breaks, which would split or end the cell."""
    return " ".join(text.replace("|", "\\|").split())


def table_text(table: Table[Any] | None) -> str:
    """A GitHub table, its conditions above and its note below; empty for None."""
    if table is None:
        return ""
    cells = [[escape(cell) for cell in line] for line in table.cells()]
    grid = _grid([escape(name) for name in table.headers], cells, table.aligned)
    return paragraphs((table.conditions, grid, table.note))


def _grid(headers: Sequence[str], cells: Sequence[Sequence[str]], aligned: Sequence[Align]) -> str:
    """The table itself, in columns of one width. A comparison may have a hundred thousand lines."""
    widths = [max(map(len, column)) for column in zip([f"{name}  " for name in headers], *cells, strict=True)]
    columns = list(zip(aligned, widths, strict=True))
    line = f"| {' | '.join(f'{{:{_SIDES[side]}{width}}}' for side, width in columns)} |".format
    rules = [f":{'-' * width}-" if side == "left" else f"-{'-' * width}:" for side, width in columns]
    return "\n".join([line(*headers), f"|{'|'.join(rules)}|", *(line(*row) for row in cells)])


_SIDES: Mapping[Align, str] = {"left": "<", "right": ">"}


def blocks_text(blocks: Iterable[DocumentBlock | None]) -> str:
    """Texts and tables, one after the other; empty ones and None are left out."""
    texts = (block if isinstance(block, str) else table_text(block) for block in blocks)
    return paragraphs(texts)


def section(title: str, *blocks: DocumentBlock | None, level: int = 2) -> str:
    """A heading and its blocks; empty ones and None are left out."""
    return blocks_text(titled_blocks(title, *blocks, level=level))


_CELLS = re.compile(r"((?<!\\)\|)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_AWAY = re.compile(r"\]\((?!#?[A-Za-z0-9_%+=./-]+(?:#[a-z0-9-]+)?\))|\]\((?=[/.]*/)|\](?=\[)")
"""Ends of links that do not lead to a file beside the document, or whose target is defined elsewhere in it."""
_TARGET = re.compile(r"(?m)^( {0,3})\[(?=[^\]\n]+\]:)")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp)://|\bwww\.")


_MARKED = re.compile(r"(?i)[`<]|\]\(|\]\[|\]:|://|www\.")
"""A text without any of them is the same as text."""


def document_text(text: str, addresses: bool = False) -> str:
    """A whole document for its file; HTML, external links and control characters in it become text.

    Names, versions and messages of libraries come from outside; links to files beside the document are ours.
    addresses: web addresses stay links, where a document names its sources.
    """
    return "\n\n".join(_block(block, addresses) for block in sanitize.lines(text).split("\n\n"))


def _block(block: str, addresses: bool) -> str:
    """A paragraph or a table. Code is unchanged where it is certain to be code: where the backticks of a cell or a
    paragraph are single and in pairs."""
    if not block.startswith("|"):
        return _inline(block, addresses)
    if not _MARKED.search(block):  # a table of a large run has a million cells
        return block
    return "".join(_inline(part, addresses) if _MARKED.search(part) else part for part in _CELLS.split(block))


@lru_cache(maxsize=4_096)
def _inline(text: str, addresses: bool) -> str:
    """Many rows of a table have the same remark."""
    paired = text.count("`") % 2 == 0 and "``" not in text and "\\`" not in text
    if not paired:
        # Of an odd number it is unknown which belong together: none of them marks code.
        single = text.count("`") % 2 and "``" not in text and "\\`" not in text
        return _plain(text.replace("`", "\\`") if single else text, addresses)
    parts = text.split("`")
    return "`".join(part if place % 2 else _plain(part, addresses) for place, part in enumerate(parts))


def _plain(text: str, addresses: bool) -> str:
    text = _TAG.sub("&lt;", text)
    text = _TARGET.sub(r"\1\\[", _AWAY.sub(lambda match: "\\" + match[0], text))
    return text if addresses else _ADDRESS.sub(_unlinked, text)


def _unlinked(match: re.Match[str]) -> str:
    return match[0].replace("://", ":\\//").replace("www.", "www\\.").replace("WWW.", "WWW\\.")
