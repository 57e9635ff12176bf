"""The messages of KServe v2 over gRPC, built from a table: field numbers of the Open Inference Protocol's and Triton's
grpc_service.proto (github.com/kserve/open-inference-protocol, github.com/triton-inference-server/common).

Triton's own client (`tritonclient`) has them as generated code that needs protobuf below 7, which excludes it beside
other packages of the lock file; built here they work with every protobuf. A test compares both where it is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

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
