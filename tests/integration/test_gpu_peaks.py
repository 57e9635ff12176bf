"""The limits' arithmetic and PyTorch calls, on a make-believe GPU: PyTorch is real and its "device" is the CPU; events
and CUDA graphs are stand-ins whose clock only calls move."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from harness.core.errors import UnavailableError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.stages

KERNEL_MS, START_MS = 0.0012, 0.007


class FakeGpu:
    """A clock that products, copies and graphs move; `calls`: what ran, with the switches at that time."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.calls: list[tuple[Any, ...]] = []
        self.slower = itertools.cycle([1.5, 1.0, 1.25])
        self.captured = 0
        self.pinned = False

    def work(self, ms: float, *what: Any) -> None:
        self.now_ms += ms * next(self.slower)
        self.calls.append(what)

    def int_mm(self, left: Any, right: Any, out: Any) -> Any:
        layout = "row" if right.is_contiguous() else "column"
        self.work(len(left) ** 3 / {"row": 1.0, "column": 16.0}[layout] * 1e-6, left.dtype, out.dtype, layout)
        return out


class FakeEvent:
    gpu: FakeGpu

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at_ms = -1.0

    def record(self) -> None:
        self.at_ms = self.gpu.now_ms

    def elapsed_time(self, later: FakeEvent) -> float:
        assert self.gpu.calls[-1] == ("synchronize",), "read before the device was done"
        return later.at_ms - self.at_ms


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    from harness.backends import gpu_peaks

    result = FakeGpu()
    matmul = torch.backends.cuda.matmul
    product, add = torch.mm, torch.Tensor.add_

    def mm(left: Any, right: Any, out: Any) -> Any:
        n, layout = left.shape[0], "row" if right.is_contiguous() else "column"
        speed = 2.0 if layout == "column" else 1.0
        speed *= 4.0 if matmul.allow_fp16_accumulation and left.dtype == torch.float16 else 1.0
        result.work(n**3 / speed * 1e-6, left.dtype, n, layout, matmul.allow_tf32, matmul.allow_fp16_accumulation)
        return product(left, right, out=out)

    def copy_(target: Any, source: Any, non_blocking: bool = False) -> Any:
        result.work(target.numel() * 1e-6, "copy", target.numel(), non_blocking)
        return target

    class Graph:
        def __init__(self) -> None:
            self.kernels = 0

        def replay(self) -> None:
            result.now_ms += START_MS + self.kernels * KERNEL_MS
            result.calls.append(("replay", self.kernels))

    class Capture:
        def __init__(self, graph: Graph) -> None:
            self.graph = graph

        def __enter__(self) -> None:
            result.captured = 0

        def __exit__(self, *problem: object) -> None:
            self.graph.kernels = result.captured

    def add_(tensor: Any, other: Any) -> Any:
        result.captured += 1
        return add(tensor, other)

    monkeypatch.setattr(FakeEvent, "gpu", result, raising=False)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: result.calls.append(("synchronize",)))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Capture)
    monkeypatch.setattr(torch, "mm", mm)
    monkeypatch.setattr(torch, "_int_mm", result.int_mm)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 6))
    monkeypatch.setattr(torch.Tensor, "copy_", copy_)
    monkeypatch.setattr(torch.Tensor, "add_", add_)
    plain = torch.zeros

    def zeros(*shape: int, pin_memory: bool = False, **more: Any) -> Any:
        result.pinned = result.pinned or pin_memory
        return plain(*shape, **more)

    monkeypatch.setattr(torch, "zeros", zeros)
    monkeypatch.setattr(gpu_peaks, "_DEVICE", "cpu")
    monkeypatch.setattr(gpu_peaks, "SIZES", (8, 4))
    monkeypatch.setattr(gpu_peaks, "COPY_BYTES", 1000)
    monkeypatch.setattr(gpu_peaks, "LINK_BYTES", 500)
    yield result
    assert (matmul.allow_tf32, matmul.allow_fp16_accumulation) == (False, False)


def test_the_best_product_of_each_precision(gpu: FakeGpu) -> None:
    from harness.backends.gpu_peaks import flops_per_s

    result = flops_per_s()
    # n³ ms·1e-6 for 2n³ FLOP: 2e9 FLOP/s, twice in the other layout, four times more in fp16, 16 times in int8.
    expected = {"fp32": 4e9, "tf32": 4e9, "fp16": 16e9, "bf16": 4e9, "int8": 32e9}
    assert result == pytest.approx(expected)
    products = {call for call in gpu.calls if len(call) == 5}
    assert {(dtype, tf32) for dtype, _, _, tf32, _ in products} == {
        (torch.float32, False),
        (torch.float32, True),
        (torch.float16, False),
        (torch.bfloat16, False),
    }
    assert {(n, layout) for _, n, layout, _, _ in products} == {(8, "row"), (8, "column"), (4, "row"), (4, "column")}


