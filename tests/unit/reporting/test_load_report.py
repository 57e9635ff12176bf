"""Load rows in every format: tables, charts, first page, page, CSV, Prometheus, MLflow, thresholds and comparison."""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.comparison.verdicts import compare_loads
from harness.core.errors import UsageError
from harness.core.schemas import (
    Difference,
    JudgedBound,
    LoadedPoint,
    LoadPercentile,
    LoadRow,
    LoadVerdict,
    Summary,
    TokenLoad,
)
from harness.reporting import thresholds
from harness.reporting.charts import matplotlib_drawer, plotly_drawer, selection
from harness.reporting.charts.load_charts import batching_map, load_curve
from harness.reporting.charts.spec import Heat, Lines
from harness.reporting.figures import CSV_UNITS, LOADED, columns
from harness.reporting.first_page import first_page, terminal_answer
from harness.reporting.html.page import page
from harness.reporting.load_groups import LoadGroup, batching_text, by_group, load_names, ranked_loads
from harness.reporting.prose.load_answer import load_answer, load_section, load_tables, terminal_loads
from harness.reporting.tables.load_tables import (
    cheapest_table,
    load_identity_columns,
    parts_table,
    peak_text,
    points_table,
)
from harness.reporting.writers.csv import csv_tables
from harness.reporting.writers.markdown import blocks_text
from harness.reporting.writers.mlflow import load_runs
from harness.reporting.writers.prometheus import metrics_text
from harness.serving.load_verdict import parse_bounds
from tests.synthetic_loads import BOUND, load_rows, loaded


@functools.cache
def server() -> tuple[LoadGroup, list[LoadRow]]:
    """The server group, first in the report."""
    return by_group(load_rows())[0]


@pytest.fixture(scope="session")
def with_loads(summary: Summary) -> Summary:
    return loaded(summary)


def row_of(backend: str, precision: str = "fp32", batch: int = 4) -> LoadRow:
    return next(
        row for row in server()[1] if (row.backend, row.precision, row.max_batch) == (backend, precision, batch)
    )


def test_the_section_is_as_the_golden_file_has_it(with_loads: Summary, golden: Callable[[str, str], None]) -> None:
    links = selection.load_links(selection.load_charts(with_loads), "charts")
    golden("load.md", f"{load_answer(with_loads)}\n\n{blocks_text(load_section(with_loads, links))}\n")


def test_loads_in_int8_say_how_their_file_was_quantised(with_loads: Summary) -> None:
    row = row_of("onnxruntime")
    (file,) = (file for name, file in with_loads.exports[row.model].onnx.items() if name == "fp32")
    file = file.model_copy(update={"quantisation": "static"})
    export = with_loads.exports[row.model].model_copy(update={"onnx": {"int8": file}})
    summary = with_loads.model_copy(update={"exports": {row.model: export}})
    int8 = row.model_copy(update={"precision": "int8", "artifacts": {file.path: file.sha256}})
    assert "int8 in onnxruntime: static." in load_tables(summary, [int8])
    assert not [block for block in load_tables(summary, [row]) if "int8 in" in str(block)]


def test_scenarios_have_tables_of_their_own() -> None:
    scenarios = [key.scenario for key, _ in by_group(load_rows())]
    assert scenarios == ["server", "single-stream", "multi-stream", "concurrency", "offline"]
    with_prices = cheapest_table(server()[1])
    assert with_prices is not None
    assert [row.cost_per_million for row in with_prices.rows] == sorted(
        row.cost_per_million or 0 for row in server()[1] if row.cost_per_million
    )
    assert with_prices.cells()[0][0] == "**openvino int8**"


def test_an_infinite_latency_and_a_load_that_none_meets(with_loads: Summary) -> None:
    row = row_of("openvino")
    lost = {name: LoadPercentile(ns=None, infinite=True) for name in row.points[0].latency}
    broken = row.model_copy(
        update={"points": (row.points[0].model_copy(update={"latency": lost, "failed": 700, "verdict": "FAIL"}),)}
    )
    text = blocks_text(load_tables(with_loads, [broken]))
    assert "∞" in text
    assert "| 700" in re.sub(" +", " ", text)
    update = {"points": (), "predicted_peak_per_s": None, "peak_pass_per_s": None, "peak_fail_per_s": None}
    assert peak_text(row.model_copy(update=update)) == "no load meets it"
    assert load_curve(*server(), conditions="") is not None
    assert load_curve(server()[0], [broken], "") is not None


