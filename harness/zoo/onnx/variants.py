"""Further forms of a model's ONNX files, by `<precision>-<form>`; each is written only where a plan asks for it.

opset17   for TensorRT 8.6: an older operator set, from the exporter that still writes it; in int8, symmetric QDQ
padded    as opset17; convolutions of a few channels get eight, for kernels that ask for them
fused     a transformer's layers as ONNX Runtime's own operators, which no other library reads
packed    as fused; padding is removed before the first attention and restored at the end, by operators for CUDA alone
"""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from harness.core.errors import ExportError, reason
from harness.core.host import limits
from harness.core.layout import ModelFolder
from harness.core.padding import MASK
from harness.core.schemas import Precision
from harness.zoo.identity import ExportChoices
from harness.zoo.input_files import Arrays
from harness.zoo.loaded import Inputs, Loaded, StepTimer
from harness.zoo.onnx import int8, torch_to_onnx
from harness.zoo.onnx.torch_to_onnx import save
from harness.zoo.quiet import quiet
from harness.zoo.reference import open_session, relative_l2, run_session

_MASKED = -10_000.0
"""Added to scores that the mask hides: exp() of it is 0 in fp32 and fp16 alike, and unlike fp32's lowest number it is
finite in fp16."""


def read_masks(graph: Any) -> int:
    """Write the mask added to attention scores as a choice between -10000 and 0; returns the number of additions.

    Changes only operands that depend on the attention mask and constants alone; the nodes that computed them stay. Run
    both files on inputs with padding to check that the meaning is the same (check_padding).
    """
    made_by = {name: node for node in graph.node for name in node.output}
    inputs = {entry.name for entry in graph.input}
    operands = [(node, _mask_operand(node, made_by, inputs)) for node in _score_additions(graph, made_by)]
    masked = [(node, operand) for node, operand in operands if operand is not None]
    if not masked:
        return 0
    masks, constants = _mask_nodes()
    graph.initializer.extend(constants)
    for node, operand in masked:
        node.input[operand] = masks[-1].output[0]
    # Before all other nodes: a node comes after the values that it reads, and these read an input of the graph.
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
    """The operand of an Add that comes from the mask alone."""
    for index, name in enumerate(addition.input):
        if _sources(name, made_by, inputs) == {MASK}:
            return index
    return None


def _sources(name: str, made_by: Mapping[str, Any], inputs: set[str]) -> set[str]:
    """Inputs of the graph that a value depends on; an input of which it uses only the shape does not count."""
    sources, seen, waiting = set(), set(), [name]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in inputs:
            sources.add(current)
        elif current in made_by and made_by[current].op_type != "Shape":
            waiting += made_by[current].input
    return sources


