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
    """The records with what the monitor saw of each, or why that is not known.

    Its files are a witness beside the samples: without one no sample is left out, and the row's grade says that nothing
    is known (UNWATCHED): deleting a file never improves it.
    """
    if not records.measured:
        return records
    usage: dict[int, UsageSummary] = {}
    unwatched: dict[int, str] = {}
    for record in records.measured:
        found = _usage(record, load_usage)
        window = utilisation.timed(found) if isinstance(found, Usage) else None
        if window is not None:
            usage[record.round] = window
            continue
        unwatched[record.round] = found if isinstance(found, str) else "the case ended before the monitor saw it timed"
        notes.nobody_watched(record.case_id, record.round, unwatched[record.round])
    where = environments.get(records.measured[0].environment_id or "")
    return replace(records, usage=usage, unwatched=unwatched, environment=where)


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
