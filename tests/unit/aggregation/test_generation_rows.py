"""Rows of generation: figures, grades, and the cheats that make a row void or unranked."""

from __future__ import annotations

import pytest

from harness.aggregation.flags import requests_mismatch
from harness.aggregation.generation_rows import (
    GenerationRecords,
    GenerationSource,
    generation_row,
    generation_rows,
    reuse_findings,
    roof_share,
    token_findings,
)
from harness.core.schemas import (
    CacheSize,
    ColdCosts,
    CpuLimits,
    CpuRoof,
    Generated,
    GeneratedRequest,
    GenerationCase,
    Plan,
    ReuseCheck,
    TokenParity,
    Tolerance,
)
from tests.synthetic_generation import CASE, EXPORT, PLAN, parity, record
from tests.synthetic_results import environment

GATE = Tolerance(relative_l2=1e-4)


def names(findings: list) -> list[tuple[str, str]]:  # type: ignore[type-arg]
    return [(finding.flag.name, finding.caps_at) for finding in findings]


def row_of(*records: Generated, case: GenerationCase = CASE, plan: Plan = PLAN):  # type: ignore[no-untyped-def]
    source = GenerationSource(plan, {case.model: EXPORT}, {}, {}, frozenset())
    return generation_row(source, case, GenerationRecords(measured=list(records)))


def test_a_row_has_its_figures() -> None:
    row = row_of(record(1), record(2))
    assert row.status == "measured"
    assert row.ttft_ns is not None
    assert row.itl_ns is not None
    assert row.rates is not None
    assert row.cache is not None
    assert (row.ttft_ns.median, row.itl_ns.median, row.itl_ns.n) == (1_000_000, 100_000, 2 * 8 * 3)
    assert row.rates.per_sequence == pytest.approx(1e9 / 100_000)
    assert row.rates.prefill == pytest.approx(2 * 5 * 1e9 / 1_000_000)
    # 2 x layers x kv heads x head size x (P + N - 1) x batch x 4 bytes
    assert row.cache == CacheSize(measured=7, formula=2 * 2 * 2 * 8 * (5 + 4 - 1) * 2 * 4)
    assert row.void is None


def test_without_the_monitor_no_row_is_grade_a() -> None:
    row = row_of(record(1), record(2))
    assert row.grade == "C"
    assert "UNWATCHED" in {flag.name for flag in row.flags}


def test_remedies_name_the_command_that_measures_generation() -> None:
    """`make run` and `make bench` measure no case of generation."""
    cold = ColdCosts(load=1, compile=1, compile_cached=True, first_inference=1)
    flags = {flag.name: flag.remedy for flag in row_of(record(1, steady=False, cold_ns=cold)).flags}
    assert flags["ONE_PROCESS"] == "Measure more rounds: `make generate ROUNDS=3`."
    for name in ("NOT_WARMED_UP", "COMPILE_CACHED", "UNWATCHED"):
        assert "`make generate FORCE=1`" in flags[name]
    assert not any("make run" in remedy or "make bench" in remedy for remedy in flags.values())


def test_wrong_tokens_make_a_row_void() -> None:
    row = row_of(record(1, token_parity=parity(unexplained=1, first_difference=2, first_margin=0.5, first_moved=0.1)))
    assert (row.grade, row.itl_ns, row.rates) == ("F", None, None)
    assert row.void is not None
    assert row.void.itl_ns is not None
    assert "TOKENS_DIFFER" in {flag.name for flag in row.flags}


@pytest.mark.parametrize(
    ("token_parity", "expected"),
    [
        (parity(), []),
        (parity(relative_l2=1e-3), [("PARITY_FAIL", "F")]),
        (parity(unexplained=2, first_difference=3, first_margin=1.0, first_moved=0.1), [("TOKENS_DIFFER", "F")]),
        (parity(free_equal=1, first_difference=3, first_margin=0.1, first_moved=0.2), [("TOKEN_FLIP", "A")]),
        (parity(nonfinite=1, relative_l2=None, max_abs=None, cosine=None), [("NONFINITE", "F")]),
        (None, [("PARITY_UNCHECKED", "C")]),
    ],
)
def test_findings_from_tokens(token_parity: TokenParity | None, expected: list[tuple[str, str]]) -> None:
    assert names(token_findings(CASE, token_parity, GATE)) == expected


@pytest.mark.parametrize(
    ("distance", "rounding", "expected"),
    [
        (2.9e-2, None, [("PARITY_FAIL", "F")]),
        # Twice what rounding alone makes of this model passes, and no more.
        (2.9e-2, 2e-2, []),
        (4.1e-2, 2e-2, [("PARITY_FAIL", "F")]),
        # Where rounding makes less than the tolerance, the tolerance stays.
        (9e-3, 1e-3, []),
        (1.1e-2, 1e-3, [("PARITY_FAIL", "F")]),
        # Beyond a tenth, rounding cannot be distinguished from a fault.
        (1.1e-1, 9e-2, [("PARITY_FAIL", "F")]),
    ],
)
def test_the_tolerance_follows_the_difference_from_rounding_alone(
    distance: float, rounding: float | None, expected: list[tuple[str, str]]
) -> None:
    results = token_findings(CASE, parity(relative_l2=distance), Tolerance(relative_l2=1e-2), rounding)
    assert names(results) == expected


