"""ONNX files of a decoder with keys and values as inputs and outputs: written, checked, with int8 weights.

decoder-<precision>.onnx           input_ids (batch, sequence), past_key_values.<i>.key|value (batch, kv_heads, past,
                                   head_dim) → logits (batch, vocabulary) of the last position, next_token (batch, 1),
                                   present.<i>.key|value: past and sequence together. One file for prefill and decode
decoder-<precision>-in-place.onnx  the same with ONNX Runtime's GroupQueryAttention, which writes new keys and values
                                   into a buffer: present is past (batch, kv_heads, capacity, head_dim). More inputs:
                                   position_ids (batch, sequence), seqlens_k (batch,) int32, the positions after this
                                   pass less one, total_sequence_length () int32. No other library reads it
decoder-<precision>-prefill.onnx   of a seq2seq model: input_ids, decoder_input_ids (batch, 1) → logits, next_token,
                                   present, cross.<i>.key|value; its decoder file takes decoder_input_ids, past, cross

The greedy choice is part of the graph, so that the next step on a GPU need not wait for the host. In int8 only weights
are stored in 8 bits, in blocks of 32 with a scale each: activations are quantised while running (accuracy_level 4), and
embeddings and normalisations stay in fp32.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from torch import nn

from harness.core.errors import ExportError, reason
from harness.core.host import limits
from harness.core.schemas import OnnxArtifact, Precision
from harness.core.schemas.generation_record import DecoderShape
from harness.zoo.generation.generative import cache_argument
from harness.zoo.identity import artifact
from harness.zoo.input_files import Arrays
from harness.zoo.onnx.torch_to_onnx import dtype_census, save, strip_traces, weights_beside
from harness.zoo.quantised_files import BLOCKS, IN_INT8
from harness.zoo.quiet import quiet
from harness.zoo.reference import open_session, relative_l2, run_session

BITS = 8
BLOCK = 32
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
                model, bits=BITS, block_size=BLOCK, is_symmetric=True, accuracy_level=IN_INT8
            )
            quantizer.process()
            written = quantizer.model.model
    except Exception as error:  # the quantizer raises whatever its passes raise
        raise ExportError(f"{source} could not be quantised: {reason(error)}", "Leave int8 out of its rows.") from error
    if not any(node.op_type == BLOCKS for node in written.graph.node):
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
    nodes = [helper.make_node("MatMul", [node.input[0], weight], [product], f"{node.name}_matmul")]
    if bias is not None:
        nodes.append(helper.make_node("Add", [product, bias], [node.output[0]], f"{node.name}_bias"))
    return nodes


Steps = list[NDArray[Any]]
"""Logits (batch, vocabulary) of each pass."""

_GATES: Mapping[Precision, float] = {"fp32": 1e-4, "fp16": 2e-2, "int8": 0.5}
"""Largest relative L2 from the module in fp32. Weights of 8 bits move the logits of random weights more than those of
trained weights; every measured row has its own check of every token."""

_LENGTH, _PROMPTS, _PASSES = 7, 2, 3


def check_decoder(model: nn.Module, shape: DecoderShape, files: Mapping[str, Path], precision: Precision) -> None:
    """Raise ExportError where a file's logits are too far from the module's. files: by key, of one precision."""
    ids = _prompts(shape)
    followed, expected = _module_answers(model, shape, ids)
    sessions = {key.partition("-")[2]: open_session(path, limits.thread_count()) for key, path in files.items()}
    by_file = {files[precision].name: _growing_steps(sessions, shape, ids, followed)}
    if "in-place" in sessions:
        by_file[files[f"{precision}-in-place"].name] = _in_place_steps(sessions["in-place"], ids, followed)
    for name, logits in by_file.items():
        for number, (own, reference) in enumerate(zip(logits, expected, strict=True), 1):
            distance = relative_l2(own.astype(np.float32), reference)
            if not distance <= _GATES[precision]:
                raise ExportError(
                    f"{name}: logits of pass {number} are {distance:.1e} away from the module (relative L2), allowed "
                    f"{_GATES[precision]:g}.",
                    f"Leave {precision} of onnxruntime and openvino out of this model's rows.",
                )


def _prompts(shape: DecoderShape) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, shape.vocabulary, (_PROMPTS, _LENGTH), np.int64)


def _module_answers(model: Any, shape: DecoderShape, ids: NDArray[np.int64]) -> tuple[list[NDArray[np.int64]], Steps]:
    """(the greedy tokens, (batch, 1) each; the logits that they were chosen from), without a cache."""
    tokens: list[NDArray[np.int64]] = []
    logits: Steps = []
    start = np.full((_PROMPTS, 1), shape.start_token or 0, np.int64)
    for _ in range(_PASSES):
        with torch.inference_mode():
            if shape.kind == "seq2seq":
                own = torch.from_numpy(np.hstack([start, *tokens]))
                answer = model(input_ids=torch.from_numpy(ids), decoder_input_ids=own, use_cache=False)
            else:
                answer = model(input_ids=torch.from_numpy(np.hstack([ids, *tokens])), use_cache=False)
        logits.append(answer.logits[:, -1].float().numpy())
        tokens.append(logits[-1].argmax(-1)[:, None])
    return tokens, logits


def _growing_steps(
    sessions: Mapping[str, Any], shape: DecoderShape, ids: NDArray[np.int64], followed: list[NDArray[np.int64]]
) -> Steps:
    session, cross = sessions[""], {}
    if shape.kind == "seq2seq":
        start = np.full((_PROMPTS, 1), shape.start_token or 0, np.int64)
        outputs = run_session(sessions["prefill"], {"input_ids": ids, "decoder_input_ids": start}, of_user=False)
        cross = {name: values for name, values in outputs.items() if name.startswith("cross.")}
        reads = "decoder_input_ids"
    else:
        outputs = run_session(session, {"input_ids": ids, **_empty(session)}, of_user=False)
        reads = "input_ids"
    logits = [outputs["logits"]]
    for token in followed[:-1]:
        outputs = run_session(session, {reads: token, **_as_past(outputs), **cross}, of_user=False)
        logits.append(outputs["logits"])
    return logits


def _in_place_steps(session: Any, ids: NDArray[np.int64], followed: list[NDArray[np.int64]]) -> Steps:
    """Without sharing the buffers: ONNX Runtime then copies them, to the same answer."""
    buffers = _empty(session, ids.shape[1] + len(followed))
    logits, before = [], 0
    for own in (ids, *followed[:-1]):
        total = before + own.shape[1]
        feeds: Arrays = {
            "input_ids": own,
            "position_ids": np.tile(np.arange(before, total), (_PROMPTS, 1)),
            "seqlens_k": np.full(_PROMPTS, total - 1, np.int32),
            "total_sequence_length": np.array(total, np.int32),
            **_as_past(buffers),
        }
        buffers, before = run_session(session, feeds, of_user=False), total
        logits.append(buffers["logits"])
    return logits


def _empty(session: Any, positions: int = 0) -> Arrays:
    """Keys and values of so many positions, all 0."""
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    return {
        declared.name: np.zeros((_PROMPTS, declared.shape[1], positions, declared.shape[3]), kinds[declared.type])
        for declared in session.get_inputs()
        if declared.name.startswith("past_key_values.")
    }


def _as_past(arrays: Arrays) -> Arrays:
    past = {name.replace("present.", "past_key_values."): values for name, values in arrays.items()}
    return {name: values for name, values in past.items() if name.startswith("past_key_values.")}


OPSET = 23
"""The first with Attention, RMSNormalization and RotaryEmbedding, which ONNX Runtime and OpenVINO have kernels for."""

IN_PLACE = "in-place"
PREFILL = "prefill"

_DTYPES: Mapping[Precision, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16}
_LEAVE_OUT = "Leave onnxruntime and openvino out of its backends (BACKENDS=torch-eager,torch-compile)."
_ATTENTION = "inferometer_in_place"
_BATCH, _SEQUENCE, _PAST, _CAPACITY = 2, 3, 5, 16
"""Shapes that the model is traced with: different numbers above 1, or the exporter takes two axes for one."""


def file_name(precision: Precision, form: str) -> str:
    """Name of a file; form: empty, IN_PLACE or PREFILL."""
    return f"decoder-{_key(precision, form)}.onnx"


def write_decoder(
    model: nn.Module, shape: DecoderShape, folder: Path, precision: Precision, in_place: bool
) -> dict[str, OnnxArtifact]:
    """Write and check the files of one precision; their records by key: `fp32`, `fp32-in-place`, `fp32-prefill`.

    model: transformers' model in fp32 in evaluation mode, which stays as it is. in_place: write this form, too, which
    no seq2seq model has. int8 needs the files of fp32 in the folder. Raises ExportError.
    """
    forms = ("", PREFILL) if shape.kind == "seq2seq" else ("", IN_PLACE) if in_place else ("",)
    files = {_key(precision, form): folder / file_name(precision, form) for form in forms}
    if precision == "int8":
        for form in forms:
            write_int8(folder / file_name("fp32", form), folder / file_name("int8", form))
    else:
        module = model if precision == "fp32" else copy.deepcopy(model).to(_DTYPES[precision])
        for form in forms:
            _write(_traced(module, shape, form), folder / file_name(precision, form))
    check_decoder(model, shape, files, precision)
    return {key: _artifact(path, METHOD if precision == "int8" else None) for key, path in files.items()}


def _key(precision: Precision, form: str) -> str:
    return f"{precision}-{form}" if form else precision


def _artifact(path: Path, quantisation: str | None) -> OnnxArtifact:
    beside = weights_beside(path)
    return OnnxArtifact(
        **artifact(path).model_dump(),
        exporter="dynamo",
        opset=OPSET,
        dtype_census=dtype_census(path),
        external_data=artifact(beside) if beside.is_file() else None,
        quantisation=quantisation,
    )


@dataclass(frozen=True)
class _Traced:
    """A module to export. inputs and outputs: name → the names of its axes; a number is an extent that is fixed.

    examples: one for each input, those of the cache as one list at the end.
    """

    module: nn.Module
    examples: tuple[Any, ...]
    inputs: Mapping[str, tuple[str | int, ...]]
    outputs: Mapping[str, tuple[str | int, ...]]
    attention: str | None = None


def _write(traced: _Traced, path: Path) -> None:
    weights_beside(path).unlink(missing_ok=True)
    free = [
        {axis: torch.export.Dim.DYNAMIC for axis, label in enumerate(axes) if isinstance(label, str)}
        for axes in traced.inputs.values()
    ]
    alone = len(traced.examples) - 1  # the last example is a list of all others
    try:
        with quiet(), torch.no_grad(), _attention(traced):
            torch.onnx.export(
                traced.module,
                traced.examples,
                path,
                dynamo=True,
                input_names=list(traced.inputs),
                output_names=list(traced.outputs),
                opset_version=OPSET,
                dynamic_shapes=(*free[:alone], free[alone:]),
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # the exporter raises whatever the model's code and its passes raise
        raise ExportError(f"The decoder could not be exported with its cache: {reason(error)}", _LEAVE_OUT) from error
    strip_traces(path)
    _name_axes(path, traced)


def _name_axes(path: Path, traced: _Traced) -> None:
    """Give the axes of inputs and outputs their names; the exporter numbers them."""
    model = onnx.load(path)
    named = {**traced.inputs, **traced.outputs}
    for value in (*model.graph.input, *model.graph.output):
        for extent, label in zip(value.type.tensor_type.shape.dim, named[value.name], strict=True):
            if isinstance(label, str):
                extent.dim_param = label
            else:
                extent.dim_value = label
    del model.graph.value_info[:]
    save(model, path)


@contextmanager
def _attention(traced: _Traced) -> Iterator[None]:
    """Trace with the attention that the form needs, then restore the model's own."""
    from transformers import AttentionInterface  # noqa: PLC0415 - seconds, and only these models need it

    model: Any = traced.module.get_submodule("model")
    before = model.config._attn_implementation
    AttentionInterface.register(_ATTENTION, _unbound)  # the model checks that the name exists
    model.set_attn_implementation(traced.attention or "sdpa")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


