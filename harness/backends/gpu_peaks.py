"""The measured limits of a GPU, with PyTorch: matrix products, copies, and kernels one after the other.

Every figure is the best of several calls, each between two events on the device's own clock. A limit that is measured
too low would call sound rows impossible, so each is tried in the ways that libraries may choose.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch

from harness.core.errors import UnavailableError
from harness.core.schemas import Precision

SIZES = (8192, 4096)
"""Edges of the square matrices: large enough that a GPU of some hundred cores is full, small enough for 0.8 GB."""

COPY_BYTES = 1 << 30
"""Twenty times the L2 cache of an H100 (50 MB), so that a copy has to go through memory."""

LINK_BYTES = 256 << 20
"""Copies over PCIe: 5 ms on a fast link, long compared with the start of a copy."""

LAUNCHES = 1000
"""Kernels in the shorter of two graphs; the longer has twice as many, and starting a graph cancels out."""

WARM_UPS = 3
CALLS = 20

_DEVICE = "cuda"
_WAYS: Mapping[Precision, tuple[torch.dtype, tuple[tuple[str, bool], ...]]] = {
    "fp32": (torch.float32, (("allow_tf32", False),)),
    "tf32": (torch.float32, (("allow_tf32", True),)),
    # TensorRT may sum in fp16, which GPUs for games do twice as fast.
    "fp16": (torch.float16, (("allow_fp16_accumulation", False), ("allow_fp16_accumulation", True))),
    "bf16": (torch.bfloat16, (("allow_tf32", False),)),
}
"""By precision, the type of the matrices and the positions of PyTorch's switches for their products to try."""

FP8_CAPABILITY = (8, 9)
"""Compute capability of the first GPUs that multiply in fp8 (Ada; Hopper has 9.0)."""


def require() -> None:
    """Start CUDA in PyTorch; UnavailableError where that fails."""
    if torch.version.cuda is None:
        raise UnavailableError(
            "This PyTorch was built without CUDA.", "Install a CUDA build: `pip install -e .[cuda]`."
        )
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        raise UnavailableError(
            f"PyTorch for CUDA {torch.version.cuda} cannot use the GPU: {str(error).strip().splitlines()[0]}",
            "Compare the driver's CUDA version in `nvidia-smi` with it.",
        ) from error


def build_facts() -> dict[str, str]:
    """The facts that decide these figures, besides the versions of libraries."""
    return {"torch_cuda_runtime": str(torch.version.cuda)}


def flops_per_s() -> dict[Precision, float]:
    """Best matrix product by precision, in FLOP/s, 2 a multiply-add; fp8 and int8 where the GPU multiplies in them."""
    with _enough_memory():
        peaks = {precision: _best_product(precision) for precision in _WAYS}
        if torch.cuda.get_device_capability() >= FP8_CAPABILITY and (best := _best_fp8_product()):
            peaks["fp8"] = best
        if best := _best_int8_product():
            peaks["int8"] = best
        return peaks


def copy_bytes_per_s() -> float:
    """Best copy within the device's memory: bytes read plus bytes written a second."""
    with _enough_memory():
        source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=_DEVICE)
        target = torch.empty_like(source)
        return 2 * COPY_BYTES * 1e9 / _best_ns(lambda: target.copy_(source))


def link_bytes_per_s() -> tuple[float, float]:
    """Best copies (to the device, from the device) with page-locked host memory, in bytes a second."""
    with _enough_memory():
        host = torch.zeros(LINK_BYTES, dtype=torch.uint8, pin_memory=True)
        device = torch.zeros(LINK_BYTES, dtype=torch.uint8, device=_DEVICE)
        there = _best_ns(lambda: device.copy_(host, non_blocking=True))
        back = _best_ns(lambda: host.copy_(device, non_blocking=True))
        return LINK_BYTES * 1e9 / there, LINK_BYTES * 1e9 / back


def launch_ns() -> float:
    """Device time of one more kernel in a CUDA graph. It waits for the kernel before it and does next to nothing."""
    short, long = _graph_ns(LAUNCHES), _graph_ns(2 * LAUNCHES)
    return (long - short) / LAUNCHES


def _best_product(precision: Precision) -> float:
    """Both as x W and as x Wᵀ: which layout has the faster kernel depends on GPU and type."""
    dtype, switches = _WAYS[precision]
    best = 0.0
    for size in SIZES:
        # Random: zeros cost less power, so that the clock would stay higher than in any real pass.
        left, right = (torch.randn(size, size, device=_DEVICE).to(dtype) for _ in range(2))
        answer = torch.empty_like(left)
        for (name, position), second in itertools.product(switches, (right, right.t())):
            with _switched(name, position):
                best = max(best, 2 * size**3 * 1e9 / _best_ns(partial(torch.mm, left, second, out=answer)))
    return best


def _best_fp8_product() -> float:
    """With one scale for each matrix, and with a scale for each row of x and of W, which PyTorch cannot multiply on
    every GPU (pytorch#192707). There is a kernel for x Wᵀ alone."""
    best = 0.0
    for size in SIZES:
        left, right = (torch.randn(size, size, device=_DEVICE).to(torch.float8_e4m3fn) for _ in range(2))
        scale, rows = (torch.ones(shape, device=_DEVICE) for shape in ((), (size, 1)))
        for scale_a, scale_b in ((scale, scale), (rows, rows.t())):
            product = partial(
                torch._scaled_mm,
                left,
                right.t(),
                scale_a=scale_a,
                scale_b=scale_b,
                out_dtype=torch.bfloat16,
                use_fast_accum=True,
            )
            best = max(best, _rate_of(product, size))
    return best


def _best_int8_product() -> float:
    """Products of int8, summed in int32; as x W and as x Wᵀ."""
    best = 0.0
    for size in SIZES:
        left, right = (torch.randint(-128, 128, (size, size), dtype=torch.int8, device=_DEVICE) for _ in range(2))
        answer = torch.empty((size, size), dtype=torch.int32, device=_DEVICE)
        for second in (right, right.t()):
            best = max(best, _rate_of(partial(torch._int_mm, left, second, out=answer), size))
    return best


def _rate_of(product: Callable[[], object], size: int) -> float:
    """FLOP/s of a product of square matrices; 0 where this library has none for this GPU: another way may have one."""
    try:
        return 2 * size**3 * 1e9 / _best_ns(product)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return 0.0


@contextmanager
def _switched(name: str, position: bool) -> Iterator[None]:
    """One of PyTorch's switches for matrix products in that position; restored afterwards."""
    before = getattr(torch.backends.cuda.matmul, name)
    setattr(torch.backends.cuda.matmul, name, position)
    try:
        yield
    finally:
        setattr(torch.backends.cuda.matmul, name, before)


def _graph_ns(kernels: int) -> float:
    value = torch.zeros(1, device=_DEVICE)
    value.add_(1)  # loads the kernel, which cannot be done while capturing
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(kernels):
            value.add_(1)
    return _best_ns(graph.replay)


def _best_ns(work: Callable[[], object]) -> float:
    """Shortest device time of one call; nothing waits on the host between the calls."""
    for _ in range(WARM_UPS):
        work()
    marks = [(_event(), _event()) for _ in range(CALLS)]
    for start, end in marks:
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return float(min(start.elapsed_time(end) for start, end in marks)) * 1e6


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


@contextmanager
def _enough_memory() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UnavailableError(
            f"The GPU has too little free memory to measure its limits: {str(error).strip().splitlines()[0]}",
            "End other processes on it; 3 GB are enough.",
        ) from error
    finally:
        torch.cuda.empty_cache()
