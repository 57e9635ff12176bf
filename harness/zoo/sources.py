"""Names of models that are not in the table: `prefix:reference`, checked, with a folder name made from them."""

from __future__ import annotations

import difflib
import hashlib
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from harness.core.errors import ConfigError, MissingInputError
from harness.core.text import portable_path

_FORMS = {
    "torchvision": (r"[a-z0-9_]+", "`torchvision:<name>`, for example torchvision:resnet34"),
    "hf": (r".+", "`hf:<hub id>` or `hf:<folder>`, for example hf:prajjwal1/bert-tiny or hf:./my-model"),
    "timm": (
        r"[a-z0-9_]+(\.[a-z0-9_]+)?",
        "`timm:<name>`, for example timm:resnet10t or timm:vit_tiny_patch16_224.augreg",
    ),
    "pt2": (r".+\.(?i:pt2)", "`pt2:<file>`, a path that ends in .pt2, for example pt2:./model.pt2"),
    "module": (
        r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*",
        "`module:<python path>:<function>`, for example module:mypackage.models:build",
    ),
    "onnx": (r".+\.(?i:onnx)", "`onnx:<file>`, a path that ends in .onnx, for example onnx:./model.onnx"),
    "pickle": (
        r"[A-Za-z_]\w{0,60}-[0-9a-f]{16}",
        "what harness.api writes into its own configuration, and nothing else",
    ),
}


_OF_SUFFIX = {".onnx": "onnx", ".pt2": "pt2"}
"""A path that ends so needs no prefix."""


@dataclass(frozen=True)
class ModelSource:
    """A checked source: prefix, reference, and a folder name that no other source has."""

    prefix: str
    reference: str
    slug: str


def with_prefix(name: str) -> str:
    """A model's full name: `model.onnx` is `onnx:model.onnx`, and a path of a folder `hf:` and the path (pure).

    Raises ConfigError for a file of another kind, and for a Python file in place of a Python path.

    >>> with_prefix("net/model.onnx"), with_prefix("net.pt2"), with_prefix("./folder"), with_prefix("resnet18")
    ('onnx:net/model.onnx', 'pt2:net.pt2', 'hf:./folder', 'resnet18')
    """
    _refuse_python_files(name)
    prefix, colon, _ = name.partition(":")
    if colon and prefix in _FORMS:
        return name
    refuse_other_files(name)
    if is_model_file(name):
        return f"{_OF_SUFFIX[Path(name).suffix.lower()]}:{name}"
    return (
        f"hf:{name}" if name.startswith(("./", "../", "/", "~")) or name.endswith("/") or name in (".", "..") else name
    )


def onnx_path(name: str) -> Path | None:
    """The file of `onnx:<file>`; None for other models."""
    prefix, _, reference = name.partition(":")
    return Path(reference).expanduser() if prefix == "onnx" else None


_BY_TORCH = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".ts", ".safetensors")
_OF_OTHERS = (".engine", ".plan", ".trt", ".tflite", ".pb", ".h5", ".keras", ".xml", ".mlmodel")
"""Suffixes of files that people have, and that are not read: those of PyTorch, and those of other libraries."""


def refuse_other_files(name: str | Path) -> None:
    """Raise ConfigError for the path of a file that holds a model in a form that is not read, by its suffix."""
    suffix = Path(name).suffix.lower()
    if suffix in _BY_TORCH:
        raise ConfigError(
            f"{name} is not loaded unseen: it holds weights without their module, or code that would run.",
            "Load it in a function of yours that returns the module and its example inputs (torch.load with "
            "weights_only=True, torch.jit.load): `module:<python path>:<function>`.",
        )
    if suffix == ".gguf":
        raise ConfigError(
            f"{name} is a file of llama.cpp, and a model of this form is named by its folder.",
            "Put it into a folder with its config.json and tokenizer, and name that: `hf:<folder>`.",
        )
    if suffix in _OF_OTHERS:
        raise ConfigError(
            f"{name} is in a format that is not read ({suffix}).",
            "Give the ONNX file that it was made from, or export one.",
        )


_PYTHON_FILE = re.compile(r"(?:module:)?(?P<path>[^:]+\.py)(?::(?P<function>\w*))?")


