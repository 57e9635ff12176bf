"""onnxruntime generates on CUDA: runs are enqueued on the harness's stream; cache and tokens stay on the device."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from pycuda import driver

from harness.backends.base import Array
from harness.backends.cuda import libraries
from harness.backends.cuda.context import Cuda, DeviceArray
from harness.backends.onnxruntime.cache_feeds import PAST
from harness.backends.onnxruntime.decoder import OnnxDecoder
from harness.backends.onnxruntime.placement import Ran, device_of, node_counts, profiled_nodes
from harness.backends.onnxruntime.session import CUDA, SessionRequest, open_session
from harness.backends.precision import floating_precision
from harness.core.schemas import Placement


class DeviceMemory:
    """The GPU's memory; copies are enqueued on the stream of the runs, through pinned memory of each array."""

    name = "cuda"

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._pinned: dict[int, Array] = {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        """A new array."""
        return self._cuda.empty(shape, dtype)

    def write(self, target: DeviceArray, values: Array) -> None:
        """Enqueue the copy. The pinned memory is free again: each request waits for its tokens before the next one."""
        staged = self._staged(target)
        staged[...] = values
        driver.memcpy_htod_async(target.allocation, staged, self._cuda.stream)

    def read(self, source: DeviceArray) -> Array:
        """Copy when the work enqueued before is done."""
        staged = self._staged(source)
        driver.memcpy_dtoh_async(staged, source.allocation, self._cuda.stream)
        self._cuda.stream.synchronize()
        return staged.copy()

    def _staged(self, held: DeviceArray) -> Array:
        if held.address not in self._pinned:
            self._pinned[held.address] = self._cuda.pinned_like(held)
        return self._pinned[held.address]


class OnnxDecoderOnGpu(OnnxDecoder):
    """With the setting `numpy` the cache travels to the host and back at every step, as run() does it."""

    def load(self) -> None:
        """Create the sessions on the harness's stream, and see once where their nodes run."""
        libraries.preload()
        self._cuda = Cuda()
        options = ort.RunOptions()
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
            self._folder = Path(folder)
            self._begin(DeviceMemory(self._cuda), options)
            self._ran = self._seen()
        self._cuda.stream.synchronize()

    def placement(self) -> Placement:
        """Where the nodes of a run of the measured session were, and its own report of its options."""
        options = self._session.get_provider_options().get(CUDA, {})
        tf32 = options.get("use_tf32") == "1"
        types = {port.type: 1 for port in self._session.get_inputs() if port.name.startswith(PAST)}
        precision = floating_precision(types)
        return Placement(
            device=device_of(self._ran),
            precision="tf32" if precision == "fp32" and tf32 else precision,
            provider="+".join(self._session.get_providers()),
            settings={"tf32": tf32, "feeds": self.feeds, "file": self.file.name, **node_counts(self._ran)},
            dtype_census={},
        )

    def build_facts(self) -> dict[str, str]:
        """ONNX Runtime's own build line, and the CUDA that it was built for."""
        from onnxruntime.capi import build_and_package_info as info  # noqa: PLC0415

        return {**super().build_facts(), "onnxruntime_cuda": str(getattr(info, "cuda_version", "unknown"))}

    def close(self) -> None:
        """Sessions and bindings first: they hold memory on the context. Safe after a load() that failed half-way."""
        super().close()
        if "_cuda" in vars(self):
            self._cuda.close()

    def _open(self, file: Path) -> Any:
        own = {
            "device_id": "0",
            "user_compute_stream": str(self._cuda.stream.handle),
            "use_tf32": "1" if self.job.precision == "tf32" else "0",
        }
        return open_session(SessionRequest(file, [(CUDA, own)], self.job.threads, self._folder / file.stem))

    def _seen(self) -> list[Ran]:
        """The nodes of one run on host memory, which is profiled; nothing more is profiled after it."""
        if self._first is not None:
            self._first.end_profiling()
        self._session.run(None, self.example())
        return profiled_nodes(json.loads(Path(self._session.end_profiling()).read_bytes()))
