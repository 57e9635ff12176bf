"""The seal of a record: sha256 over its file without the seal, as the file's last field (pure).

    {                                       {"schema_version":1,…,"seal":"<64 hex digits>"}
      "schema_version": 1,
      …,
      "seal": "<64 hex digits>"
    }

It covers every byte, spaces included, so that no rule for equal JSON texts is needed: a file that differs in a single
byte is refused. It is a checksum, not a signature: a person who edits a file on purpose can compute its seal again
(docs/security.md).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

UNSEALED: dict[Path, None] = {}
"""Files without a seal that this process has read, in order: older versions wrote none. Each stage warns of them at its
end (core/cli.py)."""

_PRETTY = re.compile(rb',\n  "seal": "([0-9a-f]{64})"\n}\n\Z')
_PLAIN = re.compile(rb',"seal":"([0-9a-f]{64})"}\n\Z')


@dataclass(frozen=True)
class Opened:
    """A file's content without its seal. digest: sha256 of that, the expected seal; seal: the file's actual seal, None
    without one."""

    content: bytes
    digest: str
    seal: str | None

    @property
    def broken(self) -> bool:
        """Whether the file has changed since it was sealed."""
        return self.seal is not None and self.seal != self.digest


def sealed(content: bytes) -> bytes:
    """The JSON object of a file, which ends with a line break, with its seal as the last field."""
    digest = hashlib.sha256(content).hexdigest().encode()
    if content.endswith(b"\n}\n"):
        return content[:-3] + b',\n  "seal": "' + digest + b'"\n}\n'
    return content[:-2] + b',"seal":"' + digest + b'"}\n'


def unsealed(content: bytes) -> Opened:
    """Remove the seal. A seal that is not exactly in its place stays, and readers of records refuse it."""
    if match := _PRETTY.search(content, max(0, len(content) - 128)):
        body = content[: match.start()] + b"\n}\n"
    elif match := _PLAIN.search(content, max(0, len(content) - 128)):
        body = content[: match.start()] + b"}\n"
    else:
        return Opened(content, hashlib.sha256(content).hexdigest(), None)
    return Opened(body, hashlib.sha256(body).hexdigest(), match[1].decode())
