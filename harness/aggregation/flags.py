"""Findings from the samples and outputs of a row, with numbers and remedies (pure).

Every threshold of them is here, with its source, or as a choice of this project.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import accumulate, pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from harness.aggregation import batch_times
from harness.aggregation.causes import BESIDES, MACHINE, SCATTER
from harness.aggregation.grades import RANKED, Finding, finding, names_of
from harness.core.schemas import (
    FIXED_WHEN_TRACED,
    NO_FLOATS,
    Boundary,
    Case,
    Device,
    Generated,
    GenerationCase,
    GenerationRow,
    Grade,
    Latency,
    LoadCase,
    Measured,
    ModeName,
    Parity,
    Precision,
    Repeats,
    Row,
    TimedRecord,
    Tolerance,
    Weights,
)
from harness.core.units import MAX_PRINTED_FACTOR, duration
from harness.statistics import estimators
from harness.statistics.parity import INFINITELY_FAR
from harness.zoo.families.known_duration import is_spin

MAX_INTERVAL_HALF_WIDTH = 0.05
"""Between processes. Twice the 2.5% that three processes reach when their medians scatter by 1% (4.30 / sqrt(3) x 1%),
a typical scatter: a wider interval means that this machine was less quiet than usual."""

MAX_RANKED_HALF_WIDTH = 0.10
"""Between processes. B ends here, a choice: a row that may be a tenth slower or faster than shown has no rank."""

MORE_ROUNDS = 5
"""Rounds that the remedy for a wide interval asks for: a comparison of two runs needs as many (decision 6)."""

MIN_CLOCK_READS = 100
"""A median below this many clock overheads contains more than 1% of the clock itself (BELOW_TIMER)."""

MAX_DRIFT = 0.05
"""Change from the first round to the last, where it is a trend: a choice, above the 3% for a clock (clock_drift.py)."""

CALIBRATION = "CALIBRATION"
"""Name of the flag on rows that compute nothing."""

UNCERTAIN = "UNCERTAIN"
"""Name of the flag on rows whose processes differ too much to rank them."""

PARITY_UNCHECKED = "PARITY_UNCHECKED"
"""Name of the flag on rows whose outputs no comparison has shown to be right."""


@dataclass(frozen=True)
class Criteria:
    """The criteria for a row.

    tolerance: the largest distance from the reference for the row's precision; None where the plan has none.
    judge_top1: the model is a classifier with trained weights, so that its arg-max has a meaning.
    target_ci: relative half-width at which a process was to stop.
    calibration: the backend computes nothing; its row shows the harness overhead and is never ranked.
    exchanged: the reference's distance from itself with the answers of other samples; None where it is not known. Where
    that is within the tolerance, a row of load is void: it has no grade.
    """

    tolerance: Tolerance | None
    judge_top1: bool
    target_ci: float
    calibration: bool
    exchanged: Parity | None = None


def is_too_short(row: Row) -> bool:
    """Whether the clock itself is more than 1% of a row's latency."""
    if row.latency_ns is None or row.clock is None:
        return False
    return row.latency_ns.median < MIN_CLOCK_READS * row.clock.overhead_ns


def only_uncertain(row: Row) -> bool:
    """Whether only the wide interval (UNCERTAIN) keeps a row out of the ranking.

    A comparison of two runs or a limit includes the scatter of the processes itself and may use such a row: without
    it, a slow-down would hide behind noise.
    """
    return only_flagged(row, frozenset({UNCERTAIN}))


def only_flagged(row: Row, names: frozenset[str]) -> bool:
    """Whether only flags of these names keep a row of grade C out of the ranking."""
    caps = {flag.caps_at for flag in row.flags if flag.name not in names}
    return row.grade == "C" and caps <= RANKED and any(flag.name in names for flag in row.flags)


def flags_for(
    case: Case, records: Sequence[Measured], latency: Latency, parity: Parity | None, checks: Criteria
) -> list[Finding]:
    """All findings from the records of one case.

    `records`: the rounds that count, in round order; `parity`: the worst over them.
    """
    if checks.calibration:
        return [_calibration(case), *made_on_purpose(records)]
    noise = [*unsteady_rounds(records), *_intervals(records, latency, checks.target_ci), *round_drift(latency)]
    noise += speed_groups(latency)
    proof = _proof(case, records, parity, checks)
    return [*proof, *_timer(records, latency), *noise, *compile_cached(records), *made_on_purpose(records)]


