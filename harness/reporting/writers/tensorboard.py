"""A case's profile as one event file of TensorBoard: figures as scalars, times of layers as a histogram, its tables.

Written with TensorBoard's own library, so this module is imported only where that is installed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from harness.core.schemas.profile_record import ModelProfile, PartsProfile
from harness.core.units import MIB, divided


def event_file(model: ModelProfile, parts: PartsProfile | None, text: str) -> bytes:
    """The file's content: the same profile gives the same bytes. text: Markdown for the Text tab."""
    content = io.BytesIO()
    writer = RecordWriter(content)
    at = datetime.fromisoformat(model.created_at).timestamp()
    writer.write(Event(wall_time=at, file_version="brain.Event:2").SerializeToString())
    for summary in _summaries(model, parts, text):
        writer.write(Event(wall_time=at, step=0, summary=summary).SerializeToString())
    return content.getvalue()


def _summaries(model: ModelProfile, parts: PartsProfile | None, text: str) -> Iterator[Any]:
    for tag, value in _scalars(model, parts).items():
        if value is not None:
            yield scalar_pb(tag, value)
    if parts is not None and parts.layers:
        yield histogram_pb("layers/self_us", np.array([row.self_ns / 1e3 for row in parts.layers]))
    if text:
        yield text_pb("profile", text)


def _scalars(model: ModelProfile, parts: PartsProfile | None) -> dict[str, float | None]:
    """Tag → figure; None where it is unknown."""
    return {
        "latency/measured_ms": divided(model.achieved.latency_ns, 1e6),
        "latency/beside_the_profiler_ms": None if parts is None else parts.plain_ns / 1e6,
        "latency/under_the_profiler_ms": None if parts is None else parts.window_ns / 1e6,
        "cost/gflop": divided(model.flops_per_batch, 1e9),
        "cost/million_parameters": divided(model.parameters, 1e6),
        "memory/allocated_mib": divided(model.activation_measured_bytes, MIB),
        "memory/activations_mib": divided(model.activation_alone_bytes, MIB),
        "memory/activations_estimated_mib": divided(model.activation_estimated_bytes, MIB),
    }
