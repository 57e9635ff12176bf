"""Files of arrays: NumPy's npz, of an export or of a user."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import ExportError, MalformedFileError
from harness.core.extensions import reason
from harness.core.safe_files import Limit, open_to_read

Arrays = dict[str, NDArray[np.generic]]


UNREADABLE = (
    *(OSError, EOFError, ValueError, TypeError, MemoryError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, MalformedFileError),
)
"""Errors of zipfile and NumPy for a file that is damaged, malicious or not a file of arrays."""


def arrays_in(path: Path) -> Arrays:
    """Every array of a file, by name. Raises an error of UNREADABLE, also where they are larger than Limit.ARRAYS."""
    with open_to_read(path) as file:
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > Limit.ARRAYS:
            raise ValueError(f"it unpacks to more than {Limit.ARRAYS:,} bytes")
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


def read_arrays(path: Path) -> Arrays:
    """Every array of an export's file, by name. Raises MalformedFileError where it is missing or damaged."""
    try:
        return arrays_in(path)
    except UNREADABLE as error:
        raise MalformedFileError(
            f"{path} cannot be read ({reason(error)}).", "Run `make export`: it makes the file again."
        ) from error


def write_arrays(path: Path | IO[bytes], arrays: Arrays) -> None:
    """Write arrays as NumPy's npz. numpy.savez takes them as keywords, and refuses an array of the name `file`.

    Raises ExportError where they are larger than `arrays_in` takes.
    """
    size = sum(np.asanyarray(values).nbytes for values in arrays.values())
    if size > Limit.ARRAYS - (1 << 20):
        raise ExportError(
            f"Inputs or outputs have {size:,} bytes, and {Limit.ARRAYS:,} are the most that is read.",
            "Lower `measurement.parity_samples` in the configuration.",
        )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(values), allow_pickle=False)