def test_the_curve_has_bound_knee_and_every_measured_load() -> None:
    spec = load_curve(*server(), conditions="")
    assert isinstance(spec, Lines)
    p99 = spec.panels[1]
    assert p99.y.reference == BOUND.limit_ns / 1e6
    row = row_of("openvino", "int8", 8)
    mine = [series for series in p99.series if series.name.startswith("openvino int8")]
    assert {point.x for point in mine[0].points} <= {point.rate_per_s for point in row.predicted}
    assert [series.look.marker for series in mine].count("*") == 1
    measured = {point.x: point.mark for point in mine[-1].points}
    assert set(measured) == {point.asked_per_s for point in row.points}
    fills = {"PASS": "solid", "UNDECIDED": "tint", "FAIL": "open"}
    assert [measured[point.asked_per_s or 0].fill for point in row.points] == [
        fills[point.verdict or ""] for point in row.points
    ]


def few(row: LoadRow, *withheld: str, **more: Any) -> LoadRow:
    """The row with too few requests for these percentiles."""
    points = [
        point.model_copy(update={"latency": point.latency | {name: LoadPercentile(ns=None) for name in withheld}})
        for point in row.points
    ]
    return row.model_copy(update={"points": tuple(points), **more})


def test_the_chart_speaks_of_no_p99_that_it_does_not_draw() -> None:
    key, rows = server()
    lacking = "Loads with too few requests have no p99: it needs 662."
    usual = load_curve(key, rows, "")
    assert usual is not None
    assert [panel.title for panel in usual.panels] == ["p50", "p99, bound 50 ms", "goodput, at least 99%"]
    assert lacking not in usual.reading

    replayed = load_curve(key, [few(row, "p99") for row in rows], "")
    assert replayed is not None
    assert [panel.title for panel in replayed.panels] == ["p50", "p99 by replay, bound 50 ms", "goodput, at least 99%"]
    assert replayed.reading.endswith(lacking)

    alone = load_curve(key, [few(row, "p99", predicted=()) for row in rows], "")
    assert alone is not None
    assert [panel.title for panel in alone.panels] == ["p50", "goodput, at least 99%"]
    assert alone.reading.endswith(lacking)

    shares = load_curve(key, [few(row, "p50", "p90", "p99", predicted=()) for row in rows], "")
    assert shares is not None
    assert shares.title == "minilm-l6: goodput against load"


def test_the_chart_says_that_higher_latencies_are_not_drawn() -> None:
    key, rows = server()
    row = next(row for row in rows if row.points)
    late = {"p99": LoadPercentile(ns=7.0 * BOUND.limit_ns)}
    points = tuple(point.model_copy(update={"latency": point.latency | late}) for point in row.points)
    spec = load_curve(key, [row.model_copy(update={"points": points})], "")
    assert spec is not None
    assert spec.panels[1].title == "p99 by replay, bound 50 ms"
    assert spec.reading.endswith("Above 300 ms nothing is drawn.")


def test_rows_of_one_backend_have_markers_of_their_own() -> None:
    key, rows = server()
    first = next(row for row in rows if row.points)
    second = first.model_copy(update={"load_id": f"{first.load_id}-2", "max_batch": 2 * first.max_batch})
    spec = load_curve(key, [first, second], "")
    assert spec is not None
    assert len({line.look.marker for line in spec.legend}) == 2


