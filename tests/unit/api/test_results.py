"""Results as a program, a terminal and a notebook see them."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from harness.api.profiles import GpuProfile, LayerProfile, MemoryProfile, Profile
from harness.api.results import Benchmark, read_results
from harness.core import store
from harness.core.errors import FormatError, MissingInputError, UnavailableError
from harness.core.layout import Results
from harness.core.schemas import Summary
from harness.core.schemas.profile_record import Achieved, LayerRow, ModelProfile, OperatorRow, PartsProfile
from harness.profiling.layers import LayerChoice
from harness.reporting.writers.csv import summary_text
from tests.synthetic_cuda import cuda_summary
from tests.synthetic_results import Synthetic

FOLDER = Path("results")


def one_row(summary: Summary) -> Summary:
    row = next(row for row in summary.rows if row.status == "measured" and row.backend != "noop")
    return summary.model_copy(update={"rows": (row,)})


def layer(name: str, self_ns: int, group: str = "linear", depth: int = 1) -> LayerRow:
    return LayerRow.model_validate(
        {
            "name": name,
            "kind": "Linear",
            "depth": depth,
            "parent": "(model)" if depth else None,
            "self_ns": self_ns,
            "total_ns": self_ns,
            "output_shapes": ((1, 4), (2,)),
            "members": ("a", "b"),
            "group": group,
        }
    )


LAYERS = (layer("(model)", 100, depth=0), layer("body", 600, "attention"), layer("head", 300, "mlp"))
KERNELS = tuple(
    OperatorRow(name=name, shapes="", calls=1, self_cpu_ns=cpu, self_device_ns=device)
    for name, cpu, device in (("aten::mm", 500, 0), ("short_kernel", 0, 200), ("long_kernel", 0, 400))
)
PARTS = PartsProfile(layers=LAYERS, operators=KERNELS, traces=(), window_ns=1010, plain_ns=1000)


def model_of(summary: Summary) -> ModelProfile:
    row = summary.rows[0]
    return ModelProfile(
        case_id=row.case_id,
        settings_id=summary.settings_id,
        created_at="2026-11-28T10:00:00Z",
        environment_id="c0ffee123456",
        model=row.model,
        backend=row.backend,
        setting=row.setting,
        precision=row.precision,
        batch_size=row.batch_size,
        sequence_length=row.sequence_length,
        parameters=10,
        trainable_parameters=10,
        parameters_by_type={"Linear": 10},
        macs=20,
        flops=40,
        counted_by="a count",
        uncounted=(),
        onnx_count=None,
        count_notes=(),
        weight_bytes={"fp32": 40, "fp16": 20},
        activation_bytes=8,
        activation_bytes_by="estimate",
        files=(),
        macs_per_batch=20,
        flops_per_batch=40,
        least_bytes=100,
        flops_per_byte=0.4,
        activation_estimated_bytes=8,
        activation_measured_bytes=16,
        activation_measured_by="measured",
        achieved=Achieved(
            latency_ns=None,
            device_ns=None,
            items_per_s=None,
            tokens_per_s=None,
            flops_per_s=None,
            peak_share=None,
            notes=("none",),
        ),
    )


@pytest.fixture(scope="module")
def summary() -> Summary:
    return Synthetic().summary()


def test_records_are_the_columns_of_summary_csv(summary: Summary) -> None:
    result = Benchmark(FOLDER, summary)
    assert [row["case_id"] for row in result.records()] == [row.case_id for row in summary.rows]
    assert list(csv.reader(io.StringIO(result.to_csv()))) == list(csv.reader(io.StringIO(summary_text(summary))))
    assert json.loads(result.to_json())["plan_id"] == summary.plan_id


def test_a_benchmark_shows_every_row_with_its_conditions(summary: Summary) -> None:
    result = Benchmark(FOLDER, summary)
    text, page = repr(result), result._repr_html_()
    assert text.splitlines()[0].endswith(f"plan {summary.plan_id}.")
    assert page.count(f"plan {summary.plan_id}") == page.count("95% CI")
    for row in (row for row in summary.rows if row.backend != "noop"):
        assert row.backend in text
        assert row.backend in page


def test_a_notebook_aligns_words_and_figures(summary: Summary) -> None:
    page = Benchmark(FOLDER, summary)._repr_html_()
    assert '<td class="word" style="text-align: left">torch-eager</td>' in page
    cells = re.findall(r"<td[^>]*>", page)
    assert cells
    assert all('style="text-align' in cell for cell in cells)


def test_a_row_without_a_figure_shows_its_reason(summary: Summary) -> None:
    skipped = next(row for row in summary.rows if row.status != "measured")
    assert skipped.reason
    alone = Benchmark(FOLDER, summary.model_copy(update={"rows": (skipped,)}))
    assert skipped.reason.split(".")[0] in repr(alone)
    assert "median" not in repr(alone)


def test_the_fastest_wins_beyond_doubt(summary: Summary) -> None:
    fastest = Benchmark(FOLDER, summary).fastest
    assert fastest
    for winner in fastest:
        rivals = [
            row
            for row in summary.rows
            if (row.model, row.batch_size, row.boundary, row.mode, row.sequence_length)
            == (winner.model, winner.batch_size, winner.boundary, winner.mode, winner.sequence_length)
            and row.grade in ("A", "B")
            and row.latency_ns
            and row.backend != "noop"
        ]
        assert min(rivals, key=lambda row: row.latency_ns.median if row.latency_ns else 0) is winner


def test_a_profile_is_row_model_and_parts(summary: Summary) -> None:
    result = Profile(FOLDER, one_row(summary), model_of(one_row(summary)), PARTS)
    assert result.latency_ms == pytest.approx(result.row.latency_ns.median / 1e6 if result.row.latency_ns else None)
    assert result.reconciliation is not None
    assert result.reconciliation.parts_ns == 1000
    assert set(json.loads(result.to_json())) == {"summary", "model", "parts"}
    assert repr(result) == result.markdown()
    for part in (summary.plan_id, "2 FLOPs a multiply-add", "The parts sum to"):
        assert part in repr(result)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("python -m harness.plan  # harness.api", "again: `force=True`"),
        ("inferometer plan", "again: `inferometer profile --force`"),
    ],
)
def test_hints_of_a_result_are_of_the_interface_that_made_it(
    summary: Summary, tmp_path: Path, command: str, hint: str
) -> None:
    Results(tmp_path).command.write_text(f"{command}\n")
    result = Profile(tmp_path, one_row(summary), model_of(one_row(summary)), PARTS)
    assert hint in repr(result)
    assert "make profile" not in result._repr_html_()
    assert "make profile" not in repr(result)


def test_a_backend_without_layers_has_a_profile_too(summary: Summary) -> None:
    result = Profile(FOLDER, one_row(summary), model_of(one_row(summary)), None)
    assert (result.layers, result.operators, result.reconciliation) == ((), (), None)
    assert "parts" not in repr(result)


def test_some_layers_keep_their_share_of_the_whole(summary: Summary) -> None:
    result = LayerProfile(FOLDER, model_of(summary), LAYERS, LayerChoice(("attention",)))
    assert [row.name for row in result.layers] == ["body"]
    assert result.share == 0.6
    (record,) = result.records()
    assert (record["self_ns"], record["share"], record["output_shapes"], record["members"]) == (
        600,
        0.6,
        "1x4 2",
        "a b",
    )
    assert result.to_csv().splitlines()[0].startswith("name,kind,depth")
    assert repr(result).startswith(f"{summary.rows[0].model} · ")


def test_memory_has_a_record_for_each_batch_size(summary: Summary) -> None:
    result = MemoryProfile(FOLDER, (model_of(summary),), {})
    (record,) = result.records()
    assert (record["weight_bytes"], record["activation_measured_bytes"]) == (40, 16)
    assert json.loads(result.to_json())["timelines"] == {}
    with pytest.raises(UnavailableError, match="has no record of allocations"):
        result.figure()


def test_a_gpu_profile_has_kernels_gaps_and_the_gpu() -> None:
    summary = cuda_summary()
    row = next(row for row in summary.rows if row.status == "measured" and row.roofline and row.usage)
    alone = summary.model_copy(update={"rows": (row,)})
    result = GpuProfile(FOLDER, alone, model_of(alone), PARTS)
    assert [kernel.name for kernel in result.kernels] == ["long_kernel", "short_kernel"]
    # Of the measured latency, which here is not the plain one of the profiling process.
    assert row.latency_ns is not None
    assert result.idle_share == pytest.approx(1 - 600 / row.latency_ns.median)
    assert result.usage is not None
    assert result.usage.power_w_mean
    assert result.roofline is row.roofline
    assert "clock" in repr(result).lower()


def test_a_results_folder_is_read_back(tmp_path: Path) -> None:
    summary = Synthetic(rounds=5).summary()
    file = Results(tmp_path).summary
    store.save(file, summary)
    benchmark = read_results(tmp_path)
    assert benchmark.folder == tmp_path
    assert benchmark.to_csv() == Benchmark(tmp_path, store.load(file, Summary, "make aggregate")).to_csv()
    assert [row.case_id for row in benchmark.rows] == [row.case_id for row in summary.rows]
    file.write_text(file.read_text().replace('"rows"', '"row"', 1))
    with pytest.raises(FormatError):
        read_results(str(tmp_path))


def test_a_folder_without_results_is_missing_input(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"summary\.json does not exist"):
        read_results(tmp_path)
