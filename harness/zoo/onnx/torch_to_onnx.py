"""Write ONNX files: from a module by one of torch's two exporters, and in fp16 from the fp32 file."""

from __future__ import annotations

import functools
import inspect
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
import torch
from torch.onnx.errors import OnnxExporterError

from harness.core.errors import ExportError, reason
from harness.core.process_state import stay_here
from harness.core.schemas import Exporter
from harness.zoo.batch_axes import in_model_layout
from harness.zoo.construct import with_own_inputs
from harness.zoo.families.arguments import parameters_of
from harness.zoo.identity import DEFAULT_OPSET, ExportChoices
from harness.zoo.input_files import Arrays
from harness.zoo.loaded import Loaded
from harness.zoo.onnx.external_data import external_locations
from harness.zoo.quiet import quiet, quiet_natively
from harness.zoo.reference import flat_tensors
from harness.zoo.unfused_attention import unfused_attention

KEPT = frozenset(("namespace", "pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.name_scopes"))
"""Notes that name the module of the model that a node belongs to: layers are identified by them."""


def strip_traces(path: Path, outputs: Mapping[str, str] | None = None) -> None:
    """Rewrite the file at path without stack traces, doc strings and the like; weights beside it stay as they are.

    outputs: new names of outputs, by their present names.
    """
    model = onnx.load(path, load_external_data=False)
    for record in (model, *_parts(model)):
        for field, _ in record.ListFields():
            if field.name == "doc_string":
                record.ClearField("doc_string")
            elif field.name == "metadata_props":
                kept = [(entry.key, entry.value) for entry in record.metadata_props if entry.key in KEPT]
                record.ClearField("metadata_props")
                for key, value in kept:
                    record.metadata_props.add(key=key, value=value)
    if outputs:
        # A value inside that has such a name already, as `linear` of a layer, takes another name.
        _rename(model.graph, {**{name: f"{name}/inside" for name in outputs.values()}, **outputs})
    path.write_bytes(model.SerializeToString(deterministic=True))


def _parts(model: Any) -> Iterator[Any]:
    """The graph, functions, nodes, values and tensors of a model, of subgraphs too."""
    yield from _graph_parts(model.graph)
    for function in model.functions:
        yield from (function, *function.value_info)
        yield from _node_parts(function.node)


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Rename values of a graph, and where its subgraphs read them."""
    for value in (*graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, names)


def _graph_parts(graph: Any) -> Iterator[Any]:
    yield from (graph, *graph.input, *graph.output, *graph.value_info, *graph.initializer)
    yield from _node_parts(graph.node)


def _node_parts(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield attribute
            for graph in (attribute.g, *attribute.graphs):
                yield from _graph_parts(graph)


_BESIDE_BYTES = 1_500_000_000
"""Weights above this go into a file of their own: protobuf refuses messages of 2 GiB."""


def write_fp32(loaded: Loaded, examples: Arrays, path: Path, options: ExportChoices) -> str:
    """Write the fp32 file, or copy the user's own; returns how, in words. Raises ExportError."""
    weights_beside(path).unlink(missing_ok=True)
    if loaded.onnx_file is not None:
        return _copy(loaded.onnx_file, path)
    module = with_own_inputs(loaded.require_module(), loaded.input_names, loaded.written_inputs)
    taken = in_model_layout(examples, loaded.input_axes)
    arguments = tuple(torch.from_numpy(taken[name].copy()) for name in loaded.input_names)
    # The dynamo exporter gives an output its name even where another value has it.
    outputs = {f"output:{place}": name for place, name in enumerate(loaded.output_names)}
    axes = _dynamo(loaded, module) if options.exporter == "dynamo" else _torchscript(loaded, outputs)
    try:
        with (
            stay_here(),
            quiet_natively(),
            torch.no_grad(),
            unfused_attention(),
            _attention(loaded, options.attention) as attention,
            _flat_answers(module, loaded.nested_outputs),
        ):
            torch.onnx.export(
                module,
                arguments,
                path.absolute(),  # it is written after the module ran
                input_names=list(loaded.input_names),
                output_names=list(outputs),
                opset_version=options.opset,
                **axes,
            )
    except Exception as error:  # the exporters raise whatever the model's code and their passes raise
        raise ExportError(
            f"The {options.exporter} exporter failed (opset {options.opset}): {reason(_inner(error))}.",
            f"Try the other exporter: EXPORTER={other_exporter(options.exporter)}.",
        ) from error
    strip_traces(path, outputs)
    _require_opset(path, options)
    return options.exporter if attention is None else f"{options.exporter}, attention {attention}"


