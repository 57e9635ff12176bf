"""Shares of measured limits, what bounds a row, and rows that are faster than can be."""

from __future__ import annotations

from typing import Any

import pytest

from harness.aggregation.grades import Finding
from harness.aggregation.roofline import (
    CACHE_BYTES,
    CPU_CACHE_BYTES,
    JudgedRoofline,
    bounds_of,
    least_bytes,
    other_cpu,
    other_gpu,
    pass_ns,
    rooflines,
)
from harness.aggregation.row import Context, Draft, build_row
from harness.core.schemas import (
    REMOVES_PADDING,
    Check,
    CpuRoof,
    Environment,
    ExportRecord,
    Flag,
    Gpu,
    LatencyPart,
    Placement,
    Precision,
    Roof,
    Row,
    Split,
    Summary,
    Unavailable,
    Work,
)
from tests.synthetic_results import RESNET, Synthetic, case_of, environment, export_record, voided
from tests.synthetic_roof import BASE, CPU_ROOF, MS, ROOF, WORK, row


def judged(row: Row, work: Work = WORK, roof: Roof | CpuRoof | None = ROOF) -> Row:
    export = export_record(RESNET).model_copy(update={"work": (work,)})
    return rated([row], {RESNET.name: export}, roof)[0]


def rated(rows: list[Row], exports: dict[str, ExportRecord], roof: Roof | CpuRoof | None) -> list[Row]:
    """The rows as they are built with their rooflines; what is not judged, as it was."""
    seen = rooflines(rows, exports, roof)
    return [_rebuilt(row, seen[row.case_id]) if row.case_id in seen else row for row in rows]


def _rebuilt(row: Row, seen: JudgedRoofline) -> Row:
    findings = tuple(Finding(flag.caps_at or "A", flag) for flag in row.flags if flag.name != "UNCHECKED")
    draft = Draft(row.model_copy(update={"grade": None, "flags": (), "checks": {}}), findings, row.checks)
    return build_row(draft, Context(seen.roofline, seen.findings, seen.checks))


def test_shares_are_of_the_measured_limits() -> None:
    roofline = judged(row(2.0, batch=100)).roofline
    assert roofline is not None
    assert roofline.flops == 700_000_000_000
    assert roofline.flops_share == pytest.approx(0.5)  # 1 ms at 700 TFLOP/s
    # 25 M weights and 100 x (150,000 pixels + 1,000 outputs), 2 bytes each.
    assert roofline.bytes == 50_000_000 + 100 * (300_000 + 2_000)
    assert roofline.bytes_share == pytest.approx(80.2e6 / 3e12 / 2e-3)


def test_fp32_has_its_own_limit_and_element_size() -> None:
    roofline = judged(row(2.0, precision="fp32")).roofline
    assert roofline is not None
    assert roofline.flops_share == pytest.approx(7e9 / 50e12 / 2e-3)
    assert roofline.bytes == 100_000_000 + 600_000 + 4_000


@pytest.mark.parametrize(
    ("found", "limit"),
    [
        (row(2.0, batch=100), "compute"),
        (row(0.05, batch=1), "memory"),  # 10 µs of arithmetic, 17 µs of traffic
        (row(0.4, batch=1), None),  # below both limits: one batch size does not show why
        (row(2.0, batch=100, enqueue_ms=1.7), "host"),
        (row(2.0, batch=100, enqueue_ms=1.5), "compute"),
        (row(2.0, batch=100, enqueue_ms=1.9, mode="offline"), "compute"),
    ],
)
def test_the_bound_of_a_row(found: Row, limit: str | None) -> None:
    roofline = judged(found).roofline
    assert roofline is not None
    assert roofline.limit == limit


def limits(*times: tuple[int, float], **changes: Any) -> list[str | None]:
    """What bounds rows of one backend, from (batch size, device ms)."""
    rows = [row(ms, batch, case_id=f"b{batch}", **changes) for batch, ms in times]
    export = export_record(RESNET).model_copy(update={"work": (WORK,)})
    return [entry.roofline and entry.roofline.limit for entry in rated(rows, {RESNET.name: export}, ROOF)]


def test_time_that_grows_with_the_batch_is_not_launching() -> None:
    # ResNet-50 in ONNX Runtime on an H100: far below both limits, though nothing waits for launches.
    assert limits((1, 0.80), (8, 1.45), (32, 3.87), (128, 14.67)) == ["launch", "kernels", "kernels", "kernels"]
    # TorchScript: launches until batch 32, then the kernels.
    assert limits((128, 5.99), (8, 1.41), (1, 1.26)) == ["kernels", "launch", "launch"]


