"""The PyTorch backends as they run on a GPU, on a make-believe one: PyTorch is real and its "device" is the CPU; the
driver, streams, CUDA graphs and page-locked memory are stand-ins that write down what they are asked."""

from __future__ import annotations

import importlib
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from harness import backends
from harness.backends.base import BackendJob
from harness.backends.batches import empty_export
from harness.core.errors import CaseError, NotSupportedError
from harness.core.protocol import EVENT, Ready
from harness.core.schemas import Case, TensorSpec
from harness.processes.launcher import Worker
from harness.timing.issuing_thread import OnStreams, issue_closed
from harness.timing.service_times import Dispatcher, DispatcherOnStream
from tests.fixtures.computing_gpu import outputs_of_pass

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.stages

BATCHES = 8


class FakeGraph:
    """A CUDA graph whose launch is counted."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.launched = log, 0

    def replay(self) -> None:
        self.launched += 1

    def reset(self) -> None:
        self.log.append("graph reset")


class FakeCapture:
    """torch.cuda.graph: writes down the stream; what is called inside runs at once."""

    log: ClassVar[list[str]] = []

    def __init__(self, graph: FakeGraph, *, pool: object, stream: object, capture_error_mode: str) -> None:
        self.log.append(f"capture on {stream} in {pool} {capture_error_mode}")

    def __enter__(self) -> None:
        self.log.append("begin")

    def __exit__(self, *problem: object) -> None:
        self.log.append("end")


def forget() -> None:
    """Modules that were imported with one driver must not meet the next test's, nor a real one."""
    for name in ("harness.backends.cuda.context", "harness.backends.torch.cuda"):
        sys.modules.pop(name, None)
        package, _, module = name.rpartition(".")
        if hasattr(sys.modules.get(package), module):
            delattr(sys.modules[package], module)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The make-believe GPU; what was asked of it, in order."""
    results: list[str] = []

    def says(word: str, answer: Any = None) -> Any:
        return lambda *arguments: results.append(word) or answer

    @contextmanager
    def on_stream(stream: str) -> Iterator[None]:
        results.append(f"on {stream}")
        yield
        results.append("back")

    driver: Any = ModuleType("pycuda.driver")
    context = SimpleNamespace(push=says("push"), pop=says("pop"))
    driver.init = says("driver init")
    driver.Device = lambda index: SimpleNamespace(retain_primary_context=lambda: context)
    handles = count(77)
    driver.Stream = lambda flags: SimpleNamespace(handle=next(handles), synchronize=says("synchronize"))
    driver.event_flags = SimpleNamespace(DISABLE_TIMING=2)
    driver.Event = lambda flags: SimpleNamespace(
        record=lambda stream: results.append(f"event on {stream.handle}"), query=lambda: True
    )
    package: Any = ModuleType("pycuda")
    package.driver = driver
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    forget()

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", says("torch init"))
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle: f"stream {handle}")
    monkeypatch.setattr(torch.cuda, "default_stream", lambda: "default stream")
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: results.append(f"current: {stream}"))
    monkeypatch.setattr(torch.cuda, "stream", on_stream)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: FakeGraph(results))
    monkeypatch.setattr(torch.cuda, "graph", type("Capture", (FakeCapture,), {"log": results}))
    plain = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda like, **options: plain(like))

    from harness.backends.torch import cuda

    monkeypatch.setattr(cuda, "_DEVICE", "cpu")
    yield results
    forget()


@pytest.fixture
def switches() -> Any:
    """Leaves PyTorch's global switches as they were."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = before


def module() -> Any:
    torch.manual_seed(3)
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)).eval().requires_grad_(False)


def arrays() -> list[dict[str, Any]]:
    random = np.random.default_rng(5)
    return [{"pixels": random.standard_normal((2, 3, 8, 8)).astype(np.float32)} for _ in range(BATCHES)]


def expected(index: int) -> Any:
    with torch.inference_mode():
        return module()(torch.from_numpy(arrays()[index]["pixels"])).numpy()


