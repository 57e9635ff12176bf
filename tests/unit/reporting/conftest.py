"""A realistic summary, made once, and golden files that are rewritten only on request."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.schemas import Row, Summary
from tests.synthetic_results import Synthetic, eventful, restless

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture(scope="session")
def summary() -> Summary:
    return Synthetic(change=eventful, watch=restless).summary()


@pytest.fixture(scope="session")
def rows(summary: Summary) -> dict[str, Row]:
    return {row.case_id: row for row in summary.rows}


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a text with tests/golden/<name>; `UPDATE_GOLDEN=1 pytest tests/unit/reporting` writes it again."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("UPDATE_GOLDEN") == "1":
            path.write_text(text)
        assert text == path.read_text(), (
            f"{name} differs; look at the change, then UPDATE_GOLDEN=1 pytest tests/unit/reporting"
        )

    return check
