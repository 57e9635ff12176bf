"""The arrays that an export left in a model's folder."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from harness.core.errors import MalformedFileError
from harness.core.extensions import reason
from harness.zoo.loaded import Arrays


def read_arrays(path: Path) -> Arrays:
    """Every array of a file, by name. Raises MalformedFileError where the file is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise MalformedFileError(
            f"{path} cannot be read ({reason(error)}).", "Run `make export`: it makes the file again."
        ) from error


def write_arrays(path: Path | IO[bytes], arrays: Arrays) -> None:
    """Write arrays as NumPy's npz. numpy.savez takes them as keywords, and refuses an array of the name `file`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(values), allow_pickle=False)
