"""The page: the other report's figures, nothing loaded, nothing hostile run, the same bytes each time."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.aggregation.flags import flag_names
from harness.core import store
from harness.core.schemas import Check, Flag, Row, Summary
from harness.reporting import ranking
from harness.reporting.details import document
from harness.reporting.html.embedded import (
    compressed_library,
    plotly_js,
    program,
    style,
)
from harness.reporting.html.page import is_made_from, page
from harness.reporting.table import text_table
from harness.reporting.tables.latency_table import latency_columns
from tests.synthetic_results import EFFICIENTNET, Synthetic, eventful, matrix, restless

ROOT = Path(__file__).parents[3]
PUBLISHED = sorted(
    path for path in (ROOT / "results/published").glob("*/*/summary.json") if '"latency_ns": {' in path.read_text()
)
"""Summaries with measured rows: others have loads, generation or copies alone."""

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=http://evil.example/x.png onerror=alert(1)>",
    "![x](http://evil.example/y.png) [link](javascript:alert(1)) <http://evil.example>",
    "</script></style><svg onload=alert(1)>",
    "\"'><a href=http://evil.example onclick=alert(1)>{{ 7 * 7 }}",
)
TAGS = frozenset(
    {
        *("html", "head", "meta", "title", "style", "body", "script", "svg", "path", "circle"),
        *("header", "nav", "main", "section", "h1", "h2", "h3", "h4", "p", "br", "div", "span", "a", "button"),
        *("details", "summary", "fieldset", "legend", "label", "input", "figure", "figcaption"),
        *("ul", "ol", "li", "dl", "dt", "dd", "code", "strong", "em", "table", "thead", "tbody", "tr", "th", "td"),
    }
)


class Seen(HTMLParser):
    """Tags with their attributes, and the text of each element kind that matters here."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.cases: dict[str, list[str]] = {}
        self._open: list[str] = []
        self._case = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        result = dict(attrs)
        self.tags.append((tag, result))
        if tag == "script":
            self.scripts.append((result, ""))
        if tag == "tbody":
            self._case = (result.get("id") or "").removeprefix("case-")
        if tag == "tr" and result.get("class") == "why":
            self._case = ""
        if tag == "td" and self._case:
            self.cases.setdefault(self._case, []).append("")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif self._case and "td" in self._open:
            self.cases[self._case][-1] += data


@pytest.fixture(scope="module")
def small() -> Summary:
    cases = matrix((EFFICIENTNET,), batch_sizes=(1, 4))
    return Synthetic(models=(EFFICIENTNET,), cases=cases, change=eventful, watch=restless).summary()


def load(path: Path) -> Summary:
    return store.load(path, Summary, "make aggregate")


def hostile(summary: Summary) -> Summary:
    """Every name and text that a configuration, a library or a file can set."""
    rows = []
    for number, row in enumerate(summary.rows):
        text = HOSTILE[number % len(HOSTILE)]
        flag = Flag(name=text, detail=text, remedy=text)
        names = {"model": text, "backend": f"{row.backend} {text}", "setting": text, "case_id": f"{row.case_id}{text}"}
        texts = {"reason": text, "hint": text} if row.status != "measured" else {"flags": (*row.flags, flag)}
        rows.append(row.model_copy(update={**names, **texts}))
    everything = " ".join(HOSTILE)
    exports = {text: next(iter(summary.exports.values())) for text in HOSTILE}
    texts = {"title": everything, "config": everything, "baseline_backend": everything, "notes": HOSTILE}
    return summary.model_copy(update={"rows": tuple(rows), "exports": exports, **texts})


def plain(cell: str) -> str:
    return cell.replace("**", "").strip("*")


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parts[-3])
def test_every_case_is_there_with_the_figures_of_the_other_report(path: Path) -> None:
    summary = load(path)
    cases = Seen(page(summary)).cases
    expected = {}
    for _, rows in ranking.by_table(summary.rows):
        columns = latency_columns(rows, summary.exports.get(rows[0].model), summary.engines)
        columns = [column for column in columns if column.header != "grade"]
        for row in rows:
            flags = ", ".join(flag_names(row))
            expected[row.case_id] = [row.grade, *(plain(column.cell(row)) for column in columns), flags]
    assert expected
    assert cases == expected


def test_flags_have_their_evidence_and_their_advice(summary: Summary) -> None:
    text = page(summary)
    flags = [flag for _, rows in ranking.by_table(summary.rows) for row in rows for flag in row.flags]
    assert flags
    for flag in flags:
        assert f"<strong>{flag.name}</strong>: {escaped(flag.detail)}" in text
    unmeasured = {row.reason for row in summary.rows if row.status != "measured"}
    assert unmeasured
    assert all(escaped(reason or "") in text for reason in unmeasured)


def test_both_reports_say_which_checks_were_made(small: Summary) -> None:
    checks = {"STEAL": Check(rounds=1, of=2, missing="one look in round 2")}
    checked = small.model_copy(update={"rows": tuple(row.model_copy(update={"checks": checks}) for row in small.rows)})
    text = page(checked, with_plots=False)
    assert "<dt>checks made in</dt><dd>STEAL 1 of 2</dd>" in text
    assert "one look in round 2" in text
    assert "### Checks made\n\n| check" in document(checked, {})
    old = small.model_copy(update={"rows": tuple(row.model_copy(update={"checks": {}}) for row in small.rows)})
    assert "Checks made" not in document(old, {})
    for guide in (text, document(checked, {})):
        assert "A every check that applies was made and passed; the table of checks says for how many rounds" in guide


