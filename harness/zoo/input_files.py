"""Files of inputs: arrays in NumPy's npz, of an export or of a user's own, and a user's prompts.

A user gives one file for each shape: arrays by input name, sample axis first. The plan keeps the shapes; inputs/own.py
checks the values against a model. `plan` reads these files, so no inference library is imported here.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from harness.core import store
from harness.core.errors import ConfigError, ExportError, MalformedFileError, UsageError, reason
from harness.core.given_paths import require_file
from harness.core.safe_files import SizeLimit, open_to_read, read_text
from harness.core.schemas import GivenInputs, Kind
from harness.core.units import count

Arrays = dict[str, NDArray[np.generic]]
"""Arrays of N samples by tensor name; the first axis is the sample."""

UNREADABLE = (
    *(OSError, EOFError, ValueError, TypeError, MemoryError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, MalformedFileError),
)
"""Errors of zipfile and NumPy for a file that is damaged, malicious or not a file of arrays."""


def read_npz(path: Path) -> Arrays:
    """Every array of a file, by name. Raises an error of UNREADABLE, also above SizeLimit.ARRAYS."""
    with open_to_read(path) as file:
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > SizeLimit.ARRAYS:
            raise ValueError(f"it unpacks to more than {SizeLimit.ARRAYS:,} bytes")
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


def read_arrays(path: Path) -> Arrays:
    """Every array of an export's file, by name. Raises MalformedFileError where it is missing or damaged."""
    try:
        return read_npz(path)
    except UNREADABLE as error:
        raise MalformedFileError(
            f"{path} cannot be read ({reason(error)}).", "Run `make export`: it makes the file again."
        ) from error


def write_arrays(path: Path | IO[bytes], arrays: Arrays) -> None:
    """Write arrays as NumPy's npz. numpy.savez takes them as keywords, and refuses an array of the name `file`.

    Raises ExportError where they are larger than `arrays_in` takes.
    """
    size = sum(np.asanyarray(values).nbytes for values in arrays.values())
    if size > SizeLimit.ARRAYS - (1 << 20):
        raise ExportError(
            f"Inputs or outputs have {size:,} bytes, and {SizeLimit.ARRAYS:,} are the most that is read.",
            "Lower `measurement.parity_samples` in the configuration.",
        )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(values), allow_pickle=False)


MIN_SAMPLES = 8
"""With this many different samples no variations are made: the least number of batches (backends/batches.py)."""

FORM = "Write it by `numpy.savez('inputs.npz', <input>=<array>, …)`: the model's names, the first axis the sample."


def describe_inputs(paths: Sequence[str], kind: Kind) -> tuple[GivenInputs, ...]:
    """The facts that a plan keeps of the files: path, hash, and the extent that distinguishes several shapes.

    For text models that extent is the number of tokens, also of one file; a file of texts has none. Raises
    MissingInputError, MalformedFileError or UsageError.
    """
    texts = [path for path in paths if _given(path).holds_texts]
    if texts:
        if len(paths) > 1:
            raise UsageError(
                f"{texts[0]} holds texts, and INPUTS names {len(paths)} files.", "Write all texts into one file."
            )
        read_texts(Path(texts[0]))
        return (_given(texts[0], store.sha256_file(Path(texts[0]))),)
    files = [(path, read_inputs(Path(path))) for path in paths]
    lengths = _lengths(files) if len(files) > 1 else [_tokens(*files[0]) if kind == "text" else None]
    return tuple(
        _given(path, store.sha256_file(Path(path)), length) for (path, _), length in zip(files, lengths, strict=True)
    )


def _given(path: str, sha256: str = "", length: int | None = None) -> GivenInputs:
    return GivenInputs(path=path, sha256=sha256, sequence_length=length)


def _require_file(path: Path) -> None:
    hint = "Check INPUTS; a relative path begins at the current folder."
    require_file(path, "INPUTS", hint, "Name a file in it: INPUTS=<file>.npz or INPUTS=<file>.txt.")


