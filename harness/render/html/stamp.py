"""Which summary a page shows, as its head says it: a page may lie beside a summary that is newer (pure)."""

from __future__ import annotations

from markupsafe import Markup

from harness.core.schemas import Summary


def stamp(summary: Summary) -> Markup:
    """The line of the page's head."""
    return Markup('<meta name="inferometer-summary" content="{}">').format(summary.digest)


def shows(page: bytes, summary: Summary) -> bool:
    """Whether a page was made from this summary, whenever that was written."""
    return stamp(summary).encode() in page
