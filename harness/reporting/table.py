"""A table as data: columns with header, unit and alignment, rows of anything, and the text around them (pure).

A document is a list of blocks: texts and tables. Writers convert both to a format. A column comes from a figure of
figures.py, or from a function in special cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Generic, Literal, TypeVar

from harness.core import units
from harness.core.schemas import Row
from harness.core.units import ABSENT, SECOND, TimeUnit
from harness.reporting.figures import Figure, Kind
from harness.reporting.ranking import setting_columns

Align = Literal["left", "right"]
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Column(Generic[Thing]):
    """A column. header: with the unit that all cells share. cell: Markdown of one row. align: words to the left."""

    header: str
    cell: Callable[[Thing], str]
    align: Align = "right"


@dataclass(frozen=True)
class Table(Generic[Thing]):
    """A table. conditions: Markdown above it. note: Markdown below it."""

    columns: Sequence[Column[Thing]]
    rows: Sequence[Thing]
    conditions: str = ""
    note: str = ""

    @property
    def headers(self) -> list[str]:
        """Headers of all columns, in order."""
        return [column.header for column in self.columns]

    @property
    def aligned(self) -> list[Align]:
        """Alignment of all columns, in order."""
        return [column.align for column in self.columns]

    def cells(self) -> list[list[str]]:
        """Text of each cell, row by row."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]


DocumentBlock = str | Table[Any]
"""A part of a document: a paragraph, list or heading in Markdown, or a table."""


def titled_blocks(title: str, *blocks: DocumentBlock | None, level: int = 2) -> list[DocumentBlock]:
    """A heading and its blocks; empty ones and None are left out."""
    return [f"{'#' * level} {title}", *(block for block in blocks if block)]


def word_column(header: str, cell: Callable[[Thing], str]) -> Column[Thing]:
    """A column of words, aligned to the left."""
    return Column(header, cell, "left")


def figure_column(figure: Figure[Thing], unit: TimeUnit = SECOND) -> Column[Thing]:
    """The column of a figure. unit: for times."""
    header, text = _FORMS.get(figure.kind, ("{label}", units.significant))
    show = figure.cell or (partial(units.in_unit, unit=unit) if figure.kind == "time" else text)
    return Column(header.format(label=figure.label, time=unit.name), lambda row: show(figure.number(row)))


_FORMS: Mapping[Kind, tuple[str, Callable[[float | None], str]]] = {
    "time": ("{label} {time}", units.significant),
    "bytes": ("{label} MiB", units.mib),
    "energy": ("J {label}", units.significant),
    "power": ("{label} W", units.whole_number),
    "share": ("{label}", units.percent),
    "count": ("{label}", units.whole_number),
}
"""Kind → header and text of a cell; for all others, the label and three significant digits."""


def case_columns(rows: Iterable[Row], with_setting: bool = True) -> list[Column[Row]]:
    """Columns that identify a row: backend, precision, batch; setting and sequence length where any row has one."""
    rows = list(rows)
    settings = setting_columns(rows) if with_setting else {}
    shown = [
        word_column("backend", lambda row: row.backend),
        word_column("precision", lambda row: row.precision),
        *(word_column(name, cell) for name, cell in settings.items()),
        Column[Row]("batch", lambda row: str(row.batch_size)),
    ]
    if any(row.sequence_length for row in rows):
        shown.append(Column("seq", lambda row: str(row.sequence_length or ABSENT)))
    return shown


def text_table(columns: Sequence[tuple[str, Align]], rows: Sequence[Sequence[str]]) -> Table[Sequence[str]]:
    """A table whose cells are already texts. columns: header and alignment of each."""
    made = [Column[Sequence[str]](header, itemgetter(place), align) for place, (header, align) in enumerate(columns)]
    return Table(made, rows)


def filled_columns(columns: Iterable[Column[Thing]], rows: Sequence[Thing]) -> list[Column[Thing]]:
    """The columns in which any row has a figure."""
    return [column for column in columns if any(column.cell(row) not in ("", ABSENT) for row in rows)]


def explained_table(
    columns: Iterable[Column[Thing]], rows: Sequence[Thing], explanations: Mapping[str, str]
) -> Table[Thing]:
    """The filled columns, with the explanations of these as the note. explanations: as of explained()."""
    shown = filled_columns(columns, rows)
    return Table(shown, rows, note=explained(shown, explanations))


def explained(columns: Iterable[Column[Any]], explanations: Mapping[str, str]) -> str:
    """The explanations of columns that are shown. explanations: by the beginning of the header, in order."""
    headers = [column.header for column in columns]
    return " ".join(
        text for beginning, text in explanations.items() if any(header.startswith(beginning) for header in headers)
    )