def void_reason(case: Case, records: Sequence[Measured], parity: Parity | None, checks: Criteria) -> str | None:
    """Why the times of these records are of other work than the label says; None where nothing shows it."""
    proof = _proof(case, records, parity, checks)
    return next((problem.flag.detail for problem in proof if problem.caps_at == "F"), None)


def _proof(case: Case, records: Sequence[Measured], parity: Parity | None, checks: Criteria) -> list[Finding]:
    """Findings on what ran: its outputs, its place and precision, and whether it was compiled."""
    return [*_parity(case, parity, records, checks), *misplaced(case, records), *_eager(case, records)]


NEW_BEYOND = 3
"""Multiple of the worst stored sample's distance that the median new sample may have: quantised backends are calibrated
with real inputs, and an input between two others is none."""


def wrong_new_answers(repeats: Sequence[Repeats], parity: Parity, tolerance: Tolerance) -> str | None:
    """That most answers to new samples are wrong where those to stored ones are right, in numbers; else None.

    Most, and not the worst one: an input between two others may be a tie, which another rounding decides differently.
    """
    distances = [distance for each in repeats for distance in each.new_l2]
    stored = parity.furthest
    if not distances or stored is None:
        return None
    usual = estimators.median(distances)
    if usual <= max(tolerance.relative_l2, NEW_BEYOND * stored):
        return None
    far = "cannot be compared" if usual >= INFINITELY_FAR else f"have a median relative L2 distance of {usual:.2e}"
    return f"its answers to {len(distances)} new samples {far}, where those to stored ones have at most {stored:.2e}"


def _new_answers(case: Case, records: Sequence[Measured], parity: Parity, tolerance: Tolerance) -> list[Finding]:
    repeats = [record.repeats for record in records if record.repeats is not None]
    detail = wrong_new_answers(repeats, parity, tolerance)
    if detail is None:
        return []
    remedy = (
        f"{case.backend} answers new inputs without computing them, or what it made of the model holds for the first "
        "inputs alone: it must compute every pass."
    )
    return [finding("F", "PARITY_FAIL", detail, remedy)]


def _parity(case: Case, parity: Parity | None, records: Sequence[Measured], checks: Criteria) -> list[Finding]:
    compared = [part for record in records for part in (record.parity_before, record.parity_timed)]
    if parity is None or not all(part is not None and part.samples for part in compared):
        return [finding("C", PARITY_UNCHECKED, NOT_COMPARED, f"Export `{case.model}` again, then run it again.")]
    if parity.nonfinite:
        detail = (
            f"{parity.nonfinite} output values are NaN, or infinite where the reference is not or the other way round"
        )
        remedy = f"Use a wider precision than {case.precision} for `{case.model}`, or look for an overflow in it."
        return [finding("F", "NONFINITE", detail, remedy)]
    if checks.tolerance is None:
        detail = f"the plan has no tolerance for {case.precision}, so it is unknown how far outputs may be off"
        return [finding("C", PARITY_UNCHECKED, detail, f"Add `gates.{case.precision}` to the configuration.")]
    findings = beyond_tolerance(case, parity, checks.tolerance, checks.judge_top1)
    findings = findings or _new_answers(case, records, parity, checks.tolerance)
    if not findings and answers_alike(case, checks):
        remedy = "Give inputs with different answers (INPUTS=<file>.npz), or return the numbers that they come from."
        return [finding("C", PARITY_UNCHECKED, ALIKE, remedy)]
    fixed = next(filter(None, (record.placement.settings.get(FIXED_WHEN_TRACED) for record in records)), None)
    return findings if fixed is None else [_because(case, problem, str(fixed)) for problem in findings]


NOT_COMPARED = "outputs before or during timing were not compared with the reference in every round"
ALIKE = "an output is the same for all inputs within the tolerance: a wrong answer would pass for a right one"


def answers_alike(case: Case | LoadCase, checks: Criteria) -> bool:
    """Whether the reference answers are so alike that a wrong sample would pass the comparison."""
    if checks.exchanged is None or checks.exchanged.nonfinite or checks.tolerance is None:
        return False
    return not beyond_tolerance(case, checks.exchanged, _between_two(checks.tolerance), checks.judge_top1)


