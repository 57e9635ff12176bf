"""A summary has the same bytes on every processor."""

from __future__ import annotations

import json
import math

import pytest

from harness.core.schemas import Flag, Row
from harness.core.schemas.summary_record import rounded, rounded_record
from harness.reporting.writers.csv import summary_text
from tests.synthetic_results import Synthetic, eventful, restless


def test_figures_that_differ_in_their_last_bit_give_one_file() -> None:
    """Vector units add in other orders: CI recomputed a published summary with another 16th digit."""
    whole = Synthetic().summary()
    row = next(row for row in whole.rows if row.latency_ns)
    assert row.latency_ns is not None
    nudged = row.latency_ns.model_copy(update={"mean": math.nextafter(row.latency_ns.mean, math.inf)})
    rows = tuple(row.model_copy(update={"latency_ns": nudged}) if entry is row else entry for entry in whole.rows)
    other = whole.model_copy(update={"rows": rows})
    assert other != whole
    assert other.digest == whole.digest


def test_counts_and_digits_that_matter_are_kept() -> None:
    whole = Synthetic().summary()
    for before, after in zip(whole.rows, type(whole).model_validate_json(whole.model_dump_json()).rows, strict=True):
        if before.latency_ns is None or after.latency_ns is None:
            continue
        assert after.latency_ns.rounds == before.latency_ns.rounds
        assert math.isclose(after.latency_ns.median, before.latency_ns.median, rel_tol=1e-11)
        assert isinstance(after, Row)


@pytest.mark.parametrize(
    ("old", "detail", "new"),
    [
        ("CI_NOT_MET", "", "NOT_CONVERGED"),
        ("NOT_STEADY", "", "NOT_WARMED_UP"),
        ("COTENANT", "others used 0.9 CPUs", "CPU_SHARED"),
        ("COTENANT", "2 other processes on the card", "GPU_SHARED"),
        ("STEAL", "", "STEAL"),
    ],
)
def test_flags_of_older_summaries_have_the_names_of_this_version(old: str, detail: str, new: str) -> None:
    assert Flag.model_validate({"name": old, "detail": detail, "remedy": ""}).name == new


def test_a_flag_that_costs_no_grade_is_a_note() -> None:
    assert Flag(name="TWO_SPEEDS", detail="", remedy="", caps_at="A").is_note
    assert not Flag(name="STEAL", detail="", remedy="", caps_at="B").is_note
    assert not Flag(name="STEAL", detail="", remedy="").is_note


def test_views_of_a_summary_have_the_digits_of_its_file() -> None:
    whole = Synthetic().summary()
    stored = whole.as_stored()
    assert summary_text(stored) == summary_text(stored.as_stored())
    assert summary_text(stored) != summary_text(whole)


def test_rows_are_rounded_as_their_json_is() -> None:
    rows = Synthetic(change=eventful, watch=restless, samples=40).summary().rows
    assert {row.status for row in rows} == {"measured", "failed", "skipped", "missing"}
    for row in rows:
        as_json = Row.model_validate_json(json.dumps(rounded(row.model_dump(mode="json"))))
        assert rounded_record(row) == as_json
        assert rounded_record(as_json) == as_json


def test_a_void_row_of_an_older_file_keeps_its_figures_apart() -> None:
    row = next(row for row in Synthetic(samples=40).summary().rows if row.latency_ns is not None)
    older = row.model_copy(update={"grade": "F", "custom": {"joules": 2.0}})
    for read in (Row.model_validate_json(older.model_dump_json()), Row.model_validate(older.model_dump())):
        assert read.void is not None
        assert (read.latency_ns, read.throughput_per_s, read.custom) == (None, None, {})
        assert (read.void.latency_ns, read.void.custom) == (row.latency_ns, {"joules": 2.0})
        assert read.parity == row.parity
        assert Row.model_validate_json(read.model_dump_json()) == read
