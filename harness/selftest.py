"""Test the harness on work of known duration, through the whole path: plan → run → aggregate → compare.

Each trial measures the same work twice (A and B: no row may be called slower or faster) and once more with every
inference stretched by 5% (it must be called SLOWER). The same is done with work whose processes differ: there too, no
row may be called slower or faster; missed slow-downs are counted, but do not fail the test.

The test passes where each rate of wrong verdicts is below the requested rate, at 95% confidence. The observed rates are
not enough: a harness that is wrong in 10% of its verdicts often has 20 of 21 right by chance.

reads   configs/selftest.yaml
writes  results/selftest.json, results/selftest.md, and each trial's results below results/selftest/
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import pipeline
from harness.backends.calibration.slowdown import VARIABLE as SLOWDOWN_VARIABLE
from harness.comparison import selftest_evidence
from harness.core import cli, file_sums, store
from harness.core.errors import CasesFailedError, SelfTestError, UsageError
from harness.core.host import environment
from harness.core.layout import Results
from harness.core.schemas import ComparedRow, Comparison, Plan, SelfTest, SelfTestKind, Summary
from harness.core.timestamps import utc_now
from harness.core.units import count
from harness.planning.config import find_configuration, parse_share, read_config
from harness.planning.matrix import make_plan
from harness.planning.run_time import duration_in_words
from harness.reporting.tables.harness_error_tables import selftest_table
from harness.reporting.writers.markdown import document_text
from harness.zoo.families import known_duration

SLOWDOWN = 1.05

_START_S = 0.18
"""Seconds for the fork and the record of a process that loads nothing, and its share of the stages' start: 315
processes in 21 passes took 388 s on two EPYC vCPUs, 57 s more than their loops."""


def stage(arguments: Sequence[str]) -> None:
    """Run the trials, count, write, and fail where a target is missed."""
    parser = cli.parser("harness.selftest", __doc__)
    parser.add_argument(
        "--rate", type=parse_share, help="rate of wrong verdicts to exclude at 95%%: 10%% (default) or 5%%"
    )
    parser.add_argument(
        "--trials", type=int, help="trials of each duration; with more than the rate needs, some verdicts may be wrong"
    )
    parser.add_argument(
        "--config", type=Path, default=Path("configs/selftest.yaml"), help="durations (configs/selftest.yaml)"
    )
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    config = read_config(find_configuration(options.config))
    plan = make_plan(config, str(options.config), "")
    number, rate = trials_and_rate(options.trials, options.rate, durations(plan))
    results, findings = Results(options.results), Findings()
    cli.say(announcement(plan, number, rate))
    for trial in range(1, number + 1):
        a, b, slow = (Results(results.selftest_trials / f"{trial}-{name}") for name in ("a", "b", "slow"))
        for place, extra in ((a, {}), (b, {}), (slow, {SLOWDOWN_VARIABLE: f"spin:{SLOWDOWN}"})):
            _measure(place, options.config, options.models_dir, {known_duration.VARIABLE: place.root.name, **extra})
        findings.summaries += [store.load(place.summary, Summary, "make selftest") for place in (a, b)]
        equal, slowed = _compare(a, b), _compare(a, slow)
        findings.equal += equal
        findings.slowed += slowed
        cli.say(f"trial {trial} of {number}: {_verdicts(equal)} | 5% slower: {_verdicts(slowed)}")
    judged = judge(plan, findings, rate)
    store.save(results.selftest, judged)
    table = document_text(cli.typed(selftest_table(judged))).encode()
    file_sums.save(results, "selftest", {results.selftest_table: table})
    cli.say(selftest_table(judged))
    if not judged.passed:
        raise SelfTestError(
            "The harness missed a target on this machine.",
            "Close other programs and try again. Do not trust numbers measured here now.",
        )


@dataclass
class Findings:
    """Results of the trials."""

    summaries: list[Summary] = field(default_factory=list)
    equal: list[ComparedRow] = field(default_factory=list)
    slowed: list[ComparedRow] = field(default_factory=list)


def durations(plan: Plan) -> int:
    """Number of rows of the kind that has the fewest."""
    return min(Counter(known_duration.kind_of(case.model) for case in plan.cases).values())


def trials_and_rate(asked: int | None, rate: float | None, durations: int) -> tuple[int, float]:
    """(trials, rate to exclude); where only one is given, the other follows from it.

    durations: rows that one trial adds to each kind. Raises UsageError where the trials cannot exclude the rate.
    """
    if asked is not None and asked < 1:
        raise UsageError(f"{asked} trials exclude no rate.", "Ask for a rate to exclude: make selftest RATE=10%.")
    if asked is not None and rate is None:
        return asked, selftest_evidence.excluded_rate(0, asked * durations)
    rate = rate or selftest_evidence.DEFAULT_RATE
    needed = -(-selftest_evidence.trials_for(rate) // durations)
    if asked is not None and asked < needed:
        raise UsageError(
            f"{asked} trials of {durations} durations cannot exclude a rate of {rate:.1%}.",
            f"At least {needed}: make selftest RATE={100 * rate:.3g}% TRIALS={needed}.",
        )
    return asked or needed, rate


def announcement(plan: Plan, number: int, rate: float) -> str:
    """A sentence on the measurements of the trials."""
    passes, each = 3 * number, number * durations(plan)
    return (
        f"{count(number, 'trial')} with {each} verdicts of each kind, to exclude {rate:.1%} of wrong ones at 95%: "
        f"{passes * len(plan.cases) * plan.measurement.rounds} processes, "
        f"about {duration_in_words(passes * _pass_s(plan))}."
    )


def _pass_s(plan: Plan) -> float:
    """Seconds for one pass over the plan on a quiet machine, where each process converges at once."""
    settings, total = plan.measurement, 0.0
    for case in plan.cases:
        one_s = known_duration.duration_ns(case.model) / 1e9
        warm_up_s = max(settings.warmup_min_s, settings.warmup_min_iterations * one_s) + 3 * settings.window_s
        timed_s = max(3 * max(settings.block_s, settings.block_iterations * one_s), settings.min_samples * one_s)
        loop_s = max(warm_up_s + min(timed_s, settings.max_s), settings.min_s)
        total += settings.rounds * (_START_S + loop_s)
    return total


def _measure(place: Results, config: Path, models: Path, extra: Mapping[str, str]) -> None:
    """One pass through plan, run and aggregate in a fresh folder."""
    shutil.rmtree(place.root, ignore_errors=True)
    choices = {"CONFIG": [str(config)], "RESULTS": [str(place.root)], "MODELS_DIR": [str(models)]}
    for step in pipeline.steps(pipeline.PARTS["trial"], choices):
        _stage(step.stage, step.arguments, extra)


def _compare(baseline: Results, current: Results) -> list[ComparedRow]:
    """The verdicts of the compare stage; its exit code adds nothing and is ignored."""
    _stage("compare", ["--baseline", str(baseline.root), "--results", str(current.root)], allowed=(0, 1, 2))
    return list(store.load(current.comparison, Comparison, "make compare").rows)


def _stage(
    name: str, arguments: Sequence[str], extra: Mapping[str, str] | None = None, allowed: Sequence[int] = (0,)
) -> None:
    command = [sys.executable, "-m", f"harness.{name}", *arguments]
    done = subprocess.run(  # noqa: S603 - our own modules, fixed words
        command, env={**os.environ, **(extra or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode not in allowed:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        message = f"exit code {done.returncode}, {last}", f"Run it by hand: {shlex.join(command)}"
        problem, hint = cli.last_error(done.stderr) or message
        raise CasesFailedError(f"The self-test's {name} stage failed: {problem}", hint)


def judge(plan: Plan, findings: Findings, rate: float) -> SelfTest:
    """The verdict on the harness. rate: of wrong verdicts, to exclude."""
    kind_of = {case.case_id: known_duration.kind_of(case.model) for case in plan.cases}
    known = {
        case.case_id: known_duration.duration_ns(case.model)
        for case in plan.cases
        if kind_of[case.case_id] == known_duration.STEADY
    }
    rows = selftest_evidence.bias_rows(known, findings.summaries)
    alarms, equal_trials = selftest_evidence.false_alarms(_rows_of_kind(known_duration.STEADY, findings.equal, kind_of))
    missed, slowed_trials = selftest_evidence.missed_count(
        _rows_of_kind(known_duration.STEADY, findings.slowed, kind_of)
    )
    others = [kind for kind in dict.fromkeys(kind_of.values()) if kind != known_duration.STEADY]
    kinds = [
        _kind_result(kind, _rows_of_kind(kind, findings.equal, kind_of), _rows_of_kind(kind, findings.slowed, kind_of))
        for kind in others
    ]
    counted = [(alarms, equal_trials), (missed, slowed_trials)]
    counted += [(kind.false_alarms, kind.equal_trials) for kind in kinds]
    return SelfTest(
        created_at=utc_now(),
        machine=environment.collect({}).machine,
        rounds=plan.measurement.rounds,
        slowdown=SLOWDOWN,
        rows=tuple(rows),
        false_alarms=alarms,
        equal_trials=equal_trials,
        missed=missed,
        slowed_trials=slowed_trials,
        rate=rate,
        kinds=tuple(kinds),
        passed=all(row.within for row in rows)
        and all(selftest_evidence.excluded_rate(*pair) <= rate for pair in counted),
    )


def _rows_of_kind(kind: str, rows: Sequence[ComparedRow], kind_of: Mapping[str, str]) -> list[ComparedRow]:
    return [row for row in rows if kind_of[row.case_id] == kind]


def _kind_result(kind: str, equal: Sequence[ComparedRow], slowed: Sequence[ComparedRow]) -> SelfTestKind:
    alarms, equal_trials = selftest_evidence.false_alarms(equal, may_refuse=True)
    missed, slowed_trials = selftest_evidence.missed_count(slowed)
    return SelfTestKind(
        name=kind,
        what=known_duration.KINDS[kind],
        false_alarms=alarms,
        refused=selftest_evidence.refused_count(equal),
        equal_trials=equal_trials,
        missed=missed,
        slowed_trials=slowed_trials,
    )


def _verdicts(rows: Sequence[ComparedRow]) -> str:
    """`6 SAME, 3 AMBIGUOUS`."""
    return ", ".join(f"{number} {verdict}" for verdict, number in Counter(row.verdict for row in rows).items())


if __name__ == "__main__":
    cli.main(stage)