def test_the_map_has_every_policy_the_best_bold_and_the_measured_one_framed() -> None:
    spec = batching_map(*server(), conditions="")
    assert isinstance(spec, Heat)
    row = row_of("openvino", "int8", 8)
    panel = next(panel for panel in spec.panels if panel.title == "openvino int8")
    assert (panel.y, panel.x) == (("8", "4", "2", "1"), ("0", "2", "5", "10"))
    results = {(int(y), x): cell for y, line in zip(panel.y, panel.cells, strict=True)
             for x, cell in zip(panel.x, line, strict=True)}  # fmt: skip
    for cell in row.map:
        assert results[cell.max_batch, f"{cell.max_delay_ns / 1e6:g}"].value == cell.rate_per_s
    assert max(results.values(), key=lambda cell: cell.value or 0).strong
    assert [place for place, cell in results.items() if cell.chosen] == [(8, "2")]
    # A batch of one never waits: one policy, in every column.
    assert len({results[1, x].value for x in panel.x}) == 1


def test_both_drawers_draw_both_charts() -> None:
    curve, cells = load_curve(*server(), conditions="x"), batching_map(*server(), conditions="x")
    assert curve is not None
    assert cells is not None
    figure = matplotlib_drawer.draw(curve)
    assert [ax.get_title(loc="left") for ax in figure.axes] == [panel.title for panel in curve.panels]
    heat = matplotlib_drawer.draw(cells)
    texts = [[text.get_text() for text in ax.texts] for ax in heat.axes]
    assert texts == [[cell.text for line in panel.cells for cell in line] for panel in cells.panels]
    plots = plotly_drawer.draw(cells).plots
    assert [plot.data[0]["z"] for plot in plots] == [
        [plotly_drawer.short(cell.value or 0) for line in panel.cells for cell in line] for panel in cells.panels
    ]
    names = [trace["name"] for trace in plotly_drawer.draw(curve).plots[0].data if "name" in trace]
    assert sorted(names) == sorted({series.name for series in curve.legend})


def test_loads_without_an_answer_are_not_called_unmeasured(with_loads: Summary) -> None:
    closed = tuple(row for row in with_loads.loads if row.scenario == "single-stream" and row.status == "measured")
    text = first_page(with_loads.model_copy(update={"rows": (), "loads": closed}), "details.md", [])
    assert closed
    assert "The details have the loads." in text
    assert "Nothing is measured yet" not in text


def test_loads_that_all_failed_are_reported_with_reason_and_remedy(with_loads: Summary) -> None:
    failed = with_loads.loads[0].model_copy(
        update={
            "status": "failed",
            "void": None,
            "reason": "m is fixed to batch size 1. (in load)",
            "hint": "MAX_BATCH=1.",
        }
    )
    alone = with_loads.model_copy(update={"rows": (), "loads": (failed,), "notes": ()})
    reason = "failed: m is fixed to batch size 1. (in load). MAX_BATCH=1."
    who = f"{failed.backend} {failed.precision} of {failed.model}"
    for text in (first_page(alone, "details.md", []), terminal_answer(alone)):
        assert "Nothing is measured yet" not in text
        assert "No case was measured." in text
        assert f"1 load case without a result ({who}), {reason}" in text


def test_a_p99_of_too_few_requests_is_shown_in_no_table_and_no_csv(with_loads: Summary) -> None:
    row = next(row for row in server()[1] if row.points)
    few = row.points[0].model_copy(
        update={"latency": {**row.points[0].latency, "p99": LoadPercentile(ns=None)}, "verdict": "LOAD NOT REACHED"}
    )
    table = parts_table([row.model_copy(update={"points": (few,)})])
    assert table is not None
    shown = {column.header.split(" µs")[0].split(" ms")[0] for column in table.columns}
    assert not {"queue p99", "compute p99", "added p99", "p99 / replay"} & shown
    assert {"compute p50", "dispatch p99"} <= shown
    line = columns(LOADED, few, CSV_UNITS)
    assert line["load_queue_p99_ms"] is None
    assert line["load_dispatch_p99_ms"] == (few.dispatch_p99_ns or 0) / 1e6


