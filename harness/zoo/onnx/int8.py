"""Write an ONNX file with int8 weights from the fp32 file, by ONNX Runtime's own quantisation (decision 0007).

`dynamic` finds the scale of each activation while running: MatMul, Gemm and embeddings, for transformers and models of
your own. `static` fixes it beforehand from calibration inputs, and writes quantise and dequantise nodes around every
operator (QDQ): for convolutional networks, which dynamic quantisation slows down. TensorRT takes a static form of its
own: write_symmetric().
"""

from __future__ import annotations

import dataclasses
import platform
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx

from harness.core.errors import ExportError, reason
from harness.core.host.environment import cpu_flags
from harness.zoo.input_files import Arrays
from harness.zoo.inputs.own import varied_samples
from harness.zoo.loaded import Inputs, Loaded
from harness.zoo.onnx import torch_to_onnx
from harness.zoo.quiet import quiet

CALIBRATION_SAMPLES = 64
"""32, 64 and 128 moved the distance of EfficientNet-Lite0 by less than 2% (decision 0007)."""

_DYNAMIC_OPERATORS = ["MatMul", "Gemm", "Gather", "Attention"]
"""Not Conv: ONNX Runtime has no ConvInteger for signed weights, and only a slow ConvInteger for unsigned weights."""
_FOR_TENSORRT = ["Conv", "Gemm", "MatMul"]
"""Products, whose inputs are quantised: TensorRT moves the nodes itself to where whole fusions run in int8."""
_ADDITION = "Add"
_CHUNK = 8


def calibration_inputs(loaded: Loaded, parity_samples: int) -> Inputs:
    """Inputs that come after the parity inputs, so that no row is checked on its own calibration inputs."""
    made = loaded.make_inputs(parity_samples + CALIBRATION_SAMPLES, next(iter(loaded.lengths), None))
    arrays = {name: values[parity_samples:] for name, values in made.arrays.items()}
    if not len(next(iter(arrays.values()))):  # of the user's own, which all are parity inputs
        arrays = varied_samples(made.arrays, CALIBRATION_SAMPLES)
        made = dataclasses.replace(made, source=f"variations of {made.source}")
    return dataclasses.replace(made, arrays=arrays)


