"""The chain from each output of a stage back to its input files: their checksums, recorded and compared later.

A summary lists the sums of the files that it was computed from. A sum is the sha256 of a record without its seal
(core/seal.py), so that it also covers a file of an older version, which has no seal.

For files that cannot hold a seal (tables, charts, pages), the stage that writes them lists their sums in a record, and
the stage that reads them compares.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from harness.core import cli, store
from harness.core.errors import MalformedFileError, MissingInputError
from harness.core.layout import Models, Results
from harness.core.packed import PackedRows
from harness.core.safe_files import path_inside, relative_name
from harness.core.schemas import PackedSummary, Plan, Row, Summary, WrittenFiles
from harness.core.seal import UNSEALED

MODELS = "models/"
"""Prefix of the path of a file below the models folder; paths without it are below the results folder."""


def inputs_of(sums: Mapping[Path, str], results: Results, models: Models) -> dict[str, str]:
    """Summary.inputs from the sums that store.load and store.load_raw computed.

    A file whose name no stage of Inferometer would choose is left out: no record could name it.
    """
    # Files of models first, then by name: not in the order of the folders' own names, which another machine chooses.
    placed: list[tuple[bool, Path, str]] = []
    for path, digest in sums.items():
        root, prefix = next(root for root in _roots(results, models) if path.is_relative_to(root[0]))
        placed.append((prefix != MODELS, path.relative_to(root), digest))
    digests = {}
    for in_results, path, digest in sorted(placed):
        with suppress(ValueError):
            digests[relative_name(f"{'' if in_results else MODELS}{path.as_posix()}")] = digest
    return digests


def problem_inside(problem: str, results: Results, models: Models) -> str:
    """The problem with a file, which begins with its path, with the name that Summary.inputs has: wherever the folders
    are, and however the user typed them, a summary has the same words."""
    for root, prefix in _roots(results, models):
        if problem.startswith(f"{root}/"):
            return prefix + problem.removeprefix(f"{root}/")
    return problem


def _roots(results: Results, models: Models) -> list[tuple[Path, str]]:
    """(folder, prefix of its files). Either may be in the other: a file belongs to the inner one, which is first."""
    return sorted([(results.root, ""), (models.root, MODELS)], key=lambda root: -len(root[0].parts))


def load_summary(path: Path, made_by: str = "make aggregate") -> Summary:
    """A summary, checked against its input files that are in its folder. Raises as store.load does, and
    MalformedFileError where a file has changed since."""
    summary = store.load(path, Summary, made_by)
    # A summary with another name is a copy: the files beside it may belong to another summary.
    if path.name == Results(path.parent).summary.name:
        check_inputs(summary, Results(path.parent))
    return summary


def is_large(path: Path) -> bool:
    """Whether a summary has its rows in a file of their own. False where there is no summary: its reader says so."""
    return path.is_file() and store.is_packed(store.read_bytes(path, "make aggregate"))


class ByModel:
    """A summary and its rows by model. The rows of a large run stay in their file: only one model's rows are read.

    head: the summary, of a large run without its rows.
    """

    def __init__(self, path: Path, where: str = "") -> None:
        """Read and check a summary as load_summary does, and raise as it does.

        where: its folder as Make's variable, for hints, where it is not that of the stage: ` RESULTS=<folder>`.
        """
        self.head = store.load_head(path, f"make aggregate{where}")
        if path.name == Results(path.parent).summary.name:
            check_inputs(self.head, Results(path.parent), where=where)
        self._path = path
        self._opened: tuple[int, PackedRows] | None = None
        self._places: dict[str, list[int]] = {}
        self._rows: dict[str, list[Row]] = {}
        if isinstance(self.head, PackedSummary):
            for at, group in enumerate(self.head.row_groups):
                self._places.setdefault(group.model, []).append(at)
        for row in self.head.rows:
            self._rows.setdefault(row.model, []).append(row)

    @property
    def is_large(self) -> bool:
        """Whether the rows are in a file of their own."""
        return isinstance(self.head, PackedSummary)

    @property
    def rows_file(self) -> Path | None:
        """The file of the rows; None where they are in the summary."""
        return self._path.with_suffix(store.PARQUET) if self.is_large else None

    @property
    def models(self) -> list[str]:
        """Names of the models, in the plan's order."""
        return list(self._places or self._rows)

    def rows(self, model: str) -> tuple[Row, ...]:
        """The rows of a model; empty where it has none. Raises MalformedFileError."""
        if not isinstance(self.head, PackedSummary):
            return tuple(self._rows.get(model, ()))
        # Each forked process opens the file by itself, and once: its list of row groups is long.
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), PackedRows(self._path.with_suffix(store.PARQUET), self.head.row_groups)
        return tuple(row for at in self._places.get(model, ()) for row in self._opened[1].group(at))

    def of(self, model: str) -> Summary:
        """The summary of one model by itself."""
        names = set(type(self.head).model_fields) & set(Summary.model_fields)
        fields = {name: getattr(self.head, name) for name in names}
        rows = self.rows(model)
        cases = {row.case_id for row in rows}
        exports = {name: export for name, export in self.head.exports.items() if name == model}
        energies = {name: energy for name, energy in self.head.energies.items() if name in cases}
        own = {"rows": rows, "exports": exports, "energies": energies, "inputs": {}, "schema_version": 3}
        return Summary.model_construct(**{**fields, **own, "loads": (), "generations": (), "notes": ()})