def _between_two(tolerance: Tolerance) -> Tolerance:
    """The tolerance of two answers that one wrong answer keeps to both: it lies half as far from each, by distance, by
    angle and by share of equal ones."""
    cosine = 2 * (tolerance.cosine or 0.0) ** 2 - 1
    top1 = 2 * (tolerance.top1_agreement or 0.0) - 1
    return Tolerance(
        relative_l2=2 * tolerance.relative_l2,
        cosine=cosine if cosine > 0 else None,
        top1_agreement=top1 if top1 > 0 else None,
    )


def _because(case: Case, problem: Finding, fixed: str) -> Finding:
    """PARITY_FAIL of a model in which tracing fixed a value that may depend on the inputs."""
    detail = f"{problem.flag.detail}; tracing fixed for all inputs what the first one gave: {fixed}"
    remedy = (
        f"Write it with tensors alone (torch.where instead of `if`), or leave {case.backend} out of `{case.model}`: it "
        "runs the trace of one input."
    )
    return finding("F", "PARITY_FAIL", detail, remedy)


def beyond_tolerance(case: Case | LoadCase, parity: Parity, tolerance: Tolerance, judge_top1: bool) -> list[Finding]:
    """A finding for each part of the tolerance that the outputs do not keep; judge_top1: whether answers are one."""
    remedy = (
        f"Compare the outputs of {case.backend} with the reference layer by layer, or, where this loss is acceptable "
        f"for the task, widen `gates.{case.precision}` in the configuration."
    )
    if case.precision == "int8" and case.device == "cpu":
        seven_bits = (
            "a file that came quantised needs weights of 7 bits (reduce_range=True)"
            if case.model.startswith("onnx:")
            else "the export gives weights 7 bits there, which costs accuracy"
        )
        remedy = f"On x86 without VNNI sums of 8-bit products saturate: {seven_bits}. {remedy}"
    findings = []
    # Of the worst sample: a batch with one wholly wrong answer may as a whole be within the tolerance.
    of_sample = "" if parity.item_relative_l2 is None else " of the worst sample"
    if parity.furthest is not None and parity.furthest > tolerance.relative_l2:
        limit, distance = limit_text(tolerance.relative_l2), three_digits(parity.furthest, ROUND_CEILING)
        detail = f"relative L2 distance{of_sample} {distance} is above the tolerance of {limit}"
        findings.append(finding("F", "PARITY_FAIL", detail, remedy))
    cosine = parity.cosine if parity.item_cosine is None else parity.item_cosine
    if cosine is not None and tolerance.cosine is not None and cosine < tolerance.cosine:
        text = f"cosine{of_sample} {rounded_down(cosine, '0.0001')} to the reference"
        detail = f"{text} is below the tolerance of {tolerance.cosine:g}"
        findings.append(finding("F", "PARITY_FAIL", detail, remedy))
    top1, least = parity.top1_agreement, tolerance.top1_agreement
    if judge_top1 and top1 is not None and least is not None and top1 < least:
        detail = (
            f"top-1 agreement {float(100 * rounded_down(top1, '0.001')):g}% is below the tolerance of {100 * least:g}%"
        )
        findings.append(finding("F", "PARITY_FAIL", detail, remedy))
    return findings


def rounded_down(value: float, digit: str) -> Decimal:
    """A value rounded down to a digit, so that a value below a limit is never shown as the limit."""
    return Decimal(str(value)).quantize(Decimal(digit), ROUND_FLOOR)


def three_digits(value: float, rounding: str) -> str:
    """Three significant digits, rounded up or down for the same reason."""
    given = Decimal(str(value))
    rounded = given.quantize(Decimal((0, (1,), given.adjusted() - 2)), rounding) if given.is_finite() else given
    return f"{float(rounded):.2e}"


def limit_text(limit: float) -> str:
    """A limit in scientific notation, with as many digits as it has."""
    return next(text for digits in range(18) if float(text := f"{limit:.{digits}e}") == limit)


def misplaced(case: Case | GenerationCase, records: Sequence[TimedRecord]) -> list[Finding]:
    """Operators that ran on another device, or in another precision, than the label says."""
    # A device is `cuda:1` where there are several: the plan only says which kind.
    # No precision label is wrong for a model without floating-point numbers.
    ran = {
        (
            record.placement.device.partition(":")[0],
            case.precision if record.placement.precision == NO_FLOATS else record.placement.precision,
        )
        for record in records
    }
    wrong = sorted(ran - {(case.device, case.precision)})
    if not wrong:
        return []
    what = ", ".join(f"{precision} on {device}" for device, precision in wrong)
    detail = f"{what} ran where the label says {case.precision} on {case.device}{_cpu_part_of_gpu_row(records)}"
    remedy = f"Ask for what {case.backend} really runs, or turn its automatic choice off; see `placement` in the row."
    if case.precision == "int8":
        remedy = (
            f"Too little of `{case.model}` was quantised, or {case.backend} has no integer kernels for it: leave int8 "
            "out of its rows; `placement` in the row counts what ran."
        )
    if case.precision == "fp8":
        remedy = (
            f"Linear layers of `{case.model}` that fp8 does not take do part of its work (convolutions, attention "
            "modules with weights of their own, sizes that are no multiples of 16): leave fp8 out of its rows."
        )
    return [finding("F", "PLACEMENT", detail, remedy)]


