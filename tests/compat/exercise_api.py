"""Calls backends/tensorrt/versions.py with a TensorRT's real enumerations and objects that only write down, as JSON.

The objects take nothing that their real class does not have.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import tensorrt

from harness.backends.tensorrt import versions
from harness.core.errors import ExportError
from harness.core.schemas import EngineRequest


class Recorder:
    """Replaces an object of a class of TensorRT."""

    def __init__(self, kind: str, **held: Any) -> None:
        vars(self).update(kind=kind, held=held, calls=[])

    def __getattr__(self, name: str) -> Any:
        self._require(name)
        if name in self.held:
            return self.held[name]
        return lambda *arguments: self.calls.append([name, *map(self._told, arguments)])

    def __setattr__(self, name: str, value: Any) -> None:
        self._require(name)
        self.held[name] = value
        self.calls.append([name, self._told(value)])

    def _require(self, name: str) -> None:
        if not hasattr(getattr(tensorrt, self.kind), name):
            raise AttributeError(f"{self.kind} has no {name}")

    @staticmethod
    def _told(value: Any) -> Any:
        return getattr(value, "name", value)


def outcome(config: Recorder, call: Any) -> Any:
    """What was called on `config`, or the message of an ExportError; anything else is a bug."""
    try:
        call()
    except ExportError as error:
        return error.problem
    return config.calls


def layer() -> Recorder:
    return Recorder("ILayer", num_outputs=1)


def request(**more: Any) -> EngineRequest:
    return EngineRequest(onnx="model.onnx", onnx_sha256="0", precision="fp16", profiles={}, **more)


def config() -> Recorder:
    return Recorder("IBuilderConfig", builder_optimization_level=3)


found: dict[str, Any] = {"version": versions.version(), "strongly_typed": versions.strongly_typed()}
builder = Recorder("Builder")
found["network"] = outcome(builder, lambda: versions.make_network(builder))
for precision in ("fp32", "tf32", "fp16", "bf16", "int8"):
    target = config()
    found[precision] = outcome(target, lambda: versions.set_precision(target, precision))  # noqa: B023 - called at once
target, kept = config(), layer()
found["keep_fp32"] = outcome(target, lambda: versions.keep_fp32(target, [kept]))
tensor = Recorder("ITensor", dtype=tensorrt.float32)
network = Recorder(
    "INetworkDefinition", num_inputs=1, num_outputs=0, get_input=lambda index: tensor, get_output=lambda index: tensor
)
found["fp16_ends"] = outcome(tensor, lambda: versions.fp16_ends(network))
target = config()
everything = request(workspace_bytes=1 << 30, optimization_level=4, hardware_compatible=True, version_compatible=True)
found["configure"] = outcome(target, lambda: found.update(applied=versions.configure(target, everything)))
json.dump(found, sys.stdout)
