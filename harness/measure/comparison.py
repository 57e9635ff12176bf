"""Two summaries → a verdict per row (pure).

SAME            the whole 95% interval of the ratio lies inside the margin of equivalence
SLOWER, FASTER  significant over the whole comparison by two tests, and the ratio beyond that margin
AMBIGUOUS       neither can be told with these rounds; always with fewer than ENOUGH_ROUNDS on a side
NEW, GONE       in one of the two only
NOT COMPARABLE  one side has no sound figure, or the two were not measured under the same conditions
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.schemas import ComparedRow, Difference, Row, Summary, Verdict
from harness.measure import changes, grades, stats
from harness.measure.handed_over import renamed
from harness.measure.ratios import MIN_ROUNDS, Change, change_between, holm

SIGNIFICANCE = 0.05
ENOUGH_ROUNDS = 5
"""Processes that each side needs for any verdict. Where processes come at two speeds, half and half, three are all of
one speed in one run and all of the other in the next in 3% of rows, so in 61% of tables of 30 such rows; five in 0.2%
of rows and 6% of tables."""

EQUIVALENCE = 0.01
"""METHOD 2.8: inside ±1%, two latencies are called the same."""

MIN_COMMON = 3
"""Compared rows from which on their middle ratio says something about what they share."""

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Margins:
    """Relative margins: equivalence makes two rows SAME, max_regression lets a SLOWER row pass."""

    equivalence: float = EQUIVALENCE
    max_regression: float = EQUIVALENCE


@dataclass(frozen=True)
class _Pair:
    """A case with what each summary has of it; refusal or change, never both."""

    baseline: Row
    current: Row
    refusal: str | None
    change: Change | None


@dataclass(frozen=True)
class Judged:
    """A verdict on a change. welch_p, rank_p: adjusted over the comparison. doubt: why it is AMBIGUOUS, else None."""

    verdict: Verdict
    welch_p: float
    rank_p: float
    doubt: str | None = None


def compare(
    baseline: Summary, current: Summary, found: Sequence[Difference], margins: Margins
) -> tuple[ComparedRow, ...]:
    """A row for each case of either summary, in the order of the current one, those that are gone last.

    `found`: what differs between the two (changes.differences).
    """
    before = {_key(row): row for row in renamed(baseline, current)}
    after = {_key(row): row for row in current.rows}
    forbidden = _forbidden(found)
    pairs = {key: _pair(before[key], row, forbidden) for key, row in after.items() if key in before}
    tested = {key: pair.change for key, pair in pairs.items() if pair.change}
    judged = dict(zip(tested, judge(list(tested.values()), margins.equivalence), strict=True))
    return (
        *(
            _compared(pairs[key], judged.get(key), margins) if key in pairs else _alone(row, "NEW")
            for key, row in after.items()
        ),
        *(_alone(row, "GONE") for key, row in before.items() if key not in after),
    )


def common_ratio(rows: Sequence[ComparedRow]) -> float | None:
    """Middle ratio over the compared rows; None where they are too few to share anything."""
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return stats.median(ratios) if len(ratios) >= MIN_COMMON else None


def is_lost(row: ComparedRow) -> bool:
    """True where the baseline has a figure and the current summary has none, or a void one."""
    return row.baseline_ns is not None and row.current_ns is None


def judge(changes_: Sequence[Change], equivalence: float) -> list[Judged]:
    """A verdict for each change of one comparison, both tests adjusted over all of them (Holm)."""
    welch = holm([change.welch_p for change in changes_])
    ranks = holm([change.rank_p for change in changes_])
    return [_judge(*one, equivalence, len(changes_)) for one in zip(changes_, welch, ranks, strict=True)]


def _judge(change: Change, welch_p: float, rank_p: float, equivalence: float, compared: int) -> Judged:
    """What the interval and both tests say together.

    The rank test guards Welch's, which takes processes at two speeds for normal ones: where five a side cannot be
    significant over a large table by ranks, the runs must lie apart altogether.
    """
    doubt = None
    if min(change.rounds) < ENOUGH_ROUNDS:
        doubt = _too_few(change.rounds)
    elif 1 - equivalence <= change.ci95.low and change.ci95.high <= 1 + equivalence:
        return Judged("SAME", welch_p, rank_p)
    elif change.ci95.low <= 1 <= change.ci95.high:
        doubt = "cannot be told from no change"
    elif welch_p >= SIGNIFICANCE:
        doubt = f"may be chance among {compared} compared rows (p = {welch_p:.2g} after Holm)"
    elif rank_p >= SIGNIFICANCE and not change.apart:
        doubt = (
            f"processes of the two runs mix, which may be chance among {compared} compared rows (p = {rank_p:.2g} by "
        )
        doubt += "ranks after Holm)"
    elif 1 - equivalence <= change.value <= 1 + equivalence:
        doubt = f"differs, by less than {equivalence:.1%} as it seems, but the interval reaches beyond"
    else:
        return Judged("SLOWER" if change.value > 1 else "FASTER", welch_p, rank_p)
    return Judged("AMBIGUOUS", welch_p, rank_p, doubt)


def _too_few(rounds: tuple[int, int]) -> str:
    have = [f"{count} {side}" for count, side in zip(rounds, ("in the baseline", "now"), strict=True)]
    found = " and ".join(text for text, count in zip(have, rounds, strict=True) if count < ENOUGH_ROUNDS)
    return f"too few rounds for a verdict ({found}): `make bench ROUNDS={ENOUGH_ROUNDS}` there"


def _key(row: Row) -> Key:
    return (row.case_id, row.boundary, row.mode, row.weights)


def _forbidden(found: Sequence[Difference]) -> str | None:
    names = [f"{one.name} {one.baseline} → {one.current}" for one in found if one.refuses]
    return f"measured on another machine or with another share of it: {'; '.join(names)}" if names else None


def _pair(baseline: Row, current: Row, forbidden: str | None) -> _Pair:
    refusal = _unsound(baseline, current) or forbidden or changes.row_refusal(baseline, current)
    if refusal is not None or baseline.latency_ns is None or current.latency_ns is None:
        return _Pair(baseline, current, refusal or "no latency", None)
    before, after = baseline.latency_ns.process_medians, current.latency_ns.process_medians
    if min(len(before), len(after)) < MIN_ROUNDS:
        side = "the baseline" if len(before) < MIN_ROUNDS else "the current run"
        return _Pair(baseline, current, f"one round in {side}: measure at least {MIN_ROUNDS} on both sides", None)
    if before == after:
        return _Pair(baseline, current, "the very same samples on both sides: measure anew, FORCE=1", None)
    change = change_between(before, after)
    return _Pair(baseline, current, None if change else "the process medians have no spread that can be used", change)


def _unsound(baseline: Row, current: Row) -> str | None:
    """What is wrong with either side's figure."""
    found = {"baseline": _flaw(baseline), "now": _flaw(current)}
    if found["baseline"] == found["now"]:
        return found["now"]
    return "; ".join(f"{side} {flaw}" for side, flaw in found.items() if flaw)


