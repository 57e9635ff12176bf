from __future__ import annotations

import pytest

from harness.core.errors import UsageError
from harness.endpoints.target import API_KEY, Target, api_key, parse_target, tls_of

GOOD = {
    "kserve+http://127.0.0.1:8000/v2/models/minilm": Target("kserve-http", False, "127.0.0.1", 8000, "", "minilm"),
    "kserve+https://h.example/a/b/v2/models/m/versions/3": Target(
        "kserve-http", True, "h.example", 443, "/a/b", "m", "3"
    ),
    "kserve+grpc://[::1]:8001/v2/models/m": Target("kserve-grpc", False, "::1", 8001, "", "m"),
    "openai+http://localhost:9/v1/completions": Target("openai", False, "localhost", 9, "", ""),
    "openai+https://h/x/v1/completions?model=a/b": Target("openai", True, "h", 443, "/x", "a/b"),
}
BAD = {
    "http://127.0.0.1:8000/v2/models/m": "`http` is not one of",
    "kserve+http://127.0.0.1:8000/": "its path is not /v2/models/<name>",
    "kserve+http:///v2/models/m": "it names no host",
    "kserve+http://h:0/v2/models/m": "there is no port 0",
    "kserve+http://h:99999/v2/models/m": "Port out of range",
    "kserve+http://h/v2/models/m?x=1": "it has a query",
    "kserve+http://h/v2/models/m#x": "it has a fragment",
    "kserve+http://h/v2/models/..": "its path has `.` or `..`",
    "kserve+http://h/../v2/models/m": "its path has `.` or `..`",
    "kserve+grpc://h/a/v2/models/m": "gRPC has no path before /v2",
    "kserve+http://h/v2/models/m\r\nX: y": "spaces, control characters",
    "kserve+http://h/v2/models/m%0d%0aX": "its path is not /v2/models/<name>",
    "kserve+http://h_$/v2/models/m": "it names no host",
    "openai+http://h/v1/chat/completions": "its path is not /v1/completions",
    "openai+http://h/v1/completions?key=x": "its query has more than one `model=<name>`",
    "openai+http://h/v1/completions?model=a%0ab": "its `model` is no model's name",
    "kserve+http://h/v2/models/" + "m" * 2000: "too long",
}


@pytest.mark.parametrize("url", GOOD)
def test_a_url_becomes_a_target_and_a_target_a_url(url: str) -> None:
    target = parse_target(url)
    assert target == GOOD[url]
    assert parse_target(target.url) == target


@pytest.mark.parametrize("url", BAD)
def test_any_other_url_is_refused_with_the_reason(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(url)
    assert BAD[url] in caught.value.problem
    assert caught.value.problem.isprintable()
    assert len(caught.value.problem) < 400


@pytest.mark.parametrize(
    "url", ["kserve+http://me:secret@h/v2/models/m", "ftp://me:secret@h/x", "openai+http://secret@h/"]
)
def test_a_url_with_credentials_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(url)
    assert "secret" not in caught.value.problem + caught.value.hint


def test_this_machine_is_recognised() -> None:
    assert [parse_target(url).loopback for url in GOOD] == [True, False, True, True, False]


def test_tls_is_verified() -> None:
    context = tls_of(parse_target("kserve+https://h/v2/models/m"))
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert tls_of(parse_target("kserve+http://h/v2/models/m")) is None


def test_a_key_is_taken_from_private_places() -> None:
    far, near = parse_target("openai+http://h/v1/completions"), parse_target("openai+http://127.0.0.1/v1/completions")
    assert api_key(near, {}) is None
    assert api_key(near, {API_KEY: "k-1"}) == "k-1"
    assert api_key(parse_target("openai+https://h/v1/completions"), {API_KEY: "k-1"}) == "k-1"
    with pytest.raises(UsageError, match="not encrypted") as caught:
        api_key(far, {API_KEY: "k-1"})
    assert "k-1" not in caught.value.problem + caught.value.hint
    with pytest.raises(UsageError, match="control characters"):
        api_key(near, {API_KEY: "a\r\nX: y"})
