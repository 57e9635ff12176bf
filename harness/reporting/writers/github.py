"""A comparison for GitHub: annotations, the step summary, and a comment on a pull request (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from harness.comparison.verdicts import is_lost
from harness.core import text as sanitize
from harness.core import units
from harness.core.schemas import ComparedRow, Comparison
from harness.core.text import paragraphs
from harness.reporting.tables import comparison_table
from harness.reporting.tables.comparison_table import compared_table, headline, remarks
from harness.reporting.writers.markdown import escape, table_text

MAX_ANNOTATIONS = 10
"""GitHub keeps ten errors and ten warnings of a step and silently drops the rest (docs: workflow commands)."""

MAX_SUMMARY_BYTES = 1 << 20
"""GitHub rejects a whole step summary above 1 MiB (docs: workflow commands, job summaries)."""


def commands(comparison: Comparison) -> list[str]:
    """An error for each row or threshold that fails, a warning for each figure that was lost."""
    failing = [row for row in comparison_table.worst_first(comparison.rows) if row.fails]
    missed = [judgement for judgement in comparison.judgements if judgement.outcome != "PASS"]
    lost = [row for row in comparison.rows if is_lost(row)]
    errors = [("slower", f"{row.case_id}: {comparison_table.change_text(row)}") for row in failing]
    errors += [
        ("lower load", f"{load.load_id}: {comparison_table.load_change_text(load)}")
        for load in comparison.loads
        if load.fails
    ]
    errors += [
        ("threshold", f"{judgement.case_id}: {judgement.threshold}: {comparison_table.judgement_text(judgement)}")
        for judgement in missed
    ]
    warnings = [("no longer measured", f"{row.case_id}: {comparison_table.change_text(row)}") for row in lost]
    return [*_capped("error", errors), *_capped("warning", warnings)]


def step_summary(document: str) -> str:
    """The document, shortened where it exceeds GitHub's limit."""
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


MAX_LINES = 40
MARKER = "<!-- inferometer -->"
"""First line of each comment, by which a workflow finds and replaces the earlier comment."""

MAX_ROWS = 15
MAX_MISSED = 5
_QUIET = ("SAME", "AMBIGUOUS")


def pr_comment(comparison: Comparison) -> str:
    """The verdict, the changed rows, then other rows up to the limit, and the two sides of the comparison."""
    outcome = (
        "regressed" if comparison.fails else "nothing compared" if comparison.is_empty else "no regression detected"
    )
    rows = [row for row in comparison_table.worst_first(comparison.rows) if row.ratio is not None]
    rows.sort(key=lambda row: row.verdict in _QUIET)  # stable: what changed first
    parts = [
        f"{MARKER}\n### Performance: {outcome}",
        f"**{escape(headline(comparison))}**",
        _between(comparison),
        _table(rows),
        _missed(comparison),
        _not_compared(comparison.rows),
        *(escape(text) for text in remarks(comparison)[:2]),
        "`comparison.md` among the artifacts has all rows, what differs around them, and how to read this.",
    ]
    lines = paragraphs(parts).splitlines()
    return "\n".join(lines[:MAX_LINES]) + "\n"


def _between(comparison: Comparison) -> str:
    if comparison.baseline is None:
        return ""
    before, after = (escape(side.state or side.path) for side in (comparison.baseline, comparison.current))
    rounds = f"{units.count(comparison.current.rounds, 'round')} of each"
    how = {
        "separate": "two runs",
        "paired": "measured in turn in one run",
        "across": "ratios over the baseline backend alone",
    }[comparison.design]
    return f"{before} → {after} ({how}, {rounds})"


def _table(rows: Sequence[ComparedRow]) -> str:
    if not rows:
        return ""
    shown = table_text(compared_table(rows[:MAX_ROWS], with_notes=False))
    more = Counter(row.verdict for row in rows[MAX_ROWS:])
    rest = ", ".join(f"{number} {verdict}" for verdict, number in more.items())
    return shown + (f"\n\n… and {rest}." if rest else "")


def _missed(comparison: Comparison) -> str:
    missed = [judgement for judgement in comparison.judgements if judgement.outcome != "PASS"]
    texts = [(judgement, escape(comparison_table.judgement_text(judgement))) for judgement in missed[:MAX_MISSED]]
    lines = [f"- {limit.outcome} `{escape(limit.threshold)}` {limit.case_id}: {text}" for limit, text in texts]
    return "\n".join([*lines, *([f"- … and {len(missed) - MAX_MISSED} more"] if len(missed) > MAX_MISSED else [])])


def _not_compared(rows: Sequence[ComparedRow]) -> str:
    lacking = [row for row in rows if row.ratio is None]
    if not lacking:
        return ""
    lost = sum(map(is_lost, lacking))
    reasons = Counter(comparison_table.change_text(row) for row in lacking).most_common(1)[0][0]
    measured = f", {lost} of them measured before" if lost else ""
    return f"{units.count(len(lacking), 'row')} not compared{measured}; most often: {escape(reasons)}"
