"""OpenAI-compatible completions with streaming: greedy, each chunk with its instant of arrival.

A chunk is a step, not a token: a server may put several tokens in one. The number of tokens of a step is known where
the server reports ids or log-probabilities, or where its count of all tokens (`usage`) equals the number of steps. A
server that gives no count says by `finish_reason: length` that all tokens that were asked for came.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.core.errors import UsageError
from harness.endpoints.contract import (
    Completion,
    Connection,
    Endpoint,
    EndpointFacts,
    Exchange,
    Prompt,
    Reply,
    RequestFailureError,
    Sample,
    ServerTotals,
    of_status,
    text_of,
    unusable,
)
from harness.endpoints.http_connection import Head, HttpConnection, failure_of, note_server_timing
from harness.endpoints.kserve_http import object_of
from harness.endpoints.target import Target, api_key, tls_of
from harness.timing.clock import now_ns

_END = "[DONE]"
_MOST_MODELS = 20


@dataclass(frozen=True)
class RequestForm:
    """The request fields that a server accepts. ids: prompts as token ids; extensions: `ignore_eos` and
    `return_token_ids` (vLLM)."""

    ids: bool = True
    extensions: bool = True


class Completions(Endpoint):
    """A model of an OpenAI-compatible server."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._tls = tls_of(target)
        key = api_key(target)
        self._headers = f"Host: {target.authority}\r\nUser-Agent: inferometer\r\n"
        self._headers += f"Authorization: Bearer {key}\r\n" if key else ""
        self._model = target.model
        self._form = RequestForm()

    def connect(self) -> Connection:
        """A new connection; `check` has chosen the model and the form of requests."""
        head = f"POST {self.target.prefix}/v1/completions HTTP/1.1\r\n{self._headers}Accept: text/event-stream\r\n"
        return _CompletionsConnection(self._http(), head, self._model, self._form)

    def check(self, sample: Sample, timeout_ns: int) -> EndpointFacts:
        """The server's models, then one completion in the first form that the server accepts."""
        prompt = prompt_of(sample, self.target)
        try:
            head, models = self._models(timeout_ns)
        except RequestFailureError as failure:
            raise unusable(self.target, failure) from failure
        self._model, owner = self._chosen(models)
        notes = self._choose_form(prompt, timeout_ns)
        return EndpointFacts(
            url=self.target.url,
            server=text_of(owner) or text_of(head.headers.get("server")),
            version=text_of(head.headers.get("x-server-version")),
            form="ids" if self._form.ids and prompt.ids is not None else "text",
            loopback=self.target.loopback,
            notes=notes,
        )

    def totals(self, timeout_ns: int) -> ServerTotals | None:
        """None: these servers have no common form of sums."""
        return None

    def _models(self, timeout_ns: int) -> tuple[Head, Mapping[str, str]]:
        """The models of the server, with their owners."""
        http = self._http()
        try:
            head, body = http.get(f"{self.target.prefix}/v1/models", self._headers, now_ns() + timeout_ns)
        finally:
            http.close()
        if failure := failure_of(head, body):
            raise failure
        listed = object_of(body).get("data")
        entries = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
        return head, {
            entry["id"]: str(entry.get("owned_by", "")) for entry in entries if isinstance(entry.get("id"), str)
        }

    def _chosen(self, models: Mapping[str, str]) -> tuple[str, str]:
        """The named model, or the only one, and its owner."""
        shown = ", ".join(text_of(name, 100) for name in list(models)[:_MOST_MODELS])
        named = self.target.model
        if named and models and named not in models:
            raise UsageError(f"{self.target.url}: the server has no model `{named}`.", f"It has: {shown}.")
        if not named and len(models) != 1:
            raise UsageError(
                f"{self.target.url}: the server lists {len(models)} models.",
                f"Name one: …/v1/completions?model=<name>. It has: {shown or 'none'}.",
            )
        chosen = named or next(iter(models))
        return chosen, models.get(chosen, "")

    def _choose_form(self, prompt: Prompt, timeout_ns: int) -> tuple[str, ...]:
        """Try forms from the most to the least exact, keep the first that is accepted, and note what it lacks."""
        forms = [RequestForm(ids, extensions) for extensions in (True, False) for ids in (True, False)]
        if not prompt.text:
            forms = [form for form in forms if form.ids]
        if prompt.ids is None:
            forms = [form for form in forms if not form.ids]
        refused: list[RequestFailureError] = []
        for self._form in forms:
            failure = self.failure_of(replace(prompt, new_tokens=min(prompt.new_tokens, 2)), timeout_ns)
            if failure is None:
                break
            refused.append(failure)
            if failure.kind not in ("rejected", "server error"):
                raise unusable(self.target, failure)
        else:
            raise unusable(self.target, refused[-1])
        notes = []
        if prompt.ids is not None and not self._form.ids:
            notes.append(f"The server takes no token ids, so prompts travel as text ({refused[0]}).")
        if not self._form.extensions:
            notes.append(f"The server refuses ignore_eos: an output may end early, and then fails ({refused[0]}).")
        return tuple(notes)

    def _http(self) -> HttpConnection:
        return HttpConnection(self.target.host, self.target.port, self._tls)