_IDS = ("batch", "sequence")


def _pairs(prefix: str, layers: int) -> list[str]:
    """Names of the keys and values of every layer, in the order of the files."""
    return [f"{prefix}.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]


def _cached(shape: DecoderShape, positions: str) -> tuple[str | int, ...]:
    return ("batch", shape.kv_heads, positions, shape.head_dim)


def _traced(model: nn.Module, shape: DecoderShape, form: str) -> _Traced:
    """The module of one form with its inputs and outputs."""
    if form == PREFILL:
        return _seq2seq_prefill(model, shape)
    if shape.kind == "seq2seq":
        return _seq2seq_step(model, shape)
    return _in_place_trace(model, shape) if form == IN_PLACE else _growing(model, shape)


def _answers(shape: DecoderShape) -> dict[str, tuple[str | int, ...]]:
    return {"logits": ("batch", shape.vocabulary), "next_token": ("batch", 1)}


def _ids(shape: DecoderShape, length: int) -> torch.Tensor:
    return torch.arange(_BATCH * length).remainder(shape.vocabulary).reshape(_BATCH, length)


def _cache(model: nn.Module, shape: DecoderShape, positions: int) -> list[torch.Tensor]:
    kind = next(model.parameters()).dtype
    sizes = (_BATCH, shape.kv_heads, positions, shape.head_dim)
    return [torch.full(sizes, 0.01, dtype=kind) for _ in range(2 * shape.layers)]


def _growing(model: nn.Module, shape: DecoderShape) -> _Traced:
    past = dict.fromkeys(_pairs("past_key_values", shape.layers), _cached(shape, "past"))
    present = dict.fromkeys(_pairs("present", shape.layers), _cached(shape, "total"))
    return _Traced(
        _Growing(model),
        (_ids(shape, _SEQUENCE), _cache(model, shape, _PAST)),
        {"input_ids": _IDS, **past},
        {**_answers(shape), **present},
    )


def _in_place_trace(model: nn.Module, shape: DecoderShape) -> _Traced:
    past = dict.fromkeys(_pairs("past_key_values", shape.layers), _cached(shape, "capacity"))
    present = dict.fromkeys(_pairs("present", shape.layers), _cached(shape, "capacity"))
    positions = torch.arange(_SEQUENCE).expand(_BATCH, -1).contiguous()
    lengths = torch.full((_BATCH,), _SEQUENCE - 1, dtype=torch.int32)
    total = torch.tensor(_SEQUENCE, dtype=torch.int32)
    return _Traced(
        _InPlace(model),
        (_ids(shape, _SEQUENCE), positions, lengths, total, _cache(model, shape, _CAPACITY)),
        {"input_ids": _IDS, "position_ids": _IDS, "seqlens_k": ("batch",), "total_sequence_length": (), **past},
        {**_answers(shape), **present},
        attention=_ATTENTION,
    )


def _seq2seq_prefill(model: nn.Module, shape: DecoderShape) -> _Traced:
    present = dict.fromkeys(_pairs("present", shape.layers), _cached(shape, "total"))
    cross = dict.fromkeys(_pairs("cross", shape.layers), _cached(shape, "encoded"))
    return _Traced(
        _Prefill(model),
        (_ids(shape, _SEQUENCE), [_ids(shape, 1)]),
        {"input_ids": ("batch", "encoded"), "decoder_input_ids": ("batch", 1)},
        {**_answers(shape), **present, **cross},
    )


def _seq2seq_step(model: nn.Module, shape: DecoderShape) -> _Traced:
    past = dict.fromkeys(_pairs("past_key_values", shape.layers), _cached(shape, "past"))
    present = dict.fromkeys(_pairs("present", shape.layers), _cached(shape, "total"))
    cross = dict.fromkeys(_pairs("cross", shape.layers), _cached(shape, "encoded"))
    return _Traced(
        _SecondHalf(model, shape.hidden),
        (_ids(shape, 1), [*_cache(model, shape, _PAST), *_cache(model, shape, _SEQUENCE)]),
        {"decoder_input_ids": ("batch", 1), **past, **cross},
        {**_answers(shape), **present},
    )


def _filled(tensors: Sequence[torch.Tensor]) -> Any:
    """transformers' DynamicCache of these keys and values, of each layer in turn.

    Its update() would begin with an empty tensor, which OpenVINO does not read.
    """
    from transformers import DynamicCache  # noqa: PLC0415 - seconds, and only these models need it
    from transformers.cache_utils import DynamicLayer  # noqa: PLC0415

    cache = DynamicCache()
    for key, value in zip(tensors[::2], tensors[1::2], strict=True):
        layer = DynamicLayer()
        layer.keys, layer.values = key, value
        layer.dtype, layer.device, layer.is_initialized = key.dtype, key.device, True
        cache.layers.append(layer)
    return cache


def _content(cache: Any) -> Iterator[torch.Tensor]:
    for layer in cache.layers:
        yield layer.keys
        yield layer.values


def _chosen(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(batch, positions, vocabulary) → logits of the last position, and their greedy choice (batch, 1)."""
    last = logits[:, -1]
    return last, last.argmax(-1, keepdim=True)


class _Growing(nn.Module):
    """(input_ids, past) → logits, next_token, present."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.keyword = cache_argument(model)

    def forward(self, input_ids: torch.Tensor, past: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        cache = _filled(past)
        # For each sequence, because ONNX's RotaryEmbedding takes no row for all of them.
        places = (torch.arange(input_ids.shape[1]) + past[0].shape[2]).expand(input_ids.shape[0], -1)
        answer = self.model(
            input_ids=input_ids, position_ids=places, use_cache=True, logits_to_keep=1, **{self.keyword: cache}
        )
        return (*_chosen(answer.logits), *_content(cache))


class _InPlace(_Growing):
    """(input_ids, position_ids, seqlens_k, total_sequence_length, past) → logits, next_token, present."""

    def forward(  # type: ignore[override]
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        seqlens_k: torch.Tensor,
        total_sequence_length: torch.Tensor,
        past: list[torch.Tensor],
    ) -> tuple[torch.Tensor, ...]:
        from transformers import AttentionInterface  # noqa: PLC0415 - seconds, and only these models need it

        buffer = _shared_buffer(past, seqlens_k, total_sequence_length)
        AttentionInterface.register(_ATTENTION, buffer.attend)
        answer = self.model(
            input_ids=input_ids,
            position_ids=position_ids,
            use_cache=True,
            logits_to_keep=1,
            **{self.keyword: buffer},
        )
        return (*_chosen(answer.logits), *buffer.present)


def _shared_buffer(past: list[torch.Tensor], seqlens_k: torch.Tensor, total: torch.Tensor) -> Any:
    from transformers import DynamicCache  # noqa: PLC0415 - seconds, and only these models need it

    class SharedBuffer(DynamicCache):  # type: ignore[misc]  # transformers has no types
        """A cache without content of its own: GroupQueryAttention appends to the buffers and reads them."""

        def __init__(self) -> None:
            super().__init__()
            self.present = list(past)

        def update(
            self, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return key, value

        def get_seq_length(self, *_: Any) -> int:
            return 0

        def attend(
            self,
            module: nn.Module,
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            mask: torch.Tensor | None,
            scaling: float | None = None,
            **options: Any,
        ) -> tuple[torch.Tensor, None]:
            """query (batch, heads, sequence, head_dim) → (batch, sequence, heads, head_dim)."""
            _refuse(mask, options)
            batch, heads, length, size = query.shape
            first = 2 * int(module.layer_idx)  # type: ignore[arg-type]
            flat = [states.transpose(1, 2).reshape(batch, length, -1) for states in (query, key, value)]
            buffers = past[first : first + 2]
            computed = torch.onnx.ops.symbolic_multi_out(
                "com.microsoft::GroupQueryAttention",
                (*flat, *buffers, seqlens_k, total),
                {
                    "num_heads": heads,
                    "kv_num_heads": key.shape[1],
                    "scale": size**-0.5 if scaling is None else float(scaling),
                },
                dtypes=(query.dtype,) * 3,
                shapes=((batch, length, heads * size), buffers[0].shape, buffers[1].shape),
                version=1,
            )
            self.present[first : first + 2] = computed[1:]
            return computed[0].reshape(batch, length, heads, size), None

    return SharedBuffer()


def _unbound(*_: Any, **__: Any) -> None:
    """In the place of SharedBuffer.attend, which each trace registers."""
    raise RuntimeError("in-place attention is only traced")


def _refuse(mask: torch.Tensor | None, options: Mapping[str, Any]) -> None:
    """GroupQueryAttention as it is written here is plain causal attention."""
    other = [name for name in ("sliding_window", "softcap", "position_bias", "s_aux") if options.get(name) is not None]
    if mask is not None or other:
        raise ValueError(f"in-place attention has no {', '.join(other) or 'mask of its own'} here")


class _Prefill(nn.Module):
    """(input_ids, [decoder_input_ids]) → logits, next_token, present, cross."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.keyword = cache_argument(model)

    def forward(self, input_ids: torch.Tensor, decoder_input_ids: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        from transformers import DynamicCache, EncoderDecoderCache  # noqa: PLC0415 - seconds, and rare

        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        answer = self.model(
            input_ids=input_ids, decoder_input_ids=decoder_input_ids[0], use_cache=True, **{self.keyword: cache}
        )
        halves = (cache.self_attention_cache, cache.cross_attention_cache)
        return (*_chosen(answer.logits), *(tensor for half in halves for tensor in _content(half)))


class _SecondHalf(nn.Module):
    """(decoder_input_ids, [*past, *cross]) → logits, next_token, present. The encoder is not part of it."""

    def __init__(self, model: nn.Module, hidden: int) -> None:
        super().__init__()
        self.model = model
        self.hidden = hidden
        self.keyword = cache_argument(model)

    def forward(self, decoder_input_ids: torch.Tensor, cached: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        from transformers import EncoderDecoderCache  # noqa: PLC0415 - seconds, and only these models need it
        from transformers.modeling_outputs import BaseModelOutput  # noqa: PLC0415

        half = len(cached) // 2
        cache = EncoderDecoderCache(_filled(cached[:half]), _filled(cached[half:]))
        cache.is_updated = dict.fromkeys(range(half // 2), True)
        # With the cross-attention's keys at hand only the shape of the encoder's answer is read.
        encoded = cached[half]
        blank = encoded.new_zeros(encoded.shape[0], encoded.shape[2], self.hidden)
        answer = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=blank),
            decoder_input_ids=decoder_input_ids,
            use_cache=True,
            **{self.keyword: cache},
        )
        return (*_chosen(answer.logits), *_content(cache.self_attention_cache))