def loaded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> Any:
    """A backend after load() and, where it has one, compile()."""
    from harness.backends.torch import base

    build = asked.pop("build", module)
    monkeypatch.setattr(base, "build_module", lambda export, folder: build())
    options = asked.pop("options", {})
    case = Case(
        **(dict.fromkeys(("case_id", "model", "slug"), "tiny") | {"backend": name, "device": "cuda"}),
        **({"precision": "fp32", "boundary": "compute", "mode": "sync"} | asked),
        batch_size=2,
        sequence_length=None,
        weights="seeded",
    )
    specs = {
        "inputs": (TensorSpec(name="pixels", dtype="float32", shape=("batch", 3, 8, 8)),),
        "outputs": (TensorSpec(name="scores", dtype="float32", shape=("batch", 5)),),
    }
    export = empty_export(case).model_copy(update=specs)
    target, _, kind = backends.BACKENDS[name].target.partition(":")
    made = getattr(importlib.import_module(target), kind)(
        BackendJob(case, export, tmp_path, arrays(), 2, tmp_path / "cache", options)
    )
    made.load()
    if made.compiles:
        made.compile()
    return made


class Encoder(torch.nn.Module):
    """An attention and a perceptron; all but the last of its linear layers, a small one, can be in fp8."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        nn = torch.nn
        self.queries, self.values = nn.Linear(64, 64), nn.Linear(64, 64)
        self.perceptron = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 5)
        self.eval().requires_grad_(False)

    def forward(self, pixels: Any) -> Any:
        x = pixels.flatten(2)
        x = x + torch.nn.functional.scaled_dot_product_attention(self.queries(x), self.queries(x), self.values(x))
        return self.head(self.norm(x + self.perceptron(x)).mean(1))


@pytest.mark.parametrize(
    "name", ["torch-eager", *(pytest.param(name, marks=pytest.mark.slow) for name in ("torch-compile", "torch-aoti"))]
)
@pytest.mark.usefixtures("switches", "instructions")
def test_linear_layers_in_fp8_are_near_fp32_and_read_back(
    name: str, log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capable(monkeypatch, (9, 0))
    if name != "torch-eager":
        monkeypatch.setattr("harness.backends.torch.compile.require_compiler", lambda device: None)
    backend = loaded(name, tmp_path, monkeypatch, precision="fp8", build=Encoder)
    for index in (0, 5):
        with torch.inference_mode():
            right = Encoder()(torch.from_numpy(arrays()[index]["pixels"])).numpy()
        result = answer(backend, index)
        distance = np.linalg.norm(result - right) / np.linalg.norm(right)
        assert 1e-4 < distance < 0.1  # not fp32, and near it
    placement = backend.placement()
    assert placement.precision == "fp8"
    assert placement.settings["fp8_layers"] == 4
    assert placement.settings["other_linear_layers"] == 1
    assert 0.9 < placement.settings["fp8_share_of_products"] < 1
    assert placement.dtype_census["torch.float8_e4m3fn"] == 2 * 64 * 64 + 2 * 64 * 256
    backend.close()


@pytest.mark.usefixtures("switches")
def test_a_module_whose_work_is_elsewhere_is_not_labelled_fp8(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capable(monkeypatch, (9, 0))

    def convolutional() -> Any:
        nn = torch.nn
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 16), nn.Linear(16, 5)).eval()

    backend = loaded("torch-eager", tmp_path, monkeypatch, precision="fp8", build=convolutional)
    assert backend.placement().precision == "bf16+fp8"
    backend.close()
    with pytest.raises(NotSupportedError, match=r"multiples of 16\); there is none"):
        loaded("torch-eager", tmp_path, monkeypatch, precision="fp8")


@pytest.mark.usefixtures("switches")
def test_a_gpu_without_fp8_is_refused_in_two_lines(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capable(monkeypatch, (8, 6))
    with pytest.raises(NotSupportedError, match=r"capability 8\.9 or higher; an old GPU has 8\.6") as caught:
        loaded("torch-eager", tmp_path, monkeypatch, precision="fp8", build=Encoder)
    assert "PRECISIONS" in caught.value.hint


def capable(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "an old GPU")


def answer(backend: Any, index: int) -> Any:
    backend.select(index)
    backend.infer()
    backend.synchronize()
    return backend.outputs()["scores"]


@pytest.mark.parametrize("name", ["torch-eager", "torch-script"])
@pytest.mark.usefixtures("switches")
def test_every_batch_is_answered_on_the_harness_stream(
    name: str, log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = loaded(name, tmp_path, monkeypatch)
    assert log[:4] == ["driver init", "push", "torch init", "current: stream 77"]
    assert backend.stream.handle == 77
    for index in range(BATCHES):
        np.testing.assert_allclose(answer(backend, index), expected(index), rtol=1e-4, atol=1e-5)
    settings = backend.placement().settings
    assert settings["channels_last"] is True
    assert settings["captured_graphs"] == 0
    backend.close()
    assert log[-3:] == ["current: default stream", "synchronize", "pop"]


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", False), ("tf32", True), ("bf16", False)])
@pytest.mark.usefixtures("switches")
def test_the_label_follows_the_switches_and_parameters(
    precision: str, allowed: bool, log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not allowed
    backend = loaded("torch-eager", tmp_path, monkeypatch, precision=precision)
    assert backend.placement().precision == precision
    assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is allowed
    torch.backends.cudnn.allow_tf32 = True
    assert backend.placement().precision == {"fp32": "fp32+tf32"}.get(precision, precision)
    backend.close()


@pytest.mark.parametrize("name", ["torch-eager", "torch-script"])
@pytest.mark.usefixtures("switches")
def test_page_locked_memory_is_freed_while_the_stream_exists(
    name: str, log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch records an event on the stream of a page-locked tensor's last copy when the tensor is freed (a crash on
    an H200, in the destructors after the case's last call)."""
    backend = loaded(name, tmp_path, monkeypatch, boundary="transfer")
    backend.select(2)
    backend.upload()
    backend.infer()
    backend.download()
    for tensor in (*backend._inputs._pinned[0], *backend._inputs._answers):
        weakref.finalize(tensor, log.append, "freed")
    del tensor
    np.testing.assert_allclose(backend.outputs()["scores"], expected(2), rtol=1e-4, atol=1e-5)
    backend.close()
    assert [word for word in log if word in ("freed", "pop")] == ["freed", "freed", "pop"]