def escaped(text: str) -> str:
    pairs = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"}
    return "".join(pairs.get(letter, letter) for letter in text)


def urls(seen: Seen) -> Iterator[str]:
    for _, attrs in seen.tags:
        yield from (value or "" for name, value in attrs.items() if name in ("src", "href", "srcset", "action", "data"))


@pytest.mark.parametrize("make", [lambda found: found, hostile], ids=["usual", "hostile"])
def test_nothing_is_loaded_and_no_name_becomes_markup(summary: Summary, make: object) -> None:
    assert callable(make)
    seen = Seen(page(make(summary)))
    assert {url[:1] for url in urls(seen)} == {"#"}
    assert {tag for tag, _ in seen.tags} <= TAGS
    assert not [name for _, attrs in seen.tags for name in attrs if name.startswith("on")]
    assert programs(seen) == [program()]
    assert library(seen) == plotly_js()


def test_the_stylesheet_loads_nothing() -> None:
    assert not re.search(r"url\(|@import|https?:", style())


def programs(seen: Seen) -> list[str]:
    """What a browser runs by itself."""
    return [text for attrs, text in seen.scripts if not (attrs.get("type") or "").startswith("application/")]


def library(seen: Seen) -> str:
    """What the page's program unpacks and runs."""
    (text,) = [text for attrs, text in seen.scripts if attrs.get("id") == "library"]
    return gzip.decompress(base64.b64decode(text)).decode()


def test_the_policy_allows_these_scripts_and_no_others(small: Summary) -> None:
    seen = Seen(page(small))
    policy = next(attrs["content"] for tag, attrs in seen.tags if tag == "meta" and "http-equiv" in attrs) or ""
    rules = {name: rest for name, *rest in (rule.split() for rule in policy.split(";"))}
    assert rules["default-src"] == ["'none'"]
    run = [library(seen), *programs(seen)]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run]
    assert rules["script-src"] == [f"'sha256-{digest}'" for digest in digests]


def test_the_program_may_be_in_a_page() -> None:
    assert "</script" not in program().lower()
    assert "<!--" not in program()


def test_the_same_summary_gives_the_same_bytes_in_every_process(small: Summary, tmp_path: Path) -> None:
    store.save(tmp_path / "summary.json", small)
    code = (
        "import sys; from pathlib import Path; from harness.core import store\n"
        "from harness.core.schemas import Summary; from harness.reporting.html.page import page\n"
        "sys.stdout.write(page(store.load(Path(sys.argv[1]), Summary, '')))"
    )
    pages = set()
    for seed in ("1", "2"):
        command, env = (
            [sys.executable, "-c", code, str(tmp_path / "summary.json")],
            {**os.environ, "PYTHONHASHSEED": seed},
        )
        pages.add(subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True).stdout)
    (only,) = pages
    assert only.decode().rstrip() == page(small).rstrip()


def test_without_charts_the_library_stays_out(small: Summary) -> None:
    text = page(small, with_plots=False)
    assert compressed_library(plotly_js()) in page(small)
    assert not [attrs for attrs, _ in Seen(text).scripts if attrs.get("id") == "library"]
    assert len(text) < 600_000 < len(page(small))
    assert Seen(text).cases == Seen(page(small)).cases


def test_nothing_measured_is_still_a_page() -> None:
    nothing = Synthetic(models=(EFFICIENTNET,), cases=matrix((EFFICIENTNET,)), change=lambda _case, _record: None)
    text = page(nothing.summary())
    assert "No case was measured." in text
    assert "never measured" in text
    assert not Seen(text).cases


def test_the_navigation_leads_to_every_section(summary: Summary) -> None:
    seen = Seen(page(summary, "Proof of the comparison."))
    anchors = [attrs["id"] for tag, attrs in seen.tags if tag == "section"]
    links = [attrs["href"] for tag, attrs in seen.tags if tag == "a"]
    assert [f"#{anchor}" for anchor in anchors] == links[1 : len(anchors) + 1]
    ids = [attrs["id"] for _, attrs in seen.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in links if link} <= set(ids)
    assert "Proof of the comparison." in page(summary, "Proof of the comparison.")


def test_a_recommendation_is_based_on_rows_that_are_there(rows: dict[str, Row], summary: Summary) -> None:
    seen = Seen(page(summary))
    named = {attrs["href"] or "" for tag, attrs in seen.tags if tag == "a"}
    cases = {link.removeprefix("#case-") for link in named if link.startswith("#case-")}
    assert cases
    assert cases <= set(rows)
    assert cases <= set(seen.cases)


def test_a_profile_is_a_section_of_its_own_with_its_tables(small: Summary) -> None:
    text = page(
        small,
        profile=[
            "### Cost",
            text_table([("model", "left"), ("GFLOP", "right")], [["a<b", "[x](profiles/a/model.json)"]]),
        ],
    )
    assert '<a href="#profile">Profile</a>' in text
    assert "<h3>Cost</h3>" in text
    assert 'a&lt;b</td><td class="num"><a href="profiles/a/model.json">x</a>' in text
    assert 'href="#profile"' not in page(small)


def test_a_page_says_which_summary_it_shows_whenever_that_was_written(summary: Summary) -> None:
    text = page(summary, with_plots=False).encode()
    assert is_made_from(text, summary.model_copy(update={"created_at": "2026-11-28T09:00:00+00:00"}))
    assert not is_made_from(text, summary.model_copy(update={"rows": summary.rows[1:]}))
