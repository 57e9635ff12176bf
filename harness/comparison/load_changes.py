"""Load cases of two summaries, matched by id: has the highest load within the bound moved? (pure)

A load that passed before and that now fails, or a higher one, is a change: both verdicts are one-sided at 99%. The
predicted peaks have an interval of their own, which has no part of the scatter between processes, so they decide
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas import ComparedLoad, Difference, LoadRow, Summary, Verdict
from harness.statistics.ratios import Ratio, ratio_of


def compare_loads(baseline: Summary, current: Summary, differences: Sequence[Difference]) -> tuple[ComparedLoad, ...]:
    """Each load case of either summary, in the order of the current one; lost ones last.

    differences: where any of them forbids comparing, no load case is compared.
    """
    before = {row.load_id: row for row in baseline.loads}
    after = {row.load_id: row for row in current.loads}
    refusing = [one.name for one in differences if one.refuses]
    refusal = f"another machine: {', '.join(refusing)} differs" if refusing else None
    found = [_compared(row, before, refusal) for row in current.loads]
    gone = [_without(row, "GONE", None, (row, None)) for name, row in before.items() if name not in after]
    return (*found, *gone)


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
    """The predicted peak now by that of the baseline; without predictions the best rate of samples."""
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
