"""PyTorch on a GPU: on the harness's own stream, TF32 as the label says, convolutions in channels_last."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from harness.backends.base import Array, BackendJob
from harness.backends.cuda.context import Cuda
from harness.backends.torch.fp8 import require_capability
from harness.backends.torch.place import (
    Call,
    Place,
    PlacedInputs,
    Tensors,
    host_facts,
    in_type,
    rewrite,
    use_threads,
)
from harness.backends.torch.readback import gpu_precision
from harness.core.errors import CaseError, reason


class ResidentOnGpu(PlacedInputs):
    """The compute boundary's: every batch lies on the device, and none is copied."""

    def __init__(self, sets: Sequence[Tensors]) -> None:
        self.sets = sets

    def select(self, index: int) -> int:
        """Every batch has a set of its own."""
        return index

    def refresh(self, index: int, arrays: Sequence[Array]) -> None:
        """Copy to the device."""
        rewrite(self.sets[index], arrays)

    def feed(self, arrays: Sequence[Array]) -> Tensors:
        """Refuse: only the resident batches exist."""
        raise CaseError("These inputs were put on the device before.", "Choose `boundaries: [e2e]` to feed new ones.")


class Fixed(PlacedInputs):
    """The transfer and e2e boundaries': one set on the device, and batches in host memory that are copied into it."""

    fixed = True

    def __init__(self, on_device: Tensors, pinned: Sequence[Tensors]) -> None:
        """`pinned` lie in page-locked memory in the types and layout of `on_device`, so that a copy is only a copy."""
        self.sets = [on_device]
        self._on_device = on_device
        self._pinned = pinned
        self._selected = pinned[0] if pinned else ()
        self._answers: Tensors = ()

    def select(self, index: int) -> int:
        """The next upload() takes this batch."""
        self._selected = self._pinned[index]
        return 0

    def refresh(self, index: int, arrays: Sequence[Array]) -> None:
        """Copy to the page-locked memory that upload() reads."""
        rewrite(self._pinned[index], arrays)

    def feed(self, arrays: Sequence[Array]) -> Tensors:
        """Enqueue the copy of arrays as they come; floats are converted on the device."""
        for target, array in zip(self._on_device, arrays, strict=True):
            target.copy_(torch.from_numpy(array), non_blocking=True)
        return self._on_device

    def upload(self) -> None:
        """Enqueue one copy for each input."""
        _enqueue(self._on_device, self._selected)

    def download(self, results: Tensors) -> Tensors:
        """Enqueue one copy for each output, in the type that it has, to page-locked memory that is made once."""
        if not self._answers:
            self._answers = _pinned_like(results)
        _enqueue(self._answers, results)
        return self._answers


class Rotating(PlacedInputs):
    """The transfer boundary's in pipelined mode: a set for each batch in flight, and copies on streams of their own."""

    def __init__(
        self, sets: Sequence[Tensors], pinned: Sequence[Tensors], inward: torch.cuda.Stream, outward: torch.cuda.Stream
    ) -> None:
        """`pinned` as for Fixed; `inward`, `outward`: for copies to the device and from it."""
        self.sets = sets
        self._pinned = pinned
        self._inward, self._outward = inward, outward
        self._selected = pinned[0]
        self._number = 0
        self._answers: list[Tensors] = [()] * len(sets)
        self._results: list[Tensors] = [()] * len(sets)

    def select(self, index: int) -> int:
        """The next upload() takes this batch, to the next set."""
        self._selected = self._pinned[index]
        self._number = (self._number + 1) % len(self.sets)
        return self._number

    def refresh(self, index: int, arrays: Sequence[Array]) -> None:
        """Copy to the page-locked memory that upload() reads."""
        rewrite(self._pinned[index], arrays)

    def feed(self, arrays: Sequence[Array]) -> Tensors:
        """Batches come from page-locked memory alone."""
        raise CaseError(
            "These inputs were put in page-locked memory before.", "Choose `boundaries: [e2e]` to feed new ones."
        )

    def upload(self) -> None:
        """Enqueue one copy for each input."""
        with torch.cuda.stream(self._inward):
            _enqueue(self.sets[self._number], self._selected)

    def download(self, results: Tensors) -> Tensors:
        """Enqueue one copy for each output, to page-locked memory of the set."""
        # PyTorch gives the memory of a dropped tensor to the next pass, which would overwrite it during the copy.
        self._results[self._number] = results
        if not self._answers[self._number]:
            self._answers[self._number] = _pinned_like(results)
        with torch.cuda.stream(self._outward):
            _enqueue(self._answers[self._number], results)
        return self._answers[self._number]


def _pinned_like(tensors: Tensors) -> Tensors:
    return tuple(torch.empty_like(tensor, device="cpu", pin_memory=True) for tensor in tensors)


