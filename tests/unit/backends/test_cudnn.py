"""The cudnn backend on a GPU that computes: its answers at each boundary, what it tunes, keeps and refuses."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from harness.backends.base import BackendJob
from harness.core.errors import CaseError, NotSupportedError
from harness.core.schemas import Case, ExportRecord, OnnxArtifact, TensorSpec
from tests.fixtures import cudnn as fake
from tests.fixtures.computing_gpu import FakeGpu
from tests.fixtures.cudnn_models import model, node, random, residual_network

BATCHES = tuple({"x": random(2, 3, 19, 28)} for _ in range(3))
NETWORK = residual_network()
ANSWERS = [ReferenceEvaluator(NETWORK).run(None, batch)[0] for batch in BATCHES]
GRAPH, PLAIN, FOLDED = {"graph": True}, {}, {"graph": True, "folded": True}

Make = Callable[..., Any]


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu) -> fake.Library:
    return fake.install(monkeypatch, gpu)


@pytest.fixture
def make(tmp_path: Path, library: fake.Library) -> Make:
    def backend(
        options: Any = GRAPH,
        boundary: str = "compute",
        mode: str = "sync",
        network: Any = NETWORK,
        batches: Any = BATCHES,
    ) -> Any:
        onnx.save(network, str(tmp_path / "model-fp16.onnx"))
        case = Case.model_validate(
            {
                "case_id": "it-cudnn-cuda-fp16-b2",
                **dict.fromkeys(("model", "slug"), "it"),
                "backend": "cudnn",
                "device": "cuda",
                "precision": "fp16",
                "batch_size": 2,
                "sequence_length": None,
                "boundary": boundary,
                "mode": mode,
                "weights": "seeded",
            }
        )
        file = OnnxArtifact(
            path="model-fp16.onnx", sha256="5a", size_bytes=1, opset=20, exporter="dynamo", dtype_census={"float16": 1}
        )
        export = ExportRecord(
            request_sha256="0",
            **dict.fromkeys(("model", "slug"), "it"),
            weights="seeded",
            weight_source="seed",
            kind="image",
            classifier=False,
            parameters=1000,
            inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 3, 19, 28)),),
            outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 5)),),
            module=None,
            onnx={"fp16": file},
            input_sets=(),
            checks=(),
            versions={},
            seconds={},
        )
        job = BackendJob(case, export, tmp_path, batches, 1, tmp_path / "cache", options)
        return importlib.import_module("harness.backends.cudnn.runtime").CuDnn(job)

    return backend


def ready(backend: Any) -> Any:
    backend.load()
    backend.compile()
    return backend


def close_to(found: Any, wanted: Any) -> bool:
    return bool(np.linalg.norm(found["y"] - wanted) < 5e-3 * np.linalg.norm(wanted))


@pytest.mark.parametrize("options", [GRAPH, PLAIN, FOLDED], ids=["graph", "plain", "folded"])
def test_every_batch_gives_its_own_answer_in_any_order(gpu: FakeGpu, make: Make, options: Any) -> None:
    backend = ready(make(options))
    for index in (0, 2, 1, 1, 0):
        backend.select(index)
        backend.infer()
        backend.synchronize()
        assert close_to(backend.outputs(), ANSWERS[index])
        assert not close_to(backend.outputs(), ANSWERS[index - 1])
    assert gpu.graphs == (0 if options is PLAIN else 3)
    backend.close()
    assert (gpu.graphs, gpu.contexts) == (0, 0)


@pytest.mark.parametrize("options", [GRAPH, FOLDED], ids=["graph", "folded"])
def test_at_the_transfer_boundary_answers_are_those_of_the_batch_that_was_copied(make: Make, options: Any) -> None:
    backend = ready(make(options, boundary="transfer", mode="pipelined"))
    for index in (2, 0, 1):
        backend.select(index)
        backend.upload()
        for stream in backend.copy_streams:
            stream.synchronize()
        backend.infer()
        backend.stream.synchronize()
        backend.download()
        backend.copy_streams[1].synchronize()
        assert close_to(backend.outputs(), ANSWERS[index])


def test_new_content_of_a_batch_is_answered(make: Make) -> None:
    own = tuple({"x": batch["x"].copy()} for batch in BATCHES)
    backend = ready(make(batches=own))
    own[1]["x"][...] = BATCHES[2]["x"]
    backend.refresh(1)
    backend.select(1)
    backend.infer()
    assert close_to(backend.outputs(), ANSWERS[2])


def test_new_arrays_are_laid_out_and_answered(make: Make) -> None:
    backend = ready(make(FOLDED, boundary="e2e"))
    for index in (2, 1):
        backend.feed(BATCHES[index])
        backend.infer()
        assert close_to(backend.outputs(), ANSWERS[index])


def test_an_inference_is_one_launch_and_nothing_else(gpu: FakeGpu, make: Make) -> None:
    backend = ready(make())
    gpu.calls.clear()
    backend.select(2)
    backend.infer()
    assert gpu.calls == ["launch"]


def test_placement_is_read_from_the_weights_and_the_kernels_that_were_built(make: Make) -> None:
    placement = ready(make()).placement()
    assert (placement.device, placement.precision, placement.provider) == ("cuda", "fp16", "cuDNN 9.19.0")
    assert placement.dtype_census == {"fp16": 5}
    assert placement.settings["input"] == "2x4x19x28"
    assert placement.settings["precompiled_kernels"] == 5
    assert placement.settings["library_poolings"] == 2
    assert placement.settings["cuda_graph"] is True


def test_a_plan_that_cannot_be_built_is_not_chosen(library: fake.Library, make: Make) -> None:
    library.broken = {"precompiled-0", "precompiled-1", "precompiled-2", "generated-0", "generated-1"}
    backend = ready(make())
    assert backend.placement().settings["generated_kernels"] == 5
    backend.infer()
    assert close_to(backend.outputs(), ANSWERS[0])


def times(monkeypatch: pytest.MonkeyPatch, *rounds: float) -> None:
    """The times of all candidates of one call of tuning after the other, round and round."""
    tuning = importlib.import_module("harness.backends.cudnn.tuning")
    left = list(rounds) * 100

    def fastest(stream: Any, candidates: Any) -> Any:
        for launch in candidates:
            launch()
        spent = left.pop(0)
        return [tuning.TimedCandidate(index, spent + index) for index in reversed(range(len(candidates)))][::-1]

    monkeypatch.setattr(tuning, "fastest", fastest)


ONE_LAYER = model([node("Conv", "x w", "c"), node("Relu", "c", "y")], "y", (2, 3, 19, 28), False, w=random(8, 3, 3, 3))


@pytest.mark.parametrize(
    ("rounds", "chosen", "compiled"),
    [
        ((100.0, 200.0), "precompiled-0", 1),  # not promising: no other is compiled
        ((100.0, 110.0, 90.0), "generated-1", 5),
        ((100.0, 90.0, 95.0), "generated-0", 5),
        ((100.0, 110.0, 105.0), "precompiled-0", 5),
    ],
)
def test_further_kernels_are_generated_where_the_first_is_promising(
    library: fake.Library, make: Make, monkeypatch: pytest.MonkeyPatch, rounds: Any, chosen: str, compiled: int
) -> None:
    backend = make(network=ONE_LAYER)
    times(monkeypatch, *rounds)
    ready(backend)
    (kept,) = json.loads(next(backend.job.cache.rglob("plans.json")).read_text())["steps"].values()
    assert (kept["plan"], kept["tried"]) == (chosen, 3 + compiled)
    assert sum(name.startswith("generated") for name in library.built) == compiled


def test_a_later_process_builds_only_the_plans_that_an_earlier_one_tuned(library: fake.Library, make: Make) -> None:
    first = make()
    first.load()
    assert not first.compile_cached()
    first.compile()
    library.built.clear()
    second = make()
    second.load()
    assert second.compile_cached()
    second.compile()
    assert library.built == ["precompiled-0"] * 5
    second.infer()
    assert close_to(second.outputs(), ANSWERS[0])


@pytest.mark.parametrize("other", [{"version": 92000}, {"name": "Another GPU"}], ids=["cudnn", "gpu"])
def test_plans_tuned_elsewhere_are_tuned_again(
    library: fake.Library, make: Make, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, other: Any
) -> None:
    ready(make())
    again = fake.install(monkeypatch, gpu, **other)
    backend = make()
    backend.load()
    assert not backend.compile_cached()
    backend.compile()
    assert len(again.built) > 5


def test_a_record_of_another_file_or_a_damaged_one_is_not_used(library: fake.Library, tmp_path: Path) -> None:
    tuning = importlib.import_module("harness.backends.cudnn.tuning")
    place = tuning.TuningPlace(cudnn=91900, frontend="1.32.0", gpu="A GPU", onnx_sha256="5a")
    step = tuning.TunedStep(form="precompiled", plan="eng0", workspace_bytes=0, device_ns=1.0, tried=2)
    path = tmp_path / "case/plans.json"
    tuning.write_tuned(path, place, {"conv": step})
    assert tuning.read_tuned(path, place) == {"conv": step}
    assert tuning.read_tuned(path, place.model_copy(update={"onnx_sha256": "5b"})) == {}
    path.write_text(path.read_text()[:-20])
    assert tuning.read_tuned(path, place) == {}


def own_kernels(gpu: FakeGpu, error: float) -> Any:
    """A module of our kernels, by PyTorch, whose results are off by a factor."""

    def kernel(name: str) -> Any:
        def call(grid: Any, block: Any, stream: Any, source: int, result: int, *shape: int) -> None:
            places, groups, h, w, out_h, out_w, *window = shape
            n = places // (groups * out_h * out_w)
            assert grid[0] * block[0] >= places > (grid[0] - 1) * block[0]
            kind = name.partition("_")[0]
            step = SimpleNamespace(kind=kind, window=window[:2], stride=window[2:4], padding=window[4:])

            def compute() -> None:
                fake.pool(gpu, step, (n, 8 * groups, h, w), source, result)
                values = gpu.read(result, (n, out_h, out_w, 8 * groups), np.float16)
                gpu.write(result, (values * np.float16(1 + error)).astype(np.float16))

            gpu.enqueue(name, compute)

        return SimpleNamespace(prepare=lambda kinds: None, prepared_async_call=call)

    return SimpleNamespace(get_function=kernel)


@pytest.mark.parametrize(("error", "form"), [(0.0, "own"), (0.01, "library")])
def test_our_pooling_is_used_where_it_is_faster_and_gives_the_same(
    gpu: FakeGpu, make: Make, monkeypatch: pytest.MonkeyPatch, error: float, form: str
) -> None:
    backend = make()
    runtime = importlib.import_module("harness.backends.cudnn.runtime")
    monkeypatch.setattr(runtime, "load_kernels", lambda: own_kernels(gpu, error))
    tuning = importlib.import_module("harness.backends.cudnn.tuning")

    def last_first(stream: Any, candidates: Any) -> Any:
        return [tuning.TimedCandidate(len(candidates) - 1, 1.0)]

    monkeypatch.setattr(tuning, "fastest", last_first)
    ready(backend)
    settings = backend.placement().settings
    assert settings[f"{form}_poolings"] == 2
    backend.infer()
    assert close_to(backend.outputs(), ANSWERS[0])
    backend.close()


@pytest.mark.usefixtures("library")
def test_a_driver_that_refuses_our_kernels_is_named(make: Make, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.install(monkeypatch, gpu, sm=(9, 0))
    with pytest.raises(CaseError, match=r"does not take pooling\.ptx: the driver takes no kernels"):
        make().load()


def test_a_layer_without_a_kernel_is_refused_by_its_nodes(make: Make) -> None:
    nodes = [node("Conv", "x w", "c"), node("Conv", "c d", "y", group=8)]
    network = model(nodes, "y", (2, 3, 19, 28), False, w=random(8, 3, 3, 3), d=random(8, 1, 3, 3))
    backend = make(network=network)
    backend.load()
    with pytest.raises(NotSupportedError, match="has no kernel for Conv-y"):
        backend.compile()
    backend.close()


def test_full_memory_is_named(monkeypatch: pytest.MonkeyPatch, make: Make, gpu: FakeGpu) -> None:
    gpu.room_bytes = 10_000
    with pytest.raises(CaseError, match="Out of GPU memory at batch 2"):
        make().load()


def test_its_profile_has_a_row_for_each_step(tmp_path: Path, make: Make) -> None:
    job = make().job
    (tmp_path / "profile").mkdir()
    result = importlib.import_module("harness.backends.cudnn.profile").profile(job, BATCHES, tmp_path / "profile", 3)
    assert [row.name for row in result.layers][:2] == ["Conv-c0 + Relu-r0", "MaxPool-p"]
    assert [row.kind for row in result.layers] == [
        "Conv",
        "MaxPool",
        "Conv",
        "Conv",
        "Conv",
        "GlobalAveragePool",
        "Conv",
    ]
    assert result.layers[0].members == ("Conv-c0", "Relu-r0")
    assert (tmp_path / "profile" / result.traces[0]).is_file()
