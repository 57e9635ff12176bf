"""Measures two states in one run: each case of a round in both states, directly one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core import cli, store
from harness.core.host import limits
from harness.core.layout import Models, Results
from harness.core.schemas import Failed, Plan
from harness.planning.exports import Exports, built_engines
from harness.planning.resume import finished_turns
from harness.planning.schedule import Turn, paired_rounds
from harness.processes.code_states import CodeState
from harness.processes.pool import WorkerPool, split_off_unexported

RENEWED_AFTER = 2
"""Rounds after which each state gets new servers, from which its cases are forked. All forks of one server share its
memory layout: with one server for a whole run, a lucky layout would look like a property of the state. Two rounds of
one server correlate at most as far as the test allows (harness/comparison/paired.py). Fewer rounds would cost more
imports."""

Pairs = list[list[tuple[Turn, bool]]]
"""By round: each turn, and whether the state here goes first."""


@dataclass(frozen=True)
class InterleavedState:
    """One state with its plan, files and exports. label: its name in the lines of the run."""

    label: str
    state: CodeState
    plan: Plan
    models: Models
    results: Results
    exports: Exports


def measure_in_turn(against: InterleavedState, here: InterleavedState) -> int:
    """Measure the pending pairs of both states; returns the number of failed processes and of turns without an export.

    Where one half of a pair is missing, both are measured again: the two must be close in time.
    """
    settings = here.plan.measurement
    rounds, lacking = _pending(against, here)
    number = sum(map(len, rounds))
    threads = settings.threads or limits.threads()
    every = sum(map(len, _pairs(against.plan, here.plan)))
    kept = f"; {every - number} pairs measured before are kept (FORCE=1 measures again)" if every > number else ""
    cli.say(f"{number} pairs of processes to run with {threads} threads each, both states in turn{kept}.")
    failures = lacking
    with (
        _pool(here, threads, 2 * number) as ours,
        _pool(against, threads, 2 * number, beside=ours) as theirs,
    ):
        cases = {case.case_id: case for case in against.plan.cases}
        for turns in rounds:
            for (count, case), goes_first in turns:
                _forget(against.results, here.results, case.case_id, count)
                mine, other = (ours, (count, case)), (theirs, (count, cases[case.case_id]))
                for pool, turn in (mine, other) if goes_first else (other, mine):
                    record = pool.measure(turn)
                    failures += isinstance(record, Failed) and not record.refused
            if turns and turns[0][0][0] % RENEWED_AFTER == 0:
                ours.renew()
                theirs.renew()
    return failures


def _pool(side: InterleavedState, threads: int, turns: int, beside: WorkerPool | None = None) -> WorkerPool:
    state = side.state
    return WorkerPool(
        side.plan,
        side.models,
        side.results,
        threads,
        turns,
        fork=True,
        interpreters=state.interpreters,
        code=state.code,
        label=side.label,
        beside=beside,
    )


def _pairs(against: Plan, here: Plan) -> Pairs:
    """Turns of the cases that both plans run."""
    theirs = {case.case_id for case in against.cases if case.skip_reason is None}
    cases = [case for case in here.cases if case.case_id in theirs]
    return paired_rounds(cases, here.measurement.rounds, here.measurement.seed)


def _pending(against: InterleavedState, here: InterleavedState) -> tuple[Pairs, int]:
    """(pending pairs by round, number of turns without an export)."""
    rounds = _pairs(against.plan, here.plan)
    turns = [turn for pairs in rounds for turn, _ in pairs]
    keys = [_measurable(side, turns) for side in (against, here)]
    lacking = sum(len(turns) - len(found) for found in keys)
    both = keys[0] & keys[1]
    done = _finished(against, turns) & _finished(here, turns)
    pending = both - done
    return [[pair for pair in pairs if _key(pair[0]) in pending] for pairs in rounds], lacking


Key = tuple[int, str]


def _key(turn: Turn) -> Key:
    return turn[0], turn[1].case_id


def _measurable(side: InterleavedState, turns: Sequence[Turn]) -> set[Key]:
    return {_key(turn) for turn in split_off_unexported(side.plan, turns, side.exports, side.results)}


def _finished(side: InterleavedState, turns: Sequence[Turn]) -> set[Key]:
    damaged: list[str] = []
    engines = {
        name: built_engines(side.models.folder(export.slug), damaged) for name, export in side.exports.found.items()
    }
    elsewhere = frozenset(side.state.interpreters)
    done = finished_turns(side.plan, turns, side.exports.found, side.results, elsewhere, engines)
    for note in (*damaged, *done.notes):
        cli.warn(note)
    return {_key(turn) for turn in turns if done.has(turn)}


def _forget(one: Results, other: Results, case_id: str, number: int) -> None:
    for results in (one, other):
        for path in (results.raw_file(case_id, number), results.usage_file(case_id, number)):
            with store.translate_storage_errors(path):
                path.unlink(missing_ok=True)