def test_the_note_has_the_requests_of_all_lines_and_explains_a_load_that_was_not_reached() -> None:
    row = next(row for row in server()[1] if row.points)
    point = row.points[0]
    short = point.model_copy(update={"requests": 50 * point.replications, "verdict": "LOAD NOT REACHED"})
    long = point.model_copy(update={"requests": 2000 * point.replications, "verdict": "PASS"})
    table = points_table([row.model_copy(update={"points": (short, long)})])
    assert table is not None
    assert "of about 50 to 2,000 requests a line" in table.note
    assert "LOAD NOT REACHED: requests were dispatched late" in table.note
    usual = points_table([row.model_copy(update={"points": (long,)})])
    assert usual is not None
    assert "of about 2,000 requests a line" in usual.note
    assert "NOT REACHED" not in usual.note


def test_first_page_and_page_show_loads(with_loads: Summary, summary: Summary) -> None:
    assert "p99<50ms: **openvino int8**" in first_page(with_loads, "details.md", ["Load"])
    assert "details.md#load" in first_page(with_loads, "details.md", ["Load"])
    assert "requests/s" not in first_page(summary, "details.md", [])
    text = page(with_loads, with_plots=False)
    assert 'id="load"' in text
    assert "the process ended by signal 9" in text
    assert 'id="load"' not in page(summary, with_plots=False)


def test_a_run_of_loads_alone_has_their_answer(with_loads: Summary) -> None:
    alone = with_loads.model_copy(update={"rows": ()})
    text = first_page(alone, "details.md", ["Load"])
    assert text.startswith("# minilm-l6 under load on Intel(R) Xeon(R)")
    assert "onnxruntime 1.31.1" in text
    assert "Nothing is measured" not in text
    assert "p99<50ms: openvino int8 [" in terminal_answer(alone)
    lines = [" ".join(line.split()) for line in terminal_loads(alone).splitlines()]
    first = server()[1][-1]  # the cheapest
    assert f"openvino int8 up to 8, waits 2 ms {peak_text(first)}" in " ".join(lines)
    assert "**" not in terminal_loads(alone)
    unverified = [row.model_copy(update={"peak_pass_per_s": None, "peak_fail_per_s": None}) for row in server()[1]]
    answer = load_answer(with_loads.model_copy(update={"loads": tuple(unverified)}))
    assert "openvino int8 not verified, predicted" in answer


def test_csv_has_every_load_point_and_replayed_load(with_loads: Summary) -> None:
    tables = csv_tables(with_loads, [])
    lines = list(csv.DictReader(io.StringIO(tables["load_points"])))
    rows = [row for row in load_rows() if row.points]
    assert len(lines) == sum(len(row.points) for row in rows)
    first = rows[0].points[0]
    assert float(lines[0]["load_point_latency_p99_ms"]) == (first.latency["p99"].ns or 0) / 1e6
    assert (lines[0]["load_verdict"], lines[0]["bound"]) == (first.verdict, "p99<50ms")
    assert len(list(csv.DictReader(io.StringIO(tables["load"])))) == len(rows)
    replayed = list(csv.DictReader(io.StringIO(tables["load_replay"])))
    assert len(replayed) == sum(len(row.predicted) + sum(len(cell.points) for cell in row.map) for row in load_rows())


def test_the_name_of_a_row_of_generation_has_its_batching(with_loads: Summary) -> None:
    plain = next(row for row in with_loads.loads if row.max_batch > 1)
    static = plain.model_copy(update={"prompt_length": 32, "new_tokens": 8})
    joining = static.model_copy(update={"load_id": f"{static.load_id}-continuous", "batching": "continuous"})
    assert [batching_text(row) for row in (static, joining)] == [
        f"{batching_text(plain)}, {of}" for of in ("static", "continuous")
    ]
    results = load_names([static, joining])
    assert ["continuous" in results[row.load_id] for row in (static, joining)] == [False, True]
    assert [load_identity_columns(row)["batching"] for row in (static, joining)] == ["static", "continuous"]


