"""Which turns of a run are already answered: same plan, same artifacts, same machine and libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.core import environment, store
from harness.core.errors import FormatError, InferometerError
from harness.core.layout import Results
from harness.core.schemas import Environment, ExportRecord, Measured, Plan
from harness.measure import admission
from harness.measure.typical import batch_ns
from harness.planning.schedule import Turn


@dataclass
class Finished:
    """What need not be measured again (case id → round → process median in ns), and damaged files by name."""

    medians: dict[str, dict[int, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def has(self, turn: Turn) -> bool:
        """Whether this turn is answered."""
        number, case = turn
        return number in self.medians.get(case.case_id, {})

    def add(self, record: Measured) -> None:
        """Remember a measured record."""
        self.medians.setdefault(record.case_id, {})[record.round] = batch_ns(record)


def finished_turns(
    plan: Plan, turns: Sequence[Turn], exports: Mapping[str, ExportRecord], results: Results
) -> Finished:
    """Look at the raw files of the given turns. Failed ones are tried again; damaged ones are named."""
    found = Finished()
    here = environment.collect({})
    comparable: dict[str | None, bool] = {None: False}
    known = {model: admission.known_artifacts(export) for model, export in exports.items()}
    for number, case in turns:
        path = results.raw_file(case.case_id, number)
        if not path.is_file():
            continue
        try:
            record = store.load_raw(path)
        except FormatError as error:
            found.notes.append(f"{error.problem} It is measured again.")
            continue
        if not isinstance(record, Measured) or record.plan_id != plan.plan_id:
            continue
        if (record.case_id, record.round) != (case.case_id, number):  # moved or copied: aggregate refuses it
            continue
        identity = record.environment_id
        if identity not in comparable:
            comparable[identity] = _same_environment(identity, here, results)
        if comparable[identity] and admission.foreign_artifact(record, known.get(case.model, {})) is None:
            found.add(record)
    return found


def _same_environment(identity: str | None, here: Environment, results: Results) -> bool:
    """Whether samples of that environment could stand beside samples taken here and now."""
    if identity is None:
        return False
    try:
        there = store.load(results.environment(identity), Environment, "make run")
    except InferometerError:
        return False
    return not admission.differing(there, here)
