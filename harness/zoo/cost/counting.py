"""Count one exported model for one shape (products by torch and by the ONNX graph, parameters, memory), or one phase of
a model that generates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx.shape_inference import InferenceError

from harness.core.errors import reason
from harness.core.schemas import Case, DecoderShape, ExportRecord, Work
from harness.core.schemas.profile_record import Counts, GenerationPhase, OnnxCount
from harness.zoo import model_info
from harness.zoo.construct import family_of
from harness.zoo.cost import torch_counts
from harness.zoo.cost.onnx_counts import OnnxGraph, live_bytes, open_graph, products_of
from harness.zoo.cost.torch_counts import flops_of
from harness.zoo.generation.generative import cache_argument, last_logits_only, rebuild_generative

AGREE = 0.001
"""Largest relative difference of two counts that are called equal."""

_BY_MODULE = "estimate: tensors of one sample's pass of the module that are alive at once; nothing fused"
_BY_GRAPH = "estimate: tensors of the fp32 ONNX graph that are needed at once; nothing fused"
_NO_INT8 = "not estimated: an int8 file keeps some of its tensors wider"
_UNCOUNTED = "not estimated: the module does not run below PyTorch's counter"
_NO_PARAMETERS = "an ONNX file has no module: its parameters cannot be distinguished from other constants"

OneSample = Mapping[str, NDArray[np.generic]]
"""Arrays of shape (1, …) by input name."""


def _first_sample(values: NDArray[np.generic], batch_axis: int | None) -> NDArray[np.generic]:
    return values if batch_axis is None else np.take(values, [0], axis=batch_axis)


def counts_of(case: Case, export: ExportRecord, folder: Path, batch: OneSample) -> Counts:
    """All counts of a case. batch: arrays by input name, of which the first sample is used.

    Raises the errors of building the module and of reading the file; contradictory shapes in the file give a note.
    """
    sample = {spec.name: _first_sample(batch[spec.name], spec.batch_axis) for spec in export.inputs}
    work = next((work for work in export.work if work.sequence_length == case.sequence_length), None)
    notes: list[str] = []
    graph = _graph(export, folder, sample, notes)
    counted = None if graph is None else _onnx_count(export.onnx["fp32"].path, graph)
    products = _products(work, counted)
    notes += _compared(work, counted)
    if export.module is not None and export.why_uncounted is not None:
        notes.append(f"{'no FLOPs' if counted is None else 'counted in the ONNX graph alone'}: {export.why_uncounted}")
    if export.module is None:
        return _without_module(case, graph, products).model_copy(update={"count_notes": (*notes, _NO_PARAMETERS)})
    info = model_info(export.model)
    module = family_of(info).architecture(info, folder).float().eval()
    parameters = torch_counts.parameters_of(module)
    arguments = [torch.from_numpy(values.copy()) for values in sample.values()]
    # What does not run below one mode of PyTorch, its counter, runs below no other.
    runs = export.why_uncounted is None
    live = torch_counts.live_bytes(module, arguments, case.precision) if runs else None
    return products.model_copy(
        update={
            "parameters": parameters.total,
            "trainable_parameters": parameters.trainable,
            "parameters_by_type": dict(parameters.by_type),
            "count_notes": tuple(notes),
            "weight_bytes": torch_counts.weight_bytes(module),
            "activation_bytes": live,
            "activation_bytes_by": _BY_MODULE if live is not None else _NO_INT8 if runs else _UNCOUNTED,
        }
    )


def _products(work: Work | None, counted: OnnxCount | None) -> Counts:
    """The multiply-adds: torch's where torch counted all, else the graph's where the graph's are complete, else the
    larger number. None where only operators that were not counted have any. Everything else is empty."""
    products: list[tuple[int, str, tuple[str, ...]]] = []
    if work is not None:
        products.append(
            (work.flops_per_item // 2, "torch's FlopCounterMode, attention in separate products", work.uncounted)
        )
    if counted is not None:
        products.append((counted.macs, "the ONNX graph", counted.uncounted))
    macs, by, uncounted = max(
        products, key=lambda product: (not product[2], bool(product[2]) and product[0]), default=(None, None, ())
    )
    if not macs and uncounted:
        macs, by = None, None
    return Counts(
        parameters=None,
        trainable_parameters=None,
        parameters_by_type={},
        macs=macs,
        flops=None if macs is None else 2 * macs,
        counted_by=by,
        uncounted=uncounted,
        onnx_count=counted,
        count_notes=(),
        weight_bytes={},
        activation_bytes=None,
        activation_bytes_by="",
    )


def _without_module(case: Case, graph: OnnxGraph | None, products: Counts) -> Counts:
    if graph is None or case.precision != "fp32":
        by = "not estimated: the graph's shapes are not known" if graph is None else "not estimated: fp32 only"
        return products.model_copy(update={"activation_bytes_by": by})
    live = live_bytes(graph)
    left_out = f"; {live.unknown} tensors whose shape is not known are left out" if live.unknown else ""
    return products.model_copy(update={"activation_bytes": live.peak, "activation_bytes_by": _BY_GRAPH + left_out})


def _graph(export: ExportRecord, folder: Path, sample: OneSample, notes: list[str]) -> OnnxGraph | None:
    if "fp32" not in export.onnx:
        notes.append("there is no fp32 ONNX file to compare the count with")
        return None
    try:
        return open_graph(folder / export.onnx["fp32"].path, {name: array.shape for name, array in sample.items()})
    except InferenceError as error:
        notes.append(f"the ONNX graph was not counted: {reason(error)}")
        return None


def _onnx_count(file: str, graph: OnnxGraph) -> OnnxCount:
    products = products_of(graph)
    return OnnxCount(file=file, macs=products.total, macs_by_operator=dict(products.macs), uncounted=products.uncounted)


def _compared(work: Work | None, counted: OnnxCount | None) -> list[str]:
    """Where the two counts differ, in words; empty where they agree, or where a count is missing or incomplete."""
    if work is None or counted is None or work.uncounted or counted.uncounted:
        return []
    macs = work.flops_per_item // 2
    if abs(counted.macs - macs) <= AGREE * macs:
        return []
    return [f"the counts disagree: torch has {macs:,} multiply-adds a sample, the ONNX graph {counted.macs:,}"]


_NOT_ESTIMATED = "not estimated: of generation, a row has the bytes of its cache"


def counts_of_phase(
    folder: Path, shape: DecoderShape, prompt_length: int, new_tokens: int, phase: GenerationPhase
) -> Counts:
    """Counts of one sequence. folder: of the model's files for generation.

    A decode step is counted at the mean context of its steps: what grows with the context grows linearly.
    """
    module = rebuild_generative(folder)
    call = (
        _prefill(module, shape, prompt_length)
        if phase == "prefill"
        else _step(module, shape, prompt_length, new_tokens)
    )
    flops, uncounted = flops_of(call)
    parameters = torch_counts.parameters_of(module)
    return Counts(
        parameters=parameters.total,
        trainable_parameters=None,
        parameters_by_type=dict(parameters.by_type),
        macs=flops // 2,
        flops=flops,
        counted_by="torch's FlopCounterMode, attention in separate products",
        uncounted=uncounted,
        onnx_count=None,
        count_notes=(),
        weight_bytes=torch_counts.weight_bytes(module),
        activation_bytes=None,
        activation_bytes_by=_NOT_ESTIMATED,
    )


def _prefill(module: Any, shape: DecoderShape, prompt_length: int) -> Any:
    prompt = torch.zeros((1, prompt_length), dtype=torch.int64)
    if shape.kind == "seq2seq":
        return partial(_seq2seq, module, prompt, _start(shape, 1))
    return partial(module, input_ids=prompt, use_cache=True, **last_logits_only(module))


def _step(module: Any, shape: DecoderShape, prompt_length: int, new_tokens: int) -> Any:
    """A step after the prompt and half of the answer, which are computed here."""
    name = cache_argument(module)
    with torch.no_grad():
        if shape.kind == "seq2seq":
            encoded = module.get_encoder()(input_ids=torch.zeros((1, prompt_length), dtype=torch.int64))
            given = {"encoder_outputs": encoded}
            before = module(**given, decoder_input_ids=_start(shape, max(1, new_tokens // 2)), use_cache=True)
            given["decoder_input_ids"] = _start(shape, 1)
        else:
            context = torch.zeros((1, prompt_length + (new_tokens - 2) // 2), dtype=torch.int64)
            before = module(input_ids=context, use_cache=True, **last_logits_only(module))
            given = {"input_ids": torch.zeros((1, 1), dtype=torch.int64)}
    return partial(module, **given, **{name: getattr(before, name)}, use_cache=True)


def _seq2seq(module: Any, prompt: torch.Tensor, start: torch.Tensor) -> None:
    module(encoder_outputs=module.get_encoder()(input_ids=prompt), decoder_input_ids=start, use_cache=True)


def _start(shape: DecoderShape, length: int) -> torch.Tensor:
    return torch.full((1, length), shape.start_token or 0, dtype=torch.int64)
