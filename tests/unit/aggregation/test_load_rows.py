"""Replications of a service of known duration, by the real loop on a simulated clock → the row of the load case."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.aggregation.flags import ALIKE, Criteria
from harness.aggregation.load_rows import LoadEvidence, load_row
from harness.core.schemas import (
    Clock,
    GuardTimes,
    LatencyBound,
    LoadCase,
    LoadEnergy,
    LoadFailure,
    LoadRow,
    OutputsTime,
    Parity,
    Placement,
    PointEnergy,
    Repeats,
    Replication,
    ServiceRun,
    Tolerance,
)
from harness.core.schemas.load_record import ClientTimes
from harness.serving.arrivals import digest, loadgen, poisson
from harness.serving.load_case import batch_policy, planned_points
from harness.serving.peak_prediction import predict
from harness.timing.request_loops import Dispatches, serve, serve_closed
from tests.fixtures.simulated_clock import SimulatedClock, alone, in_place
from tests.synthetic_results import cpu_use

MS = 1_000_000
CLOCK = Clock(name="simulated", resolution_ns=1, overhead_ns=0)
BASE = {"settings_id": "s", "load_sha256": "l", "artifacts_id": "a", "started_at": "now", "environment_id": "e"}
RIGHT = Parity(samples=8, relative_l2=1e-6, max_abs=1e-6, cosine=1.0, top1_agreement=None, nonfinite=0)
WRONG = RIGHT.model_copy(update={"relative_l2": 0.5})
CRITERIA = Criteria(Tolerance(relative_l2=1e-4), judge_top1=False, target_ci=0.01, calibration=False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    return in_place(monkeypatch)


def case(**more: Any) -> LoadCase:
    usual = {
        "load_id": "m-b-server",
        "model": "m",
        "slug": "m",
        "backend": "b",
        "device": "cpu",
        "precision": "fp32",
        "sequence_length": None,
        "weights": "seeded",
        "scenario": "server",
        "bound": LatencyBound(quantile=0.99, limit_ns=50 * MS),
    }
    return LoadCase.model_validate({**usual, **more})


def service(load: LoadCase, **more: Any) -> ServiceRun:
    usual = {
        **BASE,
        "load_id": load.load_id,
        "artifacts": {},
        "threads": 1,
        "workers": 1,
        "clock": CLOCK,
        "load_ns": {1: MS},
        "service_ns": {1: (5 * MS,) * 100},
        "parity": {1: RIGHT},
        "placement": Placement(device="cpu", precision="fp32", provider="p", settings={}, dtype_census={}),
        "peak_rss_bytes": 1,
    }
    return ServiceRun.model_validate({**usual, **more})


def replication(load: LoadCase, point: str, number: int, found: Dispatches, **more: Any) -> Replication:
    usual = {
        **BASE,
        "load_id": load.load_id,
        "point": point,
        "number": number,
        "scenario": load.scenario,
        "workers": 1,
        "max_batch": load.max_batch,
        "max_delay_ns": load.max_delay_ns,
        "seed": number,
        "threads": 1,
        "clock": CLOCK,
        "requests": sum(found.sizes),
        "parity": RIGHT,
        **{name: getattr(found, name) for name in vars(found) if name != "zero_ns"},
    }
    return Replication.model_validate({**usual, **more})


Work = Callable[[int, int], int]
"""(number of the batch, requests) → ns."""


def served(
    clock: SimulatedClock, load: LoadCase, work: Work, requests: int, replications: int, limit_ns: int = 1 << 60
) -> LoadEvidence:
    """Every point of a server case, really served on the simulated clock."""
    steps = planned_points(load, None)
    records: dict[str, list[Replication]] = {}
    for step in steps:
        assert step.rate_per_s is not None
        for number in range(1, replications + 1):
            draw = loadgen if load.method == "loadgen" else poisson
            schedule = draw(step.rate_per_s, requests, number)
            result = serve(schedule.tolist(), batch_policy(load), [clock.service(work)], alone, limit_ns)
            more = {"rate_per_s": step.rate_per_s, "scheduled_ns": schedule.tolist(), "requests": requests}
            record = replication(load, step.name, number, result, schedule_sha256=digest(schedule), **more)
            records.setdefault(step.name, []).append(record)
    return LoadEvidence(service=service(load), points=steps, replications=records)


def row(load: LoadCase, evidence: LoadEvidence) -> LoadRow:
    return load_row(load, "tensor", CRITERIA, evidence)


def test_verdicts_follow_the_load_and_bracket_the_peak(clock: SimulatedClock) -> None:
    # M/D/1 with 5 ms: p99 of the wait is 50 ms near a load of 0.85, 170 a second.
    load = case(rates=(60, 120, 196, 230))
    result = row(load, served(clock, load, lambda *_: 5 * MS, 1_000, 8))
    verdicts = [point.verdict for point in result.points]
    assert verdicts == ["PASS", "PASS", "FAIL", "FAIL"]
    assert (result.peak_pass_per_s, result.peak_fail_per_s) == (120, 196)
    assert result.status == "measured"
    first = result.points[0]
    assert (first.goodput, first.failed, first.requests, first.replications) == (1.0, 0, 8_000, 8)
    assert first.compute_p50_ns == 5 * MS
    assert first.dispatch_p99_ns == first.added_p99_ns == 0
    assert first.latency["p50"].ns is not None
    assert 5 * MS <= first.latency["p50"].ns < 8 * MS


def test_replications_that_are_too_short_for_their_bound_are_in_a_note(clock: SimulatedClock) -> None:
    def notes(rate: float, **more: Any) -> list[str]:
        load = case(rates=(rate,), **more)
        result = row(load, served(clock, load, lambda *_: 500, 700, 8))
        assert [point.verdict for point in result.points] == ["PASS"]
        return [note for note in result.notes if "above the capacity" in note]

    assert notes(60_000) == []
    assert notes(400_000, requests=1_000_000) == []
    assert notes(400_000) == [
        "at 400,000/s replications of 200,000 requests last 10 times the limit of the bound: a load up to 10% above "
        "the capacity may pass. REQUESTS=1000000 makes them longer"
    ]


def test_a_slower_server_fails_at_a_load_that_the_service_itself_bears(clock: SimulatedClock) -> None:
    load = case(rates=(120,))
    assert row(load, served(clock, load, lambda *_: 5 * MS, 600, 8)).points[0].verdict == "PASS"
    assert row(load, served(clock, load, lambda *_: 9 * MS, 600, 8)).points[0].verdict == "FAIL"


def test_a_stall_of_half_a_second_in_each_replication_is_a_fail_with_p99_near_it(clock: SimulatedClock) -> None:
    load = case(rates=(200,))
    evidence = served(clock, load, lambda number, _: 500 * MS if number == 50 else MS, 300, 8)
    (point,) = row(load, evidence).points
    assert point.verdict == "FAIL"
    p99 = point.latency["p99"].ns
    assert p99 is not None
    assert p99 == pytest.approx(500 * MS, rel=0.05)
    assert point.over_share is not None
    assert point.over_share > 0.3


def test_failed_and_unserved_requests_have_an_infinite_latency_and_stay_in_the_denominator(
    clock: SimulatedClock,
) -> None:
    load = case(rates=(100,))

    def work(number: int, _requests: int) -> int:
        if number % 10 == 0:
            raise RuntimeError("busy")
        return MS

    (point,) = row(load, served(clock, load, work, 400, 4)).points
    assert (point.requests, point.failed, point.verdict) == (1_600, 160, "FAIL")
    assert point.goodput == 0.9
    assert (point.latency["p99"].ns, point.latency["p99"].infinite) == (None, True)
    assert point.latency["p50"].ns is not None
    cut = row(load, served(clock, load, lambda *_: 50 * MS, 400, 4, limit_ns=4_000 * MS))
    assert cut.points[0].failed == 4 * (400 - 80)  # the first begins after the first gap
    assert cut.points[0].goodput is not None
    assert cut.points[0].goodput < 0.1


def test_lateness_that_is_not_queueing_is_a_load_that_was_not_reached(clock: SimulatedClock) -> None:
    load = case(rates=(10,))
    evidence = served(clock, load, lambda *_: MS, 300, 4)
    late = {
        name: [
            record.model_copy(
                update={
                    "start_ns": tuple(time + 9 * MS for time in record.start_ns),
                    "done_ns": tuple(time + 9 * MS for time in record.done_ns),
                }
            )
            for record in records
        ]
        for name, records in evidence.replications.items()
    }
    (point,) = row(load, LoadEvidence(evidence.service, None, evidence.points, late)).points
    assert point.dispatch_p99_ns == 9 * MS
    assert point.verdict == "LOAD NOT REACHED"
    assert point.added_p99_ns == 9 * MS


def test_ends_that_are_noticed_late_are_a_figure_and_beyond_a_share_of_the_bound_a_note(clock: SimulatedClock) -> None:
    load = case(rates=(10,), device="cuda", in_flight=1)
    evidence = served(clock, load, lambda *_: MS, 300, 4)

    def noticed(unseen_ns: int) -> LoadRow:
        looked = {
            name: [record.model_copy(update={"unseen_ns": (unseen_ns,) * len(record.sizes)}) for record in records]
            for name, records in evidence.replications.items()
        }
        return row(load, LoadEvidence(evidence.service, None, evidence.points, looked))

    small, large = noticed(2_500_000), noticed(2_500_001)
    assert (small.points[0].unseen_p99_ns, large.points[0].unseen_p99_ns) == (2_500_000, 2_500_001)
    assert not any("noticed" in note for note in small.notes)
    assert any("up to 2.50 ms late (p99): a PASS holds" in note for note in large.notes)
    assert row(load, evidence).points[0].unseen_p99_ns is None
    assert large.points[0].verdict == small.points[0].verdict == row(load, evidence).points[0].verdict


def test_reality_is_compared_with_replay_at_the_same_rate(clock: SimulatedClock) -> None:
    load = case(rates=(150,), requests=600)
    evidence = served(clock, load, lambda *_: 6 * MS, 600, 4)
    prediction = predict(load, service(load), "0" * 64, 1, "now")
    (point,) = row(load, LoadEvidence(evidence.service, prediction, evidence.points, evidence.replications)).points
    assert point.predicted is not None
    assert point.predicted.rate_per_s == 150
    # Under load the service takes 6 ms, alone it took 5 ms: replay is too fast, and the ratio says so.
    assert point.reality_over_replay["p50"] > 1.2
    assert point.in_band is not None


def test_by_loadgen_s_rules_both_verdicts_are_side_by_side(clock: SimulatedClock) -> None:
    load = case(rates=(60, 230), method="loadgen", replications=1, replication_s=20.0, load_id="x")
    result = row(load, served(clock, load, lambda *_: 5 * MS, 4_000, 1))
    assert [(point.loadgen, point.verdict) for point in result.points] == [("VALID", "PASS"), ("INVALID", "FAIL")]


def test_a_closed_loop_has_latencies_and_throughput_and_no_verdict(clock: SimulatedClock) -> None:
    load = case(scenario="multi-stream", bound=None, max_batch=8, price_per_hour=3.6)
    runs = [serve_closed([clock.service(lambda *_: 10 * MS)], 8, alone, 300, 10**12) for _ in range(3)]
    records = {"all": [replication(load, "all", number + 1, run) for number, run in enumerate(runs)]}
    result = row(load, LoadEvidence(service(load), None, planned_points(load, None), records))
    (point,) = result.points
    assert point.samples_per_s == pytest.approx(800)
    assert point.achieved_per_s == pytest.approx(100)
    assert (point.verdict, point.queue_p99_ns, point.goodput) == (None, None, None)
    assert point.latency["p99"].ns == 10 * MS
    assert result.cost_per_million == pytest.approx(3.6 / 3600 / 800 * 1e6)


@pytest.mark.parametrize("scenario", ["single-stream", "offline"])
def test_goodput_of_a_closed_loop_is_a_share_of_its_throughput(clock: SimulatedClock, scenario: str) -> None:
    load = case(scenario=scenario)
    result = serve_closed([clock.service(lambda *_: 10 * MS)], 1, alone, 4, 10**12)
    records = {"all": [replication(load, "all", 1, result)]}
    (point,) = row(load, LoadEvidence(service(load), None, planned_points(load, None), records)).points
    assert point.goodput is not None
    assert point.goodput_per_s == pytest.approx(point.goodput * point.achieved_per_s)


def test_joules_of_a_request_are_those_above_idle_at_the_highest_rate_that_passed(clock: SimulatedClock) -> None:
    load = case(rates=(60, 196))
    evidence = served(clock, load, lambda *_: 5 * MS, 1_000, 8)
    spent = PointEnergy(energy_j=9_000.0, window_ns=60 * 10**9, numbers=tuple(range(1, 9)))
    more = {"load_id": load.load_id, "gpu": "G", "uuid": "u", "idle_w": 70.0, "points": {"r60": spent, "r196": spent}}
    energy = LoadEnergy.model_validate({**BASE, **more})
    result = row(load, replace(evidence, energy=energy))
    assert result.joules_per_request == pytest.approx((9_000 - 70 * 60) / 8_000)
    assert result.idle_w == 70.0
    # Eight windows of 4.9 s are no window of 5 s: the counter's own steps are in each of them.
    short = spent.model_copy(update={"window_ns": 8 * 4_900_000_000})
    result = row(load, replace(evidence, energy=energy.model_copy(update={"points": {"r60": short}})))
    assert (result.joules_per_request, result.idle_w) == (None, None)


def test_a_row_on_a_gpu_without_its_energy_says_why(clock: SimulatedClock) -> None:
    load = case(rates=(60,), device="cuda")
    evidence = served(clock, load, lambda *_: 5 * MS, 300, 4)
    spent = PointEnergy(energy_j=900.0, window_ns=8 * 10**9, numbers=(1, 2, 3, 4))
    more = {"load_id": load.load_id, "gpu": "G", "uuid": "u", "idle_w": 10.0, "points": {"r60": spent}}
    energy = LoadEnergy.model_validate({**BASE, **more})

    def notes(energy: LoadEnergy | None, **changes: Any) -> list[str]:
        changed = load.model_copy(update=changes)
        return [note for note in row(changed, replace(evidence, energy=energy)).notes if "energy" in note]

    (short,) = notes(energy)
    assert "needs 5 s, and a replication lasts 2.00 s" in short
    assert "DURATION=6s REQUESTS=3" in short
    assert notes(None) == ["no energy: the GPU's counter was not read"]
    below = spent.model_copy(update={"window_ns": 100 * 10**9})
    assert "no more than idle" in notes(energy.model_copy(update={"points": {"r60": below}}))[0]
    assert notes(None, device="cpu") == []
    enough = spent.model_copy(update={"window_ns": 20 * 10**9})
    assert notes(energy.model_copy(update={"points": {"r60": enough}})) == []


def test_joules_of_multi_stream_are_by_sample_as_its_cost_is_and_a_service_elsewhere_has_none(
    clock: SimulatedClock,
) -> None:
    load = case(scenario="multi-stream", bound=None, max_batch=8)
    run = serve_closed([clock.service(lambda *_: 100 * MS)], 8, alone, 100, 10**12)
    spent = PointEnergy(energy_j=900.0, window_ns=10 * 10**9, numbers=(1,))
    more = {"load_id": load.load_id, "gpu": "G", "uuid": "u", "idle_w": 10.0, "points": {"all": spent}}
    energy = LoadEnergy.model_validate({**BASE, **more})
    records = {"all": [replication(load, "all", 1, run)]}
    evidence = LoadEvidence(service(load), None, planned_points(load, None), records, energy=energy)
    assert row(load, evidence).joules_per_request == pytest.approx((900 - 10 * 10) / 100 / 8)
    assert row(load.model_copy(update={"endpoint": "http://h:1"}), evidence).joules_per_request is None


def client(requests: int, **more: Any) -> ClientTimes:
    """Of a replication of completions: nothing was visible."""
    unseen = dict.fromkeys(
        ("serialise_ns", "send_ns", "connect_ns", "first_ns", "server_queue_ns", "server_compute_ns"), (-1,) * requests
    )
    counts = dict.fromkeys(("request_bytes", "answer_bytes", "connections", "waited", "most_in_flight", "compared"), 0)
    return ClientTimes.model_validate({**unseen, **counts, **more})


@pytest.mark.parametrize(("compared", "equal", "void"), [(8, 0, True), (7, 0, False), (8, 1, False), (8, None, False)])
def test_completions_without_one_equal_answer_void_the_row(compared: int, equal: int | None, void: bool) -> None:
    load = case(scenario="single-stream", bound=None, endpoint="openai+http://h:1/v1/completions", new_tokens=2)
    dispatches = Dispatches((1,) * 10, (0,) * 10, (0,) * 10, (MS,) * 10, (0,) * 10)
    record = replication(load, "all", 1, dispatches, client=client(10, compared=compared, equal=equal))
    single = row(load, LoadEvidence(service(load), None, planned_points(load, None), {"all": [record]}))
    assert ("another model" in (single.void or "")) == void


def test_wrong_outputs_or_skipped_work_void_the_row(clock: SimulatedClock) -> None:
    load = case(rates=(50,), price_per_hour=1.0)
    evidence = served(clock, load, lambda *_: MS, 100, 4)

    def with_service(**more: Any) -> LoadRow:
        more = {"service_ns": {1: (MS,) * 100}, **more}
        return row(load, LoadEvidence(service(load, **more), None, evidence.points, evidence.replications))

    assert with_service().void is None
    assert with_service(service_ns={1: (2 * MS, 1_390_000)}).void is None
    less = with_service(service_ns={1: (2 * MS, 1_410_000)})
    assert less.void == (
        "batches take 1.00 ms under load (p50), and 1.41 ms at least while service times are measured: work was skipped"
    )
    lazy = with_service(outputs_time=OutputsTime(outputs_ns=(MS,) * 8, copy_ns=(2_000,) * 8, arrays=1))
    assert "it computes there" in (lazy.void or "")
    assert with_service(outputs_time=OutputsTime(outputs_ns=(90_000,), copy_ns=(2_000,), arrays=1)).void is None
    far = with_service(parity={1: WRONG})
    assert far.void is not None
    assert "above the tolerance" in far.void
    assert far.cost_per_million is None
    fp16 = Placement(device="cpu", precision="fp16", provider="p", settings={}, dtype_census={})
    assert with_service(placement=fp16).void == "it ran in fp16 on cpu"
    usual, half = (float(MS),) * 12, (MS / 2,) * 12
    skipped = with_service(repeat_input=GuardTimes(usual_ns=usual, other_ns=half))
    assert skipped.void is not None
    assert "work was skipped" in skipped.void
    honest = Repeats(fresh_ns=(MS,) * 16, repeated_ns=(MS,) * 16, compared=8, waited_share=0.0)
    assert with_service(repeats=honest).void is None
    for more, why in (
        ({"unchanged": 8}, "got the answers of the stored ones"),
        ({"fresh_ns": (2 * MS,) * 16}, "new inputs take 2 to 2 times as long as stored ones"),
        ({"fresh_ns": (40 * MS,) * 16, "repeated_ns": (40 * MS,) * 16}, "passes that are checked take "),
    ):
        remembers = with_service(repeats=honest.model_copy(update=more))
        assert why in (remembers.void or "")
        two = load.model_copy(update={"in_flight": 2})
        early = service(two, service_ns={1: (MS,) * 100}, repeats=honest.model_copy(update=more))
        assert why in (row(two, replace(evidence, service=early)).void or "")
    shared = {"fresh_ns": (3 * MS,) * 16, "repeated_ns": (3 * MS,) * 16}
    assert with_service(repeats=honest.model_copy(update={**shared, "waited_share": 0.05})).void is not None
    assert with_service(repeats=honest.model_copy(update={**shared, "waited_share": 0.06})).void is None
    used = cpu_use(1_000_000_000, threads=1, cpu_ns=1_500_000_000, helpers_ns=450_000_000)
    assert with_service(cpu_use=used).void == "it used 1.95 CPUs on average, and has 1 by its threads and workers"
    assert with_service(cpu_use=used, threads=2).void is None
    for more in ({"workers": 2}, {"in_flight": 2}):
        two = load.model_copy(update=more)
        assert row(two, replace(evidence, service=service(two, service_ns={1: (MS,)}, cpu_use=used))).void is None
    same = with_service(repeat_input=GuardTimes(usual_ns=usual, other_ns=usual))
    assert same.void is None
    assert [(guard.name, guard.ratio) for guard in same.guards] == [("repeat-input", 1.0), ("other-seed", 1.0)]
    slower = with_service(other_order=GuardTimes(usual_ns=usual, other_ns=tuple(1.5 * time for time in usual)))
    assert [(guard.name, guard.ratio) for guard in slower.guards] == [("other-order", 1.5), ("other-seed", 1.0)]
    assert slower.void is None
    assert any("another order of the inputs takes 1.5 times as long" in note for note in slower.notes)
    assert not any("times as long" in note for note in same.notes)


def test_times_of_a_service_that_waited_for_a_cpu_void_no_row(clock: SimulatedClock) -> None:
    load = case(rates=(5,))
    evidence = served(clock, load, lambda *_: 60 * MS, 40, 4)

    def void(times: tuple[int, ...], waited_ns: int | None) -> str:
        used = cpu_use(5 * 1_000_000_000, threads=1, cpu_ns=1_250_000_000, waited_ns=waited_ns)
        starved = service(load, service_ns={1: times}, cpu_use=used)
        return row(load, replace(evidence, service=starved)).void or ""

    # Every pass waited: 60 ms of work took 226 ms at least.
    long = tuple(226 * MS + number * 2 * MS for number in range(20))
    assert void(long, 3_750_000_000) == ""
    assert "226 ms at least while service times are measured" in void(long, None)
    assert "work was skipped" in void(long, 500_000_000)
    # Short passes waited seldom, and those that did not wait show how long the work takes.
    short = (85 * MS,) * 12 + (595 * MS,) * 8
    assert "85.0 ms at least" in void(short, 3_000_000_000)


@pytest.mark.parametrize(
    ("others", "is_void"),
    [
        # Ten of twelve pairs faster by chance: blocks of a busy machine.
        ((0.3, 0.4, 0.4, 0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 1.2, 2.1), False),
        ((0.3, 0.4, 0.4, 0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.8, 0.89), True),
        ((0.5, 0.5), False),  # few pairs of a slow service are alike by chance
    ],
)
def test_repeated_input_is_clearly_faster_only_with_the_confidence_of_the_repeat_check(
    clock: SimulatedClock, others: tuple[float, ...], is_void: bool
) -> None:
    load = case(rates=(50,))
    times = GuardTimes(usual_ns=(float(MS),) * len(others), other_ns=tuple(MS * ratio for ratio in others))
    evidence = served(clock, load, lambda *_: MS, 100, 4)
    voided = row(load, replace(evidence, service=service(load, service_ns={1: (MS,)}, repeat_input=times))).void
    assert ("a repeated input takes" in (voided or "")) is is_void


@pytest.mark.parametrize(
    ("copy_ns", "device", "is_void"),
    [(None, "cpu", True), (0.3 * MS, "cpu", True), (0.5 * MS, "cpu", False), (0.5 * MS, "cuda", True)],
)
def test_a_repeated_input_may_save_its_way_from_the_memory(
    clock: SimulatedClock, copy_ns: float | None, device: str, is_void: bool
) -> None:
    """A light model reads its large input: half of the time where the input is in the caches."""
    load = case(rates=(50,), device=device)
    times = GuardTimes(usual_ns=(float(MS),) * 12, other_ns=(0.5 * MS,) * 12, copy_ns=copy_ns)
    placed = Placement(device=device, precision="fp32", provider="p", settings={}, dtype_census={})
    evidence = served(clock, load, lambda *_: MS, 100, 4)
    judged = service(load, service_ns={1: (MS,)}, repeat_input=times, placement=placed)
    voided = row(load, replace(evidence, service=judged)).void
    assert ("a repeated input takes" in (voided or "")) is is_void


def test_schedules_of_other_seeds_are_held_against_each_other(clock: SimulatedClock) -> None:
    load = case(rates=(60,))
    evidence = served(clock, load, lambda *_: 5 * MS, 200, 6)
    (even,) = [guard for guard in row(load, evidence).guards if guard.name == "other-seed"]
    assert even.ratio == 1.0
    ((name, records),) = evidence.replications.items()
    slow = [
        record.model_copy(update={"done_ns": tuple(end + (2 - record.number % 2) * MS for end in record.done_ns)})
        for record in records
    ]
    result = row(load, replace(evidence, replications={name: slow}))
    (odd,) = [guard for guard in result.guards if guard.name == "other-seed"]
    assert odd.ratio == pytest.approx(7 / 6)
    assert any("schedules of another seed takes 1.17 times as long" in note for note in result.notes)


def test_outputs_that_were_not_compared_void_the_row_unless_nothing_is_computed(clock: SimulatedClock) -> None:
    load = case(scenario="single-stream", bound=None)
    result = serve_closed([clock.service(lambda *_: MS)], 1, alone, 100, 10**12)
    records = {"all": [replication(load, "all", 1, result, parity=None)]}
    evidence = LoadEvidence(service(load, parity={}), None, planned_points(load, None), records)
    assert row(load, evidence).void == "the outputs were not compared with the reference"
    assert load_row(load, "tensor", replace(CRITERIA, calibration=True), evidence).void is None
    prompts = load.model_copy(
        update={"prompt_length": 8, "new_tokens": 4, "endpoint": "openai+http://h/v1/completions"}
    )
    assert row(prompts, evidence).void is None


@pytest.mark.parametrize(("near", "void"), [(RIGHT, ALIKE), (WRONG, None), (None, None)])
def test_outputs_that_are_alike_for_all_inputs_prove_nothing(
    clock: SimulatedClock, near: Parity | None, void: str | None
) -> None:
    load, criteria = case(rates=(60,)), replace(CRITERIA, exchanged=near)
    evidence = served(clock, load, lambda *_: 5 * MS, 200, 2)
    assert load_row(load, "tensor", criteria, evidence).void == void
    wrong = replace(evidence, service=service(load, parity={1: WRONG}))
    assert "relative L2" in (load_row(load, "tensor", criteria, wrong).void or "")


def test_an_unmeasured_load_has_its_reason() -> None:
    load = case(rates=(50,))
    failure = LoadFailure.model_validate(
        {**BASE, "load_id": "m", "error": "No memory.", "hint": "Free some.", "phase": "load", "stderr_tail": ""}
    )
    missing, failed = row(load, LoadEvidence()), row(load, LoadEvidence(failure=failure))
    assert (missing.status, missing.hint) == ("missing", "Run `make load`.")
    assert (failed.status, failed.reason) == ("failed", "No memory. (in load)")
    skipped = row(case(skip_reason="no bf16 here"), LoadEvidence())
    assert (skipped.status, skipped.reason) == ("skipped", "no bf16 here")
    begun = row(load, LoadEvidence(service(load), None, planned_points(load, None), {}))
    assert begun.status == "missing"


def test_a_bound_below_the_service_time_has_no_load_and_says_so() -> None:
    load = case(bound=LatencyBound(quantile=0.99, limit_ns=3 * MS))
    prediction = predict(load, service(load), "0" * 64, 1, "now")
    assert prediction.peak_per_s is None
    result = row(load, LoadEvidence(service(load), prediction, planned_points(load, None), {}))
    assert (result.status, result.points, result.predicted_peak_per_s) == ("measured", (), None)
    (note,) = (note for note in result.notes if "no load meets the bound: a request alone takes 5.00 ms" in note)
    assert note.endswith("RATES names loads that are measured all the same")


def test_the_predicted_peak_of_m_d_1_is_that_of_theory() -> None:
    load = case(requests=2_000, replication_s=1e6)
    prediction = predict(load, service(load), "0" * 64, 1, "now")
    assert prediction.peak_per_s is not None
    assert prediction.capacity_per_s == 200
    # P[W > 45 ms] of M/D/1 falls as exp(-theta 45 ms), theta of rho (e^(theta s) - 1) = theta s.
    rho = prediction.peak_per_s * 5e-3
    theta = max(np.roots([1 / 24, 1 / 6, 1 / 2, 1 - 1 / rho]).real)
    tail = (1 - rho) / (rho * math.exp(theta) - 1) * math.exp(-theta * 9)
    assert tail == pytest.approx(0.01, rel=0.4)
