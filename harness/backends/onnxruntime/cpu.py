"""onnxruntime: one infer() is one run_with_iobinding; inputs and outputs are bound before, nothing is copied."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from harness.backends.base import Array, Backend, Batch
from harness.backends.onnxruntime.placement import computing_kernels, is_quantised
from harness.backends.onnxruntime.session import session_options
from harness.backends.precision import file_precision, precision_of
from harness.core.errors import CaseError
from harness.core.schemas import NO_FLOATS, Placement


class OnnxRuntime(Backend):
    """All graph optimisations, sequential execution, one binding per input batch, shared output buffers."""

    def load(self) -> None:
        """Create the session (which optimises the graph) and bind every input batch; nothing runs yet."""
        if self.job.in_flight and self.job.threads < 2:
            raise CaseError(
                "run_async computes on ONNX Runtime's own threads, and there are none besides that of the caller.",
                "Give it threads (SETTINGS=2-threads, or measurement.threads), or serve with WORKERS instead.",
            )
        options = self.session_options()
        self._artifact = self.job.export.onnx[self.job.case.precision]
        self._session = ort.InferenceSession(
            str(self.job.folder / self._artifact.path), options, providers=["CPUExecutionProvider"]
        )
        if self._floating() == "fp64":
            raise CaseError(
                f"{self.job.case.model} computes in fp64, and the label would say {self.job.case.precision}.",
                "Export it in fp32, or leave onnxruntime out of its backends.",
            )
        self._outputs: dict[str, ort.OrtValue] = {}
        self._names = [*dict.fromkeys(output.name for output in self._session.get_outputs())]
        self._issued: deque[tuple[int, list[Array]]] = deque(maxlen=max(1, self.job.in_flight))
        # ONNX Runtime binds no strings: a batch with strings is handed over, and converted, at each run. Nor does it
        # fill the bound buffer of an output that is one of its inputs.
        self._strings = any(array.dtype.kind in "UO" for array in self.job.batches[0].values())
        self._by_run = self._strings or any(port.name in self._names for port in self._session.get_inputs())
        self._fed: Batch = self.job.batches[0]
        if self._by_run:
            self.infer = self._run  # type: ignore[method-assign]  # without a question inside the clock
            return
        self._bindings = [self._bind(batch) for batch in self.job.batches]
        self._binding = self._bindings[0]

    def session_options(self) -> Any:
        """The options of the session."""
        return session_options(self.job.threads)

    def end_profiling(self) -> Path:
        """The complete profile of a session whose options requested it."""
        return Path(self._session.end_profiling())

    def select(self, index: int) -> None:
        """Point the next run at a batch."""
        if self._by_run:
            self._fed = self.job.batches[index]
        else:
            self._binding = self._bindings[index]

    def feed(self, batch: Batch) -> None:
        """Bind arrays where they lie; the output buffers stay bound."""
        # The binding knows addresses only: the arrays must outlive the run.
        self._fed = batch
        if self._by_run:
            return
        self._binding = self._bindings[0]
        for name, array in batch.items():
            self._binding.bind_cpu_input(name, array)

    def infer(self) -> None:
        """Run once."""
        self._session.run_with_iobinding(self._binding)

    def issue(self, index: int, done: Callable[[str | None], None]) -> None:
        """run_async: ONNX Runtime computes on a thread of its own pool and allocates the outputs of each pass."""
        self._session.run_async(self._names, self.job.batches[index], self._complete, (index, done))

    def _complete(
        self, answer: list[Array] | None, own: tuple[int, Callable[[str | None], None]], error: str | None
    ) -> None:
        index, done = own
        if not error and answer is not None:
            self._issued.append((index, answer))
        done(error or None)

    def issued(self) -> list[tuple[int, dict[str, Array]]]:
        """Outputs of the latest passes."""
        return [
            (index, {name: np.copy(value) for name, value in zip(self._names, answer, strict=True)})
            for index, answer in self._issued
        ]

    def _run(self) -> None:
        self._answer = self._session.run(self._names, self._fed)

    def outputs(self) -> dict[str, Array]:
        """Copies of the bound outputs.

        The first answer lies where ONNX Runtime put it; buffers of its shapes take every later one. A run in load() to
        learn them would be the first inference, timed as part of loading.
        """
        if self._outputs:
            return {name: value.numpy().copy() for name, value in self._outputs.items()}
        if self._by_run:
            return {name: np.copy(value) for name, value in zip(self._names, self._answer, strict=True)}
        answer = dict(zip(self._names, self._binding.copy_outputs_to_cpu(), strict=True))
        self._outputs = {name: ort.OrtValue.ortvalue_from_numpy(np.empty_like(value)) for name, value in answer.items()}
        for binding in self._bindings:
            for name, value in self._outputs.items():
                binding.bind_ortvalue_output(name, value)
        return answer

    def placement(self) -> Placement:
        """The providers that the session obtained, the element types of the file, and the kernels that ran where it is
        no fp32 file.

        Weights alone prove nothing: ONNX Runtime multiplies int8 in fp32 where it cannot fuse, and casts fp16 to fp32
        where it has no kernel.
        """
        options = self._session.get_session_options()
        census = self._artifact.dtype_census
        kernels: dict[str, int] = {}
        if is_quantised(census) or self.job.case.precision == "int8" or self._floating() not in ("fp32", NO_FLOATS):
            kernels = computing_kernels(
                self.job.folder / self._artifact.path, self.job.batches[0], options.intra_op_num_threads
            )
        return Placement(
            device="cpu" if self._session.get_providers() == ["CPUExecutionProvider"] else "mixed",
            precision=precision_of(kernels) if kernels else self._floating(),
            provider="+".join(self._session.get_providers()),
            settings={
                "threads": options.intra_op_num_threads,
                "interop_threads": options.inter_op_num_threads,
                "opset": self._artifact.opset,
                **({"run_async": self.job.in_flight} if self.job.in_flight else {}),
                **({"strings": "converted at each run"} if self._strings else {}),
                **{f"{precision}_kernels": number for precision, number in sorted(kernels.items())},
            },
            dtype_census=census,
        )

    def build_facts(self) -> dict[str, str]:
        """ONNX Runtime's own build line."""
        return {"onnxruntime": ort.get_build_info()}

    def _floating(self) -> str:
        """The floating type of the file, and of its inputs and outputs."""
        session = self._session
        return file_precision(
            self._artifact, [port.type for port in session.get_inputs()], [port.type for port in session.get_outputs()]
        )

    def _bind(self, batch: Batch) -> ort.IOBinding:
        binding = self._session.io_binding()
        for name, array in batch.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C")))
        for name in self._names:
            binding.bind_output(name)  # ONNX Runtime allocates it
        return binding
