"""Live progress of a run on a terminal, and as plain lines for a log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from rich.console import Group, OverflowMethod, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.core.text import one_line
from harness.live.progress import (
    CaseProgress,
    ModelExport,
    Progress,
    RowState,
    State,
    Turning,
)
from harness.reporting.units import ABSENT, MILLISECOND, significant

NO_PLAN = "There is no plan here yet: `make plan` and `make bench` write one."
LEGEND = (
    "ms: median of process medians so far, a batch (generate: a step); range: lowest to highest of them.",
    "Model only, one request at a time, unless the column way names another. The report has the grades.",
)
_STATES: dict[State, str] = {
    "waiting": "waiting for a run to begin: `{command}`",
    "exporting": "exporting models",
    "running": "running",
    "stopped": "stopped, and some turns have no result: `{command}` goes on from there",
    "complete": "complete: `make aggregate report`",
}
_STYLES: dict[RowState, str] = {
    "skipped": "dim",
    "waiting": "dim",
    "running": "bold cyan",
    "partly": "",
    "done": "green",
    "failed": "bold red",
    "beaten": "dim",
}
_SAY_ENOUGH: frozenset[RowState] = frozenset({"skipped", "failed", "beaten"})
_BELOW = 3
"""Lines of the table header, of the number of cases shown, and of the cursor."""
_COLUMNS = ("model", "backend", "precision", "batch", "seq", "way", "rounds", "ms", "range")
_RIGHT = frozenset({"batch", "seq", "rounds", "ms", "range"})


def view(found: Progress | None, height: int | None = None) -> RenderableType:
    """The whole progress. height: lines of the terminal; None: every row is shown with all of its remarks."""
    if found is None:
        return Text(NO_PLAN)
    cut: OverflowMethod = "fold" if height is None else "ellipsis"
    say = partial(Text, no_wrap=height is not None, overflow=cut)
    parts: list[RenderableType] = [say(headline(found), style="bold")]
    if found.planned:
        parts += [_bar(found), say(counts(found))]
    at_work = (*map(exporting, found.exporting), *map(turning, found.turning))
    parts += [say(line) for line in (*at_work, machine(found), *map(one_line, found.notes)) if line]
    parts += [say(line, style="dim") for line in (one_line(found.conditions), *LEGEND) if line]
    rows = found.rows if height is None else around(found.rows, max(3, height - len(parts) - _BELOW))
    parts.append(_table(rows, cut))
    if len(rows) < len(found.rows):
        parts.append(say(f"{len(rows)} of {len(found.rows)} cases; `--once` prints all.", style="dim"))
    return Group(*parts)


def around(rows: Sequence[CaseProgress], room: int) -> Sequence[CaseProgress]:
    """The page of rows with the running case. It does not move while cases of the page take turns."""
    place = next((index for index, row in enumerate(rows) if row.state == "running"), 0)
    first = max(0, min(place // room * room, len(rows) - room))
    return rows[first : first + room]


def changes(before: Progress | None, after: Progress) -> list[str]:
    """A line for each change since the look `before`."""
    lines = []
    known = {row.case_id: row for row in before.rows} if before and before.plan_id == after.plan_id else {}
    for row in after.rows:
        old = known.get(row.case_id)
        if (
            old is not row
            and row.done
            and (old is None or (old.done, old.median_ns, old.remarks) != (row.done, row.median_ns, row.remarks))
        ):
            lines.append(f"[{after.done}/{after.planned}] {_one_line(row)}")
    current = {(one.case_id, one.round, one.lives) for one in before.turning} if before else set()
    lines += [_what(one) for one in after.turning if (one.case_id, one.round, one.lives) not in current]
    begun = {(one.model, one.lives) for one in before.exporting} if before else set()
    lines += [_export(one) for one in after.exporting if (one.model, one.lives) not in begun]
    noted = set(before.notes) if before else set()
    lines += [one_line(note) for note in after.notes if note not in noted]
    same = before is not None and (before.plan_id, before.state) == (after.plan_id, after.state)
    if same:
        return lines
    # A state that begins has its headline before the other lines, a state that ends after them.
    begins = after.state in ("waiting", "exporting", "running")
    return [headline(after), *lines] if begins else [*lines, headline(after)]


def headline(found: Progress) -> str:
    """Plan, configuration, device and state."""
    said = _STATES[found.state].format(command=found.command)
    return f"Plan {found.plan_id} · {one_line(found.config)} · {found.device} · {said}"


def counts(found: Progress) -> str:
    """`41 of 87 turns · 1 failed · 3 of 12 of this run · elapsed 0:03:20 · left 0:04:10`."""
    parts = [f"{found.done} of {found.planned} turns"]
    parts += [f"{found.failed} failed"] if found.failed else []
    if found.run_turns is not None and found.run_turns != found.planned:
        parts.append(f"{found.run_done} of {found.run_turns} of this run")
    if found.state == "running":
        parts += [f"elapsed {_clock(found.elapsed_s)}", f"left about {_clock(found.left_s)}"]
    return " · ".join(parts)


def turning(one: Turning) -> str:
    """The turn that is measured now, or that was measured when its run ended."""
    return _what(one) if one.lives is False else f"{_what(one)}  since {_clock(one.seconds)}"


def exporting(one: ModelExport) -> str:
    """`exporting: resnet50 (2 of 3 models)  since 0:00:12`."""
    return _export(one) if one.lives is False else f"{_export(one)}  since {_clock(one.seconds)}"


def machine(found: Progress) -> str:
    """`GPU at the end of the last turn: 1,980 MHz · 61 °C · 310 W`; empty where the machine reports none."""
    if (seen := found.seen) is None:
        return ""
    readings = ((seen.mhz, "MHz"), (seen.temperature_c, "°C"), (seen.power_w, "W"))
    parts = [f"{value:,.0f} {unit}" for value, unit in readings if value is not None]
    parts += [f"held back: {', '.join(seen.held_back)}"] if seen.held_back else []
    return f"{seen.of} at the end of the last turn: {' · '.join(parts)}" if parts else ""


def _what(one: Turning) -> str:
    what = f"round {one.round}  {one_line(one.case_id)}" if one.round else f"load  {one_line(one.case_id)}"
    if one.lives is False:
        return f"gone: the run that measured {what} ended without a word"
    return f"now: {what}" + ("  (in another container or machine: it may be gone)" if one.lives is None else "")


def _export(one: ModelExport) -> str:
    what = f"{one_line(one.model)} ({one.number} of {one.models} models)"
    if one.lives is False:
        return f"gone: the export of {what} ended without a word"
    return f"exporting: {what}" + ("  (in another container or machine: it may be gone)" if one.lives is None else "")


def _bar(found: Progress) -> Table:
    line = Table.grid()  # a bar alone does not end its line
    line.add_row(ProgressBar(total=found.planned, completed=found.done, width=60))
    return line


def _table(rows: Sequence[CaseProgress], cut: OverflowMethod) -> Table:
    said = [_cells(row) for row in rows]
    clipped = partial(Text, no_wrap=True, overflow="ellipsis")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    shown = [place for place in range(len(_COLUMNS)) if any(cells[place] for cells in said)]
    for place in shown:
        name = _COLUMNS[place]
        # On a narrow terminal only columns that may wrap shrink: long names of models, and remarks.
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=place > 0)
    table.add_column("state")
    for row, cells in zip(rows, said, strict=True):
        table.add_row(*(clipped(cells[place]) for place in shown), _remarks(row, cut), style=_STYLES[row.state])
    return table


def _cells(row: CaseProgress) -> tuple[str, ...]:
    """In the order of the columns; empty where a column has no value."""
    names = map(one_line, (row.model, row.backend, row.precision))
    shape = (str(row.batch_size), str(row.sequence_length or ""), one_line(row.way))
    return (*names, *shape, _rounds(row), *_times(row))


def _one_line(row: CaseProgress) -> str:
    median, spread = _times(row)
    times = f": {median} ms, range {spread}" if row.median_ns is not None else ": no time"
    remarks = "".join(f"; {one_line(remark)}" for remark in row.remarks)
    return f"{one_line(row.case_id)}  {row.turn}s {_rounds(row)}{times if row.turn == 'round' else ''}{remarks}"


def _rounds(row: CaseProgress) -> str:
    return f"{row.done}/{row.planned}" if row.planned else ABSENT


def _times(row: CaseProgress) -> tuple[str, str]:
    """Median in ms, and the range over several processes in percent of it."""
    if row.median_ns is None or row.low_ns is None or row.high_ns is None:
        return ABSENT, ABSENT
    spread = f"{significant(100 * (row.high_ns - row.low_ns) / row.median_ns)}%" if row.measured > 1 else ABSENT
    return significant(row.median_ns / MILLISECOND.ns), spread


def _remarks(row: CaseProgress, cut: OverflowMethod) -> Text:
    found = Text(row.state, no_wrap=cut == "ellipsis", overflow=cut)
    said = "".join(f"; {one_line(remark)}" for remark in row.remarks)
    return found.append(said, style="" if row.state in _SAY_ENOUGH else "yellow")


def _clock(seconds: float | None) -> str:
    return ABSENT if seconds is None else str(timedelta(seconds=round(seconds)))
