"""models/<slug>/engines/<name>.json: a TensorRT engine and where it may run."""

from __future__ import annotations

from typing import Literal

from harness.core.confine import FileName
from harness.core.schemas.export import Artifact
from harness.core.schemas.raw import Parity
from harness.core.schemas.vocabulary import Precision, Record


class Profile(Record):
    """Range of one input's shapes that an engine takes, and the one it was tuned for."""

    minimum: tuple[int, ...]
    optimum: tuple[int, ...]
    maximum: tuple[int, ...]


class EngineRequest(Record):
    """What decides an engine, apart from where it is built."""

    onnx: FileName
    """Name of the ONNX file in the model's folder."""
    onnx_sha256: str
    precision: Precision
    profiles: dict[str, Profile]
    """By input name."""
    dynamic: bool = False
    """For all shapes of a plan, though there may be only one; else for exactly one."""
    workspace_bytes: int | None = None
    optimization_level: int | None = None
    hardware_compatible: bool = False
    version_compatible: bool = False
    fp16_io: bool = False
    """Inputs and outputs in fp16, so that no cast and half the traffic is needed at the ends."""


class EngineRecord(Record):
    """A TensorRT engine and where it may run: only on the GPU, driver and TensorRT that it was built with."""

    schema_version: Literal[1] = 1
    key: str
    """Hash of the request and of all that follows up to `driver`: an engine is built anew only when it changes."""
    request: EngineRequest
    tensorrt: str
    gpu: str
    sm: str
    """Compute capability, `9.0`."""
    driver: str
    engine: Artifact
    """Path below the model's folder: `engines/<name>.plan`."""
    build_s: float
    parity: Parity
    """Of the finished engine against the fp32 reference, over all inputs of its optimum shape."""
    kept_fp32: tuple[str, ...]
    """Layers that were kept in fp32 because their fp16 form failed the parity check; empty where none had to be."""
    layers: int
    precisions: dict[str, int]
    """Layers by the precision of their output, as the engine's own inspector tells."""
    timing_cache_sha256: str | None
    builder: dict[str, str]
    """Flags and tactic sources that the builder was given, in words."""
