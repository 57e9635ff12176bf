"""The configuration that a call of the API describes (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from harness.api.given_model import Subject
from harness.backends import BACKENDS, backend_info
from harness.core.errors import UsageError
from harness.core.host import gpu
from harness.core.schemas import Device, Exporter, ExportOptions, Precision
from harness.core.text import unknown_name
from harness.planning.config import READ_BY

Choices = Mapping[str, Any]
"""One entry of `configurations`: a value or a list for each of KEYS."""


@dataclass(frozen=True)
class Timing:
    """Settings of the timed loop in a call; None uses the profiler's settings."""

    num_runs: int | None = None
    warmup_runs: int | None = None
    rounds: int | None = None


KEYS: Mapping[str, str] = {
    "backend": "backends",
    "precision": "precisions",
    "batch_size": "batch_sizes",
    "sequence_length": "sequence_lengths",
    "boundary": "boundaries",
    "mode": "modes",
    "setting": "settings",
}
"""Keys that a configuration may choose → the list of a matrix block that each becomes."""


def require_single(**choices: object) -> None:
    """Raise UsageError for a choice that is neither a string nor a whole number: a profiler has one value of each."""
    for name, value in choices.items():
        if value is not None and not isinstance(value, str | int):
            raise UsageError(
                f"{name}={value!r} is not one plain value.",
                "Give one string or whole number; benchmark() takes lists of them.",
            )


DEFAULT_BACKEND = "torch-eager"
"""Backend that `profile` uses where none is named."""


def require_offered(device: Device, precision: Precision, backend: str) -> None:
    """Raise UsageError or ConfigError for an unknown device, precision or backend, or an unsupported combination, and
    UnavailableError for a device that this machine does not have.

    The default backend is not checked against the precision: `benchmark` has its own backends.
    """
    for key, value, kind in (("device", device, Device), ("precision", precision, Precision)):
        if value not in get_args(kind):
            raise UsageError(*unknown_name(key, str(value), get_args(kind)))
    offered = backend_info(backend).precisions.get(device)
    if offered is None:
        raise UsageError(
            f"{backend} does not run on {device}.", f"On {device}: {', '.join(every_backend(device, 'fp32'))}."
        )
    if backend != DEFAULT_BACKEND and precision not in offered:
        reason = backend_info(backend).not_offered.get(precision, f"not offered on {device}")
        raise UsageError(f"{backend} does not run {precision}: {reason}.", f"It runs: {', '.join(offered)}.")
    if not every_backend(device, precision):
        raise UsageError(f"No backend runs {precision} on {device}.", "Choose another precision.")
    if device == "cuda":
        gpu.require(device)


def matrix_block(choices: Choices, usual: Choices) -> dict[str, list[Any]]:
    """A block of the matrix: the choices, and the defaults (`usual`) for other keys. UsageError for an unknown key.

    >>> from harness.api.configuration import matrix_block
    >>> matrix_block({"backend": "openvino", "batch_size": [1, 8]}, {"precision": "fp32", "batch_size": 1})
    {'precisions': ['fp32'], 'batch_sizes': [1, 8], 'backends': ['openvino']}
    """
    if not isinstance(choices, Mapping):
        raise UsageError(f"{choices!r} is no configuration.", 'Give dictionaries: {"backend": "onnxruntime"}.')
    for key in choices:
        if key not in KEYS:
            raise UsageError(*unknown_name("choice of a configuration", key, KEYS))
    given = {key: value for key, value in choices.items() if value is not None}
    return {KEYS[key]: _as_list(value) for key, value in {**usual, **given}.items()}


def every_backend(device: Device, precision: Precision) -> list[str]:
    """Backends that compute and offer a precision on a device."""
    return [
        name
        for name, info in BACKENDS.items()
        if info.computes and not info.remote and precision in info.precisions.get(device, ())
    ]


def measurement_data(settings: Mapping[str, Any], subject: Subject, timing: Timing) -> dict[str, Any]:
    """The section `measurement`: settings, overridden by the call. Raises UsageError for an invalid count."""
    for name, least in (("num_runs", 1), ("warmup_runs", 0), ("rounds", 1)):
        value = getattr(timing, name)
        if value is not None and (not isinstance(value, int) or value < least):
            raise UsageError(f"{name}={value!r} is no number of runs.", f"Give a whole number of at least {least}.")
    fields = dict(settings)
    if subject.samples is not None:
        fields.setdefault("parity_samples", subject.samples)
    if timing.num_runs is not None:
        fields |= {"max_samples": timing.num_runs, "min_samples": timing.num_runs}
    if timing.warmup_runs is not None:
        fields["warmup_min_iterations"] = max(1, timing.warmup_runs)
    if timing.rounds is not None:
        fields["rounds"] = timing.rounds
    return fields


def configuration_data(
    subject: Subject,
    device: Device,
    weights: str | None,
    blocks: Sequence[Mapping[str, list[Any]]],
    measured: Mapping[str, Any],
    exporter: Exporter = "dynamo",
) -> dict[str, Any]:
    """A whole configuration, as in its file."""
    own = {"inputs": list(subject.inputs)} if subject.inputs else {}
    model = {"name": subject.name, **({"weights": weights} if weights else {}), **own}
    return {
        "device": device,
        "models": [model],
        "matrix": [dict(part) for part in blocks],
        **({"measurement": dict(measured)} if measured else {}),
        **({"export": {"exporter": exporter}} if exporter != ExportOptions().exporter else {}),
        "report": {"title": subject.label},
    }


SCENARIO_LISTS = ("rates", "factors", "max_batch", "batching", "max_delay", "workers", "in_flight", "clients")
"""Keys of a scenario that are lists in the file; a single value needs no list here."""


def scenario_blocks(scenarios: Sequence[str] | str, keys: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The section `scenarios`: a block for each scenario, with the keys that it reads. Raises UsageError for a key that
    none of them reads.

    >>> from harness.api.configuration import scenario_blocks
    >>> scenario_blocks("server", {"bound": "p99<50ms", "max_batch": 8, "replications": None})
    [{'scenario': 'server', 'bound': 'p99<50ms', 'max_batch': [8]}]
    """
    given = {key: value for key, value in keys.items() if value is not None}
    names = _as_list(scenarios)
    for key in given:
        if key in READ_BY and not set(READ_BY[key]) & set(names):
            raise UsageError(f"No scenario of this call reads `{key}`.", f"It is of {' and '.join(READ_BY[key])}.")
    return [
        {
            "scenario": name,
            **{
                key: _as_list(value) if key in SCENARIO_LISTS else value  # a list of its own: YAML would write an alias
                for key, value in given.items()
                if name in READ_BY.get(key, names)
            },
        }
        for name in names
    ]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
