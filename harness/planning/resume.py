"""Finds the turns of a run that are already measured: same settings, same artifacts, same machine and libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from harness.aggregation import admission
from harness.aggregation.batch_times import batch_ns
from harness.backends import backend_info
from harness.core import store
from harness.core.errors import FormatError, InferometerError, MissingInputError
from harness.core.host import environment
from harness.core.layout import Results
from harness.core.raw_files import RawFiles
from harness.core.schemas import Case, EngineRecord, Environment, ExportRecord, Measured, Plan
from harness.planning.schedule import Turn


@dataclass
class Finished:
    """Turns that need no new measurement (case id → round → process median in ns), and names of damaged files.

    unsound: ids of cases whose outputs are further from the reference than their tolerance allows.
    """

    plan: Plan | None = None
    medians: dict[str, dict[int, float]] = field(default_factory=dict)
    unsound: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def has(self, turn: Turn) -> bool:
        """Whether this turn is already measured."""
        number, case = turn
        return number in self.medians.get(case.case_id, {})

    def add(self, record: Measured, case: Case) -> None:
        """Add a measured record of a case."""
        self.medians.setdefault(record.case_id, {})[record.round] = batch_ns(record)
        tolerance = self.plan.tolerance(case.model, case.precision) if self.plan else None
        parity = record.parity_before
        if tolerance and parity and (parity.furthest is None or parity.furthest > tolerance.relative_l2):
            self.unsound.add(record.case_id)


def finished_turns(
    plan: Plan,
    turns: Sequence[Turn],
    exports: Mapping[str, ExportRecord],
    results: Results,
    elsewhere: frozenset[str] = frozenset(),
    engines: Mapping[str, Sequence[EngineRecord]] = MappingProxyType({}),
) -> Finished:
    """Read the raw files of the given turns. Failed turns are measured again; damaged files are named.

    exports, engines: by model name. elsewhere: backends whose libraries belong to another interpreter, so that the
    versions in this interpreter do not apply.
    """
    finished = Finished(plan)
    here: dict[tuple[str, ...], Environment] = {}
    comparable: dict[tuple[str | None, bool, tuple[str, ...]], bool] = {}
    known = {model: admission.known_artifacts(export, engines.get(model, ())) for model, export in exports.items()}
    raw = RawFiles(results, plan.cases)
    places = {case.case_id: at for at, case in enumerate(plan.cases)}
    models = {slug: at for at, slug in enumerate(dict.fromkeys(case.slug for case in plan.cases))}

    def in_files(turn: Turn) -> tuple[int, int, int]:
        """Model by model: the samples of a model are in one file."""
        return models.get(turn[1].slug, 0), places.get(turn[1].case_id, 0), turn[0]

    for number, case in sorted(turns, key=in_files):
        try:
            record = raw.load(case.case_id, number)
        except MissingInputError:
            continue
        except FormatError as error:
            finished.notes.append(f"{error.problem} It is measured again.")
            continue
        if not isinstance(record, Measured) or record.settings_id != plan.settings_id:
            continue
        if (record.case_id, record.round) != (case.case_id, number):  # moved or copied: aggregate refuses it
            continue
        also = backend_info(case.backend).recorded
        if also not in here:
            here[also] = environment.collect({}, plan.device, also)
        asked = (record.environment_id, case.backend not in elsewhere, also)
        if asked not in comparable:
            comparable[asked] = same_environment(*asked[:2], here[also], results)
        if comparable[asked] and admission.foreign_artifact(record, known.get(case.model, {})) is None:
            finished.add(record, case)
    return finished


def same_environment(identity: str | None, libraries: bool, here: Environment, results: Results) -> bool:
    """Whether samples of that environment are comparable with samples of the present environment."""
    if identity is None:
        return False
    try:
        there = store.load(results.environment(identity), Environment, "make run")
    except InferometerError:
        return False
    return not admission.differing(there, here, libraries)
