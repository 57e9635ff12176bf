"""torch-compile: one infer() is one call of torch.compile's Inductor code for exactly the case's shapes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch
from torch._dynamo.utils import counters

from harness.backends.torch_base import TorchBackend
from harness.core.errors import CaseError


class TorchCompile(TorchBackend):
    """Static shapes; the compiled code is kept below the model's folder, so that only the first process pays."""

    compiles = True
    provider = "Inductor"

    def compile_cached(self) -> bool:
        """Whether an earlier process left compiled code for this case."""
        return self._cache.is_dir() and any(self._cache.iterdir())

    def compile(self) -> None:
        """Compile by calling once, as users do."""
        if not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++")):
            raise CaseError(
                "torch.compile needs a C++ compiler and there is none.", "Install one: apt-get install g++."
            )
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self._cache)
        self._call = torch.compile(self._module, dynamic=False)
        self._call(*self._inputs[0])

    @property
    def _cache(self) -> Path:
        return (self.job.cache / self.job.case.case_id).resolve()

    def _settings(self) -> dict[str, str | int | float | bool]:
        return {
            "graphs": counters["stats"]["unique_graphs"],
            "graph_breaks": sum(counters["graph_break"].values()),
        }

    def _ran_precision(self, tensors: list[torch.nn.Parameter]) -> str:
        if not counters["stats"]["unique_graphs"]:
            return "nothing compiled: ran eagerly"
        return super()._ran_precision(tensors)
