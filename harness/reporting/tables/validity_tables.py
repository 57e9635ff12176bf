"""The validity of rows: flags with remedies, checks that apply, and why rows have no figures (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.core import units
from harness.core.schemas import Check, Flag, Row, Summary
from harness.core.units import ABSENT
from harness.reporting import ranking
from harness.reporting.csv_identity import Line, case_line
from harness.reporting.ranking import row_name
from harness.reporting.table import Align, Column, Table, text_table, word_column
from harness.reporting.writers.markdown import escape

MAX_LISTED = 20
"""Cases listed individually below a remedy; summary.json has all of them."""


def row_label(row: Row) -> str:
    """A row in words, without its model: `openvino bf16, batch 4, sequence 128`."""
    sequence = f", sequence {row.sequence_length}" if row.sequence_length else ""
    return f"{row_name(row)}, batch {row.batch_size}{sequence}"


MEANINGS: Mapping[str, str] = {
    "ABOVE_ROOF": "faster than the measured limit of the device: work was skipped, or done in a lower precision",
    "AFFINITY_CHANGED": "the CPUs, the CPU quota or the priority that it has changed while it ran",
    "BELOW_TIMER": "so short that reading the clock is more than 1% of it",
    "NOT_CONVERGED": "a process stopped before its own interval was as narrow as asked",
    "CLOCK_DRIFT": "the mean clock was not the same in all rounds",
    "COMPILE_CACHED": "every process found a compile cache: a first start takes longer than shown",
    "CPU_SHARED": "other processes used CPUs that this row needed",
    "GPU_SHARED": "other processes computed on the GPU, or held its memory",
    "CPU_QUOTA": "the cgroup's CPU quota held its processes back",
    "DAMAGED_FILE": "a record cannot be read and was left out",
    "DEVICE_BELOW_TIMER": "so short on the device that the event clock is more than 1% of it",
    "DEVICE_OVER_HOST": "the device worked longer than the host waited: not all work was waited for",
    "DRIFT": "the rounds have a trend that scatter does not explain",
    "EAGER_FALLBACK": "it ran eagerly where its name says compiled",
    "ENQUEUE_BOUND": "submitting takes most of the time: the host is the limit, not the device",
    "HW_SLOWDOWN": "the GPU's hardware lowered its clock",
    "INPUTS_CHANGED": "something wrote into its inputs, so that later passes got others",
    "LAZY_OUTPUTS": "fetching the outputs takes a noticeable part of the time, and may compute",
    "LONG_ITERATIONS": "some iterations took many times as long as the median",
    "MAJOR_FAULTS": "parts of the process were read from disk while it was timed",
    "MEASURED_APART": "it was measured an hour or more before or after the row that it is compared with",
    "NONFINITE": "outputs contain NaN or infinite values",
    "NONMONOTONE": "a larger batch takes less time",
    "NOT_WARMED_UP": "timing began before the warm-up was steady",
    "OFF_STREAM": "the stream that was timed shows less work than the host waited for",
    "ONE_PROCESS": "one process: how far another would differ is not known",
    "ON_PURPOSE": "made to test the harness",
    "OTHER_THREADS": "it ran with another number of threads than it was given",
    "OVERSUBSCRIBED": "it has more threads than CPUs",
    "PARITY_FAIL": "outputs differ from the reference by more than its precision explains",
    "PARITY_UNCHECKED": "no comparison with the reference shows that its outputs are right",
    "PLACEMENT": "another device or precision ran than the label says",
    "POWER_CAP": "the power limit set the GPU's clock",
    "REPEATS_FASTER": "timed passes, or inputs that it had seen before, were faster than checked passes and new inputs",
    "ROUNDS_MISSING": "it has fewer rounds than planned",
    "SAMPLES_MISMATCH": "the samples do not add up to the time that passed, by its own clock or the monitor's",
    "STARVED": "its threads waited for a CPU",
    "STOPPED": "it was stopped, paused or suspended",
    "STEAL": "the hypervisor gave this guest's CPUs to others",
    "THERMAL": "heat lowered the clock",
    "THREADS": "it used more CPU time than its threads can, or too little to have done the work",
    "TRANSFER_BOUND": "copies over the link take most of the time",
    "TWO_SPEEDS": "its processes come at two speeds",
    "UNCERTAIN": "processes differ so much that it is not ranked",
    "UNCHECKED": "a check that applies was not made",
    "UNWATCHED": "there is no record of what else the machine did",
    "WIDE_INTERVAL": "processes differ more than grade A allows",
}
"""The meaning of each flag."""


def flags_table(rows: Sequence[Row]) -> Table[Sequence[str]] | None:
    """Flags of one table: the meaning, the number of rows and the remedy, then the numbers behind each; None without
    flags. Flags that do not lower the grade are called notes."""
    groups: dict[tuple[str, str], dict[str, list[tuple[Row, Flag]]]] = {}
    seen: dict[str, list[tuple[Row, Flag]]] = {}
    for row in rows:
        for flag in row.flags:
            seen.setdefault(flag.name, []).append((row, flag))
            groups.setdefault((flag.name, flag.remedy), {}).setdefault(row.case_id, []).append((row, flag))
    ordered = sorted(groups.items())
    if not ordered:
        return None
    lines = [
        [f"{name} (note)" if _is_note(flagged) else name, str(len(flagged)), MEANINGS.get(name, ABSENT), remedy]
        for (name, remedy), flagged in ordered
    ]
    note = "\n".join(_numbers(name, flagged) for name, flagged in sorted(seen.items()))
    return replace(text_table(_HEADERS, lines), note=note)


def _is_note(by_remedy: Mapping[str, Sequence[tuple[Row, Flag]]]) -> bool:
    return all(flag.is_note for pairs in by_remedy.values() for _, flag in pairs)


_HEADERS: Sequence[tuple[str, Align]] = (
    ("flag", "left"),
    ("rows", "right"),
    ("meaning", "left"),
    ("what to do", "left"),
)


def _numbers(name: str, flagged: Sequence[tuple[Row, Flag]]) -> str:
    lines = [f"- **{name}**", *(f"  - {row_label(row)}: {escape(flag.detail)}" for row, flag in flagged[:MAX_LISTED])]
    if len(flagged) > MAX_LISTED:
        lines.append(f"  - … and {len(flagged) - MAX_LISTED:,} more in summary.json")
    return "\n".join(lines)


def flag_lines(summary: Summary) -> list[Line]:
    """A line for each flag of each row: why the row is not grade A, and the remedy."""
    return [
        case_line(summary, row, {"flag": flag.name, "detail": flag.detail, "remedy": flag.remedy})
        for _, rows in ranking.by_table(summary.rows)
        for row in rows
        for flag in row.flags
    ]


Made = tuple[str, Sequence[Check]]
"""A check, and its outcome in each row."""


def checks_table(rows: Sequence[Row]) -> Table[Made] | None:
    """The checks that apply to the rows of one table: the number of rows in which each was made in all rounds, in some
    and in none, and why not; None where no check is recorded."""
    checks: dict[str, list[Check]] = {}
    for row in rows:
        for name, check in row.checks.items():
            checks.setdefault(name, []).append(check)
    return Table(_COLUMNS, sorted(checks.items())) if checks else None


def _rows_in_all_rounds(made: Made) -> int:
    return sum(check.rounds >= check.of for check in made[1])


def _rows_in_no_round(made: Made) -> int:
    return sum(check.rounds == 0 < check.of for check in made[1])


def _rounds(made: Made) -> str:
    return f"{sum(check.rounds for check in made[1]):,} of {sum(check.of for check in made[1]):,}"


_COLUMNS: Sequence[Column[Made]] = (
    word_column("check", lambda made: made[0]),
    Column("rows", lambda made: str(len(made[1]))),
    Column("in all rounds", lambda made: str(_rows_in_all_rounds(made))),
    Column("in some", lambda made: str(len(made[1]) - _rows_in_all_rounds(made) - _rows_in_no_round(made))),
    Column("in none", lambda made: str(_rows_in_no_round(made))),
    Column("rounds", _rounds),
    word_column(
        "why not in the others",
        lambda made: "; ".join(dict.fromkeys(check.missing for check in made[1] if check.missing)) or ABSENT,
    ),
)


def check_lines(summary: Summary) -> list[Line]:
    """A line for each check that applies to a row: in how many rounds it was made, and why not in the others."""
    return [
        case_line(summary, row, {"check": name, "rounds": check.rounds, "of": check.of, "missing": check.missing})
        for _, rows in ranking.by_table(summary.rows)
        for row in rows
        for name, check in row.checks.items()
    ]


def unmeasured_table(rows: Sequence[Row]) -> Table[Sequence[str]] | None:
    """Skipped, failed and missing rows with reason and hint; rows with the same reason and hint are joined."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.status != "measured":
            groups.setdefault((row.status, row.reason or "", row.hint or ""), []).append(row)
    order = {"failed": 0, "missing": 1, "skipped": 2}
    lines = [
        [status, _cases(rows), reason, hint or units.ABSENT]
        for (status, reason, hint), rows in sorted(groups.items(), key=lambda item: order[item[0][0]])
    ]
    headers = ("status", "case", "reason", "what to do")
    return text_table([(header, "left") for header in headers], lines) if lines else None


def _cases(rows: Sequence[Row]) -> str:
    if len(rows) == 1:
        return f"`{rows[0].case_id}`"
    backends = sorted({f"{row.backend} {row.precision}" for row in rows})
    models = sorted({row.model for row in rows})
    who = ", ".join(backends) if len(backends) <= 3 else units.count(len(backends), "backend")
    return f"{who}: {units.count(len(rows), 'case')} of {', '.join(models[:3])}{', …' if len(models) > 3 else ''}"


def unmeasured_lines(summary: Summary) -> list[Line]:
    """A line for each row that was skipped, failed or is missing."""
    rows = [row for row in summary.rows if row.status != "measured"]
    return [case_line(summary, row, {"status": row.status, "reason": row.reason, "hint": row.hint}) for row in rows]