def test_a_row_is_judged_by_the_rounding_of_its_own_prompts_and_precision() -> None:
    case = CASE.model_copy(update={"precision": "fp16"})
    plan = PLAN.model_copy(update={"gates": {"fp16": Tolerance(relative_l2=1e-2)}})
    prompts = EXPORT.sets[0].model_copy(update={"rounding": {"fp16": 2e-2}})
    for sets, fails in (((prompts,), False), (EXPORT.sets, True)):
        export = EXPORT.model_copy(update={"sets": sets})
        source = GenerationSource(plan, {case.model: export}, {}, {}, frozenset())
        records = [record(number, token_parity=parity(relative_l2=3e-2), case=case) for number in (1, 2)]
        row = generation_row(source, case, GenerationRecords(measured=records))
        assert ("PARITY_FAIL" in {flag.name for flag in row.flags}) is fails


def test_a_kept_prefix_and_a_stale_cache_are_not_ranked() -> None:
    honest = ReuseCheck(compared=2, unequal=0, repeated_ns=(100, 102) * 6, fresh_ns=(101, 99) * 6)
    kept = ReuseCheck(compared=2, unequal=0, repeated_ns=(10,) * 12, fresh_ns=(100,) * 12)
    stale = ReuseCheck(compared=2, unequal=1)
    assert names(reuse_findings(CASE, honest)) == []
    assert names(reuse_findings(CASE, kept)) == [("REPEATS_FASTER", "C")]
    assert names(reuse_findings(CASE, stale)) == [("STALE_CACHE", "C")]


def test_a_skipped_a_failed_and_a_missing_row_say_why() -> None:
    skipped = CASE.model_copy(update={"skip_reason": "no"})
    assert (row_of(case=skipped).status, row_of(case=skipped).reason) == ("skipped", "no")
    assert (row_of().status, row_of().hint) == ("missing", "Run `make generate`.")


def test_a_lost_round_costs_a_grade() -> None:
    assert "ROUNDS_MISSING" in {flag.name for flag in row_of(record(2)).flags}


def test_the_memory_roof_counts_weights_and_cache_once_a_step() -> None:
    row = row_of(record(1), record(2))
    limits = CpuLimits(threads=2, flops={}, copy_bytes_per_s=1e9)
    roof = CpuRoof.model_construct(limits=(limits,))
    elements = 1_000 + 2 * 2 * 2 * 8 * (5 + 2 - 1) * 2
    assert roof_share(CASE, EXPORT, row.itl_ns, roof, 2) == pytest.approx(4 * elements / 100e-6 / 1e9)
    assert roof_share(CASE, EXPORT, row.itl_ns, None, 2) is None


@pytest.mark.parametrize(("flops_per_s", "void"), [(21e6, False), (19e6, True)])
def test_a_step_is_not_faster_than_its_products(flops_per_s: float, void: bool) -> None:
    # Two sequences and 1,000 weights in 100 µs; on a CPU half of the least time is possible.
    limits = CpuLimits(threads=2, flops={"fp32": flops_per_s}, copy_bytes_per_s=1e9)
    roof = CpuRoof.model_construct(limits=(limits,), cache_bytes=None, unmeasured={})
    source = GenerationSource(PLAN, {CASE.model: EXPORT}, {}, {}, frozenset(), roof)
    row = generation_row(source, CASE, GenerationRecords(measured=[record(1), record(2)]))
    flags = {flag.name: flag.detail for flag in row.flags}
    assert (flags.get("ABOVE_ROOF", "").startswith("100.0 µs a step is less than half of")) is void
    assert (row.grade == "F", row.itl_ns is None) == (void, void)


@pytest.mark.parametrize(
    ("window_ns", "caps_at"), [(71_300_000, None), (134_000_000, None), (136_000_000, "C"), (71_200_000, "F")]
)
def test_requests_fill_the_window_that_they_were_timed_in(window_ns: int, caps_at: str | None) -> None:
    timed = record(1)
    window = timed.cpu_use.model_copy(update={"wall_ns": window_ns})
    found = requests_mismatch([timed.model_copy(update={"cpu_use": window})])
    assert names(found) == ([("SAMPLES_MISMATCH", caps_at)] if caps_at else [])


def test_tokens_do_not_come_before_their_predecessors() -> None:
    for token_ns in ((3, 2), (), (-5,)):
        with pytest.raises(ValueError, match="before their predecessors"):
            GeneratedRequest(prompts=(0,), prompts_sha256="0" * 64, start_ns=1, token_ns=token_ns, tokens=((1,),))


def test_a_copied_round_and_one_without_files_are_left_out() -> None:
    rounds = {1: record(1), 2: record(1, round=2), 3: record(3, artifacts={})}
    plan = PLAN.model_copy(
        update={"generations": (CASE,), "measurement": PLAN.measurement.model_copy(update={"rounds": 3})}
    )
    records = [
        found.model_copy(update={"settings_id": plan.settings_id, "environment_id": "e"}) for found in rounds.values()
    ]
    notes: list[str] = []
    source = GenerationSource(plan, {CASE.model: EXPORT}, {}, {"e": environment()}, frozenset())
    (row,) = generation_rows(source, lambda _case, number: records[number - 1], lambda *_: None, notes.append)
    missing = {flag.name: flag.detail for flag in row.flags}["ROUNDS_MISSING"]
    assert f"round 2: its times are those of {CASE.case_id}/1: it was copied" in missing
    assert "round 3: it names no file that it loaded" in missing
