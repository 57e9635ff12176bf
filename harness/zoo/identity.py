"""The identity of an export: hashes of the model's bytes, whatever its name, and of everything that was asked; and
whether the files on disk still have it.

Two exports of one name are the same network only where the hashes of the model agree. Files are read before anything is
built. A user's module must be built first: its identity is its weights, its classes with their plain attributes, and
the sources that it was imported from.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harness.core import store
from harness.core.errors import FormatError, InferometerError, MissingInputError
from harness.core.layout import ModelFolder
from harness.core.safe_files import SizeLimit, read_text
from harness.core.schemas import Artifact, Exporter, ExportRecord, PlannedModel
from harness.zoo import ModelInfo

if TYPE_CHECKING:
    from torch import nn

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_OURS = __name__.partition(".")[0]
_INSTALLED = frozenset(("site-packages", "dist-packages"))


def is_built(info: ModelInfo) -> bool:
    """True where the model must be built before its identity is known: a user's own code."""
    return info.name.partition(":")[0] in ("module", "pickle")


def file_hashes(info: ModelInfo, cache: Path | None = None) -> dict[str, str]:
    """sha256 by name of the files that a model is read from: an ONNX file and those it keeps weights in, a saved
    folder, a package of weights; for a hub's model the revision in the cache.

    A file that cannot be read is left out: loading the model reports why.
    """
    prefix = info.name.partition(":")[0]
    if prefix == "onnx":
        return _hashes(_onnx(Path(info.reference)), Path(info.reference).parent)
    if prefix == "pt2":
        return _hashes([Path(info.reference)], Path(info.reference).parent)
    if prefix == "hf" and Path(info.reference).is_dir():
        return _tree(Path(info.reference))
    if info.package is not None:
        spec = importlib.util.find_spec(info.package)
        return {} if spec is None or spec.origin is None else _tree(Path(spec.origin).parent)
    return _revision(info, cache)


def _onnx(path: Path) -> list[Path]:
    """The file, and every file that it keeps weights in."""
    from harness.zoo.onnx.external_data import external_locations  # noqa: PLC0415 - onnx, and only these models need it

    try:
        beside = sorted(external_locations(path)) if path.is_file() else []
    except InferometerError:  # not an ONNX file; the export reports it
        beside = []
    return [path, *(path.parent / location for location in beside)]


