"""The work that measures the limits of a CPU: products and copies of one thread, by each library of a backend.

A limit that is measured too low would call sound rows impossible, and which library has the fastest kernel differs from
CPU to CPU: each is tried. Imported in a process whose thread pools have one thread (harness/processes/cpu_peaks.py).
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.backends.base import Array
from harness.core.errors import UnavailableError

PeakCall = Callable[[], object]

SIZES = (256, 512, 1024)
"""Edges of the square matrices. The small ones stay in a core's own cache and end before a busy machine's scheduler
takes the core away; for the large ones a call costs next to nothing, even where a core has a matrix unit (AMX)."""


def _library(name: str) -> Any:
    """The module; None where it is not installed or cannot be loaded."""
    try:
        return importlib.import_module(name)
    except Exception:  # a broken installation may raise anything
        return None


onnx, openvino, onnxruntime, torch = map(_library, ("onnx", "openvino", "onnxruntime", "torch"))


PIECE_BYTES = 4 << 20
"""Size of one copy: some hundred microseconds, long compared with the cost of the call, and too short for a busy
machine's scheduler to take the core away. A source is larger than caches: no piece is still cached at its next turn."""


def product(name: str, size: int) -> PeakCall:
    """A call that multiplies two square matrices of that edge once, on one thread; `name` is one of PRODUCTS.

    Raises UnavailableError where its library is missing, and the library's own error where it cannot compute this here.
    """
    make: Callable[[int], PeakCall]
    make, *libraries = PRODUCTS[name]
    if None in libraries:
        raise UnavailableError(f"the library of {name} is not installed.", "Install it beside Inferometer.")
    return make(size)


def copy(size_bytes: int) -> PeakCall:
    """A call that copies the next PIECE_BYTES of a source of so many, from the beginning again after the last."""
    pieces = max(1, size_bytes // PIECE_BYTES)
    source = np.ones((pieces, PIECE_BYTES), dtype=np.uint8)
    target = np.ones_like(source)  # written once, so that no call waits for pages
    pairs = itertools.cycle([*zip(target, source, strict=True)])
    return lambda: np.copyto(*next(pairs))


def _numbers(size: int) -> Array:
    # Random: a processor spends less power on zeros, and a library may look for them.
    return np.random.default_rng(size).standard_normal((size, size), dtype=np.float32)


def _integers(size: int, low: int, high: int, dtype: Any) -> Array:
    return np.random.default_rng(size).integers(low, high, (size, size), dtype=dtype)


def _numpy(size: int) -> PeakCall:
    left, right, answer = _numbers(size), _numbers(size), np.empty((size, size), dtype=np.float32)
    return lambda: np.matmul(left, right, out=answer)


def _torch_mm(dtype: str) -> Callable[[int], PeakCall]:
    def make(size: int) -> PeakCall:
        torch.set_num_threads(1)
        left, right = (torch.from_numpy(_numbers(size)).to(getattr(torch, dtype)) for _ in range(2))
        answer = torch.empty_like(left)
        return lambda: torch.mm(left, right, out=answer)

    return make


def _torch_convolution(size: int) -> PeakCall:
    """A matrix product as a 1 x 1 convolution, for which PyTorch takes oneDNN where torch.mm takes a BLAS."""
    torch.set_num_threads(1)
    width = 32
    values = torch.from_numpy(_numbers(size)).reshape(1, size, size // width, width)
    values = values.contiguous(memory_format=torch.channels_last)
    weight = torch.from_numpy(_numbers(size)).reshape(size, size, 1, 1)
    return lambda: torch.conv2d(values, weight)


def _torch_int8(size: int) -> PeakCall:
    torch.set_num_threads(1)
    left, right = (torch.from_numpy(_integers(size, -100, 100, np.int8)) for _ in range(2))
    return lambda: torch._int_mm(left, right)


def _onnxruntime(operator: str, left: Array, right: Array, answer: Array) -> PeakCall:
    """One node in a session; the right matrix is a constant, as weights are."""
    helper, kind = onnx.helper, onnx.helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(operator, ["left", "right"], ["answer"])],
        "product",
        [helper.make_tensor_value_info("left", kind(left.dtype), left.shape)],
        [helper.make_tensor_value_info("answer", kind(answer.dtype), answer.shape)],
        [onnx.numpy_helper.from_array(right, "right")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding, value = session.io_binding(), onnxruntime.OrtValue.ortvalue_from_numpy
    binding.bind_ortvalue_input("left", value(left))
    binding.bind_ortvalue_output("answer", value(answer))
    return lambda: session.run_with_iobinding(binding)


def _onnxruntime_fp32(size: int) -> PeakCall:
    return _onnxruntime("MatMul", _numbers(size), _numbers(size), np.empty((size, size), dtype=np.float32))


def _onnxruntime_int8(size: int) -> PeakCall:
    left, right = _integers(size, 0, 255, np.uint8), _integers(size, -100, 100, np.int8)
    return _onnxruntime("MatMulInteger", left, right, np.empty((size, size), dtype=np.int32))


def _openvino(hint: str) -> Callable[[int], PeakCall]:
    def make(size: int) -> PeakCall:
        from openvino import opset13  # noqa: PLC0415 - only where OpenVINO is installed

        left = opset13.parameter([size, size], np.float32)
        model = openvino.Model(
            [opset13.matmul(left, opset13.constant(_numbers(size)), False, False)], [left], "product"
        )
        settings = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
        request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
        request.set_input_tensor(openvino.Tensor(_numbers(size), shared_memory=True))
        return lambda: request.infer(share_outputs=True)

    return make


PRODUCTS: Mapping[str, tuple[Any, ...]] = {
    "NumPy": (_numpy, np),
    "torch.mm fp32": (_torch_mm("float32"), torch),
    "torch.conv2d": (_torch_convolution, torch),
    "ONNX Runtime MatMul": (_onnxruntime_fp32, onnxruntime, onnx),
    "OpenVINO MatMul f32": (_openvino("f32"), openvino),
    "torch.mm bf16": (_torch_mm("bfloat16"), torch),
    "OpenVINO MatMul bf16": (_openvino("bf16"), openvino),
    "torch.mm fp16": (_torch_mm("float16"), torch),
    "torch._int_mm": (_torch_int8, torch),
    "ONNX Runtime MatMulInteger": (_onnxruntime_int8, onnxruntime, onnx),
}
"""By name, the function that makes the call from the edge, and the libraries that it needs. The precision of each is in
harness/processes/cpu_peaks.py, which must not import them."""
