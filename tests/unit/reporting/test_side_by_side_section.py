"""Where a speed-up comes from, as a reader sees it."""

from __future__ import annotations

from harness.core.schemas.profile_record import LaunchGaps, OperatorRow, PartsProfile
from harness.profiling.side_by_side import (
    ComparedColumn,
    SideBySide,
    by_group,
    by_module,
    compared_profiles,
    merged_blocks,
    not_compared,
)
from harness.reporting.tables.profile_tables import profile_section
from harness.reporting.tables.side_by_side_table import (
    doubts,
    gain_sentence,
    gains_table,
    gaps_line,
    not_compared_section,
    side_by_side_section,
    title_of,
)
from harness.reporting.writers.markdown import blocks_text, table_text
from tests.fixtures.table_lines import lines
from tests.synthetic_side_by_side import CPU_SHARED, EAGER, FUSED, GRAPH, parts, profiled, row

MS = 1_000_000


def scaled(found: PartsProfile, plain_more_ns: int = 10 * MS) -> PartsProfile:
    """Nanoseconds as milliseconds, the plain latency a little above the sum."""
    layers = [
        layer.model_copy(update={"self_ns": layer.self_ns * MS, "total_ns": layer.total_ns * MS})
        for layer in found.layers
    ]
    plain_ns = sum(layer.self_ns for layer in layers) + plain_more_ns
    return found.model_copy(update={"layers": tuple(layers), "plain_ns": plain_ns})


def both(fast_ns: float | None = 110.0 * MS, slow_ns: float | None = 200.0 * MS) -> SideBySide:
    result = by_group(
        [
            ComparedColumn("e", "torch-eager", scaled(EAGER), slow_ns),
            ComparedColumn("o", "onnxruntime", scaled(GRAPH), fast_ns),
        ]
    )
    assert result is not None
    return result


def test_lines_gains_and_sums_are_beside_the_measured_latency() -> None:
    assert lines(table_text(gains_table(both(), "group")))[0] == [
        "group",
        "onnxruntime ms",
        "torch-eager ms",
        "gain ms",
    ]
    assert lines(table_text(gains_table(both(), "group")))[2:] == [
        ["normalisation", "–", "40.0", "40.0"],
        ["mlp", "60.0", "96.0", "36.0"],
        ["attention", "28.0", "62.0", "34.0"],
        ["other", "–", "7.00", "7.00"],
        ["embedding", "10.0", "15.0", "5.00"],
        ["layout", "4.00", "–", "−4.00"],
        ["sum of the parts", "102", "220", "118"],
        ["plain latency", "112", "230", "118"],
        ["measured latency", "110", "200", "90.0"],
        ["parts / measured", "0.927", "1.10", "–"],
    ]


def test_without_a_measured_latency_nothing_replaces_it() -> None:
    assert [line[0] for line in lines(table_text(gains_table(both(None, None), "group")))[-2:]] == [
        "sum of the parts", "plain latency",
    ]  # fmt: skip
    assert lines(table_text(gains_table(both(None), "group")))[-2:] == [
        ["measured latency", "–", "200", "–"],
        ["parts / measured", "–", "1.10", "–"],
    ]


def test_modules_that_were_fused_are_named_and_lines_beyond_the_largest_are_one() -> None:
    result = by_module(
        [ComparedColumn("e", "torch-eager", scaled(EAGER), None), ComparedColumn("o", "ort", scaled(GRAPH), None)]
    )
    assert result is not None
    rows = lines(table_text(gains_table(merged_blocks(result), "module", top=2)))[2:]
    assert rows == [
        ["layer.*.out (dense, norm)", "60.0", "136", "76.0"],
        ["layer.*.attn (dropout)", "8.00", "22.0", "14.0"],
        ["6 more modules", "34.0", "62.0", "28.0"],
        ["sum of the parts", "102", "220", "118"],
        ["plain latency", "112", "230", "118"],
    ]


def test_many_members_are_counted() -> None:
    wide = [row(f"a.{name}", 2, "a", 2, kind="ReLU") for name in "bcdefg"]
    tree = parts(row("(model)", 1), row("a", 1, "(model)", 1), *wide)
    result = by_module(
        [ComparedColumn("t", "tree", tree, None), ComparedColumn("g", "graph", parts(row("n", 3, "a")), None)]
    )
    assert result is not None
    assert lines(table_text(gains_table(result, "module")))[2][0] == "a (b, c, d + 3 more)"


