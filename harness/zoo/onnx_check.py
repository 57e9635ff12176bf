"""Hold an exported file against the reference at two batch sizes and, where there is one, two sequence lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import ExportError
from harness.core.schemas import OnnxCheck, Parity, Precision
from harness.zoo.loaded import Arrays, Loaded
from harness.zoo.onnx_file import check_onnx
from harness.zoo.onnx_run import open_session, run_session
from harness.zoo.reference import reference_of

Compare = Callable[[Arrays, Arrays, bool], Parity]

_GATES: Mapping[Precision, float] = {"fp32": 1e-4, "fp16": 2e-2}
"""Largest relative L2 between the reference and the exported file in ONNX Runtime: is the file what the model is?

Whether a precision is good enough is the plan's gate on what a backend computes. fp16 has twice METHOD's 1e-2 here
because a random MobileNetV2 is 1.2e-2 away with a file that is right. int8 has no limit: how much it loses lies in the
model, and its rows show it.
"""
_BATCHES = (1, 3)
"""Two batch sizes that the exporter's example did not have: an axis that it froze fails at one of them."""


@dataclass(frozen=True)
class Trial:
    """The largest batch of one sequence length with its reference outputs; smaller batches are its first rows."""

    sequence_length: int | None
    inputs: Arrays
    outputs: Arrays


def trials_of(loaded: Loaded, lengths: Sequence[int], threads: int) -> list[Trial]:
    """One trial, or two of different sequence length where the model reads sequences."""
    answer = reference_of(loaded, threads)
    batch = loaded.fixed_batch or max(_BATCHES)
    trials = []
    for length in _two_lengths(lengths) if loaded.sequence_inputs and lengths else (None,):
        inputs = loaded.make_inputs(batch, length).arrays
        trials.append(Trial(length, inputs, answer(inputs)))
    return trials


def check_file(
    path: Path, precision: Precision, loaded: Loaded, trials: Sequence[Trial], compare: Compare, threads: int
) -> list[OnnxCheck]:
    """Run the checker and every trial. Raises ExportError where the file is wrong, fixed in an axis, or far off."""
    check_onnx(path)
    # ONNX Runtime 1.32 crashes in its CPU layout optimiser on an fp16 ViT (found here), which no exception reports.
    session = open_session(path, threads, "ORT_ENABLE_ALL" if precision == "fp32" else "ORT_ENABLE_EXTENDED")
    batches = _BATCHES if loaded.fixed_batch is None else (loaded.fixed_batch,)
    return [
        _check(session, precision, loaded.classifier, trial, batch, compare) for trial in trials for batch in batches
    ]


def _check(
    session: object, precision: Precision, classifier: bool, trial: Trial, batch: int, compare: Compare
) -> OnnxCheck:
    outputs = run_session(session, {name: values[:batch] for name, values in trial.inputs.items()})
    where = f"batch {batch}" + ("" if trial.sequence_length is None else f", sequence {trial.sequence_length}")
    try:
        parity = compare(outputs, {name: values[:batch] for name, values in trial.outputs.items()}, classifier)
    except ValueError as error:
        raise ExportError(f"The {precision} ONNX file at {where}: {error}.", "Try the other `--exporter`.") from error
    allowed = _GATES.get(precision, math.inf)
    if parity.relative_l2 is None or parity.max_abs is None or parity.relative_l2 > allowed:
        found = "not finite" if parity.relative_l2 is None else f"{parity.relative_l2:.1e} away"
        raise ExportError(
            f"The {precision} ONNX file's outputs at {where} are {found} from the reference "
            f"(relative L2, allowed {allowed:g}).",
            "Try the other `--exporter`, or leave this precision out of the plan.",
        )
    return OnnxCheck(
        precision=precision,
        batch_size=batch,
        sequence_length=trial.sequence_length,
        relative_l2=parity.relative_l2,
        max_abs=parity.max_abs,
    )


def _two_lengths(lengths: Sequence[int]) -> tuple[int, int]:
    """The longest length that is planned, and another: the shortest, or half of it."""
    longest, shortest = max(lengths), min(lengths)
    return longest, shortest if shortest != longest else max(4, longest // 2)
