"""One word for the precision of many layers, and the ONNX file that a precision is computed from (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from harness.core.schemas import NO_FLOATS, OnnxArtifact, Precision


def onnx_precision(precision: Precision) -> Precision:
    """The precision of the ONNX file that a case reads: a library computes in tf32 and bf16 from the fp32 file."""
    return precision if precision in ("fp16", "int8") else "fp32"


def onnx_key(precision: Precision, variant: str | None) -> str:
    """The key of that file in the record of an export, in the form that a setting reads: `fp16`, `fp16-fused`."""
    own = onnx_precision(precision)
    return own if variant is None else f"{own}-{variant}"


def precision_of(layers: Mapping[str, int]) -> str:
    """`layers`: number of computing layers by precision (fp32, bf16, int8, …) → the precision that the whole ran in.

    An int8 model is one with most of its layers in int8: products of two activations and sensitive layers stay in
    fp32 by design. Any other mixture is named with all its parts, `bf16+fp32`, and so is never taken for one of them.
    """
    if 2 * layers.get("int8", 0) > sum(layers.values()):
        return "int8"
    return "+".join(sorted(name for name, count in layers.items() if count)) or "none"


_NOT_COMPUTED = frozenset(
    {"Const", "Input", "Output", "Parameter", "Result", "Reorder", "Convert", "ShapeOf", "Range", "Broadcast"}
)
"""Layers of OpenVINO's execution graph that hold, carry, convert or shape the results of others."""

_PRODUCTS = frozenset(
    {
        *("Convolution", "Deconvolution", "GroupConvolution", "DeformableConvolution", "FullyConnected", "MatMul"),
        *("ScaledDotProductAttention", "MHA", "RNNSeq", "RNNCell", "LLMMLP", "QKVProjection"),
    }
)
"""Layers of that graph whose precision decides the precision of the whole."""

INTEGER = frozenset({"i8", "u8"})
"""In a layer that multiplies these are a quantised network, elsewhere pixels and masks."""


def computing_layers(layers: Iterable[tuple[str, str]]) -> dict[str, int]:
    """(type, runtime precision) of each layer of an OpenVINO graph → number of computing layers by precision.

    Layers that multiply decide where there are any. Else all count that compute floating-point numbers. Empty where
    none does.
    """
    ran = [(kind, precision) for kind, precision in layers if kind not in _NOT_COMPUTED]
    multiplying = [precision for kind, precision in ran if kind in _PRODUCTS]
    known = [name for name in multiplying if name in _FLOATING or name in INTEGER]
    floating = known or [precision for _, precision in ran if precision in _FLOATING]
    return dict(Counter("int8" if name in INTEGER else _FLOATING[name] for name in floating))


def floating_precision(*evidence: Mapping[str, int]) -> str:
    """The floating type of most elements, from the first evidence that has floating types.

    evidence, best first: numbers of elements or tensors by type, in the words of ONNX (`float16`), of ONNX Runtime
    (`tensor(float)`), of OpenVINO (`f32`) or of PyTorch (`torch.bfloat16`). Weights come first; a model without any is
    known by its values, inputs or outputs. Integers are no evidence: ids, shapes and masks are integers in any
    precision. A handful of fp32 scalars in an fp16 file does not make it fp32.

    `integers` where nothing is a floating-point number.
    """
    for types in evidence:
        floating: Counter[str] = Counter()
        for name, count in types.items():
            if name in _FLOATING and count:
                floating[_FLOATING[name]] += count
        if floating:
            return max(floating, key=lambda name: floating[name])
    return NO_FLOATS


def file_precision(file: OnnxArtifact, inputs: Iterable[str], outputs: Iterable[str]) -> str:
    """The floating type of an ONNX file: of its weights, or without any, of its nodes' results, inputs or outputs.

    inputs, outputs: their types in ONNX Runtime's words.
    """
    return floating_precision(file.value_census, file.dtype_census, Counter(inputs), Counter(outputs))


_WORDS: Mapping[str, tuple[str, ...]] = {
    "fp32": ("float", "tensor(float)", "f32", "float32", "torch.float32"),
    "fp16": ("float16", "tensor(float16)", "f16", "torch.float16"),
    "bf16": ("bfloat16", "tensor(bfloat16)", "bf16", "torch.bfloat16"),
    "fp64": ("double", "tensor(double)", "f64", "float64", "torch.float64"),
}
_FLOATING: Mapping[str, str] = {word: name for name, words in _WORDS.items() for word in words}

_QUANTISED = frozenset({"int2", "uint2", "int4", "uint4", "int8", "uint8"})


def has_integer_weights(file: OnnxArtifact) -> bool:
    """Whether initializers of a file have integers of few bits, which a library may multiply as they are."""
    return bool(file.dtype_census.keys() & _QUANTISED)
