"""Two summaries → a verdict per row, of generation and of load as well (pure).

Of load cases a load that passed before and that now fails, or a higher one, is a change: both verdicts are one-sided at
99%. The predicted peaks have an interval of their own, which has no part of the scatter between processes, so they
decide nothing.

The design sets what is compared: separate runs, pairs of rounds, or ratios over a baseline backend across machines.

SAME            the whole 95% interval of the ratio is inside the margin of equivalence
SLOWER, FASTER  significant over the whole comparison by two tests, and the ratio is beyond that margin
AMBIGUOUS       neither is shown by these rounds; always with fewer rounds on a side than the design requires
NEW, GONE       in only one of the two
NOT COMPARABLE  one side has no sound figure, or the two were not measured under the same conditions
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from harness.aggregation import flags, grades
from harness.aggregation.flags import CALIBRATION, medians_by_round
from harness.aggregation.generation_rows import row_of_times
from harness.comparison import compatibility, paired
from harness.core.schemas import (
    ComparedLoad,
    ComparedRow,
    Design,
    Difference,
    GenerationRow,
    LoadRow,
    Row,
    Summary,
    TokenTimes,
    Verdict,
)
from harness.statistics import estimators
from harness.statistics.ratios import MIN_ROUNDS, Change, Ratio, change_between, change_of_ratios, ratio_of
from harness.statistics.significance import holm


def with_token_rows(summary: Summary) -> Summary:
    """The summary with two further rows for each row of generation: `<case_id>:itl` and `<case_id>:ttft`.

    Each has its times in place of latencies, so that the verdicts on latencies judge them.
    """
    rows = [
        as_row(row, name, times)
        for row in summary.generations
        if not any(flag.name == CALIBRATION for flag in row.flags)
        for name, times in (("itl", row.itl_ns), ("ttft", row.ttft_ns))
        if times is not None or row.status != "measured" or row.grade == "F"
    ]
    return summary.model_copy(update={"rows": (*summary.rows, *rows)})


def as_row(row: GenerationRow, name: str, times: TokenTimes | None) -> Row:
    """One kind of time of a row. times: None where the row has none."""
    further = {field: getattr(row, field) for field in ("placement", "cold_ns", "artifacts", "checks", "usage")}
    return row_of_times(row, f"{row.case_id}:{name}", row.model, times).model_copy(update=further)


def compare_loads(baseline: Summary, current: Summary, differences: Sequence[Difference]) -> tuple[ComparedLoad, ...]:
    """Each load case of either summary, in the order of the current one; lost ones last.

    differences: where any of them forbids comparing, no load case is compared.
    """
    before = {row.load_id: row for row in baseline.loads}
    after = {row.load_id: row for row in current.loads}
    refusing = [difference.name for difference in differences if difference.refuses]
    refusal = f"another machine: {', '.join(refusing)} differs" if refusing else None
    compared = [_compared(row, before, refusal) for row in current.loads]
    gone = [_without(row, "GONE", None, (row, None)) for name, row in before.items() if name not in after]
    return (*compared, *gone)


def _compared(row: LoadRow, before: Mapping[str, LoadRow], refusal: str | None) -> ComparedLoad:
    other = before.get(row.load_id)
    if other is None:
        return _without(row, "NEW", None, (None, row))
    if reason := refusal or _unlike(other, row):
        return _without(row, "NOT COMPARABLE", reason, (other, row))
    ratio = _ratio(other, row)
    update = {"ratio": ratio.value, "ci95": ratio.ci95} if ratio else {}
    if row.scenario != "server":
        reason = "one process a side: the scatter between processes is unknown"
        return _without(row, "AMBIGUOUS", reason, (other, row)).model_copy(update=update)
    verdict, reason = _verdict(other, row)
    return _without(row, verdict, reason, (other, row)).model_copy(update={**update, "fails": verdict == "SLOWER"})


def _unlike(before: LoadRow, after: LoadRow) -> str | None:
    for side, row in (("baseline", before), ("now", after)):
        if row.status != "measured":
            return f"{side} {row.status}: {row.reason}"
        if row.void is not None:
            return f"{side} void: {row.void}"
    if before.bounds != after.bounds:
        texts = [row.bounds_text or "no bound" for row in (before, after)]
        return f"bound {texts[0]} in the baseline, {texts[1]} now"
    return f"{before.threads} threads in the baseline, {after.threads} now" if before.threads != after.threads else None


def _verdict(before: LoadRow, after: LoadRow) -> tuple[Verdict, str | None]:
    if _reaches(after.peak_fail_per_s, before.peak_pass_per_s):
        return "SLOWER", None
    if _reaches(before.peak_fail_per_s, after.peak_pass_per_s):
        return "FASTER", None
    return "AMBIGUOUS", "no load passes on one side and fails on the other: measure the same RATES on both"


def _reaches(failed: float | None, passed: float | None) -> bool:
    """Whether a load that one side passed is as high as one that the other failed."""
    return failed is not None and passed is not None and failed <= passed


def _ratio(before: LoadRow, after: LoadRow) -> Ratio | None:
    """The predicted peak now divided by the baseline's; without predictions, the best rate of samples."""
    if before.predicted_peak_per_s and after.predicted_peak_per_s:
        return ratio_of(
            after.predicted_peak_per_s, after.predicted_interval, before.predicted_peak_per_s, before.predicted_interval
        )
    best = [max((point.samples_per_s for point in row.points), default=0.0) for row in (after, before)]
    return Ratio(best[0] / best[1], None) if min(best) > 0 and after.scenario != "server" else None


