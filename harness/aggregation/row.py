"""Records of one case → its figures and findings; with the comparisons with other rows → its row (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from harness.aggregation import batch_times, flags, grades, more_rounds
from harness.aggregation import (
    usage as utilisation,
)
from harness.aggregation.causes import with_causes
from harness.aggregation.checks import (
    check_rounds,
    check_work,
    stop_findings,
    timed_rounds,
    unchecked_findings,
)
from harness.aggregation.flags import Criteria
from harness.aggregation.flags_gpu import device_findings
from harness.aggregation.grades import Finding, finding
from harness.core.host.environment import PLUGIN
from harness.core.schemas import (
    Case,
    Check,
    ColdCosts,
    DeviceSamples,
    DeviceTimes,
    Environment,
    Failed,
    Grade,
    Interval,
    Kind,
    Latency,
    LatencyPart,
    Measured,
    Measurement,
    ModeName,
    Parity,
    Roofline,
    Row,
    Speedup,
    Split,
    Status,
    TimedRecord,
    UsageSummary,
)
from harness.statistics import estimators
from harness.statistics.parity import worst_sample


def split_of(records: Sequence[Measured]) -> Split | None:
    """Median of process medians of each part, and its mean share of a process's time; None without parts."""
    parts = [record.split_ns for record in records if record.split_ns is not None]
    totals = [sum(part.preprocess) + sum(part.inference) + sum(part.postprocess) for part in parts]
    if not parts or not all(totals):
        return None
    return Split(
        preprocess=_part([part.preprocess for part in parts], totals),
        inference=_part([part.inference for part in parts], totals),
        postprocess=_part([part.postprocess for part in parts], totals),
    )


def _part(samples: Sequence[Sequence[int]], totals: Sequence[int]) -> LatencyPart:
    medians = [estimators.median(values) for values in samples]
    shares = [sum(values) / total for values, total in zip(samples, totals, strict=True)]
    return LatencyPart(median_ns=estimators.median(medians), share=sum(shares) / len(shares))


def device_times_of(records: Sequence[Measured], mode: ModeName) -> DeviceTimes | None:
    """Medians of process medians, in ns per batch; None where no process timed its samples by a GPU's clock."""
    clocks = [record.device.clock for record in records if record.device is not None]
    times = [pair for record in records if (pair := _per_batch(record)) is not None]
    if not times:
        return None
    medians = [device for device, _ in times]
    samples = [record.device for record in records if record.device is not None]
    return DeviceTimes(
        clock=clocks[0],
        device=estimators.median(medians),
        device_ci95=estimators.median_interval(medians),
        enqueue=estimators.median([enqueue for _, enqueue in times]),
        h2d=_part_of_device_times([sample.h2d_ns for sample in samples]),
        compute=_part_of_device_times([sample.compute_ns for sample in samples]),
        d2h=_part_of_device_times([sample.d2h_ns for sample in samples]),
        overlap=_overlap(records) if mode == "pipelined" else None,
    )


def hidden_share(batch_ns: float, compute_ns: float, copies_ns: float) -> float | None:
    """Share of the copies' time that ran behind computing, from 0 to 1; None where there are no copies.

    batch_ns: wall time of a full pipeline per batch; compute_ns, copies_ns: of one batch, by events while the others
    ran. The time of a batch beyond its pass was not hidden; time in which nothing ran counts as not hidden, too.
    """
    if copies_ns <= 0:
        return None
    return min(1.0, max(0.0, 1 - (batch_ns - compute_ns) / copies_ns))


def _overlap(records: Sequence[Measured]) -> float | None:
    """Median over processes; each from all of its blocks and the medians of its parts."""
    shares = [share for record in records if (share := _hidden(record)) is not None]
    return estimators.median(shares) if shares else None


def _hidden(record: Measured) -> float | None:
    device, batches = record.device, batch_times.batch_count(record)
    if device is None or not device.h2d_ns or not batches:
        return None
    h2d, compute, d2h = (estimators.median(part) for part in (device.h2d_ns, device.compute_ns, device.d2h_ns))
    return hidden_share(batch_times.wall_ns(record) / batches, compute, h2d + d2h)


def _per_batch(record: Measured) -> tuple[float, float] | None:
    """Device and enqueue time of one process: medians of its samples, or all its blocks divided by their batches."""
    if record.device is None:
        return None
    if record.device.device_ns:
        return _medians(record.device)
    # A block has both or neither (schemas.Block).
    blocks = [(b.iterations, b.device_ns, b.enqueue_ns or 0) for b in record.blocks if b.device_ns is not None]
    batches = sum(iterations for iterations, _, _ in blocks)
    if not batches:
        return None
    return sum(device for _, device, _ in blocks) / batches, sum(enqueue for *_, enqueue in blocks) / batches


