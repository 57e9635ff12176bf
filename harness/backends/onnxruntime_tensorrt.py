"""onnxruntime-tensorrt: one infer() is one run of a session whose subgraphs are TensorRT engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.backends.onnxruntime_cuda import CUDA, OnnxRuntimeOnGpu
from harness.backends.onnxruntime_placement import Ran, ran_on


class OnnxRuntimeTensorrt(OnnxRuntimeOnGpu):
    """Engines and timing cache are kept below the model's folder: only the first process pays for building them."""

    provider = "TensorrtExecutionProvider"
    compiles = True
    _library = "tensorrt"

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

    def _providers(self) -> list[Any]:
        own = {
            "device_id": "0",
            "user_compute_stream": str(self.stream.handle),
            "trt_fp16_enable": "1" if self.job.case.precision == "fp16" else "0",
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(self._cache),
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": str(self._cache),
        }
        return [(self.provider, own), (CUDA, self._cuda_options(graph=False))]

    def _profiled(self) -> Ran:
        return ran_on(lambda prefix: self._open(self._providers(), prefix), self.job.batches[0])
