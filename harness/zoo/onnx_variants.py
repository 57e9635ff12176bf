"""A transformer's layers fused into ONNX Runtime's own operators: a form of its file that no other library reads.

It holds com.microsoft operators: Attention (projections, scores, softmax and their product in one),
SkipLayerNormalization and BiasGelu. onnxruntime.transformers.optimizer makes them, but knows the attention masks of few
exporters; what it cannot read is first written the way that it can.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from harness.core.errors import ExportError
from harness.core.extensions import reason
from harness.zoo.loaded import Arrays, Loaded
from harness.zoo.onnx_file import save
from harness.zoo.onnx_masks import MASK, read_masks
from harness.zoo.onnx_run import open_session, run_session
from harness.zoo.quiet import quiet
from harness.zoo.reference import relative_l2

_DOMAIN = "com.microsoft"
_LEAVE_OUT = "Leave `fused+graph` out of its settings (SETTINGS=…; `settings:` in the configuration), and `tune`."
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
        raise ExportError(f"{source} could not be fused: {reason(error)}", _LEAVE_OUT) from error
    found = count_fused(fused.model.graph)
    if "Attention" not in found:
        raise ExportError(
            f"ONNX Runtime's optimizer found no attention in {source} (found: {found or 'nothing'}).", _LEAVE_OUT
        )
    if _DOMAIN not in {entry.domain for entry in fused.model.opset_import}:
        fused.model.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    save(fused.model, target)
    return ", ".join(f"{number} {name}" for name, number in found.items())


def count_fused(graph: Any) -> dict[str, int]:
    """Fused operators of a graph by name, those that are there."""
    names = [node.op_type for node in graph.node]
    return {name: names.count(name) for name in _WANTED if name in names}


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
    distance, effect = relative_l2(answers[1], answers[0]), relative_l2(unmasked, answers[0])
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


def _heads_of(loaded: Loaded) -> tuple[int, int]:
    """Attention heads and hidden size. ExportError where the model has none."""
    if loaded.heads is None or loaded.hidden_size is None or MASK not in loaded.input_names:
        raise ExportError("Only text models of the transformers library have attention to fuse.", _LEAVE_OUT)
    return loaded.heads, loaded.hidden_size
