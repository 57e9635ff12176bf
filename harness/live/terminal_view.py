"""Live progress of a run on a terminal, and as plain lines for a log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from rich.console import Group, OverflowMethod, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.core import cli
from harness.core.text import one_line
from harness.core.units import ABSENT, MILLISECOND, significant
from harness.live.progress import (
    CaseProgress,
    ModelExport,
    Progress,
    RowState,
    RunState,
    Turning,
)

NO_PLAN = "There is no plan here yet: `make plan` and `make bench` write one."
LEGEND = (
    "ms: median of process medians so far, a batch (generate: a step); range: lowest to highest of them.",
    "Model only, one request at a time, unless the column way names another. The report has the grades.",
)
_STATES: dict[RunState, str] = {
    "waiting": "waiting for a run to begin: `{command}`",
    "exporting": "exporting models",
    "running": "running",
    "stopped": "stopped, and some turns have no result: `{command}` continues",
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


def view(progress: Progress | None, height: int | None = None) -> RenderableType:
    """The whole progress. height: lines of the terminal; None: every row is shown with all of its remarks."""
    if progress is None:
        return Text(cli.typed(NO_PLAN))
    cut: OverflowMethod = "fold" if height is None else "ellipsis"
    say = partial(Text, no_wrap=height is not None, overflow=cut)
    parts: list[RenderableType] = [say(headline(progress), style="bold")]
    if progress.planned:
        parts += [_bar(progress), say(counts_line(progress))]
    at_work = (*map(export_line, progress.exporting), *map(running_turn, progress.turning))
    parts += [say(line) for line in (*at_work, machine_line(progress), *map(one_line, progress.notes)) if line]
    parts += [say(line, style="dim") for line in (one_line(progress.conditions), *LEGEND) if line]
    rows = progress.rows if height is None else visible_page(progress.rows, max(3, height - len(parts) - _BELOW))
    parts.append(_table(rows, cut))
    if len(rows) < len(progress.rows):
        parts.append(say(f"{len(rows)} of {len(progress.rows)} cases; `--once` prints all.", style="dim"))
    return Group(*parts)


def visible_page(rows: Sequence[CaseProgress], room: int) -> Sequence[CaseProgress]:
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
    current = {(case.case_id, case.round, case.lives) for case in before.turning} if before else set()
    lines += [_case_in_words(case) for case in after.turning if (case.case_id, case.round, case.lives) not in current]
    begun = {(export.model, export.lives) for export in before.exporting} if before else set()
    lines += [_export(export) for export in after.exporting if (export.model, export.lives) not in begun]
    noted = set(before.notes) if before else set()
    lines += [one_line(note) for note in after.notes if note not in noted]
    same = before is not None and (before.plan_id, before.state) == (after.plan_id, after.state)
    if same:
        return lines
    # A state that begins has its headline before the other lines, a state that ends after them.
    begins = after.state in ("waiting", "exporting", "running")
    return [headline(after), *lines] if begins else [*lines, headline(after)]


def headline(progress: Progress) -> str:
    """Plan, configuration, device and state."""
    sentence = _STATES[progress.state].format(command=progress.command)
    return cli.typed(f"Plan {progress.plan_id} · {one_line(progress.config)} · {progress.device} · {sentence}")


def counts_line(progress: Progress) -> str:
    """`41 of 87 turns · 1 failed · 3 of 12 of this run · elapsed 0:03:20 · left 0:04:10`."""
    parts = [f"{progress.done} of {progress.planned} turns"]
    parts += [f"{progress.failed} failed"] if progress.failed else []
    if progress.run_turns is not None and progress.run_turns != progress.planned:
        parts.append(f"{progress.run_done} of {progress.run_turns} of this run")
    if progress.state == "running":
        parts += [f"elapsed {_clock(progress.elapsed_s)}", f"left about {_clock(progress.left_s)}"]
    return " · ".join(parts)


def running_turn(case: Turning) -> str:
    """The turn that is measured now, or that was measured when its run ended."""
    return _case_in_words(case) if case.lives is False else f"{_case_in_words(case)}  since {_clock(case.seconds)}"


def export_line(export: ModelExport) -> str:
    """`exporting: resnet50 (2 of 3 models)  since 0:00:12`."""
    return _export(export) if export.lives is False else f"{_export(export)}  since {_clock(export.seconds)}"


def machine_line(progress: Progress) -> str:
    """`GPU at the end of the last turn: 1,980 MHz · 61 °C · 310 W`; empty where the machine reports none."""
    if (seen := progress.seen) is None:
        return ""
    readings = ((seen.mhz, "MHz"), (seen.temperature_c, "°C"), (seen.power_w, "W"))
    parts = [f"{value:,.0f} {unit}" for value, unit in readings if value is not None]
    parts += [f"held back: {', '.join(seen.held_back)}"] if seen.held_back else []
    return f"{seen.of} at the end of the last turn: {' · '.join(parts)}" if parts else ""


def _case_in_words(case: Turning) -> str:
    place = f"round {case.round}  {one_line(case.case_id)}" if case.round else f"load  {one_line(case.case_id)}"
    if case.lives is False:
        return f"gone: the run that measured {place} ended without a word"
    return f"now: {place}" + ("  (in another container or machine: it may be gone)" if case.lives is None else "")


def _export(export: ModelExport) -> str:
    model = f"{one_line(export.model)} ({export.number} of {export.models} models)"
    if export.lives is False:
        return f"gone: the export of {model} ended without a word"
    return f"exporting: {model}" + (
        "  (in another container or machine: it may be gone)" if export.lives is None else ""
    )


def _bar(progress: Progress) -> Table:
    line = Table.grid()  # a bar alone does not end its line
    line.add_row(ProgressBar(total=progress.planned, completed=progress.done, width=60))
    return line


def _table(rows: Sequence[CaseProgress], cut: OverflowMethod) -> Table:
    lines = [_cells(row) for row in rows]
    clipped = partial(Text, no_wrap=True, overflow="ellipsis")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    shown = [place for place in range(len(_COLUMNS)) if any(cells[place] for cells in lines)]
    for place in shown:
        name = _COLUMNS[place]
        # On a narrow terminal only columns that may wrap shrink: long names of models, and remarks.
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=place > 0)
    table.add_column("state")
    for row, cells in zip(rows, lines, strict=True):
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
    state = Text(row.state, no_wrap=cut == "ellipsis", overflow=cut)
    remarks = "".join(f"; {one_line(remark)}" for remark in row.remarks)
    return state.append(remarks, style="" if row.state in _SAY_ENOUGH else "yellow")


def _clock(seconds: float | None) -> str:
    return ABSENT if seconds is None else str(timedelta(seconds=round(seconds)))