def test_the_sentence_names_the_part_with_most_of_the_gain() -> None:
    assert gain_sentence(both()) == (
        "onnxruntime takes 118 ms less than torch-eager by their parts and 90.0 ms less as measured; "
        "normalisation brings 33.8% of it."
    )


def test_profiles_that_contradict_the_measured_order_say_so() -> None:
    assert gain_sentence(both(fast_ns=250.0 * MS)) == (
        "torch-eager takes 118 ms more than onnxruntime by their parts and 50.0 ms less as measured: these profiles do "
        "not explain the difference."
    )


def test_parts_that_are_not_the_latency_are_named() -> None:
    assert doubts(both()) == ""  # 0.93 and 1.10
    assert doubts(both(None, None)) == ""
    assert "(onnxruntime 0.850, torch-eager 1.16)" in doubts(both(120.0 * MS, 190.0 * MS))


def test_kernels_beside_layers_are_no_like_for_like() -> None:
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=600)
    alone = ComparedColumn("c", "torch-compile", parts(operators=(kernel,)), None)
    mixed = by_group([ComparedColumn("e", "torch-eager", scaled(EAGER), None), alone])
    assert mixed is not None
    assert doubts(mixed).startswith("Only kernels are known of torch-compile: the time in which none ran")
    assert gain_sentence(mixed).endswith("torch-compile reports operators only.")


def test_a_gpu_that_waits_for_its_host_is_the_reported_cause() -> None:
    def kernels(name: str, spent: int, plain: int) -> ComparedColumn:
        kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=spent)
        return ComparedColumn(name, name, parts(operators=(kernel,)).model_copy(update={"plain_ns": plain}), None)

    result = by_group([kernels("torch-eager", 1_000, 7_000), kernels("torch-compile", 600, 700)])
    assert result is not None
    assert gain_sentence(result) == (
        "torch-compile takes 400 ns less than torch-eager by their parts; for 5.90 µs more no kernel of torch-eager "
        "runs, and most of the difference comes from that."
    )
    rows = {row[0]: row[1:] for row in lines(table_text(gains_table(result, "group")))[2:]}
    assert rows["no kernel running"] == ["100", "6,000", "5,900"]
    sums = zip(rows["sum of the parts"], rows["no kernel running"], rows["plain latency"], strict=True)
    assert [[int(figure.replace(",", "")) for figure in line] for line in sums] == [
        [600, 100, 700],
        [1000, 6000, 7000],
        [400, 5900, 6300],
    ]


def test_columns_of_kernels_alone_are_compared_like_with_like() -> None:
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=600)
    alone = ComparedColumn("c", "torch-compile", parts(operators=(kernel,)), None)
    like = by_group([ComparedColumn("s", "torch-script", alone.parts, None), alone])
    assert like is not None
    assert doubts(like) == ""


def test_the_waiting_of_a_gpu_is_reported_with_and_without_the_profiler() -> None:
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=600)
    gaps = LaunchGaps(window_ns=2000, busy_ns=1250, waited_ns=500, work_ns=1250, kernels_ns=600)
    profile = parts(operators=(kernel,)).model_copy(update={"plain_ns": 1000, "launch_gaps": gaps})
    text = "torch-eager: GPU idle 37.5% of the traced window, 25.0% waiting for launches; "
    for latency_ns, share in ((None, "40.0% of the plain latency"), (1500, "60.0% of the measured latency")):
        column = ComparedColumn("e", "torch-eager", profile, latency_ns)
        assert gaps_line(column, gaps) == f"{text}{share}, without the profiler, which slows the host."
    layered = ComparedColumn("t", "tensorrt", EAGER, None)
    without = gaps.model_copy(update={"waited_ns": None})
    assert gaps_line(layered, without) == "tensorrt: GPU idle 37.5% of the traced window."


def test_a_section_has_its_conditions_above_each_table_and_its_image() -> None:
    gaps = LaunchGaps(window_ns=100, busy_ns=60, waited_ns=None, work_ns=60, kernels_ns=220)
    eager = EAGER.model_copy(update={"launch_gaps": gaps})
    (result,) = compared_profiles(
        [profiled("torch-eager", eager), profiled("onnxruntime", GRAPH), profiled("openvino", FUSED)]
    )
    text = blocks_text(side_by_side_section(result, "Conditions: these.", "![chart](charts/a.png)"))
    blocks = text.split("\n\n")
    assert blocks[0] == "### resnet50, fp32, batch 1: where openvino gains on torch-eager"
    assert blocks[2] == "![chart](charts/a.png)"
    tables = [place for place, block in enumerate(blocks) if block.startswith("|")]
    assert [blocks[place - 1] for place in tables] == ["Conditions: these."] * 2
    assert blocks[-1].startswith("- torch-eager: GPU idle 40.0% of the traced window; ")
    assert "Conditions: these.\n\n|" in blocks_text(side_by_side_section(result, "Conditions: these.", ""))


