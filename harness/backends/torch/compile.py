"""torch-compile: one infer() is one call of torch.compile's code for exactly the case's shapes, by Inductor."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path

import torch
from torch._dynamo.utils import counters
from torch._inductor.cudagraph_trees import get_manager
from torch._inductor.output_code import CompiledFxGraph

from harness.backends.torch.base import TorchBackend
from harness.backends.torch.place import Call
from harness.backends.torch.readback import Compiled, compiled_of, with_shortfalls
from harness.core.errors import CaseError
from harness.core.schemas import Device, Placement

_COMPILERS = {"cpu": ("CXX", "g++", "clang++"), "cuda": ("CC", "gcc", "clang")}
"""By device: the variable that names a compiler, and the compilers that are used without it. On a GPU Triton compiles
the launcher of every kernel as C."""


MOST_OBJECTS = 1024
"""Compiled objects of one module in one process."""


def require_compiler(device: Device) -> None:
    """Raise CaseError where the compiler that Inductor calls is missing."""
    variable, *names = _COMPILERS[device]
    if not any(shutil.which(name) for name in (os.environ.get(variable, names[0]), *names)):
        raise CaseError(
            f"Inductor needs a compiler ({' or '.join(names)}) and there is none.",
            f"Install one: apt-get install {names[0]}. The image inferometer:cpu-compile has one.",
        )


def code_folder(cache: Path, case: str, threads: int) -> Path:
    """Where the code of a case is kept between processes.

    Inductor reuses only code of the same PyTorch and number of threads: other code is not this case's.
    """
    return (cache / case / f"torch-{torch.__version__}-{threads}-threads").resolve()


def use_compiler(device: Device, folder: Path) -> None:
    """Let Inductor and Triton keep their code in a folder. Raises as require_compiler."""
    require_compiler(device)
    # Read whenever something is compiled, also by the compiling processes that start from here on.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")


class TorchCompile(TorchBackend):
    """Static shapes; the compiled code is kept below the model's folder, so that only the first process pays.

    Options: `mode`, torch.compile's own; `freezing: True` makes constants of the weights. Where the mode includes CUDA
    graphs, a call first copies its inputs into the graph's (part of the sample, because torch.compile does so for its
    users), except at the transfer and e2e boundaries, where the only set of inputs is declared static.
    """

    compiles = True
    provider = "Inductor"

    @property
    def shares_outputs(self) -> bool:  # type: ignore[override]  # it depends on the mode
        """CUDA graphs of all compiled functions share their memory."""
        return bool(torch._inductor.list_mode_options(self._mode or "default").get("triton.cudagraphs"))

    def compile_cached(self) -> bool:
        """Whether an earlier process left compiled code for this case."""
        return self._cache.is_dir() and any(self._cache.iterdir())

    def compile(self) -> None:
        """Compile by calling, as users do; on a GPU also record the CUDA graphs, so that none is recorded later."""
        use_compiler(self.job.case.device, self._cache)
        # A service compiles one object a batch size and worker from the same code: none may fall back to eager.
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MOST_OBJECTS)
        # No option of torch.compile: Dynamo does not see those, and hands the weights over as inputs.
        torch._inductor.config.freezing = self._freezing
        counters.clear()
        super().compile()
        self._recorded = self._cuda_graphs()
        # Now: gc.freeze(), which a session calls before it times, hides the graphs.
        self._frozen = _frozen_weights() if self._freezing else None

    def placement(self) -> Placement:
        """The placement of every module, and whether all of it ran compiled."""
        return super().placement().model_copy(update={"ran_eagerly": self._counted().eager_parts()})

    def close(self) -> None:
        """On a GPU compiled code holds CUDA graphs: it goes before the device."""
        if self.stream is not None:
            self._calls, self._call, self._result = [], self._module, None
            torch._dynamo.reset()
        super().close()

    def _compiled(self) -> Call:
        if self._inputs.fixed:
            for tensor in self._inputs.sets[0]:
                torch._dynamo.mark_static_address(tensor)
        call: Call = torch.compile(self._module, dynamic=False, mode=self._mode)
        call(*self._inputs.sets[0])
        return call

    def _settings(self) -> dict[str, str | int | float | bool]:
        mode = {} if self._mode is None else {"mode": self._mode}
        frozen = {"frozen_weights": "not seen" if self._frozen is None else self._frozen} if self._freezing else {}
        return {**mode, **frozen, **self._counted().settings()}

    def _ran_precision(self, precision: str) -> str:
        unfrozen = self._freezing and self._has_weights and self._frozen == 0
        return with_shortfalls(
            precision, [*(["no weight was frozen"] if unfrozen else []), *self._counted().shortfalls()]
        )

    @property
    def _mode(self) -> str | None:
        mode = self.job.options.get("mode")
        return None if mode is None else str(mode)

    @property
    def _freezing(self) -> bool:
        return bool(self.job.options.get("freezing"))

    @property
    def _has_weights(self) -> bool:
        return next(self._module.parameters(), None) is not None

    @property
    def _cache(self) -> Path:
        return code_folder(self.job.cache, self.job.case.case_id, self.job.threads)

    def _counted(self) -> Compiled:
        return compiled_of(counters, self._cuda_graphs(), self._recorded)

    def _cuda_graphs(self) -> int | None:
        """CUDA graphs that Inductor has recorded; None where the mode asks for none."""
        if not torch._inductor.list_mode_options(self._mode or "default").get("triton.cudagraphs"):
            return None
        manager = get_manager(torch.cuda.current_device(), create_if_none_exists=False)
        return 0 if manager is None else sum(1 + root.num_descendants() for root in manager.get_roots())


def _frozen_weights() -> int | None:
    """Weights that are constants of this process's compiled graphs, found among its objects: no call lists them. None
    where no such object is found."""
    graphs = [graph for graph in gc.get_objects() if type(graph) is CompiledFxGraph]
    return sum(len(graph.frozen_param_names) for graph in graphs) if graphs else None
