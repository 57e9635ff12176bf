"""CSV that a spreadsheet opens without running anything (pure)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from harness.core import sanitize

Value = str | int | float | bool | None

FORMULA = ("=", "+", "-", "@", "\t", "\n")
"""What makes a spreadsheet take a cell for a formula (OWASP, CSV injection)."""


def csv_text(lines: Sequence[Mapping[str, Value]]) -> str:
    """Lines with the same columns as CSV, header first (RFC 4180 but for line ends). Empty of none."""
    if not lines:
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([harmless(name) for name in lines[0]])
    writer.writerows([harmless(line[name]) for name in lines[0]] for line in lines)
    return text.getvalue()


def harmless(value: Value) -> Value:
    """A text that would start a formula, behind an apostrophe; figures, negative ones too, as they are."""
    if not isinstance(value, str):
        return value
    # The writer quotes a line feed, and not a carriage return, which ends a line for many readers all the same.
    text = sanitize.lines(value)
    # A control character before it is a space now, which some programs skip.
    return f"'{text}" if text.startswith(FORMULA) or text.lstrip(" ").startswith(FORMULA) else text