def test_a_limit_that_is_near_needs_no_neighbour() -> None:
    assert limits((1, 0.4), (100, 2.0)) == ["launch", "compute"]
    assert limits((1, 0.4), (8, 0.5), enqueue_ms=0.45) == ["host", "host"]


def test_rows_of_another_setting_or_void_ones_do_not_count_for_growth() -> None:
    other = row(0.5, 8, case_id="other", setting="graph")
    void = row(0.5, 8, case_id="void", grade="F")
    export = export_record(RESNET).model_copy(update={"work": (WORK,)})
    first, *_ = rated([row(0.4), other, void], {RESNET.name: export}, ROOF)
    assert first.roofline is not None
    assert first.roofline.limit is None


def test_copies_over_the_link_are_left_out() -> None:
    times = row(4.0).device_ns
    assert times is not None
    parts = times.model_copy(update={"h2d": 1.5 * MS, "compute": 2.0 * MS, "d2h": 0.5 * MS})
    roofline = judged(row(4.0, batch=100, device_ns=parts)).roofline
    assert roofline is not None
    assert roofline.flops_share == pytest.approx(0.5)


@pytest.mark.parametrize(("device_ms", "grade"), [(0.96, "A"), (0.94, "F")])
def test_faster_than_the_best_product_is_void(device_ms: float, grade: str) -> None:
    result = judged(row(device_ms, batch=100))
    assert result.grade == grade
    assert [flag.name for flag in result.flags if flag.name == "ABOVE_ROOF"] == (["ABOVE_ROOF"] if grade == "F" else [])
    assert (result.void.roofline if result.void else result.roofline) is not None
    assert (result.latency_ns is None) == (grade == "F")


def test_the_flag_names_the_limit_that_was_exceeded() -> None:
    flag = judged(row(0.5, batch=100)).flags[-1]
    time, work = flag.detail.split(" of ", 1)
    assert time == "500.0 µs on the device is less than the 1,000.0 µs"
    assert work == "700.0 GFLOP at the 700 TFLOP/s of the best matrix product"
    assert "torch-eager left work out" in flag.remedy


def test_winograds_convolutions_need_a_quarter() -> None:
    light = WORK.model_copy(update={"winograd_flops_per_item": WORK.flops_per_item})
    assert judged(row(0.3, batch=100), light).grade == "A"
    assert judged(row(0.2, batch=100), light).grade == "F"


