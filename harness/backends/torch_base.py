"""What the three PyTorch backends share: the module, its inputs as tensors, and what its parameters tell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from harness.backends.base import Array, Backend, Batch
from harness.core.schemas import Placement
from harness.zoo.build import build_module

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class TorchBackend(Backend):
    """infer() is one call of the module on tensors that already lie in memory; excludes all conversion."""

    provider = "ATen"

    def load(self) -> None:
        """Rebuild the module with the exported weights and turn every input batch into tensors."""
        torch.set_num_threads(self.job.threads)
        if torch.get_num_interop_threads() != 1:  # may be set once in a process
            torch.set_num_interop_threads(1)
        # Entered for the life of the process: entering it per call would charge PyTorch some microseconds each time.
        self._inference_mode = torch.inference_mode()
        self._inference_mode.__enter__()
        self._dtype = _DTYPES[self.job.case.precision]
        self._module = build_module(self.job.export, self.job.folder).to(self._dtype)
        names = [spec.name for spec in self.job.export.inputs]
        self._inputs = [tuple(self._tensor(batch[name]) for name in names) for batch in self.job.batches]
        self._call: Callable[..., Any] = self._module
        self._arguments = self._inputs[0]

    def select(self, index: int) -> None:
        """Point the next call at a batch."""
        self._arguments = self._inputs[index]

    def feed(self, batch: Batch) -> None:
        """Make tensors on the arrays' own memory; only below fp32 are floats converted."""
        tensors = (torch.from_numpy(batch[spec.name]) for spec in self.job.export.inputs)
        self._arguments = tuple(self._in_precision(tensor) for tensor in tensors)

    def infer(self) -> None:
        """Call the module once."""
        self._result = self._call(*self._arguments)

    def outputs(self) -> dict[str, Array]:
        """The last result as fp32 arrays (bf16 has no NumPy type)."""
        result = self._result if isinstance(self._result, tuple) else (self._result,)
        specs = self.job.export.outputs
        return {
            spec.name: (value.float() if value.is_floating_point() else value).clone().numpy()
            for spec, value in zip(specs, result, strict=True)
        }

    def placement(self) -> Placement:
        """Devices and element types of the module's own parameters."""
        tensors = list(self._module.parameters())
        census = Counter({str(dtype): 0 for dtype in {tensor.dtype for tensor in tensors}})
        for tensor in tensors:
            census[str(tensor.dtype)] += math.prod(tensor.shape)
        devices = sorted({tensor.device.type for tensor in tensors})
        return Placement(
            device="+".join(devices),
            precision=self._ran_precision(tensors),
            provider=self.provider,
            settings={
                "threads": torch.get_num_threads(),
                "interop_threads": torch.get_num_interop_threads(),
                "onednn": bool(torch.backends.mkldnn.enabled),
                "float32_matmul_precision": torch.get_float32_matmul_precision(),
                **self._settings(),
            },
            dtype_census=dict(census),
        )

    def build_facts(self) -> dict[str, str]:
        """Parallel backend and CPU capability of this PyTorch."""
        wanted = ("ATen parallel backend", "OpenMP", "Math Kernel Library", "Intel(R) MKL-DNN")
        lines = [*torch.__config__.parallel_info().splitlines(), *torch.__config__.show().splitlines()]
        facts = {line.strip(" -") for line in lines if any(word in line for word in wanted)}
        return {"torch": "; ".join(sorted(facts)), "torch_cpu_capability": torch.backends.cpu.get_cpu_capability()}

    def close(self) -> None:
        """Leave inference mode."""
        self._inference_mode.__exit__(None, None, None)

    def _settings(self) -> dict[str, str | int | float | bool]:
        return {}

    def _ran_precision(self, tensors: list[torch.nn.Parameter]) -> str:
        floating = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
        names = sorted(_NAMES.get(dtype, str(dtype)) for dtype in floating)
        # Below "highest", oneDNN may multiply fp32 matrices in bf16: then fp32 is not what ran.
        if names == ["fp32"] and torch.get_float32_matmul_precision() != "highest":
            return f"fp32 with {torch.get_float32_matmul_precision()}-precision matmul"
        return "+".join(names)

    def _tensor(self, array: Array) -> torch.Tensor:
        return self._in_precision(torch.from_numpy(array.copy()))

    def _in_precision(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor
