"""Each disturbance at its threshold, and how many rounds it takes to cost the rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.aggregation import checks, flags_host
from harness.aggregation import usage as utilisation
from harness.aggregation.grades import Finding, grade
from harness.core.schemas import Block, BusyProcess, Check, CpuUse, Measured, Stops, UsageSummary
from tests.synthetic_results import EFFICIENTNET, cpu_use, environment, measured, usage_of, usage_sample
from tests.synthetic_usage import CASE, usage

NOTHING = SimpleNamespace(caps_at=None)


def judged(
    *rounds: UsageSummary | None,
    threads: int = 2,
    room: int | None = None,
    cpus: int | None = None,
    used: CpuUse | str | None = "quiet",
) -> tuple[dict[str, Finding], dict[str, Check]]:
    """Findings by name and checks of three rounds on a machine of `cpus`; None: a round that was not watched."""
    records: list[Measured] = []
    for number, entry in enumerate(rounds, 1):
        quiet = cpu_use(2_000_000_000 if entry is None else entry.watched_ns, threads)
        counted = quiet if used == "quiet" else used
        records.append(measured(CASE, EFFICIENTNET, number, 60, threads=threads, cpu_use=counted))
    where = environment(threads=room or threads)
    size = cpus or where.machine.logical_cpus
    limits = where.limits.model_copy(update={"affinity": tuple(range(size))})
    machine = where.machine.model_copy(update={"logical_cpus": size})
    where = where.model_copy(update={"machine": machine, "limits": limits})
    watched = {number: entry for number, entry in enumerate(rounds, 1) if entry is not None}
    findings, made = checks.check_rounds(CASE, checks.timed_rounds(records, watched, {}, where))
    return {finding.flag.name: finding for finding in findings}, made


def flags_by_name(*rounds: UsageSummary | None, **conditions: Any) -> dict[str, Finding]:
    return judged(*rounds, **conditions)[0]


def clocked(*mhz: float) -> list[UsageSummary]:
    return [usage(frequency_mhz=entry) for entry in mhz]


def test_a_quiet_machine_has_nothing_to_say() -> None:
    findings, made = judged(usage(), usage(), usage())
    assert findings == {}
    assert checks.unchecked_findings(made) == []
    assert all((check.rounds, check.of) == (3, 3) for check in made.values())


@pytest.mark.parametrize(
    ("others", "threads", "cpus", "flagged"),
    [
        (9.9, 2, 2, False),  # 5% of two threads' CPUs
        (10.1, 2, 2, True),
        (100.0, 1, 2, False),  # all on the CPU that the case leaves free
        (106.0, 1, 2, True),
        (300.0, 8, 64, False),
        (5_700.0, 8, 64, True),
    ],
)
def test_others_count_where_they_take_the_cpus_of_the_case(
    others: float, threads: int, cpus: int, flagged: bool
) -> None:
    flags = flags_by_name(*[usage(others_percent=others)] * 3, threads=threads, cpus=cpus)
    assert ("CPU_SHARED" in flags) == flagged


@pytest.mark.parametrize(("rounds", "caps"), [(1, "B"), (2, "C"), (3, "C")])
def test_a_minority_of_rounds_cannot_move_the_median_far(rounds: int, caps: str) -> None:
    disturbed = [usage(others_percent=90.0)] * rounds + [usage()] * (3 - rounds)
    assert flags_by_name(*disturbed)["CPU_SHARED"].caps_at == caps


def test_the_numbers_are_in_the_detail() -> None:
    flag = flags_by_name(usage(), usage(others_percent=48.0), usage())["CPU_SHARED"].flag
    assert flag.detail == "round 2: other processes used 0.48 CPUs with all 2 CPUs wanted: 24% lost, 5% allowed"
    assert flag.remedy.endswith(".")


def test_a_short_window_is_not_judged_by_ticks_and_says_so() -> None:
    short = usage(others_percent=90.0, steal_percent=90.0).model_copy(update={"watched_ns": 940_000_000})
    findings, made = judged(short, short, usage())
    assert findings == {}
    assert {name for name, check in made.items() if check.rounds == 1} == {"CPU_SHARED", "STEAL"}
    (lacking,) = checks.unchecked_findings(made)
    assert lacking.caps_at == "B"
    assert lacking.flag.detail.startswith("CPU_SHARED, STEAL not made in 2 of 3 rounds (warm-up and timed part lasted")


def test_warm_up_and_timed_part_are_one_window() -> None:
    samples = [
        usage_sample(at * 250_000_000, "warm-up" if at <= 2 else "measure", others_percent=48.0) for at in (1, 2, 3, 4)
    ]
    window = utilisation.timed_usage(usage_of(CASE.case_id, 1, samples))
    assert window is not None
    assert "CPU_SHARED" in flags_by_name(window, window, window)


@pytest.mark.parametrize(
    ("steal", "own", "others", "flagged"),
    [
        (9.9, 190.0, 0.0, False),  # 5% of the two CPUs that the case wants
        (10.1, 190.0, 0.0, True),
        (10.1, 190.0, 100.0, False),  # others wanted more, and lost their share of it
        (None, 190.0, 0.0, False),
        (0.0, 0.0, 0.0, False),
    ],
)
def test_stolen_time_is_a_share_of_the_time_that_was_wanted(
    steal: float | None, own: float, others: float, flagged: bool
) -> None:
    rounds = [usage(steal_percent=steal, cpu_percent=own, others_percent=others)] * 3
    assert ("STEAL" in flags_by_name(*rounds, cpus=64)) == flagged


@pytest.mark.parametrize(("periods", "flagged"), [(0, False), (1, True), (None, False)])
def test_any_throttled_period_is_a_flag(periods: int | None, flagged: bool) -> None:
    assert ("CPU_QUOTA" in flags_by_name(*[usage(throttled_periods=periods)] * 3)) == flagged


def test_heat_is_known_where_the_processor_counts_it() -> None:
    flag = flags_by_name(usage(thermal_events=1, temperature_c=97.0), usage(thermal_events=0), usage(thermal_events=0))[
        "THERMAL"
    ]
    assert flag.caps_at == "B"
    assert "8 times, up to 97 °C" in flag.flag.detail


@pytest.mark.parametrize(("faults", "flagged"), [(10, False), (11, True)])
def test_a_few_pages_are_no_evidence_and_more_are_a_flag(faults: int, flagged: bool) -> None:
    single = usage().model_copy(update={"major_faults": faults})  # 200 inferences
    assert ("MAJOR_FAULTS" in flags_by_name(single, single, single)) == flagged


@pytest.mark.parametrize(
    ("mhz", "caps"),
    [
        ((3_000.0, 2_912.0, 2_990.0), None),
        ((3_000.0, 2_908.0, 2_990.0), "B"),  # one of three: the median lies among the others
        ((3_000.0, 2_908.0, 2_800.0), "C"),
        ((3_000.0, 2_908.0), "C"),
    ],
)
def test_the_clock_may_not_drift_between_rounds(mhz: tuple[float, ...], caps: str | None) -> None:
    assert flags_by_name(*clocked(*mhz)).get("CLOCK_DRIFT", NOTHING).caps_at == caps


@pytest.mark.parametrize(("slow", "caps"), [(10_490, None), (10_530, "B"), (13_000, "B")])
def test_a_guest_that_shows_no_frequency_is_judged_by_a_fixed_piece_of_work(slow: int, caps: str | None) -> None:
    records = [measured(CASE, EFFICIENTNET, number, 60) for number in (1, 2, 3)]
    # One sample that an interrupt hit, and a round on a lower clock.
    works = [(10_200, 10_200, 90_000), (10_190, 10_200, 10_210), (slow, slow, slow)]
    rounds = [
        flags_host.Round(record.model_copy(update={"cpu_use": cpu_use(2_000_000_000, work_ns=work)}), usage())
        for record, work in zip(records, works, strict=True)
    ]
    findings, made = checks.check_rounds(CASE, rounds)
    assert {finding.flag.name: finding.caps_at for finding in findings} == ({"CLOCK_DRIFT": caps} if caps else {})
    assert made["CLOCK_DRIFT"] == Check(rounds=3, of=3)


@pytest.mark.parametrize(
    ("others", "allowed", "cores", "siblings", "flagged"),
    [
        (100.0, 1, 1, 0.0, True),  # pinned beside a busy loop on its CPU, whatever the other 63 do
        (4.9, 1, 1, 0.0, False),
        (0.0, 1, 1, 5.1, True),  # the other half of its core is busy
        (0.0, 1, None, None, False),
        (96.0, 2, 2, 0.0, False),  # the second core is free
        (96.0, 2, 1, 0.0, True),  # the second CPU is the other half of its core
    ],
)
def test_others_count_on_the_cpus_that_the_process_may_use_and_on_their_siblings(
    others: float, allowed: int, cores: int | None, siblings: float | None, flagged: bool
) -> None:
    seen = usage(
        others_percent=others,
        allowed_others_percent=others,
        allowed_cpus=allowed,
        allowed_cores=cores,
        siblings_percent=siblings,
    )
    assert ("CPU_SHARED" in flags_by_name(seen, seen, seen, threads=1, cpus=64)) == flagged


def test_an_old_record_of_a_pinned_process_cannot_show_who_else_was_on_its_cpus() -> None:
    records = [measured(CASE, EFFICIENTNET, 1, 200, threads=1)]
    where = environment(threads=1)
    pinned = where.model_copy(update={"limits": where.limits.model_copy(update={"affinity": (0,)})})
    for place, rounds in ((where, 1), (pinned, 0)):
        _, made = checks.check_rounds(CASE, checks.timed_rounds(records, {1: usage()}, {}, place))
        assert made["CPU_SHARED"].rounds == rounds


@pytest.mark.parametrize(("cpu_ns", "flagged"), [(1_049_000_000, False), (1_051_000_000, True), (2_000_000_000, True)])
def test_a_row_may_use_the_threads_that_it_was_given_and_no_more(cpu_ns: int, flagged: bool) -> None:
    used = cpu_use(1_000_000_000, threads=1, cpu_ns=cpu_ns)
    flags = flags_by_name(*[usage(cpu_percent=98.0)] * 3, threads=1, cpus=2, used=used)
    assert ("THREADS" in flags) == flagged
    if cpu_ns == 2_000_000_000:
        assert flags["THREADS"].caps_at == "C"
        assert "used 2.00 CPUs on average where it was given 1 thread" in flags["THREADS"].flag.detail


@pytest.mark.parametrize(
    ("own_ns", "helpers_ns", "seen_percent", "said"),
    [
        (990_000_000, 0, 98.0, None),
        (990_000_000, 900_000_000, 98.0, "used 1.89 CPUs on average, 0.90 of them in processes that it started"),
        (400_000_000, 0, 195.0, "used 1.95 CPUs on average where it was given 1 thread"),  # a changed CPU clock
        (
            20_000_000,
            980_000_000,
            2.0,
            "wanted 0.02 CPUs while it was timed, 0.5 needed: it slept or waited for other work",
        ),
    ],
)
def test_work_of_helper_processes_counts_and_work_elsewhere_is_seen(
    own_ns: int, helpers_ns: int, seen_percent: float, said: str | None
) -> None:
    used = cpu_use(1_000_000_000, threads=1, cpu_ns=own_ns, helpers_ns=helpers_ns)
    flags = flags_by_name(*[usage(cpu_percent=seen_percent)] * 3, threads=1, cpus=2, used=used)
    assert ("THREADS" in flags) is (said is not None)
    assert said is None or said in flags["THREADS"].flag.detail


def test_a_process_that_is_kept_from_its_cpus_is_no_idle_one() -> None:
    idle = cpu_use(2_000_000_000, threads=1, cpu_ns=600_000_000, waited_ns=0)
    for reason in ({"quota_start": 0.3, "quota_end": 0.3}, {"waited_ns": 1_400_000_000}):
        used = idle.model_copy(update=reason)
        assert "THREADS" not in flags_by_name(*[usage(cpu_percent=30.0)] * 3, threads=1, used=used)
    stolen = [usage(cpu_percent=30.0, steal_percent=70.0)] * 3
    assert "THREADS" not in flags_by_name(*stolen, threads=1, used=idle)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"affinity_given": (0, 1)}, None),
        ({"affinity_given": (0, 1, 2)}, None),  # a library may bind itself to fewer
        ({"affinity_given": (0,)}, "CPUs 0 when it began and 1 after loading"),
        ({"scheduling_given": "normal, nice 0", "scheduling_end": "normal, nice 0"}, None),
        ({"scheduling_given": "normal, nice 0", "scheduling_end": "FIFO, nice 0"}, "`FIFO, nice 0` at the end"),
    ],
)
def test_a_backend_takes_no_more_than_it_is_given(changes: dict[str, Any], said: str | None) -> None:
    flags = flags_by_name(usage(), usage(), usage(), used=cpu_use(2_000_000_000, **changes))
    assert ("AFFINITY_CHANGED" in flags) is (said is not None)
    assert said is None or said in flags["AFFINITY_CHANGED"].flag.detail


@pytest.mark.parametrize(("allowed", "flagged"), [(1, False), (2, False), (3, True)])
def test_its_other_threads_take_no_more_cpus_either(allowed: int, flagged: bool) -> None:
    seen = usage(allowed_cpus=allowed, allowed_cores=allowed, allowed_others_percent=0.0, siblings_percent=0.0)
    flags = flags_by_name(seen, seen, seen, used=cpu_use(2_000_000_000, affinity_given=(0, 1)))
    assert ("AFFINITY_CHANGED" in flags) is flagged


@pytest.mark.parametrize(
    ("waited_ns", "threads", "room", "flagged"),
    [
        (99_000_000, 2, 2, False),  # 5% of two threads
        (101_000_000, 2, 2, True),
        (1_000_000_000, 3, 2, False),  # one thread too many waits all the time: OVERSUBSCRIBED says so
        (1_101_000_000, 3, 2, True),
    ],
)
def test_threads_that_wait_for_a_cpu_are_starved(waited_ns: int, threads: int, room: int, flagged: bool) -> None:
    used = cpu_use(1_000_000_000, threads=threads, waited_ns=waited_ns, affinity_start=tuple(range(room)))
    used = used.model_copy(update={"affinity_end": used.affinity_start, "cpu_ns": 1_000_000_000})
    assert ("STARVED" in flags_by_name(usage(), usage(), usage(), threads=threads, used=used)) == flagged


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"waited_ns": None}, "the kernel does not count"),
        ({"threads_ended": 3}, "3 threads ended"),
    ],
)
def test_waiting_that_is_not_counted_is_a_check_that_was_not_made(changes: dict[str, Any], reason: str) -> None:
    _, made = judged(usage(), usage(), usage(), used=cpu_use(**changes))
    assert made["STARVED"].rounds == 0
    assert reason in str(made["STARVED"].missing)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"affinity_end": (0,)}, "CPUs 0, 1 at the start and 0 at the end"),
        ({"quota_end": 1.5}, "a quota of no limit at the start and 1.5 cores at the end"),
    ],
)
def test_the_cpus_of_a_process_must_not_change(changes: dict[str, Any], says: str) -> None:
    flag = flags_by_name(usage(), usage(), usage(), used=cpu_use(**changes))["AFFINITY_CHANGED"]
    assert flag.caps_at == "C"
    assert says in flag.flag.detail


def test_a_record_from_before_a_check_existed_was_not_checked() -> None:
    findings, made = judged(usage(), usage(), usage(), used=None)
    assert findings == {}
    (lacking,) = checks.unchecked_findings(made)
    assert lacking.caps_at == "B"
    names = "CLOCK_DRIFT, STARVED, THREADS, AFFINITY_CHANGED"
    assert lacking.flag.detail == f"{names} not made (measured before this check existed)"


def test_more_threads_than_room() -> None:
    flag = flags_by_name(usage(), threads=4, room=2)["OVERSUBSCRIBED"]
    assert flag.caps_at == "B"
    assert "4 threads on 2 CPUs" in flag.flag.detail
    assert "OVERSUBSCRIBED" not in flags_by_name(usage(), threads=2, room=2)


@pytest.mark.parametrize(("ran", "device", "flagged"), [(4, "cpu", True), (8, "cpu", False), (1, "cuda:0", False)])
def test_a_library_that_takes_other_threads_than_it_is_given_is_reported_and_costs_no_grade(
    ran: int, device: str, flagged: bool
) -> None:
    record = measured(CASE, EFFICIENTNET, 1, 200, threads=8)
    placement = record.placement.model_copy(update={"settings": {"threads": ran}, "device": device})
    flags = {
        entry.flag.name: entry
        for entry in flags_host.other_threads([record.model_copy(update={"placement": placement})])
    }
    assert ("OTHER_THREADS" in flags) == flagged
    if flagged:
        assert flags["OTHER_THREADS"].caps_at == "A"
        assert "4 threads of its own choice where it was given 8" in flags["OTHER_THREADS"].flag.detail


@pytest.mark.parametrize(("unseen", "caps"), [(0, None), (1, "B"), (2, "C"), (3, "C")])
def test_no_witness_is_a_flag(unseen: int, caps: str | None) -> None:
    flags = flags_by_name(*[None] * unseen, *[usage()] * (3 - unseen))
    assert flags.get("UNWATCHED", NOTHING).caps_at == caps


def test_a_round_without_a_witness_may_have_been_hit_as_well() -> None:
    assert flags_by_name(usage(others_percent=90.0), usage(), usage())["CPU_SHARED"].caps_at == "B"
    assert flags_by_name(usage(others_percent=90.0), None, usage())["CPU_SHARED"].caps_at == "C"


SEEN = st.builds(
    usage,
    others_percent=st.sampled_from([0.0, 90.0]),
    steal_percent=st.sampled_from([None, 0.0, 60.0]),
    throttled_periods=st.sampled_from([None, 0, 3]),
    thermal_events=st.sampled_from([None, 0, 2]),
    major_faults=st.sampled_from([0, 900]),
    frequency_mhz=st.sampled_from([None, 2_500.0, 2_900.0, 3_000.0]),
)


@pytest.mark.parametrize("clocks", [(None, 2_500.0, 2_900.0), (2_500.0, 2_900.0, None, None, None)])
def test_a_deleted_clock_may_have_differed(clocks: tuple[float | None, ...]) -> None:
    rounds: list[UsageSummary | None] = [usage(frequency_mhz=clock) for clock in clocks]
    assert flags_by_name(*rounds)["CLOCK_DRIFT"].caps_at == "C"
    kept = [
        None if clock == 2_500.0 or (len(clocks) == 5 and clock) else entry
        for entry, clock in zip(rounds, clocks, strict=True)
    ]
    assert flags_by_name(*kept)["CLOCK_DRIFT"].caps_at == "C"


@given(rounds=st.lists(SEEN, min_size=1, max_size=5), data=st.data(), old=st.booleans())
def test_deleting_the_records_of_the_monitor_never_improves_a_grade(
    rounds: list[UsageSummary], data: st.DataObject, old: bool
) -> None:
    kept = [entry if data.draw(st.booleans()) else None for entry in rounds]

    def graded(watched: Sequence[UsageSummary | None]) -> str:
        findings, made = judged(*watched, used=None if old else "quiet")
        return grade([*findings.values(), *checks.unchecked_findings(made)])

    assert graded(kept) >= graded(rounds)
    assert graded([None] * len(rounds)) == "C"


def test_the_other_program_is_named_without_characters_that_steer_a_terminal_or_a_page() -> None:
    busy = BusyProcess(pid=4711, name="<b>|cc1*plus", cpu_percent=87.0)
    disturbed = usage(others_percent=180.0).model_copy(update={"busiest": (busy,)})
    detail = flags_by_name(disturbed, disturbed, disturbed, cpus=2)["CPU_SHARED"].flag.detail
    assert detail.endswith("; mostly ?b??cc1?plus (process 4711), 0.87 CPUs")
    unseen = flags_by_name(*[usage(others_percent=180.0)] * 3, cpus=2)["CPU_SHARED"].flag.detail
    assert "mostly" not in unseen


def test_rounds_name_each_program_once_with_its_largest_share() -> None:
    rounds = [
        usage().model_copy(update={"busiest": (BusyProcess(pid=1, name="a", cpu_percent=percent),)})
        for percent in (10.0, 30.0, 20.0)
    ]
    together = utilisation.merged_usage(rounds)
    assert together is not None
    assert [(entry.name, entry.cpu_percent) for entry in together.busiest] == [("a", 30.0)]


def stopped_round(usage: UsageSummary | None = None, **changes: Any) -> flags_host.Round:
    """Samples of some 2 ms, watched without a hole unless something else is asked for."""
    record = measured(CASE, EFFICIENTNET, 1, 200, **changes)
    return flags_host.Round(record, usage or watched())


def watched(longest_look_s: float = 0.25, stopped_looks: int | None = 0) -> UsageSummary:
    changes = {"longest_look_ns": int(longest_look_s * 1e9), "stopped_looks": stopped_looks}
    return usage().model_copy(update=changes)


def with_a_long_sample(seconds: float) -> dict[str, Any]:
    """Of a process that got no further for so long, between samples of 2 ms."""
    samples = (2_000_000,) * 100 + (int(seconds * 1e9),)
    return {"latency_ns": samples, "blocks": (Block(iterations=len(samples), wall_ns=sum(samples) + 1_000),)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stops": Stops(continued=("load", "measure", "measure"))}, "load (1x), measure (2x)"),
        ({"stops": Stops(suspended_ns=4_200_000_000)}, "suspended for 4.2 s"),
        ({"usage": watched(stopped_looks=3)}, "at 3 looks"),
        ({"usage": watched(longest_look_s=1.4), **with_a_long_sample(1.2)}, "both were held"),
    ],
)
def test_a_stop_has_a_witness_and_costs_the_rank(changes: dict[str, Any], words: str) -> None:
    result = stopped_round(**changes)
    rounds = [replace(result, record=result.record.model_copy(update={"round": number})) for number in (1, 2, 3)]
    assert words in str(flags_host.stopped(rounds[0]))
    assert flags_host.stopped_unmade(rounds[0]) is None
    (hit,) = [entry for entry in checks.check_rounds(CASE, rounds)[0] if entry.flag.name == "STOPPED"]
    assert hit.caps_at == "C"
    assert [entry.flag.name for entry in checks.stop_findings(rounds)] == [
        "STOPPED"
    ]  # of rows without other checks as well


def test_slow_passes_and_waits_for_a_cpu_are_no_stop_where_the_monitor_waits_as_well() -> None:
    blind = "the monitor was kept from looking for 1.4 s"
    passes: dict[str, Any] = {"latency_ns": (1_200_000_000,) * 20, "warmup_ns": (1_250_000_000,) * 3}
    block = Block(iterations=20, wall_ns=24_000_000_000)
    slow = stopped_round(watched(longest_look_s=1.4), **passes, blocks=(block,))
    assert (flags_host.stopped(slow), flags_host.stopped_unmade(slow)) == (None, blind)
    for waited_ns, held in ((140_000_000, True), (400_000_000, False)):
        used = cpu_use(threads=1, waited_ns=waited_ns)
        result = stopped_round(watched(longest_look_s=1.4), **with_a_long_sample(1.2), cpu_use=used, threads=1)
        assert (flags_host.stopped(result) is not None) is held
        assert flags_host.stopped_unmade(result) == (None if held else blind)


def test_a_stop_in_one_round_of_three_costs_the_a_alone() -> None:
    hit, quiet = stopped_round(stops=Stops(continued=("warm-up",))), stopped_round()
    others = [flags_host.Round(measured(CASE, EFFICIENTNET, number, 200), watched()) for number in (2, 3)]
    (result,) = checks.stop_findings([hit, *others])
    assert (result.caps_at, flags_host.stopped(quiet)) == ("B", None)


def test_a_monitor_that_alone_was_stopped_proves_nothing_and_leaves_the_check_unmade() -> None:
    result = stopped_round(watched(longest_look_s=9.0))
    assert flags_host.stopped(result) is None
    assert flags_host.stopped_unmade(result) == "the monitor was kept from looking for 9.0 s"


def test_an_older_record_is_judged_where_its_samples_are_short_enough_to_show_a_stop() -> None:
    assert flags_host.stopped_unmade(stopped_round(stops=None)) is None
    slow = {"latency_ns": (30_000_000,) * 50, "blocks": (Block(iterations=50, wall_ns=1_500_000_000),)}
    assert flags_host.stopped_unmade(stopped_round(stops=None, **slow)) == flags_host.OLD_RECORD
    assert flags_host.stopped_unmade(stopped_round(**slow)) is None


def test_a_profile_whose_process_was_stopped_has_no_rank() -> None:
    findings, unmade = flags_host.profile_findings(watched(stopped_looks=2), 2, False, environment(threads=2))
    assert [(finding.flag.name, finding.caps_at) for finding in findings] == [("STOPPED", "C")]
    assert unmade == {}
    findings, unmade = flags_host.profile_findings(watched(longest_look_s=1.0), 2, False, environment(threads=2))
    assert (findings, list(unmade)) == ([], ["STOPPED"])
