"""Prove the harness on work of known duration, through the whole path: plan → run → aggregate → compare.

Each trial measures the same work twice (A and B: nothing may be called slower or faster) and once more with every
inference stretched by 5% (that must be called SLOWER).

reads   configs/selftest.yaml
writes  results/selftest.json, results/selftest.md, and each trial's results below results/selftest/
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.backends.slowdown import VARIABLE
from harness.core import cli, environment, store
from harness.core.errors import CasesFailedError, SelfTestError, UsageError
from harness.core.layout import Results
from harness.core.schemas import ComparedRow, Comparison, Plan, SelfTest, Summary
from harness.core.timestamps import utc_now
from harness.measure import trials
from harness.planning.config import read_config
from harness.render.selftest import selftest_table
from harness.zoo.known_duration import duration_ns

SLOWDOWN = 1.05


def stage(arguments: Sequence[str]) -> None:
    """Run the trials, count, write, and fail where a target is missed."""
    parser = cli.parser("harness.selftest", __doc__)
    parser.add_argument("--trials", type=int, default=7, help="trials of each duration (7: 21 of each kind)")
    parser.add_argument("--config", type=Path, default=Path("configs/selftest.yaml"))
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    if options.trials < 1:
        raise UsageError(f"{options.trials} trials prove nothing.", "Ask for at least one: make selftest TRIALS=7.")
    read_config(options.config)
    results = Results(options.results)
    equal: list[ComparedRow] = []
    slowed: list[ComparedRow] = []
    summaries: list[Summary] = []
    for number in range(1, options.trials + 1):
        a, b, slow = (Results(results.selftest_trials / f"{number}-{name}") for name in ("a", "b", "slow"))
        for place, extra in ((a, {}), (b, {}), (slow, {VARIABLE: f"spin:{SLOWDOWN}"})):
            _measure(place, options.config, options.models_dir, extra)
        summaries += [store.load(place.summary, Summary, "make selftest") for place in (a, b)]
        equal += _compare(a, b)
        slowed += _compare(a, slow)
        cli.say(f"trial {number} of {options.trials}: {_verdicts(equal[-3:])} | 5% slower: {_verdicts(slowed[-3:])}")
    found = _judge(store.load(a.plan, Plan, "make selftest"), summaries, equal, slowed)
    store.save(results.selftest, found)
    store.save_bytes(results.selftest_table, selftest_table(found).encode())
    cli.say(selftest_table(found))
    if not found.passed:
        raise SelfTestError(
            "The harness missed a target on this machine.",
            "Quieten the machine and try again; numbers measured here now deserve the same doubt.",
        )


def _measure(place: Results, config: Path, models: Path, extra: Mapping[str, str]) -> None:
    """One pass through plan, run and aggregate in a fresh folder."""
    shutil.rmtree(place.root, ignore_errors=True)
    where = ["--results", str(place.root)]
    folders = [*where, "--models-dir", str(models)]
    _stage("plan", ["--config", str(config), *where])
    _stage("run", folders, extra)
    _stage("aggregate", folders)


def _compare(baseline: Results, current: Results) -> list[ComparedRow]:
    """The compare stage's verdicts; its exit code says the same and is not needed."""
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
        said = f"exit code {done.returncode}, {last}", f"Run it by hand: {shlex.join(command)}"
        problem, hint = cli.told(done.stderr) or said
        raise CasesFailedError(f"The self-test's {name} stage failed: {problem}", hint)


def _judge(
    plan: Plan, summaries: Sequence[Summary], equal: Sequence[ComparedRow], slowed: Sequence[ComparedRow]
) -> SelfTest:
    rows = trials.bias_rows({case.case_id: duration_ns(case.model) for case in plan.cases}, summaries)
    alarms, equal_trials = trials.false_alarms(equal)
    missed, slowed_trials = trials.missed(slowed)
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
        passed=all(row.within for row in rows)
        and trials.right_often_enough(alarms, equal_trials)
        and trials.right_often_enough(missed, slowed_trials),
    )


def _verdicts(rows: Sequence[ComparedRow]) -> str:
    return ", ".join(row.verdict for row in rows)


if __name__ == "__main__":
    cli.main(stage)