def _refuse_python_files(name: str) -> None:
    file = _PYTHON_FILE.fullmatch(name)
    if file is not None:
        path = Path(file["path"])
        folder = "" if path.parent == Path() else f"Set `PYTHONPATH={path.parent}`. "
        raise ConfigError(
            f"{name} is a Python file, and a module is named by its Python path.",
            f"{folder}Name a function of it that returns the module and its example inputs: "
            f"`module:{path.stem}:{file['function'] or '<function>'}`.",
        )


def is_model_file(path: str | Path) -> bool:
    """True for the path of an ONNX file or of a saved program, by its suffix (pure)."""
    return Path(path).suffix.lower() in _OF_SUFFIX


def require_files(name: str) -> None:
    """Raise MissingInputError where a model's file, folder or Python module is not there; nothing is loaded."""
    source = parse_source(name)
    if source is None:
        return
    if source.prefix in _OF_SUFFIX.values() and not Path(source.reference).is_file():
        raise _no_file(Path(source.reference))
    if source.prefix == "hf" and is_folder_reference(source.reference):
        folder = Path(source.reference)
        if not folder.is_dir():
            refuse_other_files(folder)
            raise MissingInputError(f"There is no folder {folder}.", _near(folder))
        if not (folder / "config.json").is_file():
            raise MissingInputError(
                f"{folder} has no config.json, so it is no model that save_pretrained wrote.",
                "Save model and tokenizer there: `model.save_pretrained(folder)`, `tokenizer.save_pretrained(folder)`.",
            )
    if source.prefix == "module":
        package = source.reference.partition(":")[0].partition(".")[0]
        if find_spec(package) is None:
            raise MissingInputError(
                f"There is no Python module {package}.", f"Run from the folder that holds {package}, or install it."
            )


def _no_file(path: Path) -> MissingInputError:
    if path.is_dir():
        return MissingInputError(f"{path} is a folder, and no file.", "Name the file in it.")
    if path.is_symlink():
        return MissingInputError(
            f"{path} is a link to {path.readlink()}, which is not there.", "Make the link again, or name the file."
        )
    return MissingInputError(f"There is no file {path}.", _near(path))


def _near(path: Path) -> str:
    """The hint for a path that does not exist."""
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    return (
        f"Did you mean {path.parent / close[0]}?"
        if close
        else "Check the path; a relative path begins at the current folder."
    )


def parse_source(name: str) -> ModelSource | None:
    """Take `prefix:reference` apart; None where the prefix is not ours.

    Raises ConfigError where the reference is not valid (control characters, wrong form).
    """
    prefix, colon, reference = name.partition(":")
    if not colon or prefix not in _FORMS:
        return None
    pattern, form = _FORMS[prefix]
    clean = reference.isprintable() and reference == reference.strip()
    if not clean or re.fullmatch(pattern, reference, re.ASCII) is None:
        raise ConfigError(f"Model {name!r} names no source that can be loaded.", f"Write {form}.")
    return ModelSource(prefix, reference, _slug(prefix, reference))


def portable_name(name: str) -> str:
    """The name of a model without folders of this machine: a path in it becomes portable_path's form."""
    prefix, colon, reference = name.partition(":")
    return f"{prefix}:{portable_path(reference)}" if colon and prefix in ("hf", *_OF_SUFFIX.values()) else name


def is_folder_reference(reference: str) -> bool:
    """True where an hf: reference can only mean a folder: hub ids have at most one slash and start with a letter."""
    return re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", reference, re.ASCII) is None or ".." in reference


def _slug(prefix: str, reference: str) -> str:
    """A readable folder name; six hex digits keep two paths with the same ending apart."""
    if prefix in ("torchvision", "timm", "pickle"):
        return f"{prefix}-{reference}"
    tail = re.sub(r"\.(onnx|pt2)$", "", re.split(r"[/\\]", reference.rstrip("/\\"))[-1], flags=re.IGNORECASE)
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", tail).strip(".-")[:40] or "model"
    return f"{prefix}-{readable}-{hashlib.sha256(reference.encode()).hexdigest()[:6]}"
