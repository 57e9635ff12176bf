"""The server of the page: what it gives, to whom, and what it refuses."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.core.errors import MalformedFileError, UsageError
from harness.live import server as module
from harness.live.progress import Progress
from harness.live.server import PageServer
from harness.reporting.html import embedded
from tests.fixtures.watch_pages import Source, served

FILES = Path(module.__file__).parent / "assets"


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def server(source: Source) -> Iterator[PageServer]:
    with served(source) as result:
        yield result


def ask(
    server: PageServer, path: str = "/", method: str = "GET", host: str | None = None, body: bytes | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=300)
    connection.putrequest(method, path, skip_host=True)
    if host != "":
        connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_the_state_is_that_of_the_watched_run(server: PageServer, source: Source) -> None:
    answer, content = ask(server, "/state.json")
    assert (answer.status, answer.getheader("Content-Type")) == (200, "application/json")
    assert Progress.model_validate_json(content) == source.found


def test_without_a_plan_and_with_a_damaged_one_the_state_says_so(server: PageServer, source: Source) -> None:
    source.found = None
    answer, content = ask(server, "/state.json")
    assert answer.status == 503
    assert json.loads(content) == {"problem": module.NO_PLAN, "hint": ""}
    source.error = MalformedFileError("plan.json is damaged.", "Run `make plan`.")
    answer, content = ask(server, "/state.json")
    assert (answer.status, json.loads(content)) == (
        503,
        {"problem": "plan.json is damaged.", "hint": "Run `make plan`."},
    )


def test_however_many_ask_the_files_are_read_once_a_pause(server: PageServer, source: Source) -> None:
    source.pause_s = 600.0
    for _ in range(5):
        ask(server, "/state.json")
    assert source.looks == 1


@pytest.mark.parametrize("path", ["/", "/watch.js", "/watch.css", "/palette.css"])
def test_the_page_has_its_files_and_nothing_from_elsewhere(server: PageServer, path: str) -> None:
    answer, content = ask(server, path)
    assert answer.status == 200
    name = {"/": "watch.html", "/palette.css": "../../reporting/palette.css"}.get(path, path[1:])
    assert content.decode() == (FILES / name).read_text()
    assert re.findall(rb"(?:https?:)?//[a-z]", content) == []


def test_the_live_page_and_the_report_take_their_colours_from_one_palette(server: PageServer) -> None:
    palette = re.findall(r"^  (--[a-z-]+):", ask(server, "/palette.css")[1].decode(), re.MULTILINE)
    assert b'href="/palette.css"' in ask(server, "/")[1]
    assert all(len(re.findall(f"{name}:", embedded.style())) == 1 for name in palette)
    live = (FILES / "watch.css").read_text()
    assert set(re.findall(r"var\((--[a-z-]+)", live)) <= set(palette)
    assert not re.search(r"--[a-z-]+:|light-dark", live)


def test_every_answer_carries_the_headers(server: PageServer) -> None:
    for path, method in (("/", "GET"), ("/state.json", "GET"), ("/absent", "GET"), ("/", "POST")):
        answer, _ = ask(server, path, method)
        policy = answer.getheader("Content-Security-Policy") or ""
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("Cross-Origin-Resource-Policy") == "same-origin"
        assert answer.getheader("Cache-Control") == "no-store"
        assert answer.getheader("Access-Control-Allow-Origin") is None
        assert answer.getheader("Server") == "inferometer"


@pytest.mark.parametrize("path", ["/../server.py", "/watch.html", "/state.json?x=1", "//etc/passwd", "/%2e%2e/", "*"])
def test_there_are_no_other_paths(server: PageServer, path: str) -> None:
    answer, _ = ask(server, path)
    assert answer.status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "<script>"])
def test_get_is_the_only_method(server: PageServer, source: Source, method: str) -> None:
    answer, content = ask(server, "/state.json", method, body=b"x" * 99)
    assert answer.status == 501
    assert b"<script>" not in content
    assert source.looks == 0


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example:1",
        "127.0.0.1:x",
        "[::1]",
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(server: PageServer, source: Source, host: str) -> None:
    for path in ("/", "/state.json", "/watch.js"):
        answer, content = ask(server, path, host=host)
        assert answer.status == 421
        assert content == b"This page is for this machine alone.\n"
    assert source.looks == 0


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1", "127.0.0.1:9000"])
def test_this_machine_may_ask_by_either_name_and_through_a_tunnel(server: PageServer, host: str) -> None:
    assert ask(server, host=host)[0].status == 200


def test_it_listens_on_the_loopback_address_alone(server: PageServer) -> None:
    listening = [
        connection.laddr.ip
        for connection in psutil.Process().net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == server.server_port
    ]
    assert listening == ["127.0.0.1"]
    assert server.address == f"http://127.0.0.1:{server.server_port}/"


def test_a_port_that_is_taken_is_a_mistake_with_a_hint(server: PageServer, source: Source) -> None:
    with pytest.raises(UsageError) as caught:
        PageServer(source, server.server_port)
    assert str(server.server_port) in caught.value.problem
    assert "PORT=0" in caught.value.hint


def test_the_script_never_makes_markup_of_text() -> None:
    script = (FILES / "watch.js").read_text()
    assert "textContent" in script
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script)
