"""Export the inputs of the e2e boundary: items as a caller has them, and the reference outputs for exactly those."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.core import limits
from harness.core.errors import ExportError
from harness.core.layout import ModelFolder
from harness.core.schemas import Artifact, Preparation, RawInputs
from harness.zoo.diagnosis import check_comparable
from harness.zoo.loaded import Arrays, Inputs, Loaded, Raw
from harness.zoo.raw import in_hand, prepare_of, save_items
from harness.zoo.reference import in_chunks, reference_of, relative_l2
from harness.zoo.request import artifact
from harness.zoo.stored import write_arrays

MAX_JPEG_DISTANCE = 0.1
"""Largest relative L2 between a picture's inputs by way of JPEG and without: quality 95 gave 0.04 over the sample
photographs (measured; 0.02 to 0.08 each). More says that the e2e preprocessing is not the model's own."""


def raw_inputs(
    loaded: Loaded, inputs: Mapping[int | None, Inputs], folder: ModelFolder, samples: int
) -> dict[int | None, RawInputs]:
    """Write raw inputs and their reference for every sequence length. Nothing where the preprocessing is not known.

    Raises ExportError where preparing the items does not give the inputs that the other boundaries use: exactly those
    for text, those but for JPEG's loss for pictures.
    """
    found: dict[int | None, RawInputs] = {}
    for length, made in inputs.items():
        if loaded.make_raw is not None:
            found[length] = _one(loaded, loaded.make_raw(samples, length), made, folder, length)
    return found


def _one(loaded: Loaded, raw: Raw, made: Inputs, folder: ModelFolder, length: int | None) -> RawInputs:
    kinds = {name: made.arrays[name].dtype for name in loaded.input_names}
    prepare = prepare_of(raw.preparation, folder.root, kinds, length)
    prepared = prepare(in_hand(raw.items, raw.preparation))
    _check(prepared, made.arrays, exact=_is_exact(raw.preparation))
    save_items(raw.items, folder.raw_inputs(length))
    return RawInputs(
        items=artifact(folder.raw_inputs(length)),
        reference=_reference(loaded, raw, prepared, folder, length),
        preparation=raw.preparation,
        answer=raw.answer,
    )


def _is_exact(how: Preparation) -> bool:
    """Whether the items become exactly the stored inputs: JPEG alone loses something."""
    return how.kind == "text" or (how.kind == "processor" and how.media == "audio")


def _check(prepared: Arrays, stored: Arrays, exact: bool) -> None:
    for name, wanted in stored.items():
        got = prepared[name]
        same = got.shape == wanted.shape and got.dtype == wanted.dtype
        if exact and not (same and np.array_equal(got, wanted)):
            raise ExportError(
                f"The saved tokenizer or processor gives other inputs than those that are measured: `{name}`.",
                "Leave `boundaries: [e2e]` out for this model.",
            )
        distance = relative_l2(got, wanted) if same and not exact else 0.0
        if not same or distance > MAX_JPEG_DISTANCE:
            raise ExportError(
                f"Decoded JPEG files are not what the model is measured with: `{name}` is {distance:.2f} away.",
                "Leave `boundaries: [e2e]` out for this model.",
            )


def _reference(loaded: Loaded, raw: Raw, prepared: Arrays, folder: ModelFolder, length: int | None) -> Artifact:
    if _is_exact(raw.preparation):
        # The inputs are the very same, so the outputs are as well.
        return artifact(folder.reference(length))
    outputs = in_chunks(reference_of(loaded, limits.threads()), prepared, loaded.fixed_batch)
    check_comparable(folder.root.name, outputs)
    write_arrays(folder.raw_reference(length), outputs)
    return artifact(folder.raw_reference(length))