@pytest.mark.usefixtures("switches")
def test_layout_is_an_option(log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = loaded("torch-eager", tmp_path, monkeypatch, options={"channels_last": False})
    assert backend.placement().settings["channels_last"] is False
    np.testing.assert_allclose(answer(backend, 3), expected(3), rtol=1e-4, atol=1e-5)
    backend.close()


@pytest.mark.usefixtures("switches")
def test_a_graph_is_captured_for_every_batch_and_freed_before_the_context(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = loaded("torch-eager", tmp_path, monkeypatch, options={"graph": True})
    assert log.count("capture on stream 77 in pool thread_local") == BATCHES
    np.testing.assert_allclose(answer(backend, 6), expected(6), rtol=1e-4, atol=1e-5)
    replays = backend._calls
    assert [replay._graph.launched for replay in replays] == [0] * 6 + [1, 0]
    assert backend.placement().settings["captured_graphs"] == BATCHES
    backend.close()
    assert log[-11:] == ["graph reset"] * BATCHES + ["current: default stream", "synchronize", "pop"]


@pytest.mark.usefixtures("switches")
def test_memory_of_a_graphs_launches_lives_until_the_graph_is_freed(log: list[str]) -> None:
    from harness.backends.torch.cuda import Replay

    class Package:
        """As AOTInductor's: weights and kernels of its own, which it unloads at its end."""

        def __call__(self, tensor: Any) -> Any:
            return tensor + 1

    package = Package()
    weakref.finalize(package, log.append, "unloaded")
    replay = Replay(package, (torch.zeros(2),), "stream", "pool")
    del package
    log.append("replayed")
    replay(torch.zeros(2))
    replay.close()
    assert log[-3:] == ["replayed", "graph reset", "unloaded"]


@pytest.mark.usefixtures("switches")
def test_a_failed_capture_names_another_setting_and_exhausted_memory_stays_that_error(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.backends.torch.cuda import Replay

    def fails(problem: Exception) -> Any:
        def call() -> None:
            raise problem

        return call

    with pytest.raises(CaseError, match="stream is capturing") as caught:
        Replay(fails(RuntimeError("not permitted when stream is capturing\nmore")), (), "stream", "pool")
    assert "SETTINGS" in caught.value.hint
    assert caught.value.problem.endswith("not permitted when stream is capturing more")
    with pytest.raises(torch.OutOfMemoryError):
        Replay(fails(torch.OutOfMemoryError("CUDA out of memory")), (), "stream", "pool")


@pytest.mark.parametrize("boundary", ["compute", "transfer"])
@pytest.mark.usefixtures("switches")
def test_new_content_of_a_batch_is_answered_and_no_other_batch_changes(
    boundary: str, log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = loaded("torch-eager", tmp_path, monkeypatch, boundary=boundary)

    def passed(index: int) -> Any:
        return outputs_of_pass(backend, boundary, index)["scores"]

    backend.job.batches[1]["pixels"][...] = arrays()[4]["pixels"]
    np.testing.assert_allclose(passed(1), expected(1), rtol=1e-4, atol=1e-5)  # a copy lies on the device
    backend.refresh(1)
    np.testing.assert_allclose(passed(1), expected(4), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(passed(2), expected(2), rtol=1e-4, atol=1e-5)
    backend.close()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.usefixtures("switches")
def test_transfers_are_calls_of_their_own(
    precision: str, log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = loaded("torch-eager", tmp_path, monkeypatch, boundary="transfer", precision=precision)
    near = {"rtol": 1e-4, "atol": 1e-5} if precision == "fp32" else {"rtol": 0.1, "atol": 0.05}

    def passed(index: int, *, upload: bool = True, download: bool = True) -> Any:
        backend.select(index)
        if upload:
            backend.upload()
        backend.infer()
        if download:
            backend.download()
        backend.synchronize()
        return backend.outputs()["scores"]

    first = passed(1)
    np.testing.assert_allclose(first, expected(1), **near)
    np.testing.assert_allclose(passed(4), expected(4), **near)
    np.testing.assert_array_equal(passed(1), first)
    np.testing.assert_array_equal(passed(5, upload=False), first)
    np.testing.assert_array_equal(passed(5, download=False), first)
    backend.close()


@pytest.mark.parametrize("name", ["torch-eager", "torch-script"])
@pytest.mark.usefixtures("switches")
def test_transfers_in_flight_have_streams_and_memory_of_their_own(
    name: str, log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = loaded(name, tmp_path, monkeypatch, boundary="transfer", mode="pipelined")
    assert (backend.stream.handle, *(stream.handle for stream in backend.copy_streams)) == (77, 78, 79)
    log.clear()

    def enqueue(index: int) -> None:
        backend.select(index)
        backend.upload()
        backend.infer()
        # PyTorch would give its memory to the next pass.
        weakref.finalize(backend._result, log.append, f"result {index} dropped")
        backend.download()

    for index in (1, 4, 6):
        enqueue(index)
    assert log == ["on stream 78", "back", "on stream 79", "back"] * 3
    by_slot = {1: 1, 2: 4, 0: 6}
    for slot, index in by_slot.items():
        np.testing.assert_allclose(backend._inputs._answers[slot][0], expected(index), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(backend.outputs()["scores"], expected(6), rtol=1e-4, atol=1e-5)
    log.clear()
    enqueue(2)  # the slot of batch 1, which the mode has waited for by now
    assert [word for word in log if "dropped" in word] == ["result 1 dropped"]
    np.testing.assert_allclose(backend.outputs()["scores"], expected(2), rtol=1e-4, atol=1e-5)
    backend.close()
    assert log[-4:] == ["synchronize"] * 3 + ["pop"]


@pytest.mark.usefixtures("switches")
def test_graphs_that_are_in_flight_together_share_no_memory(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = count()
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: f"pool {next(pools)}")

    def captured_in(**asked: Any) -> list[str]:
        log.clear()
        loaded("torch-eager", tmp_path, monkeypatch, options={"graph": True}, **asked).close()
        return [word.split(" in ")[1] for word in log if word.startswith("capture")]

    assert len(set(captured_in())) == 1
    in_flight = captured_in(boundary="transfer", mode="pipelined")
    assert len(set(in_flight)) == len(in_flight) == 3


@pytest.mark.parametrize("name", ["torch-eager", "torch-script"])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.usefixtures("switches")
def test_one_thread_issues_to_objects_on_streams_and_in_memory_of_their_own(
    name: str, graph: bool, log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = count()
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: f"pool {next(pools)}")
    places = [loaded(name, tmp_path, monkeypatch, options={"graph": graph}) for _ in range(2)]
    workers = [Dispatcher({2: (backend, BATCHES)}) for backend in places]
    captured = {word.split("capture on ")[1] for word in log if word.startswith("capture")}
    assert len(captured) == (2 if graph else 0)
    log.clear()
    result = issue_closed(OnStreams([DispatcherOnStream(worker) for worker in workers]), 2, 6, 1 << 60)
    assert (result.worker, result.error) == ((0, 1) * 3, None)
    passes = [f"{word} {handle}" for handle in (77, 78) for word in ("current: stream", "event on")]
    assert [word for word in log if not word.startswith("begin")] == passes * 3
    for worker in workers:
        ((_, index, outputs),) = worker.latest()
        assert index == 2
        if not graph:  # a make-believe graph computes at its capture alone
            np.testing.assert_allclose(outputs["scores"], expected(index), rtol=1e-4, atol=1e-5)
    for backend in reversed(places):
        backend.close()


def test_each_setting_that_records_graphs_of_torch_compile_refuses_batches_in_flight() -> None:
    info = backends.BACKENDS["torch-compile"]
    refused = {name for name in info.settings_on("cuda") if info.no_issuing_on("cuda", name)}
    recorded = {
        name
        for name, setting in info.settings_on("cuda").items()
        if torch._inductor.list_mode_options(setting.options["mode"]).get("triton.cudagraphs")
    }
    assert refused == recorded == {*recorded, "reduce-overhead", "max-autotune"}


@pytest.mark.usefixtures("switches")
def test_the_e2e_boundary_copies_arrays_into_the_same_tensors(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = loaded("torch-eager", tmp_path, monkeypatch, boundary="e2e", options={"graph": True})
    addresses = [tensor.data_ptr() for tensor in backend._arguments]
    backend.feed(arrays()[2])
    assert [tensor.data_ptr() for tensor in backend._arguments] == addresses
    np.testing.assert_array_equal(backend._arguments[0].numpy(), arrays()[2]["pixels"])
    assert log.count("capture on stream 77 in pool thread_local") == 1
    backend.close()


@pytest.mark.slow
@pytest.mark.usefixtures("switches")
def test_a_cuda_graph_that_inductor_skipped_passes_for_no_precision(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tensors lie on the CPU here, for which Inductor makes none: exactly what must be noticed on a GPU."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    plain = loaded("torch-compile", tmp_path, monkeypatch, options={"mode": "default"})
    np.testing.assert_allclose(answer(plain, 2), expected(2), rtol=1e-4, atol=1e-5)
    assert plain.placement().precision == "fp32"
    assert plain.placement().settings["graphs"] == 1
    plain.close()
    backend = loaded("torch-compile", tmp_path, monkeypatch, options={"mode": "reduce-overhead"})
    placement = backend.placement()
    assert placement.precision == "fp32, but its CUDA graph was skipped,"
    assert placement.settings["mode"] == "reduce-overhead"
    backend.close()


@pytest.mark.usefixtures("switches")
def test_a_pytorch_that_cannot_use_the_gpu_says_so(
    log: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old\n(found version 11040)")

    monkeypatch.setattr(torch.cuda, "init", refuse)
    with pytest.raises(CaseError, match="too old") as caught:
        loaded("torch-eager", tmp_path, monkeypatch)
    assert "nvidia-smi" in caught.value.hint
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(CaseError, match="without CUDA"):
        loaded("torch-eager", tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "name", ["torch-compile", *(pytest.param(name, marks=pytest.mark.slow) for name in ("torch-eager", "torch-script"))]
)
def test_the_case_server_starts_no_cuda_and_has_one_thread_when_it_forks(name: str, tmp_path: Path) -> None:
    """A child forked after cuInit cannot use the GPU. NVML answers here as it does on a machine that has one."""
    worker = Worker(name, 2, tmp_path / "log")
    assert worker._command[1] == "-m"
    code = (
        "import atexit, runpy, sys, torch\n"
        "def refuse(): raise SystemExit('the case server asked CUDA for its devices')\n"
        "torch._C._cuda_getDeviceCount = torch._C._cuda_init = refuse\n"
        "torch.cuda._raw_device_count_nvml = lambda: 1\n"
        "atexit.register(lambda: print(torch.cuda.is_available(), torch.cuda.is_initialized(), file=sys.stderr))\n"
        f"sys.argv = {worker._command[2:]!r}\n"
        "runpy.run_module(sys.argv[0], run_name='__main__')"
    )
    environment = {key: value for key, value in worker._environment.items() if not key.startswith("CUDA_VISIBLE")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ready = EVENT.validate_json(done.stdout)
    assert isinstance(ready, Ready)
    assert (ready.threads, done.stderr.splitlines()[-1]) == (1, "True False")
