"""Further forms of an ONNX file for runtimes with operators of their own: a transformer's layers fused for ONNX Runtime.

The `fused` form holds com.microsoft operators: Attention (projections, scores, softmax and their product in one),
SkipLayerNormalization and BiasGelu. onnxruntime.transformers.optimizer makes them, but knows the attention masks of few
exporters; what it cannot read is first written the way that it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from harness.core.errors import ExportError
from harness.zoo.loaded import Arrays, Loaded
from harness.zoo.onnx_file import save
from harness.zoo.onnx_run import open_session, run_session
from harness.zoo.quiet import quiet

FUSED = "fused"
MASK = "attention_mask"
_MASKED = -10_000.0
"""Added to scores that the mask hides: exp() of it is 0 in fp32 and fp16 alike, and unlike fp32's lowest number it is
finite in fp16."""
_WANTED = ("Attention", "SkipLayerNormalization", "BiasGelu", "EmbedLayerNormalization", "FastGelu")
_PADDING_GATE = 1e-4
"""Relative L2 between the file and its fused form where part of each row is padding, both in fp32."""


def write_fused(source: Path, target: Path, loaded: Loaded) -> str:
    """Write the fp32 file with the layers of a BERT-like encoder fused; returns what was found, in words.

    The Attention operator takes the number of tokens of each row: padding must be on the right, as tokenizers of these
    models put it. Raises ExportError where the model has no attention heads or no attention was found.
    """
    # Imports much, and only this needs it.
    from onnxruntime.transformers.fusion_options import FusionOptions  # noqa: PLC0415
    from onnxruntime.transformers.optimizer import optimize_model  # noqa: PLC0415

    heads, hidden = _heads_of(loaded)
    model = onnx.load(source)
    try:
        with quiet():
            read_masks(model.graph)
            fused = optimize_model(
                model,
                model_type="bert",
                num_heads=heads,
                hidden_size=hidden,
                optimization_options=FusionOptions("bert"),
                opt_level=0,
            )
            fused.topological_sort()
    except Exception as error:  # the optimizer raises whatever its passes raise
        raise ExportError(f"{source} could not be fused: {type(error).__name__}: {error}", _LEAVE_OUT) from error
    found = count_fused(fused.model.graph)
    if "Attention" not in found:
        raise ExportError(
            f"ONNX Runtime's optimizer found no attention in {source} (found: {found or 'nothing'}).", _LEAVE_OUT
        )
    save(fused.model, target)
    return ", ".join(f"{number} {name}" for name, number in found.items())


_LEAVE_OUT = "Leave the `fused` setting out for this model (SETTINGS=…; `settings:` in the configuration)."


def count_fused(graph: Any) -> dict[str, int]:
    """Fused operators of a graph by name, those that are there."""
    names = [node.op_type for node in graph.node]
    return {name: names.count(name) for name in _WANTED if name in names}


def read_masks(graph: Any) -> int:
    """Write what is added to attention scores as (1 - mask) * -10000, which the optimizer reads; how many there were.

    Only what comes from the attention mask and constants alone is touched. That it means the same is checked by running
    both files on inputs with padding (check_padding).
    """
    made_by = {name: node for node in graph.node for name in node.output}
    inputs = {entry.name for entry in graph.input}
    additions = [node for node in _score_additions(graph, made_by) if _mask_operand(node, made_by, inputs) is not None]
    if not additions:
        return 0
    masks, constants = _mask_nodes()
    graph.initializer.extend(constants)
    for node in additions:
        node.input[_required(_mask_operand(node, made_by, inputs))] = masks[-1].output[0]
    # In front of everything: nodes stand behind what they read, and these read an input of the graph.
    others = list(graph.node)
    del graph.node[:]
    graph.node.extend([*masks, *others])
    return len(additions)


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
    """Inputs of the graph that a value depends on."""
    found, seen, waiting = set(), set(), [name]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in inputs:
            found.add(current)
        elif current in made_by:
            waiting += made_by[current].input
    return found


def _mask_nodes() -> tuple[list[Any], list[Any]]:
    """mask (batch, sequence) → (batch, 1, 1, sequence), 0 where it is 1 and -10000 where it is 0."""
    from onnx import helper, numpy_helper  # noqa: PLC0415

    steps = [
        ("Unsqueeze", [MASK, "fused_axis_1"]),
        ("Unsqueeze", ["fused_mask_0", "fused_axis_2"]),
        ("Cast", ["fused_mask_1"]),
        ("Sub", ["fused_one", "fused_mask_2"]),
        ("Mul", ["fused_mask_3", "fused_masked"]),
    ]
    attributes: dict[str, dict[str, Any]] = {"Cast": {"to": onnx.TensorProto.FLOAT}}
    nodes = [
        helper.make_node(kind, inputs, [f"fused_mask_{index}"], f"fused_mask_{index}", **attributes.get(kind, {}))
        for index, (kind, inputs) in enumerate(steps)
    ]
    constants = {
        "fused_axis_1": np.array([1], np.int64),
        "fused_axis_2": np.array([2], np.int64),
        "fused_one": np.array(1, np.float32),
        "fused_masked": np.array(_MASKED, np.float32),
    }
    return nodes, [numpy_helper.from_array(values, name) for name, values in constants.items()]


def _required(index: int | None) -> int:
    if index is None:
        raise TypeError("an addition without a mask was chosen")
    return index


def check_padding(plain: Path, fused: Path, inputs: Arrays, threads: int) -> float:
    """Run both files with the last third of every row masked; relative L2 of their outputs over the other tokens.

    The inputs that are measured have no padding, so that nothing else would show a mask that is not obeyed. Raises
    ExportError where the two are not the same, or where the mask makes no difference to either.
    """
    mask = np.ones_like(inputs[MASK])
    kept = mask.shape[1] - max(1, mask.shape[1] // 3)
    mask[:, kept:] = 0
    padded = {**inputs, MASK: mask}
    answers = [_rows(run_session(open_session(path, threads), padded), kept) for path in (plain, fused)]
    unmasked = _rows(run_session(open_session(fused, threads), inputs), kept)
    distance, effect = _relative_l2(answers[1], answers[0]), _relative_l2(unmasked, answers[0])
    if not distance <= _PADDING_GATE < effect:
        raise ExportError(
            f"{fused.name} does not obey the attention mask: {distance:.1e} away from the plain file on padded inputs "
            f"(allowed {_PADDING_GATE:g}; without the mask {effect:.1e}).",
            _LEAVE_OUT,
        )
    return distance


def _rows(outputs: Arrays, kept: int) -> Any:
    """The first output without what belongs to padding, whose values mean nothing."""
    first = next(iter(outputs.values()))
    return first[:, :kept] if first.ndim == 3 else first


def _relative_l2(values: Any, reference: Any) -> float:
    return float(np.linalg.norm(values - reference) / np.linalg.norm(reference))


def _heads_of(loaded: Loaded) -> tuple[int, int]:
    """Attention heads and hidden size, from the configuration of a transformers model."""
    config = getattr(getattr(loaded.module, "model", None), "config", None)
    heads, hidden = getattr(config, "num_attention_heads", None), getattr(config, "hidden_size", None)
    if not isinstance(heads, int) or not isinstance(hidden, int) or MASK not in loaded.input_names:
        raise ExportError("Only text models of the transformers library have attention to fuse.", _LEAVE_OUT)
    return heads, hidden
