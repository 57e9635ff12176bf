"""The error of the harness: its overhead on backends that compute nothing, and the self-test on known work (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from harness.aggregation.flags import is_calibration
from harness.comparison.selftest_evidence import excluded_rate
from harness.core import units
from harness.core.schemas import Row, SelfTest, SelfTestRow, Summary
from harness.core.units import ABSENT, duration
from harness.reporting.csv_identity import Line, case_line
from harness.reporting.figures import CSV_UNITS, SPEED, columns
from harness.reporting.table import Column, Table, text_table, word_column
from harness.reporting.writers.markdown import table_text

Medians = tuple[str, Sequence[float]]
"""A backend, and its medians in ns."""


def calibration_table(rows: Sequence[Row]) -> Table[Medians] | None:
    """Time of an inference that computes nothing, by backend; None without such rows."""
    medians: dict[str, list[float]] = {}
    for row in rows:
        if row.latency_ns:
            medians.setdefault(row.backend, []).append(row.latency_ns.median)
    return Table(_COLUMNS, list(medians.items())) if medians else None


_COLUMNS: Sequence[Column[Medians]] = (
    word_column("backend", lambda line: line[0]),
    Column("cases", lambda line: str(len(line[1]))),
    Column("lowest ns", lambda line: units.significant(min(line[1]))),
    Column("median ns", lambda line: units.significant(median(line[1]))),
    Column("highest ns", lambda line: units.significant(max(line[1]))),
)


def calibration_lines(summary: Summary) -> list[Line]:
    """A line for each case that computes nothing: the harness overhead."""
    rows = [row for row in summary.rows if row.status == "measured" and is_calibration(row)]
    figures = tuple(figure for figure in SPEED if figure.key.startswith("latency_"))
    return [case_line(summary, row, columns(figures, row, CSV_UNITS)) for row in rows]


def selftest_table(test: SelfTest) -> str:
    """Bias by duration, wrong verdicts and the rates that their number excludes; the conditions are above the table."""
    machine = test.machine
    bias = _table(["work", "reported", "bias", "allowed", "within"], [_bias(row) for row in test.rows])
    counted = _table(["work", "wrong verdicts", "trials", "excluded at 95%", "asked for"], _verdict_lines(test))
    kinds = "".join(f"\n- {kind.name}: {kind.what}." for kind in test.kinds)
    verdict = "All targets met." if test.passed else "A target was missed."
    return (
        f"# Self-test\n\n{verdict} {machine.cpu}, {machine.logical_cpus} CPUs, {test.rounds} rounds a side, "
        f"{test.created_at}; through plan → run → aggregate → compare.\n\n{bias}\n\n{counted}\n{kinds}\n\n"
        f"Targets: bias within 1% + 2 × timer overhead; {_target(test)}\n"
    )


def selftest_line(test: SelfTest | None, link: str) -> str:
    """The result of the self-test in one sentence, for a report."""
    if test is None:
        return "The self-test has not been run into this results folder: `make selftest` (some minutes)."
    worst = max(abs(row.reported_ns / row.nominal_ns - 1) for row in test.rows)
    alarms = [(test.false_alarms, test.equal_trials), *((kind.false_alarms, kind.equal_trials) for kind in test.kinds)]
    excluded = max(excluded_rate(*pair) for pair in (*alarms, (test.missed, test.slowed_trials)))
    return (
        f"[Self-test]({link}) of {test.created_at} on {test.machine.cpu}: "
        f"{'all targets met' if test.passed else 'a target was missed'}; known work reported within {worst:.2%}, "
        f"{sum(wrong for wrong, _ in alarms)} of {sum(trials for _, trials in alarms)} false alarms, "
        f"{test.missed} of {test.slowed_trials} slow-downs of {test.slowdown - 1:.0%} missed: at 95% that excludes "
        f"rates above {excluded:.1%} of each."
    )


def _verdict_lines(test: SelfTest) -> list[list[str]]:
    """A line for each kind of work and of verdict."""
    alarm, miss = "equal work called FASTER or SLOWER", f"{test.slowdown - 1:.0%} slow-down not called SLOWER"
    asked = ABSENT if test.rate is None else f"{test.rate:.1%}"
    steady = "steady" if test.kinds else "spin"
    lines = [
        [steady, f"{alarm}, or not compared", *_share(test.false_alarms, test.equal_trials), asked],
        [steady, miss, *_share(test.missed, test.slowed_trials), asked],
    ]
    for kind in test.kinds:
        share, excluded = _share(kind.false_alarms, kind.equal_trials)
        refused = f" ({kind.refused} not compared)" if kind.refused else ""
        lines.append([kind.name, alarm, share + refused, excluded, asked])
        lines.append([kind.name, miss, f"{kind.missed} of {kind.slowed_trials}", ABSENT, "no"])
    return lines


def _share(wrong: int, trials: int) -> tuple[str, str]:
    return f"{wrong} of {trials}", f"above {excluded_rate(wrong, trials):.1%}"


def _target(test: SelfTest) -> str:
    if test.rate is None:
        return "at least 95% of the verdicts right."
    return (
        f"trials that exclude, at 95%, a rate of {test.rate:.1%} of wrong verdicts of each kind that is asked for "
        "(Clopper and Pearson, one-sided)."
    )


def _table(headers: list[str], lines: list[list[str]]) -> str:
    return table_text(text_table([(header, "left") for header in headers], lines))


def _bias(row: SelfTestRow) -> list[str]:
    bias = row.reported_ns / row.nominal_ns - 1
    return [
        f"spin {duration(row.nominal_ns)}",
        duration(row.reported_ns),
        f"{bias:+.3%}",
        f"±{row.allowed_ns / row.nominal_ns:.3%}",
        "yes" if row.within else "no",
    ]
