"""A document in which no text of others is HTML or a link, and ours stays as it was written."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from harness.reporting.table import text_table
from harness.reporting.writers.html import inline
from harness.reporting.writers.markdown import document_text, table_text


@pytest.mark.parametrize(
    "hostile",
    [
        "<img src=x onerror=alert(1)>",
        "</td><script>",
        "<!-- hidden -->",
        "[click](https://evil.example)",
        "[click](javascript:alert(1))",
        "[click](//evil.example/x)",
        "![seen](http://evil.example/pixel.png)",
        "[click][away]",
        "[away]: http://evil.example",
        "see https://evil.example and www.evil.example",
        "`[click](https://evil.example)",  # a single backtick makes no code
        "``` <img src=x> ` [a](http://b) ``",
        "\\` <script> \\`",
    ],
)
@pytest.mark.parametrize("where", ["paragraph", "cell"])
def test_html_and_links_of_others_are_text(hostile: str, where: str) -> None:
    text = document_text(hostile if where == "paragraph" else table_text(text_table([("model", "left")], [[hostile]])))
    assert "<" not in text
    assert "://" not in text.replace(":\\//", "")
    assert "](h" not in text.replace("\\](", "")
    assert "](/" not in text.replace("\\](", "")
    assert "](j" not in text.replace("\\](", "")
    assert "][" not in text.replace("\\][", "")
    assert not text.startswith("[away]:")
    assert "www.evil" not in text


def test_our_own_markdown_is_left_alone() -> None:
    ours = (
        "# Report\n\n![Latency](charts/overview.png)\n\nHint: `make bench RESULTS=<folder>`, [8.02, 11.6] < 12.\n\n"
        "| case | link |\n|---|---|\n| `<a>` | [parts.md](profiles/case-1/parts.md) |\n"
    )
    assert document_text(ours) == ours


def test_a_document_that_names_its_sources_may_link_to_them() -> None:
    assert document_text("Published: https://example.org/paper", addresses=True).endswith("https://example.org/paper")


def test_backticks_of_an_odd_number_mark_no_code() -> None:
    """A library's message quotes as `so' and names `ONE` more: what belongs together is unknown."""
    message = "Search for `Invalidated' in the docs, or pass `CUDA_LAUNCH_BLOCKING`."
    assert "<code>" not in inline(message)
    assert "<code>" not in MarkdownIt("commonmark").render(document_text(f"| reason |\n|---|\n| {message} |"))
    assert "<code>FORCE=1</code>" in inline("`FORCE=1` measures again")
