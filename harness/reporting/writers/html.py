"""The report's Markdown parts as HTML (pure): the same text and the same figures in both reports.

Names in it come from configurations, so it must not load or run anything: raw HTML is escaped, images are not
supported, and a link leads to a file beside the report or stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from harness.reporting.table import Align

LONG = 40
"""Number of characters from which a cell is a sentence."""

_BESIDE = re.compile(r"[\w.,+=@%-]+(/[\w.,+=@%-]+)*")
"""A path below the report's folder: no scheme, no host, no root."""


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        """True for a URL that may become a link."""
        return _BESIDE.fullmatch(url) is not None and ".." not in url.split("/")


_MARKDOWN = _Markdown("commonmark", {"html": False}).disable(["image", "autolink", "reference"])
_SYNTAX = re.compile(r"[\\`*_&]|\]\(")
_PIPE = re.compile(r"(?<!\\)\|")


def blocks(text: str) -> Markup:
    """Paragraphs, lists and tables."""
    return Markup("\n").join(_block(block) for block in text.split("\n\n") if block.strip())


def inline(text: str) -> Markup:
    """Emphasis and code within a line."""
    # Most cells are plain figures, and a run of thousands of cases has hundreds of thousands of cells.
    return Markup(_MARKDOWN.renderInline(text)) if _SYNTAX.search(text) else escape(text)  # noqa: S704 - escaped by it


KINDS: Mapping[Align, str] = {"left": "word", "right": "num"}
"""How a column is aligned and sorted."""


def _block(block: str) -> Markup:
    if block.startswith("Conditions: "):
        return Markup('<p class="conditions">{}</p>').format(inline(block))
    if not block.startswith("|"):
        return Markup(_MARKDOWN.render(block))  # noqa: S704 - escaped by it
    headers, rules, *lines = [_cells(line) for line in block.splitlines()]
    return _table(headers, [KINDS["right" if rule.endswith("-:") else "left"] for rule in rules], lines)


def _style(column: str, cell: str) -> str:
    """Sentences may break, names may not: `torch-compile` on two lines is two words."""
    return f"{column} long" if column == "word" and len(cell) > LONG else column


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in _PIPE.split(line)[1:-1]]


def _table(headers: Sequence[str], kinds: Sequence[str], lines: Iterable[Sequence[str]]) -> Markup:
    """A table that the page's script sorts; every text in it comes from `inline`, which escapes."""
    head = [f'<th scope="col" class="{style}">{inline(name)}</th>' for name, style in zip(headers, kinds, strict=True)]
    rows = [
        "".join(
            f'<td class="{_style(style, cell)}">{inline(cell)}</td>' for cell, style in zip(line, kinds, strict=True)
        )
        for line in lines
    ]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return Markup(  # noqa: S704 - see above
        '<div class="scroll" tabindex="0" role="group" aria-label="Table, scrolls sideways">'
        f'<table class="sortable"><thead><tr>{"".join(head)}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
    )