def _medians(samples: DeviceSamples) -> tuple[float, float]:
    return estimators.median(samples.device_ns), estimators.median(samples.enqueue_ns)


def _part_of_device_times(processes: Sequence[Sequence[int]]) -> float | None:
    medians = [estimators.median(samples) for samples in processes if samples]
    return estimators.median(medians) if medians else None


@dataclass(frozen=True)
class CaseRecords:
    """The records of one case, and its unusable files.

    measured, failed: the records that belong to the plan, in round order.
    left_out: (round, reason) of records that exist and must not be used.
    damaged: (round, problem) of files that cannot be read.
    figures: of the samples of each measured record (with_figures); None in offline mode, which has no samples.
    usage: the monitor's summary, by round, where there is one; unwatched: why there is none in the other rounds.
    environment: of the measured records; they all agree in the facts that are read from it.
    """

    measured: tuple[Measured, ...]
    failed: tuple[Failed, ...]
    left_out: tuple[tuple[int, str], ...] = ()
    damaged: tuple[tuple[int, str], ...] = ()
    figures: Sequence[estimators.ProcessFigures] | None = None
    usage: Mapping[int, UsageSummary] = field(default_factory=dict)
    unwatched: Mapping[int, str] = field(default_factory=dict)
    environment: Environment | None = None


@dataclass(frozen=True)
class Draft:
    """The result of the records of one case by themselves.

    row: its figures, without grade, flags and checks, which also depend on a Context.
    findings, checks: of the records. calibration: the backend computes nothing. started: its processes, as ISO 8601.
    """

    row: Row
    findings: tuple[Finding, ...] = ()
    checks: Mapping[str, Check] = field(default_factory=dict)
    calibration: bool = False
    started: tuple[str, ...] = ()

    @cached_property
    def is_sound(self) -> bool:
        """True where it was measured and nothing in its records makes it void."""
        return self.row.status == "measured" and grades.grade(self.findings) != "F"


@dataclass(frozen=True)
class Context:
    """Facts about a row that only the limits of the device and other rows show.

    findings, checks: of the limits. slower: NONMONOTONE, where a larger batch is faster. tried: another setting won.
    """

    roofline: Roofline | None = None
    findings: tuple[Finding, ...] = ()
    checks: Mapping[str, Check] = field(default_factory=dict)
    slower: Finding | None = None
    tried: bool = False
    speedup: Speedup | None = None


NO_CONTEXT = Context()


def build_row(draft: Draft, context: Context = NO_CONTEXT) -> Row:
    """The row of a case: its figures, all findings about it, and the grade that follows."""
    findings = _findings(draft, context)
    grade = grades.grade(findings) if draft.row.status == "measured" else None
    update: dict[str, Any] = {
        "grade": grade,
        "flags": tuple(problem.flag for problem in findings),
        "checks": {**draft.checks, **context.checks},
        "roofline": context.roofline,
        "tried": context.tried,
        "speedup": context.speedup,
    }
    # Only the figures of a void row move.
    return Row(**{**dict(draft.row), **update}) if grade == "F" else draft.row.model_copy(update=update)


def grade_of(draft: Draft, context: Context) -> Grade | None:
    """The worst grade that any finding leaves; None for a case that was not measured."""
    return grades.grade(_findings(draft, context)) if draft.row.status == "measured" else None


def _findings(draft: Draft, context: Context) -> list[Finding]:
    checks = {**draft.checks, **context.checks}
    slower = [] if context.slower is None else [context.slower]
    return with_causes([*draft.findings, *context.findings, *unchecked_findings(checks), *slower])


def draft_of(case: Case, kind: Kind, records: CaseRecords, settings: Measurement, checks: Criteria) -> Draft:
    """The draft of one case without the others: measured, else failed, else skipped or missing."""
    if case.skip_reason is not None:
        return Draft(_row(case, kind, "skipped", reason=case.skip_reason))
    if records.measured:
        return _measured(case, kind, records, settings, checks)
    damage = tuple(_damage(records))
    if records.failed:
        last = records.failed[-1]
        if last.refused:
            return Draft(_row(case, kind, "skipped", reason=last.error, hint=last.hint), damage)
        return Draft(_row(case, kind, "failed", reason=f"{last.phase}: {last.error}", hint=last.hint), damage)
    reason = "; ".join(dict.fromkeys(why for _, why in (*records.left_out, *records.damaged)))
    return Draft(missing_row(case, kind, reason or "never measured", "Run `make run`."), damage)