def _flaw(row: Row) -> str | None:
    if row.status != "measured":
        return f"{row.status}: {row.reason}" if row.reason else row.status
    if grades.too_short(row):
        return "too short for the clock to tell a change"
    if row.grade in grades.RANKED or grades.only_uncertain(row):
        return None
    return f"grade {row.grade}: {', '.join(dict.fromkeys(flag.name for flag in row.flags))}"


def _compared(pair: _Pair, judged: Judged | None, margins: Margins) -> ComparedRow:
    change = pair.change
    if change is None or judged is None:
        refused = _row(pair.current, "NOT COMPARABLE", pair.baseline, pair.current)
        return refused.model_copy(update={"reason": pair.refusal})
    return _row(pair.current, judged.verdict, pair.baseline, pair.current).model_copy(
        update={
            "reason": judged.doubt,
            "ratio": change.value,
            "ci95": change.ci95,
            "p_holm": judged.welch_p,
            "p_rank_holm": judged.rank_p,
            "rounds": change.rounds,
            "fails": judged.verdict == "SLOWER" and change.value > 1 + margins.max_regression,
            "changed": changes.row_changes(pair.baseline, pair.current),
        }
    )


def _alone(row: Row, verdict: Verdict) -> ComparedRow:
    return _row(row, verdict, None if verdict == "NEW" else row, row if verdict == "NEW" else None)


def _row(named: Row, verdict: Verdict, baseline: Row | None, current: Row | None) -> ComparedRow:
    """A row that names its case and both headlines, without a ratio."""
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
    return row.latency_ns.median if row and row.latency_ns and row.grade != "F" else None
