"""Records of the cases of generation → their rows, with flags, checks and the grade that follows (pure).

A row of grade A has passed every check that applies: tokens, cache reuse, placement, and those of the machine that rows
of `run` have too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import Any

from harness.aggregation import admission, flags, flags_host, grades
from harness.aggregation import usage as utilisation
from harness.aggregation.admission import References
from harness.aggregation.causes import with_causes
from harness.aggregation.checks import (
    MAX_REPEAT_RATIO,
    REPEAT_CONFIDENCE,
    REPEATS,
    check_machine,
    combined_check,
    repeat_interval,
    timed_rounds,
    unchecked_findings,
)
from harness.aggregation.grades import Finding, finding
from harness.aggregation.roofline import bounds_of, too_fast
from harness.aggregation.row import cold_costs_of, missing_rounds
from harness.core.errors import FormatError, StorageError
from harness.core.schemas import (
    ELEMENT_BYTES,
    CacheSize,
    Check,
    CpuRoof,
    Energy,
    Environment,
    Failed,
    Generated,
    GeneratedRequest,
    GenerationCase,
    GenerationExport,
    GenerationRow,
    Interval,
    Latency,
    LoadCase,
    Placement,
    Plan,
    Repeats,
    ReuseCheck,
    Roof,
    Row,
    Status,
    TokenEnergy,
    TokenParity,
    TokenRates,
    TokenTimes,
    Tolerance,
    Usage,
    UsageSummary,
    VoidGeneration,
)
from harness.statistics.estimators import median, median_interval
from harness.statistics.parity import worst_token_parity
from harness.statistics.token_times import (
    RequestInstants,
    Values,
    context_times,
    itls,
    per_sequence_rate,
    token_times,
    total_rate,
    tpots,
    ttfts,
)

ROUNDINGS = 2.0
"""Times the distance that rounding alone makes. Two right ways to compute the same differ by less: on an H200 in fp16
at 1,024 tokens, a 1.24 B Llama shape was at 2.88e-2 in eager and in Inductor's kernels, SmolLM2 at 1.36e-2 and 1.03e-2
(results/published/h200/2026-11-30-generation)."""

MAX_ROUNDED = 0.1
"""Relative L2 beyond which rounding and a fault look the same (docs/decisions/0035-decoders.md)."""

TOKENS = "TOKENS_DIFFER"
FLIP = "TOKEN_FLIP"
CACHE = "STALE_CACHE"

LoadGenerated = Callable[[str, int], Generated | Failed | None]
"""(case id, round) → the record, None where there is none; raises FormatError or StorageError where it is unusable."""
LoadUsage = Callable[[str, int], Usage | None]

_OF_CASE = (
    *("case_id", "model", "backend", "device", "precision", "batch_size", "prompt_length", "new_tokens"),
    *("weights", "setting"),
)


@dataclass
class GenerationRecords:
    """The records of one case: measured and failed in round order; other: why a file of a round is not used."""

    measured: list[Generated] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    other: dict[int, str] = field(default_factory=dict)
    usage: dict[int, UsageSummary] = field(default_factory=dict)
    unwatched: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GenerationSource:
    """Everything that the rows are made from, besides their records. exports: by model; absent: why a model has none.
    calibration: backends that compute nothing. roof: measured limits; energies: by case id. environments: by id."""

    plan: Plan
    exports: Mapping[str, GenerationExport]
    absent: Mapping[str, str]
    environments: Mapping[str, Environment]
    calibration: frozenset[str]
    roof: Roof | CpuRoof | None = None
    energies: Mapping[str, Energy] = field(default_factory=dict)


def generation_rows(
    source: GenerationSource, load: LoadGenerated, load_usage: LoadUsage, note: Callable[[str], object]
) -> tuple[GenerationRow, ...]:
    """A row for every planned case, in plan order. note: called with a sentence about each omission."""
    cases = source.plan.generations
    read = {case.case_id: _read(source.plan, case, load, note) for case in cases}
    agreed, copies = _agreed(cases, read, source.environments), admission.Copied()
    rows = []
    for case in cases:
        records = _admitted(source, case, read[case.case_id], agreed, copies, note)
        _add_usage(records, load_usage, note)
        rows.append(generation_row(source, case, records))
    return tuple(rows)


def used_environments(
    plan: Plan, rows: Iterable[GenerationRow], load: LoadGenerated, environments: Mapping[str, Environment]
) -> tuple[set[str], list[str]]:
    """Ids of the environments of measured rows, and when their processes started."""
    used: set[str] = set()
    started: list[str] = []
    for row in rows:
        if row.status != "measured":
            continue
        for number in range(1, plan.measurement.rounds + 1):
            try:
                record = load(row.case_id, number)
            except (FormatError, StorageError):
                continue
            if isinstance(record, Generated) and record.environment_id in environments:
                used.add(str(record.environment_id))
                started.append(record.started_at)
    return used, started


def generation_row(source: GenerationSource, case: GenerationCase, records: GenerationRecords) -> GenerationRow:
    """The row of one case: measured, else failed, else skipped or missing."""
    if case.skip_reason is not None:
        return _row(case, "skipped", reason=case.skip_reason)
    if records.measured:
        return _measured(source, case, records)
    if records.failed:
        last = records.failed[-1]
        return _row(case, "failed", reason=f"{last.phase}: {last.error}", hint=last.hint)
    reason = "; ".join(dict.fromkeys(records.other.values())) or "never measured"
    return _row(case, "missing", reason=reason, hint="Run `make generate`.")


def _measured(source: GenerationSource, case: GenerationCase, case_records: GenerationRecords) -> GenerationRow:
    records, export = case_records.measured, source.exports.get(case.model)
    processes = [[_instants(request) for request in record.requests] for record in records]
    times: dict[str, Values] = {"ttft_ns": ttfts, "itl_ns": itls, "tpot_ns": tpots}
    figures: dict[str, Any] = {name: token_times(processes, values) for name, values in times.items()}
    itl, ttft = figures["itl_ns"], figures["ttft_ns"]
    figures["context"] = context_times(processes)
    figures["rates"] = _rates(case, processes, ttft)
    figures["roof_share"] = roof_share(case, export, itl, source.roof, records[0].threads)
    figures["energy"] = _energy(case, source.energies.get(case.case_id))
    parity = worst_token_parity([record.parity for record in records if record.parity is not None])
    reuse = _merged_reuse([record.reuse for record in records if record.reuse is not None])
    calibration = case.backend in source.calibration
    findings, checks = _findings_and_checks(source, case, case_records, parity, reuse, itl or ttft, calibration)
    grade = grades.grade(findings)
    void = VoidGeneration(**figures) if grade == "F" else None
    prompts = None if export is None else export.prompt_set(case.prompt_length, case.new_tokens)
    elements = 0 if export is None else export.shape.cache_elements(case.prompt_length, case.new_tokens)
    return _row(
        case,
        "measured",
        grade=grade,
        **({} if void else figures),
        void=void,
        cache=CacheSize(
            measured=max(record.cache_bytes for record in records),
            formula=elements * case.batch_size * _cache_element(case, records[-1].placement),
        ),
        parity=parity,
        reuse=reuse,
        placement=records[-1].placement,
        memory_bytes=max(record.memory.peak_rss_bytes for record in records),
        cold_ns=cold_costs_of(records),
        threads=records[0].threads,
        clock=records[0].clock,
        real_text=None if prompts is None else prompts.real_text,
        prompts=None if prompts is None else prompts.source,
        artifacts=records[0].artifacts,
        flags=tuple(problem.flag for problem in findings),
        checks=checks,
        usage=utilisation.merged_usage(list(case_records.usage.values())),
        notes=tuple(dict.fromkeys(note for record in records for note in record.notes)),
    )


def _cache_element(case: GenerationCase, placement: Placement) -> int:
    """Bytes of an element of the cache: of the type that the backend reports, else of the case's precision."""
    sizes: dict[str, int] = {str(name): size for name, size in ELEMENT_BYTES.items()}
    reported = str(placement.settings.get("cache_precision", case.precision))
    return sizes.get(reported, 4)


