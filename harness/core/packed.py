"""Records in Parquet files, where JSON is outgrown: raw samples, and the rows of a summary.

    results/raw/<slug>.parquet    a line a process, in the plan's order: case_id, round, latency_ns, warmup_ns, the rest
                                  of its record and the monitor's record as JSON
    results/summary.parquet       a line a case, a row group a model: names, grade, figures, the checks as JSON,
                                  the rest of the row as JSON

The schemas are those of the JSON files: a record that is read from here equals the record that was written. The only
module that imports pyarrow (the extra `parquet`), when such a file is read or written.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from harness.core.errors import MalformedFileError, MissingInputError, NewerFormatError, UnavailableError
from harness.core.schemas import Failed, Measured, PackedUsage, RawRecord, Row, RowGroup, Usage
from harness.core.schemas.vocabulary import Checks

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import DTypeLike, NDArray

PACK_FROM = 10_000
"""Cases of a plan above which `run` packs raw records and `aggregate` packs rows. Up to here JSON is fast enough
(docs/speed.md), and any program reads it."""

GROUP_RECORDS: Final = 1_500
"""Raw records of a row group, which is read at once: about 5 MB."""

_RAW: TypeAdapter[Measured | Failed] = TypeAdapter(RawRecord)
_MEASURED: TypeAdapter[Measured | Failed] = TypeAdapter(Measured)
_CHECKS: TypeAdapter[Checks] = TypeAdapter(Checks)
_KIND = b"inferometer"
_RAW_FORMATS, _ROWS_FORMATS = (b"raw 1", b"raw 2"), (b"rows 1", b"rows 2")
"""The formats that are read; the last is written. Raw 1: the samples of the monitor's record one after the other. Rows
1: the checks of a row in its JSON."""

_SAMPLES = ("latency_ns", "warmup_ns")
_ROW_TEXTS: Final = ("row", "checks")
RawLine = tuple[Measured | Failed, Usage | None]


def needs_pyarrow(purpose: str) -> None:
    """Raise UnavailableError where pyarrow is not installed."""
    # Without it pyarrow's allocator starts a thread, and processes with threads are not forked safely.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    try:
        import pyarrow.parquet  # noqa: F401, PLC0415 - 55 MB that only large runs need
    except ImportError as error:
        raise UnavailableError(f"{purpose} needs pyarrow.", "pip install 'inferometer[parquet]'") from error


def write_raw(path: Path, lines: Iterable[RawLine]) -> None:
    """Write raw records, with the monitor's, to a file that no reader has open. Holds one row group at a time."""
    _write(path, _raw_schema(), map(_raw_line, lines), GROUP_RECORDS)


def _raw_line(line: RawLine) -> dict[str, Any]:
    record, usage = line
    samples: dict[str, Any] = {name: getattr(record, name, None) for name in _SAMPLES}
    rest = record.model_copy(update=dict.fromkeys(_SAMPLES, ())) if isinstance(record, Measured) else record
    return {
        "case_id": record.case_id,
        "round": record.round,
        **samples,
        "record": rest.model_dump_json(),
        "usage": None if usage is None else PackedUsage.of(usage).model_dump_json(exclude_defaults=True),
    }


