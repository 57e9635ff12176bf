"""The onnxruntime backend on a GPU that computes: each batch its own answer, at each boundary, graph or not."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.backends.base import Backend, BackendJob, Batch
from harness.core.errors import CaseError, MissingInputError
from harness.core.schemas import Case, ExportRecord, OnnxArtifact, TensorSpec
from tests.fixtures import overlapped
from tests.fixtures.computing_gpu import FakeGpu, outputs_of_pass
from tests.fixtures.onnxruntime_gpu import AXES, CPU, CUDA, Runtime, install

BATCHES: tuple[Batch, ...] = tuple(
    {"ids": np.arange(6, dtype=np.int64).reshape(2, 3) + 100 * index} for index in range(4)
)
MODEL: dict[str, Any] = {
    "inputs": {"ids": "int64"},
    "outputs": {"hidden": "float16"},
    "nodes": [[CUDA, "MatMul", 4096], [CPU, "Concat", 32], [CUDA, "Softmax", 4096]],
}
TENSORRT = "TensorrtExecutionProvider"
Make = Callable[..., Backend]


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> Runtime:
    return install(monkeypatch, gpu)


@pytest.fixture
def make(runtime: Runtime, tmp_path: Path) -> Make:
    def backend(
        options: dict[str, Any] | None = None,
        boundary: str = "compute",
        model: dict[str, Any] = MODEL,
        precision: str = "fp16",
        target: str = "harness.backends.onnxruntime.cuda:OnnxRuntimeOnGpu",
        mode: str = "sync",
    ) -> Backend:
        for name in ("model.onnx", "model-fp16.onnx", "model-fp16-fused.onnx"):
            (tmp_path / name).write_text(json.dumps(model))
        job = BackendJob(
            case(boundary, precision, mode), export(), tmp_path, BATCHES, 1, tmp_path / "cache", options or {}
        )
        module, _, name = target.partition(":")
        result: Backend = getattr(importlib.import_module(module), name)(job)
        return result

    return backend


def case(boundary: str, precision: str, mode: str = "sync") -> Case:
    return Case.model_validate(
        {
            "case_id": "it-onnxruntime-cuda-b2",
            "model": "it",
            "slug": "it",
            "backend": "onnxruntime",
            "device": "cuda",
            "precision": precision,
            "batch_size": 2,
            "sequence_length": 3,
            "boundary": boundary,
            "mode": mode,
            "weights": "seeded",
        }
    )


def onnx(name: str, kind: str) -> OnnxArtifact:
    return OnnxArtifact(path=name, sha256="0", size_bytes=1, exporter="test", opset=20, dtype_census={kind: 100})


def export() -> ExportRecord:
    return ExportRecord(
        request_sha256="0",
        model="it",
        slug="it",
        weights="seeded",
        weight_source="seed",
        kind="text",
        classifier=False,
        parameters=1000,
        inputs=(TensorSpec(name="ids", dtype="int64", shape=AXES),),
        outputs=(),
        module=None,
        onnx={"fp32": onnx("model.onnx", "float"), "fp16": onnx("model-fp16.onnx", "float16")},
        onnx_variants={"fp16-fused": onnx("model-fp16-fused.onnx", "float16")},
        input_sets=(),
        checks=(),
        versions={},
        seconds={},
    )


def answer(index: int) -> Any:
    return BATCHES[index]["ids"].astype(np.float32) * 2


@pytest.mark.parametrize("graph", [True, False])
def test_every_batch_gives_its_own_answer_in_any_order(gpu: FakeGpu, make: Make, graph: bool) -> None:
    backend = make({"graph": graph})
    backend.load()
    for index in (0, 3, 1, 1, 2, 0):
        backend.select(index)
        backend.infer()
        backend.synchronize()
        output = backend.outputs()["hidden"]
        assert output.dtype == np.float32
        np.testing.assert_array_equal(output, answer(index))
    assert gpu.graphs == (len(BATCHES) if graph else 0)


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("boundary", ["compute", "transfer"])
def test_new_content_of_a_batch_is_answered_and_no_other_batch_changes(
    monkeypatch: pytest.MonkeyPatch, make: Make, graph: bool, boundary: str
) -> None:
    own = tuple({"ids": batch["ids"].copy()} for batch in BATCHES)
    monkeypatch.setattr(sys.modules[__name__], "BATCHES", own)
    backend = make({"graph": graph}, boundary=boundary)
    backend.load()
    old = [batch["ids"].astype(np.float32) * 2 for batch in own]

    def passed(index: int) -> Any:
        return outputs_of_pass(backend, boundary, index)["hidden"]

    np.testing.assert_array_equal(passed(1), old[1])
    own[1]["ids"][...] = 7
    np.testing.assert_array_equal(passed(1), old[1])  # a copy lies on the device
    backend.refresh(1)
    np.testing.assert_array_equal(passed(1), np.full((2, 3), 14.0))
    np.testing.assert_array_equal(passed(2), old[2])


def test_choosing_enqueues_nothing_and_an_inference_is_one_launch(gpu: FakeGpu, make: Make) -> None:
    backend = make({"graph": True})
    backend.load()
    gpu.calls.clear()
    backend.select(2)
    assert gpu.calls == []
    backend.infer()
    assert gpu.calls == ["launch"]


def test_at_the_transfer_boundary_one_graph_serves_the_copied_inputs(gpu: FakeGpu, make: Make) -> None:
    backend = make({"graph": True}, boundary="transfer")
    backend.load()
    for index in (1, 3):
        gpu.calls.clear()
        backend.select(index)
        backend.upload()
        backend.infer()
        backend.download()
        assert gpu.calls == ["h2d", "launch", "d2h"]
        np.testing.assert_array_equal(backend.outputs()["hidden"], answer(index))
    assert gpu.graphs == 1


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("seed", overlapped.SEEDS)
def test_batches_in_flight_never_meet(gpu: FakeGpu, make: Make, graph: bool, seed: int) -> None:
    backend = make({"graph": graph}, boundary="transfer", mode="pipelined")
    backend.load()
    assert gpu.graphs == (3 if graph else 0)
    for index, entry in overlapped.answers(gpu, backend, len(BATCHES), seed):
        np.testing.assert_array_equal(entry, answer(index))
    np.testing.assert_array_equal(backend.outputs()["hidden"], answer(index))


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("seed", overlapped.SEEDS)
def test_work_of_one_thread_on_several_streams_shares_no_memory(
    gpu: FakeGpu, runtime: Runtime, make: Make, graph: bool, seed: int
) -> None:
    places = [make({"graph": graph}) for _ in range(2)]
    for backend in places:
        backend.load()
    streams = [session.get_provider_options()[CUDA]["user_compute_stream"] for session in runtime.sessions]
    assert streams == [str(backend.stream.handle) for backend in places]
    assert len(set(streams)) == 2
    issued = overlapped.issued(gpu, places, len(BATCHES), seed)
    for index, outputs in issued.answers:
        np.testing.assert_array_equal(outputs["hidden"], answer(index))
    assert (len(issued.answers), issued.most, set(issued.places)) == (40, 2, {0, 1})


def test_the_outputs_are_those_of_the_given_inputs(make: Make) -> None:
    backend = make({"graph": True}, boundary="e2e")
    backend.load()
    backend.feed({"ids": BATCHES[2]["ids"].astype(np.int32)})
    backend.infer()
    np.testing.assert_array_equal(backend.outputs()["hidden"], answer(2))


def test_its_work_goes_to_the_stream_that_it_shows(runtime: Runtime, make: Make) -> None:
    backend = make({"nhwc": True}, precision="fp32")
    backend.load()
    options = runtime.sessions[0].get_provider_options()[CUDA]
    assert options["user_compute_stream"] == str(backend.stream.handle)
    assert (options["prefer_nhwc"], options["use_tf32"], options["enable_cuda_graph"]) == ("1", "0", "0")
    assert len(runtime.sessions) == 1


@pytest.mark.parametrize(("precision", "label"), [("fp16", "fp16"), ("tf32", "tf32"), ("fp32", "fp32")])
def test_the_label_comes_from_the_file_and_the_session(make: Make, precision: str, label: str) -> None:
    backend = make({"graph": True}, precision=precision)
    backend.load()
    placement = backend.placement()
    assert (placement.precision, placement.device) == (label, "cuda")
    assert placement.settings["tf32"] is (precision == "tf32")
    assert placement.settings["cuda_graph"] is True
    assert (placement.settings["nodes_cuda"], placement.settings["nodes_cpu"]) == (2, 1)


@pytest.mark.parametrize("on", [True, False])
def test_options_for_convolutions_reach_the_session_and_are_read_back_from_it(
    runtime: Runtime, make: Make, on: bool
) -> None:
    backend = make({"tf32": on, "fuse_conv_bias": on})
    backend.load()
    options = runtime.sessions[0].get_provider_options()[CUDA]
    assert (options["use_tf32"], options["fuse_conv_bias"]) == (("1", "1") if on else ("0", "0"))
    placement = backend.placement()
    assert (placement.settings["tf32"], placement.settings["fuse_conv_bias"]) == (on, on)
    assert placement.precision == "fp16"


def test_a_computing_node_on_the_cpu_is_no_gpu_row(make: Make) -> None:
    backend = make(model={**MODEL, "nodes": [[CUDA, "MatMul", 4096], [CPU, "GatherND", 4096]]})
    backend.load()
    placement = backend.placement()
    assert placement.device == "cuda+cpu"
    assert placement.settings["computed_on_cpu"] == "GatherND"
    assert placement.settings["nodes_computed_on_cpu"] == "1"


def test_an_int8_file_whose_convolutions_run_on_the_cpu_is_no_gpu_row_and_names_them(make: Make) -> None:
    backend = make(model={**MODEL, "nodes": [[CUDA, "QuantizeLinear", 4096], [CPU, "QLinearConv", 4096]]})
    backend.load()
    placement = backend.placement()
    assert placement.device == "cuda+cpu"
    assert placement.settings["computed_on_cpu"] == "QLinearConv"


def test_the_setting_chooses_the_form_of_the_file(make: Make) -> None:
    backend = make({"graph": True, "variant": "fused"})
    backend.load()
    assert backend.placement().settings["file"] == "model-fp16-fused.onnx"
    with pytest.raises(MissingInputError, match="fp32-fused"):
        make({"graph": True, "variant": "fused"}, precision="tf32")


def test_a_session_on_the_cpu_alone_is_refused(runtime: Runtime, make: Make) -> None:
    runtime.obtains = set()
    with pytest.raises(CaseError, match="did not get its CUDAExecutionProvider"):
        make().load()


@pytest.mark.parametrize("at", ["session", "first capture"])
def test_a_model_that_cannot_be_captured_names_the_setting_to_take(runtime: Runtime, make: Make, at: str) -> None:
    if at == "session":
        runtime.fails = RuntimeError("This session cannot use the graph capture feature as requested by the user")
    else:
        runtime.refuses = "CUDA failure 900: operation not permitted when stream is capturing"
    with pytest.raises(CaseError, match="cannot capture") as caught:
        make({"graph": True}).load()
    assert "`plain`" in caught.value.hint


def test_running_out_of_memory_stays_that_error(runtime: Runtime, make: Make) -> None:
    runtime.fails = ValueError("Failed to allocate memory for requested buffer of size 8")
    with pytest.raises(ValueError, match="Failed to allocate"):
        make({"graph": True}).load()


def test_close_gives_the_context_back(gpu: FakeGpu, make: Make) -> None:
    backend = make()
    backend.load()
    assert gpu.contexts == 1
    backend.close()
    assert gpu.contexts == 0


def test_engines_of_its_tensorrt_provider_are_built_by_compile_and_kept(
    runtime: Runtime, make: Make, tmp_path: Path
) -> None:
    runtime.obtains = {CUDA, TENSORRT}
    model = {**MODEL, "nodes": [[TENSORRT, "TRTKernel_graph_0", 4096], [CUDA, "Softmax", 4096]]}
    backend = make(model=model, target="harness.backends.onnxruntime.cuda:OnnxRuntimeTensorrt")
    backend.load()
    assert not runtime.sessions
    assert backend.compiles
    assert backend.compile_cached() is False
    backend.compile()
    own = runtime.sessions[0].get_provider_options()[TENSORRT]
    assert own["trt_fp16_enable"] == "1"
    assert own["user_compute_stream"] == str(backend.stream.handle)
    cache = Path(own["trt_engine_cache_path"])
    assert cache == tmp_path / "cache/it-onnxruntime-cuda-b2"
    (cache / "an.engine").write_text("")
    assert backend.compile_cached() is True
    placement = backend.placement()
    assert placement.device == "cuda"
    assert (placement.settings["nodes_tensorrt"], placement.settings["nodes_cuda"]) == (1, 1)


def test_without_tensorrt_the_row_names_the_missing_library(runtime: Runtime, make: Make) -> None:
    runtime.fails = RuntimeError("Please install TensorRT libraries as mentioned in the GPU requirements page")
    backend = make(target="harness.backends.onnxruntime.cuda:OnnxRuntimeTensorrt")
    backend.load()
    with pytest.raises(CaseError, match="did not get its TensorrtExecutionProvider"):
        backend.compile()


def test_a_session_gets_the_shape_that_it_serves(runtime: Runtime, make: Make) -> None:
    backend = make({"graph": True})
    backend.load()
    assert runtime.sessions[0].options.dimensions == {"batch": 2, "sequence": 3}
    assert backend.placement().settings["fixed_shapes"] is True


def test_an_axis_name_with_two_extents_stays_dynamic() -> None:
    from harness.backends.onnxruntime.session import dimensions_of

    specs = [TensorSpec(name=name, dtype="int64", shape=("batch", "length", 4)) for name in ("a", "b")]
    batch = {"a": np.zeros((2, 3, 4)), "b": np.zeros((2, 5, 4))}
    assert dimensions_of(specs, batch) == {"batch": 2}