def _cpu_part_of_gpu_row(records: Sequence[TimedRecord]) -> str:
    """The operators and nodes that a GPU row computed on the CPU, where its backend reports them."""
    for record in records:
        settings = record.placement.settings
        if operators := settings.get("computed_on_cpu"):
            nodes = settings.get("nodes_computed_on_cpu")
            return f"; on the CPU: {operators}" + (f" ({nodes})" if nodes else "")
    return ""


def _eager(case: Case, records: Sequence[Measured]) -> list[Finding]:
    hit = [record for record in records if record.placement.ran_eagerly is not None]
    if not hit:
        return []
    where = f"{len(hit)} of {len(records)} rounds"
    detail = f"{hit[0].placement.ran_eagerly}: not all of it ran compiled ({where})"
    remedy = (
        f"TORCH_LOGS=graph_breaks,recompiles names the lines of `{case.model}` that cause it: mend them, or leave "
        f"{case.backend} out."
    )
    return [finding("F", "EAGER_FALLBACK", detail, remedy)]


def unsteady_rounds(records: Sequence[TimedRecord]) -> list[Finding]:
    """Rounds whose warm-up ended before it was steady."""
    unsteady = [record.round for record in records if not record.steady]
    if not unsteady:
        return []
    detail = f"warm-up ended before three windows agreed in {len(unsteady)} of {len(records)} rounds"
    remedy = "Close other programs, or raise `measurement.warmup_max_s`; `make run FORCE=1` measures again."
    # The headline is the median of the rounds: a minority of restless rounds cannot move it far.
    return [finding("C" if 2 * len(unsteady) >= len(records) else "B", "NOT_WARMED_UP", detail, remedy, BESIDES)]


def _intervals(records: Sequence[Measured], latency: Latency, target: float) -> list[Finding]:
    return [*_within_a_process(records, target), *interval_findings(latency)]


def _within_a_process(records: Sequence[Measured], target: float) -> list[Finding]:
    widths = [(record, estimators.relative_half_width(batch_times.blocks_ns(record))) for record in records]
    hit = [(record, width) for record, width in widths if width is None or width > target]
    if not hit:
        return []
    wide = [width for _, width in hit]
    stopped, remedy = _stopped({record.stop for record, _ in hit})
    known = [width for width in wide if width is not None]
    reached = f"at {_width(max(known), target)}" if known else "with too few blocks for an interval"
    rounds = f"{len(wide)} of {len(records)} rounds"
    detail = f"{stopped} in {rounds}, {reached} within one process (goal ±{target:.1%})"
    return [finding("B", "NOT_CONVERGED", detail, f"Close other programs, or raise {remedy}.", BESIDES)]


def _stopped(stops: Set[str]) -> tuple[str, str]:
    """What ended processes whose interval is too wide, and the keys that let them go on."""
    if "converged" in stops:  # a record that says otherwise than its samples was changed
        return "stopped before its goal", "`measurement.max_s`"
    ends = {
        "time limit": ("ran out of time", "`measurement.max_s`"),
        "sample limit": ("reached its limit of samples", "`measurement.max_samples`"),
    }
    reached, keys = zip(*(ends[stop] for stop in ends if stop in stops), strict=True)
    return " or ".join(reached), " and ".join(keys)