def missing_row(case: Case, kind: Kind, reason: str, hint: str) -> Row:
    """The row of a case that has no samples."""
    return _row(case, kind, "missing", reason=reason, hint=hint)


QUANTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99}


def with_figures(block: Sequence[tuple[Case, CaseRecords]]) -> Iterator[tuple[Case, CaseRecords]]:
    """Some cases with their records, each with the figures of its samples, which are computed together."""
    samples = [
        [] if case.mode == "offline" else [record.latency_ns for record in records.measured] for case, records in block
    ]
    figures = iter(estimators.process_figures([process for processes in samples for process in processes]))
    for (case, records), processes in zip(block, samples, strict=True):
        yield case, replace(records, figures=[next(figures) for _ in processes]) if processes else records


def latency_of(records: Sequence[Measured]) -> Latency:
    """Statistics over the rounds. Every figure except the largest sample and the number of samples is computed in each
    process, and the row has its median over processes: a process with more samples does not weigh more.
    """
    return latency_over(estimators.process_figures([record.latency_ns for record in records]))


def latency_over(processes: Sequence[estimators.ProcessFigures]) -> Latency:
    """As latency_of, from the figures of each process."""
    medians, counts = tuple(process.median for process in processes), [process.size for process in processes]
    known = {"p50": medians} | {
        name: tuple(process.percentiles[quantile] for process in processes)
        for name, quantile in QUANTILES.items()
        if estimators.are_enough(counts, quantile)
    }
    intervals = {name: estimators.median_interval(values) for name, values in known.items()}
    middles = {name: estimators.median(values) for name, values in known.items()}
    correlations = [process.lag1_autocorrelation for process in processes if process.lag1_autocorrelation is not None]
    variations = [process.variation for process in processes if process.variation is not None]
    return Latency(
        median=middles["p50"],
        ci95=intervals["p50"],
        p50=middles["p50"],
        p90=middles.get("p90"),
        p95=middles.get("p95"),
        p99=middles.get("p99"),
        max=max(process.largest for process in processes),
        mean=estimators.median([process.mean for process in processes]),
        iqr=estimators.median([process.iqr for process in processes]),
        cv=estimators.median(variations) if variations else None,
        lag1_autocorrelation=estimators.median(correlations) if correlations else None,
        n=sum(counts),
        rounds=len(processes),
        process_medians=medians,
        percentile_ci95={name: interval for name, interval in intervals.items() if interval is not None},
    )


def throughput_of(batch_size: int, records: Sequence[Measured]) -> tuple[float | None, Interval | None]:
    """Samples per second of wall time of the timed blocks, never 1 / mean latency: median over processes, 95% interval.

    Each process has one rate. The median is taken over the times per batch: for an odd number of processes that is the
    median rate, and for an even number it agrees with the time per batch that offline rows show.
    """
    times = [time for record in records if (time := batch_times.wall_per_batch_ns(record)) is not None]
    if not times or min(times) <= 0:
        return None, None
    samples = batch_size * 1e9
    interval = estimators.median_interval(times)
    return samples / estimators.median(times), interval and Interval(
        low=samples / interval.high, high=samples / interval.low
    )


def cold_costs_of(records: Sequence[TimedRecord]) -> ColdCosts:
    """Median load and first inference; the largest compile time of the processes without a cache, else of all."""
    costs = [record.cold_ns for record in records]
    compiles = [(cost.compile, cost.compile_cached) for cost in costs if cost.compile is not None]
    full = [compile_ns for compile_ns, cached in compiles if not cached]
    return ColdCosts(
        load=round(estimators.median([cost.load for cost in costs])),
        compile=max(full or [compile_ns for compile_ns, _ in compiles], default=None),
        compile_cached=(not full and any(cached for _, cached in compiles)) if compiles else None,
        first_inference=round(estimators.median([cost.first_inference for cost in costs])),
    )


def worst_parity(records: Sequence[Measured]) -> Parity | None:
    """The largest distance from the reference that any round showed, before or during timing, figure by figure.

    A share of equal answers needs many answers: it comes from the checks with the most inputs, in round 1 all inputs
    unless batches are large. With eight answers, of which int8 may change one, chance would decide.
    """
    parities = [parity for record in records for parity in (record.parity_before, record.parity_timed) if parity]
    if not parities:
        return None
    lost = any(parity.nonfinite for parity in parities)
    shares = [(parity.samples, parity.top1_agreement) for parity in parities if parity.top1_agreement is not None]
    most = max((samples for samples, _ in shares), default=0)
    cosines = [parity.cosine for parity in parities if parity.cosine is not None]
    return Parity(
        samples=min(parity.samples for parity in parities),
        relative_l2=None if lost else max((p.relative_l2 for p in parities if p.relative_l2 is not None), default=None),
        max_abs=None if lost else max((p.max_abs for p in parities if p.max_abs is not None), default=None),
        cosine=None if lost else min(cosines, default=None),
        top1_agreement=min((share for samples, share in shares if samples == most), default=None),
        nonfinite=max(parity.nonfinite for parity in parities),
        **worst_sample(parities),
    )


