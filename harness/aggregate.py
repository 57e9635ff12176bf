"""Join the plan with the raw records: a row for every planned case, measured, skipped, failed or missing.

reads   results/plan.json, raw/<case>/<round>.json and .usage.json, environments/*.json, roof.json, energy/*.json,
        models/<slug>/export.json and the records of its engines
writes  results/summary.json, summary.csv, written/aggregate.json
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harness.backends import BACKENDS
from harness.core import chain, cli, store, written
from harness.core.errors import FormatError, MissingInputError
from harness.core.layout import ModelFolder, Models, Results
from harness.core.schemas import (
    CpuRoof,
    Energy,
    Environment,
    ExportFailure,
    ExportRecord,
    Failed,
    Measured,
    Plan,
    Roof,
    Summary,
    Usage,
)
from harness.core.timestamps import utc_now
from harness.measure.custom import installed_metrics, with_custom
from harness.measure.join import join
from harness.measure.notes import Notes
from harness.planning.built_engines import built_engines
from harness.render import units
from harness.render.flat import csv_text


def stage(arguments: Sequence[str]) -> None:
    """Read, join, write."""
    parser = cli.parser("harness.aggregate", __doc__)
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    results = Results(options.results)
    sums: dict[Path, str] = {}
    plan = store.load(results.plan, Plan, "make plan", sums)
    notes = Notes()
    models = Models(options.models_dir)
    exports = load_exports(plan, models, notes, sums)
    environments = load_environments(results, notes, sums)

    def load(case_id: str, round_number: int) -> Measured | Failed | None:
        try:
            return store.load_raw(results.raw_file(case_id, round_number), sums)
        except MissingInputError:
            return None

    def load_usage(case_id: str, round_number: int) -> Usage | None:
        try:
            return store.load(results.usage_file(case_id, round_number), Usage, "make run", sums)
        except MissingInputError:
            return None

    calibration = frozenset(name for name, info in BACKENDS.items() if not info.computes)
    summary = join(
        plan,
        exports,
        environments,
        load,
        load_usage,
        calibration=calibration,
        notes=notes,
        created_at=utc_now(),
        engines={slug: built_engines(models.folder(slug), notes.other, sums) for slug in exports},
        roof=load_roof(plan, results, notes, sums),
    )
    energies = load_energies(plan, results, notes, sums)
    metrics, problems = installed_metrics()
    notes.other += problems
    inputs = chain.inputs_of(sums, results, models)
    summary = summary.model_copy(update={"energies": energies, "notes": notes.lines(), "inputs": inputs})
    summary = with_custom(summary, metrics)
    store.save(results.summary, summary)
    written.save(results, "aggregate", {results.summary_csv: csv_text(summary).encode()})
    _say(summary, results)


def load_exports(plan: Plan, models: Models, notes: Notes, sums: dict[Path, str]) -> dict[str, ExportRecord]:
    """Export records by slug; what cannot be read goes into the notes, MissingInputError where none can be."""
    exports: dict[str, ExportRecord] = {}
    problems: list[FormatError | MissingInputError] = []
    for model in (model for model in plan.models if model.exported):
        folder = models.folder(model.slug)
        try:
            exports[model.slug] = store.load(folder.record, ExportRecord, "make export", sums)
        except (FormatError, MissingInputError) as error:
            problems.append(error)
            notes.other.append(_why_not(model.name, folder) or f"{error.problem} {error.hint}")
    if problems and not exports:
        raise problems[0]
    return exports


def _why_not(model: str, folder: ModelFolder) -> str | None:
    """What `export` itself said of a model that it did not export."""
    try:
        told = store.load(folder.failure, ExportFailure, "make export")
    except (FormatError, MissingInputError):
        return None
    return f"{model} was not exported. {told.error} {told.hint}"


def load_environments(results: Results, notes: Notes, sums: dict[Path, str]) -> dict[str, Environment]:
    """Environment records by id; what cannot be read goes into the notes."""
    environments: dict[str, Environment] = {}
    for path in sorted(results.environments.glob("*.json")):
        try:
            environments[path.stem] = store.load(path, Environment, "make run", sums)
        except FormatError as error:
            notes.other.append(f"{error.problem} {error.hint}")
    return environments


def load_roof(plan: Plan, results: Results, notes: Notes, sums: dict[Path, str]) -> Roof | CpuRoof | None:
    """The limits of the plan's device; None where they were not measured, damage goes into the notes."""
    if not results.roof.is_file():
        return None
    try:
        if plan.device == "cuda":
            return store.load(results.roof, Roof, "make roof", sums)
        return store.load(results.roof, CpuRoof, "make roof", sums)
    except FormatError as error:
        notes.other.append(f"{error.problem} {error.hint}")
        return None


def load_energies(plan: Plan, results: Results, notes: Notes, sums: dict[Path, str]) -> dict[str, Energy]:
    """What the energy pass found with this plan's settings, by case id; damaged files go into the notes."""
    found: dict[str, Energy] = {}
    for case in plan.cases:
        path = results.energy_file(case.case_id)
        if not path.is_file():
            continue
        try:
            energy = store.load(path, Energy, "make energy", sums)
        except FormatError as error:
            notes.other.append(f"{error.problem} {error.hint}")
            continue
        if energy.settings_id == plan.settings_id:
            found[case.case_id] = energy
    return found


def _say(summary: Summary, results: Results) -> None:
    counts = Counter(row.status for row in summary.rows)
    parts = [f"{counts[status]} {status}" for status in ("measured", "skipped", "failed", "missing") if counts[status]]
    cli.say(f"{results.summary}: {units.count(len(summary.rows), 'row')}, {', '.join(parts) or 'none'}.")
    for note in summary.notes:
        cli.warn(note)


if __name__ == "__main__":
    cli.main(stage)
