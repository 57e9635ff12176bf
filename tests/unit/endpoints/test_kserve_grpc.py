"""KServe v2 over gRPC against a server of grpcio that misbehaves; the messages against Triton's own client."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from harness.core.errors import UnavailableError, UsageError
from harness.endpoints import open_endpoint
from harness.endpoints.contract import Sample
from harness.endpoints.issuing import issue_open_loop
from harness.endpoints.kserve_grpc import MESSAGES, SERVICE, message_classes
from harness.endpoints.target import parse_target
from harness.endpoints.timeline import Timeline
from tests.fixtures.fault_server import closed_port

grpc = pytest.importorskip("grpc", reason="grpcio is not installed (extra `endpoints`)")
pytest.importorskip("google.protobuf", reason="protobuf is not installed (extra `endpoints`)")

SECOND = 1_000_000_000
GUARD_S = 300
"""Ends an exchange that hangs; nothing is ever asserted about how long something took."""
GUARD_NS = GUARD_S * SECOND
SAMPLES: list[Sample] = [{"x": np.full((2, 3), value, np.float32)} for value in range(4)]
Script = Callable[[int], str]


class Doubler:
    """Answers every method of the service; `script` says how the n-th inference goes."""

    def __init__(self, script: Script, values: bool, described: bool) -> None:
        self.script, self.values, self.described = script, values, described
        self.count, self.open = 0, threading.Event()
        self.messages = message_classes()

    def infer(self, content: bytes, context: Any) -> bytes:
        way = self.script(self.count)
        self.count += 1
        if way == "silent":
            self.open.wait(GUARD_S)
        if way in ("INTERNAL", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNAVAILABLE"):
            context.abort(getattr(grpc.StatusCode, way), "as asked")
        if way == "garbage":
            return b"\xff\xff\xff"
        request = self.messages["ModelInferRequest"].FromString(content)
        x = np.frombuffer(request.raw_input_contents[0], "<f4").reshape(tuple(request.inputs[0].shape))
        answer = self.messages["ModelInferResponse"](model_name=request.model_name)
        output = answer.outputs.add(name="y", datatype="FP32", shape=(9, 9) if way == "other shape" else x.shape)
        if self.values:
            output.contents.fp32_contents.extend((2 * x).reshape(-1).tolist())
        elif way != "no contents":
            answer.raw_output_contents.append((2 * x).tobytes())
        answer.parameters["queue_ns"].int64_param = 7
        return bytes(answer.SerializeToString())

    def metadata(self, _: bytes, __: Any) -> bytes:
        answer = self.messages["ModelMetadataResponse"](name="double")
        if self.described:
            answer.inputs.add(name="x", datatype="FP32", shape=(-1, 3))
        return bytes(answer.SerializeToString())

    def server(self, _: bytes, __: Any) -> bytes:
        return bytes(self.messages["ServerMetadataResponse"](name="doubler", version="2").SerializeToString())

    def statistics(self, _: bytes, __: Any) -> bytes:
        answer = self.messages["ModelStatisticsResponse"]()
        model = answer.model_stats.add(execution_count=self.count)
        model.inference_stats.success.count = self.count
        model.inference_stats.queue.ns = 10 * self.count
        return bytes(answer.SerializeToString())


@contextmanager
def serving(
    script: Script = lambda _: "good", values: bool = False, described: bool = True
) -> Iterator[tuple[int, Doubler]]:
    doubler = Doubler(script, values, described)
    methods = {
        "ModelInfer": doubler.infer,
        "ModelMetadata": doubler.metadata,
        "ServerMetadata": doubler.server,
        "ModelStatistics": doubler.statistics,
    }
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port, doubler
    finally:
        doubler.open.set()
        server.stop(None)


def url(port: int) -> str:
    return f"kserve+grpc://127.0.0.1:{port}/v2/models/double"


def load(script: Script = lambda _: "good", values: bool = False) -> Timeline:
    with serving(values=values) as (port, doubler):
        endpoint = open_endpoint(parse_target(url(port)))
        facts = endpoint.check(SAMPLES[0], GUARD_NS)
        assert (facts.server, facts.version, facts.form, facts.notes) == ("doubler", "2", "protobuf", ())
        doubler.count, doubler.script = 0, script
        schedule = np.arange(8, dtype=np.int64) * 2_000_000
        run = issue_open_loop(endpoint, SAMPLES, [number % 4 for number in range(8)], schedule, GUARD_NS)
        totals = endpoint.totals(GUARD_NS)
        assert totals is not None
        assert (totals.requests, totals.executions, totals.queue_ns) == (8, 8, 80)
    return run


@pytest.mark.parametrize("values", [False, True], ids=["raw", "values"])
def test_answers_belong_to_their_requests(values: bool) -> None:
    run = load(values=values)
    assert run.counts() == {}
    assert all(np.array_equal(reply["y"], 2 * SAMPLES[n % 4]["x"]) for n, reply in run.replies.items())  # type: ignore[index]
    assert np.all(run.server_queue_ns == 7)
    assert np.all(run.sent == -1)
    assert np.all((run.issued <= run.serialised) & (run.serialised <= run.done))


FAULTS = {
    "INTERNAL": "server error",
    "RESOURCE_EXHAUSTED": "server error",
    "INVALID_ARGUMENT": "rejected",
    "UNAVAILABLE": "closed",
    "garbage": "malformed",
    "other shape": "malformed",
    "no contents": "malformed",
}


@pytest.mark.parametrize("way", FAULTS)
def test_each_fault_is_a_failure_of_its_request_alone(way: str) -> None:
    run = load(lambda number: way if number == 3 else "good")
    assert run.counts() == {FAULTS[way]: 1}
    assert np.isinf(run.latency_ns()).sum() == 1


def test_a_request_without_an_answer_ends_at_its_deadline() -> None:
    with serving() as (port, doubler):
        endpoint = open_endpoint(parse_target(url(port)))
        endpoint.check(SAMPLES[0], GUARD_NS)
        doubler.script = lambda _: "silent"
        # No other request: on a busy machine it might come to its deadline as well.
        run = issue_open_loop(endpoint, SAMPLES, [0], np.zeros(1, np.int64), 2 * SECOND)
    assert run.counts() == {"timeout": 1}


def test_a_missing_or_different_service_is_an_error_of_two_lines() -> None:
    with pytest.raises(UnavailableError, match="refused"):
        open_endpoint(parse_target(url(closed_port()))).check(SAMPLES[0], SECOND // 4)
    with serving() as (port, _), pytest.raises(UsageError, match="takes FP32 for `x`, and this model has INT64"):
        open_endpoint(parse_target(url(port))).check({"x": np.ones((2, 3), np.int64)}, GUARD_NS)


def test_a_server_that_lists_no_inputs_is_noted() -> None:
    with serving(described=False) as (port, _):
        facts = open_endpoint(parse_target(url(port))).check(SAMPLES[0], GUARD_NS)
    assert len(facts.notes) == 1


def test_a_run_on_a_server_that_is_gone_counts_and_goes_on() -> None:
    endpoint = open_endpoint(parse_target(url(closed_port())))
    run = issue_open_loop(endpoint, SAMPLES, [0, 1], np.arange(2, dtype=np.int64), SECOND // 4)
    assert run.counts() == {"refused": 2}


def test_without_grpc_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['grpc'] = None\n"
        "from harness.endpoints import open_endpoint\n"
        "from harness.endpoints.target import parse_target\n"
        "from harness.core.errors import UnavailableError\n"
        "try: open_endpoint(parse_target('kserve+grpc://h/v2/models/m'))\n"
        "except UnavailableError as error: print(error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "inferometer[endpoints]" in done.stdout


def test_the_messages_are_those_of_tritons_client() -> None:
    theirs = pytest.importorskip("tritonclient.grpc.service_pb2", reason="tritonclient is not installed")
    names = {"InferTensor": ("ModelInferRequest.InferInputTensor", "ModelInferResponse.InferOutputTensor")}
    names["TensorMetadata"] = ("ModelMetadataResponse.TensorMetadata",)
    file = theirs.DESCRIPTOR.message_types_by_name
    for name, fields in MESSAGES.items():
        for path in names.get(name, (name,)):
            outer, _, inner = path.partition(".")
            message = file[outer].nested_types_by_name[inner] if inner else file[outer]
            for number, field, kind in fields:
                result = message.fields_by_number[number]
                assert result.name == field
                repeated = (
                    result.is_repeated if hasattr(result, "is_repeated") else result.label == result.LABEL_REPEATED
                )
                assert repeated == kind.endswith(("[]", "{}"))
                if result.message_type is None:
                    assert result.type == getattr(result, f"TYPE_{kind.rstrip('[]').upper()}")