def _rates(case: GenerationCase, processes: Sequence[Sequence[RequestInstants]], ttft: TokenTimes | None) -> TokenRates:
    each = [rate for requests in processes if (rate := per_sequence_rate(requests)) is not None]
    totals = [total_rate(requests, case.batch_size) for requests in processes]
    first = ttft.median if ttft is not None else 0.0
    return TokenRates(
        per_sequence=median(each) if each else None,
        total=median(totals),
        total_ci95=median_interval(totals),
        decode=case.batch_size * median(each) if each else None,
        prefill=case.batch_size * case.prompt_length * 1e9 / first if first else 0.0,
    )


def roof_share(
    case: GenerationCase,
    export: GenerationExport | None,
    itl: TokenTimes | None,
    roof: Roof | CpuRoof | None,
    threads: int,
) -> float | None:
    """Bytes that the median decode step reads by its time, as a share of the best copy; None where one is unknown.

    The weights once, and the cache at half of the output.
    """
    read = None if export is None else step_bytes(case, export)
    limits = roof.of(threads) if isinstance(roof, CpuRoof) else roof
    if read is None or itl is None or limits is None or not limits.copy_bytes_per_s:
        return None
    return read / (itl.median / 1e9) / limits.copy_bytes_per_s


def above_roof(
    case: GenerationCase,
    export: GenerationExport | None,
    itl: TokenTimes | None,
    roof: Roof | CpuRoof | None,
    threads: int,
) -> list[Finding]:
    """A finding where the median step is too short: every sequence multiplies each weight that a step reads once."""
    read, bounds = None if export is None else step_bytes(case, export), bounds_of(case, threads, roof)
    if export is None or read is None or itl is None or isinstance(bounds, str):
        return []
    return too_fast(case, itl.median, 2.0 * export.read_parameters * case.batch_size, read, bounds)