def read_texts(path: Path) -> list[str]:
    """The different texts of a file, one a line, without empty lines and spaces around them.

    Raises MissingInputError, MalformedFileError, or UsageError for fewer than MIN_SAMPLES.
    """
    _require_file(path)
    texts = list(dict.fromkeys(filter(None, _lines(path, SizeLimit.RECORD, "one text a line"))))
    if len(texts) < MIN_SAMPLES:
        raise UsageError(
            f"{path} has {count(len(texts), 'different text')}, and {MIN_SAMPLES} are the least.",
            f"Write at least {MIN_SAMPLES}, one a line.",
        )
    return texts


def read_inputs(path: Path) -> Arrays:
    """The arrays of a file. Raises MissingInputError, MalformedFileError or UsageError."""
    _require_file(path)
    try:
        arrays = read_npz(path)
    except UNREADABLE as error:
        raise MalformedFileError(f"{path} is no file of inputs that can be read: {reason(error)}.", FORM) from error
    if not arrays or not any(values.ndim for values in arrays.values()):
        raise UsageError(f"{path} has no array with items.", FORM)
    return arrays


def _tokens(path: str, arrays: Arrays) -> int:
    ids = arrays.get("input_ids", next(iter(arrays.values())))
    if ids.ndim < 2:
        raise UsageError(f"{path} has no array (samples, tokens) of a text model.", FORM)
    return int(ids.shape[1])


def _lengths(files: Sequence[tuple[str, Arrays]]) -> list[int]:
    """The extents that distinguish the files: of the first axis, after the sample axis, in which all files differ."""
    first_path, first = files[0]
    for path, arrays in files[1:]:
        if {name: values.ndim for name, values in arrays.items()} != {n: v.ndim for n, v in first.items()}:
            raise UsageError(
                f"{path} and {first_path} hold other inputs.", "Give the same names in each; one file a shape."
            )
    for name, values in first.items():
        for axis in range(1, values.ndim):
            extents = [int(arrays[name].shape[axis]) for _, arrays in files]
            if len(set(extents)) == len(files):
                return extents
    raise UsageError(
        f"No axis distinguishes the shapes of {', '.join(path for path, _ in files)}.",
        "One file a shape; samples of one shape belong into one file.",
    )


_PAIR = re.compile(r"\s*(\d{1,7})[\s,]+(\d{1,7})\s*")


def length_pairs(path: Path) -> list[tuple[int, int]] | None:
    """(prompt tokens, new tokens) of each line; None where the file holds texts. Raises as prompt_lines.

    Empty lines and lines that begin with # are left out. A pair may occur several times.
    """
    matches = [_PAIR.fullmatch(line) for line in prompt_lines(path)]
    if not any(matches):
        return None
    wrong = next((number for number, match in enumerate(matches, 1) if match is None), None)
    if wrong is not None:
        raise ConfigError(
            f"{path}: entry {wrong} is not `<prompt tokens> <new tokens>`, and others are.",
            "Write a pair of numbers in each line, or a prompt in each line.",
        )
    pairs = [(int(match[1]), int(match[2])) for match in matches if match is not None]
    if any(0 in pair for pair in pairs):
        raise ConfigError(f"{path} has a length of 0.", "A prompt and an output have at least one token.")
    return pairs


def prompt_lines(path: Path) -> list[str]:
    """Its lines without spaces around them; empty lines and lines that begin with # are left out.

    Raises MissingInputError, MalformedFileError where it is not UTF-8, or ConfigError where no line is left.
    """
    require_file(path, "PROMPTS", "PROMPTS takes lengths, as 128,1024, or a file of prompts.")
    lines = _lines(path, SizeLimit.TEXT, "one prompt a line, or one pair of lengths")
    kept = [line for line in lines if line and not line.startswith("#")]
    if not kept:
        raise ConfigError(f"{path} has no prompt.", "Write a prompt in each line, or a pair of lengths.")
    return kept


def _lines(path: Path, limit: SizeLimit, form: str) -> list[str]:
    """The lines of a text file, without spaces around them and without the byte order mark that some editors write.

    form: of its content, for the hint. Raises MalformedFileError where it is not UTF-8 or above the limit.
    """
    try:
        content = read_text(path, limit)
    except ValueError as error:
        raise MalformedFileError(f"{path} is no text in UTF-8.", f"Save it as UTF-8, {form}.") from error
    return [line.strip() for line in content.removeprefix("\ufeff").split("\n")]
