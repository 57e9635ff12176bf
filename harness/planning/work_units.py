"""Units of a plan for several machines: the cases that are compared, all their rounds, and the files that they need."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.aggregation.admission import comparison_groups
from harness.core import store
from harness.core.layout import Models, Results
from harness.core.schemas import Case, Plan, UnitFile, UnitRequest
from harness.planning.exports import Exports, export_files
from harness.planning.schedule import select_cases


@dataclass(frozen=True)
class WorkUnit:
    """Cases that must be measured on one machine, because their speeds are compared."""

    unit_id: str
    cases: tuple[Case, ...]


def work_units(cases: Sequence[Case]) -> list[WorkUnit]:
    """The units of the runnable cases, in plan order."""
    return [WorkUnit(f"{group[0].slug}-{_hash(key)}", tuple(group)) for key, group in comparison_groups(cases).items()]


def _hash(key: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(key).encode()).hexdigest()[:8]


def unit_request(
    unit: WorkUnit, attempt: int, version: str, plan: Plan, exports: Exports, results: Results, models: Models
) -> tuple[UnitRequest, dict[str, Path]]:
    """(the request of an attempt, the path of each of its files by sha256).

    The part of the plan becomes a file below results/jobs/plans.
    """
    part = select_cases(plan, unit.cases)
    plan_file = results.jobs / "plans" / f"{unit.unit_id}.json"
    store.save(plan_file, part)
    named: dict[str, Path] = {Results(Path("results")).plan.as_posix(): plan_file}
    for slug in dict.fromkeys(case.slug for case in unit.cases):
        named |= _model_files(slug, part, exports, results, models)
    digests = {path: store.sha256_file(path) for path in dict.fromkeys(named.values())}
    files = tuple(UnitFile(path=name, sha256=digests[path]) for name, path in sorted(named.items()))
    request = UnitRequest(unit_id=unit.unit_id, attempt=attempt, inferometer=version, files=files)
    return request, {digest: path for path, digest in digests.items()}


def _model_files(slug: str, plan: Plan, exports: Exports, results: Results, models: Models) -> Mapping[str, Path]:
    """Name in the unit's folder → path here, for the export of a model, its record and its engines."""
    files_of: dict[str, Path] = {}
    record = export_files(slug, results, models)
    on_worker = Results(Path("results")).export(slug).root
    files_of |= {(on_worker / path.name).as_posix(): path for path in (record.record, record.failure) if path.is_file()}
    for planned in plan.models:
        export = exports.intact.get(planned.name)
        if export is None or planned.slug != slug:
            continue
        folder = models.folder(export.slug, export.folder)
        paths = [*_files_below(folder.root), *_files_below(folder.engines)]
        files_of |= {f"models/{path.relative_to(models.root).as_posix()}": path for path in paths}
    return files_of


def _files_below(folder: Path) -> list[Path]:
    """Files of an export or of engines; compiled code is of one machine, and stays."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith(".") or part == "compile-cache" for part in path.parts)
    ]