class PackedRaw:
    """A file of raw records, read by row groups. Raises MalformedFileError where it is damaged or of another kind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _opened(path, dict.fromkeys(_RAW_FORMATS, _raw_schema()), "make run")
        self._usage = Usage if self._file.schema_arrow.metadata[_KIND] == _RAW_FORMATS[0] else PackedUsage
        with _translated(path, "make run"):
            names = self._file.read(columns=["case_id", "round"], use_threads=False)
        keys = zip(names["case_id"].to_pylist(), names["round"].to_pylist(), strict=True)
        self._places = {key: at for at, key in enumerate(keys)}
        sizes = [self._file.metadata.row_group(at).num_rows for at in range(self._file.metadata.num_row_groups)]
        self._starts = [0, *accumulate(sizes)]
        self._group: tuple[int, _RawGroup] | None = None

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """(case id, round) of every record, in the order of the file."""
        return iter(self._places)

    def forget(self) -> None:
        """Free the samples that were read last."""
        self._group = None

    def record(self, case_id: str, number: int) -> Measured | Failed | None:
        """A record; None where it is not here."""
        line = self._line(case_id, number)
        if line is None:
            return None
        group, at = line
        samples = {name: column[at] for name, column in group.samples.items()}
        timed = all(column is not None for column in samples.values())
        try:
            # Without samples it may be either kind; to look which one it is takes a fifth of the time.
            record = (_MEASURED if timed else _RAW).validate_json(group.records[at])
        except ValidationError as error:
            raise _damaged(self._path, f"{case_id}, round {number}", "make run") from error
        if isinstance(record, Measured):
            if not timed:
                raise _damaged(self._path, f"a sample of {case_id}, round {number},", "make run")
            record.__dict__.update(samples)  # it is new: nothing else refers to it
        return record

    def usage(self, case_id: str, number: int) -> Usage | None:
        """The monitor's record; None where there is none."""
        line = self._line(case_id, number)
        text = None if line is None else line[0].usages[line[1]]
        if text is None:
            return None
        try:
            return self._usage.model_validate_json(text)
        except ValidationError as error:
            raise _damaged(self._path, f"the usage of {case_id}, round {number}", "make run") from error

    def _line(self, case_id: str, number: int) -> tuple[_RawGroup, int] | None:
        place = self._places.get((case_id, number))
        if place is None:
            return None
        at = bisect_right(self._starts, place) - 1
        if self._group is None or self._group[0] != at:
            with _translated(self._path, "make run"):
                table = self._file.read_row_group(at, use_threads=False)
            self._group = at, _RawGroup(table)
        return self._group[1], place - self._starts[at]


class _RawGroup:
    """The lines of one row group. samples: by column; None where a line or a value of it is null."""

    def __init__(self, table: pa.Table) -> None:
        self.records: list[str] = table["record"].to_pylist()
        self.usages: list[str | None] = table["usage"].to_pylist()
        self.samples = {name: _SampleColumn(table[name].combine_chunks()) for name in _SAMPLES}


class Samples(Sequence[int]):
    """Samples of a process as an array of NumPy; for Python a tuple of integers, made when it is asked for."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self._array.astype(dtype or self._array.dtype, copy=bool(copy))

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[int]:
        return iter(self._integers)

    def __getitem__(self, place: Any) -> Any:
        return self._integers[place]

    def __eq__(self, other: object) -> bool:
        return self._integers == (other._integers if isinstance(other, Samples) else other)

    def __hash__(self) -> int:
        return hash(self._integers)

    @cached_property
    def _integers(self) -> tuple[int, ...]:
        return tuple(self._array.tolist())


class _SampleColumn:
    """A column of samples, a line a process."""

    def __init__(self, column: pa.ListArray) -> None:
        import numpy as np  # noqa: PLC0415 - only with pyarrow

        # Filling nulls, as to_numpy, imports pandas where it is installed.
        values = column.values.fill_null(0) if column.values.null_count else column.values
        self._values: NDArray[Any] = np.from_dlpack(values)
        self._ends: list[int] = column.offsets.to_pylist()
        self._usable: list[bool] | None = None
        if column.null_count or column.values.null_count:
            self._usable = [line is not None and None not in line for line in column.to_pylist()]

    def __getitem__(self, at: int) -> Samples | None:
        if self._usable is not None and not self._usable[at]:
            return None
        return Samples(self._values[self._ends[at] : self._ends[at + 1]])


class RowsWriter:
    """Writes the rows of a summary, a row group a model, beside an existing file until `keep` replaces that."""

    def __init__(self, path: Path) -> None:
        needs_pyarrow(f"A summary of more than {PACK_FROM:,} cases")
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        self._path, self._temporary = path, path.with_name(f".{path.name}.partial")
        self._groups: list[RowGroup] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._temporary, _rows_schema(), **_WRITTEN_AS)

    def add(self, rows: WrittenRows) -> None:
        """Add the rows of a model."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        table = pa.Table.from_pydict(rows.columns, schema=_rows_schema())
        self._writer.write_table(table, row_group_size=max(1, rows.group.rows))
        self._groups.append(rows.group)

    def close(self) -> tuple[RowGroup, ...]:
        """Close the file; returns the row groups, for the summary."""
        self._writer.close()
        return tuple(self._groups)

    def keep(self) -> None:
        """Put the file in its place."""
        self._temporary.replace(self._path)

    def discard(self) -> None:
        """Remove what was written."""
        self._writer.close()
        self._temporary.unlink(missing_ok=True)


