"""KServe v2 (Open Inference Protocol) in both transports: arrays as its tensors, a service's description compared with
a sample, and the times that a server reports (pure).

Raw bytes are little-endian and row-major (Open Inference Protocol, "Tensor Data"). Times: in an answer the parameters
`queue_ns` and `compute_ns`; as sums since the server's start Triton's statistics extension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core import text as sanitize
from harness.core.errors import UsageError
from harness.endpoints.contract import Exchange, Prompt, RequestFailureError, Sample, ServerTotals, Tensors
from harness.endpoints.target import Target

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
    """As from_raw, from numbers in flat or nested lists: the protocol allows both."""
    dtype, dimensions = _described(name, datatype, shape)
    try:
        values = np.asarray(data)
    except ValueError as error:
        raise RequestFailureError("malformed", f"output `{name}` has lists of different lengths") from error
    if values.size != math.prod(dimensions) or (values.size and values.dtype.kind not in "biuf"):
        raise RequestFailureError(
            "malformed",
            f"output `{name}` has {values.size} values ({values.dtype}), not {datatype} of {dimensions}",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return values.reshape(dimensions).astype(dtype)


def _described(name: str, datatype: object, shape: object) -> tuple[np.dtype[Any], tuple[int, ...]]:
    dtype = DATATYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None:
        raise RequestFailureError("malformed", f"output `{name}` has the type {datatype!r}, which is not a number's")
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) > _MOST_DIMENSIONS:
        raise RequestFailureError("malformed", f"output `{name}` has no shape")
    if not all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 40 for size in shape):
        raise RequestFailureError("malformed", f"output `{name}` has a shape of other things than sizes")
    return dtype, tuple(shape)


Declared = Mapping[str, tuple[str, Sequence[int]]]
"""Datatype and shape (-1: any size) of each input, by name."""


def tensors_of(sample: Sample, target: Target) -> Tensors:
    """The arrays of a sample. Raises UsageError for a prompt, and for arrays that the protocol has no type for."""
    if isinstance(sample, Prompt):
        raise UsageError(
            f"{target.url} takes tensors, and a prompt is to be sent.",
            "Name the completions endpoint of the server: ENDPOINT=openai+http://…/v1/completions.",
        )
    for name, values in sample.items():
        try:
            datatype_of(values)
        except KeyError:
            raise UsageError(
                f"Input `{name}` has the type {values.dtype}, which KServe v2 cannot carry.",
                "Measure a precision whose inputs are fp32, fp16 or integers.",
            ) from None
    return sample


def check_inputs(target: Target, declared: Declared, sample: Tensors) -> None:
    """Raise UsageError where names, types or shapes of a service's inputs are not those of a sample."""
    if missing := sorted(declared.keys() - sample.keys()):
        raise _other(target, f"needs input `{missing[0]}`", f"inputs {_names(sample)}")
    if unknown := sorted(sample.keys() - declared.keys()):
        raise _other(target, f"has inputs {_names(declared)}", f"input `{unknown[0]}`")
    for name, (datatype, shape) in declared.items():
        values = sample[name]
        if datatype != datatype_of(values):
            raise _other(target, f"takes {datatype} for `{name}`", datatype_of(values))
        if not _fits(shape, values.shape):
            raise _other(target, f"takes the shape {list(shape)} for `{name}`", f"{list(values.shape)}")


def declared_by(inputs: object) -> Declared | None:
    """The inputs of a model's metadata; None where it lists none or has another form."""
    if not isinstance(inputs, Sequence) or isinstance(inputs, str) or not inputs:
        return None
    declared: dict[str, tuple[str, Sequence[int]]] = {}
    for entry in inputs:
        if not isinstance(entry, Mapping):
            return None
        name, datatype, shape = entry.get("name"), entry.get("datatype"), entry.get("shape")
        if not isinstance(name, str) or not isinstance(datatype, str) or not isinstance(shape, Sequence):
            return None
        # protobuf's JSON writes 64-bit integers as strings.
        sizes = [int(size) for size in shape if isinstance(size, int) or str(size).lstrip("-").isdecimal()]
        if len(sizes) != len(shape):
            return None
        declared[sanitize.plain_name(name) if not name.isprintable() else name] = datatype, sizes
    return declared


def _fits(declared: Sequence[int], shape: Sequence[int]) -> bool:
    return len(declared) == len(shape) and all(known in (-1, size) for known, size in zip(declared, shape, strict=True))


def _names(inputs: Mapping[str, object]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(inputs)) or "none"


def _other(target: Target, declared: str, present: str) -> UsageError:
    return UsageError(
        f"{sanitize.one_line(f'{target.url} {declared}, and this model has {present}')}.",
        "Serve the ONNX file of this export (models/<model>/<export>/model.onnx), or name the endpoint of this model.",
    )


_MOST_NS = 1 << 60


def note_parameters(parameters: object, trace: Exchange) -> None:
    """Write the times in an answer's parameters into its trace."""
    if isinstance(parameters, Mapping):
        trace.server_queue_ns = _count_or(parameters.get("queue_ns"), trace.server_queue_ns)
        trace.server_compute_ns = _count_or(parameters.get("compute_ns"), trace.server_compute_ns)


def totals_of(models: object) -> ServerTotals | None:
    """The sums in the field `model_stats` of an answer, over all versions; None where it has another form."""
    if not isinstance(models, Sequence) or isinstance(models, str) or not models:
        return None
    try:
        return _sum([_totals(model) for model in models])
    except (KeyError, TypeError, AttributeError):
        return None


def _totals(model: Any) -> ServerTotals:
    statistics = model["inference_stats"]
    times = {name: _whole(statistics[name].get("ns", 0)) for name in _PARTS}
    return ServerTotals(
        requests=_whole(statistics["success"].get("count", 0)),
        failed=_whole(statistics["fail"].get("count", 0)),
        executions=_whole(model.get("execution_count", 0)),
        queue_ns=times["queue"],
        compute_input_ns=times["compute_input"],
        compute_infer_ns=times["compute_infer"],
        compute_output_ns=times["compute_output"],
    )


_PARTS = ("queue", "compute_input", "compute_infer", "compute_output")


def _sum(parts: Sequence[ServerTotals]) -> ServerTotals:
    names = ServerTotals.__dataclass_fields__
    return ServerTotals(**{name: sum(getattr(part, name) for part in parts) for name in names})


def _whole(value: object) -> int:
    # protobuf's JSON writes 64-bit integers as strings.
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 1 << 63:
        raise TypeError(value)
    return value


def _count_or(value: object, otherwise: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_NS:
        return value
    return otherwise
