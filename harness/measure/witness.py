"""What the monitor saw, beside the records that it watched (pure: how a file is read is handed in)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from harness.core.errors import FormatError, StorageError
from harness.core.schemas import Environment, Measured, Usage, UsageSummary
from harness.measure import utilisation
from harness.measure.notes import Notes
from harness.measure.summarise import CaseRecords

LoadUsage = Callable[[str, int], Usage | None]
"""(case id, round) → what the monitor saw; raises as Load does."""


def witnessed(
    records: CaseRecords, load_usage: LoadUsage, environments: Mapping[str, Environment], notes: Notes
) -> CaseRecords:
    """The records with what the monitor saw of each. Its files are a witness beside the samples: none is ever missed
    so much that a sample is left out."""
    if not records.measured:
        return records
    usage: dict[int, UsageSummary] = {}
    for record in records.measured:
        found = _usage(record, load_usage)
        if isinstance(found, str):
            notes.nobody_watched(record.case_id, record.round, found)
        elif (window := utilisation.timed(found)) is not None:
            usage[record.round] = window
    where = environments.get(records.measured[0].environment_id or "")
    return replace(records, usage=usage, environment=where)


def _usage(record: Measured, load_usage: LoadUsage) -> Usage | str:
    """What the monitor saw of a record's process, or why that is not known."""
    try:
        found = load_usage(record.case_id, record.round)
    except (FormatError, StorageError) as error:
        return error.problem.removesuffix(".")
    if found is None:
        return "the monitor left no usage record"
    if (found.case_id, found.round, found.settings_id) != (record.case_id, record.round, record.settings_id):
        return "the usage record beside it is of another case, round or settings"
    return found
