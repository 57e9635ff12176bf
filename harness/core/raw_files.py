"""Raw records of a results folder: a JSON file a process, and of a large run a Parquet file a model.

Where a record is in both, the JSON file is the newer.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from harness.core import packed, store
from harness.core.errors import FormatError, InferometerError, MissingInputError
from harness.core.layout import Results
from harness.core.schemas import Case, Failed, GenerationCase, Measured, Plan, Usage

MADE_BY = "make run"


KEPT = 4
"""Parquet files whose samples stay in memory: 5 MB each, and a large run has hundreds."""


class RawFiles:
    """Reads the raw records of some cases: fast model by model. Opens a Parquet file once, and keeps few in memory."""

    def __init__(self, results: Results, cases: Sequence[Case]) -> None:
        self._results = results
        self._slugs = {case.case_id: case.slug for case in cases}
        self._opened: dict[str, packed.PackedRaw | InferometerError | None] = {}
        self._sums: dict[str, tuple[Path, str]] = {}
        self._read: dict[str, packed.PackedRaw] = {}
        self._names: set[str] = set()
        with suppress(FileNotFoundError, NotADirectoryError):
            self._names = {entry.name for entry in os.scandir(results.raw)}

    def load(self, case_id: str, number: int, sums: dict[Path, str] | None = None) -> Measured | Failed:
        """A record. sums: as in store.load_raw. Raises as it does."""
        if case_id in self._names:
            with suppress(MissingInputError):
                return store.load_raw(self._results.raw_file(case_id, number), sums)
        file = self._file(case_id, sums)
        record = file and file.record(case_id, number)
        if not record:
            raise MissingInputError(f"There is no record of {case_id}, round {number}.", f"Run `{MADE_BY}` first.")
        return record

    def load_usage(self, case_id: str, number: int, sums: dict[Path, str] | None = None) -> Usage:
        """The monitor's record beside it. Raises as store.load."""
        if case_id in self._names:
            with suppress(MissingInputError):
                return store.load(self._results.usage_file(case_id, number), Usage, MADE_BY, sums)
            if self._results.raw_file(case_id, number).is_file():  # a packed one is of an older record
                raise MissingInputError(f"There is no usage of {case_id}, round {number}.", f"Run `{MADE_BY}` first.")
        file = self._file(case_id, sums)
        usage = file and file.usage(case_id, number)
        if not usage:
            raise MissingInputError(f"There is no usage of {case_id}, round {number}.", f"Run `{MADE_BY}` first.")
        return usage

    def parquet_of(self, case_id: str) -> packed.PackedRaw | None:
        """The Parquet file of a case's model; None where there is none. Raises FormatError where it is damaged."""
        return self._file(case_id, None)

    def _file(self, case_id: str, sums: dict[Path, str] | None) -> packed.PackedRaw | None:
        slug = self._slugs.get(case_id, "")
        if slug not in self._opened:
            self._opened[slug] = self._open(self._results.packed_raw(slug))
        file = self._opened[slug]
        if isinstance(file, InferometerError):
            raise file
        if file is not None and slug not in self._read:
            self._read[slug] = file
            if len(self._read) > KEPT:
                self._read.pop(next(iter(self._read))).forget()
        if file is not None and sums is not None:
            if slug not in self._sums:
                path = self._results.packed_raw(slug)
                self._sums[slug] = path, store.sha256_file(path)
            path, digest = self._sums[slug]
            sums[path] = digest
        return file

    def _open(self, path: Path) -> packed.PackedRaw | InferometerError | None:
        if path.name not in self._names:
            return None
        try:
            return packed.PackedRaw(path)
        except FormatError as error:
            return error


def remove_records(turns: Iterable[tuple[int, Case | GenerationCase]], results: Results) -> None:
    """Remove the records of turns, (round, case): a forced run that is interrupted must not present them as new.

    results: of generation for its cases (Results.of_generation).
    """
    for number, case in turns:
        path = results.raw_file(case.case_id, number)
        with store.translate_storage_errors(path):
            path.unlink(missing_ok=True)


def pack_records(plan: Plan, results: Results, without: Collection[tuple[str, int]] = ()) -> int:
    """Move the JSON files of a large plan into one Parquet file a model; returns their number.

    A record that cannot be read stays a file, which `aggregate` names. Only for the holder of the folder's lock.
    without: (case id, round) of packed records to drop.
    """
    if len(plan.cases) <= packed.PACK_FROM:
        return 0
    packed.needs_pyarrow(f"A plan of more than {packed.PACK_FROM:,} cases")
    models: dict[str, list[Case]] = {}
    for case in plan.cases:
        models.setdefault(case.slug, []).append(case)
    return sum(_pack_model(slug, cases, results, frozenset(without)) for slug, cases in models.items())


def _pack_model(slug: str, cases: Sequence[Case], results: Results, without: frozenset[tuple[str, int]]) -> int:
    path = results.packed_raw(slug)
    folders = [folder for case in cases if (folder := results.raw_case(case.case_id)).is_dir()]
    if not folders and not (without and path.is_file()):
        return 0
    files, temporary = RawFiles(results, cases), path.with_name(f".{path.name}.partial")
    keys = _keys(files, cases, folders, without)
    written: list[tuple[str, int]] = []
    with store.translate_storage_errors(path):
        packed.write_raw(temporary, _lines(files, keys, written))
        temporary.replace(path)
        moved = 0
        for key in written:
            moved += results.raw_file(*key).is_file()
            results.raw_file(*key).unlink(missing_ok=True)
            results.usage_file(*key).unlink(missing_ok=True)
        for folder in folders:
            if not any(folder.iterdir()):
                shutil.rmtree(folder)
    return moved


def _keys(
    files: RawFiles, cases: Sequence[Case], folders: Sequence[Path], without: Collection[tuple[str, int]]
) -> list[tuple[str, int]]:
    """(case id, round) of every record, in the plan's order. Raises FormatError where the Parquet file is damaged."""
    before = files.parquet_of(cases[0].case_id)
    numbers: dict[str, set[int]] = {}
    for case_id, number in before or ():
        if (case_id, number) not in without:
            numbers.setdefault(case_id, set()).add(number)
    for folder in folders:
        rounds = (int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal())
        numbers.setdefault(folder.name, set()).update(rounds)
    return [(case.case_id, number) for case in cases for number in sorted(numbers.get(case.case_id, ()))]


def _lines(
    files: RawFiles, keys: Sequence[tuple[str, int]], written: list[tuple[str, int]]
) -> Iterator[packed.RawLine]:
    """The records that can be read; their keys go into `written`."""
    for case_id, number in keys:
        try:
            record = files.load(case_id, number)
            usage = _usage(files, case_id, number)
        except FormatError:
            continue
        if (record.case_id, record.round) == (case_id, number):
            yield record, usage
            written.append((case_id, number))


def _usage(files: RawFiles, case_id: str, number: int) -> Usage | None:
    try:
        return files.load_usage(case_id, number)
    except MissingInputError:
        return None