def _require_opset(path: Path, options: ExportChoices) -> None:
    """Raise ExportError where the dynamo exporter, which only logs a failed conversion, wrote another opset than the
    one that was asked for."""
    written = opset_of(path)
    if written != options.opset != DEFAULT_OPSET:
        raise ExportError(
            f"The {options.exporter} exporter cannot write this model in opset {options.opset}: it wrote {written}.",
            f"Leave --opset out ({DEFAULT_OPSET}), or try the other exporter: "
            f"EXPORTER={other_exporter(options.exporter)}.",
        )


@contextmanager
def _flat_answers(module: torch.nn.Module, nested: bool) -> Iterator[None]:
    """Make a module answer with a tuple of tensors. A module around it would be in the names of the nodes."""
    if not nested or isinstance(module, torch.jit.ScriptModule):
        yield
        return
    inner = module.forward

    @functools.wraps(inner)
    def forward(*arguments: Any, **keywords: Any) -> Any:
        return flat_tensors(inner(*arguments, **keywords))

    module.forward = forward
    try:
        yield
    finally:
        del module.forward


def _inner(error: BaseException) -> BaseException:
    """The error inside torch.onnx's own errors, which surround it with advice on torch.onnx itself."""
    wraps = isinstance(error, OnnxExporterError) and error.__cause__ is not None
    return _inner(error.__cause__) if wraps and error.__cause__ is not None else error


def other_exporter(exporter: Exporter) -> Exporter:
    """The other of the two exporters."""
    return "torchscript" if exporter == "dynamo" else "dynamo"


@contextmanager
def _attention(loaded: Loaded, wanted: str) -> Iterator[str | None]:
    """Export with this attention, then restore the module's own: PyTorch's backends keep the faster attention."""
    if loaded.set_attention is None or loaded.attention is None:
        yield None
        return
    loaded.set_attention(wanted)
    try:
        yield wanted
    finally:
        loaded.set_attention(loaded.attention)


_WITH_KERNELS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
"""Domains whose operators libraries compute themselves, also where a file defines them by a function."""


def _copy(source: Path, target: Path) -> str:
    """The user's bytes as they are; returns that in words. Weights in files beside it are gathered, because their names
    are bound, and functions of the model's own replace their calls: OpenVINO reads none."""
    model = onnx.load(source, load_external_data=False)
    own = [(function.domain, function.name) for function in model.functions if function.domain not in _WITH_KERNELS]
    if own:
        model = onnx.inliner.inline_selected_functions(model, own)
    elif not external_locations(source):
        shutil.copyfile(source, target)
        return "the user's file"
    onnx.load_external_data_for_model(model, str(source.parent))
    save(model, target)
    return "the user's file, its functions in the place of their calls" if own else "the user's file"


def _dynamo(loaded: Loaded, module: torch.nn.Module) -> dict[str, Any]:
    named = {name: _free_axes(loaded, name) for name in loaded.input_names}
    longest = {"sequence": loaded.max_sequence} if loaded.sequence_inputs else {}
    labels = dict.fromkeys(label for axes in named.values() for label in axes.values())
    dims = {label: torch.export.Dim(label, max=longest.get(label)) for label in labels}
    shapes = tuple({axis: dims[label] for axis, label in axes.items()} for axes in named.values())
    large = sum(tensor.nbytes for tensor in module.state_dict().values()) > _BESIDE_BYTES
    parameters = parameters_of(module).values()
    # `*inputs` is one parameter.
    first = next((parameter.kind for parameter in parameters), None)
    given = (shapes,) if first == inspect.Parameter.VAR_POSITIONAL else shapes
    return {"dynamo": True, "dynamic_shapes": given, "external_data": large, "verbose": False}


def _free_axes(loaded: Loaded, name: str) -> dict[int, str]:
    """The axes of an input whose extent the file leaves free, with their names."""
    batch = loaded.input_axes.get(name, 0)
    free = {} if batch is None or loaded.fixed_batch is not None else {batch: "batch"}
    return free | ({1: "sequence"} if name in loaded.sequence_inputs else {}) | dict(loaded.free_axes.get(name, {}))