def _enqueue(targets: Tensors, sources: Tensors) -> None:
    """Copies on the current stream."""
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source, non_blocking=True)


class Replay:
    """Launches the captured pass and returns its outputs, whose memory the next launch overwrites."""

    def __init__(self, call: Call, arguments: Tensors, stream: torch.cuda.Stream, pool: Any) -> None:
        """Raises CaseError where the pass does something that cannot be captured.

        pool: memory that several graphs take turns in. That is safe because only one of them runs at a time, and its
        outputs are read before another graph is launched.
        """
        self._arguments = arguments  # their memory is the graph's
        self._call = call  # and so are its weights and kernels: AOTInductor's package unloads them when it is dropped
        self._graph = torch.cuda.CUDAGraph()
        try:
            # Thread-local: a library's own thread must not spoil the capture.
            with torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                self._outputs = call(*arguments)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise CaseError(
                f"A pass could not be captured in a CUDA graph: {reason(error)}",
                "Choose a setting without a graph for this backend (SETTINGS=…; `settings:` in the configuration).",
            ) from error
        self._replay = self._graph.replay

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """Launch; the arguments are read from where they lay at capture."""
        self._replay()
        return self._outputs

    def close(self) -> None:
        """Free the graph, then what it read."""
        self._graph.reset()
        del self._call, self._arguments, self._outputs


WARM_UP_CALLS = 3
"""Calls after which a pass counts as settled. cuDNN has then chosen its algorithms, TorchScript's executor has made a
profiling and an optimised call, and torch.compile has warmed up, recorded and once replayed its CUDA graph."""

_DEVICE = "cuda"
_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
_SDPA = ("flash", "mem_efficient", "cudnn", "math")
"""Kernels that scaled_dot_product_attention may choose from; torch.backends.cuda shows which are enabled."""


