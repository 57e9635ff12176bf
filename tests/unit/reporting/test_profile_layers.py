"""The profile of a case as a reader sees it."""

from __future__ import annotations

from harness.core.schemas import Flag
from harness.core.schemas.profile_record import OperatorRow, PartsProfile
from harness.profiling.layers import LayerChoice
from harness.reporting.tables.profile_tables import (
    grade_mark,
    groups_table,
    layers_block,
    operators_table,
    profile_blocks,
    terminal_layers,
)
from harness.reporting.writers.markdown import blocks_text, table_text
from tests.fixtures.table_lines import lines
from tests.synthetic_layers import EAGER, ORT, layer


def test_a_case_begins_with_whether_its_parts_add_up() -> None:
    text = blocks_text(profile_blocks(EAGER, on_gpu=False, measured_ns=20_100_000))
    assert text.startswith(
        "Grade A: a monitor watched it, and nothing disturbed it.\n\n"
        "The parts sum to 20.0 ms, 1.00 of the plain latency of 20.0 ms: adds up. Profiling changed the run by +2.0%. "
        "The case's measured latency is 20.1 ms.\n\n"
        "Profiled 2 times, each in a fresh process: the parts sum to 0.98 to 1.00 of the plain latency, a spread of "
        "2.0%. The last one is shown."
    )
    assert text.endswith("- A note.")


def test_corrections_are_shown_with_the_sum_that_they_explain() -> None:
    stretched = EAGER.model_copy(update={"window_ns": 21_000_000, "plain_ns": 10_000_000})
    text = blocks_text(profile_blocks(stretched, on_gpu=False))
    assert "2.00 of the plain latency of 10.0 ms: explained, 0.95 with what was measured beside them." in text
    assert "Profiler overhead: profiled runs took 2.10 times the plain latency." in text


def test_a_profile_that_shows_nothing_is_marked_wherever_its_times_are() -> None:
    flag = Flag(name="CPU_SHARED", detail="others used 0.9 CPUs", remedy="Stop them.")
    disturbed = EAGER.model_copy(update={"grade": "C", "flags": (flag,)})
    a_fifth = EAGER.model_copy(update={"plain_ns": 100_000_000, "window_ns": 100_000_000})
    assert blocks_text(profile_blocks(disturbed, on_gpu=False)).startswith(
        "Grade C, so that nothing is concluded from its times. CPU_SHARED: others used 0.9 CPUs. Stop them.\n\n"
    )
    assert [grade_mark(entry) for entry in (EAGER, disturbed, a_fifth)] == ["", " (grade C)", " (unexplained)"]
    rows = lines(table_text(groups_table({"a": EAGER, "b": disturbed, "c": a_fifth})))
    assert rows[0] == ["group", "a ms", "b (grade C) ms", "c (unexplained) ms"]
    assert terminal_layers("case", disturbed).startswith("case: layers, grade C (CPU_SHARED), ")
    assert "0.20 of the plain latency: unexplained" in terminal_layers("case", a_fifth).splitlines()[0]


def test_a_profile_from_before_they_were_watched_says_so() -> None:
    assert blocks_text(profile_blocks(ORT, on_gpu=False)).startswith(
        "Grade B. UNWATCHED: it was taken before profiles were watched and repeated. Profile it again: "
        "`make profile FORCE=1`."
    )


def test_the_share_without_a_kernel_says_of_which_latency() -> None:
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=6_000_000)
    on_gpu = EAGER.model_copy(update={"layers": (), "operators": (kernel,)})
    assert "Launch gaps: in 40.0% of the measured latency no kernel ran" in blocks_text(
        profile_blocks(on_gpu, True, 10_000_000)
    )
    assert "Launch gaps: in 70.0% of the plain latency no kernel ran" in blocks_text(profile_blocks(on_gpu, True))


def test_layers_are_sorted_by_their_self_time_with_their_own_flops() -> None:
    rows = lines(blocks_text([layers_block(EAGER.layers, top=2)]))
    assert rows[0] == ["layer", "kind", "group", "calls", "self ms", "share", "GFLOP", "output"]
    assert [row[0] for row in rows[2:]] == ["mlp", "attention"]
    assert rows[2][4:] == ["12.0", "60.0%", "2.00e-07", "1×128×384"]
    assert blocks_text([layers_block(EAGER.layers, top=2)]).startswith("2 of 4 layers, 95.0% of the time:")


