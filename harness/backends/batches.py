"""A model's stored inputs and reference outputs, as the rotating batches of one case."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from harness.backends.base import Array, Batch
from harness.core.errors import CaseError, MissingInputError
from harness.core.padding import Mask, mask_of
from harness.core.schemas import Case, ExportRecord, InputSet, NewSamples
from harness.timing.repeat_check import NewBatches
from harness.timing.rotation import MIN_BATCHES, batch_starts
from harness.zoo.batch_axes import in_model_layout
from harness.zoo.input_files import read_arrays
from harness.zoo.inputs.preprocessing import (
    RawSample,
    answer_of,
    load_samples,
    prepare_of,
    samples_in_memory,
)


@dataclass(frozen=True)
class BatchSet:
    """The batches of a case: inputs[i] are arrays of shape (batch, …), or with the batch on the model's axis;
    reference(i) the fp32 outputs for them; masks[i] the tokens that are compared, None where all are. new(): the
    batches with new samples, read only then, so that they are no memory of the backend; or why there are none; None at
    the e2e boundary, where no raw sample is prepared to them, and for older exports."""

    inputs: tuple[Batch, ...]
    reference: Callable[[int], Batch]
    masks: tuple[Mask | None, ...]
    new: Callable[[], NewBatches] | str | None = None


@dataclass(frozen=True)
class RawBatchSet:
    """The batches of an e2e case.

    samples: texts or JPEG files of each batch; prepare: samples → input arrays; answer: (outputs, input arrays) → the
    caller's answer; reference(i): the fp32 outputs for batch i as prepare() prepares it.
    """

    samples: tuple[Sequence[RawSample], ...]
    prepare: Callable[[Sequence[RawSample]], Batch]
    answer: Callable[[Batch, Batch], object]
    reference: Callable[[int], Batch]


NO_BATCHES = BatchSet(inputs=({},) * MIN_BATCHES, reference=lambda index: {}, masks=(None,) * MIN_BATCHES)
"""For a backend that loads nothing: the least number of batches, all empty."""


def empty_export(case: Case) -> ExportRecord:
    """The export record of a case that loads nothing."""
    return ExportRecord(
        request_sha256="",
        model=case.model,
        slug=case.slug,
        weights=case.weights,
        weight_source="none",
        kind="tensor",
        classifier=False,
        parameters=None,
        inputs=(),
        outputs=(),
        module=None,
        onnx={},
        input_sets=(),
        checks=(),
        versions={},
        seconds={},
    )


def load_batches(folder: Path, export: ExportRecord, case: Case, samples: int) -> BatchSet:
    """Read the inputs of the case's sequence length.

    Raises MissingInputError when the export has no inputs of that length, or fewer than `samples`; CaseError where the
    model takes batches of another size alone.
    """
    _require_batch(export, case)
    chosen = _input_set(export, case, samples)
    samples = min(samples, chosen.samples)
    starts = batch_starts(samples, case.batch_size)
    axes = {spec.name: spec.batch_axis for spec in export.inputs if spec.batch_axis != 0}
    batch = _batch_of(folder / chosen.inputs.path, samples, case.batch_size)
    reference = _batch_of(folder / chosen.reference.path, samples, case.batch_size)
    inputs = [batch(index) for index in range(len(starts))]
    masks = tuple(map(mask_of, inputs))

    def new(of_export: NewSamples) -> NewBatches:
        first, answers = (read_arrays(folder / file.path) for file in (of_export.inputs, of_export.reference))
        rows = _rows_of_first(len(next(iter(first.values()))), samples, case.batch_size)

        def with_first(stored: Batch, index: int, news: Batch) -> dict[str, Array]:
            places = [(starts[index] + row) % samples for row in rows[index]]
            replaced = {name: np.array(values) for name, values in stored.items()}
            for name, values in replaced.items():
                values[rows[index]] = news[name][places]
            return replaced

        return NewBatches(
            rows=rows,
            inputs=lambda index: in_model_layout(with_first(inputs[index], index, first), axes),
            reference=lambda index: with_first(reference(index), index, answers),
        )

    return BatchSet(
        tuple(in_model_layout(dict(arrays), axes) for arrays in inputs),
        reference,
        masks,
        None if case.boundary == "e2e" else chosen.new_missing if chosen.new is None else partial(new, chosen.new),
    )


def _rows_of_first(count: int, samples: int, batch_size: int) -> dict[int, list[int]]:
    """Batch number → the rows that hold one of the first `count` samples, of batches that have such rows."""
    rows = {
        index: [row for row in range(batch_size) if (start + row) % samples < count]
        for index, start in enumerate(batch_starts(samples, batch_size))
    }
    return {index: own for index, own in rows.items() if own}


def _require_batch(export: ExportRecord, case: Case) -> None:
    extents = [spec.shape[spec.batch_axis] for spec in export.inputs if spec.batch_axis is not None]
    fixed = next((extent for extent in extents if isinstance(extent, int) and extent != case.batch_size), None)
    if fixed is not None:
        under_load = ", under load MAX_BATCH=1" if fixed == 1 else ""
        raise CaseError(
            f"{case.model} is fixed to batch size {fixed}.",
            f"Export it with a dynamic batch, or plan only that: `make bench BATCHES={fixed}`{under_load}.",
        )


def load_raw_batches(folder: Path, export: ExportRecord, case: Case, samples: int) -> RawBatchSet:
    """Read the same batches as a caller has them. Raises MissingInputError where the export has no raw inputs."""
    chosen = _input_set(export, case, samples)
    samples = min(samples, chosen.samples)
    raw = chosen.raw
    if raw is None:
        raise MissingInputError(
            f"The export of {case.model} has no raw inputs, which the e2e boundary starts from.",
            "Run `make export` again: the plan has changed since.",
        )
    held = samples_in_memory(load_samples(folder / raw.items.path)[:samples], raw.preparation)
    kinds = {spec.name: np.dtype(spec.dtype) for spec in export.inputs}
    return RawBatchSet(
        samples=tuple(
            [held[place % samples] for place in range(start, start + case.batch_size)]
            for start in batch_starts(samples, case.batch_size)
        ),
        prepare=prepare_of(raw.preparation, folder, kinds, chosen.sequence_length),
        answer=answer_of(raw.answer),
        reference=_batch_of(folder / raw.reference.path, samples, case.batch_size),
    )


def _input_set(export: ExportRecord, case: Case, samples: int) -> InputSet:
    for inputs in export.input_sets:
        if inputs.sequence_length == case.sequence_length and (inputs.samples >= samples or inputs.complete):
            return inputs
    raise MissingInputError(
        f"The export of {case.model} has no {samples} inputs of sequence length {case.sequence_length}.",
        "Run `make export` again: the plan has changed since.",
    )


def _batch_of(file: Path, samples: int, batch_size: int) -> Callable[[int], Batch]:
    """index → that batch of the arrays in a file."""
    starts = batch_starts(samples, batch_size)
    arrays = _tiled(file, samples, batch_size)

    def batch(index: int) -> dict[str, Array]:
        start = starts[index]
        return {name: array[start : start + batch_size] for name, array in arrays.items()}

    return batch


def _tiled(file: Path, samples: int, batch_size: int) -> dict[str, Array]:
    """Arrays long enough that every batch is a plain slice, so that no batch costs a copy of its own."""
    repeats = math.ceil((samples + batch_size) / samples)
    return {name: np.concatenate([array[:samples]] * repeats) for name, array in read_arrays(file).items()}