def interval_findings(latency: Latency) -> list[Finding]:
    """Findings from the interval over processes, by the end that is further from the median: a median at one end of a
    skewed interval may be off by the whole interval."""
    if latency.rounds < 2:
        detail = "one process: how far another would differ is not known, so there is no interval"
        return [finding("B", "ONE_PROCESS", detail, "Measure more rounds: `make bench ROUNDS=3`.")]
    more = MORE_ROUNDS if latency.rounds < MORE_ROUNDS else 2 * latency.rounds
    remedy = f"Close other programs, or measure more rounds: `make bench ROUNDS={more}`."
    if latency.ci95 is None:
        detail = f"{latency.rounds} processes differ so far that no interval can be given"
        return [finding("C", UNCERTAIN, detail, remedy, SCATTER)]
    half = estimators.relative_interval_half_width(latency.ci95, latency.median)
    if half <= MAX_INTERVAL_HALF_WIDTH:
        return []
    wide = half > MAX_RANKED_HALF_WIDTH
    limit = MAX_RANKED_HALF_WIDTH if wide else MAX_INTERVAL_HALF_WIDTH
    detail = f"the 95% interval over {latency.rounds} processes is {_width(half, limit)}, ±{limit:.0%} allowed"
    return [finding("C" if wide else "B", UNCERTAIN if wide else "WIDE_INTERVAL", detail, remedy, SCATTER)]


def _width(half: float, limit: float) -> str:
    """A half-width above a limit, never rounded to it."""
    # Two processes far apart give widths of many thousand per cent: their digits mean nothing.
    if half > MAX_PRINTED_FACTOR - 1:
        return f"more than ±{MAX_PRINTED_FACTOR - 1:.0%}"
    return f"±{half:.1%}" if round(half, 3) > limit else f"±{math.ceil(half * 1000) / 1000:.1%}"


def _timer(records: Sequence[Measured], latency: Latency) -> list[Finding]:
    overhead_ns = max(record.clock.overhead_ns for record in records)
    # Offline mode times blocks, and no block is that short.
    if latency.median >= MIN_CLOCK_READS * overhead_ns or latency.p50 is None:
        return []
    detail = f"the median of {latency.median:.0f} ns is below {MIN_CLOCK_READS} × the clock's own {overhead_ns} ns"
    return [
        finding("C", "BELOW_TIMER", detail, "Use a larger batch: single inferences are too short to time individually.")
    ]


def round_drift(latency: Latency) -> list[Finding]:
    """A trend of the process medians over the rounds."""
    change = estimators.trend(latency.process_medians)
    if change is None or abs(change) <= MAX_DRIFT:
        return []
    detail = f"over the rounds the medians went {'up' if change > 0 else 'down'}, by {change:+.1%} in all"
    remedy = "Let the machine cool down or warm up to a constant clock, then `make run FORCE=1`."
    return [finding("C", "DRIFT", detail, remedy, MACHINE)]


def speed_groups(latency: Latency) -> list[Finding]:
    """Processes of two speeds."""
    speeds = estimators.two_speeds(latency.process_medians)
    if speeds is None:
        return []
    count = speeds.fast_count + speeds.slow_count
    detail = (
        f"processes come at two speeds: {duration(speeds.fast)} in {speeds.fast_count} of {count}, "
        f"{duration(speeds.slow)} in {speeds.slow_count}"
    )
    remedy = (
        "Read both speeds instead of the median, which is one of them or lies between; look for what differs between "
        "processes (placement of memory and threads, the clock), and measure more rounds: `make bench ROUNDS=10`."
    )
    return [finding("A", "TWO_SPEEDS", detail, remedy, MACHINE)]


def compile_cached(records: Sequence[TimedRecord]) -> list[Finding]:
    """A compile time that is not the full cost."""
    compiled = [record.cold_ns for record in records if record.cold_ns.compile is not None]
    if not compiled or not all(cold.compile_cached for cold in compiled):
        return []
    detail = "every process found a compile cache, so the compile time shown is not the full cost"
    return [finding("A", "COMPILE_CACHED", detail, "`make run FORCE=1` compiles again and shows it.")]


def made_on_purpose(records: Sequence[TimedRecord]) -> list[Finding]:
    """Behaviour that only serves a test of the harness."""
    notes = dict.fromkeys(note for record in records for note in record.notes)
    return [
        finding("A", "ON_PURPOSE", note, "Never publish this row: it was made to test the harness.") for note in notes
    ]


def _calibration(case: Case) -> Finding:
    if is_spin(case.model):
        detail = f"{case.backend} waits the time that its model names: what is beside it is the harness's error"
        return finding("A", CALIBRATION, detail, "Nothing to do: `make selftest` judges such work.")
    detail = f"{case.backend} computes nothing: its latency is the overhead of the harness"
    return finding("A", "CALIBRATION", detail, "Nothing to do: read it as the smallest latency that can be measured.")