@pytest.mark.parametrize(("device_ms", "grade"), [(0.5, "A"), (0.4, "F")])
def test_traffic_voids_only_beyond_any_cache(device_ms: float, grade: str) -> None:
    copied = int(0.45e-3 / 0.95 * ROOF.copy_bytes_per_s)
    heavy = WORK.model_copy(update={"parameters": (copied + CACHE_BYTES) // 2, "flops_per_item": 1})
    result = judged(row(device_ms), heavy)
    assert result.grade == grade
    assert grade == "A" or "GB/s of the best copy" in result.flags[-1].detail


def test_a_model_that_fits_into_a_cache_may_be_faster_than_memory() -> None:
    small = WORK.model_copy(update={"flops_per_item": 1})
    result = judged(row(0.002), small)  # 50 MB of weights in 2 µs
    assert result.grade == "A"
    assert result.roofline is not None
    assert result.roofline.bytes_share > 1


@pytest.mark.parametrize("change", [{"grade": "F"}, {"flags": (Flag(name="CALIBRATION", detail="", remedy=""),)}])
def test_rows_that_are_void_or_compute_nothing_stay_as_they_are(change: dict[str, Any]) -> None:
    result = row(1e-3, batch=100, **change)
    assert judged(result) == result


@pytest.mark.parametrize("change", [{"sequence_length": 128}, {"model": "another"}])
def test_the_check_does_not_apply_to_uncounted_work(change: dict[str, Any]) -> None:
    result = judged(row(1e-3, batch=100, **change))
    assert (result.grade, result.roofline, result.flags) == ("A", None, ())
    assert "ABOVE_ROOF" not in result.checks


WITHOUT_PADDING = Placement(
    device="cuda", precision="fp16", provider="ort", settings={REMOVES_PADDING: True}, dtype_census={}
)
PADDED = WORK.model_copy(update={"text_flops_per_item": WORK.flops_per_item // 4})


@pytest.mark.parametrize(("device_ms", "grade"), [(0.3, "A"), (0.2, "F")])
@pytest.mark.parametrize("placement", [WITHOUT_PADDING, None])
def test_no_backend_is_faster_than_the_text_alone(device_ms: float, grade: str, placement: Placement | None) -> None:
    own = {} if placement is None else {"placement": placement}
    assert judged(row(device_ms, batch=100, **own), PADDED).grade == grade


def test_without_padding_in_the_inputs_nothing_can_be_left_out() -> None:
    assert judged(row(0.5, batch=100, placement=WITHOUT_PADDING)).grade == "F"
    assert judged(row(1.0, batch=100, placement=WITHOUT_PADDING)).grade == "A"


def test_shares_are_of_the_computed_work_of_a_row() -> None:
    whole, text = judged(row(2.0, batch=100), PADDED), judged(row(2.0, batch=100, placement=WITHOUT_PADDING), PADDED)
    assert whole.roofline is not None
    assert text.roofline is not None
    assert whole.roofline.flops == 4 * text.roofline.flops == 700_000_000_000


@pytest.mark.parametrize(
    ("found", "roof", "why"),
    [
        (row(2.0), None, "what this GPU can do at most was not measured"),
        (row(2.0, precision="int8"), ROOF, "no best matrix product in int8 was measured"),
        (row(2.0, precision="fp8"), ROOF, "no best matrix product in fp8 was measured"),
        (row(2.0, device_ns=None), ROOF, "the time of a pass is not known"),
        (row(2.0), CPU_ROOF, "what this GPU can do at most was not measured"),
        (BASE, None, "what this CPU can do at most was not measured"),
        (BASE, ROOF, "what this CPU can do at most was not measured"),
        (BASE.model_copy(update={"threads": 3}), CPU_ROOF, "no limits were measured with 3 threads"),
        (
            BASE.model_copy(update={"precision": "fp16"}),
            CPU_ROOF,
            "no best matrix product in fp16 was measured (no library can)",
        ),
    ],
)
def test_a_check_that_applies_and_was_not_made_costs_the_a_and_names_itself(
    found: Row, roof: Roof | CpuRoof | None, why: str
) -> None:
    found = found.model_copy(update={"grade": "A", "flags": ()})
    seen = judged(found, roof=roof)
    assert (seen.grade, seen.roofline) == ("B", None)
    assert [(flag.name, flag.detail) for flag in seen.flags] == [("UNCHECKED", f"ABOVE_ROOF not made ({why})")]
    rounds = found.latency_ns.rounds if found.latency_ns else 0
    assert seen.checks["ABOVE_ROOF"] == Check(rounds=0, of=rounds, missing=why)


def test_a_check_that_was_made_says_in_how_many_rounds() -> None:
    assert judged(row(2.0, batch=100)).checks["ABOVE_ROOF"] == Check(rounds=3, of=3, missing=None)


def test_work_is_selected_by_sequence_length() -> None:
    works = tuple(WORK.model_copy(update={"sequence_length": n, "flops_per_item": n * 10**9}) for n in (32, 128))
    export: ExportRecord = export_record(RESNET).model_copy(update={"work": works})
    roofline = rated([row(9.0, sequence_length=128)], {RESNET.name: export}, ROOF)[0].roofline
    assert roofline is not None
    assert roofline.flops == 128 * 10**9


def on_card(name: str) -> Environment:
    unknown = Unavailable(unavailable="x")
    names = "vbios persistence ecc mig power_limit_w power_limit_default_w max_sm_mhz max_memory_mhz pcie bar1_bytes"
    facts: dict[str, Any] = dict.fromkeys(names.split(), unknown)
    card = Gpu(name=name, uuid="GPU-2", sm="9.0", memory_bytes=1, driver="580", cuda="13.0", **facts)
    return environment().model_copy(update={"gpu": card})


def test_limits_of_another_gpu_are_distinguished() -> None:
    assert other_gpu(ROOF, [on_card("A GPU"), environment()]) is None
    assert other_gpu(ROOF, [environment()]) is None
    assert "another GPU (A GPU)" in (other_gpu(ROOF, [on_card("A GPU"), on_card("B GPU")]) or "")


def test_a_part_of_the_work_is_a_lower_bound_and_none_of_it_no_roofline() -> None:
    part = WORK.model_copy(update={"uncounted": ("_fft_r2c",)})
    roofline = judged(row(0.4, batch=1), part).roofline
    assert roofline is not None
    assert (roofline.at_least, roofline.limit) == (True, None)
    grown = rated(
        [row(2.0, batch=1), row(16.0, batch=8, case_id="larger")],
        {RESNET.name: export_record(RESNET).model_copy(update={"work": (part,)})},
        ROOF,
    )
    assert [entry.roofline.limit for entry in grown if entry.roofline] == [None, None], "not called slow kernels"
    assert judged(row(0.4, batch=1), part.model_copy(update={"flops_per_item": 0})).roofline is None


def on_cpu(median_ms: float, **changes: Any) -> Row:
    """A row on a CPU with 2 threads, fp32 unless named, grade A: 7 GFLOP take 17.5 ms at least."""
    assert BASE.latency_ns is not None
    latency = BASE.latency_ns.model_copy(update={"median": median_ms * MS})
    given = {"latency_ns": latency, "threads": 2, "grade": "A", "flags": (), "split": None}
    return voided(BASE.model_copy(update={**given, **changes}))


def cpu_judged(median_ms: float, work: Work = WORK, **changes: Any) -> Row:
    return judged(on_cpu(median_ms, **changes), work, CPU_ROOF)


@pytest.mark.parametrize(
    ("threads", "precision", "share"),
    [
        (2, "fp32", 17.5 / 35),
        (1, "fp32", 70 / 35),
        (2, "int8", 4.375 / 35),
        # bf16 is emulated here: what is slower than fp32 is no limit, because a library may compute it by way of fp32.
        (2, "bf16", 17.5 / 35),
    ],
)
def test_shares_of_a_cpu_are_of_the_limits_with_the_rows_threads(
    threads: int, precision: Precision, share: float
) -> None:
    roofline = cpu_judged(35.0, threads=threads, precision=precision).roofline
    assert roofline is not None
    assert roofline.flops_share == pytest.approx(share)


def test_traffic_of_a_cpu() -> None:
    roofline = cpu_judged(35.0).roofline
    assert roofline is not None
    assert roofline.bytes == 100_000_000 + 600_000 + 4_000
    assert roofline.bytes_share == pytest.approx(100.604e6 / 20e9 / 35e-3)
    quantised = cpu_judged(35.0, precision="int8").roofline
    assert quantised is not None
    assert quantised.bytes == 25_000_000 + 600_000 + 4_000


@pytest.mark.parametrize(
    ("found", "limit"),
    [
        (cpu_judged(35.0), "compute"),
        (cpu_judged(90.0), None),
        (cpu_judged(10.0, WORK.model_copy(update={"flops_per_item": 10**9})), "memory"),
        # 24 MB stay in the cache of 32 MiB: their copies bound nothing.
        (cpu_judged(2.0, WORK.model_copy(update={"flops_per_item": 10**8, "parameters": 6_000_000})), None),
    ],
)
def test_the_bound_of_a_row_of_a_cpu(found: Row, limit: str | None) -> None:
    assert found.roofline is not None
    assert found.roofline.limit == limit


@pytest.mark.parametrize(("median_ms", "grade"), [(10.0, "A"), (8.8, "A"), (8.7, "F"), (0.05, "F")])
def test_a_row_of_a_cpu_is_void_below_half_of_the_least_time(median_ms: float, grade: str) -> None:
    result = cpu_judged(median_ms)
    assert result.grade == grade
    assert [flag.name for flag in result.flags] == (["ABOVE_ROOF"] if grade == "F" else [])
    assert result.checks["ABOVE_ROOF"] == Check(rounds=3, of=3, missing=None)


def test_a_lazy_backend_of_one_thread_is_void() -> None:
    """EfficientNet-Lite0 (0.77 GFLOP) in 0.05 ms, which only notes what to do, and in 0.29 ms, from memory."""
    work = WORK.model_copy(update={"flops_per_item": 770_000_000, "parameters": 4_652_008})
    for median_ms in (0.05, 0.29):
        result = cpu_judged(median_ms, work, threads=1)
        assert result.grade == "F"
        flag = result.flags[-1]
        assert "a pass is less than half of the 7,700.0 µs of 0.8 GFLOP at the 100 GFLOP/s" in flag.detail
        assert "GPU" not in flag.detail + flag.remedy


def test_winograd_and_caches_of_a_cpu_void_nothing() -> None:
    light = WORK.model_copy(update={"winograd_flops_per_item": WORK.flops_per_item})
    assert cpu_judged(2.2, light).grade == "A"
    assert cpu_judged(2.1, light).grade == "F"
    beyond = 200 << 20
    heavy = WORK.model_copy(update={"flops_per_item": 1, "parameters": (CPU_CACHE_BYTES + beyond) // 4})
    assert cpu_judged(0.6 * beyond / 20e9 * 1e3, heavy).grade == "A"
    result = cpu_judged(0.4 * beyond / 20e9 * 1e3, heavy)
    assert result.grade == "F"
    assert "GB/s of the best copy" in result.flags[-1].detail
    larger = CPU_ROOF.model_copy(update={"cache_bytes": CPU_CACHE_BYTES + 2 * beyond})
    assert judged(on_cpu(1e-3), heavy, larger).grade == "A"


def test_without_a_measured_copy_arithmetic_alone_is_checked() -> None:
    limits = CPU_ROOF.limits[1].model_copy(update={"copy_bytes_per_s": None})
    roof = CPU_ROOF.model_copy(update={"limits": (limits,)})
    assert judged(on_cpu(8.0), roof=roof).grade == "F"
    assert judged(on_cpu(35.0), roof=roof).roofline is None


def test_the_time_of_a_pass_follows_the_mode_and_boundary() -> None:
    part = {"share": 0.3}
    split = Split(
        preprocess=LatencyPart(median_ns=50 * MS, **part),
        inference=LatencyPart(median_ns=30 * MS, **part),
        postprocess=LatencyPart(median_ns=10 * MS, **part),
    )
    assert pass_ns(on_cpu(90.0, boundary="e2e", split=split)) == 30 * MS
    assert pass_ns(on_cpu(20.0, mode="offline")) == 20 * MS
    # Two in flight: each waits for the other, and 100 a second leave 8 batches 80 ms each.
    assert pass_ns(on_cpu(160.0, mode="pipelined", batch_size=8, throughput_per_s=100.0)) == pytest.approx(80 * MS)
    assert pass_ns(on_cpu(160.0, mode="pipelined", throughput_per_s=None)) is None
    assert pass_ns(on_cpu(1.0, latency_ns=None)) is None


def test_limits_of_another_machine_are_distinguished() -> None:
    here = environment()
    assert other_cpu(CPU_ROOF, [here, here]) is None
    assert other_cpu(CPU_ROOF, []) is None
    rebooted = here.machine.model_copy(update={"kernel": "another", "os": "an image's", "memory_bytes": 1})
    assert other_cpu(CPU_ROOF, [here.model_copy(update={"machine": rebooted})]) is None
    for change in ({"cpu": "another CPU"}, {"logical_cpus": 64}, {"cpu_features": ()}):
        machine = here.machine.model_copy(update=change)
        shown = other_cpu(CPU_ROOF, [here, here.model_copy(update={"machine": machine})]) or ""
        assert "those of another machine" in shown
        assert "GPU" not in shown
    pinned = CPU_ROOF.model_copy(update={"cpus": 1})
    assert "measured on 1 of 2 CPUs" in (other_cpu(pinned, [here]) or "")
    alone = here.model_copy(update={"limits": here.limits.model_copy(update={"affinity": (1,)})})
    assert other_cpu(pinned, [alone]) is None


def test_a_summary_with_either_roof_is_read_back_as_it_was() -> None:
    summary = Synthetic(models=(RESNET,), cases=[case_of(RESNET, "torch-eager", "fp32", 1)]).summary()
    for roof in (ROOF, CPU_ROOF, None):
        result = summary.model_copy(update={"roof": roof})
        assert Summary.model_validate_json(result.model_dump_json()).roof == roof


def test_the_bounds_of_a_row_name_its_own_device() -> None:
    assert bounds_of(on_cpu(1.0), 2, ROOF) == "what this CPU can do at most was not measured"
    assert bounds_of(row(1.0), 2, CPU_ROOF) == "what this GPU can do at most was not measured"


@pytest.mark.parametrize(
    ("precision", "weight", "sample"),
    [("fp32", 4, 604_000), ("bf16", 2, 302_000), ("fp8", 1, 302_000), ("int8", 1, 604_000)],
)
def test_weights_of_one_byte_and_activations_unchanged(precision: Precision, weight: int, sample: int) -> None:
    assert least_bytes(WORK, precision, 8) == weight * 25_000_000 + 8 * sample
