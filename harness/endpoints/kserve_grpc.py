"""KServe v2 (Open Inference Protocol) over gRPC: messages, tensors as raw bytes. Needs grpcio and protobuf.

The messages are built from a table. Triton's own client (`tritonclient`) has them as generated code that needs protobuf
below 7, which excludes it beside other packages of the lock file; built here they work with every protobuf. A test
compares both where it is installed.

The bytes of a message are made and read here, and gRPC carries them: so payload time and wait are apart. Each
connection is a channel with a TCP connection of its own, as with HTTP. gRPC does not show when a request is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UnavailableError
from harness.core.schemas.load_record import FailureKind
from harness.endpoints.contract import (
    MOST_ANSWER_BYTES,
    Connection,
    Endpoint,
    EndpointFacts,
    Exchange,
    Reply,
    RequestFailureError,
    Sample,
    ServerTotals,
    Tensors,
    text_of,
    unusable,
)
from harness.endpoints.kserve import (
    check_inputs,
    datatype_of,
    declared_by,
    from_raw,
    from_values,
    note_parameters,
    raw_of,
    tensors_of,
    totals_of,
)
from harness.endpoints.target import Target, api_key
from harness.timing.clock import now_ns

SERVICE = "inference.GRPCInferenceService"

_Fields = tuple[tuple[int, str, str], ...]
"""Number, name and type: a scalar, `[]` behind it for repeated, `{}` for a map from strings; else a message."""

MESSAGES: Mapping[str, _Fields] = {
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": ((1, "name", "string"), (2, "version", "string"), (3, "extensions", "string[]")),
    "ModelMetadataRequest": ((1, "name", "string"), (2, "version", "string")),
    "TensorMetadata": ((1, "name", "string"), (2, "datatype", "string"), (3, "shape", "int64[]")),
    "ModelMetadataResponse": (
        *((1, "name", "string"), (2, "versions", "string[]"), (3, "platform", "string")),
        *((4, "inputs", "TensorMetadata[]"), (5, "outputs", "TensorMetadata[]")),
    ),
    "InferParameter": ((1, "bool_param", "bool"), (2, "int64_param", "int64"), (3, "string_param", "string")),
    "InferTensorContents": (
        *((1, "bool_contents", "bool[]"), (2, "int_contents", "int32[]"), (3, "int64_contents", "int64[]")),
        *((4, "uint_contents", "uint32[]"), (5, "uint64_contents", "uint64[]"), (6, "fp32_contents", "float[]")),
        *((7, "fp64_contents", "double[]"), (8, "bytes_contents", "bytes[]")),
    ),
    "InferTensor": (
        *((1, "name", "string"), (2, "datatype", "string"), (3, "shape", "int64[]")),
        *((4, "parameters", "InferParameter{}"), (5, "contents", "InferTensorContents")),
    ),
    "ModelInferRequest": (
        *((1, "model_name", "string"), (2, "model_version", "string"), (3, "id", "string")),
        *((4, "parameters", "InferParameter{}"), (5, "inputs", "InferTensor[]"), (7, "raw_input_contents", "bytes[]")),
    ),
    "ModelInferResponse": (
        *((1, "model_name", "string"), (2, "model_version", "string"), (3, "id", "string")),
        *(
            (4, "parameters", "InferParameter{}"),
            (5, "outputs", "InferTensor[]"),
            (6, "raw_output_contents", "bytes[]"),
        ),
    ),
    "ModelStatisticsRequest": ((1, "name", "string"), (2, "version", "string")),
    "StatisticDuration": ((1, "count", "uint64"), (2, "ns", "uint64")),
    "InferStatistics": (
        *((1, "success", "StatisticDuration"), (2, "fail", "StatisticDuration"), (3, "queue", "StatisticDuration")),
        *((4, "compute_input", "StatisticDuration"), (5, "compute_infer", "StatisticDuration")),
        (6, "compute_output", "StatisticDuration"),
    ),
    "ModelStatistics": (
        *((1, "name", "string"), (2, "version", "string"), (4, "inference_count", "uint64")),
        *((5, "execution_count", "uint64"), (6, "inference_stats", "InferStatistics")),
    ),
    "ModelStatisticsResponse": ((1, "model_stats", "ModelStatistics[]"),),
}
"""One message for the tensors of requests and answers: the protocol has two of the same form."""

_ONE_OF = "InferParameter"
_SCALARS = ("double", "float", "int64", "uint64", "int32", "bool", "string", "bytes", "uint32")


@cache
def message_classes() -> Mapping[str, Any]:
    """The class of each message. Needs the package protobuf."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415 - an optional package

    file = descriptor_pb2.FileDescriptorProto(name="inferometer.proto", package="inference", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == _ONE_OF:
            message.oneof_decl.add(name="choice")
        for number, field, kind in fields:
            _add_field(message, number, field, kind)
    # A pool of its own: the names are those of Triton's client, whose messages may be loaded as well.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}")) for name in MESSAGES}


def _add_field(message: Any, number: int, name: str, kind: str) -> None:
    base = kind.rstrip("[]{}")
    field = message.field.add(name=name, number=number, label=3 if base != kind else 1)
    if kind.endswith("{}"):
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add_field(entry, 1, "key", "string")
        _add_field(entry, 2, "value", base)
        field.type, field.type_name = field.TYPE_MESSAGE, f".inference.{message.name}.{entry.name}"
    elif base in _SCALARS:
        field.type = getattr(field, f"TYPE_{base.upper()}")
    else:
        field.type, field.type_name = field.TYPE_MESSAGE, f".inference.{base}"
    if message.name == _ONE_OF:
        field.oneof_index = 0


_CODES: Mapping[str, FailureKind] = {
    "DEADLINE_EXCEEDED": "timeout",
    "UNAVAILABLE": "closed",
    "CANCELLED": "closed",
    "RESOURCE_EXHAUSTED": "server error",
    **dict.fromkeys(("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED"), "rejected"),
    **dict.fromkeys(("FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED", "UNAUTHENTICATED"), "rejected"),
}
"""Status codes of gRPC; all others are server errors."""
_CONTENTS = {
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "BOOL": "bool_contents",
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
"""Field of the values of an output that is not raw."""


class KserveGrpc(Endpoint):
    """A model of a KServe v2 server over gRPC."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        try:
            import google.protobuf  # noqa: F401, PLC0415 - optional packages
            import grpc  # noqa: PLC0415
        except ImportError as error:
            raise UnavailableError(
                f"{target.url} needs the packages grpcio and protobuf ({error}).",
                "pip install 'inferometer[endpoints]', or name the server's HTTP port: ENDPOINT=kserve+http://…",
            ) from error
        self._grpc = grpc
        key = api_key(target)
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()

    def connect(self) -> Connection:
        """A new channel."""
        return self._connection()

    def check(self, sample: Sample, timeout_ns: int) -> EndpointFacts:
        """Description, names, types and shapes, then one inference."""
        tensors = tensors_of(sample, self.target)
        connection = self._connection()
        named = {"name": self.target.model, "version": self.target.version}
        try:
            server = connection.ask("ServerMetadata", {}, timeout_ns)
            model = connection.ask("ModelMetadata", named, timeout_ns)
            inputs = [
                {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
                for tensor in model.inputs
            ]
            declared = declared_by(inputs)
            if declared is not None:
                check_inputs(self.target, declared, tensors)
            connection.exchange(tensors, now_ns() + timeout_ns, Exchange())
        except RequestFailureError as failure:
            raise unusable(self.target, failure) from failure
        finally:
            connection.close()
        notes = () if declared else ("The server lists no inputs: names, types and shapes were not compared.",)
        return EndpointFacts(
            url=self.target.url,
            server=text_of(server.name),
            version=text_of(server.version),
            form="protobuf",
            loopback=self.target.loopback,
            notes=notes,
        )

    def totals(self, timeout_ns: int) -> ServerTotals | None:
        """Totals from the statistics extension of Triton; None where the server has none."""
        connection = self._connection()
        named = {"name": self.target.model, "version": self.target.version}
        try:
            answer = connection.ask("ModelStatistics", named, timeout_ns)
        except RequestFailureError:
            return None
        finally:
            connection.close()
        return totals_of([_plain_statistics(model) for model in answer.model_stats])

    def _connection(self) -> _KserveGrpcConnection:
        return _KserveGrpcConnection(self._grpc, self.target, self._metadata)


class _KserveGrpcConnection(Connection):
    def __init__(self, grpc: Any, target: Target, metadata: Sequence[tuple[str, str]]) -> None:
        self._grpc = grpc
        self._target = target
        self._metadata = metadata
        self._messages = message_classes()
        self._channel: Any = None
        self._infer: Any = None

    def establish(self, deadline_ns: int) -> None:
        if self._channel is not None:
            return
        # No retries, no proxy, no channel shared with other threads, and a limit of size.
        options = (
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", MOST_ANSWER_BYTES),
            ("grpc.max_send_message_length", -1),
        )
        grpc, where = self._grpc, self._target.authority
        tls = self._target.tls
        self._channel = (
            grpc.secure_channel(where, grpc.ssl_channel_credentials(), options)
            if tls
            else grpc.insecure_channel(where, options)
        )
        self._infer = self._channel.unary_unary(f"/{SERVICE}/ModelInfer")
        try:
            grpc.channel_ready_future(self._channel).result(timeout=_seconds(deadline_ns))
        except grpc.FutureTimeoutError as error:
            self.close()
            raise RequestFailureError("refused", "no connection before the deadline") from error

    def close(self) -> None:
        if self._channel is not None:
            with suppress(Exception):  # a channel that broke may complain again
                self._channel.close()
            self._channel = None

    def ask(self, method: str, fields: Mapping[str, object], timeout_ns: int) -> Any:
        """The answer of a method besides inference."""
        deadline = now_ns() + timeout_ns
        self.establish(deadline)
        request = self._messages[f"{method}Request"](**fields).SerializeToString()
        call = self._channel.unary_unary(f"/{SERVICE}/{method}")
        return self._parsed(f"{method}Response", self._call(call, request, deadline))

    def exchange(self, sample: Sample, deadline_ns: int, trace: Exchange) -> Reply:
        request = self._request(tensors_of(sample, self._target))
        trace.request_bytes = len(request)
        trace.serialised = now_ns()
        if self._channel is None:
            start = now_ns()
            self.establish(deadline_ns)
            trace.connect_ns = now_ns() - start
        answer = self._call(self._infer, request, deadline_ns)
        trace.first = trace.done = now_ns()
        trace.answer_bytes = len(answer)
        response = self._parsed("ModelInferResponse", answer)
        note_parameters({name: value.int64_param for name, value in response.parameters.items()}, trace)
        return _outputs_of(response)

    def _request(self, tensors: Tensors) -> bytes:
        request = self._messages["ModelInferRequest"](
            model_name=self._target.model,
            model_version=self._target.version,
            raw_input_contents=[raw_of(values).tobytes() for values in tensors.values()],
        )
        for name, values in tensors.items():
            request.inputs.add(name=name, datatype=datatype_of(values), shape=values.shape)
        made: bytes = request.SerializeToString()
        return made

    def _call(self, call: Any, request: bytes, deadline_ns: int) -> bytes:
        grpc = self._grpc
        try:
            answer: bytes = call(request, timeout=_seconds(deadline_ns), metadata=self._metadata)
        except grpc.RpcError as error:
            raise _failure(error.code().name, error.details() or "") from error
        return answer

    def _parsed(self, message: str, content: bytes) -> Any:
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - an optional package

        try:
            return self._messages[message].FromString(content)
        except DecodeError as error:
            raise RequestFailureError("malformed", f"the answer is no {message}: {error}") from error


def _failure(code: str, said: str) -> RequestFailureError:
    """gRPC has one code for a refused and a broken connection, and one for an overloaded server and a large answer."""
    kind = _CODES.get(code, "server error")
    if kind == "closed" and ("refused" in said or "failed to connect" in said):
        kind = "refused"
    if code == "RESOURCE_EXHAUSTED" and "larger than max" in said:
        kind = "too large"
    return RequestFailureError(kind, f"{code}: {said}")


def _seconds(deadline_ns: int) -> float:
    return max(0.0, (deadline_ns - now_ns()) / 1e9)


def _outputs_of(response: Any) -> dict[str, NDArray[np.generic]]:
    """The arrays of an answer: all raw, or all as values."""
    raws = response.raw_output_contents
    if not response.outputs or (raws and len(raws) != len(response.outputs)):
        raise RequestFailureError("malformed", f"{len(response.outputs)} outputs and {len(raws)} raw contents")
    outputs: dict[str, NDArray[np.generic]] = {}
    for index, output in enumerate(response.outputs):
        if output.name in outputs:
            raise RequestFailureError("malformed", f"two outputs `{output.name}`")
        described = output.name, output.datatype, list(output.shape)
        if raws:
            outputs[output.name] = from_raw(*described, raws[index])
        else:
            values = getattr(output.contents, _CONTENTS.get(output.datatype, ""), None)
            if values is None:
                raise RequestFailureError("malformed", f"output `{output.name}` has the type {output.datatype}")
            outputs[output.name] = from_values(*described, list(values))
    return outputs


def _plain_statistics(model: Any) -> dict[str, Any]:
    parts = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
    durations = {name: getattr(model.inference_stats, name) for name in parts}
    return {
        "execution_count": model.execution_count,
        "inference_stats": {name: {"count": part.count, "ns": part.ns} for name, part in durations.items()},
    }
