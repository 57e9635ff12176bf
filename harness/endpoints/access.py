"""What a client needs to reach a server safely: TLS that is verified, and a key that is never stored."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping

from harness.core.errors import UsageError
from harness.endpoints.target import Target

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
            f"{API_KEY} is set, and {target.url} is not encrypted: everybody on the way could read the key.",
            f"Use https or grpcs, or unset {API_KEY}.",
        )
    return key
