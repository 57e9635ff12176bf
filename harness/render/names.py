"""A summary as tables and charts show it: with short names of models (pure).

Files keep the whole names; tables and charts show the short ones, and the report's last section says which is which.
"""

from __future__ import annotations

from harness.core.names import short_names
from harness.core.schemas import Summary


def with_short_names(summary: Summary) -> Summary:
    """The summary as tables and charts show it. Its exports still hold the whole names."""
    short = short_names([*(row.model for row in summary.rows), *summary.exports])
    if all(name == shown for name, shown in short.items()):
        return summary
    return summary.model_copy(
        update={
            "rows": tuple(row.model_copy(update={"model": short[row.model]}) for row in summary.rows),
            "exports": {short[name]: record for name, record in summary.exports.items()},
        }
    )


def whole_names(summary: Summary) -> str:
    """Which model each short name of a summary is; empty where every name is whole."""
    pairs = [(shown, record.model) for shown, record in summary.exports.items() if shown != record.model]
    return " ".join(f"`{shown}` is `{whole}`." for shown, whole in pairs)
