"""The result of the self-test as a short Markdown text (pure)."""

from __future__ import annotations

from harness.comparison.trials import excluded_rate
from harness.core.schemas import SelfTest, SelfTestRow
from harness.reporting.table import texts
from harness.reporting.units import ABSENT, duration
from harness.reporting.writers.markdown import table_text


def selftest_table(found: SelfTest) -> str:
    """Bias by duration, wrong verdicts and the rates that their number excludes; the conditions are above the table."""
    machine = found.machine
    bias = _table(["work", "reported", "bias", "allowed", "within"], [_bias(row) for row in found.rows])
    counted = _table(["work", "wrong verdicts", "trials", "excluded at 95%", "asked for"], _counted(found))
    kinds = "".join(f"\n- {kind.name}: {kind.what}." for kind in found.kinds)
    verdict = "All targets met." if found.passed else "A target was missed."
    return (
        f"# Self-test\n\n{verdict} {machine.cpu}, {machine.logical_cpus} CPUs, {found.rounds} rounds a side, "
        f"{found.created_at}; through plan → run → aggregate → compare.\n\n{bias}\n\n{counted}\n{kinds}\n\n"
        f"Targets: bias within 1% + 2 × timer overhead; {_target(found)}\n"
    )


def selftest_line(found: SelfTest | None, link: str) -> str:
    """The result of the self-test in one sentence, for a report."""
    if found is None:
        return "The self-test has not been run into this results folder: `make selftest` (some minutes)."
    worst = max(abs(row.reported_ns / row.nominal_ns - 1) for row in found.rows)
    alarms = [(found.false_alarms, found.equal_trials), *((one.false_alarms, one.equal_trials) for one in found.kinds)]
    excluded = max(excluded_rate(*pair) for pair in (*alarms, (found.missed, found.slowed_trials)))
    return (
        f"[Self-test]({link}) of {found.created_at} on {found.machine.cpu}: "
        f"{'all targets met' if found.passed else 'a target was missed'}; known work reported within {worst:.2%}, "
        f"{sum(wrong for wrong, _ in alarms)} of {sum(trials for _, trials in alarms)} false alarms, "
        f"{found.missed} of {found.slowed_trials} slow-downs of {found.slowdown - 1:.0%} missed: at 95% that excludes "
        f"rates above {excluded:.1%} of each."
    )


def _counted(found: SelfTest) -> list[list[str]]:
    """A line for each kind of work and of verdict."""
    alarm, miss = "equal work called FASTER or SLOWER", f"{found.slowdown - 1:.0%} slow-down not called SLOWER"
    asked = ABSENT if found.rate is None else f"{found.rate:.1%}"
    steady = "steady" if found.kinds else "spin"
    lines = [
        [steady, f"{alarm}, or not compared", *_share(found.false_alarms, found.equal_trials), asked],
        [steady, miss, *_share(found.missed, found.slowed_trials), asked],
    ]
    for kind in found.kinds:
        share, excluded = _share(kind.false_alarms, kind.equal_trials)
        refused = f" ({kind.refused} not compared)" if kind.refused else ""
        lines.append([kind.name, alarm, share + refused, excluded, asked])
        lines.append([kind.name, miss, f"{kind.missed} of {kind.slowed_trials}", ABSENT, "no"])
    return lines


def _share(wrong: int, trials: int) -> tuple[str, str]:
    return f"{wrong} of {trials}", f"above {excluded_rate(wrong, trials):.1%}"


def _target(found: SelfTest) -> str:
    if found.rate is None:
        return "at least 95% of the verdicts right."
    return (
        f"trials that exclude, at 95%, a rate of {found.rate:.1%} of wrong verdicts of each kind that is asked for "
        "(Clopper and Pearson, one-sided)."
    )


def _table(headers: list[str], lines: list[list[str]]) -> str:
    return table_text(texts([(header, "left") for header in headers], lines))


def _bias(row: SelfTestRow) -> list[str]:
    bias = row.reported_ns / row.nominal_ns - 1
    return [
        f"spin {duration(row.nominal_ns)}",
        duration(row.reported_ns),
        f"{bias:+.3%}",
        f"±{row.allowed_ns / row.nominal_ns:.3%}",
        "yes" if row.within else "no",
    ]