def test_profiles_that_show_nothing_are_named_below_the_sentence_and_are_in_a_table_of_their_own() -> None:
    a_fifth = GRAPH.model_copy(update={"plain_ns": 510})
    cases = [profiled("torch-eager", EAGER), profiled("onnxruntime", a_fifth), profiled("openvino", FUSED)]
    (result,) = compared_profiles(cases)
    text = blocks_text(side_by_side_section(result, "Conditions: these.", ""))
    why = "onnxruntime, its parts are 0.20 of the plain latency, and nothing measured covers the difference."
    assert f"Left out: {why}" in text
    assert "onnxruntime ns" not in text
    profiles = {entry.model.case_id: entry.parts for entry in cases if entry.parts}
    alone = blocks_text(profile_section([entry.model for entry in cases], profiles, "profiles", [text]))
    assert "onnxruntime fp32 (unexplained) ns" in alone
    assert "Nothing is concluded from the times of marked columns" in alone
    (not_found,) = not_compared(cases[:2])
    assert blocks_text(not_compared_section(not_found)) == (
        "### resnet50, fp32, batch 1: not side by side\n\n"
        f"Fewer than two of these profiles can be relied on. Left out: {why}"
    )


def test_every_profile_is_in_the_report_with_its_grade_and_how_it_adds_up() -> None:
    repeated = EAGER.model_copy(update={"ratios": (0.96, 0.94), "steady": True})
    disturbed = GRAPH.model_copy(update={"grade": "C", "flags": (CPU_SHARED,), "ratios": (1.2, 0.96), "steady": False})
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=60)
    gaps = LaunchGaps(window_ns=200, busy_ns=60, waited_ns=None, work_ns=60, kernels_ns=60)
    waits = FUSED.model_copy(update={"plain_ns": 100, "operators": (kernel,), "launch_gaps": gaps, "grade": None})
    cases = [
        profiled("torch-eager", repeated),
        profiled("onnxruntime", disturbed),
        profiled("tensorrt", waits, setting="graph"),
    ]
    profiles = {entry.model.case_id: entry.parts for entry in cases if entry.parts}
    text = blocks_text(profile_section([entry.model for entry in cases], profiles, "profiles"))
    table = text[text.index("| model    | backend     | precision   |   batch | grade") :]
    assert lines(table.partition("\n\n")[0])[2:] == [
        ["resnet50", "torch-eager", "fp32", "1", "A", "0.95", "adds up", "2", "2.1%", "–"],
        ["resnet50", "onnxruntime", "fp32", "1", "C CPU_SHARED", "0.95", "adds up", "2", "25.0%", "–"],
        ["resnet50", "tensorrt", "fp32", "1", "B UNWATCHED", "0.61", "explained, 1.01", "–", "–", "40.0%"],
    ]
    case_id = cases[1].model.case_id
    assert f"- `{case_id}`: CPU_SHARED: others ran. Stop them." in text
    assert "taken before profiles were watched" not in text  # its flag says so, and each parts.md what to do


def test_profiles_of_grade_b_are_named() -> None:
    unwatched = GRAPH.model_copy(update={"grade": None})
    (result,) = compared_profiles([profiled("torch-eager", EAGER), profiled("onnxruntime", unwatched)])
    assert doubts(result.groups) == "Profiles of grade B: onnxruntime (UNWATCHED)."


def test_a_title_leaves_settings_to_the_columns() -> None:
    (result,) = compared_profiles([profiled("torch-eager", EAGER), profiled("tensorrt", FUSED, setting="static+graph")])
    assert title_of(result) == "resnet50, fp32, batch 1: where tensorrt gains on torch-eager"
    assert "tensorrt static+graph ns" in blocks_text(side_by_side_section(result, "", ""))


def test_groups_are_not_reported_twice() -> None:
    cases = [profiled("torch-eager", EAGER), profiled("onnxruntime", GRAPH)]
    models = [entry.model for entry in cases]
    profiles = {entry.model.case_id: entry.parts for entry in cases if entry.parts}
    assert blocks_text(profile_section(models, profiles, "profiles", ["### The comparison"])).count("###") == 1
    assert "### Where the time of resnet50 goes" in blocks_text(profile_section(models[:1], profiles, "profiles"))
