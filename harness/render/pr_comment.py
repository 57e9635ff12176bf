"""A comparison as a comment on a pull request: Markdown of at most 40 lines (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.core.schemas import ComparedRow, Comparison
from harness.measure.comparison import is_lost
from harness.render import change, units
from harness.reporting.tables.comparison import compared_table, headline, remarks
from harness.reporting.writers.markdown import escape, table_text

MAX_LINES = 40
MARKER = "<!-- inferometer -->"
"""First line of each comment, by which a workflow finds the earlier one and replaces it."""

MAX_ROWS = 15
MAX_MISSED = 5
_QUIET = ("SAME", "AMBIGUOUS")


def pr_comment(found: Comparison) -> str:
    """The verdict, the rows that changed first, then as many others as there is room for, and what was compared."""
    failing = any(row.fails for row in found.rows) or any(one.outcome != "PASS" for one in found.judgements)
    title = "Performance: regressed" if failing else "Performance: no regression found"
    rows = [row for row in change.worst_first(found.rows) if row.ratio is not None]
    rows.sort(key=lambda row: row.verdict in _QUIET)  # stable: what changed first
    parts = [
        f"{MARKER}\n### {title}",
        f"**{escape(headline(found))}**",
        _between(found),
        _table(rows),
        _missed(found),
        _not_compared(found.rows),
        *(escape(text) for text in remarks(found)[:2]),
        "`comparison.md` among the artifacts has all rows, what differs around them, and how to read this.",
    ]
    lines = "\n\n".join(part for part in parts if part).splitlines()
    return "\n".join(lines[:MAX_LINES]) + "\n"


def _between(found: Comparison) -> str:
    if found.baseline is None:
        return ""
    before, after = (escape(side.state or side.path) for side in (found.baseline, found.current))
    rounds = f"{units.count(found.current.rounds, 'round')} of each"
    how = {
        "separate": "two runs",
        "paired": "measured in turn in one run",
        "across": "ratios over the baseline backend alone",
    }[found.design]
    return f"{before} → {after} ({how}, {rounds})"


def _table(rows: Sequence[ComparedRow]) -> str:
    if not rows:
        return ""
    shown = table_text(compared_table(rows[:MAX_ROWS], with_notes=False))
    more = Counter(row.verdict for row in rows[MAX_ROWS:])
    rest = ", ".join(f"{number} {verdict}" for verdict, number in more.items())
    return shown + (f"\n\n… and {rest}." if rest else "")


def _missed(found: Comparison) -> str:
    missed = [one for one in found.judgements if one.outcome != "PASS"]
    lines = [
        f"- {one.outcome} `{escape(one.threshold)}` {one.case_id}: {escape(change.judged(one))}"
        for one in missed[:MAX_MISSED]
    ]
    return "\n".join([*lines, *([f"- … and {len(missed) - MAX_MISSED} more"] if len(missed) > MAX_MISSED else [])])


def _not_compared(rows: Sequence[ComparedRow]) -> str:
    lacking = [row for row in rows if row.ratio is None]
    if not lacking:
        return ""
    lost = sum(map(is_lost, lacking))
    reasons = Counter(change.in_words(row) for row in lacking).most_common(1)[0][0]
    said = f", {lost} of them measured before" if lost else ""
    return f"{units.count(len(lacking), 'row')} not compared{said}; most often: {escape(reasons)}"
