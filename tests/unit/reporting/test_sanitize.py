"""What steers a terminal or reorders text never reaches a reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import cli
from harness.core import text as sanitize
from harness.core.errors import UsageError
from harness.core.schemas import Failed
from harness.reporting.table import text_table
from harness.reporting.writers.csv import csv_text
from harness.reporting.writers.github import step_summary
from harness.reporting.writers.markdown import document_text, table_text

HOSTILE = "a\x1b]0;owned\x07b\x1b[2J\u202ec\u2066d\x9be\x00f\u2028g"
"""A window's title, a cleared screen, reversed letters, an 8-bit control sequence, a null and a line separator."""


def _clean(text: str) -> bool:
    return all(letter.isprintable() or letter in "\n\t" for letter in text)


@given(st.text())
def test_lines_keep_readable_characters_and_nothing_else(text: str) -> None:
    assert _clean(sanitize.lines(text))
    assert sanitize.one_line(text).isprintable()
    kept = [letter for letter in text if letter.isprintable() and letter != " "]
    assert [letter for letter in sanitize.lines(text) if letter not in " \n\t"] == kept


def test_a_long_text_keeps_both_ends() -> None:
    assert sanitize.shortened("a" * 500 + "z" * 500, 100)[:3] == "aaa"
    assert sanitize.shortened("a" * 500 + "z" * 500, 100)[-3:] == "zzz"
    assert len(sanitize.shortened("a" * 1_000, 100)) <= 100
    assert sanitize.shortened("short", 100) == "short"


def test_no_line_of_ours_steers_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    cli.say(HOSTILE)
    cli.warn(HOSTILE)
    cli.show(UsageError(HOSTILE, HOSTILE))
    said = capsys.readouterr()
    assert _clean(said.out + said.err)
    assert len(said.err.splitlines()) == 3


def test_a_record_holds_the_text_of_a_log_without_its_controls_and_in_few_bytes() -> None:
    record = Failed(
        case_id="case",
        round=1,
        settings_id="settings",
        started_at="2026-11-29T00:00:00Z",
        environment_id=None,
        error=HOSTILE * 10_000,
        hint="hint",
        phase="load",
        stderr_tail=f"{HOSTILE}\n" * 100_000,
    )
    assert record.error.isprintable()
    assert _clean(record.stderr_tail)
    assert len(record.model_dump_json()) < 1_000_000


def test_no_file_of_ours_holds_control_characters() -> None:
    assert _clean(document_text(f"# {HOSTILE}\n\n{table_text(text_table([('model', 'left')], [[HOSTILE]]))}"))
    assert _clean(csv_text([{"model": HOSTILE}]))
    assert csv_text([{"model": "\x1b=1+1"}]).splitlines()[1].startswith("' =")
    assert _clean(step_summary(document_text(HOSTILE)))
