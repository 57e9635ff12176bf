"""onnxruntime-tensorrt: one infer() is one run of a session whose subgraphs are TensorRT engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.backends.onnxruntime.cuda import CUDA, OnnxRuntimeOnGpu
from harness.backends.onnxruntime.session import Provider


class OnnxRuntimeTensorrt(OnnxRuntimeOnGpu):
    """Engines and timing cache are kept below the model's folder: only the first process pays for building them."""

    compiles = True

    def load(self) -> None:
        """Everything that takes time is building."""

    def compile_cached(self) -> bool:
        """Whether an earlier process left engines for this case."""
        return self._cache.is_dir() and any(self._cache.iterdir())

    def compile(self) -> None:
        """Create the session, which builds or finds its engines, and bind every batch."""
        self._cache.mkdir(parents=True, exist_ok=True)
        super().load()

    @property
    def _cache(self) -> Path:
        return (self.job.cache / self.job.case.case_id).resolve()

    def _providers(self) -> Sequence[Provider]:
        own = {
            "device_id": "0",
            "user_compute_stream": str(self.stream.handle),
            "trt_fp16_enable": "1" if self.job.case.precision == "fp16" else "0",
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(self._cache),
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": str(self._cache),
        }
        return [("TensorrtExecutionProvider", own), (CUDA, self._cuda_options(graph=False))]
