"""The what-if lists as a reader sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.core import store
from harness.core.schemas import Summary
from harness.reporting.tables.what_if_table import terminal_what_if, what_if_section
from harness.reporting.writers.markdown import blocks_text
from tests.synthetic_what_if import EAGER, MS, ORT, PROFILES, SUMMARY, parts, row

Golden = Callable[[str, str], None]
PUBLISHED = Path(__file__).parents[3] / "results" / "published"
OF_A_CPU = SUMMARY.model_copy(
    update={
        "rows": (
            *(EAGER, ORT, row("torch-eager", 4, 60), row("onnxruntime", 4, 38)),
            row("onnxruntime", 1, 8, precision="int8"),
        )
    }
)


def test_a_cpu_with_profiles(golden: Golden) -> None:
    golden("what-if.md", blocks_text(what_if_section(OF_A_CPU, PROFILES)) + "\n")


def test_a_cpu_with_profiles_in_a_terminal(golden: Golden) -> None:
    golden("what-if.txt", terminal_what_if(OF_A_CPU, PROFILES) + "\n")


def test_the_published_gpu_run_which_has_no_profiles(golden: Golden) -> None:
    summary = store.load(PUBLISHED / "h200" / "2026-11-28" / "summary.json", Summary, "")
    golden("what-if-h200.md", blocks_text(what_if_section(summary, {})) + "\n")


def test_a_baseline_of_grade_c_starts_nothing_and_its_list_says_so() -> None:
    rows = tuple(row.model_copy(update={"grade": "C"}) if row is EAGER else row for row in OF_A_CPU.rows)
    text = blocks_text(what_if_section(OF_A_CPU.model_copy(update={"rows": rows}), {}))
    assert "The baseline, torch-eager fp32, batch 1, is grade C: no gain is computed from it." in text
    assert f"`{EAGER.case_id}`" not in text
    assert "is grade C: no gain" in terminal_what_if(OF_A_CPU.model_copy(update={"rows": rows}), {})
    assert "no gain is computed" not in blocks_text(what_if_section(OF_A_CPU, {}))


def test_launches_are_reported_on_a_gpu() -> None:
    from harness.core.schemas.profile_record import LaunchGaps, OperatorRow

    kernel = OperatorRow(name="gemm", shapes="", calls=1, self_cpu_ns=0, self_device_ns=15 * MS)
    gaps = LaunchGaps(window_ns=40 * MS, busy_ns=15 * MS, waited_ns=None, work_ns=15 * MS, kernels_ns=15 * MS)
    on_gpu = SUMMARY.model_copy(update={"rows": (EAGER.model_copy(update={"device": "cuda"}),)})
    text = blocks_text(what_if_section(on_gpu, {EAGER.case_id: parts((), 20, operators=(kernel,), launch_gaps=gaps)}))
    assert "| 1.33×  | upper bound | launches | torch-eager fp32, batch 1 |" in text
    assert "in 25.0% of the measured latency no kernel runs" in text


def test_profiles_that_were_left_out_are_below_the_list_with_the_reason() -> None:
    odd = PROFILES | {EAGER.case_id: PROFILES[EAGER.case_id].model_copy(update={"plain_ns": 40 * MS})}
    why = "its parts are 0.51 of the plain latency, and nothing measured covers the difference."
    assert blocks_text(what_if_section(OF_A_CPU, odd)).endswith(f"No bound is taken from `{EAGER.case_id}`: {why}")
    assert terminal_what_if(OF_A_CPU, odd).endswith(f"No bound is taken from {EAGER.case_id}: {why}")
    assert "No bound is taken" not in blocks_text(what_if_section(OF_A_CPU, PROFILES))
    only_eager = SUMMARY.model_copy(update={"rows": (EAGER,)})
    text = blocks_text(what_if_section(only_eager, odd))
    assert "and no profile of theirs can be relied on.\n\nNo bound is taken from" in text


def test_empty_lists_have_one_line_each_in_a_terminal_and_an_empty_line_between_them() -> None:
    other = EAGER.model_copy(update={"model": "resnet50", "slug": "resnet50", "case_id": "resnet50"})
    lines = terminal_what_if(SUMMARY.model_copy(update={"rows": (EAGER, other)}), {}).split("\n")
    assert len(lines) == 3
    assert [line.partition(", ")[0] for line in lines] == ["What if", "", "What if"]


def test_an_empty_list_says_why_and_nothing_measured_says_nothing() -> None:
    alone = SUMMARY.model_copy(update={"rows": (EAGER,)})
    assert "No gain is known: " in blocks_text(what_if_section(alone, {}))
    assert terminal_what_if(alone, {}).endswith("no row of grade A or B has a profile to give a bound")
    nothing = SUMMARY.model_copy(update={"rows": ()})
    assert (blocks_text(what_if_section(nothing, {})), terminal_what_if(nothing, {})) == ("", "")