def _mask_nodes() -> tuple[list[Any], list[Any]]:
    """mask (batch, sequence) → (batch, 1, 1, sequence), 0 where it is 1 and -10000 where it is 0.

    In exactly the steps that the optimizer looks for: by the Where it distinguishes a mask from the scores' own factor.
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


_DOMAIN = "com.microsoft"
_LEAVE_OUT = "Leave {} out of its settings (SETTINGS=…; `settings:` in the configuration), and `tune`."
_LEAVE_FUSED_OUT = _LEAVE_OUT.format("`fused+graph` and `fused+packed`")
_WANTED = ("Attention", "SkipLayerNormalization", "BiasGelu", "EmbedLayerNormalization", "FastGelu")
_LEAVE_PACKED_OUT = _LEAVE_OUT.format("`fused+packed`")
_PADDING_TOLERANCE = 1e-4
"""Relative L2 between the file and its fused form where part of each row is padding, both in fp32."""


def write_fused(source: Path, target: Path, loaded: Loaded) -> str:
    """Write the fp32 file with the layers of a BERT-like encoder fused; returns the fused operators, in words.

    The Attention operator takes the number of tokens of each row: padding must be on the right, as tokenizers of these
    models put it. Raises ExportError where the model has no attention heads or no attention is fused.
    """
    # A large import that only this function needs.
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
        raise ExportError(f"{source} could not be fused: {reason(error)}", _LEAVE_FUSED_OUT) from error
    fused_nodes = count_fused(fused.model.graph)
    if "Attention" not in fused_nodes:
        raise ExportError(
            f"ONNX Runtime's optimizer found no attention in {source} (found: {fused_nodes or 'nothing'}).",
            _LEAVE_FUSED_OUT,
        )
    if _DOMAIN not in {entry.domain for entry in fused.model.opset_import}:
        fused.model.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    save(fused.model, target)
    return ", ".join(f"{number} {name}" for name, number in fused_nodes.items())


def count_fused(graph: Any) -> dict[str, int]:
    """Fused operators of a graph by name, those that are there."""
    names = [node.op_type for node in graph.node]
    return {name: names.count(name) for name in _WANTED if name in names}


def check_padding(plain: Path, fused: Path, inputs: Arrays, threads: int) -> float:
    """Run both files with the last third of every row masked; relative L2 of their outputs over the other tokens.

    The measured inputs may have no padding: then no other check would show a mask without effect. Raises ExportError
    where the two differ, or where the mask makes no difference to either.
    """
    every, mask = np.ones_like(inputs[MASK]), np.ones_like(inputs[MASK])
    kept = mask.shape[1] - max(1, mask.shape[1] // 3)
    mask[:, kept:] = 0
    padded = {**inputs, MASK: mask}
    answers = [_rows(run_session(open_session(path, threads), padded), kept) for path in (plain, fused)]
    unmasked = _rows(run_session(open_session(fused, threads), {**inputs, MASK: every}), kept)
    distance, effect = relative_l2(answers[1], answers[0]), relative_l2(unmasked, answers[0])
    if not distance <= _PADDING_TOLERANCE < effect:
        raise ExportError(
            f"{fused.name} does not obey the attention mask: {distance:.1e} away from the plain file on padded inputs "
            f"(allowed {_PADDING_TOLERANCE:g}; without the mask {effect:.1e}).",
            _LEAVE_FUSED_OUT,
        )
    return distance


def _rows(outputs: Arrays, kept: int) -> Any:
    """The first output without the values of padding, which mean nothing."""
    first = next(iter(outputs.values()))
    return first[:, :kept] if first.ndim == 3 else first


def _heads_of(loaded: Loaded) -> tuple[int, int]:
    """Attention heads and hidden size. ExportError where the model has none."""
    if loaded.heads is None or loaded.hidden_size is None or MASK not in loaded.input_names:
        raise ExportError("Only text models of the transformers library have attention to fuse.", _LEAVE_FUSED_OUT)
    return loaded.heads, loaded.hidden_size


CHANNELS = 8
"""Tensor Cores read fp16 in vectors of eight elements, of a pixel where channels come last."""
_LEAVE_PADDED_OUT = _LEAVE_OUT.format("`nhwc+tf32+bias+padded+graph`")


def pad_channels(graph: Any) -> int:
    """Give each convolution of fewer channels than CHANNELS that many: zeros after the others, in its input by a Pad
    node and in its weights. The result is the same. Returns the number of convolutions changed.
    """
    weights = {entry.name: entry for entry in graph.initializer}
    readers = Counter(name for node in graph.node for name in node.input)
    nodes: list[Any] = []
    changed = 0
    for node in graph.node:
        entry = weights.get(node.input[1]) if node.op_type == "Conv" else None
        group = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
        if entry is not None and group == 1 and entry.dims[1] < CHANNELS and readers[entry.name] == 1:
            values = numpy_helper.to_array(entry)
            more = CHANNELS - values.shape[1]
            widened = np.pad(values, [(0, 0), (0, more), *[(0, 0)] * (values.ndim - 2)])
            entry.CopyFrom(numpy_helper.from_array(widened, entry.name))
            pads = np.zeros(2 * values.ndim, np.int64)
            pads[values.ndim + 1] = more
            graph.initializer.append(numpy_helper.from_array(pads, f"{node.name}_pads"))
            wide = f"{node.name}_padded"
            nodes.append(helper.make_node("Pad", [node.input[0], f"{node.name}_pads"], [wide], f"{node.name}_pad"))
            node.input[0] = wide
            changed += 1
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return changed


FailureRecorder = Callable[[str], AbstractContextManager[None]]
"""Takes the name of a file; an error inside is recorded as the reason why the file is missing."""

_OLD_OPSET = 17


def precision_of(name: str) -> Precision:
    """`fp16-fused` → fp16."""
    precision = name.partition("-")[0]
    return precision if precision in ("fp16", "int8") else "fp32"  # type: ignore[return-value]


def form_of(name: str) -> str:
    """`fp16-fused` → fused; empty for a plain file."""
    return name.partition("-")[2]


def write_all(
    names: Sequence[str],
    loaded: Loaded,
    examples: Arrays,
    folder: ModelFolder,
    options: ExportChoices,
    step: StepTimer,
    attempt: FailureRecorder,
    calibration: Callable[[], Inputs],
) -> dict[str, str]:
    """Write the named forms' files, and the fp32 file of each; how each was made, in words.

    attempt: surrounds the making of a file, and of files made from it. calibration: makes the inputs for the scales of
    int8; called only where int8 is requested.
    """
    made: dict[str, str] = {}
    for form in dict.fromkeys(map(form_of, names)):
        fp32, fp16, int8_ = (f"{precision}-{form}" for precision in ("fp32", "fp16", "int8"))
        with step(f"onnx-{form}"), attempt(fp32):
            made[fp32] = _WRITERS[form](loaded, examples, folder, options)
            if fp16 in names:
                with attempt(fp16):
                    torch_to_onnx.write_fp16(folder.onnx(fp32), folder.onnx(fp16))
                    made[fp16] = made[fp32] + ", onnxruntime.transformers.float16"
            if int8_ in names and loaded.quantised is not None:
                shutil.copyfile(folder.onnx(fp32), folder.onnx(int8_))
                made[int8_] = made[fp32]
            elif int8_ in names:
                with attempt(int8_):
                    how = int8.write_symmetric(folder.onnx(fp32), folder.onnx(int8_), calibration())
                    made[int8_] = f"{made[fp32]}, onnxruntime.quantization: {how}"
    return made


def _opset17(loaded: Loaded, examples: Arrays, folder: ModelFolder, options: ExportChoices) -> str:
    return torch_to_onnx.write_fp32(loaded, examples, folder.onnx("fp32-opset17"), _older(options))


def _older(options: ExportChoices) -> ExportChoices:
    return dataclasses.replace(options, exporter="torchscript", opset=_OLD_OPSET)


def _padded(loaded: Loaded, examples: Arrays, folder: ModelFolder, options: ExportChoices) -> str:
    path = folder.onnx("fp32-padded")
    how = torch_to_onnx.write_fp32(loaded, examples, path, _older(options))
    model = onnx.load(path)
    padded = pad_channels(model.graph)
    if not padded:
        raise ExportError(f"{path} has no convolution of fewer than {CHANNELS} channels.", _LEAVE_PADDED_OUT)
    save(model, path)
    return f"{how}, {padded} convolutions padded to {CHANNELS} channels"


def _fused(loaded: Loaded, examples: Arrays, folder: ModelFolder, options: ExportChoices) -> str:
    """The fused form, made from the older export, in which the optimiser also finds the embeddings; in the export at
    opset 20 it does not (ONNX Runtime 1.32, MiniLM and BERT)."""
    how, count = _write_checked_fused(folder.onnx("fp32-fused"), loaded, examples, folder, options)
    return f"{how}, fused by onnxruntime.transformers: {count}"


def _write_checked_fused(
    path: Path, loaded: Loaded, examples: Arrays, folder: ModelFolder, options: ExportChoices
) -> tuple[str, str]:
    """Write a fused file that obeys its mask; how it was exported, and its fused operators, in words."""
    how = torch_to_onnx.write_fp32(loaded, examples, path, _older(options))
    count = write_fused(path, path, loaded)
    check_padding(folder.onnx("fp32"), path, examples, limits.thread_count())
    return how, count


def _packed(loaded: Loaded, examples: Arrays, folder: ModelFolder, options: ExportChoices) -> str:
    """The packed form. Its operators run on CUDA alone, so the mask is checked before they replace the fused ones."""
    packed = folder.onnx("fp32-packed")
    how, _ = _write_checked_fused(packed, loaded, examples, folder, options)
    return f"{how}, fused and packed by onnxruntime.transformers: {remove_padding(packed)} PackedAttention"


def remove_padding(path: Path) -> int:
    """Rewrite a fused file in ONNX Runtime's packing mode; returns the number of PackedAttention nodes. Raises
    ExportError where there is none."""
    # As in write_fused.
    from onnxruntime.transformers.convert_to_packing_mode import PackingMode  # noqa: PLC0415
    from onnxruntime.transformers.onnx_model import OnnxModel  # noqa: PLC0415

    packing = PackingMode(OnnxModel(onnx.load(path)))
    try:
        with quiet():
            packing.convert(use_symbolic_shape_infer=False)
            packing.model.topological_sort()
    except Exception as error:  # as the optimizer
        raise ExportError(f"Padding could not be removed in {path}: {reason(error)}", _LEAVE_PACKED_OUT) from error
    operators = [node.op_type for node in packing.model.model.graph.node]
    if "RemovePadding" not in operators or "Attention" in operators:
        raise ExportError(f"ONNX Runtime's packing mode knows no way for {path}.", _LEAVE_PACKED_OUT)
    save(packing.model.model, path)
    return operators.count("PackedAttention")


_WRITERS: Mapping[str, Callable[[Loaded, Arrays, ModelFolder, ExportChoices], str]] = {
    "opset17": _opset17,
    "padded": _padded,
    "fused": _fused,
    "packed": _packed,
}

CUDA_ALONE = ("packed",)
"""Forms with operators that ONNX Runtime has for CUDA alone: no file of them runs where it is exported."""
