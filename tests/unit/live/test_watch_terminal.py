"""The progress of a run on a terminal and in a log."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from harness.core import cli
from harness.core.hints import HintContext
from harness.core.schemas import Plan
from harness.live.progress import Progress, TurnMachine
from harness.live.terminal_view import (
    NO_PLAN,
    changes,
    counts_line,
    headline,
    machine_line,
    view,
    visible_page,
)
from tests.fixtures.watching import (
    EAGER,
    ONNX,
    OPENVINO,
    PLAN,
    answered,
    everything,
    exporting,
    half_done,
    record,
    running,
    state,
)
from tests.synthetic_results import MINILM, case_of, failed, plan_of


def shown(found: Progress | None, height: int | None = None, width: int = 120, **options: Any) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, highlight=False, **options).print(view(found, height))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def large(count: int) -> Plan:
    return plan_of((MINILM,), [case_of(MINILM, f"backend-{number}", "fp32", 1, 32) for number in range(count)])


def test_a_glance_shows_the_state_each_case_and_its_remarks() -> None:
    lines = shown(half_done())
    assert lines[0].endswith("running")
    assert "4 of 9 turns · 1 failed · elapsed 0:01:00 · left about 0:00:12" in lines
    assert f"now: round 2  {ONNX.case_id}  since 0:00:01" in lines
    of = {case.backend: next(line.split() for line in lines if f" {case.backend} " in line) for case in PLAN.cases[:3]}
    assert of["torch-eager"][4:] == ["32", "2/3", "4.50", "22.2%", "partly"]
    assert of["onnxruntime"][4:] == ["32", "1/3", "2.00", "–", "running;", "not", "steady"]
    assert of["openvino"][4:11] == ["32", "1/3", "–", "–", "failed;", "failed", "in"]
    assert any("skipped; there are no bf16 kernels" in line for line in lines)


def test_a_column_without_anything_in_it_is_left_out() -> None:
    header = next(line for line in shown(half_done()) if line.startswith("model"))
    assert header.split() == ["model", "backend", "precision", "batch", "seq", "rounds", "ms", "range", "state"]
    case = case_of(MINILM, "onnxruntime", "fp32", 1, setting="fused")
    header = next(line for line in shown(state([], plan=plan_of((MINILM,), (case,)))) if line.startswith("model"))
    assert header.split()[4:6] == ["way", "rounds"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (80, 12)])
def test_a_glance_keeps_to_the_terminal_and_loses_no_figure(width: int, height: int) -> None:
    plan = large(60)
    result = state(answered(record(plan.cases[40], 1), plan=plan), [(running(plan.cases[41], 1, 1, 180), True)], plan)
    lines = shown(result, height, width, force_terminal=True, no_color=True)
    assert len(lines) < height
    assert all(len(re.sub(r"\x1b\[[\d;]*m", "", line)) <= width for line in lines)
    assert any("backend-41" in line for line in lines)
    assert any("backend-40" in line and "2.00" in line for line in lines)
    assert any(" of 60 cases; `--once` prints all." in line for line in lines)


def test_the_page_of_rows_stays_while_its_cases_take_turns() -> None:
    plan = large(50)
    pages = [
        tuple(entry.backend for entry in visible_page(state([], [(running(case, 1, 0), True)], plan).rows, 10))
        for case in plan.cases
    ]
    assert all(f"backend-{number}" in page for number, page in enumerate(pages))
    assert len(set(pages)) == 5
    assert {len(page) for page in pages} == {10}
    assert len(visible_page(state([]).rows, 10)) == 4


def test_all_rows_and_whole_remarks_are_there_where_nothing_limits_them() -> None:
    text = "a long reason " * 20
    result = state(answered(failed(EAGER, 1, error=text)))
    assert sum(line.count("reason") for line in shown(result, width=90)) == 20
    assert sum(line.count("reason") for line in shown(result, height=30, width=90)) < 3
    assert sum("backend-" in line for line in shown(state([], plan=large(300)))) == 300


def test_names_from_outside_cannot_steer_the_terminal() -> None:
    result = state(answered(failed(EAGER, 1, error="bad \x1b]0;title\x07 [bold]\n\rnews")))
    text = "\n".join(shown(result, force_terminal=False))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]" in text  # nor is it read as markup
    assert all(line.isprintable() for line in changes(None, result))


def test_a_log_has_a_line_for_each_thing_that_is_new() -> None:
    first = state(answered(record(EAGER, 1, 4.0)), [(running(ONNX, 1, done=1), True)])
    assert changes(None, first) == [
        headline(first),
        f"[1/9] {EAGER.case_id}  rounds 1/3: 4.00 ms, range –",
        f"now: round 1  {ONNX.case_id}",
    ]
    assert changes(first, first) == []
    second = state(
        answered(record(EAGER, 1, 4.0), failed(ONNX, 1, error="out of memory")), [(running(OPENVINO, 1, done=2), True)]
    )
    assert changes(first, second) == [
        f"[2/9] {ONNX.case_id}  rounds 1/3: no time; failed in load: out of memory",
        f"now: round 1  {OPENVINO.case_id}",
    ]
    assert changes(second, state(everything()))[-1].endswith("complete: `make aggregate report`")


def test_a_run_that_ended_unexpectedly_is_reported() -> None:
    gone = state([], [(running(EAGER, 1, done=0), False)])
    assert f"gone: the run that measured round 1  {EAGER.case_id} ended without a word" in shown(gone)
    elsewhere = state([], [(running(EAGER, 1, done=0), None)])
    assert any("it may be gone" in line for line in shown(elsewhere))


def test_a_run_that_measures_again_says_how_far_it_is_itself() -> None:
    result = state(everything(), [(running(EAGER, 1, done=1, turns=3), True)])
    assert counts_line(result).startswith("9 of 9 turns · 1 of 3 of this run · elapsed")
    assert counts_line(state([])) == "0 of 9 turns"


def test_the_machine_is_shown_as_far_as_it_is_known() -> None:
    hot = TurnMachine(of="GPU", mhz=1530.0, temperature_c=81.0, power_w=692.5, held_back=("sw_power_cap",))
    listed = machine_line(state([]).model_copy(update={"seen": hot}))
    assert listed == "GPU at the end of the last turn: 1,530 MHz · 81 °C · 692 W · held back: sw_power_cap"
    blind = TurnMachine(of="GPU", mhz=None, temperature_c=None)
    assert machine_line(state([]).model_copy(update={"seen": blind})) == machine_line(state([])) == ""


def test_without_a_plan_the_view_shows_the_command() -> None:
    assert shown(None) == [NO_PLAN]


def test_an_export_at_work_is_named_with_its_model_and_time() -> None:
    result = state([], exports=[(exporting(), True)])
    assert result.state == "exporting"
    assert headline(result).endswith("exporting models")
    assert "exporting: minilm-l6 (2 of 3 models)  since 0:00:12" in shown(result)
    assert "exporting: minilm-l6 (2 of 3 models)" in changes(None, result)
    assert changes(result, result) == []
    gone = state([], exports=[(exporting(), False)])
    assert gone.state == "waiting"
    assert "gone: the export of minilm-l6 (2 of 3 models) ended without a word" in changes(None, gone)


def test_a_run_at_work_goes_before_an_export_and_an_old_failed_export_is_no_news() -> None:
    assert state([], [(running(EAGER, 1, done=0), True)], exports=[(exporting(), True)]).state == "running"
    assert state(everything(), exports=[(exporting(), False)]).exporting == ()


def test_the_next_command_has_the_folder_that_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli._reader, "context", HintContext(planned={"RESULTS": "/r"}))
    assert headline(state(everything())).endswith("complete: `make aggregate report RESULTS=/r`")
