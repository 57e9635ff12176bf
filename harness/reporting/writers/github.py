"""A comparison as GitHub Actions reads it: workflow commands that annotate, and the step summary (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from harness.core import sanitize
from harness.core.schemas import Comparison
from harness.measure.comparison import is_lost
from harness.render import change

MAX_ANNOTATIONS = 10
"""GitHub keeps ten errors and ten warnings of a step and drops the rest without a word (docs: workflow commands)."""

MAX_SUMMARY_BYTES = 1 << 20
"""GitHub refuses a step summary above 1 MiB as a whole (docs: workflow commands, job summaries)."""


def commands(comparison: Comparison) -> list[str]:
    """An error for each row or threshold that fails, a warning for each figure that was lost."""
    failing = [row for row in change.worst_first(comparison.rows) if row.fails]
    missed = [found for found in comparison.judgements if found.outcome != "PASS"]
    lost = [row for row in comparison.rows if is_lost(row)]
    errors = [("slower", f"{row.case_id}: {change.in_words(row)}") for row in failing]
    errors += [("threshold", f"{found.case_id}: {found.threshold}: {change.judged(found)}") for found in missed]
    warnings = [("no longer measured", f"{row.case_id}: {change.in_words(row)}") for row in lost]
    return [*_capped("error", errors), *_capped("warning", warnings)]


def step_summary(document: str) -> str:
    """The document, or what of it GitHub takes."""
    cut = "\n\n… cut here: GitHub takes 1 MiB; comparison.md has all of it.\n"
    content = document.encode()
    if len(content) <= MAX_SUMMARY_BYTES:
        return document
    kept = content[: MAX_SUMMARY_BYTES - len(cut.encode())].decode(errors="ignore")
    return kept.rpartition("\n")[0] + cut


def _capped(level: str, messages: list[tuple[str, str]]) -> Iterable[str]:
    shown = messages if len(messages) <= MAX_ANNOTATIONS else messages[: MAX_ANNOTATIONS - 1]
    yield from (f"::{level} title={_property(title)}::{_data(text)}" for title, text in shown)
    if len(shown) < len(messages):
        yield f"::{level} title=more::{len(messages) - len(shown)} more; comparison.md lists all of them"


def _data(text: str) -> str:
    """Escaped as @actions/core's escapeData does."""
    return sanitize.lines(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escaped as @actions/core's escapeProperty does."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
