"""Check an exported file against the reference at two batch sizes and, for models of sequences, two lengths."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import ExportError
from harness.core.padding import Mask, mask_of
from harness.core.schemas import OnnxCheck, Precision
from harness.zoo.batch_axes import batch_first, in_model_layout
from harness.zoo.identity import ExportChoices
from harness.zoo.input_files import Arrays
from harness.zoo.loaded import Loaded
from harness.zoo.onnx.torch_to_onnx import check_onnx, other_exporter, write_fp32
from harness.zoo.reference import Compare, Level, open_session, reference_of, run_session

_TOLERANCES: Mapping[Precision, float] = {"fp32": 1e-4, "fp16": 2e-2}
"""Largest relative L2 between the reference and the exported file in ONNX Runtime: does the file match the model?

Whether a precision is good enough is decided by the plan's tolerance on a backend's outputs. fp16 has twice
the default 1e-2 here because a correct file of a MobileNetV2 with random weights differs by 1.2e-2. int8 has no limit:
its loss depends on the model, and its rows show it.
"""
_BATCHES = (1, 3)
"""Two batch sizes that the exporter's example did not have: an axis that the exporter fixed fails at one of them."""


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
    for length in _lengths(loaded, lengths):
        inputs = loaded.make_inputs(batch, length).arrays
        trials.append(Trial(length, inputs, answer(inputs)))
    return trials


def check_file(
    path: Path, precision: Precision, loaded: Loaded, trials: Sequence[Trial], compare: Compare, threads: int
) -> list[OnnxCheck]:
    """Run the checker and every trial. Raises ExportError where the file is wrong, fixed in an axis, or far off."""
    if not is_as_given(loaded, precision):
        check_onnx(path)
    session = open_session(path, threads, _level(precision, loaded))
    batches = _BATCHES if loaded.fixed_batch is None else (loaded.fixed_batch,)
    return [_check(session, precision, loaded, trial, batch, compare) for trial in trials for batch in batches]


def _level(precision: Precision, loaded: Loaded) -> Level:
    """Optimisations of the session that checks a file. A file quantised here is computed as it is written: in int8
    products, sums saturate on CPUs without VNNI (EfficientNet-Lite0 for TensorRT: 0.64 in place of 0.096)."""
    if precision == "int8" and not is_as_given(loaded, precision):
        return "ORT_DISABLE_ALL"
    # ONNX Runtime 1.32 crashes in its CPU layout optimiser on an fp16 ViT (seen here), without an exception.
    return "ORT_ENABLE_ALL" if precision == "fp32" else "ORT_ENABLE_EXTENDED"


def hint_of_other_exporter(
    loaded: Loaded, examples: Arrays, options: ExportChoices, trials: Sequence[Trial], compare: Compare, threads: int
) -> str:
    """Where one exporter failed: whether the other exporter's file of the module passes every check; in words."""
    other = other_exporter(options.exporter)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "model.onnx")
        try:
            write_fp32(loaded, examples, path, dataclasses.replace(options, exporter=other))
            check_file(path, "fp32", loaded, trials, compare, threads)
        except ExportError as error:
            if error.hint == _zeros_where_padded(loaded):
                return error.hint
            failure = error.problem.replace(str(path), "its file").rstrip(".")
            return f"The {other} exporter was tried, too: {failure}. PyTorch's backends need no ONNX."
    return f"The {other} exporter was tried, and its file passes every check: set EXPORTER={other}."


def _zeros_where_padded(loaded: Loaded) -> str | None:
    """The hint for a module whose answer has zeros where its padding mask hides a place: its file computes them."""
    parts = () if loaded.module is None else loaded.module.named_modules()
    path = next((path for path, part in parts if getattr(part, "use_nested_tensor", False)), None)
    if path is None:
        return None
    return (
        f"nn.TransformerEncoder (`{path}`) answers with zeros where a padding mask hides a place, and a file does not: "
        "build it with enable_nested_tensor=False."
    )


def is_as_given(loaded: Loaded, precision: Precision) -> bool:
    """Whether the file is the user's own, and no exporter's fault. ONNX's checker accepts fewer files than ONNX Runtime
    runs: the file only has to load and compute."""
    return loaded.onnx_file is not None and (precision == "fp32" or loaded.quantised is not None)


def _check(
    session: object, precision: Precision, loaded: Loaded, trial: Trial, batch: int, compare: Compare
) -> OnnxCheck:
    samples = {name: values[:batch] for name, values in trial.inputs.items()}
    inputs = in_model_layout(samples, loaded.input_axes)
    outputs = batch_first(run_session(session, inputs, of_user=is_as_given(loaded, precision)), loaded.batch_axes)
    reference = {name: values[:batch] for name, values in trial.outputs.items()}
    mask = mask_of(samples)
    where = f"batch {batch}" + ("" if trial.sequence_length is None else f", sequence {trial.sequence_length}")
    who, hint = _blame(loaded, precision)
    try:
        parity = compare(outputs, reference, loaded.classifier, mask)
    except ValueError as error:
        raise ExportError(f"{who} at {where}: {error}.", hint) from error
    allowed = _TOLERANCES.get(precision, math.inf)
    if parity.relative_l2 is None or parity.max_abs is None or parity.relative_l2 > allowed:
        raise ExportError(f"{who} at {where}: {_worst(outputs, reference, compare, mask)}, allowed {allowed:g}.", hint)
    return OnnxCheck(
        precision=precision,
        batch_size=batch,
        sequence_length=trial.sequence_length,
        relative_l2=parity.relative_l2,
        max_abs=parity.max_abs,
    )


def _blame(loaded: Loaded, precision: Precision) -> tuple[str, str]:
    """(which side computed something else, the remedy)."""
    if is_as_given(loaded, precision):
        return (
            "ONNX Runtime computes your file otherwise with its optimisations than without",
            "Nothing was exported: compare the two by ONNX Runtime's `graph_optimization_level`; report it there.",
        )
    if precision != "fp32":
        return f"The {precision} ONNX file", f"Leave {precision} out of this model's rows (PRECISIONS=fp32)."
    usual = "Try the other exporter: EXPORTER=torchscript or dynamo."
    return "The exported fp32 ONNX file", _zeros_where_padded(loaded) or usual


def _worst(outputs: Arrays, reference: Arrays, compare: Compare, mask: Mask | None) -> str:
    """The output that is farthest off, in words."""
    parities = {name: compare({name: outputs[name]}, {name: values}, False, mask) for name, values in reference.items()}
    name = max(
        parities,
        key=lambda parity: (
            math.inf if parities[parity].relative_l2 is None else float(parities[parity].relative_l2 or 0.0)
        ),
    )
    distance = parities[name].relative_l2
    if distance is None:
        return f"output `{name}` is NaN or infinite in {parities[name].nonfinite} places where the reference is not"
    return f"output `{name}` is {distance:.1e} away from the reference (relative L2)"


def _lengths(loaded: Loaded, planned: Sequence[int]) -> tuple[int | None, ...]:
    if loaded.own_inputs:  # no other length can be made of them
        return tuple(dict.fromkeys((max(planned), min(planned)))) if planned else (None,)
    return _two_lengths(planned) if loaded.sequence_inputs and planned else (None,)


def _two_lengths(lengths: Sequence[int]) -> tuple[int, int]:
    """The longest planned length, and a second length: the shortest, or half of the longest."""
    longest, shortest = max(lengths), min(lengths)
    return longest, shortest if shortest != longest else max(4, longest // 2)