def test_own_flops_of_a_container_are_those_that_no_child_has() -> None:
    container = lines(blocks_text([layers_block(EAGER.layers)]))[4]
    assert container[:7] == [
        "(model)",
        "Linear",
        "other",
        "1",
        "1.00",
        "5.0%",
        "0",
    ]


def test_a_choice_is_named_and_adds_up_with_the_remaining_rows() -> None:
    text = blocks_text([layers_block(EAGER.layers, top=1, choice=LayerChoice(("attention", "mlp")))])
    assert text.startswith("1 of 2 layers matching `attention` or `mlp` (of 4), 60.0% of the time:")
    assert text.endswith("Sums: shown 12.0 ms + 1 shorter one 7.00 ms + left out by the choice 1.00 ms = 20.0 ms.")
    assert blocks_text([layers_block(EAGER.layers, choice=LayerChoice(("pooling",)))]) == "No layer matches `pooling`."
    assert "Sums" not in blocks_text([layers_block(EAGER.layers)])


def test_a_depth_adds_deeper_modules_to_their_parent() -> None:
    text = blocks_text([layers_block(EAGER.layers, choice=LayerChoice(depth=0))])
    assert text.startswith("1 layer down to depth 0, what is deeper added to them, 100% of the time:")
    assert lines(text)[2] == ["(model)", "Linear", "other", "1", "20.0", "100%", "3.00e-07", "1×128×384"]


def test_groups_and_sums_of_a_case_are_those_of_all_its_layers() -> None:
    text = blocks_text(profile_blocks(EAGER, on_gpu=False, choice=LayerChoice(("attention",))))
    assert "| all" in text
    assert "The parts sum to 20.0 ms" in text
    assert "1 layer matching `attention` (of 4)" in text


def test_a_graph_has_modules_and_members_and_no_flops() -> None:
    rows = lines(blocks_text([layers_block(ORT.layers)]))
    assert rows[0] == ["layer", "kind", "from module", "group", "self ms", "share", "output", "fused from"]
    assert rows[2][2] == "mlp.act"
    assert rows[2][-1] == "x + y + z + u + 1 more"
    assert rows[4][2] == "–"


def test_operators_have_a_device_column_only_where_there_is_a_device() -> None:
    assert lines(table_text(operators_table(EAGER.operators)))[0] == ["operator", "calls", "self CPU ms", "inputs"]
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=5_000)
    assert lines(table_text(operators_table((kernel,))))[2] == ["gemm", "1", "0", "5.00", "–"]


def test_groups_side_by_side_leave_out_who_has_no_layers() -> None:
    none = PartsProfile(layers=(), operators=EAGER.operators, traces=(), window_ns=1, plain_ns=1)
    rows = lines(table_text(groups_table({"torch-eager": EAGER, "torch-compile": none, "onnxruntime": ORT})))
    assert rows[0] == ["group", "torch-eager ms", "onnxruntime ms"]
    assert rows[2:] == [
        ["mlp", "12.0", "5.00"],
        ["attention", "7.00", "3.00"],
        ["other", "1.00", "–"],
        ["layout", "–", "0.0400"],
        ["all", "20.0", "8.04"],
    ]


def test_layers_that_took_no_time_have_no_share() -> None:
    # OpenVINO reports whole microseconds as sums: what a tiny model's layers took in a few runs can be none.
    none = PartsProfile(
        layers=(layer("a", 0, parent="m"), layer("b", 0)), operators=(), traces=(), window_ns=9_000, plain_ns=8_000
    )
    assert [row[5] for row in lines(blocks_text([layers_block(none.layers)]))[2:]] == ["–", "–"]
    assert "| all" in blocks_text(profile_blocks(none, on_gpu=False))
    assert terminal_layers("case", none).splitlines()[3].endswith("–")
    assert lines(table_text(groups_table({"openvino": none})))[2:] == [["other", "0", "–"], ["all", "0", "100%"]]
