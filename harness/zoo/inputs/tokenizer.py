"""The texts behind a text model's exported inputs, and the preprocessing that makes these inputs from them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import ConfigError, InferometerError
from harness.core.schemas import Case, ExportRecord, InputSet, TextPreparation
from harness.zoo import model_info
from harness.zoo.export_request import artifact
from harness.zoo.families import hub
from harness.zoo.inputs.preprocessing import (
    TEXT_INPUTS,
    Prepare,
    RawSample,
    in_hand,
    load_samples,
    prepare_of,
)
from harness.zoo.inputs.sentences import passages
from harness.zoo.loaded import Request

_FILE = "tokenizer.json"


@dataclass(frozen=True)
class Texts:
    """The texts of a batch and the function that makes input arrays of them; source: whose tokenizer, in words."""

    samples: list[RawSample]
    prepare: Prepare
    source: str


def texts_of(case: Case, export: ExportRecord, folder: Path, batch: Mapping[str, NDArray[np.generic]]) -> Texts | str:
    """The texts of a case's first batch; the reason, where its ids come from no text.

    The tokenizer is the export's where an e2e case requires it, else the model's own. It is used only where it gives
    exactly the ids of `batch`.
    """
    stored = next(inputs for inputs in export.input_sets if inputs.sequence_length == case.sequence_length)
    known = all(spec.name in TEXT_INPUTS for spec in export.inputs) and model_info(export.model).preprocessing
    if not known:
        return f"not measured: no tokenizer alone makes these inputs ({stored.source})"
    kinds = {spec.name: batch[spec.name].dtype for spec in export.inputs}
    try:
        texts = _saved(case, stored, folder, kinds) or _own(case, export, folder, kinds)
    except InferometerError as error:
        return f"not measured: {error.problem}"
    made = texts.prepare(texts.samples)
    if not all(np.array_equal(made[name], batch[name]) for name in kinds):
        return "not measured: the tokenizer that is found here does not give the ids that the model is measured with"
    return texts


def _saved(case: Case, stored: InputSet, folder: Path, kinds: Mapping[str, np.dtype[np.generic]]) -> Texts | None:
    raw = stored.raw
    if raw is None or raw.preparation.kind != "text":
        return None
    samples = in_hand(load_samples(folder / raw.items.path), raw.preparation)[: case.batch_size]
    return Texts(samples, prepare_of(raw.preparation, folder, kinds, case.sequence_length), "the exported tokenizer")


def _own(case: Case, export: ExportRecord, folder: Path, kinds: Mapping[str, np.dtype[np.generic]]) -> Texts:
    """Raises HubError where the model's tokenizer is out of reach, ConfigError where it has no tokenizer.json."""
    request = Request(model_info(export.model), export.weights, 0, None, folder)
    origin = hub.origin_of(request)
    samples: list[RawSample] = [*passages(case.batch_size, case.sequence_length or 0)]
    if origin is not None and Path(origin, _FILE).is_file():  # then no other library is needed or imported
        return Texts(samples, _prepare(Path(origin), kinds, case), hub.OWN_TOKENIZER)
    tokenizer = hub.tokenizer(origin, request)
    with tempfile.TemporaryDirectory() as place:
        tokenizer.save(Path(place))
        if not Path(place, _FILE).is_file():
            raise ConfigError(f"The tokenizer of {export.model} has no {_FILE}.", "Save a fast tokenizer.")
        return Texts(samples, _prepare(Path(place), kinds, case), tokenizer.source)


def _prepare(place: Path, kinds: Mapping[str, np.dtype[np.generic]], case: Case) -> Prepare:
    return prepare_of(TextPreparation(tokenizer=artifact(place / _FILE)), place, kinds, case.sequence_length)
