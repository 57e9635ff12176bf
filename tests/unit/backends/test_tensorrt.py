"""The tensorrt backend on a GPU that computes: each batch gives its own answer, at each boundary, graph or not."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.backends.base import Backend, BackendJob
from harness.core.errors import CaseError
from harness.core.schemas import (
    Artifact,
    Case,
    EngineRecord,
    EngineRequest,
    ExportRecord,
    Parity,
    ShapeProfile,
    TensorSpec,
    Work,
)
from tests.fixtures import overlapped
from tests.fixtures.computing_gpu import FakeGpu, outputs_of_pass

BATCHES = tuple({"ids": np.arange(6, dtype=np.int64).reshape(2, 3) + 100 * index} for index in range(4))
PLAN: dict[str, Any] = {"scale": 2.0, "inputs": {"ids": "INT32"}, "outputs": {"hidden": "FLOAT"}}
UNCHECKED = Parity(samples=0, relative_l2=None, max_abs=None, cosine=None, top1_agreement=None, nonfinite=0)

Make = Callable[..., Backend]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def backend(
        plan: dict[str, Any] | bytes = PLAN,
        options: dict[str, Any] | None = None,
        boundary: str = "compute",
        mode: str = "sync",
        batches: Any = BATCHES,
        **engine: Any,
    ) -> Backend:
        content = plan if isinstance(plan, bytes) else json.dumps(plan).encode()
        (tmp_path / "engines").mkdir(exist_ok=True)
        (tmp_path / "engines/it.plan").write_bytes(content)
        job = BackendJob(
            case(boundary, mode), export(), tmp_path, batches, 1, tmp_path, options or {}, engine=record(**engine)
        )
        result: Backend = importlib.import_module("harness.backends.tensorrt.runtime").TensorRt(job)
        return result

    return backend


def case(boundary: str, mode: str = "sync") -> Case:
    return Case.model_validate(
        {
            "case_id": "it-tensorrt-cuda-fp16-b2",
            "model": "it",
            "slug": "it",
            "backend": "tensorrt",
            "device": "cuda",
            "precision": "fp16",
            "batch_size": 2,
            "sequence_length": 3,
            "boundary": boundary,
            "mode": mode,
            "weights": "seeded",
        }
    )


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
        inputs=(TensorSpec(name="ids", dtype="int64", shape=("batch", "sequence")),),
        outputs=(TensorSpec(name="hidden", dtype="float32", shape=("batch", "sequence")),),
        module=None,
        onnx={},
        input_sets=(),
        checks=(),
        versions={},
        seconds={},
    )


def record(**more: Any) -> EngineRecord:
    shape = (2, 3)
    request = EngineRequest(
        onnx="model.onnx",
        onnx_sha256="0",
        precision="fp16",
        profiles={"ids": ShapeProfile(minimum=shape, optimum=shape, maximum=shape)},
    )
    fields: dict[str, Any] = {
        "key": "0",
        "request": request,
        "tensorrt": "8.6.0",
        "gpu": "A GPU",
        "sm": "9.0",
        "driver": "580.1",
        "engine": Artifact(path="engines/it.plan", sha256="0", size_bytes=2000),
        "build_s": 1.0,
        "parity": UNCHECKED,
        "kept_fp32": (),
        "layers": 3,
        "precisions": {"fp16": 2},
        "timing_cache_sha256": None,
        "builder": {"tactic_sources": "JIT_CONVOLUTIONS"},
    }
    return EngineRecord.model_validate({**fields, **more})


def answer(index: int) -> Any:
    return BATCHES[index]["ids"].astype(np.float32) * 2


GRAPH = {"profiles": "static", "graph": True}
PLAIN = {"profiles": "static"}


@pytest.mark.parametrize("options", [GRAPH, PLAIN], ids=["graph", "plain"])
def test_every_batch_gives_its_own_answer_in_any_order(gpu: FakeGpu, make: Make, options: Any) -> None:
    backend = make(options=options)
    backend.load()
    for index in (0, 3, 1, 1, 2, 0):
        backend.select(index)
        backend.infer()
        backend.synchronize()
        np.testing.assert_array_equal(backend.outputs()["hidden"], answer(index))
    assert gpu.graphs == (4 if options is GRAPH else 0)


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("boundary", ["compute", "transfer"])
@pytest.mark.usefixtures("gpu")
def test_new_content_of_a_batch_is_answered_and_no_other_batch_changes(make: Make, graph: bool, boundary: str) -> None:
    own = tuple({"ids": batch["ids"].copy()} for batch in BATCHES)
    backend = make(options=GRAPH if graph else PLAIN, boundary=boundary, batches=own)
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


def test_with_a_graph_an_inference_is_one_launch_and_nothing_else(gpu: FakeGpu, make: Make) -> None:
    backend = make(options=GRAPH)
    backend.load()
    gpu.calls.clear()
    backend.select(2)
    assert gpu.calls == []
    backend.infer()
    assert gpu.calls == ["launch"]


def test_without_a_graph_addresses_are_set_outside_of_the_inference(gpu: FakeGpu, make: Make) -> None:
    backend = make(options=PLAIN)
    backend.load()
    gpu.calls.clear()
    backend.select(2)
    assert gpu.calls == ["bind ids", "bind hidden"]
    backend.infer()
    assert gpu.calls == ["bind ids", "bind hidden", "execute"]


@pytest.mark.parametrize("options", [GRAPH, PLAIN], ids=["graph", "plain"])
def test_at_the_transfer_boundary_batches_come_from_the_host_and_answers_go_there(
    gpu: FakeGpu, make: Make, options: Any
) -> None:
    backend = make(options=options, boundary="transfer")
    backend.load()
    allocated = len(gpu.memory)
    gpu.calls.clear()
    for index in (3, 1):
        backend.select(index)
        backend.upload()
        backend.infer()
        backend.download()
        backend.synchronize()
        np.testing.assert_array_equal(backend.outputs()["hidden"], answer(index))
    once = ["h2d", "launch" if options is GRAPH else "execute", "d2h", "synchronize"]
    assert [call for call in gpu.calls if call != "synchronize"] == 2 * once[:3]
    assert gpu.calls[:4] == once
    assert len(gpu.memory) == allocated == 2  # one input and one output, whatever the number of batches


@pytest.mark.parametrize("options", [GRAPH, PLAIN], ids=["graph", "plain"])
@pytest.mark.parametrize("seed", overlapped.SEEDS)
def test_batches_in_flight_never_meet(gpu: FakeGpu, make: Make, options: Any, seed: int) -> None:
    backend = make(options=options, boundary="transfer", mode="pipelined")
    backend.load()
    assert len(gpu.memory) == 6  # an input and an output for each of three
    for index, entry in overlapped.answers(gpu, backend, len(BATCHES), seed):
        np.testing.assert_array_equal(entry, answer(index))
    np.testing.assert_array_equal(backend.outputs()["hidden"], answer(index))
    backend.close()
    assert (gpu.contexts, gpu.graphs, len(gpu.memory)) == (0, 0, 0)


@pytest.mark.parametrize("options", [GRAPH, PLAIN], ids=["graph", "plain"])
@pytest.mark.parametrize("seed", overlapped.SEEDS)
def test_work_of_one_thread_on_several_streams_shares_no_memory(
    gpu: FakeGpu, make: Make, options: Any, seed: int
) -> None:
    places = [make(options=options) for _ in range(3)]
    for backend in places:
        backend.load()
    assert len({backend.stream.handle for backend in places}) == 3
    assert len({id(backend.context) for backend in places}) == 3
    gpu.calls.clear()
    issued = overlapped.issued(gpu, places, len(BATCHES), seed)
    for index, outputs in issued.answers:
        np.testing.assert_array_equal(outputs["hidden"], answer(index))
    assert (len(issued.answers), issued.most, set(issued.places)) == (40, 3, {0, 1, 2})
    assert {index for index, _ in issued.answers} == set(range(len(BATCHES)))
    for backend in reversed(places):
        backend.close()
    assert (gpu.contexts, gpu.graphs, len(gpu.memory)) == (0, 0, 0)


def test_at_the_e2e_boundary_new_arrays_are_converted_and_copied(gpu: FakeGpu, make: Make) -> None:
    backend = make(options=GRAPH, boundary="e2e")
    backend.load()
    backend.feed({"ids": np.full((2, 3), 7, dtype=np.int64)})
    backend.infer()
    backend.synchronize()
    np.testing.assert_array_equal(backend.outputs()["hidden"], np.full((2, 3), 14.0))


def test_inputs_and_outputs_in_fp16_are_converted_outside_of_the_inference(gpu: FakeGpu, make: Make) -> None:
    plan = {"scale": 2.0, "inputs": {"x": "HALF"}, "outputs": {"hidden": "HALF"}}
    batches = ({"x": np.array([[0.25, 1.5]], dtype=np.float32)},)
    backend = make(plan, GRAPH, batches=batches)
    backend.load()
    backend.select(0)
    backend.infer()
    output = backend.outputs()["hidden"]
    assert output.dtype == np.float32
    np.testing.assert_array_equal(output, [[0.5, 3.0]])


def test_placement_is_read_from_the_engine_and_not_from_the_label(gpu: FakeGpu, make: Make) -> None:
    backend = make(options=GRAPH, precisions={"fp32": 5, "fp16": 1}, kept_fp32=("softmax",))
    backend.load()
    placement = backend.placement()
    assert (placement.device, placement.precision, placement.provider) == ("cuda", "fp32", "TensorRT 8.6.0")
    assert placement.settings["profiles"] == "static"
    assert placement.settings["cuda_graph"] is True
    assert placement.settings["kept_fp32"] == 1
    assert placement.settings["tactic_sources"] == "JIT_CONVOLUTIONS"
    assert placement.dtype_census == {"fp32": 5, "fp16": 1}


@pytest.mark.parametrize(("multiplied", "shown"), [(1000, "fp32"), (400, "fp16")])
def test_the_bytes_of_lookup_tables_are_known_from_the_export(
    gpu: FakeGpu, make: Make, multiplied: int, shown: str
) -> None:
    file = Artifact(path="engines/it.plan", sha256="0", size_bytes=3300)
    backend = make(precisions={"fused": 1}, engine=file)
    counted = Work(
        sequence_length=3, flops_per_item=1, parameters=multiplied, input_bytes_per_item=1, output_elements_per_item=1
    )
    backend.job = replace(backend.job, export=export().model_copy(update={"work": (counted,)}))
    backend.load()
    assert backend.placement().precision == shown


@pytest.mark.parametrize("options", [GRAPH, PLAIN], ids=["graph", "plain"])
def test_closing_frees_graphs_and_memory_and_takes_the_context_off_the_stack(
    gpu: FakeGpu, make: Make, options: Any
) -> None:
    backend = make(options=options)
    backend.load()
    assert (gpu.contexts, gpu.graphs, len(gpu.memory)) == (1, 4 if options is GRAPH else 0, 5)
    backend.close()
    assert (gpu.contexts, gpu.graphs, len(gpu.memory)) == (0, 0, 0)
    assert backend.build_facts()["tensorrt"] == "8.6.0"


REFUSALS = {
    "engine of another version": (b"The engine plan file is not compatible", "not compatible", "make engines"),
    "no context": ({**PLAN, "no_context": True}, "has no execution context", "make engines"),
    "shape": ({**PLAN, "largest": 1}, r"does not take ids of shape \(2, 3\)", "make engines"),
    "enqueue": ({**PLAN, "refuses": True}, "could not be enqueued", "make engines"),
    "memory by the log": (
        b"Requested amount of GPU memory: out of memory.",
        "Out of GPU memory at batch 2",
        "BATCHES=1",
    ),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_a_refusal_gives_the_librarys_reason_and_leaves_no_context(gpu: FakeGpu, make: Make, why: str) -> None:
    plan, problem, hint = REFUSALS[why]
    backend = make(plan, GRAPH)
    with pytest.raises(CaseError, match=problem) as caught:
        backend.load()
    assert "only a warning" not in caught.value.problem
    assert hint in caught.value.hint
    backend.close()
    assert gpu.contexts == 0


def test_memory_that_the_gpu_does_not_have_names_the_batch_to_try(gpu: FakeGpu, make: Make) -> None:
    gpu.room_bytes = 10
    with pytest.raises(CaseError, match="Out of GPU memory at batch 2") as caught:
        make(options=GRAPH).load()
    assert "BATCHES=1" in caught.value.hint


def test_without_an_engine_nothing_is_loaded(gpu: FakeGpu, make: Make) -> None:
    job = make().job
    backend = importlib.import_module("harness.backends.tensorrt.runtime")
    with pytest.raises(CaseError, match="No engine") as caught:
        backend.TensorRt(BackendJob(job.case, job.export, job.folder, job.batches, 1, job.cache))
    assert "make engines" in caught.value.hint
