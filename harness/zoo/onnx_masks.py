"""The attention mask of an exported transformer, written in the steps that ONNX Runtime's optimizer knows (pure).

Exporters spell a mask in many ways (transformers 5 gathers it by index and combines three conditions); the optimizer
fuses attention only where it recognises one of a few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MASK = "attention_mask"
_MASKED = -10_000.0
"""Added to scores that the mask hides: exp() of it is 0 in fp32 and fp16 alike, and unlike fp32's lowest number it is
finite in fp16."""


def read_masks(graph: Any) -> int:
    """Write what is added to attention scores as a choice between -10000 and 0; how many additions there were.

    Only what comes from the attention mask and constants alone is touched, and what computed it stays as it was. That
    it means the same is to be checked by running both files on inputs with padding (onnx_variants.check_padding).
    """
    made_by = {name: node for node in graph.node for name in node.output}
    inputs = {entry.name for entry in graph.input}
    found = [(node, _mask_operand(node, made_by, inputs)) for node in _score_additions(graph, made_by)]
    masked = [(node, operand) for node, operand in found if operand is not None]
    if not masked:
        return 0
    masks, constants = _mask_nodes()
    graph.initializer.extend(constants)
    for node, operand in masked:
        node.input[operand] = masks[-1].output[0]
    # In front of everything: nodes stand behind what they read, and these read an input of the graph.
    others = list(graph.node)
    del graph.node[:]
    graph.node.extend([*masks, *others])
    return len(masked)


def _score_additions(graph: Any, made_by: Mapping[str, Any]) -> Iterator[Any]:
    """The Add in front of each Softmax."""
    for node in graph.node:
        before = made_by.get(node.input[0]) if node.op_type == "Softmax" else None
        if before is not None and before.op_type == "Add":
            yield before


def _mask_operand(addition: Any, made_by: Mapping[str, Any], inputs: set[str]) -> int | None:
    """Which operand of an Add comes from the mask alone."""
    for index, name in enumerate(addition.input):
        if _sources(name, made_by, inputs) == {MASK}:
            return index
    return None


def _sources(name: str, made_by: Mapping[str, Any], inputs: set[str]) -> set[str]:
    """Inputs of the graph that a value depends on; one whose shape alone it takes does not count."""
    found, seen, waiting = set(), set(), [name]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in inputs:
            found.add(current)
        elif current in made_by and made_by[current].op_type != "Shape":
            waiting += made_by[current].input
    return found


def _mask_nodes() -> tuple[list[Any], list[Any]]:
    """mask (batch, sequence) → (batch, 1, 1, sequence), 0 where it is 1 and -10000 where it is 0.

    In the very steps that the optimizer looks for: it tells a mask from the scores' own factor by its Where.
    """
    steps: list[tuple[str, list[str], dict[str, Any]]] = [
        ("Unsqueeze", [MASK, "fused_axis_1"], {}),
        ("Unsqueeze", ["fused_mask_0", "fused_axis_2"], {}),
        ("Expand", ["fused_mask_1", "fused_no_shape"], {}),
        ("Sub", ["fused_one", "fused_mask_2"], {}),
        ("Cast", ["fused_mask_3"], {"to": onnx.TensorProto.BOOL}),
        ("Where", ["fused_mask_4", "fused_masked", "fused_seen"], {}),
    ]
    nodes = [
        helper.make_node(kind, inputs, [f"fused_mask_{index}"], f"fused_mask_{index}", **attributes)
        for index, (kind, inputs, attributes) in enumerate(steps)
    ]
    constants = {
        "fused_axis_1": np.array([1], np.int64),
        "fused_axis_2": np.array([2], np.int64),
        "fused_no_shape": np.array([1, 1, 1, 1], np.int64),
        "fused_one": np.array(1, np.int64),
        "fused_masked": np.array(_MASKED, np.float32),
        "fused_seen": np.array(0, np.float32),
    }
    return nodes, [numpy_helper.from_array(values, name) for name, values in constants.items()]
