"""KServe v2 (Open Inference Protocol) over HTTP: tensors as raw bytes or, where a server takes no others, as JSON."""

from __future__ import annotations

from typing import Any

from harness.endpoints.contract import (
    Connection,
    Endpoint,
    EndpointFacts,
    Exchange,
    Reply,
    Sample,
    ServerTotals,
    Tensors,
)
from harness.endpoints.failures import RequestFailureError, of_status
from harness.endpoints.http_connection import Bytes, HttpConnection
from harness.endpoints.kserve_json import object_of, outputs_of, request_of
from harness.endpoints.server_times import note_parameters, note_server_timing, totals_of
from harness.endpoints.service_checks import check_inputs, declared_by, tensors_of, text_of, unusable
from harness.endpoints.target import Target, api_key, tls_of
from harness.timing.clock import now_ns

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
        """From the statistics extension of Triton."""
        http = self._http()
        try:
            found = self._get(http, self._path("/stats"), timeout_ns)
        except RequestFailureError:
            return None
        finally:
            http.close()
        return None if found is None else totals_of(found.get("model_stats"))

    def _choose_form(self, tensors: Tensors, timeout_ns: int) -> tuple[str, ...]:
        """Send a sample as raw bytes and, where the server does not take them, as JSON; a note in the second case."""
        self._binary = True
        refused = self._try(tensors, timeout_ns)
        if refused is None:
            return ()
        self._binary = False
        if refused.kind not in ("rejected", "server error", "malformed") or self._try(tensors, timeout_ns):
            raise unusable(self.target, refused)
        return (f"The server does not take raw bytes, so tensors travel as JSON ({refused}).",)

    def _try(self, tensors: Tensors, timeout_ns: int) -> RequestFailureError | None:
        connection = self.connect()
        try:
            connection.exchange(tensors, now_ns() + timeout_ns, Exchange())
        except RequestFailureError as failure:
            return failure
        finally:
            connection.close()
        return None

    def _get(self, http: HttpConnection, path: str, timeout_ns: int) -> dict[str, Any] | None:
        """The JSON object at a path; None where the server has nothing there."""
        deadline = now_ns() + timeout_ns
        http.ensure_open(deadline)
        http.send([f"GET {path} HTTP/1.1\r\n{self._headers}\r\n".encode("ascii")], deadline)
        head = http.head(deadline)
        body = http.body(head, deadline)
        if head.status in (404, 405, 501):
            return None
        if failure := of_status(head.status, body[:200].decode("utf-8", "replace")):
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
        if failure := of_status(head.status, body[:200].decode("utf-8", "replace")):
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
