"""Two summaries → a verdict per row (pure).

The design sets what is compared: separate runs, pairs of rounds, or ratios over a baseline backend across machines.

SAME            the whole 95% interval of the ratio is inside the margin of equivalence
SLOWER, FASTER  significant over the whole comparison by two tests, and the ratio is beyond that margin
AMBIGUOUS       neither is shown by these rounds; always with fewer rounds on a side than the design requires
NEW, GONE       in only one of the two
NOT COMPARABLE  one side has no sound figure, or the two were not measured under the same conditions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.aggregation import flags
from harness.aggregation.flags import medians_by_round
from harness.comparison import compatibility, paired
from harness.comparison.compatibility import renamed
from harness.core.schemas import ComparedRow, Design, Difference, Row, Summary, Verdict
from harness.statistics import estimators
from harness.statistics.ratios import (
    MIN_ROUNDS,
    Change,
    change_between,
    change_of_ratios,
    holm,
)

SIGNIFICANCE = 0.05
ENOUGH_ROUNDS = 5
"""Processes that each side needs for any verdict. Where processes run at two speeds, half at each, three processes all
have one speed in one run and all the other speed in the next in 3% of rows, so in 61% of tables of 30 such rows; five
processes in 0.2% of rows and 6% of tables."""

EQUIVALENCE = 0.01
"""METHOD 2.8: two latencies within ±1% are the same."""

MIN_COMMON = 3
"""Smallest number of compared rows whose median ratio can show a common cause."""

DISTURBANCES = frozenset(
    {
        *(
            "AFFINITY_CHANGED",
            "CLOCK_DRIFT",
            "CPU_QUOTA",
            "CPU_SHARED",
            "DRIFT",
            "GPU_SHARED",
            "HW_SLOWDOWN",
            "LONG_ITERATIONS",
        ),
        *("MAJOR_FAULTS", "NOT_WARMED_UP", "STARVED", "STEAL", "THERMAL", flags.UNCERTAIN),
    }
)
"""Flags of disturbances by the machine. Where rounds of two states alternate, a disturbance affects both in random
order: it widens the scatter of their ratios and is no reason to refuse them."""

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Rules:
    """How a design judges. enough: rounds for any verdict. more: the command that adds them. mixed: words where the
    rank test is not significant. significance: largest adjusted p of a difference."""

    enough: int
    more: str
    mixed: str
    significance: float = SIGNIFICANCE


RULES: Mapping[Design, Rules] = {
    "separate": Rules(ENOUGH_ROUNDS, f"`make bench ROUNDS={ENOUGH_ROUNDS}` there", "processes of the two runs mix"),
    "paired": Rules(
        paired.ENOUGH_ROUNDS,
        "`make ab ROUNDS=10`",
        "some rounds were slower and some faster",
        paired.SIGNIFICANCE,
    ),
    "across": Rules(
        ENOUGH_ROUNDS, f"`make bench ROUNDS={ENOUGH_ROUNDS}` there", "the intervals of the two ratios overlap"
    ),
}


@dataclass(frozen=True)
class Margins:
    """Relative margins: equivalence makes two rows SAME, max_regression lets a SLOWER row pass."""

    equivalence: float = EQUIVALENCE
    max_regression: float = EQUIVALENCE


@dataclass(frozen=True)
class _Pair:
    """A case with its row of each summary; refusal or change, never both."""

    baseline: Row
    current: Row
    refusal: str | None
    change: Change | None
    relative: tuple[float, float] | None = None


@dataclass(frozen=True)
class Judged:
    """A verdict on a change. t_p, rank_p: adjusted over the comparison. doubt: why it is AMBIGUOUS, else None."""

    verdict: Verdict
    t_p: float
    rank_p: float
    doubt: str | None = None


def compare(
    baseline: Summary,
    current: Summary,
    differences: Sequence[Difference],
    margins: Margins,
    design: Design = "separate",
) -> tuple[ComparedRow, ...]:
    """A row for each case of either summary, in the order of the current summary; cases that are gone come last.

    found: differences between the two summaries (compatibility.differences).
    """
    before = {_key(row): row for row in renamed(baseline, current)}
    after = {_key(row): row for row in current.rows}
    if design == "across":
        pairs = {key: _pair_across(before, after, key) for key in after if key in before}
    else:
        forbidden = _forbidden(differences)
        pairs = {key: _pair(before[key], row, forbidden, design) for key, row in after.items() if key in before}
    tested = {key: pair.change for key, pair in pairs.items() if pair.change}
    judged = dict(zip(tested, judge(list(tested.values()), margins.equivalence, RULES[design]), strict=True))
    return (
        *(
            _compared(pairs[key], judged.get(key), margins) if key in pairs else _alone(row, "NEW")
            for key, row in after.items()
        ),
        *(_alone(row, "GONE") for key, row in before.items() if key not in after),
    )


def common_ratio(rows: Sequence[ComparedRow]) -> float | None:
    """Median ratio over the compared rows; None with fewer than MIN_COMMON."""
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return estimators.median(ratios) if len(ratios) >= MIN_COMMON else None


def is_lost(row: ComparedRow) -> bool:
    """True where the baseline has a figure and the current summary has no figure or a void one."""
    return row.baseline_ns is not None and row.current_ns is None


def judge(changes_: Sequence[Change], equivalence: float, rules: Rules = RULES["separate"]) -> list[Judged]:
    """A verdict for each change of one comparison; both tests are adjusted over all changes (Holm)."""
    ts = holm([change.t_p for change in changes_])
    ranks = holm([change.rank_p for change in changes_])
    return [_judge(*one, equivalence, len(changes_), rules) for one in zip(changes_, ts, ranks, strict=True)]


def _judge(change: Change, t_p: float, rank_p: float, equivalence: float, compared: int, rules: Rules) -> Judged:
    """The verdict of the interval and both tests together.

    The rank test guards the t test, which assumes normal values even where processes run at two speeds. Where so few
    rounds cannot be significant by ranks over a large table, the two runs must not overlap at all.
    """
    doubt = None
    if min(change.rounds) < rules.enough:
        doubt = _too_few(change.rounds, rules)
    elif 1 - equivalence <= change.ci95.low and change.ci95.high <= 1 + equivalence:
        return Judged("SAME", t_p, rank_p)
    elif change.ci95.low <= 1 <= change.ci95.high:
        doubt = "not significantly different from no change"
    elif t_p >= rules.significance:
        doubt = f"may be chance among {compared} compared rows (p = {t_p:.2g} after Holm)"
    elif rank_p >= rules.significance and not change.apart:
        doubt = (
            f"{rules.mixed}, which may be chance among {compared} compared rows (p = {rank_p:.2g} by ranks after Holm)"
        )
    elif 1 - equivalence <= change.value <= 1 + equivalence:
        doubt = f"differs, by less than {equivalence:.1%} as it seems, but the interval reaches beyond"
    else:
        return Judged("SLOWER" if change.value > 1 else "FASTER", t_p, rank_p)
    return Judged("AMBIGUOUS", t_p, rank_p, doubt)


def _too_few(rounds: tuple[int, int], rules: Rules) -> str:
    have = [f"{count} {side}" for count, side in zip(rounds, ("in the baseline", "now"), strict=True)]
    found = " and ".join(text for text, count in zip(have, rounds, strict=True) if count < rules.enough)
    return f"too few rounds for a verdict ({found}): {rules.more}"


def _key(row: Row) -> Key:
    return (row.case_id, row.boundary, row.mode, row.weights)


def _forbidden(differences: Sequence[Difference]) -> str | None:
    names = [f"{one.name} {one.baseline} → {one.current}" for one in differences if one.refuses]
    return f"measured on another machine or with another share of it: {'; '.join(names)}" if names else None


def _pair(baseline: Row, current: Row, forbidden: str | None, design: Design) -> _Pair:
    allowed = DISTURBANCES if design == "paired" else frozenset()
    refusal = _unsound(baseline, current, allowed) or forbidden or compatibility.row_refusal(baseline, current)
    if refusal is not None or baseline.latency_ns is None or current.latency_ns is None:
        return _Pair(baseline, current, refusal or "no latency", None)
    if design == "paired":
        return _pair_rounds(baseline, current)
    before, after = baseline.latency_ns.process_medians, current.latency_ns.process_medians
    if min(len(before), len(after)) < MIN_ROUNDS:
        side = "the baseline" if len(before) < MIN_ROUNDS else "the current run"
        return _Pair(baseline, current, f"one round in {side}: measure at least {MIN_ROUNDS} on both sides", None)
    if before == after:
        return _Pair(baseline, current, _SAME_SAMPLES, None)
    change = change_between(before, after)
    return _Pair(baseline, current, None if change else _NO_SPREAD, change)


_SAME_SAMPLES = "the very same samples on both sides: measure again with FORCE=1"
_NO_SPREAD = "the process medians have no spread that can be used"


def _pair_rounds(baseline: Row, current: Row) -> _Pair:
    """Only the rounds that both states have."""
    before, after = medians_by_round(baseline), medians_by_round(current)
    rounds = sorted(before.keys() & after.keys())
    if len(rounds) < MIN_ROUNDS:
        reason = f"{len(rounds)} rounds with both states: measure at least {paired.ENOUGH_ROUNDS}, `make ab ROUNDS=10`"
        return _Pair(baseline, current, reason, None)
    if before == after:
        return _Pair(baseline, current, _SAME_SAMPLES, None)
    change = paired.paired_change([before[one] for one in rounds], [after[one] for one in rounds])
    return _Pair(baseline, current, None if change else _NO_SPREAD, change)


def _pair_across(before: Mapping[Key, Row], after: Mapping[Key, Row], key: Key) -> _Pair:
    """Ratios of latencies to those of the baseline backend, each within its own run."""
    baseline, current = before[key], after[key]
    refusal = _unsound(baseline, current)
    under = [_divisor(baseline, before), _divisor(current, after)]
    if refusal is None and key in {_key(row) for row in under if row is not None}:
        refusal = "the ratios of the other rows are over this one"
    if refusal is None and not all(under):
        where = "the baseline" if under[0] is None else "the current run"
        refusal = f"no sound row of the baseline backend in {where}, so there is no ratio to compare"
    sides = [
        row.latency_ns for row in (baseline, *under[:1], current, *under[1:]) if row is not None and row.latency_ns
    ]
    if refusal is not None or len(sides) < 4:
        return _Pair(baseline, current, refusal or "no latency", None)
    one, one_under, other, other_under = (side.process_medians for side in sides)
    change = change_of_ratios((one, one_under), (other, other_under))
    relative = sides[0].median / sides[1].median, sides[2].median / sides[3].median
    return _Pair(baseline, current, None if change else _NO_SPREAD, change, relative)


def _divisor(row: Row, rows: Mapping[Key, Row]) -> Row | None:
    """The baseline backend's row that a row's speed-up refers to; None where it is missing or not sound."""
    found = None
    if row.speedup is not None:
        found = rows.get((row.speedup.baseline, row.boundary, row.mode, row.weights))
    return None if found is None or _flaw(found) is not None else found


def _unsound(baseline: Row, current: Row, allowed: frozenset[str] = frozenset()) -> str | None:
    """What is wrong with the figure of either side. allowed: flags that do not forbid a comparison."""
    found = {"baseline": _flaw(baseline, allowed), "now": _flaw(current, allowed)}
    if found["baseline"] == found["now"]:
        return found["now"]
    return "; ".join(f"{side} {flaw}" for side, flaw in found.items() if flaw)


def _flaw(row: Row, allowed: frozenset[str] = frozenset()) -> str | None:
    if row.status != "measured":
        return f"{row.status}: {row.reason}" if row.reason else row.status
    if flags.too_short(row):
        return "too short for the clock to show a change"
    if row.grade in flags.RANKED or flags.only_uncertain(row) or flags.only_flagged(row, allowed):
        return None
    return f"grade {row.grade}: {', '.join(dict.fromkeys(flag.name for flag in row.flags))}"


def _compared(pair: _Pair, judged: Judged | None, margins: Margins) -> ComparedRow:
    change = pair.change
    if change is None or judged is None:
        refused = _row(pair.current, "NOT COMPARABLE", pair.baseline, pair.current)
        return refused.model_copy(update={"reason": pair.refusal})
    # Readers would take times of two machines side by side for a comparison of the machines.
    sides = (None, None) if pair.relative else (pair.baseline, pair.current)
    return _row(pair.current, judged.verdict, *sides).model_copy(
        update={
            "relative": pair.relative,
            "reason": judged.doubt,
            "ratio": change.value,
            "ci95": change.ci95,
            "p_holm": judged.t_p,
            "p_rank_holm": judged.rank_p,
            "rounds": change.rounds,
            "fails": judged.verdict == "SLOWER" and change.value > 1 + margins.max_regression,
            "changed": compatibility.row_changes(pair.baseline, pair.current),
        }
    )


def _alone(row: Row, verdict: Verdict) -> ComparedRow:
    return _row(row, verdict, None if verdict == "NEW" else row, row if verdict == "NEW" else None)


def _row(named: Row, verdict: Verdict, baseline: Row | None, current: Row | None) -> ComparedRow:
    """A row with its case and both headlines, without a ratio."""
    return ComparedRow(
        case_id=named.case_id,
        model=named.model,
        backend=named.backend,
        precision=named.precision,
        batch_size=named.batch_size,
        sequence_length=named.sequence_length,
        boundary=named.boundary,
        mode=named.mode,
        weights=named.weights,
        verdict=verdict,
        reason=None,
        baseline_ns=_headline(baseline),
        current_ns=_headline(current),
        ratio=None,
        ci95=None,
        p_holm=None,
        fails=False,
        changed=(),
    )


def _headline(row: Row | None) -> float | None:
    return row.latency_ns.median if row and row.latency_ns else None
