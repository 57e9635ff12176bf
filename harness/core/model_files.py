"""Where the files of exported models live; layout.py draws the folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Models:
    """The folders below one models folder."""

    root: Path

    def folder(self, slug: str, export: str | None = None) -> ModelFolder:
        """The files of one export of a model; without its name the model's own folder, as of earlier versions."""
        home = self.root / slug
        return ModelFolder(home) if export is None else ModelFolder(home / export, home)

    def exports(self, slug: str) -> list[ModelFolder]:
        """Every export of a model that is there, the latest first."""
        home = self.root / slug
        records = sorted(home.glob("*/export.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return [ModelFolder(path.parent, home) for path in records if not path.parent.name.startswith(".")]

    def timing_cache(self, tensorrt: str, gpu: str) -> Path:
        """What TensorRT learned about kernels; it belongs to a version and a type of GPU."""
        return self.root / "timing-cache" / f"{tensorrt}-{gpu.replace(' ', '-')}.cache"


@dataclass(frozen=True)
class ExportFiles:
    """What an export says of itself: in a model's folder, and in each results folder that is measured on it."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "export.json"

    @property
    def failure(self) -> Path:
        return self.root / "export-failed.json"

    @property
    def failure_log(self) -> Path:
        """The stack of what went wrong in the last export."""
        return self.root / "export-failed.log"


@dataclass(frozen=True)
class ModelFolder(ExportFiles):
    """The files of one export. shared: the model's own folder, where exports lie beside each other."""

    shared: Path | None = None

    @property
    def home(self) -> Path:
        """Where what belongs to no single export lies: engines, and the module that harness.api was given."""
        return self.root if self.shared is None else self.shared

    @property
    def weights(self) -> Path:
        return self.root / "weights.safetensors"

    @property
    def pickled(self) -> Path:
        return self.root / "module.pkl"

    @property
    def compile_cache(self) -> Path:
        return self.root / "compile-cache"

    @property
    def engines(self) -> Path:
        return self.home / "engines"

    def engine(self, name: str) -> Path:
        return self.engines / f"{name}.plan"

    def engine_record(self, name: str) -> Path:
        return self.engines / f"{name}.json"

    def onnx(self, precision: str) -> Path:
        return self.root / ("model.onnx" if precision == "fp32" else f"model-{precision}.onnx")

    def inputs(self, sequence_length: int | None) -> Path:
        return self.root / f"inputs{_suffix(sequence_length)}.npz"

    def reference(self, sequence_length: int | None) -> Path:
        return self.root / f"reference{_suffix(sequence_length)}.npz"

    def raw_inputs(self, sequence_length: int | None) -> Path:
        return self.root / f"raw-inputs{_suffix(sequence_length)}.npz"

    def raw_reference(self, sequence_length: int | None) -> Path:
        return self.root / f"reference{_suffix(sequence_length)}-e2e.npz"

    @property
    def tokenizer(self) -> Path:
        return self.root / "tokenizer"

    @property
    def processor(self) -> Path:
        return self.root / "processor"


def _suffix(sequence_length: int | None) -> str:
    return "" if sequence_length is None else f"-s{sequence_length}"
