"""The first page: which backend is called fastest, beside which accuracy, and what is said where that is undecided."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from harness.aggregation.flags import ALIKE
from harness.core.schemas import Flag, Interval, Row, Summary
from harness.planning.config import DEFAULT_TOLERANCES
from harness.reporting import first_page as page
from harness.reporting import ranking
from harness.reporting.prose.conditions import short_conditions
from harness.reporting.writers.markdown import blocks_text
from tests.synthetic_results import voided

Golden = Callable[[str, str], None]
Rows = dict[str, Row]
OPENVINO, ONNXRUNTIME = "efficientnet-lite0-openvino-cpu-fp32-b1", "efficientnet-lite0-onnxruntime-cpu-fp32-b1"
EAGER = "efficientnet-lite0-torch-eager-cpu-fp32-b1"


def timed(row: Row, ms: float, low: float, high: float, grade: str = "A", **changes: Any) -> Row:
    assert row.latency_ns is not None
    interval = Interval(low=low * 1e6, high=high * 1e6)
    latency = row.latency_ns.model_copy(update={"median": ms * 1e6, "ci95": interval})
    return row.model_copy(update={"latency_ns": latency, "grade": grade, "flags": (), "speedup": None, **changes})


def lossy(row: Row, ms: float, low: float, high: float, **parity: Any) -> Row:
    """The row in int8, with another agreement with the reference."""
    assert row.parity is not None
    changes = {"precision": "int8", "case_id": f"{row.case_id}-int8", "parity": row.parity.model_copy(update=parity)}
    return timed(row, ms, low, high, **changes)


def cells(summary: Summary, *rows: Row) -> list[str]:
    """Of the only line of the answer table."""
    text = blocks_text([page.answer_table(summary.model_copy(update={"rows": rows}))])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 3, text
    return [cell.strip() for cell in lines[2].split("|")[1:-1]]


def test_the_first_page(summary: Summary, golden: Golden) -> None:
    headings = ["Recommendations", "How to read this", "Environment", "resnet50"]
    charts = [("Latency by backend", "charts/overview.png")]
    golden("first-page.md", page.first_page(summary, "report-details.md", headings, charts))


def test_the_terminal_ends_with_the_same_answers(summary: Summary, golden: Golden) -> None:
    golden("answer.txt", page.terminal_answer(summary) + "\n")


def test_the_terminal_refers_to_the_reason_of_an_export_that_was_printed_before(summary: Summary) -> None:
    lost = [
        row.model_copy(update={"status": "failed", "reason": f"export: {row.model} is broken.", "latency_ns": None})
        if row.backend == "openvino"
        else row
        for row in summary.rows
    ]
    changed = summary.model_copy(update={"rows": tuple(lost)})
    assert "export: resnet50 is broken." in page.terminal_answer(changed)
    printed = page.terminal_answer(changed, after_export=True)
    assert "is broken" not in printed
    assert len(re.findall(r"cases failed \(openvino .*\): the export failed, see above", printed)) == 1


def test_a_faster_int8_is_named_after_the_same_answers_and_with_its_cost(rows: Rows, summary: Summary) -> None:
    exact = timed(rows[OPENVINO], 10, 9.9, 10.1)
    slow = timed(rows[EAGER], 20, 19.9, 20.1)
    fast = lossy(rows[OPENVINO], 5, 4.9, 5.1, top1_agreement=0.90625)
    model, same, fastest, cost, baseline = cells(summary, slow, fast, exact)
    assert model == "efficientnet-lite0, batch 1"
    assert same == "**openvino** 10.0 ms"
    assert fastest == "**openvino int8** 5.00 ms"
    assert cost == "9.4% of answers change"
    assert baseline == "20.0 ms"


@pytest.mark.parametrize(
    ("changes", "parity", "cost"),
    [
        ({}, {"top1_agreement": 1.0}, "no answer changes"),
        ({}, {"top1_agreement": 0.9999}, "0.1% of answers change"),  # never rounded to nothing
        ({"weights": "seeded"}, {"top1_agreement": 0.5, "cosine": 0.98241}, "cosine 0.9824"),
        ({}, {"top1_agreement": None, "cosine": None}, "accuracy not checked"),
    ],
)
def test_the_cost_of_a_lower_precision(rows: Rows, changes: dict[str, Any], parity: dict[str, Any], cost: str) -> None:
    fast = lossy(rows[OPENVINO], 5, 4.9, 5.1, **parity).model_copy(update=changes)
    assert page.accuracy_loss([rows[OPENVINO], fast]) == cost
    assert page.accuracy_loss([rows[OPENVINO]]) == "nothing"


def test_answers_beyond_the_default_tolerance_are_not_the_same(rows: Rows, summary: Summary) -> None:
    assert DEFAULT_TOLERANCES["fp32"].relative_l2 == page.MAX_SAME_DISTANCE
    exact, slow = timed(rows[ONNXRUNTIME], 10, 9.9, 10.1), timed(rows[EAGER], 20, 19.9, 20.1)
    for distance, same, cost in (
        (1e-4, "**openvino** 5.00 ms", "nothing"),
        (0.2, "**onnxruntime** 10.0 ms", "4.0% of answers change"),
    ):
        parity = rows[OPENVINO].parity.model_copy(update={"item_relative_l2": distance, "top1_agreement": 0.96})
        found = cells(summary, slow, exact, timed(rows[OPENVINO], 5, 4.9, 5.1, parity=parity))
        assert (found[1], found[3]) == (same, cost)


def test_the_least_accurate_of_several_is_the_one_that_is_named(rows: Rows) -> None:
    first, second = (lossy(rows[OPENVINO], 5, 4.9, 5.1, top1_agreement=share) for share in (0.99, 0.95))
    assert page.accuracy_loss([first, second]) == "5.0% of answers change (the least accurate)"


def test_rows_that_may_be_equally_fast_are_both_named(rows: Rows, summary: Summary) -> None:
    first, second = timed(rows[OPENVINO], 10, 9, 11), timed(rows[ONNXRUNTIME], 10.5, 10, 11.5)
    _, same, fastest, cost, baseline = cells(summary, first, second)
    assert same == "openvino or onnxruntime, 10.0 ms to 10.5 ms"
    assert (fastest, cost, baseline) == ("the same", "nothing", "–")


def test_a_row_of_grade_c_that_reads_faster_leaves_it_undecided(rows: Rows, summary: Summary) -> None:
    sound, flagged = timed(rows[OPENVINO], 10, 9.9, 10.1), timed(rows[ONNXRUNTIME], 8, 7, 9, "C")
    _, same, fastest, _, _ = cells(summary, sound, flagged)
    assert same == "undecided: onnxruntime 8.00 ms (grade C) or openvino 10.0 ms"
    assert fastest == "the same"


def test_without_a_rival_nothing_is_called_fastest(rows: Rows, summary: Summary) -> None:
    alone = timed(rows[OPENVINO], 10, 9.9, 10.1)
    assert cells(summary, alone)[1] == "openvino 10.0 ms (only row)"
    assert cells(summary, alone, timed(rows[ONNXRUNTIME], 20, 19, 21, "C"))[1].endswith("(others are grade C)")
    apart = {"flags": (Flag(name="MEASURED_APART", detail="", remedy="", caps_at="B"),)}
    rival = timed(rows[ONNXRUNTIME], 20, 19, 21, "B").model_copy(update=apart)
    assert cells(summary, alone, rival)[1] == "openvino 10.0 ms (not measured in turn with all others)"
    assert cells(summary, alone.model_copy(update={"grade": "C"}))[1] == "openvino 10.0 ms (only row, grade C)"


def test_many_that_may_be_fastest_are_counted(rows: Rows, summary: Summary) -> None:
    several = [
        timed(rows[OPENVINO], 10 + place / 10, 9, 12, setting=f"s{place}", case_id=f"case-{place}")
        for place in range(5)
    ]
    assert "openvino (s2) or 2 more, 10.0 ms to 10.4 ms" in cells(summary, *several)[1]


def test_a_void_row_is_never_an_answer(rows: Rows, summary: Summary) -> None:
    void = voided(timed(rows[ONNXRUNTIME], 1, 0.9, 1.1, "F"))
    slow, sound = timed(rows[EAGER], 20, 19.9, 20.1), timed(rows[OPENVINO], 10, 9.9, 10.1)
    assert "onnxruntime" not in " ".join(cells(summary, slow, sound, void))
    shown = page.case_table(summary.model_copy(update={"rows": (slow, sound, void)}))
    assert next(line for line in shown.splitlines() if "onnxruntime" in line).count("void") == 3


def test_the_reference_of_an_onnx_file_is_named(summary: Summary) -> None:
    assert "against PyTorch fp32. " in f"{page.case_table(summary)} ", "nothing but modules"
    row = next(row for row in summary.rows if row.model in summary.exports)
    file = summary.exports[row.model].model_copy(update={"module": None})
    of_file = summary.model_copy(update={"exports": {**summary.exports, row.model: file}})
    assert "fp32, of ONNX files against ONNX Runtime without optimisations." in page.case_table(of_file)


def test_nothing_to_answer_is_said(summary: Summary) -> None:
    void = tuple(row.model_copy(update={"grade": "F"}) for row in summary.rows)
    assert "| –" in blocks_text([page.answer_table(summary.model_copy(update={"rows": void}))])
    missing = tuple(row.model_copy(update={"status": "missing", "latency_ns": None}) for row in summary.rows)
    text = page.first_page(summary.model_copy(update={"rows": missing}), "report-details.md", [])
    assert text.startswith(f"# {summary.title}\n\nNothing is measured yet.")


def test_a_long_run_answers_for_the_smallest_batch_alone(rows: Rows, summary: Summary) -> None:
    pair = (timed(rows[OPENVINO], 10, 9.9, 10.1), timed(rows[ONNXRUNTIME], 20, 19.9, 20.1))
    many = tuple(
        row.model_copy(update={"batch_size": size, "case_id": f"{row.case_id}-{size}"})
        for size in range(1, 32)
        for row in pair
    )
    long = summary.model_copy(update={"rows": many})
    assert [answer.where for answer in page.answers(long)] == ["efficientnet-lite0, batch 1"]
    table = page.case_table(long)
    assert sum(line.startswith("| efficientnet") for line in table.splitlines()) == 2
    assert "60 more rows" in table
    assert len(page.answers(long.model_copy(update={"rows": many[:8]}))) == 4


def test_how_sure_has_the_grades_and_their_meaning(summary: Summary) -> None:
    text = page.certainty_text(summary)
    measured = [row for _, rows in ranking.by_table(summary.rows) for row in rows]
    for grade in {row.grade for row in measured if row.grade}:
        number = sum(row.grade == grade for row in measured)
        assert f"{number} {grade} ({page.GRADES[grade]}" in text


def test_no_mark_without_its_meaning(summary: Summary) -> None:
    for text in (blocks_text([page.answer_table(summary)]), page.case_table(summary), page.terminal_answer(summary)):
        assert ("~" in text) == (ranking.DOUBT_MEANS in text)
    assert "*" not in page.terminal_answer(summary)


def test_ids_and_variables_are_in_the_details_alone(summary: Summary) -> None:
    text = page.first_page(summary, "report-details.md", [])
    assert summary.plan_id not in text
    assert not any(row.case_id in text for row in summary.rows)


def test_a_card_has_the_cost_beside_the_speed(rows: Rows, summary: Summary) -> None:
    exact, slow = timed(rows[OPENVINO], 10, 9.9, 10.1), timed(rows[EAGER], 20, 19.9, 20.1)
    fast = lossy(rows[OPENVINO], 5, 4.9, 5.1, top1_agreement=0.90625)
    (card,) = page.answer_cards(summary.model_copy(update={"rows": (exact, slow, fast)}))
    assert card.text == "openvino int8 is fastest"
    assert card.figures == "5.00 ms, 9.4% of answers change, with the same answers (fp32): openvino 10.0 ms"


def test_a_card_without_a_winner_says_so(rows: Rows, summary: Summary) -> None:
    tied = (timed(rows[OPENVINO], 10, 9, 11), timed(rows[ONNXRUNTIME], 10.5, 10, 11.5))
    (card,) = page.answer_cards(summary.model_copy(update={"rows": tied}))
    assert card.fastest is None
    assert card.text == "no clear winner: openvino fp32 or onnxruntime fp32, 10.0 ms to 10.5 ms"
    doubtful = summary.model_copy(update={"rows": (tied[0], timed(rows[ONNXRUNTIME], 8, 7, 9, "C"))})
    (flagged,) = page.answer_cards(doubtful)
    assert flagged.text.startswith("undecided: onnxruntime fp32 8.00 ms (grade C) or openvino fp32")


def test_after_one_round_the_lowest_median_is_named_and_no_winner(rows: Rows, summary: Summary) -> None:
    def once(row: Row, ms: float) -> Row:
        whole = timed(row, ms, ms, ms)
        assert whole.latency_ns is not None
        return whole.model_copy(update={"latency_ns": whole.latency_ns.model_copy(update={"ci95": None})})

    fast, slow = once(lossy(rows[OPENVINO], 5, 5, 5, top1_agreement=0.9), 5), once(rows[EAGER], 20)
    (card,) = page.answer_cards(summary.model_copy(update={"rows": (slow, fast)}))
    assert card.fastest is None
    assert card.text.startswith("no clear winner: openvino int8 5.00 ms")
    assert "(lowest median, no interval); 10.0% of answers change" in card.text
    (flagged,) = page.answer_cards(summary.model_copy(update={"rows": (slow, fast.model_copy(update={"grade": "C"}))}))
    assert "lowest median" not in flagged.text


def test_after_one_round_a_lower_precision_may_be_as_fast(rows: Rows, summary: Summary) -> None:
    exact, less = (
        row.model_copy(update={"latency_ns": row.latency_ns.model_copy(update={"ci95": None})})
        for row in (timed(rows[EAGER], 6.43, 6, 7), lossy(rows[OPENVINO], 6.44, 6, 7, top1_agreement=0.9))
        if row.latency_ns is not None
    )
    (found,) = page.answers(summary.model_copy(update={"rows": (exact, less)}))
    assert not found.is_same


def test_an_interval_too_wide_for_digits_is_named_so(rows: Rows, summary: Summary) -> None:
    """`38.1 ±4861%` was printed of a restless machine."""
    wide, sound = timed(rows[OPENVINO], 10, 4, 900, "C"), timed(rows[EAGER], 20, 19.9, 20.1)
    shown = page.case_table(summary.model_copy(update={"rows": (sound, wide)}))
    assert "10.0 (wide)" in shown
    assert "(wide): its ends are more than ×1.5 apart." in shown
    assert "(wide)" not in page.case_table(summary.model_copy(update={"rows": (sound,)}))


def test_the_share_of_text_is_beside_the_number_of_tokens(summary: Summary) -> None:
    row = next(row for row in summary.rows if row.sequence_length)
    export = summary.exports[row.model]
    padded = [
        made.model_copy(update={"text_share": 0.1527, "source": "64 texts of own.txt; 15.2% of the tokens are text"})
        for made in export.input_sets
    ]
    exports = {**summary.exports, row.model: export.model_copy(update={"input_sets": tuple(padded)})}
    padded_summary = summary.model_copy(update={"exports": exports})
    assert f" · {row.sequence_length} tokens (15.2% text) · " in short_conditions(padded_summary, [row])
    assert "% text" not in short_conditions(summary, [row])
    text = page.first_page(padded_summary, "details.md", [])
    assert f"batch {row.batch_size}, {row.sequence_length} tokens (15.2% text)" in text
    assert f"{row.model}, {row.sequence_length} tokens (15.2% text)" in text
    assert f"{row.sequence_length} tokens (" not in page.first_page(summary, "details.md", [])


def test_the_only_valid_row_is_not_undecided(rows: Rows, summary: Summary) -> None:
    """With one row that is not void there is nothing to decide."""
    void = voided(timed(rows[ONNXRUNTIME], 1, 0.9, 1.1, "F"))
    for grade, why in (("A", "only valid row"), ("C", "only valid row, grade C")):
        left = timed(rows[OPENVINO], 10, 9.9, 10.1, grade)
        shown = summary.model_copy(update={"rows": (left, void)})
        assert cells(summary, left, void)[1:4] == [f"openvino 10.0 ms ({why})", "the same", "nothing"]
        (card,) = page.answer_cards(shown)
        assert card.text == f"openvino fp32 10.0 ms ({why})"
        assert "undecided" not in page.terminal_answer(shown)


def test_where_all_rows_are_void_nothing_has_a_cost(rows: Rows, summary: Summary) -> None:
    void = tuple(voided(timed(rows[name], 1, 0.9, 1.1, "F")) for name in (OPENVINO, ONNXRUNTIME))
    assert cells(summary, *void)[1:] == ["–"] * 4


def test_unchecked_outputs_are_not_the_same_answers(rows: Rows, summary: Summary) -> None:
    """A model with one output for all inputs equals its reference whatever a backend does."""
    flag = Flag(name="PARITY_UNCHECKED", detail=ALIKE, remedy="", caps_at="C")
    first, second = (timed(rows[name], 10, 9, 11, "C", flags=(flag,)) for name in (OPENVINO, EAGER))
    _, same, fastest, cost, _ = cells(summary, first, second)
    assert (same, cost) == ("–", "accuracy not checked")
    assert fastest.startswith("undecided: ")
    shown = page.case_table(summary.model_copy(update={"rows": (first, second)}))
    assert shown.count("not checked") == 2
    checked = timed(rows[ONNXRUNTIME], 12, 11.9, 12.1)
    assert cells(summary, first, checked)[1:4:2] == ["onnxruntime 12.0 ms (only row)", "accuracy not checked"]