def test_batches_in_flight_idle_power_and_memory_are_said_wherever_the_row_appears(summary: Summary) -> None:
    first = row_of("onnxruntime", batch=1)
    changes = {"in_flight": 2, "joules_per_request": 0.5, "idle_w": 71.6, "memory_bytes": 3 << 20}
    row = first.model_copy(update={"load_id": f"{first.load_id}-f2", **changes})
    both = summary.model_copy(update={"loads": (row, first)})
    text = blocks_text(load_section(both, {}))
    assert "onnxruntime fp32, 2 in flight" in text
    assert "onnxruntime fp32, 1 worker" in text
    assert "none, 2 in flight" in text
    assert "the GPU's counter, less 72 W idle" in text
    only = summary.model_copy(update={"loads": (row,)})
    assert "(no batching, 2 in flight)" in load_answer(only)
    assert "onnxruntime fp32, 2 in flight" in blocks_text(load_section(only, {}))
    (line, other) = csv.DictReader(io.StringIO(csv_tables(both, [])["load"]))
    assert (line["in_flight"], line["workers"], other["in_flight"]) == ("2", "1", "")
    assert float(next(value for name, value in line.items() if name.startswith("load_peak_memory"))) > 0


def test_how_late_ends_are_noticed_is_a_column_where_a_thread_looks_for_them(summary: Summary) -> None:
    first = row_of("onnxruntime", batch=1)
    points = tuple(point.model_copy(update={"unseen_p99_ns": 40_000.0}) for point in first.points)
    both = [first, first.model_copy(update={"load_id": f"{first.load_id}-f2", "in_flight": 2, "points": points})]
    table, without = parts_table(both), parts_table([first])
    assert table is not None
    assert without is not None
    place = table.headers.index("unseen p99 ms")
    assert {cells[place] for cells in table.cells()} == {"–", "0.0400"}
    assert "Unseen: " in table.note
    assert "unseen p99 ms" not in without.headers
    assert "Unseen: " not in without.note
    looked = summary.model_copy(update={"loads": tuple(both)})
    lines = list(csv.DictReader(io.StringIO(csv_tables(looked, [])["load_points"])))
    assert {line["load_unseen_p99_ms"] for line in lines} == {"", "0.04"}


def test_a_note_explains_no_column_that_is_withheld() -> None:
    """Unseen was explained below a table without the column: a p99 of few requests is withheld."""
    _, rows = server()
    few = [
        row.model_copy(
            update={
                "points": tuple(
                    point.model_copy(
                        update={
                            "latency": {**point.latency, "p99": LoadPercentile(ns=None)},
                            "unseen_p99_ns": 40_000.0,
                            "over_share": None,
                        }
                    )
                    for point in row.points
                )
            }
        )
        for row in rows
    ]
    for table in (parts_table(few), points_table(few)):
        assert table is not None
        for word in ("Unseen", "Queue", "Added", "Over the bound"):
            assert f"{word}: " not in table.note
    usual = parts_table(rows)
    assert usual is not None
    assert "Queue: " in usual.note


def test_a_note_of_several_rows_is_listed_once(with_loads: Summary) -> None:
    _, rows = server()
    noted = [
        row.model_copy(update={"notes": ("one thread", *([] if place else ["alone"]))})
        for place, row in enumerate(rows)
    ]
    (last,) = [block for block in load_tables(with_loads, noted) if isinstance(block, str) and block.startswith("- ")]
    assert last.count("one thread") == last.count("alone") == 1
    assert all(name in last for name in load_names(ranked_loads(noted)).values())


