"""Server-sent events from bytes, as they arrive (WHATWG HTML, 9.2.6): only their data is of interest here (pure)."""

from __future__ import annotations

from harness.endpoints.failures import RequestFailureError

_MOST = 1 << 20


class EventReader:
    """Cuts a stream of bytes into the data of its events."""

    def __init__(self, most_bytes: int = _MOST) -> None:
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
        found = [data for line in lines if (data := self._line(line)) is not None]
        if self._size + len(self._rest) > self._most:
            raise RequestFailureError("too large", f"an event has more than {self._most:,} bytes")
        return found

    def _line(self, line: bytes) -> str | None:
        if not line:
            data, self._data, self._size = self._data, [], 0
            return "\n".join(data) if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._size += len(value)
            self._data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
        return None