class PackedRows:
    """The rows of a summary, read by model. Raises MalformedFileError where they do not belong to the summary."""

    def __init__(self, path: Path, groups: Sequence[RowGroup]) -> None:
        self._path, self._groups = path, groups
        schemas = {_ROWS_FORMATS[0]: _rows_schema(("row",)), _ROWS_FORMATS[1]: _rows_schema()}
        self._file = _opened(path, schemas, "make aggregate")
        self._columns = [name for name in _ROW_TEXTS if name in self._file.schema_arrow.names]
        counts = [self._file.metadata.row_group(at).num_rows for at in range(self._file.metadata.num_row_groups)]
        if counts != [group.rows for group in groups]:
            raise _damaged(path, "the number of rows", "make aggregate")

    def group(self, at: int) -> tuple[Row, ...]:
        """The rows of one group."""
        with _translated(self._path, "make aggregate"):
            table = self._file.read_row_group(at, columns=self._columns, use_threads=False)
        texts = {name: table[name].to_pylist() for name in self._columns}
        if _sum(texts) != self._groups[at].sha256:
            raise _damaged(self._path, f"the rows of {self._groups[at].model}", "make aggregate")
        try:
            rows = tuple(map(Row.model_validate_json, texts["row"]))
            # Most rows have the same checks: each text is read once.
            checks = {text: _CHECKS.validate_json(text) for text in set(texts.get("checks", ()))}
        except ValidationError as error:
            raise _damaged(self._path, f"a row of {self._groups[at].model}", "make aggregate") from error
        for row, text in zip(rows, texts.get("checks", ()), strict=False):
            row.__dict__["checks"] = checks[text]  # it is new: nothing else refers to it
        return rows

    def statuses(self) -> Iterator[tuple[str, str]]:
        """(case id, status) of every row."""
        with _translated(self._path, "make aggregate"):
            table = self._file.read(columns=["case_id", "status"], use_threads=False)
        return zip(table["case_id"].to_pylist(), table["status"].to_pylist(), strict=True)


@dataclass(frozen=True)
class WrittenRows:
    """The rows of one model as columns of the file. group: what the summary has of them."""

    columns: dict[str, list[Any]]
    group: RowGroup


def written_rows(model: str, rows: Sequence[Row]) -> WrittenRows:
    """The rows of a model for the file. rows: with the digits that a file has (rounded_record)."""
    texts = {
        "row": [row.model_dump_json(exclude={"checks"}) for row in rows],
        "checks": [_CHECKS.dump_json(row.checks).decode() for row in rows],
    }
    columns = {name: [figure(row) for row in rows] for name, figure in _FIGURES.items()}
    measured = columns["status"].count("measured")
    group = RowGroup(model=model, rows=len(rows), measured=measured, sha256=_sum(texts))
    return WrittenRows({**columns, **texts}, group)


_PLAIN: Final = (
    *("case_id", "model", "backend", "precision", "batch_size", "sequence_length", "boundary", "mode", "setting"),
    *("status", "grade", "throughput_per_s"),
)
_FIGURES: Final[Mapping[str, Callable[[Row], Any]]] = {
    **{name: attrgetter(name) for name in _PLAIN},
    "median_ns": lambda row: row.latency_ns and row.latency_ns.median,
    "ci95_low_ns": lambda row: row.latency_ns and row.latency_ns.ci95 and row.latency_ns.ci95.low,
    "ci95_high_ns": lambda row: row.latency_ns and row.latency_ns.ci95 and row.latency_ns.ci95.high,
    "speedup": lambda row: row.speedup and row.speedup.ratio,
}
"""The columns besides the row itself, which programs read without its schema."""


