"""Tables against golden files, and the rules that decide single cells."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.core.schemas import ColdCosts, Interval, Row, Speedup, Summary
from harness.render import cold, ranking, remarks
from harness.render.conditions import conditions, environment_table
from harness.render.headline import headline
from harness.render.markdown import escape, table
from harness.render.tables import latency_table, terminal_table

ROWS = dict[str, Row]
Golden = Callable[[str, str], None]
MODELS = ["minilm-l6", "efficientnet-lite0", "resnet50"]


def rows_of(summary: Summary, model: str) -> list[Row]:
    return next(rows for key, rows in ranking.by_table(summary.rows) if key[0] == model)


def cells(text: str, first: str) -> list[list[str]]:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return [line for line in lines if line[0] == first]


@pytest.mark.parametrize("model", MODELS)
def test_latency_table(summary: Summary, golden: Golden, model: str) -> None:
    golden(f"latency-{model}.md", latency_table(rows_of(summary, model), summary.exports[model]) + "\n")


@pytest.mark.parametrize("model", MODELS)
def test_cold_table(summary: Summary, rows: ROWS, golden: Golden, model: str) -> None:
    text = cold.cold_table(rows_of(summary, model), rows, summary.exports[model])
    golden(f"cold-{model}.md", text + "\n")


def test_terminal_table(summary: Summary, golden: Golden) -> None:
    golden("terminal.txt", terminal_table(summary) + "\n")


def test_unmeasured_rows(summary: Summary, golden: Golden) -> None:
    golden("unmeasured.md", remarks.unmeasured_table(summary.rows) + "\n")


def test_flag_notes(summary: Summary, golden: Golden) -> None:
    golden("flags.md", remarks.flag_notes([row for row in summary.rows if row.backend != "noop"]) + "\n")


def test_conditions_and_environment(summary: Summary, golden: Golden) -> None:
    text = conditions(summary, rows_of(summary, "minilm-l6")) + "\n\n" + environment_table(summary.environments)
    golden("conditions.md", text + "\n")


def test_void_rows_show_no_speed(summary: Summary) -> None:
    text = latency_table(rows_of(summary, "efficientnet-lite0"))
    void = next(line for line in cells(text, "torch-script") if line[-1].startswith("F"))
    assert void[3:9] == ["void"] * 6
    assert void[-1] == "F PARITY_FAIL"


def test_few_samples_say_so_instead_of_a_number(summary: Summary) -> None:
    text = latency_table(rows_of(summary, "resnet50"))
    one_round = next(line for line in cells(text, "openvino") if "ROUNDS_MISSING" in line[-1])
    assert one_round[5:8] == ["268", "n<130", "n<662"]


def test_top1_of_random_weights_is_not_shown(summary: Summary) -> None:
    assert "top-1" not in header_of(latency_table(rows_of(summary, "resnet50")))
    assert "100%" in latency_table(rows_of(summary, "efficientnet-lite0"))


def header_of(text: str) -> list[str]:
    return [cell.strip() for cell in text.splitlines()[0].split("|")[1:-1]]


def test_cosine_and_file_size_stand_only_where_precisions_differ(summary: Summary) -> None:
    rows, export = rows_of(summary, "minilm-l6"), summary.exports["minilm-l6"]
    both = latency_table(rows, export)
    assert {"cosine", "file MiB"} <= set(header_of(both))
    column = header_of(both).index("file MiB")
    assert {line[column] for line in cells(both, "onnxruntime")} == {"91.0"}
    assert {line[column] for line in cells(both, "torch-eager")} == {"90.0"}
    fp32 = latency_table([row for row in rows if row.precision == "fp32"], export)
    assert not {"cosine", "file MiB"} & set(header_of(fp32))
    assert "file MiB" not in header_of(latency_table(rows))


def test_a_trained_classifier_shows_top1_and_others_the_cosine(summary: Summary) -> None:
    assert "cosine" not in header_of(latency_table(rows_of(summary, "efficientnet-lite0")))
    assert "cosine" in header_of(latency_table(rows_of(summary, "resnet50")))  # random weights


def test_pipes_and_line_breaks_stay_in_their_cell() -> None:
    text = table(["case", "reason"], [["a|b", "first\nsecond | third"]])
    assert len(text.splitlines()) == 3
    assert "first second \\| third" in text
    assert escape("a|b") == "a\\|b"


def test_headline_names_winners_and_admits_doubt(summary: Summary, golden: Golden) -> None:
    golden("headline.md", headline(summary) + "\n")
    tied = []
    for row in summary.rows:
        wide = Interval(low=1, high=1e9)
        latency = row.latency_ns.model_copy(update={"ci95": wide}) if row.latency_ns else None
        tied.append(row.model_copy(update={"latency_ns": latency}))
    text = headline(summary.model_copy(update={"rows": tuple(tied)}))
    assert "no clear winner: openvino bf16" in text
    assert "fastest" not in text


def test_headline_without_anything_to_rank(summary: Summary) -> None:
    void = tuple(row.model_copy(update={"grade": "F"}) for row in summary.rows)
    assert "Nothing was measured that may be ranked" in headline(summary.model_copy(update={"rows": void}))


NAME, BASELINE = "resnet50-torch-script-cpu-fp32-b1", "resnet50-torch-eager-cpu-fp32-b1"


def with_cold(row: Row, load_s: float, median_ms: float, ci: tuple[float, float] | None = (1.5, 2.5)) -> Row:
    assert row.latency_ns is not None
    costs = ColdCosts(load=int(load_s * 1e9), compile=None, compile_cached=None, first_inference=0)
    latency = row.latency_ns.model_copy(update={"median": median_ms * 1e6})
    interval = None if ci is None else Interval(low=ci[0], high=ci[1])
    speedup = Speedup(ratio=2, ci95=interval, baseline=BASELINE)
    return row.model_copy(update={"cold_ns": costs, "latency_ns": latency, "speedup": speedup})


@pytest.mark.parametrize(
    ("load_s", "median_ms", "ci", "expected"),
    [
        (2.0, 10, (1.5, 2.5), "100"),  # one second more, 10 ms saved a request
        (1.0, 10, (1.5, 2.5), "at once"),
        (2.0, 25, (0.5, 0.9), "never"),
        (2.0, 19, (0.9, 1.2), "unclear"),
        (2.0, 10, None, "100"),
    ],
)
def test_break_even(rows: ROWS, load_s: float, median_ms: float, ci: tuple[float, float] | None, expected: str) -> None:
    baseline = with_cold(rows[BASELINE], 1.0, 20)
    assert cold.break_even(with_cold(rows[NAME], load_s, median_ms, ci), baseline, None) == expected
    assert cold.break_even(baseline, baseline, None) == "–"


def test_export_counts_only_for_rows_that_loaded_onnx(summary: Summary, rows: ROWS) -> None:
    export = summary.exports["resnet50"]
    assert cold.export_ns(rows["resnet50-openvino-cpu-fp32-b1"], export) == 7.3e9
    assert cold.export_ns(rows[BASELINE], export) is None


def test_long_lists_of_flags_are_cut(summary: Summary) -> None:
    row = next(row for row in summary.rows if any(flag.name == "NOT_STEADY" for flag in row.flags))
    text = remarks.flag_notes([row] * 50)
    assert text.count("\n") == remarks.MAX_LISTED + 1
    assert "… and 30 more in summary.json" in text
