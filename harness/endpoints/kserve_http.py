"""KServe v2 (Open Inference Protocol) over HTTP: tensors as raw bytes or, where a server takes no others, as JSON.

Raw bytes are the protocol's binary extension: the body is the JSON, whose length is in a header, and then the bytes of
all tensors in order. A batch of 128 × 384 floats has 196 kB so, and about 1 MB as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.endpoints.contract import (
    Connection,
    Endpoint,
    EndpointFacts,
    Exchange,
    Reply,
    RequestFailureError,
    Sample,
    ServerTotals,
    Tensors,
    text_of,
    unusable,
)
from harness.endpoints.http_connection import Bytes, HttpConnection, failure_of, note_server_timing
from harness.endpoints.kserve import (
    check_inputs,
    datatype_of,
    declared_by,
    from_raw,
    from_values,
    note_parameters,
    raw_of,
    tensors_of,
    totals_of,
)
from harness.endpoints.target import Target, api_key, tls_of
from harness.timing.clock import now_ns

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
        content = json.loads(bytes(text))
    except (ValueError, RecursionError) as error:
        raise RequestFailureError("malformed", f"the answer is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise RequestFailureError("malformed", "the answer is not a JSON object")
    return content


def outputs_of(answer: Mapping[str, Any], raw: memoryview) -> dict[str, NDArray[np.generic]]:
    """The arrays of an answer by name. raw: the bytes after the JSON; exactly all of them must belong to outputs."""
    entries = answer.get("outputs")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise RequestFailureError("malformed", "the answer has no outputs")
    outputs: dict[str, NDArray[np.generic]] = {}
    start = 0
    for entry in entries:
        name = entry.get("name")
        if not isinstance(name, str) or name in outputs:
            raise RequestFailureError("malformed", "an output has no name, or the name of another output")
        size = _raw_size(entry)
        if size is None:
            data = entry.get("data")
            if not isinstance(data, list):
                raise RequestFailureError("malformed", f"output `{name}` has no data")
            outputs[name] = from_values(name, entry.get("datatype"), entry.get("shape"), data)
        else:
            outputs[name] = from_raw(name, entry.get("datatype"), entry.get("shape"), raw[start : start + size])
            start += size
    if start != len(raw):
        raise RequestFailureError("malformed", f"{len(raw)} raw bytes, of which outputs use {start}")
    return outputs


def _raw_size(entry: Mapping[str, Any]) -> int | None:
    parameters = entry.get("parameters")
    size = parameters.get(_SIZE) if isinstance(parameters, dict) else None
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise RequestFailureError("malformed", f"{_SIZE} is {size!r}")
    return size


_JSON_LENGTH = "inference-header-content-length"
_JOINED = 64 << 10
"""Requests below this size are sent in one call."""


class KserveHttp(Endpoint):
    """A model of a KServe v2 server over HTTP."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._tls = tls_of(target)
        key = api_key(target)
        self._headers = f"Host: {target.authority}\r\nUser-Agent: inferometer\r\nAccept: application/json\r\n"
        self._headers += f"Authorization: Bearer {key}\r\n" if key else ""
        self._binary = True

    def connect(self) -> Connection:
        """A new connection; `check` has decided whether tensors travel as raw bytes."""
        head = f"POST {self._path('/infer')} HTTP/1.1\r\n{self._headers}"
        return _KserveHttpConnection(self._http(), head, self._binary, self.target)

    def check(self, sample: Sample, timeout_ns: int) -> EndpointFacts:
        """Description, names, types and shapes, then one inference."""
        tensors = tensors_of(sample, self.target)
        http = self._http()
        try:
            server = self._get(http, f"{self.target.prefix}/v2", timeout_ns) or {}
            model = self._get(http, self._path(""), timeout_ns) or {}
        except RequestFailureError as failure:
            raise unusable(self.target, failure) from failure
        finally:
            http.close()
        declared = declared_by(model.get("inputs"))
        if declared is not None:
            check_inputs(self.target, declared, tensors)
        notes = () if declared else ("The server lists no inputs: names, types and shapes were not compared.",)
        return EndpointFacts(
            url=self.target.url,
            server=text_of(server.get("name")),
            version=text_of(server.get("version")),
            notes=(*notes, *self._choose_form(tensors, timeout_ns)),
            form="binary" if self._binary else "json",
            loopback=self.target.loopback,
        )

    def totals(self, timeout_ns: int) -> ServerTotals | None:
        """Totals from the statistics extension of Triton; None where the server has none."""
        http = self._http()
        try:
            answer = self._get(http, self._path("/stats"), timeout_ns)
        except RequestFailureError:
            return None
        finally:
            http.close()
        return None if answer is None else totals_of(answer.get("model_stats"))

    def _choose_form(self, tensors: Tensors, timeout_ns: int) -> tuple[str, ...]:
        """Send a sample as raw bytes and, where the server does not take them, as JSON; a note in the second case."""
        self._binary = True
        refused = self.failure_of(tensors, timeout_ns)
        if refused is None:
            return ()
        self._binary = False
        if refused.kind not in ("rejected", "server error", "malformed") or self.failure_of(tensors, timeout_ns):
            raise unusable(self.target, refused)
        return (f"The server does not take raw bytes, so tensors travel as JSON ({refused}).",)

    def _get(self, http: HttpConnection, path: str, timeout_ns: int) -> dict[str, Any] | None:
        """The JSON object at a path; None where the server has nothing there."""
        head, body = http.get(path, self._headers, now_ns() + timeout_ns)
        if head.status in (404, 405, 501):
            return None
        if failure := failure_of(head, body):
            raise failure
        return object_of(body)

    def _path(self, end: str) -> str:
        version = f"/versions/{self.target.version}" if self.target.version else ""
        return f"{self.target.prefix}/v2/models/{self.target.model}{version}{end}"

    def _http(self) -> HttpConnection:
        return HttpConnection(self.target.host, self.target.port, self._tls)


