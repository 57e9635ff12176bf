"""HTTP/1.1 over one socket that stays open: instants of each part, one deadline for the whole, limits of every size.

The standard library's client has a time limit for each read only, so a server that sends a byte now and then would
hold a request forever, and its parser of heads takes more time than a small answer. Redirects and proxies are not
followed: the address that was named is the address that is measured. RFC 9112 defines the messages.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from harness.endpoints.contract import MOST_ANSWER_BYTES, Exchange, RequestFailureError, of_socket, of_status
from harness.timing.clock import now_ns

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_READ = 1 << 18
_MOST_HEAD = 64 << 10
_MOST_LINE = 4 << 10
_INTERIM = 8
"""Interim answers (1xx) before the real one."""

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Head:
    """Status and headers (names in lower case) of an answer. closes: the connection ends with it."""

    status: int
    headers: Mapping[str, str]
    closes: bool


class HttpConnection:
    """A connection to one host. opened: how often it was opened."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._address = host, port
        self._tls = tls
        self._socket: socket.socket | None = None
        self._buffer = bytearray()
        self.opened = 0

    def ensure_open(self, deadline_ns: int) -> int:
        """Open the connection unless the old one still works; the time that opening took in ns, 0 if nothing was."""
        if self._socket is not None and self._alive(self._socket):
            return 0
        self.close()
        start = now_ns()
        try:
            raw = socket.create_connection(self._address, timeout=_seconds(deadline_ns))
            self._socket = raw
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                raw.settimeout(_seconds(deadline_ns))
                self._socket = self._tls.wrap_socket(raw, server_hostname=self._address[0])
        except OSError as error:
            self.close()
            raise of_socket(error) from error
        self.opened += 1
        return max(1, now_ns() - start)

    def send(self, parts: Sequence[Bytes], deadline_ns: int) -> None:
        """Send a request: its head and body, in parts."""
        sock = self._open()
        try:
            for part in parts:
                sock.settimeout(_seconds(deadline_ns))
                sock.sendall(part)
        except OSError as error:
            raise of_socket(error) from error

    def head(self, deadline_ns: int) -> Head:
        """Wait for the head of the answer."""
        for _ in range(_INTERIM):
            head = _head_of(self._until(b"\r\n\r\n", _MOST_HEAD, deadline_ns))
            if head.status >= 200:
                return head
        raise RequestFailureError("malformed", "interim answers without an end")

    def body(self, head: Head, deadline_ns: int) -> bytes:
        """The whole body of an answer."""
        return b"".join(self.pieces(head, deadline_ns))

    def get(self, path: str, headers: str, deadline_ns: int) -> tuple[Head, bytes]:
        """The answer to a GET request. headers: its lines."""
        self.ensure_open(deadline_ns)
        self.send([f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode("ascii")], deadline_ns)
        head = self.head(deadline_ns)
        return head, self.body(head, deadline_ns)

    def pieces(self, head: Head, deadline_ns: int) -> Iterator[bytes]:
        """The body of an answer in pieces, as they arrive; together they are as long as the head says."""
        left = MOST_ANSWER_BYTES
        for piece in self._framed(head, deadline_ns):
            left -= len(piece)
            if left < 0:
                raise RequestFailureError("too large", f"the answer has more than {MOST_ANSWER_BYTES:,} bytes")
            yield piece
        if head.closes:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        self._buffer.clear()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None

    def _framed(self, head: Head, deadline_ns: int) -> Iterator[bytes]:
        if head.status in (204, 304):
            return
        coding = head.headers.get("transfer-encoding")
        if coding is not None:
            if coding.lower() != "chunked":
                raise RequestFailureError("malformed", f"transfer-encoding `{coding}` is not known")
            yield from self._chunks(deadline_ns)
        elif (length := head.headers.get("content-length")) is not None:
            if not _LENGTH.fullmatch(length):
                raise RequestFailureError("malformed", f"content-length `{length}` is no number")
            if int(length) > MOST_ANSWER_BYTES:
                raise RequestFailureError("too large", f"the answer has {int(length):,} bytes")
            yield from self._exactly(int(length), deadline_ns)
        else:
            yield from self._until_end(deadline_ns)

    def _chunks(self, deadline_ns: int) -> Iterator[bytes]:
        while True:
            line = self._until(b"\r\n", _MOST_LINE, deadline_ns)
            size = _CHUNK.fullmatch(line)
            if size is None:
                raise RequestFailureError("malformed", "the length of a chunk is no number")
            length = int(size[1], 16)
            if length > MOST_ANSWER_BYTES:
                raise RequestFailureError("too large", f"a chunk has {length:,} bytes")
            if length == 0:
                # Trailers, and the empty line after them.
                while self._until(b"\r\n", _MOST_LINE, deadline_ns):
                    pass
                return
            yield from self._exactly(length, deadline_ns)
            if b"".join(self._exactly(2, deadline_ns)) != b"\r\n":
                raise RequestFailureError("malformed", "a chunk does not end where its length says")

    def _exactly(self, length: int, deadline_ns: int) -> Iterator[bytes]:
        while length:
            if not self._buffer:
                self._more(deadline_ns)
            piece = bytes(self._buffer[:length])
            del self._buffer[:length]
            length -= len(piece)
            yield piece

    def _until_end(self, deadline_ns: int) -> Iterator[bytes]:
        """Up to the end of the connection, which is then the end of the body."""
        while True:
            piece = bytes(self._buffer)
            self._buffer.clear()
            if piece:
                yield piece
            try:
                data = self._receive(deadline_ns)
            except OSError as error:
                raise of_socket(error) from error
            if not data:
                return
            self._buffer += data

    def _until(self, mark: bytes, most: int, deadline_ns: int) -> bytes:
        """The bytes before a mark, which is consumed."""
        searched = 0
        while (end := self._buffer.find(mark, searched)) < 0:
            if len(self._buffer) > most:
                raise RequestFailureError("malformed", f"a head or line of more than {most:,} bytes")
            searched = max(0, len(self._buffer) - len(mark) + 1)
            self._more(deadline_ns)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + len(mark)]
        return line

    def _more(self, deadline_ns: int) -> None:
        try:
            data = self._receive(deadline_ns)
        except OSError as error:
            raise of_socket(error) from error
        if not data:
            raise RequestFailureError("closed", "the connection ended before the answer was complete")
        self._buffer += data

    def _receive(self, deadline_ns: int) -> bytes:
        sock = self._open()
        sock.settimeout(_seconds(deadline_ns))
        return sock.recv(_READ)

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise RequestFailureError("closed", "the connection is not open")
        return self._socket

    def _alive(self, sock: socket.socket) -> bool:
        """False where the server closed the connection, or sent something unasked: an answer would be misread."""
        if self._buffer:
            return False
        try:
            sock.setblocking(False)
            sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False


