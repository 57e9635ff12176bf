"""Real text: windows over our own sentences, tokenised to exactly the requested length; and the texts behind a text
model's exported inputs, with the preprocessing that makes these inputs from them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import ConfigError, InferometerError, UsageError
from harness.core.schemas import Case, ExportRecord, InputSet, TextPreparation
from harness.zoo import model_info
from harness.zoo.families import hub
from harness.zoo.identity import artifact
from harness.zoo.inputs.preprocessing import (
    TEXT_INPUTS,
    Prepare,
    RawSample,
    load_samples,
    prepare_of,
    samples_in_memory,
)
from harness.zoo.loaded import Request

_FILE = Path(__file__).with_name("sentences.txt")
Encode = Callable[[str, int], list[int]]
"""(text, longest length) → token ids with the model's special tokens, cut to that length."""
SOURCE = "English sentences written for this project (harness/zoo/inputs/sentences.txt)"


def sentences() -> list[str]:
    """The sentences, in order."""
    return _FILE.read_text(encoding="utf-8").split("\n")[:-1]


def token_ids(encode: Encode, samples: int, sequence_length: int) -> NDArray[np.int64]:
    """Token ids, int64 (samples, sequence_length): no padding, special tokens kept, every row different.

    Row i reads on from sentence i; after the last sentence, rows start again one word later. Raises UsageError where
    the requested length is too short for a word, or for that many different texts.
    """
    rows = [_row(encode, text, sequence_length) for text in passages(samples, sequence_length)]
    ids = np.asarray(rows, dtype=np.int64)
    if len(np.unique(ids, axis=0)) < samples:
        raise UsageError(
            f"{samples} different texts of {sequence_length} tokens could not be made.",
            "Ask for longer sequences, or for fewer `parity_samples`.",
        )
    return ids


def passages(samples: int, words: int) -> list[str]:
    """That many texts, each of at least that many words, for token_ids()."""
    texts = sentences()
    return [_passage(texts, index, words) for index in range(samples)]


def _passage(texts: list[str], index: int, length: int) -> str:
    first, words = index % len(texts), index // len(texts)
    opening = texts[first].split()[words:]
    # A word is at least one token, so `length` words are enough for any tokenizer.
    following = iter(texts[first + 1 :] + texts * (1 + length // 100))
    while len(opening) < length:
        opening += next(following).split()
    return " ".join(opening)


def _row(encode: Encode, text: str, length: int) -> list[int]:
    ids = encode(text, length)
    if len(ids) != length:
        raise UsageError(
            f"A sequence of {length} tokens cannot be made with this tokenizer (it gave {len(ids)}).",
            "Ask for a longer sequence.",
        )
    return ids


_TOKENIZER = "tokenizer.json"


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
        texts = _saved(case, stored, folder, kinds) or _model_texts(case, export, folder, kinds)
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
    samples = samples_in_memory(load_samples(folder / raw.items.path), raw.preparation)[: case.batch_size]
    return Texts(samples, prepare_of(raw.preparation, folder, kinds, case.sequence_length), "the exported tokenizer")


def _model_texts(case: Case, export: ExportRecord, folder: Path, kinds: Mapping[str, np.dtype[np.generic]]) -> Texts:
    """Raises HubError where the model's tokenizer is out of reach, ConfigError where it has no tokenizer.json."""
    request = Request(model_info(export.model), export.weights, 0, None, folder)
    origin = hub.origin_of(request)
    samples: list[RawSample] = [*passages(case.batch_size, case.sequence_length or 0)]
    if origin is not None and Path(origin, _TOKENIZER).is_file():  # then no other library is needed or imported
        return Texts(samples, _prepare(Path(origin), kinds, case), hub.OWN_TOKENIZER)
    tokenizer = hub.tokenizer(origin, request)
    with tempfile.TemporaryDirectory() as place:
        tokenizer.save(Path(place))
        if not Path(place, _TOKENIZER).is_file():
            raise ConfigError(f"The tokenizer of {export.model} has no {_TOKENIZER}.", "Save a fast tokenizer.")
        return Texts(samples, _prepare(Path(place), kinds, case), tokenizer.source)


def _prepare(place: Path, kinds: Mapping[str, np.dtype[np.generic]], case: Case) -> Prepare:
    return prepare_of(TextPreparation(tokenizer=artifact(place / _TOKENIZER)), place, kinds, case.sequence_length)