class _CompletionsConnection(Connection):
    def __init__(self, http: HttpConnection, head: str, model: str, form: RequestForm) -> None:
        self._http = http
        self._head = head
        self._model = model
        self._form = form

    def establish(self, deadline_ns: int) -> None:
        self._http.ensure_open(deadline_ns)

    def close(self) -> None:
        self._http.close()

    def exchange(self, sample: Sample, deadline_ns: int, trace: Exchange) -> Reply:
        if not isinstance(sample, Prompt):
            raise TypeError("completions take prompts")
        body = request_body(sample, self._model, self._form)
        request = (
            f"{self._head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode("ascii") + body
        )
        trace.request_bytes = len(request)
        trace.serialised = now_ns()
        trace.connect_ns = self._http.ensure_open(deadline_ns)
        self._http.send([request], deadline_ns)
        trace.sent = now_ns()
        head = self._http.head(deadline_ns)
        if head.status != 200 or not head.headers.get("content-type", "").startswith("text/event-stream"):
            said = self._http.body(head, deadline_ns)[:200].decode("utf-8", "replace")
            raise of_status(head.status, said) or RequestFailureError(
                "malformed", f"the server does not stream: {said}"
            )
        note_server_timing(head.headers.get("server-timing"), trace)
        chunks: list[tuple[int, str]] = []
        try:
            self._read(head, deadline_ns, trace, chunks)
        finally:
            # Read after the stream, so that reading JSON delays no instant; of a failed stream what there is.
            steps = _Steps(trace, sample.new_tokens)
            for at, data in chunks:
                steps.add(at, data)
        return steps.completion()

    def _read(self, head: Head, deadline_ns: int, trace: Exchange, chunks: list[tuple[int, str]]) -> None:
        """Collect the chunks of a stream with their instants, up to its end mark."""
        events = EventReader()
        for piece in self._http.pieces(head, deadline_ns):
            at = now_ns()
            trace.answer_bytes += len(piece)
            for data in events.feed(piece):
                if data == _END:
                    trace.done = at
                elif trace.done:
                    raise RequestFailureError("malformed", f"a chunk after {_END}")
                else:
                    chunks.append((at, data))
        if not trace.done:
            raise RequestFailureError("closed", f"the stream ended without {_END}")


def prompt_of(sample: Sample, target: Target) -> Prompt:
    """A sample as a prompt. Raises UsageError for arrays."""
    if isinstance(sample, Prompt):
        return sample
    raise UsageError(
        f"{target.url} generates text, and this model takes arrays.",
        "Name a KServe v2 endpoint: ENDPOINT=kserve+http://127.0.0.1:8000/v2/models/<name>.",
    )