def test_prometheus_and_mlflow_have_the_figures(with_loads: Summary) -> None:
    families = {family.name: family for family in text_string_to_metric_families(metrics_text(with_loads).decode())}
    peaks = {sample.labels["load_id"]: sample.value for sample in families["inferometer_load_peak_per_second"].samples}
    assert peaks == {row.load_id: row.peak_pass_per_s for row in server()[1] if row.peak_pass_per_s}
    points = families["inferometer_load_point_latency_p99_seconds"].samples
    assert len(points) == sum(len(row.points) for row in load_rows() if row.points and row.scenario != "offline") + 1
    run = next(run for run in load_runs(with_loads) if run.name == server()[1][0].load_id)
    first = server()[1][0].points[0]
    assert run.metrics[f"{first.point}/load_achieved_per_s"] == first.achieved_per_s
    assert all(re.fullmatch(r"[\w\-. /]+", name) for name in run.metrics)  # the names that MLflow takes


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("minilm-l6/openvino/int8:load_peak>=50/s", "PASS"),
        ("minilm-l6/openvino/int8/server:load_peak>=5000/s", "FAIL"),
        ("*/single-stream:load_latency_p99<1s", "PASS"),
        ("minilm-l6/torch-eager:load_peak>=50/s", "UNKNOWN"),
    ],
)
def test_thresholds_judge_loads(with_loads: Summary, text: str, outcome: str) -> None:
    result = thresholds.judge(thresholds.parse(text), with_loads.rows, with_loads.loads)
    assert {entry.outcome for entry in result} == {outcome}


def test_a_threshold_on_loads_without_any_is_refused(summary: Summary) -> None:
    with pytest.raises(UsageError, match="matches no load case"):
        thresholds.judge(thresholds.parse("load_peak>=50/s"), summary.rows, summary.loads)


def test_a_load_that_passed_and_fails_now_is_slower(with_loads: Summary) -> None:
    def moved(factor: float) -> Summary:
        rows = [
            row.model_copy(
                update={
                    "peak_pass_per_s": row.peak_pass_per_s and row.peak_pass_per_s * factor,
                    "peak_fail_per_s": row.peak_fail_per_s and row.peak_fail_per_s * factor,
                    "predicted_peak_per_s": row.predicted_peak_per_s and row.predicted_peak_per_s * factor,
                }
            )
            for row in with_loads.loads
        ]
        return with_loads.model_copy(update={"loads": tuple(rows)})

    def verdicts(current: Summary, differences: tuple[Difference, ...] = ()) -> dict[str, str]:
        result = compare_loads(with_loads, current, differences)
        return {entry.load_id: entry.verdict for entry in result if entry.scenario == "server"}

    assert set(verdicts(moved(0.5)).values()) == {"SLOWER", "NOT COMPARABLE"}  # the failed one is not comparable
    assert set(verdicts(moved(2.0)).values()) == {"FASTER", "NOT COMPARABLE"}
    assert set(verdicts(moved(0.95)).values()) == {"AMBIGUOUS", "NOT COMPARABLE"}
    other = Difference(name="machine.cpu", baseline="a", current="b", refuses=True)
    assert set(verdicts(moved(0.5), (other,)).values()) == {"NOT COMPARABLE"}
    slower = [entry for entry in compare_loads(with_loads, moved(0.5), ()) if entry.fails]
    assert [entry.ratio for entry in slower] == pytest.approx([0.5] * len(slower))
    assert {entry.verdict for entry in compare_loads(with_loads, with_loads.model_copy(update={"loads": ()}), ())} == {
        "GONE"
    }


GENERATED = parse_bounds("ttft_p99<500ms,itl_p99<50ms")


def generating(rates: tuple[float, ...] = (1.0, 2.0), peak: float | None = 1.0, **more: object) -> LoadRow:
    """A row of generation under load: TTFT and ITL grow with the load; the second one fails by its ITL."""
    points = []
    for place, rate in enumerate(rates):
        verdict: LoadVerdict = "FAIL" if place else "PASS"
        share = 0.2 * place
        judged = [
            JudgedBound(bound=GENERATED[0].text, over_share=0.0, over_low=0.0, over_high=0.001, verdict="PASS"),
            JudgedBound(bound=GENERATED[1].text, over_share=share, over_low=share, over_high=share, verdict=verdict),
        ]
        tokens = TokenLoad(
            ttft={"p50": LoadPercentile(ns=1e8 * rate), "p99": LoadPercentile(ns=2e8 * rate)},
            itl={"p50": LoadPercentile(ns=2e7 * rate), "p99": LoadPercentile(ns=None, infinite=place > 0)},
            tokens_per_s=40 * rate,
            useful_share=0.75,
        )
        points.append(
            LoadedPoint(
                point=f"r{rate:g}",
                asked_per_s=rate,
                achieved_per_s=rate,
                samples_per_s=rate,
                replications=10,
                requests=1_000,
                failed=0,
                latency={"p50": LoadPercentile(ns=1e9)},
                compute_p50_ns=1e9,
                compute_p99_ns=1e9,
                mean_batch=2.0,
                goodput=1 - share,
                goodput_per_s=rate * (1 - share),
                over_share=0.0,
                verdict=verdict,
                judged=tuple(judged),
                tokens=tokens,
            )
        )
    fields = {"bound": GENERATED[0], "further_bounds": GENERATED[1:], "prompt_length": 128, "new_tokens": 64}
    fields |= {"points": tuple(points), "peak_pass_per_s": peak, "peak_fail_per_s": 2.0, "predicted": (), "map": ()}
    fields |= {"predicted_peak_per_s": None, "capacity_per_s": None, "load_id": "generating", "guards": ()}
    return row_of("openvino").model_copy(update={**fields, **more})


