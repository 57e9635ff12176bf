"""Inputs as a caller has them, and a caller's work on them: texts, JPEG or WAV files → arrays → an answer.

Export writes them, the worker reads them. That needs neither torch nor transformers, except for a model's own
processor of pictures or sounds. All of it runs on the calling thread: the launcher (processes/launcher.py) switches
the tokenizers' own threads off.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UnavailableError
from harness.core.schemas import Answer, ImagePreparation, Preparation, ProcessorPreparation
from harness.zoo.input_files import Arrays, read_arrays
from harness.zoo.inputs.sounds import decode_wav


def processor_of(how: ProcessorPreparation, folder: Path, name: str) -> Callable[[Sequence[Any]], Arrays]:
    """Samples (JPEG or WAV files, or pictures) → the input `name`. Raises UnavailableError without transformers."""
    try:
        import transformers  # noqa: PLC0415 - seconds, and only these models need it
    except ImportError as error:
        raise UnavailableError(
            "The transformers library is not installed here, whose processor prepares this model's inputs.",
            "Leave `boundaries: [e2e]` out for this backend, or install transformers for its Python.",
        ) from error
    place = (folder / how.processor.path).parent
    if how.media == "image":
        pictures = transformers.AutoImageProcessor.from_pretrained(place, backend="pil", local_files_only=True)
        return lambda samples: _single_array(
            pictures(images=[_picture(sample) for sample in samples], return_tensors="np"), name
        )
    sounds = transformers.AutoFeatureExtractor.from_pretrained(place, local_files_only=True)
    rate = int(getattr(sounds, "sampling_rate", 16_000))

    def prepare(samples: Sequence[Any]) -> Arrays:
        return _single_array(
            sounds([decode_wav(sample) for sample in samples], sampling_rate=rate, return_tensors="np"), name
        )

    return prepare


def _picture(sample: Any) -> Any:
    from PIL import Image  # noqa: PLC0415 - only images need it

    return Image.open(io.BytesIO(sample)).convert("RGB") if isinstance(sample, bytes) else sample


def _single_array(prepared: Any, name: str) -> Arrays:
    return {name: np.ascontiguousarray(prepared[name], dtype=np.float32)}


RawSample = bytes | str
"""A JPEG or WAV file, or a text."""

Prepare = Callable[[Sequence[RawSample]], Arrays]
"""The samples of one batch → input arrays by name."""

TEXT_INPUTS: Mapping[str, str] = {"input_ids": "ids", "attention_mask": "attention_mask"}
"""Inputs made from a text, by the tokenizer's names."""

TOP = 5


def save_samples(samples: Sequence[bytes], path: Path) -> None:
    """Write samples one after the other, with the place where each begins; the same samples give the same bytes."""
    ends = np.cumsum([len(sample) for sample in samples], dtype=np.int64)
    np.savez(path, allow_pickle=False, data=np.frombuffer(b"".join(samples), dtype=np.uint8), ends=ends)


def load_samples(path: Path) -> list[bytes]:
    """The samples in their order."""
    stored = read_arrays(path)
    data, ends = stored["data"].tobytes(), stored["ends"].tolist()
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def samples_in_memory(samples: Sequence[bytes], preparation: Preparation) -> list[RawSample]:
    """The samples as a program holds them: texts as strings, JPEG and WAV files as bytes."""
    return [sample.decode() for sample in samples] if preparation.kind == "text" else list(samples)


def prepare_of(
    how: Preparation, folder: Path, kinds: Mapping[str, np.dtype[Any]], sequence_length: int | None
) -> Prepare:
    """The model's own preprocessing, rebuilt from the export's files below `folder`; kinds: element type by input."""
    if how.kind == "image":
        return _images(how, next(iter(kinds)))
    if how.kind == "processor":
        return processor_of(how, folder, next(iter(kinds)))
    return _texts(folder / how.tokenizer.path, kinds, sequence_length or 0)


def _texts(tokenizer_file: Path, kinds: Mapping[str, np.dtype[Any]], length: int) -> Prepare:
    from tokenizers import Tokenizer  # noqa: PLC0415 - only text needs it

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=length)
    wanted = [(name, TEXT_INPUTS[name], kind) for name, kind in kinds.items()]

    def prepare(samples: Sequence[RawSample]) -> Arrays:
        encoded = tokenizer.encode_batch(samples)
        return {name: np.array([getattr(row, column) for row in encoded], dtype=kind) for name, column, kind in wanted}

    return prepare


def _images(how: ImagePreparation, name: str) -> Prepare:
    from PIL import Image  # noqa: PLC0415 - only images need it

    from harness.zoo.inputs.images import pixels_of  # noqa: PLC0415 - likewise

    transform = pixels_of(how)

    def prepare(samples: Sequence[RawSample]) -> Arrays:
        pictures = (Image.open(io.BytesIO(sample)) for sample in samples if isinstance(sample, bytes))
        return {name: np.stack([transform(picture.convert("RGB")) for picture in pictures])}

    return prepare


def answer_of(kind: Answer) -> Callable[[Mapping[str, NDArray[np.generic]], Mapping[str, NDArray[np.generic]]], object]:
    """(outputs, prepared inputs) → the answer that a caller of such a model wants."""
    return {"top-5": _top, "embedding": _embedding, "next token": _next_token, "outputs": _outputs}[kind]


def _first(outputs: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float32]:
    return np.asarray(next(iter(outputs.values())), dtype=np.float32)


def _top(
    outputs: Mapping[str, NDArray[np.generic]], inputs: Mapping[str, NDArray[np.generic]]
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """(classes, probabilities), both (batch, 5), likeliest first; softmax over the logits of output 0."""
    del inputs
    logits = _first(outputs)
    # The largest logit taken off first: exp() of it would overflow.
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities = weights / weights.sum(axis=-1, keepdims=True)
    top = min(TOP, logits.shape[-1])
    some = np.argpartition(probabilities, -top, axis=-1)[:, -top:]
    order = np.argsort(-np.take_along_axis(probabilities, some, axis=-1), axis=-1, kind="stable")
    classes = np.take_along_axis(some, order, axis=-1)
    return classes, np.take_along_axis(probabilities, classes, axis=-1)


def _embedding(
    outputs: Mapping[str, NDArray[np.generic]], inputs: Mapping[str, NDArray[np.generic]]
) -> NDArray[np.float32]:
    """(batch, hidden): mean of the hidden states over the attention mask, scaled to length 1, as
    sentence-transformers does it."""
    hidden = _first(outputs)
    mask = np.asarray(inputs["attention_mask"], dtype=np.float32)[:, None, :]
    pooled = np.matmul(mask, hidden)[:, 0] / np.maximum(mask.sum(axis=-1), np.float32(1e-9))
    norms = np.linalg.norm(pooled, axis=-1, keepdims=True)
    scaled: NDArray[np.float32] = pooled / np.maximum(norms, np.float32(1e-12))
    return scaled


def _outputs(outputs: Mapping[str, NDArray[np.generic]], inputs: Mapping[str, NDArray[np.generic]]) -> object:
    """The outputs unchanged."""
    del inputs
    return outputs


def _next_token(
    outputs: Mapping[str, NDArray[np.generic]], inputs: Mapping[str, NDArray[np.generic]]
) -> NDArray[np.intp]:
    """(batch,): the likeliest next token, greedy."""
    del inputs
    tokens: NDArray[np.intp] = _first(outputs).argmax(axis=-1)
    return tokens
