"""One word for the precision of many layers (pure)."""

from __future__ import annotations

from collections.abc import Mapping


def precision_of(layers: Mapping[str, int]) -> str:
    """`layers`: number of computing layers by precision (fp32, bf16, int8, …) → the precision that the whole ran in.

    An int8 model is one with most of its layers in int8: products of two activations and sensitive layers stay in
    fp32 by design. Any other mixture is named with all its parts, `bf16+fp32`, and so never passes for one of them.
    """
    if 2 * layers.get("int8", 0) > sum(layers.values()):
        return "int8"
    return "+".join(sorted(name for name, count in layers.items() if count)) or "none"


def weights_precision(census: Mapping[str, int]) -> str:
    """`census`: weight elements by ONNX type → the floating type that holds most of them.

    A handful of fp32 scalars in an fp16 file does not make it fp32.
    """
    names = {"float": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    floating = {names[element]: count for element, count in census.items() if element in names}
    return max(floating, key=lambda name: floating[name], default="none")