def write_int8(source: Path, target: Path, calibration: Inputs | None) -> str:
    """Quantise `source` into `target`, statically where there are calibration inputs; returns how, in words.

    Weights are int8 per channel, activations uint8 with a zero point: with signed symmetric activations
    ONNX Runtime does not fuse half of a QDQ graph, and OpenVINO runs unsigned activations as well. Raises ExportError.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static  # noqa: PLC0415

    reduced = needs_reduced_range(platform.machine(), cpu_flags())
    kinds = {"per_channel": True, "reduce_range": reduced, "weight_type": QuantType.QInt8}

    def quantised(prepared: Path, made: Path, how: Mapping[str, bool]) -> None:
        if calibration is None:
            quantize_dynamic(prepared, made, op_types_to_quantize=_DYNAMIC_OPERATORS, **kinds, **how)
        else:
            reader = _CalibrationReader(calibration.arrays)
            quantize_static(prepared, made, reader, activation_type=QuantType.QUInt8, **kinds, **how)

    _write(source, target, quantised)
    return _method_of(calibration, reduced)


def write_symmetric(source: Path, target: Path, calibration: Inputs) -> str:
    """Quantise `source` statically into TensorRT's form: symmetric int8 activations and weights.

    Weights stay in fp32 before a pair of nodes of their own, and biases are not quantised: TensorRT's parser asks for
    both (NVIDIA, "Working with quantized types", on explicit quantisation). Where a convolution's output is added to
    another activation, as in a residual block, that other operand is quantised too and the convolution's output is not:
    only then do convolution, addition and activation become one int8 kernel (github.com/NVIDIA/TensorRT issue 1992).
    Raises ExportError.
    """
    from onnxruntime.quantization import QuantType, quantize_static  # noqa: PLC0415

    options = {
        "ActivationSymmetric": True,
        "WeightSymmetric": True,
        "AddQDQPairToWeight": True,
        "QuantizeBias": False,
        "DedicatedQDQPair": True,
        "OpTypesToExcludeOutputQuantization": [*_FOR_TENSORRT, _ADDITION],
    }
    residual: list[str] = []

    def quantised(prepared: Path, made: Path, how: Mapping[str, bool]) -> None:
        graph = onnx.load(prepared, load_external_data=False).graph
        residual[:] = residual_additions(graph)
        other = [node.name for node in graph.node if node.op_type == _ADDITION and node.name not in residual]
        quantize_static(
            prepared,
            made,
            _CalibrationReader(calibration.arrays),
            op_types_to_quantize=[*_FOR_TENSORRT, _ADDITION],
            nodes_to_exclude=other,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            extra_options=options,
            **how,
        )

    _write(source, target, quantised, leave_convolutions)
    additions = f" and on the other operand of {len(residual)} additions to a convolution" if residual else ""
    samples = len(next(iter(calibration.arrays.values())))
    return (
        f"static QDQ before {', '.join(_FOR_TENSORRT)}{additions}: int8 weights per channel and int8 activations, "
        f"both symmetric, from the extremes of {samples} calibration inputs ({calibration.source})"
    )


def residual_additions(graph: Any) -> list[str]:
    """Names of the additions of two activations of which at least one is the output of a convolution."""
    made_by = {name: node for node in graph.node for name in node.output}
    inputs = {entry.name for entry in graph.input}
    additions = []
    for node in graph.node:
        if node.op_type != _ADDITION or not all(name in made_by or name in inputs for name in node.input):
            continue
        sources = [made_by[name].op_type for name in node.input if name in made_by]
        if "Conv" in sources and "Constant" not in sources:
            additions.append(node.name)
    return additions


def leave_convolutions(graph: Any) -> None:
    """Where both operands of an addition are quantised, take the nodes away from one that a convolution computes."""
    made_by = {name: node for node in graph.node for name in node.output}
    readers = Counter(name for node in graph.node for name in node.input)
    dropped: set[str] = set()
    for node in graph.node:
        if node.op_type != _ADDITION:
            continue
        pairs = [_quantised_value(name, made_by) for name in node.input]
        if None in pairs:
            continue
        for place, value in enumerate(pairs):
            source = made_by.get(str(value))
            if source is not None and source.op_type == "Conv":
                dequantise = made_by[node.input[place]]
                if readers[dequantise.output[0]] == 1:
                    dropped |= {dequantise.output[0], dequantise.input[0]}
                node.input[place] = str(value)
                break
    kept = [node for node in graph.node if not dropped.intersection(node.output)]
    del graph.node[:]
    graph.node.extend(kept)


def _quantised_value(name: str, made_by: Mapping[str, Any]) -> str | None:
    """The value that reaches `name` through a quantise and a dequantise node; None where there is no such pair."""
    dequantise = made_by.get(name)
    if dequantise is None or dequantise.op_type != "DequantizeLinear":
        return None
    quantise = made_by.get(dequantise.input[0])
    return None if quantise is None or quantise.op_type != "QuantizeLinear" else str(quantise.input[0])


def _write(
    source: Path,
    target: Path,
    quantised: Callable[[Path, Path, Mapping[str, bool]], None],
    finish: Callable[[Any], None] = lambda graph: None,
) -> None:
    """Prepare `source`, quantise it with the function given, change its graph with `finish`, save `target`.

    Raises ExportError.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: PLC0415

    large = torch_to_onnx.weights_beside(source).is_file()
    try:
        with quiet(), tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
            prepared, made = Path(folder) / "prepared.onnx", Path(folder) / "quantised.onnx"
            # Its symbolic shape inference gives up on the attention mask of transformers; ONNX's own is enough.
            beside = {"save_as_external_data": large, "all_tensors_to_one_file": True}
            quant_pre_process(source, prepared, skip_symbolic_shape=True, skip_optimization=large, **beside)
            quantised(prepared, made, {"use_external_data_format": large})
            model = onnx.load(made)
            finish(model.graph)
            torch_to_onnx.save(model, target)
    except Exception as error:  # the quantiser raises whatever its passes raise
        raise ExportError(
            f"{source} could not be quantised to int8: {reason(error)}", "Leave int8 out of its rows."
        ) from error


def needs_reduced_range(machine: str, flags: frozenset[str]) -> bool:
    """True on x86 without VNNI, whose 8-bit dot products saturate at 16 bits: weights then get 7 bits.

    Source: onnxruntime.ai, "Quantize ONNX models", on reduce_range.
    """
    return machine in ("x86_64", "AMD64") and not flags & {"avx512_vnni", "avx_vnni"}


class _CalibrationReader:
    """The data reader of ONNX Runtime's calibration: a batch by input name, None at the end."""

    def __init__(self, arrays: Arrays) -> None:
        self._batches = _batches(arrays)

    def get_next(self) -> Arrays | None:
        return next(self._batches, None)


def _batches(arrays: Arrays) -> Iterator[Arrays]:
    samples = len(next(iter(arrays.values())))
    for start in range(0, samples, _CHUNK):
        yield {name: values[start : start + _CHUNK] for name, values in arrays.items()}


def _method_of(calibration: Inputs | None, reduced: bool) -> str:
    bits = "int8 weights per channel" + (" (7 bits of them: this CPU lacks VNNI)" if reduced else "")
    if calibration is None:
        operators = ", ".join(_DYNAMIC_OPERATORS)
        return f"dynamic: {bits}, uint8 embeddings, uint8 activations scaled while running; {operators} only"
    samples = len(next(iter(calibration.arrays.values())))
    return (
        f"static QDQ: {bits}, uint8 activations between the extremes of {samples} calibration inputs, "
        f"which are not among the parity inputs but of their source ({calibration.source})"
    )