class OnCuda(Place):
    """Makes the harness's stream the current stream for the life of the process: every kernel, copy and replay of
    PyTorch then goes to the stream that the event clock reads.

    Options: `channels_last: False` leaves convolutions as the weights lie; `graph: True` captures a CUDA graph.
    """

    def __init__(self, job: BackendJob) -> None:
        use_threads(job.threads)  # for work on the host: loading, and conversions at the e2e boundary
        self._options = job.options
        self._boundary, self._slots = job.case.boundary, job.slots
        self._replays: list[Replay] = []
        self._format = torch.contiguous_format
        if torch.version.cuda is None:
            raise CaseError("This PyTorch was built without CUDA.", "Install a CUDA build: `pip install -e .[cuda]`.")
        self._cuda = Cuda(copies_apart=job.slots > 1)
        self.stream, self.copy_streams = self._cuda.stream, self._cuda.copy_streams
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
        except (RuntimeError, AssertionError) as error:
            raise CaseError(
                f"PyTorch for CUDA {torch.version.cuda} cannot use the GPU: {str(error).strip().splitlines()[0]}",
                "Compare the driver's CUDA version in `nvidia-smi` with it.",
            ) from error
        self._stream = torch.cuda.ExternalStream(int(self.stream.handle))  # type: ignore[no-untyped-call]
        torch.cuda.set_stream(self._stream)
        # The older of two interfaces: after the newer interface is used, some of PyTorch's own queries fail.
        torch.backends.cuda.matmul.allow_tf32 = job.case.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = job.case.precision == "tf32"
        torch.backends.cudnn.benchmark = True

    def module(self, module: nn.Module, dtype: torch.dtype) -> nn.Module:
        """The module on the device, converted there; its weights in channels_last where it has convolutions."""
        if self._options.get("channels_last", True) and any(
            isinstance(part, _CONVOLUTIONS) for part in module.modules()
        ):
            self._format = torch.channels_last
        moved: nn.Module = in_type(module.to(_DEVICE), dtype).to(memory_format=self._format)
        return moved

    def inputs(self, batches: Sequence[Sequence[Array]], dtype: torch.dtype) -> PlacedInputs:
        """compute: every batch on the device. transfer and e2e: tensors that batches are copied into, a set a slot."""
        first = self._on_device(batches[0], dtype)
        if self._boundary == "compute":
            return ResidentOnGpu([first, *(self._on_device(batch, dtype) for batch in batches[1:])])
        # At the e2e boundary batches come through feed().
        pinned = [self._pinned(batch, dtype) for batch in batches] if self._boundary == "transfer" else []
        if self.copy_streams is None:
            return Fixed(first, pinned)
        sets = [first, *(self._on_device(batches[0], dtype) for _ in range(1, self._slots))]
        inward, outward = (torch.cuda.ExternalStream(int(stream.handle)) for stream in self.copy_streams)  # type: ignore[no-untyped-call]
        return Rotating(sets, pinned, inward, outward)

    def settle(self, call: Call, sets: Sequence[Tensors]) -> list[Call]:
        """Warm up, then capture a graph for each set where the setting requests it."""
        for _ in range(WARM_UP_CALLS):
            call(*sets[0])
        self.synchronize()
        if not self._options.get("graph"):
            return [call] * len(sets)
        shared = torch.cuda.graph_pool_handle()
        for arguments in sets:
            # With several batches in flight, the outputs of one are still being copied while the next runs.
            pool = shared if self.copy_streams is None else torch.cuda.graph_pool_handle()
            self._replays.append(Replay(call, arguments, self._stream, pool))
        return list(self._replays)

    def require_fp8(self) -> None:
        """Raise NotSupportedError where the GPU's compute capability has no fp8."""
        require_capability(torch.cuda.get_device_capability(), torch.cuda.get_device_name())

    def precision(self, floating: Sequence[str]) -> str:
        """The parameters' types, and TF32 from its switches."""
        return gpu_precision(
            floating,
            matmul_tf32=torch.backends.cuda.matmul.allow_tf32,
            convolution_tf32=torch.backends.cudnn.allow_tf32,
        )

    def settings(self, module: nn.Module) -> dict[str, str | int | float | bool]:
        """TF32, layout, attention, CUDA graphs of our own, and at the transfer boundary how batches lie on the host."""
        facts: dict[str, str | int | float | bool] = {
            "threads": torch.get_num_threads(),
            "tf32_matmul": bool(torch.backends.cuda.matmul.allow_tf32),
            "tf32_convolution": bool(torch.backends.cudnn.allow_tf32),
            "captured_graphs": len(self._replays),
        }
        weights = [part.weight for part in module.modules() if isinstance(part, _CONVOLUTIONS)]
        if weights:
            facts["channels_last"] = all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)
            facts["cudnn_benchmark"] = bool(torch.backends.cudnn.benchmark)
        attention = _attention(module)
        if attention is not None:
            facts["attention"] = attention
            facts["sdpa_kernels"] = "+".join(
                name for name in _SDPA if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()
            )
        if self._boundary == "transfer":
            facts["pinned_inputs"] = "in the types and layout of the device's"
        return facts

    def build_facts(self) -> Mapping[str, str]:
        """The host's facts, versions of the CUDA libraries in use, and the GPUs that the kernels were built for."""
        return {
            **host_facts(),
            "torch_cuda_runtime": str(torch.version.cuda),
            "torch_cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
            "torch_cublas": _cublas_version(),
            "torch_cuda_architectures": " ".join(torch.cuda.get_arch_list()),
        }

    def activate(self) -> None:
        """The harness's stream of this object becomes the current stream."""
        torch.cuda.set_stream(self._stream)

    def synchronize(self) -> None:
        """Wait for the stream."""
        self.stream.synchronize()

    def close(self) -> None:
        """Graphs first, then the stream, then the context that both belong to."""
        self.synchronize()
        for replay in self._replays:
            replay.close()
        self._replays = []
        torch.cuda.set_stream(torch.cuda.default_stream())
        self._cuda.close()

    def _on_device(self, batch: Sequence[Array], dtype: torch.dtype) -> Tensors:
        return tuple(self._laid_out(torch.from_numpy(array).to(_DEVICE, copy=True), dtype) for array in batch)

    def _pinned(self, batch: Sequence[Array], dtype: torch.dtype) -> Tensors:
        tensors = (self._laid_out(torch.from_numpy(array), dtype) for array in batch)
        return tuple(torch.empty_like(tensor, pin_memory=True).copy_(tensor) for tensor in tensors)

    def _laid_out(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        typed = tensor.to(dtype) if tensor.is_floating_point() else tensor
        return typed.contiguous(memory_format=self._format) if typed.ndim == 4 else typed


def _attention(module: nn.Module) -> str | None:
    """The attention that a transformers model is set to use, or torch's own module; None without attention."""
    for part in module.modules():
        name = getattr(getattr(part, "config", None), "_attn_implementation", None)
        if name is not None:
            return str(name)
    return (
        "nn.MultiheadAttention" if any(isinstance(part, nn.MultiheadAttention) for part in module.modules()) else None
    )


def _cublas_version() -> str:
    """The version that the loaded library reports (cublasGetProperty: 0 major, 1 minor, 2 patch), or why it reports
    none."""
    name = f"libcublas.so.{str(torch.version.cuda).partition('.')[0]}"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return f"unavailable: {error}"
    number = ctypes.c_int()
    parts = []
    for kind in range(3):
        if library.cublasGetProperty(kind, ctypes.byref(number)):
            return f"unavailable: cublasGetProperty({kind}) failed"
        parts.append(str(number.value))
    return ".".join(parts)