def _seconds(deadline_ns: int) -> float:
    """Time left. Raises TimeoutError where there is none: a limit of 0 would mean not to wait at all."""
    left = deadline_ns - now_ns()
    if left <= 0:
        raise TimeoutError
    return left / 1e9


def _head_of(text: bytes) -> Head:
    first, *lines = text.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise RequestFailureError("malformed", f"the answer is not HTTP/1.1: {first[:60]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise RequestFailureError("malformed", f"a header is not `name: value`: {line[:60]!r}")
        key, content = name.decode("latin-1").lower(), value.strip().decode("latin-1")
        if key == "content-length" and headers.get(key, content) != content:
            raise RequestFailureError("malformed", "two different content-lengths")
        headers[key] = f"{headers[key]}, {content}" if key in headers and key != "content-length" else content
    tokens = {token.strip().lower() for token in headers.get("connection", "").split(",")}
    endless = "transfer-encoding" not in headers and "content-length" not in headers
    closes = "close" in tokens or (status[1] == b"0" and "keep-alive" not in tokens) or endless
    return Head(int(status[2]), headers, closes)


_ENTRY = re.compile(r"\s*([A-Za-z0-9_-]{1,40})\s*((?:;[^,;]{0,200})*)")
_DURATION = re.compile(r";\s*dur\s*=\s*\"?([0-9]{1,12}(?:\.[0-9]{1,12})?)\"?\s*")


def failure_of(head: Head, body: bytes) -> RequestFailureError | None:
    """The failure that an answer reports; None for status 200."""
    return of_status(head.status, body[:200].decode("utf-8", "replace"))


def note_server_timing(header: str | None, trace: Exchange) -> None:
    """Write the times in a header Server-Timing (W3C) into a trace: `queue` and `compute`, in milliseconds."""
    for entry in (header or "").split(","):
        match = _ENTRY.fullmatch(entry)
        duration = _DURATION.search(match[2]) if match else None
        if match and duration:
            nanoseconds = round(float(duration[1]) * 1e6)
            if match[1] == "queue":
                trace.server_queue_ns = nanoseconds
            elif match[1] == "compute":
                trace.server_compute_ns = nanoseconds
