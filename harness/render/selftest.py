"""The self-test's outcome as a short markdown text (pure)."""

from __future__ import annotations

from tabulate import tabulate

from harness.core.schemas import SelfTest, SelfTestRow
from harness.render.units import duration


def selftest_table(found: SelfTest) -> str:
    """Bias by duration, false alarms and missed slow-downs, with the conditions above."""
    machine = found.machine
    bias = tabulate(
        [_bias(row) for row in found.rows],
        headers=["work", "reported", "bias", "allowed", "within"],
        tablefmt="github",
        disable_numparse=True,
    )
    verdicts = tabulate(
        [
            ["equal work called FASTER or SLOWER", f"{found.false_alarms} of {found.equal_trials}"],
            [f"{found.slowdown - 1:.0%} slow-down not called SLOWER", f"{found.missed} of {found.slowed_trials}"],
        ],
        headers=["wrong verdicts", "trials"],
        tablefmt="github",
        disable_numparse=True,
    )
    verdict = "All targets met." if found.passed else "A target was missed."
    return (
        f"# Self-test\n\n{verdict} {machine.cpu}, {machine.logical_cpus} CPUs, {found.rounds} rounds a side, "
        f"{found.created_at}; through plan → run → aggregate → compare.\n\n{bias}\n\n{verdicts}\n\n"
        "Targets: bias within 1% + 2 × timer overhead; at least 95% of the verdicts right.\n"
    )


def selftest_line(found: SelfTest | None, link: str) -> str:
    """What a report says of the self-test, in a sentence."""
    if found is None:
        return "The self-test has not been run into this results folder: `make selftest` (some minutes)."
    worst = max(abs(row.reported_ns / row.nominal_ns - 1) for row in found.rows)
    return (
        f"[Self-test]({link}) of {found.created_at} on {found.machine.cpu}: "
        f"{'all targets met' if found.passed else 'a target was missed'}; known work reported within {worst:.2%}, "
        f"{found.false_alarms} of {found.equal_trials} false alarms, "
        f"{found.missed} of {found.slowed_trials} slow-downs of {found.slowdown - 1:.0%} missed."
    )


def _bias(row: SelfTestRow) -> list[str]:
    bias = row.reported_ns / row.nominal_ns - 1
    return [
        f"spin {duration(row.nominal_ns)}",
        duration(row.reported_ns),
        f"{bias:+.3%}",
        f"±{row.allowed_ns / row.nominal_ns:.3%}",
        "yes" if row.within else "no",
    ]
