"""The job that a decoder gets."""

from __future__ import annotations

from pathlib import Path

from harness.core.layout import Models
from harness.core.schemas import Artifact, OnnxArtifact
from harness.processes.measure_generation import make_decoder_job
from tests.synthetic_generation import CASE, EXPORT

GGUF = Artifact(path="model.gguf", sha256="0" * 64, size_bytes=1)
ONNX = OnnxArtifact.model_construct(path="decoder-fp32-in-place.onnx")


def test_files_are_named_below_the_folder_also_where_it_is_relative() -> None:
    case = CASE.model_copy(update={"backend": "onnxruntime", "setting": "in-place"})
    export = EXPORT.model_copy(update={"onnx": {"fp32-in-place": ONNX}, "gguf": GGUF})
    folder = Models(Path("models")).folder("tiny", "f")
    job = make_decoder_job(case, 1, export.shape, folder, export)
    assert job.onnx is not None
    assert job.gguf is not None
    assert job.folder / job.onnx == folder.root / "decoder-fp32-in-place.onnx"
    assert job.folder / job.gguf == folder.root / "model.gguf"