def _without(
    named: LoadRow, verdict: Verdict, reason: str | None, sides: tuple[LoadRow | None, LoadRow | None]
) -> ComparedLoad:
    """A load case without a ratio."""
    before, after = sides
    return ComparedLoad(
        load_id=named.load_id,
        model=named.model,
        backend=named.backend,
        scenario=named.scenario,
        verdict=verdict,
        reason=reason,
        baseline=_peak(before),
        current=_peak(after),
        ratio=None,
        ci95=None,
        fails=False,
    )


def _peak(row: LoadRow | None) -> tuple[float | None, float | None]:
    return (row.peak_pass_per_s, row.peak_fail_per_s) if row else (None, None)


SIGNIFICANCE = 0.05
ENOUGH_ROUNDS = 5
"""Processes that each side needs for any verdict. Where processes run at two speeds, half at each, three processes all
have one speed in one run and all the other speed in the next in 3% of rows, so in 61% of tables of 30 such rows; five
processes in 0.2% of rows and 6% of tables."""

EQUIVALENCE = 0.01
"""Two latencies within ±1% are the same (docs/decisions/0006-comparison.md)."""

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


@dataclass(frozen=True)
class Paired:
    """The rows of a comparison, or of one model of it, before they are judged.

    rows: of the current summary, each with its change where it has one. gone: rows of the baseline alone.
    """

    rows: tuple[tuple[ComparedRow, Change | None], ...]
    gone: tuple[ComparedRow, ...]


def paired_rows(
    baseline: Iterable[Row], current: Iterable[Row], differences: Sequence[Difference], design: Design
) -> Paired:
    """The rows of both summaries in pairs: of all models, or of one. differences: between the two summaries
    (compatibility.differences)."""
    before, after = {_key(row): row for row in baseline}, {_key(row): row for row in current}
    forbidden = _forbidden(differences)

    def pair(key: Key) -> tuple[ComparedRow, Change | None]:
        if key not in before:
            return _alone(after[key], "NEW"), None
        if design == "across":
            return _unjudged(_pair_across(before, after, key))
        return _unjudged(_pair(before[key], after[key], forbidden, design))

    gone = tuple(_alone(row, "GONE") for key, row in before.items() if key not in after)
    return Paired(tuple(map(pair, after)), gone)