def check_inputs(
    summary: Summary, results: Results, models: Models | None = None, complete: bool = False, where: str = ""
) -> None:
    """Raise MalformedFileError naming a file that changed since the summary was computed from it.

    models: None leaves the exports out. complete: also refuse a missing file (MissingInputError) and a plan that was
    made again; otherwise a new plan causes only a warning, because it belongs to the next run. where: as of ByModel.
    """
    for name, digest in summary.inputs.items():
        if name.startswith(MODELS):
            path = path_inside(models.root, name.removeprefix(MODELS)) if models else None
        else:
            path = path_inside(results.root, name)
        if path is None or (not path.is_file() and not complete):
            continue
        again = f"make aggregate report{where}"
        if not path.is_file():
            raise MissingInputError(f"{path} is gone, which {results.summary} was computed from.", f"Run `{again}`.")
        if digest in store.content_sums(path, again):
            continue
        if path == results.plan and not complete and _planned_again(summary, results):
            cli.warn(f"{path} is of another run by now: {results.summary} is of plan {summary.plan_id}.")
            continue
        raise MalformedFileError(
            f"{path} has changed since {results.summary} was computed from it.",
            f"Run `{again}`, or put back the file that it was computed from.",
        )


def _planned_again(summary: Summary, results: Results) -> bool:
    """Whether the plan is intact and another plan. A plan with a changed digit is not: its seal is broken."""
    UNSEALED.pop(results.plan, None)
    return store.load(results.plan, Plan, "make plan").plan_id != summary.plan_id and results.plan not in UNSEALED


def save(results: Results, stage: str, files: Mapping[Path, bytes]) -> None:
    """Write the files of a stage, all below the results folder, and the record of their sums."""
    for path, content in files.items():
        store.save_bytes(path, content)
    sums = {_name(results, path): hashlib.sha256(content).hexdigest() for path, content in sorted(files.items())}
    store.save(results.written(stage), WrittenFiles(files=sums))


def check(results: Results, stage: str, paths: Iterable[Path], made_by: str) -> None:
    """Raise MalformedFileError naming a file that changed since the stage wrote it.

    Paths that do not exist are ignored. Files of older versions, which have no such record, count as unsealed.
    """
    there = [path for path in paths if path.is_file()]
    try:
        listed = store.load(results.written(stage), WrittenFiles, made_by).files
    except MissingInputError:
        UNSEALED.update(dict.fromkeys(there))
        return
    for path in there:
        if listed.get(_name(results, path)) != store.sha256_file(path):
            raise MalformedFileError(
                f"{path} has changed since `{made_by}` wrote it.",
                f"Run `{made_by}`, or put back the file that it wrote.",
            )


def _name(results: Results, path: Path) -> str:
    return path.relative_to(results.root).as_posix()
