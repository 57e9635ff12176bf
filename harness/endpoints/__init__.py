"""Running services as targets of load: clients, the loop that issues requests, and what became of each request.

Results of a service are never ranked with rows of a backend in this process: they contain a network, a server's queue
and its batching. docs/endpoints.md has the definitions.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from harness.endpoints.contract import Endpoint
from harness.endpoints.target import Protocol, Target

_CLIENTS: Mapping[Protocol, str] = {
    "kserve-http": "harness.endpoints.kserve_http:KserveHttp",
    "kserve-grpc": "harness.endpoints.kserve_grpc:KserveGrpc",
    "openai": "harness.endpoints.completions:Completions",
}


def open_endpoint(target: Target) -> Endpoint:
    """The client of a target's protocol; nothing is sent yet. Raises UnavailableError where its packages are absent,
    UsageError where an API key is set that would travel unencrypted."""
    module, _, name = _CLIENTS[target.protocol].partition(":")
    endpoint: Endpoint = getattr(importlib.import_module(module), name)(target)
    return endpoint