def judged_rows(parts: Sequence[Paired], margins: Margins, design: Design) -> tuple[ComparedRow, ...]:
    """The verdicts, adjusted over the rows of all parts; rows that are gone come last."""
    changes_ = [change for part in parts for _, change in part.rows if change]
    judged = iter(judge(changes_, margins.equivalence, RULES[design]))
    return (
        *(
            row if change is None else _with_verdict(row, change, next(judged), margins)
            for part in parts
            for row, change in part.rows
        ),
        *(row for part in parts for row in part.gone),
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
    return [_judge(*tests, equivalence, len(changes_), rules) for tests in zip(changes_, ts, ranks, strict=True)]


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


@cache
def _too_few(rounds: tuple[int, int], rules: Rules) -> str:
    have = [f"{count} {side}" for count, side in zip(rounds, ("in the baseline", "now"), strict=True)]
    counts = " and ".join(text for text, count in zip(have, rounds, strict=True) if count < rules.enough)
    return f"too few rounds for a verdict ({counts}): {rules.more}"


def _key(row: Row) -> Key:
    return (row.case_id, row.boundary, row.mode, row.weights)


def _forbidden(differences: Sequence[Difference]) -> str | None:
    names = [
        f"{difference.name} {difference.baseline} → {difference.current}"
        for difference in differences
        if difference.refuses
    ]
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
    change = paired.paired_change([before[number] for number in rounds], [after[number] for number in rounds])
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
    earlier, earlier_under, later, later_under = (side.process_medians for side in sides)
    change = change_of_ratios((earlier, earlier_under), (later, later_under))
    relative = sides[0].median / sides[1].median, sides[2].median / sides[3].median
    return _Pair(baseline, current, None if change else _NO_SPREAD, change, relative)


def _divisor(row: Row, rows: Mapping[Key, Row]) -> Row | None:
    """The baseline backend's row that a row's speed-up refers to; None where it is missing or not sound."""
    divisor = None
    if row.speedup is not None:
        divisor = rows.get((row.speedup.baseline, row.boundary, row.mode, row.weights))
    return None if divisor is None or _flaw(divisor) is not None else divisor


def _unsound(baseline: Row, current: Row, allowed: frozenset[str] = frozenset()) -> str | None:
    """The fault of either side's figure, in words; None without one. allowed: flags that do not forbid a comparison."""
    flaws = {"baseline": _flaw(baseline, allowed), "now": _flaw(current, allowed)}
    if flaws["baseline"] == flaws["now"]:
        return flaws["now"]
    return "; ".join(f"{side} {flaw}" for side, flaw in flaws.items() if flaw)


def _flaw(row: Row, allowed: frozenset[str] = frozenset()) -> str | None:
    if row.status != "measured":
        return flags.status_text(row)
    if flags.is_too_short(row):
        return "too short for the clock to show a change"
    if row.grade in grades.RANKED or flags.only_uncertain(row) or flags.only_flagged(row, allowed):
        return None
    return flags.grade_text(row)


def _unjudged(pair: _Pair) -> tuple[ComparedRow, Change | None]:
    if pair.change is None:
        refused = _row(pair.current, "NOT COMPARABLE", pair.baseline, pair.current)
        return refused.model_copy(update={"reason": pair.refusal}), None
    # Readers would take times of two machines side by side for a comparison of the machines.
    sides = (None, None) if pair.relative else (pair.baseline, pair.current)
    changed = compatibility.row_changes(pair.baseline, pair.current)
    row = _row(pair.current, "AMBIGUOUS", *sides)
    return row.model_copy(update={"relative": pair.relative, "changed": changed}), pair.change


def _with_verdict(row: ComparedRow, change: Change, judged: Judged, margins: Margins) -> ComparedRow:
    row.__dict__.update(  # it is new: nothing else refers to it
        verdict=judged.verdict,
        reason=judged.doubt,
        ratio=change.value,
        ci95=change.ci95,
        p_holm=judged.t_p,
        p_rank_holm=judged.rank_p,
        rounds=change.rounds,
        fails=judged.verdict == "SLOWER" and change.value > 1 + margins.max_regression,
    )
    return row


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
