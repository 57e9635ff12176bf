"""Inductor, PyTorch's compiler. torch-compile: one infer() is one call of torch.compile's code for exactly the case's
shapes. torch-aoti: one infer() is one call of a package that torch.export and AOTInductor compiled ahead of time."""

from __future__ import annotations

import gc
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._inductor import aoti_compile_and_package, aoti_load_package
from torch._inductor.cudagraph_trees import get_manager
from torch._inductor.output_code import CompiledFxGraph

from harness.backends.torch.base import TorchBackend
from harness.backends.torch.place import Call
from harness.backends.torch.readback import Compiled, compiled_of, with_shortfalls
from harness.core.errors import CaseError, reason
from harness.core.schemas import Device, Placement
from harness.zoo.reference import Flat

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
        require_compiler(self.job.case.device)
        # Read whenever something is compiled, also by the compiling processes that start from here on.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self._cache)
        os.environ["TRITON_CACHE_DIR"] = str(self._cache / "triton")
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
        """As of every module, and whether all of it ran compiled."""
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
        # Inductor reuses only code of the same PyTorch and number of threads: other code is not this case's.
        kind = f"torch-{torch.__version__}-{self.job.threads}-threads"
        return (self.job.cache / self.job.case.case_id / kind).resolve()

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
        require_compiler(self.job.case.device)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self._package.parent)
        os.environ["TRITON_CACHE_DIR"] = str(self._package.parent / "triton")
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
        kind = f"torch-{torch.__version__}-{self.job.threads}-threads"
        return (self.job.cache / self.job.case.case_id / kind / "model.pt2").resolve()


def _ordinary(module: torch.nn.Module) -> torch.nn.Module:
    """The same module with ordinary tensors: those that were made in inference mode cannot be exported."""
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