def test_generation_under_load_has_its_tokens_in_table_chart_and_csv(summary: Summary) -> None:
    row = generating(lengths=((128, 64), (16, 8)))
    text = blocks_text(load_tables(summary, [row]))
    assert "16 to 128 + 8 to 64 tokens" in text
    for header in ("TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "tokens/s", "useful", "over itl_p99<50ms"):
        assert header in text
    assert "| ∞ |" in re.sub(r" +", " ", text)
    (key, rows), *_ = by_group([row])
    assert key.bound == "ttft_p99<500ms, itl_p99<50ms"
    chart = load_curve(key, rows, "")
    assert chart is not None
    assert [panel.title for panel in chart.panels] == ["TTFT p50", "TTFT p99, bound 500 ms", "goodput"]
    lines = list(
        csv.DictReader(io.StringIO(csv_tables(summary.model_copy(update={"loads": (row,)}), ())["load_points"]))
    )
    assert lines[1]["load_judged"] == "ttft_p99<500ms 0.00% PASS; itl_p99<50ms 20.00% FAIL"
    assert float(lines[1]["load_point_ttft_p99_ms"]) == 400.0
    assert (lines[0]["load_point_tokens_per_s"], lines[0]["length_pairs"]) == ("40.0", "2")


def test_weights_of_four_bits_are_not_ranked_with_others() -> None:
    four = generating(load_id="four", precision="int4", peak=2.0)
    assert [key.bits for key, _ in by_group([generating(), four])] == ["", "int4"]


@pytest.mark.parametrize(
    ("text", "peak", "outcomes"),
    [
        ("ttft_p99<250ms", 1.0, ["PASS"]),
        ("ttft_p99<150ms", 1.0, ["FAIL"]),
        ("itl_p50<25ms", 1.0, ["PASS"]),
        ("tokens_per_s>=50/s", 1.0, ["FAIL"]),
        ("*/server:load_ttft_p50<150ms", 1.0, ["PASS"]),
        ("itl_p99<25ms", 1.0, ["UNKNOWN"]),
        ("ttft_p99<1s", None, ["UNKNOWN"]),
    ],
)
def test_thresholds_on_tokens_hold_at_the_highest_load_that_passed(
    text: str, peak: float | None, outcomes: list[str]
) -> None:
    result = thresholds.judge(thresholds.parse(text), (), (generating(peak=peak), row_of("openvino")))
    assert [entry.outcome for entry in result] == outcomes


def test_loads_with_other_bounds_on_tokens_are_not_compared(summary: Summary) -> None:
    def compared(now: LoadRow) -> tuple[str, str | None]:
        sides = (summary.model_copy(update={"loads": (row,)}) for row in (generating(), now))
        (result,) = compare_loads(*sides, ())
        return result.verdict, result.reason

    assert compared(generating(peak=None, peak_fail_per_s=1.0)) == ("SLOWER", None)
    assert compared(generating(further_bounds=())) == (
        "NOT COMPARABLE",
        "bound ttft_p99<500ms, itl_p99<50ms in the baseline, ttft_p99<500ms now",
    )