def test_fp8_has_a_limit_where_the_gpu_multiplies_in_it(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.backends.gpu_peaks import flops_per_s

    def scaled(left: Any, right: Any, *, scale_a: Any, scale_b: Any, out_dtype: Any, use_fast_accum: bool) -> None:
        assert (left.dtype, out_dtype, use_fast_accum) == (torch.float8_e4m3fn, torch.bfloat16, True)
        assert not right.is_contiguous()  # x Wᵀ
        n, shapes = left.shape[0], (tuple(scale_a.shape), tuple(scale_b.shape))
        gpu.work(n**3 * 1e-6 / {((), ()): 8.0, ((n, 1), (1, n)): 4.0}[shapes], "fp8", shapes)

    monkeypatch.setattr(torch, "_scaled_mm", scaled)
    assert "fp8" not in flops_per_s()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert flops_per_s()["fp8"] == pytest.approx(16e9)
    assert len({call for call in gpu.calls if call[0] == "fp8"}) == 3  # one scale a matrix; a scale a row, of two sizes


@pytest.mark.parametrize(("refused", "expected"), [("rows", 16e9), ("all", None)])
def test_an_fp8_product_that_a_library_refuses_leaves_the_limits_of_others(
    refused: str, expected: float | None, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.backends.gpu_peaks import flops_per_s

    def scaled(left: Any, right: Any, *, scale_a: Any, **more: Any) -> None:
        if refused == "all" or scale_a.ndim:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED")
        gpu.work(left.shape[0] ** 3 * 1e-6 / 8, "fp8")

    monkeypatch.setattr(torch, "_scaled_mm", scaled)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (12, 0))
    result = flops_per_s()
    assert result.get("fp8") == (expected and pytest.approx(expected))
    assert result["bf16"] == pytest.approx(4e9)


def test_products_of_int8_are_summed_in_int32_in_both_layouts(gpu: FakeGpu) -> None:
    from harness.backends.gpu_peaks import flops_per_s

    flops_per_s()
    assert {call for call in gpu.calls if call[0] == torch.int8} == {
        (torch.int8, torch.int32, "row"),
        (torch.int8, torch.int32, "column"),
    }


@pytest.mark.parametrize("error", [RuntimeError, torch.OutOfMemoryError])
def test_an_int8_product_that_a_library_lacks_is_no_limit_and_too_little_memory_an_error(
    error: type[Exception], gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.backends.gpu_peaks import flops_per_s

    def lacking(left: Any, right: Any, *, out: Any) -> None:
        raise error("3 GB")

    monkeypatch.setattr(torch, "_int_mm", lacking)
    if error is RuntimeError:
        assert "int8" not in flops_per_s()
    else:
        with pytest.raises(UnavailableError, match="too little free memory"):
            flops_per_s()


def test_copies_count_reads_and_writes_and_the_link_one_way(gpu: FakeGpu) -> None:
    from harness.backends import gpu_peaks

    assert gpu_peaks.copy_bytes_per_s() == pytest.approx(2 * 1000 / 1e-6)
    assert not gpu.pinned
    assert gpu_peaks.link_bytes_per_s() == pytest.approx((500 / 5e-7, 500 / 5e-7))
    assert ("copy", 500, True) in gpu.calls
    assert gpu.pinned


def test_a_launch_is_the_slope_without_the_graphs_own_start(gpu: FakeGpu) -> None:
    from harness.backends import gpu_peaks

    assert gpu_peaks.launch_ns() == pytest.approx(KERNEL_MS * 1e6)
    assert {call[1] for call in gpu.calls if call[0] == "replay"} == {gpu_peaks.LAUNCHES, 2 * gpu_peaks.LAUNCHES}


def test_too_little_memory_is_two_lines(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.backends import gpu_peaks

    def full(*_arguments: object, **_more: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.\nmore")

    monkeypatch.setattr(torch, "zeros", full)
    with pytest.raises(UnavailableError, match=r"Tried to allocate 1 GiB\.$"):
        gpu_peaks.copy_bytes_per_s()


def test_a_pytorch_without_cuda_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.backends import gpu_peaks

    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(UnavailableError, match="built without CUDA"):
        gpu_peaks.require()
    monkeypatch.setattr(torch.version, "cuda", "13.0")

    def no_driver() -> None:
        raise RuntimeError("Found no NVIDIA driver on your system.\nPlease check")

    monkeypatch.setattr(torch.cuda, "init", no_driver)
    with pytest.raises(UnavailableError, match=r"Found no NVIDIA driver on your system\.$"):
        gpu_peaks.require()