class GroupKey(NamedTuple):
    """The common fields of a group of rows: the only list of the fields that distinguish rows. A field in which they
    may differ is None; so is the sequence length of a model without one."""

    model: str
    weights: Weights
    device: Device
    boundary: Boundary | None = None
    mode: ModeName | None = None
    sequence_length: int | None = None
    batch_size: int | None = None
    backend: str | None = None
    precision: Precision | None = None
    setting: str | None = None

    @classmethod
    def of(cls, row: Row | Case) -> GroupKey:
        """All fields that distinguish a row from the others of its summary."""
        return cls(*_fields_of(row))

    def without(self, *fields: str) -> GroupKey:
        """The key of the larger group whose rows may differ in these fields, too."""
        values: list[Any] = list(self)
        for field in fields:  # not model, weights and device
            values[_PLACES[field]] = None
        return GroupKey(*values)


_fields_of = attrgetter(*GroupKey._fields)
_PLACES = {field: place for place, field in enumerate(GroupKey._fields)}


def flag_names(row: Row) -> list[str]:
    """The flags that cost the row its grade, each once; notes are left out."""
    return names_of(flag for flag in row.flags if not flag.is_note)


def status_text(row: Row | GenerationRow) -> str:
    """The status of a row that was not measured, and why."""
    return f"{row.status}: {row.reason}" if row.reason else row.status


def grade_text(row: Row | GenerationRow) -> str:
    """The grade of a row and its flags: `grade C: NOT_CONVERGED, STEAL`."""
    return f"grade {row.grade}: {', '.join(names_of(row.flags))}"


def is_accuracy_known(row: Row) -> bool:
    """Whether the row's distance from the reference shows its accuracy, also where no tolerance judges it."""
    unknown = any(flag.name == PARITY_UNCHECKED and flag.detail in (NOT_COMPARED, ALIKE) for flag in row.flags)
    return row.parity is not None and not unknown


def is_calibration(row: Row | GenerationRow) -> bool:
    """True where the row shows the harness overhead."""
    return any(flag.name == CALIBRATION for flag in row.flags)


def median_ns(row: Row) -> float:
    """The headline of one batch in ns; infinite where nothing was measured, so that such a row is never the fastest."""
    return row.latency_ns.median if row.latency_ns else math.inf


def medians_per_sample(row: Row) -> tuple[float, ...]:
    """Process medians in ns per sample; empty without a latency."""
    return tuple(median / row.batch_size for median in row.latency_ns.process_medians) if row.latency_ns else ()


def medians_by_round(row: Row) -> dict[int, float]:
    """Process median in ns by round; empty for a row that has none."""
    latency = row.latency_ns
    if latency is None:
        return {}
    numbers = latency.process_rounds or range(1, len(latency.process_medians) + 1)
    return dict(zip(numbers, latency.process_medians, strict=True))


def slug_of(row: Row) -> str:
    """The folder name of the row's model, with which its case id begins: unique, short and of plain characters."""
    return row.case_id.rpartition(f"-{row.backend}-{row.device}-{row.precision}-b")[0] or row.model


MIN_SAMPLED_SHARE = 0.97
"""Share of the wall time of blocks that the samples must cover; the rest is choosing the next input. In the published
runs at least 99.2%, with what MAX_BETWEEN_NS allows. Fewer were taken out, or made shorter."""

MAX_BETWEEN_NS: Mapping[Device, int] = {"cpu": 15_000, "cuda": 25_000}
"""For each sample, beyond that share: a GPU's inputs and events take a median of 9 and 15 µs between two samples of the
published H200 runs. On a CPU, ONNX Runtime has up to 4 µs between passes of up to 100 µs, and OpenVINO, which takes
another tensor by a call, 6 to 15 µs on a guest with two CPUs at changing speeds."""

MIN_BLOCKS_SHARE = 0.9
"""Of the timed part that blocks and reads of outputs cover: 92% and more with five processes on each CPU."""

BESIDE_NS = 50_000_000
"""Beside that: keeping the first outputs, and the piece of work that shows the clock."""

LONG = 5
"""Multiple of the process median: no scatter of an undisturbed inference reaches it."""

LONG_BLOCK = 2
"""Multiple of the median of blocks, where only blocks are timed: its mean scatters less than single iterations do."""

MAX_LONG_SHARE = 0.05
"""Of a process's time in long iterations, for grade A: the widest interval of grade A, by which the mean may then be
off from the median."""

MAX_LONG_SHARE_RANKED = 0.2
"""Beyond it the median is not the time that a caller waits."""

