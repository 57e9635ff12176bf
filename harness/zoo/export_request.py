"""The request of an export as one hash, and whether the files on disk still answer it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core import store
from harness.core.errors import FormatError, MissingInputError
from harness.core.layout import ModelFolder
from harness.core.schemas import Artifact, Exporter, ExportRecord, PlannedModel
from harness.zoo import ModelInfo, identity

_LIBRARIES = ("torch", "torchvision", "transformers", "onnx", "onnxscript", "onnxruntime", "numpy")
_FORMAT = 7
"""Increased when the export code writes other files than before, so that old files are made again."""


@dataclass(frozen=True)
class Options:
    """Options that the command line adds to the plan; the same for every model of one call.

    attention: how a transformer's attention is written into ONNX, `eager` or `sdpa`.
    """

    exporter: Exporter
    opset: int
    output_name: str | None
    max_length: int | None
    cache: Path | None
    attention: str = "eager"


def request_digest(
    info: ModelInfo,
    planned: PlannedModel,
    seed: int,
    samples: int,
    options: Options,
    built: Mapping[str, str] | None = None,
) -> str:
    """Hash of everything that decides the content of the files.

    Sequence lengths and precisions are left out: a record that covers more than a plan asks for still serves it.
    built: the identity of a user's module, known once it is built (identity.py).
    """
    asked = [planned.name, planned.slug, planned.weights, seed, samples, *(given.sha256 for given in planned.inputs)]
    how = [options.exporter, options.opset, options.output_name, options.max_length, options.attention]
    return store.digest_of(_FORMAT, asked, how, versions(), identity.files(info, options.cache), dict(built or {}))


def intact_record(folder: ModelFolder, request: str) -> ExportRecord | None:
    """The record of an earlier export with the same request and undamaged files; None otherwise."""
    try:
        record = store.load(folder.record, ExportRecord, "make export")
    except (FormatError, MissingInputError):
        return None
    if record.request_sha256 != request:
        return None
    return record if all(_is_intact(folder.root, artifact) for artifact in artifacts_of(record)) else None


def covers(record: ExportRecord, planned: PlannedModel) -> bool:
    """True where a record holds every sequence length and precision, and the raw inputs, that the plan asks for."""
    lengths = {entry.sequence_length for entry in record.input_sets}
    raw = not planned.raw_inputs or all(entry.raw is not None for entry in record.input_sets)
    # A refused file would be refused again: the digest covers code, libraries and options.
    files = set(planned.onnx_precisions) <= {*record.onnx, *record.refused}
    variants = set(planned.onnx_variants) <= {*record.onnx_variants, *record.refused}
    return raw and files and variants and set(planned.sequence_lengths or (None,)) <= lengths


def artifacts_of(record: ExportRecord) -> list[Artifact]:
    """Every file that a record vouches for."""
    artifacts: list[Artifact] = [] if record.module is None else [record.module]
    for onnx in (*record.onnx.values(), *record.onnx_variants.values()):
        artifacts += [onnx] if onnx.external_data is None else [onnx, onnx.external_data]
    for inputs in record.input_sets:
        artifacts += inputs.files()
    return artifacts


def artifact(path: Path) -> Artifact:
    """A file's entry: its name within the model's folder, hash and size."""
    return Artifact(path=path.name, sha256=store.sha256_file(path), size_bytes=path.stat().st_size)


def versions() -> dict[str, str]:
    """Versions of the libraries that make an export, read without importing them."""
    installed = {}
    for library in _LIBRARIES:
        try:
            installed[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            installed[library] = "not installed"
    return installed


def _is_intact(folder: Path, entry: Artifact) -> bool:
    path = folder / entry.path
    return path.is_file() and path.stat().st_size == entry.size_bytes and store.sha256_file(path) == entry.sha256
