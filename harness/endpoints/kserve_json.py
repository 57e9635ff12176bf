"""The JSON of KServe v2 over HTTP: requests from arrays, arrays from answers, with or without raw bytes (pure).

Raw bytes are the protocol's binary extension: the body is the JSON, whose length is in a header, and then the bytes of
all tensors in order. A batch of 128 × 384 floats has 196 kB so, and about 1 MB as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.endpoints.contract import Tensors
from harness.endpoints.failures import RequestFailureError
from harness.endpoints.tensors import datatype_of, from_raw, from_values, raw_of

_SIZE = "binary_data_size"


def request_of(tensors: Tensors, binary: bool) -> tuple[bytes, list[memoryview]]:
    """The JSON of a request, and the raw bytes of its inputs; the latter are in the JSON where binary is False."""
    raws = [raw_of(values) for values in tensors.values()] if binary else []
    inputs: list[dict[str, Any]] = []
    for index, (name, values) in enumerate(tensors.items()):
        entry: dict[str, Any] = {"name": name, "shape": values.shape, "datatype": datatype_of(values)}
        if binary:
            entry["parameters"] = {_SIZE: len(raws[index])}
        else:
            entry["data"] = values.reshape(-1).tolist()
        inputs.append(entry)
    request = {"inputs": inputs, "parameters": {"binary_data_output": binary}} if binary else {"inputs": inputs}
    return json.dumps(request, separators=(",", ":")).encode(), raws


def object_of(text: bytes | memoryview) -> dict[str, Any]:
    """The JSON object of an answer. Raises RequestFailureError (malformed) for anything else, however deep or long."""
    try:
        found = json.loads(bytes(text))
    except (ValueError, RecursionError) as error:
        raise RequestFailureError("malformed", f"the answer is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise RequestFailureError("malformed", "the answer is not a JSON object")
    return found


def outputs_of(answer: Mapping[str, Any], raw: memoryview) -> dict[str, NDArray[np.generic]]:
    """The arrays of an answer by name. raw: the bytes after the JSON; exactly all of them must belong to outputs."""
    entries = answer.get("outputs")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise RequestFailureError("malformed", "the answer has no outputs")
    found: dict[str, NDArray[np.generic]] = {}
    start = 0
    for entry in entries:
        name = entry.get("name")
        if not isinstance(name, str) or name in found:
            raise RequestFailureError("malformed", "an output has no name, or the name of another output")
        size = _raw_size(entry)
        if size is None:
            data = entry.get("data")
            if not isinstance(data, list):
                raise RequestFailureError("malformed", f"output `{name}` has no data")
            found[name] = from_values(name, entry.get("datatype"), entry.get("shape"), data)
        else:
            found[name] = from_raw(name, entry.get("datatype"), entry.get("shape"), raw[start : start + size])
            start += size
    if start != len(raw):
        raise RequestFailureError("malformed", f"{len(raw)} raw bytes, of which outputs use {start}")
    return found


def _raw_size(entry: Mapping[str, Any]) -> int | None:
    parameters = entry.get("parameters")
    size = parameters.get(_SIZE) if isinstance(parameters, dict) else None
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise RequestFailureError("malformed", f"{_SIZE} is {size!r}")
    return size