def _measured(case: Case, kind: Kind, case_records: CaseRecords, settings: Measurement, checks: Criteria) -> Draft:
    records = case_records.measured
    numbers = tuple(record.round for record in records)
    if case.mode == "offline":
        latency = batch_times.offline_of(records)
    else:
        latency = latency_of(records) if case_records.figures is None else latency_over(case_records.figures)
    if numbers != tuple(range(1, len(records) + 1)):
        latency = latency.model_copy(update={"process_rounds": numbers})
    parity, device = worst_parity(records), device_times_of(records, case.mode)
    rate, rate_interval = throughput_of(case.batch_size, records)
    row = _row(
        case,
        kind,
        "measured",
        latency_ns=latency,
        split=split_of(records),
        device_ns=device,
        throughput_per_s=rate,
        throughput_ci95=rate_interval,
        parity=parity,
        placement=records[-1].placement,
        memory_bytes=max(record.memory.peak_rss_bytes for record in records),
        cold_ns=cold_costs_of(records),
        threads=records[0].threads,
        clock=records[0].clock,
        artifacts=records[0].artifacts,
        usage=utilisation.merged_usage(list(case_records.usage.values())),
        stopped=more_rounds.why_stopped(numbers, latency.process_medians, settings, failed=bool(case_records.failed)),
        plugin=case_records.environment.software.build.get(PLUGIN) if case_records.environment else None,
    )
    proof = flags.flags_for(case, records, latency, parity, checks)
    lost = _round_findings(case_records, _required_rounds(case, case_records, settings))
    seen = timed_rounds(records, case_records.usage, case_records.unwatched, case_records.environment)
    if checks.calibration:
        return Draft(row, (*proof, *lost, *stop_findings(seen)), calibration=True)
    happened, made = check_rounds(case, seen)
    skipped, compared = check_work(case, records)
    gpus = [usage.gpu for usage in case_records.usage.values() if usage.gpu is not None]
    findings = (*proof, *lost, *device_findings(case, latency, device, gpus), *happened, *skipped)
    return Draft(row, findings, {**made, **compared}, started=tuple(record.started_at for record in records))


_OF_CASE = (
    *("case_id", "model", "backend", "device", "precision", "batch_size", "sequence_length", "boundary", "mode"),
    *("weights", "setting"),
)


def _row(case: Case, kind: Kind, status: Status, **known: Any) -> Row:
    """A row that names its case and has the figures that are given."""
    of_case = {name: getattr(case, name) for name in _OF_CASE}
    return Row(**of_case, kind=kind, status=status, **known)


def _required_rounds(case: Case, records: CaseRecords, settings: Measurement) -> int:
    """Rounds that a case must have: a setting that lost in round 1 gets no further rounds, and misses none."""
    only_tried = case.tuned and {record.round for record in records.measured} == {1}
    return 1 if only_tried else settings.rounds


def _round_findings(records: CaseRecords, rounds: int) -> list[Finding]:
    unused = {**dict(records.left_out), **{number: "damaged file" for number, _ in records.damaged}}
    return [*missing_rounds(rounds, records.measured, records.failed, unused, "make run"), *_damage(records)]


def missing_rounds(
    rounds: int, measured: Sequence[TimedRecord], failed: Sequence[Failed], unused: Mapping[int, str], command: str
) -> list[Finding]:
    """Findings about rounds that the plan asked for and the row does not contain.

    unused: why a file of a round is not used. command: measures the missing rounds.
    """
    have = {record.round for record in measured if record.round <= rounds}
    why = {number: "no record" for number in range(1, rounds + 1) if number not in have}
    why |= {record.round: f"failed ({record.phase}: {record.error})" for record in failed}
    why |= unused
    # Further rounds are extra: without one of them the plan's own rounds are still complete.
    texts = [f"round {number}: {text}" for number, text in sorted(why.items()) if number <= rounds]
    if not texts:
        return []
    detail = f"{len(have)} of {rounds} rounds; {'; '.join(texts)}"
    return [finding("B", "ROUNDS_MISSING", detail, f"Run `{command}`: it measures only what is missing.")]


def _damage(records: CaseRecords) -> list[Finding]:
    return [
        finding("B", "DAMAGED_FILE", problem, "Run `make run`: damaged files are measured again.")
        for _, problem in records.damaged
    ]