def _sum(texts: Mapping[str, Sequence[str]]) -> str:
    lines = (line or "" for name in _ROW_TEXTS for line in texts.get(name, ()))  # a null is no row, as its reader says
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


_WRITTEN_AS: Final[dict[str, Any]] = {"compression": "zstd", "write_page_checksum": True, "use_dictionary": False}


def _raw_schema() -> pa.Schema:
    needs_pyarrow("A Parquet file")
    import pyarrow as pa  # noqa: PLC0415 - as above

    samples = [(name, pa.list_(pa.int64())) for name in _SAMPLES]
    columns = [("case_id", pa.string()), ("round", pa.int32()), *samples]
    return pa.schema([*columns, ("record", pa.string()), ("usage", pa.string())], metadata={_KIND: _RAW_FORMATS[-1]})


def _rows_schema(texts: Sequence[str] = _ROW_TEXTS) -> pa.Schema:
    needs_pyarrow("A Parquet file")
    import pyarrow as pa  # noqa: PLC0415 - as above

    words = ("case_id", "model", "backend", "precision", "boundary", "mode", "setting", "status", "grade", *texts)
    figures = ("throughput_per_s", "median_ns", "ci95_low_ns", "ci95_high_ns", "speedup")
    columns = [(name, pa.string()) for name in words] + [(name, pa.float64()) for name in figures]
    sizes = [(name, pa.int64()) for name in ("batch_size", "sequence_length")]
    return pa.schema([*columns, *sizes], metadata={_KIND: _ROWS_FORMATS[-1]})


def _write(path: Path, schema: pa.Schema, lines: Iterable[Mapping[str, Any]], group: int) -> None:
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    kept: list[Mapping[str, Any]] = []
    with pq.ParquetWriter(path, schema, **_WRITTEN_AS) as writer:
        for line in lines:
            kept.append(line)
            if len(kept) == group:
                writer.write_table(pa.Table.from_pylist(kept, schema=schema))
                kept.clear()
        if kept:
            writer.write_table(pa.Table.from_pylist(kept, schema=schema))


def _opened(path: Path, schemas: Mapping[bytes, pa.Schema], made_by: str) -> Any:
    """A file. schemas: of each format that is read, the newest last."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    if not path.is_file():
        raise MissingInputError(f"{path} does not exist.", f"Run `{made_by}` first.")
    with _translated(path, made_by):
        file = pq.ParquetFile(path, page_checksum_verification=True)
    own_schema: pa.Schema = file.schema_arrow
    kind, newest = (own_schema.metadata or {}).get(_KIND, b""), list(schemas)[-1]
    if kind.split(b" ")[0] != newest.split(b" ")[0]:
        raise MalformedFileError(f"{path} was not written by Inferometer.", _again(made_by))
    if kind not in schemas:
        raise NewerFormatError(
            f"{path} has format {kind.decode(errors='replace')}; this Inferometer knows up to {newest.decode()}.",
            "Update Inferometer, or name another results folder: `RESULTS=<folder>`.",
        )
    if not own_schema.equals(schemas[kind]):
        raise MalformedFileError(f"{path} has other columns than such a file.", _again(made_by))
    return file


@contextmanager
def _translated(path: Path, made_by: str) -> Iterator[None]:
    """Turn pyarrow's errors about a file into MalformedFileError."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise MalformedFileError(f"{path} is cut off, damaged or no Parquet file.", _again(made_by)) from error


def _damaged(path: Path, what: str, made_by: str) -> MalformedFileError:
    return MalformedFileError(f"{path} is damaged: {what} cannot be used.", _again(made_by))


def _again(made_by: str) -> str:
    return f"Put back the file that was written; or delete it and run `{made_by}` again."