def _torchscript(loaded: Loaded, outputs: Mapping[str, str]) -> dict[str, Any]:
    axes = {name: _free_axes(loaded, name) for name in loaded.input_names}
    batch = {port: loaded.batch_axes.get(name, 0) for port, name in outputs.items()}
    axes |= {port: {axis: "batch"} for port, axis in batch.items() if axis is not None}
    return {"dynamo": False, "dynamic_axes": axes}


def write_fp16(source: Path, target: Path) -> None:
    """Write the file with fp16 weights and arithmetic; inputs and outputs stay as they are. Raises ExportError.

    Normalisations stay in fp32: the squares that they sum pass fp16's largest number, 65504.
    """
    # A large import that only fp16 needs.
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16  # noqa: PLC0415
    from onnxruntime.transformers.onnx_model import OnnxModel  # noqa: PLC0415

    keep = [*DEFAULT_OP_BLOCK_LIST, "LayerNormalization", "ReduceMean", "Pow"]
    try:
        with quiet():
            converted = OnnxModel(convert_float_to_float16(onnx.load(source), keep_io_types=True, op_block_list=keep))
            # The converter appends its casts at the end; ONNX wants nodes after the values that they read.
            converted.topological_sort()
            _drop_repeated_casts(converted.model.graph)
            # The exporter's notes on intermediate types still say fp32, which the checker takes for a contradiction.
            del converted.model.graph.value_info[:]
    except Exception as error:
        raise ExportError(
            f"{source} could not be converted to fp16: {reason(error)}", "Leave fp16 out of its rows."
        ) from error
    save(converted.model, target)


def _drop_repeated_casts(graph: Any) -> None:
    """A weight that several fp32 nodes read gets the same cast from the converter once for each of them."""
    seen: set[str] = set()
    kept = []
    for node in graph.node:
        if node.op_type == "Cast" and node.output[0] in seen:
            continue
        seen.update(node.output)
        kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def save(model: Any, path: Path) -> None:
    """Write a model, with the weights in a separate file where they are too large for one file."""
    beside = weights_beside(path)
    beside.unlink(missing_ok=True)
    large = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > _BESIDE_BYTES
    onnx.save_model(model, path, save_as_external_data=large, location=beside.name if large else None)


def weights_beside(path: Path) -> Path:
    """Where the weights of a large ONNX file are."""
    return path.with_name(f"{path.name}.data")


def check_onnx(path: Path) -> None:
    """Raise ExportError where the ONNX checker finds the file wrong."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:
        raise ExportError(
            f"{path} is not valid ONNX: {reason(error)}", "Try the other exporter: EXPORTER=torchscript or dynamo."
        ) from error


def opset_of(path: Path) -> int:
    """The version of the standard operator set that a file uses."""
    model = onnx.load(path, load_external_data=False)
    return max(int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx"))


def dtype_census(path: Path) -> dict[str, int]:
    """Weight elements by element type: the true precision of a file. Weights are initializers, and tensors of Constant
    nodes."""
    census: dict[str, int] = {}
    for tensor in _constants(onnx.load(path, load_external_data=False)):
        name = str(onnx.TensorProto.DataType.Name(tensor.data_type)).lower()
        elements = 1
        for extent in tensor.dims:
            elements *= extent
        census[name] = census.get(name, 0) + elements
    return census


def _constants(model: Any) -> Iterator[Any]:
    """The tensors in a file, of subgraphs and functions too."""
    for part in _parts(model):
        if isinstance(part, onnx.TensorProto):
            yield part
        elif isinstance(part, onnx.NodeProto) and part.op_type == "Constant":
            yield from (entry.t for entry in part.attribute if entry.name == "value")


_CARRYING = frozenset(("Cast", "CastLike", "Constant", "ConstantOfShape", "Identity", "Range", "Shape", "Size"))
"""Nodes that hold or convert the results of other nodes."""


def value_census(path: Path) -> dict[str, int]:
    """Number of tensors by element type that the nodes of a file give; empty where it has floating-point weights, which
    say more, and where onnx cannot infer the types."""
    model = onnx.load(path, load_external_data=False)
    kinds = onnx.TensorProto
    floating = (kinds.FLOAT, kinds.FLOAT16, kinds.BFLOAT16, kinds.DOUBLE)
    if any(tensor.data_type in floating and sum(tensor.dims) > 1 for tensor in _constants(model)):
        return {}
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # its errors have no common base, and the file's ports are evidence, too
        return {}
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)}
    made = [name for node in graph.node if node.op_type not in _CARRYING for name in node.output if types.get(name)]
    return dict(Counter(str(kinds.DataType.Name(types[name])).lower() for name in made))
