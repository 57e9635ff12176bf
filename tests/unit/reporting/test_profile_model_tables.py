"""The report's section on profiles."""

from __future__ import annotations

from harness.core.schemas.profile_record import LayerRow, ModelProfile, OnnxCount, PartsProfile
from harness.reporting.tables.profile_tables import model_cost_tables, profile_section, progress_line
from harness.reporting.writers.markdown import blocks_text
from tests.synthetic_results import RESNET, case_of
from tests.synthetic_roof import BASE, profile

EAGER = profile(case_of(RESNET, "torch-eager", "fp32", 1), BASE)
ORT = profile(case_of(RESNET, "onnxruntime", "fp32", 1))
COUNT = OnnxCount(
    file="model.onnx",
    macs=3_400_000_000,
    macs_by_operator={"Conv": 3_400_000_000},
    uncounted=("2 x LSTM: not counted",),
)


def layer(name: str, self_ns: int, parent: str | None = None) -> LayerRow:
    return LayerRow(
        name=name,
        kind="Conv2d",
        depth=0 if parent is None else 1,
        parent=parent,
        calls=1,
        self_ns=self_ns,
        total_ns=self_ns,
        flops=None,
        parameters=None,
        output_shapes=(),
        output_bytes=None,
        group="convolution",
    )


PARTS = PartsProfile(
    layers=(layer("conv1", 2_000_000),), operators=(), traces=("a.trace.json",), window_ns=2_100_000, plain_ns=2_000_000
)


def test_nothing_profiled_is_no_section() -> None:
    assert blocks_text(profile_section([], {}, "profiles")) == ""


def test_models_are_listed_once_and_cases_with_their_links() -> None:
    text = blocks_text(profile_section([EAGER, ORT], {EAGER.case_id: PARTS}, "profiles"))
    assert text.count("3.500") == 1  # GMAC a sample
    assert f"[model.json](profiles/{ORT.case_id}/model.json)" in text
    assert f"[parts.md](profiles/{EAGER.case_id}/parts.md)" in text
    assert f"profiles/{EAGER.case_id}/a.trace.json" in text
    assert f"profiles/{ORT.case_id}/parts.md" not in text
    assert "2 FLOPs a multiply-add" in text
    assert "Where the time of resnet50 goes at batch 1" in text
    assert "tokens/s" not in text  # no case has any


def test_missing_and_disagreeing_values_are_reported_once_with_their_models() -> None:
    doubtful = [
        entry.model_copy(update={"onnx_count": COUNT, "uncounted": ("_fft_r2c",), "count_notes": ("they | disagree",)})
        for entry in (EAGER, ORT)
    ]
    lines = blocks_text(model_cost_tables(doubtful, {})).splitlines()
    assert lines.count("- resnet50: they \\| disagree") == 1
    assert "- resnet50: not counted: operator _fft_r2c" in lines
    assert "- resnet50: not in the ONNX count: 2 x LSTM: not counted" in lines
    assert "- onnxruntime: not measured: the case has no row in summary.json" in lines
    assert "- torch-eager, onnxruntime: activations, not measured: why" in lines


def test_a_part_of_the_products_is_at_least_so_much_and_none_is_no_zero() -> None:
    part = EAGER.model_copy(update={"uncounted": ("_fft_r2c",), "onnx_count": COUNT})
    lines = blocks_text(model_cost_tables([part], {})).splitlines()
    model = next(line for line in lines if line.startswith("| resnet50") and "at least" in line)
    assert "|at least 3.500" in model.replace(" ", "").replace("atleast", "at least ")
    assert "at least 3.400" in model  # GMAC by ONNX
    assert "at least 3.500 GMAC a sample" in progress_line(part)

    none = part.model_copy(
        update={
            "macs": 0,
            "flops": 0,
            "flops_per_batch": 0,
            "flops_per_byte": 0.0,
            "onnx_count": COUNT.model_copy(update={"macs": 0}),
        }
    )
    text = blocks_text(model_cost_tables([none], {}))
    assert "GMAC" not in text.partition("| model")[2], "a column in which nothing is known is left out"
    assert "not counted: operator _fft_r2c" in text
    assert "GMAC a sample" not in progress_line(none)


def test_a_line_for_the_terminal() -> None:
    assert progress_line(ORT) == (
        f"{ORT.case_id}: 25.0 M parameters, 3.500 GMAC a sample, 9.54 MiB of activations estimated."
    )
    allocated = ORT.model_copy(update={"activation_measured_bytes": 10 << 20, "activation_alone_bytes": 6 << 20})
    assert ", at most 10.0 MiB allocated, 6.00 MiB of activations alone, " in progress_line(allocated)


def test_a_line_for_the_terminal_leaves_out_unknown_figures() -> None:
    file = ORT.model_copy(update={"parameters": None})
    assert progress_line(file) == f"{ORT.case_id}: 3.500 GMAC a sample, 9.54 MiB of activations estimated."
    unknown = file.model_copy(update={"macs": None, "activation_estimated_bytes": None})
    assert progress_line(unknown) == f"{ORT.case_id}: nothing could be counted."


def test_only_columns_and_outcomes_that_occur_are_explained() -> None:
    text = blocks_text(profile_section([ORT], {ORT.case_id: PARTS}, "profiles"))
    counted = ORT.model_copy(update={"onnx_count": COUNT, "activation_measured_bytes": 10 << 20})
    assert "GMAC by ONNX" not in text
    assert "MiB at most" not in text
    assert "GMAC by ONNX: a second count" in blocks_text(model_cost_tables([counted], {}))
    assert "MiB at most: all that a pass allocates" in blocks_text(model_cost_tables([counted], {}))
    assert ("Latency, throughput" in text) is (ORT.achieved.latency_ns is not None)
    assert "Explained:" not in text
    assert "an unexplained sum" not in text
    short = PARTS.model_copy(update={"plain_ns": 9_000_000})
    assert "an unexplained sum nothing is concluded" in blocks_text(
        profile_section([ORT], {ORT.case_id: short}, "profiles")
    )


def test_activations_are_beside_their_estimate_and_apart_from_all_that_is_allocated() -> None:
    parts_profile = ORT.model_copy(update={"activation_measured_bytes": 10 << 20, "activation_alone_bytes": 6 << 20})
    lines = [line for line in blocks_text(model_cost_tables([parts_profile], {})).splitlines() if line.startswith("|")]
    place = next(index for index, line in enumerate(lines) if "MiB at most" in line)
    names, cells = ([cell.strip() for cell in lines[index].split("|")] for index in (place, place + 2))
    row = dict(zip(names, cells, strict=True))
    assert (row["MiB at most"], row["activations MiB"], row["estimated"]) == ("10.0", "6.00", "9.54")


def test_a_file_of_an_older_memory_profile_still_loads_and_links_to_nothing_new() -> None:
    older = ORT.model_dump(mode="json", exclude={"activation_alone_bytes", "memory_files"})
    result = ModelProfile.model_validate(older)
    assert (result.activation_alone_bytes, result.memory_files) == (None, ())
    assert "memory." not in blocks_text(profile_section([result], {}, "profiles"))
    linked = result.model_copy(update={"memory_files": ("memory.json", "memory.png")})
    assert f"(profiles/{ORT.case_id}/memory.png)" in blocks_text(profile_section([linked], {}, "profiles"))
