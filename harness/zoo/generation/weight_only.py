"""int8 weights of a decoder's ONNX file: MatMulNBits with 8 bits, which ONNX Runtime's CPU provider multiplies in int8.

Only weights are stored in 8 bits, in blocks of 32 with a scale each. Activations are quantised while running
(accuracy_level 4). Embeddings and normalisations stay in fp32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from harness.core.errors import ExportError
from harness.core.extensions import reason
from harness.zoo.onnx.write import save
from harness.zoo.quiet import quiet

BITS = 8
BLOCK = 32
_IN_INT8 = 4
"""accuracy_level of MatMulNBits: the type that it multiplies in (1 fp32, 2 fp16, 3 bf16, 4 int8)."""
METHOD = f"weights in {BITS} bits, symmetric, blocks of {BLOCK}; activations in int8 while running (MatMulNBits)"


def write_int8(source: Path, target: Path) -> None:
    """Write the file with its products' weights in 8 bits. Raises ExportError where there is nothing to quantise."""
    # A large import that only int8 needs.
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer  # noqa: PLC0415

    try:
        with quiet():
            model = onnx.load(source)
            plain_products(model.graph)
            quantizer = MatMulNBitsQuantizer(
                model, bits=BITS, block_size=BLOCK, is_symmetric=True, accuracy_level=_IN_INT8
            )
            quantizer.process()
            written = quantizer.model.model
    except Exception as error:  # the quantizer raises whatever its passes raise
        raise ExportError(f"{source} could not be quantised: {reason(error)}", "Leave int8 out of its rows.") from error
    if not any(node.op_type == "MatMulNBits" for node in written.graph.node):
        raise ExportError(f"{source} has no product with a constant weight.", "Leave int8 out of its rows.")
    save(written, target)


def plain_products(graph: Any) -> None:
    """Write every product with a constant weight as MatMul of (inputs, outputs): the only form the quantizer knows.

    Gemm becomes MatMul and Add; a Transpose of a constant becomes a constant, as of a tied output layer.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        turned = _transposed(node, constants)
        if turned is not None:
            graph.initializer.append(turned)
            constants[turned.name] = turned
        elif node.op_type == "Gemm" and node.input[1] in constants and _is_plain(node):
            nodes += _as_matmul(node, constants, graph)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _transposed(node: Any, constants: dict[str, Any]) -> Any | None:
    """The constant that a Transpose of a matrix gives; None for other nodes."""
    if node.op_type != "Transpose" or node.input[0] not in constants:
        return None
    values = numpy_helper.to_array(constants[node.input[0]])
    if values.ndim != 2:
        return None
    return numpy_helper.from_array(np.ascontiguousarray(values.T), node.output[0])


def _attributes(node: Any) -> dict[str, Any]:
    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}


def _is_plain(node: Any) -> bool:
    """Whether a Gemm is x·W + b, W stored either way."""
    given = _attributes(node)
    return not given.get("transA") and given.get("alpha", 1.0) == 1.0 and given.get("beta", 1.0) == 1.0


def _as_matmul(node: Any, constants: dict[str, Any], graph: Any) -> list[Any]:
    weight = node.input[1]
    if _attributes(node).get("transB"):
        turned = numpy_helper.from_array(
            np.ascontiguousarray(numpy_helper.to_array(constants[weight]).T), f"{weight}_transposed"
        )
        if turned.name not in constants:
            graph.initializer.append(turned)
            constants[turned.name] = turned
        weight = turned.name
    bias = node.input[2] if len(node.input) > 2 and node.input[2] else None
    product = node.output[0] if bias is None else f"{node.output[0]}_product"
    found = [helper.make_node("MatMul", [node.input[0], weight], [product], f"{node.name}_matmul")]
    if bias is not None:
        found.append(helper.make_node("Add", [product, bias], [node.output[0]], f"{node.name}_bias"))
    return found