_REPEAT = "Run it again (`make run FORCE=1`); if it stays, the loop of its mode has a fault."


NONE_WAITED: Mapping[int, int] = MappingProxyType({})


def in_flight(case: Case) -> int:
    """Batches at a time in the mode of a case; at the transfer boundary of a GPU copies run ahead and behind."""
    if case.mode != "pipelined":
        return 1
    return 3 if (case.device, case.boundary) == ("cuda", "transfer") else 2


def mismatch(case: Case, records: Sequence[Measured], waited_ns: Mapping[int, int] = NONE_WAITED) -> list[Finding]:
    """F where samples together are longer than the time in which they were taken; C where they leave much of it out.

    With k batches in flight each instant belongs to k samples. The first samples of a block began before it, so k - 1
    of them are not held against it; the last samples are not counted to their end, so the last counts k times.
    waited_ns: by round, how long a process that STARVED reports waited for a CPU. It waits between samples too.
    """
    depth = in_flight(case)
    timed = [(record, [*_samples_by_block(record)] if record.latency_ns else []) for record in records]
    over = {record.round: why for record, blocks in timed if (why := _over(record, blocks, depth))}
    reasons = over or {
        record.round: why
        for record, blocks in timed
        if (why := _under(record, blocks, depth, case.device, waited_ns) or _uncovered(record, waited_ns))
    }
    if not reasons:
        return []
    number, detail = next(iter(reasons.items()))
    caps_at: Grade = "F" if over else "C"
    return [finding(caps_at, "SAMPLES_MISMATCH", f"round {number}: {detail}", _REPEAT, _lost_time(caps_at))]


def long_iterations(records: Sequence[TimedRecord]) -> list[Finding]:
    """B where a round has more than a small part of its time in long iterations, C where most have a large part."""
    shares = {record.round: _long(record) for record in records}
    hit = {number: pair for number, pair in shares.items() if pair[1] > MAX_LONG_SHARE}
    if not hit:
        return []
    large = sum(share > MAX_LONG_SHARE_RANKED for _, share in hit.values())
    caps_at: Grade = "C" if 2 * large >= len(records) else "B"
    number, (count, share) = max(hit.items(), key=lambda item: item[1][1])
    what = f"{count} iterations of more than {_limit(records)} times the median took {share:.0%} of the time"
    where = f"round {number}" if len(hit) == 1 else f"{len(hit)} of {len(records)} rounds, the worst of them {number}"
    remedy = "See whether it compiles, allocates or waits now and then (`make profile`); a median does not show that."
    return [finding(caps_at, "LONG_ITERATIONS", f"{where}: {what}, {MAX_LONG_SHARE:.0%} allowed", remedy, MACHINE)]


def _lost_time(caps_at: Grade) -> frozenset[str]:
    """What may explain time that samples leave out (C); nothing makes them longer than the time that passed (F)."""
    return frozenset() if caps_at == "F" else MACHINE


def longest_pause_ns(record: TimedRecord) -> float:
    """The longest time for which something may have held a round, by its samples: what the longest sample, also of the
    warm-up, has more than the shortest, or the time of a block that its samples leave out. Where only blocks are timed:
    what a block has more than the fastest one takes for as many iterations. All of the only sample, or block."""
    if not record.latency_ns:
        rates = [block.wall_ns / block.iterations for block in record.blocks]
        least_ns = min(rates) if len(rates) > 1 else 0
        return max(block.wall_ns - block.iterations * least_ns for block in record.blocks)
    samples = (*record.latency_ns, *record.warmup_ns)
    between = (block_ns - sum(times) for times, block_ns in _samples_by_block(record))
    return max(max(samples) - (min(samples) if len(samples) > 1 else 0), *between)


def _limit(records: Sequence[TimedRecord]) -> int:
    return LONG if records[0].latency_ns else LONG_BLOCK


_Blocks = Sequence[tuple[tuple[int, ...], int]]


def _over(record: Measured, blocks: _Blocks, depth: int) -> str | None:
    wall_ns, window = batch_times.wall_ns(record), record.cpu_use
    if window is not None and wall_ns > window.wall_ns:
        return f"its blocks took {wall_ns / 1e9:.3f} s in a window of {window.wall_ns / 1e9:.3f} s"
    if not record.latency_ns:
        return None
    if sum(block.iterations for block in record.blocks) != len(record.latency_ns):
        return f"{batch_times.batch_count(record)} iterations in its blocks and {len(record.latency_ns)} samples"
    for samples, block_ns in blocks:
        if sum(samples[depth - 1 :] if depth > 1 else samples) > depth * block_ns:
            times = f"{sum(samples) / 1e9:.3f} s of samples in a block of {block_ns / 1e9:.3f} s"
            return f"{times} with {depth} in flight: samples are longer than the time in which they were taken"
    return None


