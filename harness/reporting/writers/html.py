"""Texts and tables of a report as HTML (pure): the same text and the same figures as in Markdown.

Names in it come from configurations, so it must not load or run anything: raw HTML is escaped, images are not
supported, and a link leads to a file beside the report or stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from harness.reporting.table import Align, DocumentBlock, Table

LONG = 40
"""Number of characters from which a cell is a sentence."""

_BESIDE = re.compile(r"[\w.,+=@%-]+(/[\w.,+=@%-]+)*")
"""A path below the report's folder: no scheme, no host, no root."""


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        """True for a URL that may become a link."""
        return _BESIDE.fullmatch(url) is not None and ".." not in url.split("/")


_MARKDOWN = _Markdown("commonmark", {"html": False}).disable(["image", "autolink", "reference"])
_REASON = re.compile(r"[a-z]{3,} ")
"""Begin of a sentence in place of a figure: `needs 130 samples`."""

_SYNTAX = re.compile(r"[\\`*_&]|\]\(")
_SPECIAL = re.compile(r"""[&<>"']""")
_NOT_PLAIN = re.compile(f"{_SYNTAX.pattern}|{_SPECIAL.pattern}")
"""What is in a text that is not the same in HTML."""


def blocks(parts: Iterable[DocumentBlock | None]) -> Markup:
    """Texts and tables, one after the other; empty ones and None are left out. Raises TypeError for a single text."""
    if isinstance(parts, str):
        raise TypeError("give a list of texts and tables")
    return Markup("\n").join(_paragraphs(part) if isinstance(part, str) else table(part) for part in parts if part)


def inline(text: str) -> Markup:
    """Emphasis and code within a line."""
    if text.count("`") % 2:  # a message of a library: which of them belong together is unknown
        text = text.replace("`", "\\`")
    return Markup(_MARKDOWN.renderInline(text)) if _SYNTAX.search(text) else escape(text)  # noqa: S704 - escaped by it


KINDS: Mapping[Align, str] = {"left": "word", "right": "num"}
"""How a column is aligned and sorted."""


def table(shown: Table[Any]) -> Markup:
    """A table that the page's script sorts, its conditions above and its note below."""
    kinds = [KINDS[align] for align in shown.aligned]
    head = [
        f'<th scope="col" class="{kind}">{inline(name)}</th>' for name, kind in zip(shown.headers, kinds, strict=True)
    ]
    rows = ["".join(map(table_cell, kinds, line)) for line in shown.cells()]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    grid = Markup(  # noqa: S704 - every text in it comes from `inline`, which escapes
        '<div class="scroll" tabindex="0" role="group" aria-label="Table, scrolls sideways">'
        f'<table class="sortable"><thead><tr>{"".join(head)}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
    )
    return Markup("\n").join(filter(None, (_paragraphs(shown.conditions), grid, _paragraphs(shown.note))))


def escaped(text: str) -> str:
    """The text as HTML, for a caller that writes the tags around it: most texts need no change."""
    return str(escape(text)) if _SPECIAL.search(text) else text


def table_cell(kind: str, text: str, attributes: str = "") -> str:
    """A cell of a table, as HTML. attributes: further ones, as HTML."""
    # Most cells are plain figures, and a run of thousands of cases has hundreds of thousands of cells.
    return f'<td class="{style(kind, text)}"{attributes}>{inline(text) if _NOT_PLAIN.search(text) else text}</td>'


def _paragraphs(text: str) -> Markup:
    return Markup("\n").join(_paragraph(part) for part in text.split("\n\n") if part.strip())


def _paragraph(text: str) -> Markup:
    if text.startswith("Conditions: "):
        return Markup('<p class="conditions">{}</p>').format(inline(text))
    return Markup(_MARKDOWN.render(text))  # noqa: S704 - escaped by it


def style(column: str, cell: str) -> str:
    """The class of a cell. Sentences may break, names may not: `torch-compile` on two lines is two words."""
    if column == "num":
        return "num reason" if _REASON.match(cell) else "num"
    return "word long" if len(cell) > LONG else "word"
