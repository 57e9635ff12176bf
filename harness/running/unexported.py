"""Turns without the export that they need: each fails with the reason, so that its row can say it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core import cli, store
from harness.core.errors import FormatError
from harness.core.layout import Results
from harness.core.schemas import Failed, Measured, Plan
from harness.core.timestamps import utc_now
from harness.planning.exports import Exports
from harness.planning.schedule import Turn


def split_off_unexported(plan: Plan, turns: Sequence[Turn], exports: Exports, results: Results) -> list[Turn]:
    """The turns that can be measured, after a failed record was left for each other one and a warning for its model.

    A record measured with this plan's settings stays: once the same export is there again, it counts again.
    """
    for model, error in exports.absent.items():
        cli.warn(f"{model} is not measured. {error.problem} {error.hint}")
    measurable = []
    said: set[tuple[str, str]] = set()
    for turn in turns:
        number, case = turn
        reason = exports.reason_against(case)
        if reason is None:
            measurable.append(turn)
            continue
        if case.model not in exports.absent and (case.model, reason.problem) not in said:
            said.add((case.model, reason.problem))
            cli.warn(f"{case.model} is not measured where its ONNX file is needed. {reason.problem} {reason.hint}")
        if not _measured(plan, turn, results):
            record = Failed(
                case_id=case.case_id,
                round=number,
                settings_id=plan.settings_id,
                started_at=utc_now(),
                environment_id=None,
                error=reason.problem,
                hint=reason.hint,
                phase="export",
                stderr_tail="",
            )
            store.save_raw(results.raw_file(case.case_id, number), record)
    return measurable


def _measured(plan: Plan, turn: Turn, results: Results) -> bool:
    number, case = turn
    path = results.raw_file(case.case_id, number)
    try:
        record = store.load_raw(path) if path.is_file() else None
    except FormatError:
        return False
    return isinstance(record, Measured) and record.settings_id == plan.settings_id