def _under(record: Measured, blocks: _Blocks, depth: int, device: Device, waited_ns: Mapping[int, int]) -> str | None:
    if not record.latency_ns:
        return None
    covered = sum(sum(samples) + (depth - 1) * samples[-1] for samples, _ in blocks if samples)
    depth_wall_ns = depth * batch_times.wall_ns(record)
    between_ns = MAX_BETWEEN_NS[device] * len(record.latency_ns) + waited_ns.get(record.round, 0)
    if covered >= MIN_SAMPLED_SHARE * depth_wall_ns - depth * between_ns:
        return None
    share = covered / depth_wall_ns
    return f"its samples cover {share:.0%} of the wall time of its blocks, {MIN_SAMPLED_SHARE:.0%} needed"


def requests_mismatch(records: Sequence[Generated], waited_ns: Mapping[int, int] = NONE_WAITED) -> list[Finding]:
    """The findings of `mismatch` for requests, which follow each other from the start of the warm-up."""
    reasons: dict[int, tuple[Grade, str]] = {}
    for record in records:
        span_ns = record.requests[-1].token_ns[-1] - (record.warmups or record.requests)[0].start_ns
        window_ns = record.cpu_use.wall_ns
        what = f"its requests took {span_ns / 1e9:.3f} s in a window of {window_ns / 1e9:.3f} s"
        if span_ns > window_ns:
            reasons[record.round] = "F", what
        elif span_ns < MIN_BLOCKS_SHARE * window_ns - BESIDE_NS - waited_ns.get(record.round, 0):
            reasons[record.round] = "C", f"{what}, {MIN_BLOCKS_SHARE:.0%} needed"
    if not reasons:
        return []
    number, (caps_at, detail) = min(reasons.items(), key=lambda entry: entry[1][0] != "F")
    return [finding(caps_at, "SAMPLES_MISMATCH", f"round {number}: {detail}", _REPEAT, _lost_time(caps_at))]


def _uncovered(record: Measured, waited_ns: Mapping[int, int]) -> str | None:
    """How much of the timed part neither its blocks nor reads of outputs cover."""
    window, reads = record.cpu_use, record.outputs_time
    if window is None or record.windows or record.warmup_wall_ns is None:
        return None
    timed_ns = window.wall_ns - record.warmup_wall_ns
    known_ns = batch_times.wall_ns(record) + (sum(reads.outputs_ns) if reads else 0)
    if known_ns >= MIN_BLOCKS_SHARE * timed_ns - BESIDE_NS - waited_ns.get(record.round, 0):
        return None
    known = f"its blocks and what runs between them took {known_ns / 1e9:.3f} s"
    return f"{known} of the {timed_ns / 1e9:.3f} s that the timed part took, {MIN_BLOCKS_SHARE:.0%} needed"


def _long(record: TimedRecord) -> tuple[int, float]:
    """(number of long iterations, their share of the time); of blocks in offline mode, which times nothing shorter."""
    times: Sequence[float] = record.latency_ns or [block.wall_ns / block.iterations for block in record.blocks]
    if max(times) <= _limit([record]) * min(times):  # so none is beyond that multiple of the median
        return 0, 0.0
    limit = _limit([record]) * estimators.median(times)
    if record.latency_ns:
        longer = [time for time in times if time > limit]
        return len(longer), sum(longer) / sum(times) if longer else 0.0
    weights = [block.iterations for block in record.blocks]
    long = [(time, weight) for time, weight in zip(times, weights, strict=True) if time > limit]
    total = sum(time * weight for time, weight in zip(times, weights, strict=True))
    long_total = sum(time * weight for time, weight in long)
    return sum(weight for _, weight in long), long_total / total if total else 0.0


def _samples_by_block(record: TimedRecord) -> Iterator[tuple[tuple[int, ...], int]]:
    """(samples of a block, its wall time)."""
    ends = accumulate((block.iterations for block in record.blocks), initial=0)
    for (first, last), block in zip(pairwise(ends), record.blocks, strict=True):
        yield record.latency_ns[first:last], block.wall_ns
