"""Files of a user's own inputs: `.npz`, arrays by input name, sample axis first; one file for each shape.

The plan keeps the shapes; own.py checks the values against a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.core import store
from harness.core.errors import MalformedFileError, MissingInputError, UsageError
from harness.core.extensions import reason
from harness.core.schemas import GivenInputs, Kind
from harness.zoo.stored import UNREADABLE, Arrays, arrays_in

FORM = "Write it by `numpy.savez('inputs.npz', <input>=<array>, …)`: the model's names, the first axis the sample."


def describe(paths: Sequence[str], kind: Kind) -> tuple[GivenInputs, ...]:
    """The facts that a plan keeps of the files: path, hash, and the extent that distinguishes several shapes.

    For text models that extent is the number of tokens, also of one file. Raises MissingInputError, MalformedFileError
    or UsageError.
    """
    files = [(path, read(Path(path))) for path in paths]
    lengths = _lengths(files) if len(files) > 1 else [_tokens(*files[0]) if kind == "text" else None]
    return tuple(
        GivenInputs(path=path, sha256=store.sha256_file(Path(path)), sequence_length=length)
        for (path, _), length in zip(files, lengths, strict=True)
    )


def read(path: Path) -> Arrays:
    """The arrays of a file. Raises MissingInputError, MalformedFileError or UsageError."""
    if not path.is_file():
        raise MissingInputError(
            f"There is no file of inputs {path}.", "Check the path of INPUTS; it is taken as given."
        )
    try:
        arrays = arrays_in(path)
    except UNREADABLE as error:
        raise MalformedFileError(f"{path} is no file of inputs that can be read: {reason(error)}.", FORM) from error
    if not arrays or not any(values.ndim for values in arrays.values()):
        raise UsageError(f"{path} holds no array with items.", FORM)
    return arrays


def _tokens(path: str, arrays: Arrays) -> int:
    ids = arrays.get("input_ids", next(iter(arrays.values())))
    if ids.ndim < 2:
        raise UsageError(f"{path} holds no (samples, tokens) of a text model.", FORM)
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