def step_bytes(case: GenerationCase, export: GenerationExport) -> int | None:
    """Bytes that a decode step at half of the output reads: the weights once, and the cache. None for int8 and int4,
    where the types of a file's tensors differ."""
    return _bytes(case, export, (case.new_tokens + 1) // 2)


def prefill_bytes(case: GenerationCase, export: GenerationExport) -> int | None:
    """Bytes of the weights, read once, and of the cache that a prefill leaves."""
    return _bytes(case, export, 1)


def _bytes(case: GenerationCase, export: GenerationExport, tokens: int) -> int | None:
    size = ELEMENT_BYTES.get(case.precision)
    cached = export.shape.cache_elements(case.prompt_length, tokens) * case.batch_size
    return None if size is None else size * (export.read_parameters + cached)


def _energy(case: GenerationCase, energy: Energy | None) -> TokenEnergy | None:
    if energy is None:
        return None
    tokens = case.batch_size * case.new_tokens
    return TokenEnergy(joules_per_token=energy.joules_per_inference / tokens, idle_w=energy.idle_w, gpu=energy.gpu)


def _findings_and_checks(
    source: GenerationSource,
    case: GenerationCase,
    case_records: GenerationRecords,
    parity: TokenParity | None,
    reuse: ReuseCheck | None,
    headline: TokenTimes | None,
    calibration: bool,
) -> tuple[list[Finding], dict[str, Check]]:
    records = case_records.measured
    export = source.exports.get(case.model)
    prompts = None if export is None else export.prompt_set(case.prompt_length, case.new_tokens)
    rounding = None if prompts is None else prompts.rounding.get(case.precision)
    if calibration:
        detail = f"{case.backend} computes nothing: its times are known, and their deviation is the harness's error"
        remedy = "Nothing to do: read it as the smallest time that can be measured."
        return [finding("A", flags.CALIBRATION, detail, remedy), *flags.made_on_purpose(records)], {}
    environment = next((source.environments.get(record.environment_id or "") for record in records), None)
    seen = timed_rounds(records, case_records.usage, case_records.unwatched, environment)
    happened, checks = check_machine(seen)
    checks[REPEATS] = combined_check([_reuse_missing(record, reuse) for record in records])
    noise = [*flags.unsteady_rounds(records), *flags.compile_cached(records), *flags.made_on_purpose(records)]
    if headline is not None:
        latency = token_latency(headline)
        noise += [*flags.interval_findings(latency), *flags.round_drift(latency), *flags.speed_groups(latency)]
    findings = [
        *token_findings(case, parity, source.plan.tolerance(case.model, case.precision), rounding),
        *flags.misplaced(case, records),
        *above_roof(case, export, headline if case.new_tokens > 1 else None, source.roof, records[0].threads),
        *reuse_findings(case, reuse),
        *missing_rounds(
            source.plan.measurement.rounds, records, case_records.failed, case_records.other, "make generate"
        ),
        *flags.requests_mismatch(records, flags_host.waited_ns(seen)),
        *happened,
        *noise,
        *unchecked_findings(checks),
    ]
    return [_of_generation(found) for found in with_causes(findings)], checks


_COMMANDS = {"`make run ": "`make generate ", "`make bench ": "`make generate "}
"""Commands in the remedies of the checks that all kinds of rows have, and what measures a row of generation."""


def _of_generation(found: Finding) -> Finding:
    """The finding, whose remedy names the command that measures generation: `make run` leaves its cases out."""
    remedy = found.flag.remedy
    for command, own in _COMMANDS.items():
        remedy = remedy.replace(command, own)
    return replace(found, flag=found.flag.model_copy(update={"remedy": remedy}))


def largest_distance(tolerance: Tolerance, rounding: float | None) -> float:
    """The largest relative L2 distance of forced logits that passes: the tolerance, or ROUNDINGS times what rounding
    alone makes of this model and these prompts (PromptSet.rounding), but no more than MAX_ROUNDED."""
    return max(tolerance.relative_l2, min(ROUNDINGS * (rounding or 0.0), MAX_ROUNDED))


def token_findings(
    case: GenerationCase | LoadCase,
    parity: TokenParity | None,
    tolerance: Tolerance | None,
    rounding: float | None = None,
) -> list[Finding]:
    """Findings from the tokens and logits. tolerance: of the precision; None where the plan has none. rounding: of the
    prompts; None where it was not measured."""
    if parity is None or not parity.steps:
        detail = "the tokens were not compared with fp32 eager"
        return [finding("C", flags.PARITY_UNCHECKED, detail, f"Export `{case.model}` again, then generate again.")]
    if parity.nonfinite:
        detail = f"{parity.nonfinite} logits are not finite"
        return [finding("F", "NONFINITE", detail, f"Use a wider precision than {case.precision} for `{case.model}`.")]
    if tolerance is None:
        detail = f"the plan has no tolerance for {case.precision}"
        return [finding("C", flags.PARITY_UNCHECKED, detail, f"Add `gates.{case.precision}` to the configuration.")]
    findings = []
    allowed = largest_distance(tolerance, rounding)
    if parity.relative_l2 is not None and parity.relative_l2 > allowed:
        limit = flags.limit_text(allowed)
        if rounding:
            limit = f"{flags.three_digits(allowed, ROUND_FLOOR)} (rounding alone makes {rounding:.1e})"
        distance = flags.three_digits(parity.relative_l2, ROUND_CEILING)
        what = f"with the same inputs, logits are up to {distance} (relative L2) from fp32 eager"
        detail = f"{what}, above the tolerance of {limit}"
        remedy = f"Compare {case.backend} with the reference layer by layer, or widen `gates.{case.precision}`."
        findings.append(finding("F", "PARITY_FAIL", detail, remedy))
    if parity.unexplained:
        at = (
            ""
            if parity.first_difference is None
            else (
                f"; the first at token {parity.first_difference}, where the reference's margin is "
                f"{parity.first_margin:.3g} and the numbers differ by {parity.first_moved:.3g} at most"
            )
        )
        detail = f"{parity.unexplained} tokens differ from fp32 eager by more than rounding explains{at}"
        remedy = f"{case.backend} decodes something else: look at its cache, positions and masks."
        findings.append(finding("F", TOKENS, detail, remedy))
    elif parity.free_equal < parity.free_sequences:
        detail = (
            f"{parity.free_sequences - parity.free_equal} of {parity.free_sequences} sequences leave fp32 eager's "
            f"tokens, the earliest at token {parity.first_difference}: its margin there is {parity.first_margin:.3g}, "
            f"and the numbers differ by up to {parity.first_moved:.3g}"
        )
        findings.append(finding("A", FLIP, detail, "Nothing to do: the two best tokens were as good as equal."))
    return findings


def reuse_findings(case: GenerationCase, reuse: ReuseCheck | None) -> list[Finding]:
    """Findings about a cache that is not emptied, or a prefix that is kept."""
    if reuse is None:
        return []
    findings = []
    if reuse.unequal:
        detail = f"{reuse.unequal} of {reuse.compared} prompts got other tokens after other prompts than before"
        remedy = f"prefill() of {case.backend} must empty the cache; where kernels vary by themselves, say so."
        findings.append(finding("C", CACHE, detail, remedy))
    interval = reuse_interval([reuse])
    if interval is not None and interval.low > MAX_REPEAT_RATIO:
        detail = (
            f"new prompts took {interval.low:.3g} to {interval.high:.3g} times as long to their first token as a "
            f"repeated one ({REPEAT_CONFIDENCE:.1%} interval over {len(reuse.fresh_ns)} pairs)"
        )
        remedy = f"Turn the prefix cache of {case.backend} off: the prefill of a repeated prompt is no prefill."
        findings.append(finding("C", REPEATS, detail, remedy))
    return findings


def reuse_interval(parts: Sequence[ReuseCheck]) -> Interval | None:
    """How many times as long a new prompt takes as a repeated one (checks.repeat_interval)."""
    return repeat_interval([Repeats(fresh_ns=part.fresh_ns, repeated_ns=part.repeated_ns) for part in parts])


def _reuse_missing(record: Generated, merged: ReuseCheck | None) -> str | None:
    if record.reuse is None:
        return "no prompts were repeated"
    pairs = 0 if merged is None else len(merged.fresh_ns)
    return None if merged is not None and reuse_interval([merged]) is not None else f"{pairs} pairs are too few"


def _merged_reuse(parts: Sequence[ReuseCheck]) -> ReuseCheck | None:
    if not parts:
        return None
    return ReuseCheck(
        compared=sum(part.compared for part in parts),
        unequal=sum(part.unequal for part in parts),
        repeated_ns=tuple(value for part in parts for value in part.repeated_ns),
        fresh_ns=tuple(value for part in parts for value in part.fresh_ns),
    )


def token_latency(times: TokenTimes) -> Latency:
    """Times between tokens in the form of a row's latency, as findings and comparisons of rows read it."""
    return Latency(
        median=times.median,
        ci95=times.ci95,
        p50=times.p50,
        p90=None,
        p95=times.p95,
        p99=times.p99,
        max=times.max,
        mean=times.mean,
        iqr=None,
        cv=None,
        lag1_autocorrelation=None,
        n=times.n,
        rounds=times.rounds,
        process_medians=times.process_medians,
    )


def row_of_times(row: GenerationRow, case_id: str, model: str, times: TokenTimes | None) -> Row:
    """One kind of time of a row as a row of its own, whose latency it is. times: None where the row has none."""
    return Row(
        case_id=case_id,
        model=model,
        backend=row.backend,
        device=row.device,
        precision=row.precision,
        batch_size=row.batch_size,
        sequence_length=row.prompt_length,
        boundary="compute",
        mode="sync",
        weights=row.weights,
        setting=row.setting,
        kind="text",
        status=row.status,
        grade=row.grade,
        reason=row.reason,
        hint=row.hint,
        latency_ns=None if times is None else token_latency(times),
        threads=row.threads,
        clock=row.clock,
        flags=row.flags,
    )


def _instants(request: GeneratedRequest) -> RequestInstants:
    return RequestInstants(request.start_ns, request.token_ns)


def _row(case: GenerationCase, status: Status, **known: Any) -> GenerationRow:
    of_case = {name: getattr(case, name) for name in _OF_CASE}
    return GenerationRow(**of_case, status=status, **known)


def _read(plan: Plan, case: GenerationCase, load: LoadGenerated, note: Callable[[str], object]) -> GenerationRecords:
    records = GenerationRecords()
    if case.skip_reason is not None:
        return records
    for number in range(1, plan.measurement.rounds + 1):
        try:
            record = load(case.case_id, number)
        except (FormatError, StorageError) as error:
            records.other[number] = "damaged file"
            note(error.problem)
            continue
        if record is None:
            continue
        if (reason := admission.foreign_record(record, plan.settings_id, case.case_id, number)) is not None:
            records.other[number] = reason
        elif isinstance(record, Generated):
            records.measured.append(record)
        else:
            records.failed.append(record)
    return records


def _agreed(
    cases: Sequence[GenerationCase], read: Mapping[str, GenerationRecords], environments: Mapping[str, Environment]
) -> References:
    """The environments that records must agree with."""
    if admission.all_agree(environments):
        return References()
    used = [
        (case, record.environment_id, record.started_at)
        for case in cases
        for record in read[case.case_id].measured
        if record.environment_id
    ]
    return admission.references(used, environments)


def _admitted(
    source: GenerationSource,
    case: GenerationCase,
    records: GenerationRecords,
    agreed: References,
    copies: admission.Copied,
    note: Callable[[str], object],
) -> GenerationRecords:
    """Without records of other files or another machine."""
    export = source.exports.get(case.model)
    known = admission.generation_files(export)
    kept: list[Generated] = []
    for record in records.measured:
        reason = None
        if export is None and record.artifacts:
            reason = f"unknown what was measured: {source.absent.get(case.model, 'there is no export').rstrip('.')}"
        elif record.parity is not None and not record.artifacts:
            reason = "it names no file that it loaded"
        reason = reason or copies.of(record) or admission.foreign_artifact(record, known)
        reason = reason or admission.foreign_machine(record.environment_id, case, source.environments, agreed)
        if reason is None:
            kept.append(record)
        else:
            records.other[record.round] = reason
            note(f"{case.case_id}/{record.round} left out: {reason}.")
    records.measured = kept
    return records


def _add_usage(records: GenerationRecords, load_usage: LoadUsage, note: Callable[[str], object]) -> None:
    for record in records.measured:
        try:
            usage = load_usage(record.case_id, record.round)
        except (FormatError, StorageError) as error:
            records.unwatched[record.round] = error.problem.removesuffix(".")
            continue
        if usage is None:
            records.unwatched[record.round] = "the monitor left no usage record"
        elif (foreign := admission.foreign_usage(usage, record)) is not None:
            records.unwatched[record.round] = foreign
        elif (window := utilisation.timed_usage(usage)) is not None:
            records.usage[record.round] = window
        else:
            records.unwatched[record.round] = "the case ended before the monitor saw it timed"
        if record.round in records.unwatched:
            note(f"{record.case_id}/{record.round}: machine's load unknown: {records.unwatched[record.round]}.")