def _tree(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return _hashes(paths, folder)


def _hashes(paths: Iterable[Path], folder: Path) -> dict[str, str]:
    return {os.path.relpath(path, folder): store.sha256_file(path) for path in paths if path.is_file()}


def _revision(info: ModelInfo, cache: Path | None) -> dict[str, str]:
    """The commit of a model on the hub that was fetched last."""
    if info.family != "harness.zoo.families.transformer":
        return {}
    try:
        from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415 - only these models need it
    except ImportError:
        return {}
    place = Path(cache or HF_HUB_CACHE) / f"models--{info.reference.replace('/', '--')}" / "refs" / "main"
    return {"revision": read_text(place, SizeLimit.TEXT).strip()} if place.is_file() else {}


def built_identity(module: nn.Module, origin: str, before: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """(sources, everything else) of a user's module after it was built and called once.

    origin: name of the Python module that built it, empty where there is none. before: names of the modules that were
    imported before it was built. Sources: as ExportRecord has them.
    """
    classes = sorted({type(part).__module__ for part in module.modules()})
    roots = [name for name in (origin, *classes) if name]
    new = [name for name in [*sys.modules] if name not in before]
    sources = {name: digest for name in _reached([*roots, *new]) if (digest := _source_digest(name)) is not None}
    versions = {name: _version(name) for name in sorted({name.partition(".")[0] for name in classes})}
    return dict(sorted(sources.items())), {"module": state_digest(module), **versions}


def changed_sources(sources: Mapping[str, str]) -> list[str]:
    """Names of recorded modules whose source has changed."""
    return [name for name, digest in sources.items() if _source_digest(name) != digest]


def state_digest(module: nn.Module) -> str:
    """Hash of a module's parts: class, plain attributes, parameters, buffers and other tensors of each.

    Values hidden in closures or in objects of other types are not seen.
    """
    digest = hashlib.sha256()
    for name, part in module.named_modules():
        digest.update(f"{name} {type(part).__module__}.{type(part).__qualname__}\n".encode())
        for key, tensor in _tensors(part):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(_bytes_of(tensor))
        for key, value in sorted(vars(part).items()):
            if not key.startswith("_") and _is_plain(value):
                digest.update(f"{key}={value!r}\n".encode())
    return digest.hexdigest()


def _tensors(part: nn.Module) -> Iterator[tuple[str, Any]]:
    import torch  # noqa: PLC0415 - the caller has it

    yield from part.named_parameters(recurse=False)
    yield from part.named_buffers(recurse=False)
    yield from ((key, value) for key, value in sorted(vars(part).items()) if isinstance(value, torch.Tensor))


def _bytes_of(tensor: Any) -> bytes:
    import torch  # noqa: PLC0415 - the caller has it

    try:
        plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return bytes(plain.numpy().data)
    except (RuntimeError, TypeError, ValueError):  # sparse, quantised or on `meta`
        return repr(tensor).encode()


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return isinstance(value, _PLAIN)


def _reached(roots: Iterable[str]) -> list[str]:
    """Names of the modules outside installed packages that the roots lead to: parents, and modules in their globals."""
    waiting, seen = list(roots), set[str]()
    reached = []
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in seen or module is None:
            continue
        seen.add(name)
        if not is_own(name, module):
            continue
        reached.append(name)
        if parent := name.rpartition(".")[0]:
            waiting.append(parent)
        for value in [*vars(module).values()]:
            owner = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(owner, str):
                waiting.append(owner)
    return reached


def is_own(name: str, module: ModuleType) -> bool:
    """True for a module of the user: its file belongs neither to an installed package nor to Inferometer."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or name.partition(".")[0] in (_OURS, "__main__", "__mp_main__"):
        return False
    path = Path(file).resolve()
    return not _INSTALLED & set(path.parts) and not any(path.is_relative_to(folder) for folder in _libraries())


def _libraries() -> list[Path]:
    paths = sysconfig.get_paths()
    named = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [Path(folder).resolve() for folder in (*named, *site.getsitepackages(), site.getusersitepackages())]


def _source_digest(name: str) -> str | None:
    """Hash of the file that a module comes from."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if module is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        file = None if spec is None else spec.origin
    return store.sha256_file(Path(file)) if isinstance(file, str) and Path(file).is_file() else None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return "not a distribution"


_LIBRARIES = ("torch", "torchvision", "transformers", "onnx", "onnxscript", "onnxruntime", "numpy")
_FORMAT = 10
"""Increased when the export code writes other files than before, or refuses a model that it exported before, so that
old files are made again. 10: weights in Constant nodes are counted."""


DEFAULT_OPSET = 20
"""Chosen by measurement, as the default exporter: docs/decisions/0002-exporter.md. Where the exporter cannot convert a
model to it, the file has another, which the record and the stage's output name; every other opset was asked for."""


@dataclass(frozen=True)
class ExportChoices:
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
    options: ExportChoices,
    built: Mapping[str, str] | None = None,
) -> str:
    """Hash of everything that decides the content of the files.

    Sequence lengths and precisions are left out: a record that covers more than a plan asks for still serves it.
    built: the identity of a user's module, known once it is built (`built`).
    """
    asked = [planned.name, planned.slug, planned.weights, seed, samples, *(given.sha256 for given in planned.inputs)]
    how = [options.exporter, options.opset, options.output_name, options.max_length, options.attention]
    return store.digest_of(_FORMAT, asked, how, versions(), file_hashes(info, options.cache), dict(built or {}))


def intact_record(folder: ModelFolder, request: str) -> ExportRecord | None:
    """The record of an earlier export with the same request and undamaged files; None otherwise."""
    try:
        record = store.load(folder.record, ExportRecord, "make export")
    except (FormatError, MissingInputError):
        return None
    if record.request_sha256 != request:
        return None
    return record if all(_is_intact(folder.root, artifact) for artifact in record.files()) else None


def covers(record: ExportRecord, planned: PlannedModel) -> bool:
    """True where a record holds every sequence length and precision, and the raw inputs, that the plan asks for."""
    lengths = {entry.sequence_length for entry in record.input_sets}
    raw = not planned.raw_inputs or all(entry.raw is not None for entry in record.input_sets)
    # A refused file would be refused again: the digest covers code, libraries and options.
    files = set(planned.onnx_precisions) <= {*record.onnx, *record.refused}
    variants = set(planned.onnx_variants) <= {*record.onnx_variants, *record.refused}
    return raw and files and variants and set(planned.sequence_lengths or (None,)) <= lengths


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