class _KserveHttpConnection(Connection):
    def __init__(self, http: HttpConnection, head: str, binary: bool, target: Target) -> None:
        self._http = http
        self._head = head
        self._binary = binary
        self._target = target

    def establish(self, deadline_ns: int) -> None:
        self._http.ensure_open(deadline_ns)

    def close(self) -> None:
        self._http.close()

    def exchange(self, sample: Sample, deadline_ns: int, trace: Exchange) -> Reply:
        parts = self._request(tensors_of(sample, self._target))
        trace.request_bytes = sum(map(len, parts))
        trace.serialised = now_ns()
        trace.connect_ns = self._http.ensure_open(deadline_ns)
        self._http.send(parts, deadline_ns)
        trace.sent = now_ns()
        head = self._http.head(deadline_ns)
        trace.first = now_ns()
        body = self._http.body(head, deadline_ns)
        trace.done = now_ns()
        trace.answer_bytes = len(body)
        if failure := failure_of(head, body):
            raise failure
        length = _json_length(head.headers.get(_JSON_LENGTH), len(body))
        answer = object_of(body[:length])
        note_server_timing(head.headers.get("server-timing"), trace)
        note_parameters(answer.get("parameters"), trace)
        return outputs_of(answer, memoryview(body)[length:])

    def _request(self, tensors: Tensors) -> list[Bytes]:
        text, raws = request_of(tensors, self._binary)
        size = len(text) + sum(map(len, raws))
        kind = "application/octet-stream" if self._binary else "application/json"
        length = f"Inference-Header-Content-Length: {len(text)}\r\n" if self._binary else ""
        head = f"{self._head}Content-Type: {kind}\r\n{length}Content-Length: {size}\r\n\r\n".encode("ascii")
        parts: list[Bytes] = [head + text, *raws]
        return [b"".join(parts)] if size < _JOINED else parts


def _json_length(header: str | None, size: int) -> int:
    """Length of the JSON in an answer; without the header all of it is JSON."""
    if header is None:
        return size
    if not header.isdecimal() or len(header) > 18 or int(header) > size:
        raise RequestFailureError("malformed", f"{_JSON_LENGTH} is `{header}`, and the answer has {size} bytes")
    return int(header)