def request_body(prompt: Prompt, model: str, form: RequestForm) -> bytes:
    """The JSON of a request: greedy, streamed, with the server's count of tokens at its end."""
    request: dict[str, Any] = {
        "model": model,
        "prompt": list(prompt.ids) if form.ids and prompt.ids is not None else prompt.text,
        "max_tokens": prompt.new_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if form.extensions:
        request |= {"ignore_eos": True, "return_token_ids": True}
    return json.dumps(request, separators=(",", ":")).encode()


class _Steps:
    """The chunks of one stream: their steps go into the trace, the rest becomes the completion."""

    def __init__(self, trace: Exchange, asked: int) -> None:
        self._trace = trace
        self._asked = asked
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._finish: str | None = None
        self._tokens: int | None = None

    def add(self, at: int, data: str) -> None:
        """One chunk and its instant. Raises RequestFailureError where the server reports an error or is wrong."""
        chunk = object_of(data.encode())
        if (error := chunk.get("error")) is not None:
            raise RequestFailureError("server error", f"within the stream: {error}")
        self._count(chunk.get("usage"))
        self._note_timings(chunk.get("timings"))
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise RequestFailureError("malformed", "a chunk has no choices")
        for choice in choices:
            self._choice(at, choice)

    def completion(self) -> Completion:
        """The whole answer; steps of unknown size have one token each where the server's count says so."""
        steps = self._trace.step_tokens
        if not steps:
            raise RequestFailureError("malformed", "the stream has no text")
        if self._tokens is None and self._finish == "length" and len(steps) == self._asked:
            self._tokens = self._asked
        if self._tokens == len(steps) and set(steps) == {-1}:
            steps[:] = [1] * len(steps)
        known = sum(steps) if -1 not in steps else None
        ids = tuple(self._ids) if self._ids and len(self._ids) == known else None
        return Completion("".join(self._texts), ids, self._tokens if known is None else known, self._finish)

    def _choice(self, at: int, choice: Mapping[str, Any]) -> None:
        text = choice.get("text", "")
        if not isinstance(text, str):
            raise RequestFailureError("malformed", "the text of a chunk is not text")
        if isinstance(reason := choice.get("finish_reason"), str):
            self._finish = text_of(reason)
        ids = _whole_numbers(choice.get("token_ids"))
        tokens = -1 if ids is None else len(ids)
        logprobs = choice.get("logprobs")
        if ids is None and isinstance(logprobs, dict) and isinstance(logprobs.get("tokens"), list):
            tokens = len(logprobs["tokens"])
        if not text and tokens <= 0:
            return
        self._ids += ids or []
        self._texts.append(text)
        self._trace.first = self._trace.first or at
        self._trace.step_at.append(at)
        self._trace.step_tokens.append(tokens)

    def _count(self, usage: object) -> None:
        tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0:
            self._tokens = tokens

    def _note_timings(self, timings: object) -> None:
        """llama.cpp's server: time of prompt and prediction in milliseconds."""
        if isinstance(timings, dict):
            given = [timings.get("prompt_ms"), timings.get("predicted_ms")]
            parts = [part for part in given if isinstance(part, int | float) and 0 <= part < 1e9]
            if len(parts) == len(given):
                self._trace.server_compute_ns = round(sum(parts) * 1e6)


def _whole_numbers(values: object) -> list[int] | None:
    if not isinstance(values, Sequence) or isinstance(values, str):
        return None
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    return numbers if len(numbers) == len(values) else None


_MOST_BYTES = 1 << 20


class EventReader:
    """Cuts a stream of bytes into the data of its server-sent events (WHATWG HTML, 9.2.6)."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        """`most_bytes`: of one event; a larger one raises RequestFailureError (too large)."""
        self._most = most_bytes
        self._rest = b""
        self._data: list[str] = []
        self._size = 0
        self._after_return = False

    def feed(self, piece: bytes) -> list[str]:
        """The data of each event that this piece completes. Comments and events without data give nothing."""
        if self._after_return and piece.startswith(b"\n"):
            piece = piece[1:]
        if piece:
            self._after_return = piece.endswith(b"\r")
        *lines, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events = [data for line in lines if (data := self._line(line)) is not None]
        if self._size + len(self._rest) > self._most:
            raise RequestFailureError("too large", f"an event has more than {self._most:,} bytes")
        return events

    def _line(self, line: bytes) -> str | None:
        if not line:
            data, self._data, self._size = self._data, [], 0
            return "\n".join(data) if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._size += len(value)
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
        return None
