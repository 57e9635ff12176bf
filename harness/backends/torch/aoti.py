"""torch-aoti: one infer() is one call of a package that torch.export and AOTInductor compiled ahead of time."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch
from torch._inductor import aoti_compile_and_package, aoti_load_package

from harness.backends.torch.base import TorchBackend
from harness.backends.torch.compile import code_folder, use_compiler
from harness.backends.torch.place import Call
from harness.core.errors import CaseError, reason
from harness.zoo.reference import Flat


class TorchAoti(TorchBackend):
    """Exported for exactly the shapes of the case. The package (.pt2) is kept below the model's folder: only the first
    process compiles, and each process loads it, as a server would.

    A call runs compiled code of the package alone: a model that torch.export cannot express fails, and no part runs
    eagerly. Weights are in the package.
    """

    compiles = True
    provider = "AOTInductor"

    def compile_cached(self) -> bool:
        """Whether an earlier process left the package of this case."""
        return self._package.is_file()

    def compile(self) -> None:
        """Export and compile where there is no package; load the package; call."""
        use_compiler(self.job.case.device, self._package.parent)
        super().compile()

    def close(self) -> None:
        """On a GPU the package holds memory of the device: it goes before the device."""
        self._calls, self._call, self._result = [], self._module, None
        super().close()

    def _compiled(self) -> Call:
        if not self._package.is_file():
            self._write_package()
        # The loader synchronises threads by events, which a CUDA graph cannot capture. Here one thread calls.
        package = aoti_load_package(str(self._package), run_single_threaded=self.job.case.device == "cuda")

        def call(*arguments: torch.Tensor) -> Any:
            return package(*arguments)

        return call

    def _write_package(self) -> None:
        module = Flat(self._module).eval() if self.job.export.nested_outputs else self._module
        self._package.parent.mkdir(parents=True, exist_ok=True)
        partial = self._package.with_name(f".{os.getpid()}.pt2")
        try:
            # Export traces with gradients in mind, and refuses tensors of inference mode.
            with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exported = torch.export.export(_ordinary(module), _cloned(self._inputs.sets[0]), strict=False)
                aoti_compile_and_package(exported, package_path=str(partial))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # torch.export and the compiler raise whatever their passes raise
            raise CaseError(
                f"torch.export or AOTInductor cannot compile {self.job.case.model}: {reason(error)}",
                "Leave torch-aoti out for this model (`make bench BACKENDS=…`).",
            ) from error
        partial.replace(self._package)

    def _settings(self) -> dict[str, str | int | float | bool]:
        return {"package_bytes": self._package.stat().st_size}

    @property
    def _package(self) -> Path:
        return code_folder(self.job.cache, self.job.case.case_id, self.job.threads) / "model.pt2"


def _ordinary(module: torch.nn.Module) -> torch.nn.Module:
    """The module with ordinary tensors: tensors that were made in inference mode cannot be exported."""
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None and parameter.is_inference():
                part._parameters[name] = torch.nn.Parameter(parameter.clone(), requires_grad=False)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None and buffer.is_inference():
                part._buffers[name] = buffer.clone()
    return module


def _cloned(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.clone() for tensor in tensors)
