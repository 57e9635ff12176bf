"""Every CUDA backend on a small convolutional network: right outputs, right place, right precision, right clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.core import store
from harness.core.schemas import EngineRecord, Failed, Measured, Row, Summary
from tests.gpu.conftest import CONVOLUTIONAL, Gpu, has

BACKENDS = ["torch-eager", "torch-script", "torch-compile", "onnxruntime"] + ["tensorrt"] * has("tensorrt")
LARGE = "module:tests.fixtures.models:large_pictures"
RESNET18: Any = {"name": "resnet18", "weights": "seeded"}
SQUEEZENET: Any = {"name": "torchvision:squeezenet1_1", "weights": "seeded"}
BERT = "module:tests.fixtures.models:two_layer_bert"
HUNGRY = "module:tests.fixtures.models:hungry"


def rows_of(summary: Summary, backends: Sequence[str] = BACKENDS) -> list[Row]:
    assert {row.backend for row in summary.rows} >= set(backends)
    unmeasured = [(row.case_id, row.reason) for row in summary.rows if row.status != "measured"]
    assert unmeasured == []
    return list(summary.rows)


def test_outputs_placement_precision_and_clocks(gpu: Gpu) -> None:
    summary = gpu.bench({"backends": BACKENDS, "precisions": ["fp32", "tf32", "fp16"], "batch_sizes": [4]})
    rows = rows_of(summary)
    assert len(rows) == len(BACKENDS) * 3
    void = {row.case_id: [flag.detail for flag in row.flags] for row in rows if row.grade == "F"}
    assert void == {}
    for row in rows:
        assert row.placement is not None
        assert (row.placement.device, row.placement.precision) == ("cuda", row.precision), row.case_id
    for record in gpu.records().values():
        assert isinstance(record, Measured)
        assert record.device is not None
        assert len(record.device.device_ns) == len(record.latency_ns) == len(record.device.enqueue_ns)
        slack = record.device.clock.resolution_ns
        for device, host in zip(record.device.device_ns, record.latency_ns, strict=True):
            assert 0 < device <= host + slack, record.case_id
        assert record.repeats is not None
        assert (record.case_id, record.repeats.missing) == (record.case_id, None)
        assert record.repeats.unchanged < record.repeats.compared, record.case_id


def test_every_setting_computes_the_same(gpu: Gpu) -> None:
    settings = {
        "torch-eager": ["default", "nchw", "graph"],
        "torch-compile": ["reduce-overhead", "reduce-overhead+freezing", "default"],
        "onnxruntime": ["graph", "plain", "nhwc+graph", "nhwc+tf32+bias+graph"],
        "tensorrt": ["static+graph", "dynamic+graph", "static", "static+graph+fp16io"],
    }
    blocks = [
        {"backends": [name], "precisions": ["fp16"], "batch_sizes": [4], "settings": settings[name]}
        for name in BACKENDS
        if name in settings
    ]
    rows = rows_of(gpu.bench(*blocks), list(settings) if has("tensorrt") else list(settings)[:-1])
    assert {(row.backend, row.setting) for row in rows} == {
        (b["backends"][0], s) for b in blocks for s in b["settings"]
    }
    assert [row.case_id for row in rows if row.grade == "F"] == []


def test_a_bert_of_two_layers_in_fp8(gpu: Gpu) -> None:
    import torch

    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("fp8 products need compute capability 8.9")
    names = ["torch-eager", "torch-compile", "torch-aoti"]
    low = {"backends": names, "precisions": ["fp8"], "batch_sizes": [1, 4]}
    usual = {"backends": names, "precisions": ["bf16"], "batch_sizes": [4]}
    rows = rows_of(gpu.bench(low, usual, models=(BERT,)), names)
    assert len(rows) == 9
    assert {row.case_id: [flag.detail for flag in row.flags] for row in rows if row.grade == "F"} == {}
    for row in rows:
        assert row.placement is not None
        assert row.parity is not None
        assert row.parity.relative_l2 is not None
        assert row.placement.precision == row.precision, row.case_id
        if row.precision == "fp8":
            assert row.placement.settings["fp8_layers"] == 12, row.case_id
            assert row.placement.settings["other_linear_layers"] == 0, row.case_id
            assert row.parity.relative_l2 > 8e-3, row.case_id  # on a CPU 1.1e-2, and 5.7e-3 in bf16


def test_a_convolutional_network_is_not_labelled_fp8(gpu: Gpu) -> None:
    (row,) = gpu.bench({"backends": ["torch-eager"], "precisions": ["fp8"], "batch_sizes": [4]}).rows
    assert row.grade == "F"
    (detail,) = [flag.detail for flag in row.flags if flag.name == "PLACEMENT"]
    assert detail.startswith("bf16 on cuda ran where the label says fp8")


def test_modes_and_the_transfer_boundary(gpu: Gpu) -> None:
    summary = gpu.bench(
        {"backends": BACKENDS, "precisions": ["fp16"], "batch_sizes": [4], "modes": ["sync", "pipelined", "offline"]},
        {"backends": BACKENDS, "precisions": ["fp16"], "batch_sizes": [4], "boundaries": ["transfer"]},
    )
    rows = rows_of(summary)
    assert {row.mode for row in rows} == {"sync", "pipelined", "offline"}
    for row in rows:
        assert row.device_ns is not None, row.case_id
        assert row.grade != "F", (row.case_id, [flag.detail for flag in row.flags])
        assert {flag.name for flag in row.flags}.isdisjoint({"REPEATS_FASTER", "LAZY_OUTPUTS"}), row.case_id
        if row.boundary == "transfer":
            parts = [row.device_ns.h2d, row.device_ns.compute, row.device_ns.d2h]
            assert all(part is not None and part > 0 for part in parts)


def test_copies_run_behind_computing_and_every_answer_is_right(gpu: Gpu) -> None:
    overlapping = [name for name in BACKENDS if name != "torch-compile"]
    # 24 MiB of pictures a batch: copying them takes longer than submitting, and about as long as the pass. In fp32,
    # whose gate no other batch's answer passes.
    transfers = {"batch_sizes": [128], "boundaries": ["transfer"], "modes": ["sync", "pipelined"]}
    summary = gpu.bench({"backends": overlapping, **transfers}, models=(LARGE,), max_s=2.0, min_samples=30)
    rows = rows_of(summary, overlapping)
    hidden = {row.backend: row.device_ns.overlap for row in rows if row.device_ns and row.mode == "pipelined"}
    assert hidden.keys() == set(overlapping)
    assert all(share is not None and 0 < share <= 1 for share in hidden.values()), hidden
    for row in rows:
        assert row.grade != "F", (row.case_id, [flag.detail for flag in row.flags])
        assert row.device_ns is not None
        assert (row.device_ns.overlap is None) is (row.mode == "sync")
    for record in gpu.records().values():
        assert isinstance(record, Measured)
        assert record.parity_before is not None, record.case_id
        assert record.parity_timed is not None, record.case_id


def test_running_out_of_memory_is_a_failed_row_and_the_run_goes_on(gpu: Gpu) -> None:
    gpu.prepare({"backends": ["torch-eager"], "batch_sizes": [1, 8]}, models=(HUNGRY,))
    done = gpu.measured()
    assert done.returncode == 10
    results = {record.case_id.rpartition("-b")[2]: record for record in gpu.records().values()}
    full, fine = results["8"], results["1"]
    assert isinstance(full, Failed)
    assert full.error == "Out of GPU memory at batch 8."
    assert "BATCHES=4" in full.hint
    assert isinstance(fine, Measured)


@pytest.mark.skipif(not has("tensorrt"), reason="no TensorRT here")
def test_an_engine_of_another_gpu_is_refused_by_name(spoiled: Gpu) -> None:
    for path in spoiled.models.root.glob("*/engines/*.json"):
        record = store.load(path, EngineRecord, "make engines")
        store.save(path, record.model_copy(update={"gpu": "NVIDIA Imaginary 9000"}))
    spoiled.measured()
    (result,) = spoiled.records().values()
    assert isinstance(result, Failed)
    assert "NVIDIA Imaginary 9000" in result.error


@pytest.mark.skipif(not has("tensorrt"), reason="no TensorRT here")
def test_a_missing_engine_names_the_next_command(spoiled: Gpu) -> None:
    for file in spoiled.models.root.glob("*/engines/*"):
        file.unlink()
    spoiled.measured()
    (record,) = spoiled.records().values()
    assert isinstance(record, Failed)
    assert "make engines" in record.hint


@pytest.mark.parametrize("model", [CONVOLUTIONAL, BERT])
def test_aoti_runs_in_a_cuda_graph_and_compiles_once(gpu: Gpu, model: str) -> None:
    block = {"backends": ["torch-aoti"], "precisions": ["fp16"], "batch_sizes": [4]}
    (row,) = rows_of(gpu.bench(block, models=(model,), rounds=2), ["torch-aoti"])
    assert row.grade != "F", [flag.detail for flag in row.flags]
    assert row.placement is not None
    assert (row.placement.device, row.placement.precision) == ("cuda", "fp16")
    for (_, number), record in gpu.records().items():
        assert isinstance(record, Measured)
        assert record.cold_ns.compile_cached is (number > 1)


@pytest.mark.skipif(not has("cudnn"), reason="no cuDNN frontend here")
def test_cudnn_computes_the_same_in_every_setting_and_tunes_once(gpu: Gpu) -> None:
    settings = ["graph", "folded+graph", "plain"]
    block = {"backends": ["cudnn"], "precisions": ["fp16"], "batch_sizes": [1, 8]}
    copies = {**block, "batch_sizes": [8], "boundaries": ["transfer"], "modes": ["sync", "pipelined"]}
    summary = gpu.bench({**block, "settings": settings}, copies, models=(RESNET18,), rounds=2)
    rows = rows_of(summary, ["cudnn"])
    assert len(rows) == 2 * len(settings) + 2
    for row in rows:
        assert row.grade != "F", (row.case_id, [flag.detail for flag in row.flags])
        assert row.placement is not None
        assert (row.placement.device, row.placement.precision) == ("cuda", "fp16")
        assert row.placement.dtype_census == {"fp16": 21}
    for (case_id, number), record in gpu.records().items():
        assert isinstance(record, Measured), case_id
        assert record.cold_ns.compile_cached is (number > 1), case_id


@pytest.mark.skipif(not has("cudnn"), reason="no cuDNN frontend here")
def test_cudnn_skips_a_model_whose_operators_it_does_not_run(gpu: Gpu) -> None:
    summary = gpu.bench({"backends": ["cudnn"], "precisions": ["fp16"]}, models=(SQUEEZENET,))
    (row,) = summary.rows
    assert row.status == "skipped"
    assert "the operator Concat" in (row.reason or "")
