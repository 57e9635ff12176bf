"""The page's profiles: layers as a tree in which nothing is lost, and what a case shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.core.schemas import Row, Summary
from harness.core.schemas.profile_record import LaunchGaps, OperatorRow
from harness.profiling.read_profiles import Profiled
from harness.profiling.side_by_side import NO_MODULE, SideBySideLine
from harness.reporting.charts.profile_charts import short_name
from harness.reporting.html import profile_section as profile
from harness.reporting.html.page import page
from harness.reporting.html.profile_section import (
    TOP_OPERATORS,
    ProfileGroup,
    RunProfiles,
    TreeLine,
    flat,
    layers_data,
    operators_data,
    profile_groups,
    tree,
)
from harness.reporting.tables.side_by_side_table import IDLE
from tests.synthetic_profiles import GRAPH, MODULES, layer, model_profile, parts

CASE = "minilm-l6-torch-eager-cpu-fp32-b1-s128"


def drawn(lines: list[TreeLine]) -> list[tuple[int, str, int]]:
    return [(depth, line.label, line.total_ns) for depth, line in flat(lines)[0]]


def test_modules_are_below_their_parents_without_the_name_of_the_parent() -> None:
    expected = [(0, "(model)", 10_000), (1, "encoder", 9_000), (2, "layer.0", 9_000), (3, "mlp", 5_000)]
    assert drawn(tree(MODULES)) == expected
    # A module that runs again later, after others, is still where it belongs.
    assert drawn(tree((*MODULES[:2], *MODULES[:1:-1]))) == expected


def test_nodes_of_a_graph_are_below_their_modules_and_nothing_is_lost() -> None:
    assert drawn(tree(GRAPH)) == [
        (0, "encoder.layer.0", 6_000),
        (1, "mlp", 3_000),
        (2, "MatMul_0", 3_000),
        (1, "attention", 3_000),
        (2, "Softmax_3", 2_000),
        (2, "MatMul_4", 1_000),
        (0, NO_MODULE, 500),
        (1, "Reorder_5", 500),
    ]
    everything, _ = flat(tree(GRAPH))
    assert sum(line.self_ns for _, line in everything) == sum(row.self_ns for row in GRAPH)
    assert {line.label: line.group for _, line in everything if line.row is None} == {
        "encoder.layer.0": None,
        "mlp": "mlp",
        "attention": "attention",
        NO_MODULE: "layout",
    }


def test_a_graph_that_reports_no_module_is_a_list() -> None:
    bare = [row.model_copy(update={"parent": None}) for row in GRAPH]
    assert drawn(tree(bare)) == [(0, row.name, row.total_ns) for row in GRAPH]


def test_of_too_many_lines_the_longest_stay_with_their_parents() -> None:
    shown, more = flat(tree(GRAPH), most=4)
    assert [line.label for _, line in shown] == ["encoder.layer.0", "mlp", "MatMul_0", "attention"]
    assert more == 4
    # A mean of a child may be above that of its parent: no line may be without its parent.
    odd = (
        layer("(model)", 1, 9_000),
        layer("a", 1, 10, depth=1, parent="(model)"),
        layer("a.b", 20, depth=2, parent="a"),
    )
    shown, more = flat(tree(odd), most=2)
    assert [(depth, line.label) for depth, line in shown] == [(0, "(model)")]
    assert more == 2


def cells(data: dict[str, Any], header: str) -> list[str]:
    at = [name for name, _ in data["columns"]].index(header)
    return [line[6 + at] for line in data["lines"]]


def test_layers_have_the_columns_that_have_values() -> None:
    modules, graph = layers_data(MODULES), layers_data(GRAPH)
    assert [name for name, _ in modules["columns"]] == [
        *("layer", "kind", "total µs", "self µs", "GFLOP", "GFLOP/s", "M parameters", "output")
    ]
    assert [name for name, _ in graph["columns"]] == ["layer", "kind", "total µs", "self µs", "fused from"]
    assert cells(modules, "total µs") == ["10.0", "9.00", "9.00", "5.00"]
    assert cells(modules, "output") == ["", "", "", "1×4 1"]
    assert cells(modules, "GFLOP/s")[:2] == ["0.0900", "0.100"]  # 900 FLOP in 10 µs
    assert cells(graph, "fused from")[2] == "Add_1 + Gelu_2"
    depth, group, total, alone, path, members, *_ = graph["lines"][2]
    assert (depth, group, path, members) == (2, "mlp", "MatMul_0", "Add_1 Gelu_2")
    assert (total, alone) == (pytest.approx(3_000 / 6_500, rel=1e-5),) * 2


def test_the_longest_operators_are_there_and_the_rest_is_counted() -> None:
    rows = [
        OperatorRow(name=f"op{at}", shapes="[4,8]", calls=2, self_cpu_ns=9_000 - at, self_device_ns=None)
        for at in range(TOP_OPERATORS + 7)
    ]
    result = operators_data(rows)
    assert result["columns"] == [("operator", "word"), ("calls", "num"), ("self CPU µs", "num"), ("inputs", "word")]
    assert result["lines"][0] == ["op0", "2", "9.00", "[4×8]"]
    assert (len(result["lines"]), result["more"]) == (TOP_OPERATORS, 7)


@pytest.fixture
def profiles(rows: dict[str, Row]) -> RunProfiles:
    names = (CASE, CASE.replace("torch-eager", "onnxruntime"), CASE.replace("torch-eager", "torch-compile"))
    result = zip(names, (parts(), parts(GRAPH, plain_ns=6_500), parts((), plain_ns=7_500)), strict=True)
    return RunProfiles(
        "profiles",
        [
            Profiled(rows[name], model_profile(rows[name], parts_profile.plain_ns), parts_profile)
            for name, parts_profile in result
        ],
    )


def test_cases_of_one_shape_share_a_scale_and_show_time_outside_of_parts(profiles: RunProfiles) -> None:
    (group,) = profile_groups(profiles)
    assert group.title == "minilm-l6, batch 1, sequence length 128"
    eager, graph, compiled = group.cases
    assert [case.name for case in group.cases] == ["torch-eager fp32", "onnxruntime fp32", "torch-compile fp32"]
    assert [part.name for part in eager.bar] == ["attention", "mlp", "other", "in no part"]
    assert sum(part.width for part in eager.bar) == pytest.approx(1)
    assert sum(part.width for part in graph.bar) == pytest.approx(6_500 / 11_000, rel=1e-4)
    assert [(part.name, part.is_group) for part in compiled.bar] == [("operators", False), ("in no part", False)]
    assert eager.bar[-1].text == "in no part 1.00 µs, 9.0%"
    assert dict(eager.facts)["achieved"] == "143 GFLOP/s, 50.0% of the best"
    assert "measured latency" in dict(eager.facts)
    assert [path for _, path in eager.links] == [
        f"profiles/{CASE}/{name}" for name in ("model.json", "parts.json", "parts.md", "a.trace.json")
    ]
    assert "Grade B. UNWATCHED" in eager.sums[0]
    assert "The parts sum to 10.0 µs" in eager.sums[1]
    assert compiled.data["layers"] is None
    assert not compiled.crowded


def test_a_page_holds_so_many_layers_and_says_where_the_others_are(
    profiles: RunProfiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "MAX_PAGE_LINES", 5)
    (group,) = profile_groups(profiles)
    assert [case.crowded for case in group.cases] == [False, True, False]
    assert group.cases[1].data["layers"] is None


def test_a_case_without_parts_has_no_line(profiles: RunProfiles) -> None:
    bare = [Profiled(entry.row, entry.model, None) for entry in profiles.cases]
    assert profile_groups(RunProfiles("profiles", bare)) == []


def test_the_page_holds_the_tree_as_data_and_hostile_names_stay_in_it(summary: Summary, profiles: RunProfiles) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    first = profiles.cases[0]
    layers = tuple(row.model_copy(update={"kind": evil}) for row in MODULES)
    parts_profile = parts(layers, notes=(evil,), traces=(evil,))
    text = page(
        summary,
        profile=["Tables."],
        profiled=RunProfiles("profiles", [Profiled(first.row, first.model, parts_profile)]),
    )
    assert "<img" not in text
    (block,) = [entry for entry in text.split('<script type="application/json">') if '"operators"' in entry]
    data = json.loads(block.partition("</script>")[0])
    assert cells(data["layers"], "kind")[0] == evil
    assert f'id="profile-{CASE}"' in text


def test_kins_need_the_same_model_shape_and_device(profiles: RunProfiles) -> None:
    first, second, third = profiles.cases
    other = Profiled(second.row.model_copy(update={"device": "cuda"}), second.model, second.parts)
    result: list[ProfileGroup] = profile_groups(RunProfiles("profiles", [first, other, third]))
    assert [[case.name for case in group.cases] for group in result] == [
        ["torch-eager fp32", "torch-compile fp32"],
        ["onnxruntime fp32"],
    ]


def test_the_same_modules_of_two_backends_are_one_chart(profiles: RunProfiles) -> None:
    (group,) = profile_groups(profiles)
    (group,) = group.plots
    (plot,) = group.plots
    *bars, marks = (trace for trace in plot.data if trace["x"] != [None])
    assert [trace["type"] for trace in bars] == ["bar"] * len(bars)
    assert marks["type"] == "scatter"
    assert bars[0]["y"] == marks["y"]
    sums = [sum(filter(None, entry)) for entry in zip(*(bar["x"] for bar in bars), strict=True)]
    totals = dict(zip(bars[0]["y"], sums, strict=True))
    assert totals == pytest.approx({"torch-eager": 10.0, "onnxruntime": 6.5})
    assert set(plot.layout["yaxis"]["categoryarray"]) == set(totals)
    assert all(len(bar["customdata"]) == len(bar["x"]) == len(bar["hovertext"]) for bar in (*bars, marks))
    assert "<b>encoder.layer.0</b><br>onnxruntime: 6.00 µs, 92.3% of its parts" in bars[0]["hovertext"][0]
    assert "onnxruntime gains 3.00 µs here over torch-eager" in bars[0]["hovertext"][0]
    assert "onnxruntime loses 500 ns here to torch-eager" in bars[2]["hovertext"][0]


def test_a_profile_that_shows_nothing_is_marked_and_is_in_no_chart(profiles: RunProfiles) -> None:
    first, second, third = profiles.cases
    a_fifth = Profiled(second.row, second.model, parts(GRAPH, plain_ns=32_500, window_ns=32_500))
    (group,) = profile_groups(RunProfiles("profiles", [first, a_fifth, third]))
    assert [case.name for case in group.cases][1] == "onnxruntime fp32 (unexplained)"
    assert "nothing that was measured covers the difference" in group.cases[1].sums[1]
    assert group.plots == []


def test_the_time_in_which_no_kernel_ran_is_drawn_behind_the_kernels(profiles: RunProfiles) -> None:
    first, *others = profiles.cases
    layers = tuple(layer.model_copy(update={"stream_ns": layer.self_ns}) for layer in MODULES)
    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=10_000)
    gaps = LaunchGaps(window_ns=70_000, busy_ns=10_000, waited_ns=None, work_ns=10_000, kernels_ns=10_000)
    parts_profile = parts(layers, operators=(kernel,), plain_ns=45_000, launch_gaps=gaps)
    on_gpu = Profiled(first.row, model_profile(first.row, 35_000), parts_profile)
    (before,), (after,) = (profile_groups(RunProfiles("profiles", [entry, *others])) for entry in (first, on_gpu))
    ((plain,), (hatched,)) = ([group.plots[0] for group in group.plots] for group in (before, after))
    idle = next(trace for trace in hatched.data if trace.get("name") == IDLE)
    assert len(hatched.data) == len(plain.data) + 1
    assert dict(zip(idle["y"], idle["x"], strict=True)) == {"torch-eager": pytest.approx(25.0), "onnxruntime": None}
    assert "no kernel running for 25.0 µs of its measured latency" in idle["hovertext"][idle["y"].index("torch-eager")]
    named = [{trace.get("name") for trace in group.plots[0].plots[0].data} for group in (before, after)]
    assert [IDLE in names for names in named] == [False, True]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("model.encoder.layer.*.attention.self", "attention.self"),
        ("model.encoder.layer.*.output (dense, dropout)", "output"),
        ("model.embeddings", "embeddings"),
        ("layer1.*", "layer1.*"),
        ("(model)", "(model)"),
        (NO_MODULE, NO_MODULE),
    ],
)
def test_segments_are_named_by_their_differences(name: str, shown: str) -> None:
    assert short_name(SideBySideLine(name, ())) == shown


def test_modules_of_one_backend_alone_are_no_chart(profiles: RunProfiles) -> None:
    (group,) = profile_groups(RunProfiles("profiles", profiles.cases[:1]))
    assert group.plots == []


def test_names_in_the_chart_are_text(rows: dict[str, Row], profiles: RunProfiles) -> None:
    evil = "<img src=x onerror=alert(1)>"
    first, second, _ = profiles.cases
    parts_profile = parts(tuple(row.model_copy(update={"parent": f"encoder.{evil}"}) for row in GRAPH), plain_ns=6_500)
    results = [first, Profiled(second.row.model_copy(update={"backend": evil}), second.model, parts_profile)]
    (group,) = profile_groups(RunProfiles("profiles", results))
    (plot,) = group.plots[0].plots
    shown = [trace.get(name) for trace in plot.data for name in ("y", "text", "hovertext")]
    assert "&lt;img" in str(shown)
    assert "<img" not in str(shown)
