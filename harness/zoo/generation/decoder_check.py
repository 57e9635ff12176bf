"""Whether the ONNX files of a decoder answer as the module: a pass over two prompts, and two steps with the cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from harness.core.errors import ExportError
from harness.core.host import limits
from harness.core.schemas import Precision
from harness.core.schemas.generation_record import DecoderShape
from harness.zoo.loaded import Arrays
from harness.zoo.onnx.reference_run import open_session, run_session
from harness.zoo.reference import relative_l2

Steps = list[NDArray[Any]]
"""Logits (batch, vocabulary) of each pass."""

_GATES: Mapping[Precision, float] = {"fp32": 1e-4, "fp16": 2e-2, "int8": 0.5}
"""Largest relative L2 from the module in fp32. Weights of 8 bits move the logits of random weights more than those of
trained weights; every measured row has its own check of every token."""

_LENGTH, _BATCH, _PASSES = 7, 2, 3


def check_decoder(model: nn.Module, shape: DecoderShape, files: Mapping[str, Path], precision: Precision) -> None:
    """Raise ExportError where a file's logits are too far from the module's. files: by key, of one precision."""
    ids = _prompts(shape)
    followed, expected = _of_module(model, shape, ids)
    sessions = {key.partition("-")[2]: open_session(path, limits.threads()) for key, path in files.items()}
    found = {files[precision].name: _growing(sessions, shape, ids, followed)}
    if "in-place" in sessions:
        found[files[f"{precision}-in-place"].name] = _in_place(sessions["in-place"], ids, followed)
    for name, logits in found.items():
        for number, (own, reference) in enumerate(zip(logits, expected, strict=True), 1):
            distance = relative_l2(own.astype(np.float32), reference)
            if not distance <= _GATES[precision]:
                raise ExportError(
                    f"{name}: logits of pass {number} are {distance:.1e} away from the module (relative L2), allowed "
                    f"{_GATES[precision]:g}.",
                    f"Leave {precision} of onnxruntime and openvino out of this model's rows.",
                )


def _prompts(shape: DecoderShape) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, shape.vocabulary, (_BATCH, _LENGTH), np.int64)


def _of_module(model: Any, shape: DecoderShape, ids: NDArray[np.int64]) -> tuple[list[NDArray[np.int64]], Steps]:
    """(the greedy tokens, (batch, 1) each; the logits that they were chosen from), without a cache."""
    tokens: list[NDArray[np.int64]] = []
    logits: Steps = []
    start = np.full((_BATCH, 1), shape.start_token or 0, np.int64)
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


def _growing(
    sessions: Mapping[str, Any], shape: DecoderShape, ids: NDArray[np.int64], followed: list[NDArray[np.int64]]
) -> Steps:
    session, cross = sessions[""], {}
    if shape.kind == "seq2seq":
        start = np.full((_BATCH, 1), shape.start_token or 0, np.int64)
        found = run_session(sessions["prefill"], {"input_ids": ids, "decoder_input_ids": start}, of_user=False)
        cross = {name: values for name, values in found.items() if name.startswith("cross.")}
        reads = "decoder_input_ids"
    else:
        found = run_session(session, {"input_ids": ids, **_empty(session)}, of_user=False)
        reads = "input_ids"
    logits = [found["logits"]]
    for token in followed[:-1]:
        found = run_session(session, {reads: token, **_as_past(found), **cross}, of_user=False)
        logits.append(found["logits"])
    return logits


def _in_place(session: Any, ids: NDArray[np.int64], followed: list[NDArray[np.int64]]) -> Steps:
    """Without sharing the buffers: ONNX Runtime then copies them, to the same answer."""
    found = _empty(session, ids.shape[1] + len(followed))
    logits, before = [], 0
    for own in (ids, *followed[:-1]):
        total = before + own.shape[1]
        feeds: Arrays = {
            "input_ids": own,
            "position_ids": np.tile(np.arange(before, total), (_BATCH, 1)),
            "seqlens_k": np.full(_BATCH, total - 1, np.int32),
            "total_sequence_length": np.array(total, np.int32),
            **_as_past(found),
        }
        found, before = run_session(session, feeds, of_user=False), total
        logits.append(found["logits"])
    return logits


def _empty(session: Any, positions: int = 0) -> Arrays:
    """Keys and values of so many positions, all 0."""
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    return {
        one.name: np.zeros((_BATCH, one.shape[1], positions, one.shape[3]), kinds[one.type])
        for one in session.get_inputs()
        if one.name.startswith("past_key_values.")
    }


def _as_past(arrays: Arrays) -> Arrays:
    past = {name.replace("present.", "past_key_values."): values for name, values in arrays.items()}
    return {name: values for name, values in past.items() if name.startswith("past_key_values.")}
