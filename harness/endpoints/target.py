"""The address of an endpoint, as `kserve+http://127.0.0.1:8000/v2/models/minilm`, and how to reach it safely.

A URL is data, and holds no secrets; TLS is verified, and a key is never stored.

kserve+http, kserve+https  KServe v2 (Open Inference Protocol) over HTTP; `[/prefix]/v2/models/<name>[/versions/<v>]`
kserve+grpc, kserve+grpcs  the same over gRPC; the same path without a prefix
openai+http, openai+https  OpenAI-compatible completions with streaming; `[/prefix]/v1/completions`, and
                           `?model=<name>` where the server has several models
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, urlsplit

from harness.core import text as sanitize
from harness.core.errors import UsageError

Protocol = Literal["kserve-http", "kserve-grpc", "openai"]

_SCHEMES: dict[str, tuple[Protocol, bool]] = {
    "kserve+http": ("kserve-http", False),
    "kserve+https": ("kserve-http", True),
    "kserve+grpc": ("kserve-grpc", False),
    "kserve+grpcs": ("kserve-grpc", True),
    "openai+http": ("openai", False),
    "openai+https": ("openai", True),
}
_PORTS: dict[Protocol, tuple[int, int]] = {"kserve-http": (80, 443), "kserve-grpc": (80, 443), "openai": (80, 443)}
"""Ports without and with TLS where the URL has none."""
_NAME = r"[A-Za-z0-9._~@-]+"
_PREFIX = rf"((?:/{_NAME})*?)"
_KSERVE = re.compile(rf"{_PREFIX}/v2/models/({_NAME})(?:/versions/({_NAME}))?/?")
_OPENAI = re.compile(rf"{_PREFIX}/v1/completions/?")
_MODEL = re.compile(r"[A-Za-z0-9._~@:/+-]{1,200}")
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}|[0-9A-Fa-f:.]{2,45}")
_MOST = 1_000
_EXAMPLE = "Write ENDPOINT=kserve+http://127.0.0.1:8000/v2/models/<name>, or kserve+grpc://, or openai+http://…/v1/completions."


@dataclass(frozen=True)
class Target:
    """A checked address. prefix: path before `/v2` or `/v1`; model: empty where the server is asked for its only one;
    version: empty for the server's default."""

    protocol: Protocol
    tls: bool
    host: str
    port: int
    prefix: str
    model: str
    version: str = ""

    @property
    def authority(self) -> str:
        """Host and port as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address in one form: equal targets have equal URLs."""
        scheme = next(name for name, meant in _SCHEMES.items() if meant == (self.protocol, self.tls))
        if self.protocol == "openai":
            path = f"{self.prefix}/v1/completions" + (f"?model={self.model}" if self.model else "")
        else:
            path = f"{self.prefix}/v2/models/{self.model}" + (f"/versions/{self.version}" if self.version else "")
        return f"{scheme}://{self.authority}{path}"

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine, so that it shares the CPUs with the client."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_target(url: str) -> Target:
    """The target of a URL. Raises UsageError for every URL that has not exactly one of the forms above."""
    if len(url) > _MOST or not url.isascii() or not url.isprintable() or " " in url:
        raise _refused(url, "it has spaces, control characters or letters outside ASCII, or is too long")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _refused(url, str(error)) from error
    if parts.scheme not in _SCHEMES:
        raise _refused(url, f"`{parts.scheme}` is not one of {', '.join(_SCHEMES)}")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "The address of an endpoint has a user name or password, which results would then contain.",
            "Leave it out; an API key comes from the environment variable INFEROMETER_API_KEY and is never stored.",
        )
    if not parts.hostname or not _HOST.fullmatch(parts.hostname):
        raise _refused(url, "it names no host")
    if port == 0:
        raise _refused(url, "there is no port 0")
    if parts.fragment or "#" in url:
        raise _refused(url, "it has a fragment (#)")
    protocol, tls = _SCHEMES[parts.scheme]
    prefix, model, version = _completions_parts(url, parts) if protocol == "openai" else _kserve_parts(url, parts)
    if protocol == "kserve-grpc" and prefix:
        raise _refused(url, "gRPC has no path before /v2")
    if any(part in (".", "..") for part in (*prefix.split("/"), model, version)):
        raise _refused(url, "its path has `.` or `..`")
    return Target(protocol, tls, parts.hostname, port or _PORTS[protocol][tls], prefix, model, version)


def _kserve_parts(url: str, parts: SplitResult) -> tuple[str, str, str]:
    match = _KSERVE.fullmatch(parts.path)
    if match is None:
        raise _refused(url, "its path is not /v2/models/<name>")
    if parts.query:
        raise _refused(url, "it has a query (?)")
    return match[1], match[2], match[3] or ""


def _completions_parts(url: str, parts: SplitResult) -> tuple[str, str, str]:
    match = _OPENAI.fullmatch(parts.path)
    if match is None:
        raise _refused(url, "its path is not /v1/completions")
    given = parse_qsl(parts.query, keep_blank_values=True)
    if any(name != "model" for name, _ in given) or len(given) > 1:
        raise _refused(url, "its query has more than one `model=<name>`")
    model = given[0][1] if given else ""
    if given and not _MODEL.fullmatch(model):
        raise _refused(url, "its `model` is no model's name")
    return match[1], model, ""


def _refused(url: str, why: str) -> UsageError:
    shown = sanitize.shortened(sanitize.one_line(url), 120)
    # A password must not reach a log, whatever else is wrong with the URL.
    shown = re.sub(r"//[^/@]*@", "//…@", shown)
    return UsageError(f"`{shown}` is no address of an endpoint: {why}.", _EXAMPLE)


API_KEY = "INFEROMETER_API_KEY"
"""Environment variable of the key. Neither a record nor a message has its value."""


def tls_of(target: Target) -> ssl.SSLContext | None:
    """Verifies certificate and host name, with the certificates of the system or of SSL_CERT_FILE; None without TLS."""
    if not target.tls:
        return None
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def api_key(target: Target, environment: Mapping[str, str] = os.environ) -> str | None:
    """The key for a target, None where there is none. Raises UsageError where it would travel readable by others."""
    key = environment.get(API_KEY)
    if not key:
        return None
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{API_KEY} has spaces, control characters or letters outside ASCII.", f"Set {API_KEY} again.")
    if not target.tls and not target.loopback:
        raise UsageError(
            f"{API_KEY} is set, and {target.url} is not encrypted: others on the network could read the key.",
            f"Use https or grpcs, or unset {API_KEY}.",
        )
    return key
