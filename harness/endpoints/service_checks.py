"""Whether a service is the one to measure: its description against a sample, and what its failures mean to a user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core import text as sanitize
from harness.core.errors import InferometerError, UnavailableError, UsageError
from harness.endpoints.contract import Prompt, Sample, Tensors
from harness.endpoints.failures import RequestFailureError
from harness.endpoints.target import Target
from harness.endpoints.tensors import datatype_of

Declared = Mapping[str, tuple[str, Sequence[int]]]
"""Datatype and shape (-1: any size) of each input, by name."""


def tensors_of(sample: Sample, target: Target) -> Tensors:
    """The arrays of a sample. Raises UsageError for a prompt, and for arrays that the protocol has no type for."""
    if isinstance(sample, Prompt):
        raise UsageError(
            f"{target.url} takes tensors, and a prompt is to be sent.",
            "Name the completions endpoint of the server: ENDPOINT=openai+http://…/v1/completions.",
        )
    for name, values in sample.items():
        try:
            datatype_of(values)
        except KeyError:
            raise UsageError(
                f"Input `{name}` has the type {values.dtype}, which KServe v2 cannot carry.",
                "Measure a precision whose inputs are fp32, fp16 or integers.",
            ) from None
    return sample


def check_inputs(target: Target, declared: Declared, sample: Tensors) -> None:
    """Raise UsageError where names, types or shapes of a service's inputs are not those of a sample."""
    if missing := sorted(declared.keys() - sample.keys()):
        raise _other(target, f"needs input `{missing[0]}`", f"inputs {_names(sample)}")
    if unknown := sorted(sample.keys() - declared.keys()):
        raise _other(target, f"has inputs {_names(declared)}", f"input `{unknown[0]}`")
    for name, (datatype, shape) in declared.items():
        ours = sample[name]
        if datatype != datatype_of(ours):
            raise _other(target, f"takes {datatype} for `{name}`", datatype_of(ours))
        if not _fits(shape, ours.shape):
            raise _other(target, f"takes the shape {list(shape)} for `{name}`", f"{list(ours.shape)}")


def unusable(target: Target, failure: RequestFailureError) -> InferometerError:
    """The error of a service that did not answer the check."""
    hints = {
        "refused": "Start the server, or check host and port.",
        "timeout": "Wait until the server has loaded its model, or check host and port.",
        "redirect": "Name the final address: redirects are not followed.",
        "rejected": "Check the model's name, its inputs and, where it needs one, the key in INFEROMETER_API_KEY.",
        "server error": "The server's own log says why.",
        "network": "Check the host's name, its certificate and the route to it.",
        "too large": "The service's outputs are larger than this client reads: measure a smaller batch.",
    }
    hint = hints.get(failure.kind, "Check that the address belongs to a server of this protocol.")
    return UnavailableError(f"{target.url} did not answer a first request ({failure}).", hint)


def declared_by(inputs: object) -> Declared | None:
    """The inputs of a model's metadata; None where it lists none or has another form."""
    if not isinstance(inputs, Sequence) or isinstance(inputs, str) or not inputs:
        return None
    found: dict[str, tuple[str, Sequence[int]]] = {}
    for entry in inputs:
        if not isinstance(entry, Mapping):
            return None
        name, datatype, shape = entry.get("name"), entry.get("datatype"), entry.get("shape")
        if not isinstance(name, str) or not isinstance(datatype, str) or not isinstance(shape, Sequence):
            return None
        # protobuf's JSON writes 64-bit integers as strings.
        sizes = [int(size) for size in shape if isinstance(size, int) or str(size).lstrip("-").isdecimal()]
        if len(sizes) != len(shape):
            return None
        found[sanitize.plain_name(name) if not name.isprintable() else name] = datatype, sizes
    return found


def text_of(value: object, most: int = 60) -> str:
    """A word of the server's own, safe to show; empty for anything but text."""
    return sanitize.shortened(sanitize.one_line(value), most) if isinstance(value, str) else ""


def _fits(declared: Sequence[int], shape: Sequence[int]) -> bool:
    return len(declared) == len(shape) and all(known in (-1, size) for known, size in zip(declared, shape, strict=True))


def _names(inputs: Mapping[str, object]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(inputs)) or "none"


def _other(target: Target, theirs: str, ours: str) -> UsageError:
    return UsageError(
        f"{sanitize.one_line(f'{target.url} {theirs}, and this model has {ours}')}.",
        "Serve the ONNX file of this export (models/<model>/<export>/model.onnx), or name the endpoint of this model.",
    )
