"""Markdown parts of the page."""

from __future__ import annotations

import pytest

from harness.reporting.table import Column, Table, word_column
from harness.reporting.writers import html


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**0.315**", "<strong>0.315</strong>"),
        ("*0.315*", "<em>0.315</em>"),
        ("n<662", "n&lt;662"),
        ("[0.1, 0.2]", "[0.1, 0.2]"),
        ("`a<b`", "<code>a&lt;b</code>"),
        ("<b>x</b> *y*", "&lt;b&gt;x&lt;/b&gt; <em>y</em>"),
        ("![x](http://evil.example/x.png)*", "![x](http://evil.example/x.png)*"),
        ("[x](javascript:alert)_", "[x](javascript:alert)_"),
        ("[x](//evil.example/x)", "[x](//evil.example/x)"),
        ("[x](../x)", "[x](../x)"),
        ("[model.json](profiles/a-b1/model.json)", '<a href="profiles/a-b1/model.json">model.json</a>'),
    ],
)
def test_inline(text: str, expected: str) -> None:
    assert html.inline(text) == expected


def test_a_table_keeps_its_pipes_and_its_alignment() -> None:
    table = Table(
        [word_column("backend", lambda row: row[0]), Column("ms", lambda row: row[1])], [("a|b", "1.20")], "Before."
    )
    blocks = html.blocks([table])
    assert blocks.startswith("<p>Before.</p>")
    assert '<th scope="col" class="word">backend</th><th scope="col" class="num">ms</th>' in blocks
    assert '<tr><td class="word">a|b</td><td class="num">1.20</td></tr>' in blocks
