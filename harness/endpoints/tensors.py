"""Arrays as tensors of KServe v2: names of element types, raw bytes, and JSON lists (pure).

Raw bytes are little-endian and row-major (Open Inference Protocol, "Tensor Data").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.endpoints.failures import RequestFailureError

DATATYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
_NAMES = {dtype: name for name, dtype in DATATYPES.items()}
_MOST_DIMENSIONS = 32
"""Of a NumPy array in version 1; version 2 has 64."""


def datatype_of(values: NDArray[np.generic]) -> str:
    """The protocol's name of an array's element type. Raises KeyError for types that it does not have."""
    return _NAMES[values.dtype.newbyteorder("<") if values.dtype.itemsize > 1 else values.dtype]


def raw_of(values: NDArray[np.generic]) -> memoryview:
    """An array's bytes, without a copy where it is contiguous."""
    plain = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return plain.reshape(-1).view(np.uint8).data


def from_raw(name: str, datatype: object, shape: object, raw: bytes | memoryview) -> NDArray[np.generic]:
    """An array from the bytes of an answer. Raises RequestFailureError (malformed) where they do not fit together."""
    dtype, dimensions = _described(name, datatype, shape)
    if len(raw) != math.prod(dimensions) * dtype.itemsize:
        raise RequestFailureError(
            "malformed", f"output `{name}` has {len(raw)} bytes, which is not {datatype} of shape {dimensions}"
        )
    return np.frombuffer(raw, dtype).reshape(dimensions)


def from_values(name: str, datatype: object, shape: object, data: Sequence[Any]) -> NDArray[np.generic]:
    """The same from numbers: flat or nested lists, both of which the protocol allows."""
    dtype, dimensions = _described(name, datatype, shape)
    try:
        found = np.asarray(data)
    except ValueError as error:
        raise RequestFailureError("malformed", f"output `{name}` has lists of different lengths") from error
    if found.size != math.prod(dimensions) or (found.size and found.dtype.kind not in "biuf"):
        raise RequestFailureError(
            "malformed",
            f"output `{name}` has {found.size} values ({found.dtype}), not {datatype} of {dimensions}",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return found.reshape(dimensions).astype(dtype)


def _described(name: str, datatype: object, shape: object) -> tuple[np.dtype[Any], tuple[int, ...]]:
    dtype = DATATYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None:
        raise RequestFailureError("malformed", f"output `{name}` has the type {datatype!r}, which is not a number's")
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) > _MOST_DIMENSIONS:
        raise RequestFailureError("malformed", f"output `{name}` has no shape")
    if not all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 40 for size in shape):
        raise RequestFailureError("malformed", f"output `{name}` has a shape of other things than sizes")
    return dtype, tuple(shape)
