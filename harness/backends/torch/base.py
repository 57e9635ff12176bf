"""The common part of PyTorch's backends: the module, its inputs as tensors, and the precision that ran. And
torch-eager, which adds nothing: one infer() is one call of the nn.Module, operator by operator, under inference_mode.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from harness.backends.base import (
    Array,
    Backend,
    BackendJob,
    Batch,
)
from harness.backends.torch import fp8
from harness.backends.torch.place import Call, OnCpu, Place, Tensors
from harness.backends.torch.readback import Product, fp8_ran, precision_words
from harness.core.errors import CaseError
from harness.core.schemas import NO_FLOATS, Placement
from harness.zoo.construct import build_module, is_torchscript
from harness.zoo.cost.torch_counts import is_product
from harness.zoo.reference import flat_tensors

LEAST_SHARE = 0.01
"""Of the FLOPs of a pass: a smaller share, such as the angles of rotary embeddings in fp32, does not count."""


def product_shares(call: Callable[[], object], word: Callable[[torch.dtype], str]) -> Mapping[Product, float]:
    """Shares of a pass's products, by FLOPs; empty where there are none.

    word: element type → word, by the state of the switches at the call; called at each product.
    """
    seen = _ProductPrecisions(word)
    # The counter takes composite operators apart; the mode around it sees the parts.
    with seen, FlopCounterMode(display=False):
        call()
    total = sum(seen.flops.values())
    return {kind: flops / total for kind, flops in seen.flops.items()} if total else {}


class _ProductPrecisions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up FLOPs of products by the word for their precision and by what they multiply."""

    def __init__(self, word: Callable[[torch.dtype], str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: Counter[Product] = Counter()
        self._word = word

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and look at it."""
        answer = func(*args, **(kwargs or {}))
        tensors = [argument for argument in args if isinstance(argument, torch.Tensor) and argument.is_floating_point()]
        if tensors:
            packet = func._overloadpacket
            # The last tensors of a scaled product are its scales and its bias.
            multiplied = tensors[0] if packet is torch.ops.aten._scaled_mm else tensors[-1]
            kind = Product(self._word(multiplied.dtype), packet.__name__ in _OF_ACTIVATIONS)
            if packet in flop_registry:
                self.flops[kind] += int(flop_registry[packet](*args, **(kwargs or {}), out_val=answer))
            elif is_product(packet.__name__):
                self.flops[kind] += _about(tensors)
        return answer


_OF_ACTIVATIONS = frozenset(
    {"bmm", "baddbmm", *(f"_scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient", "cudnn"))}
    | {"_scaled_dot_product_flash_attention_for_cpu"}
)
"""Operators that multiply two results of the pass, as in an attention, and no weights."""


def _about(tensors: list[torch.Tensor]) -> int:
    """FLOPs of an operator that is not counted, by the size of its operands: queries by keys, inputs by weights."""
    first, second = tensors[0], tensors[min(1, len(tensors) - 1)]
    return 4 * first.numel() * (second.shape[-2] if second.ndim > 1 else 1)


_DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.bfloat16,
}
"""Types of inputs, and of all that computes outside linear layers in fp8."""
_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", fp8.FLOAT8: "fp8"}


class TorchBackend(Backend):
    """infer() is one call of the module on tensors that already lie where it reads them; excludes all conversion."""

    provider = "ATen"
    takes_torchscript = False
    """Whether its label is true of a module that is TorchScript already."""

    def __init__(self, job: BackendJob) -> None:
        super().__init__(job)
        self.compiles = type(self).compiles or bool(job.options.get("graph"))

    @property
    def module(self) -> nn.Module:
        """The module that was loaded, in the types and layout that it runs in."""
        return self._module

    @property
    def input_sets(self) -> Sequence[Tensors]:
        """The tensors that batches lie in, from load() on."""
        return self._inputs.sets

    def load(self) -> None:
        """Rebuild the module with the exported weights and turn every input batch into tensors."""
        self._place = _place_of(self.job)
        self.stream, self.copy_streams = self._place.stream, self._place.copy_streams
        # Entered for the life of the process: entering it per call would charge PyTorch some microseconds each time.
        self._inference_mode = torch.inference_mode()
        self._inference_mode.__enter__()
        dtype = _DTYPES[self.job.case.precision]
        module = build_module(self.job.export, self.job.folder)
        if is_torchscript(module) and not self.takes_torchscript:
            raise CaseError(
                f"{self.job.case.model} is TorchScript already: {self.job.case.backend} would measure its interpreter.",
                "Return the nn.Module that it was made from, or measure it with BACKENDS=torch-script.",
            )
        self._module = self._placed(module, dtype)
        self._inputs = self._place.inputs([self._ordered(batch) for batch in self.job.batches], dtype)
        self._calls: list[Call] = [self._module] * len(self._inputs.sets)
        self._result: Any = None
        self._downloaded: Tensors = ()
        self._use(0)
        self._place.synchronize()

    def compile(self) -> None:
        """Compile where the backend does, and make the calls that a device needs before its work is steady."""
        self._calls = self._place.settle(self._compiled(), self._inputs.sets)
        self._use(0)

    def activate(self) -> None:
        """Make this object's stream current: PyTorch enqueues on the thread's current stream."""
        self._place.activate()

    def select(self, index: int) -> None:
        """Point the next call at a batch."""
        self._use(self._inputs.select(index))

    def refresh(self, index: int) -> None:
        """Bring the tensors of a batch up to date where they are copies of its arrays."""
        self._inputs.refresh(index, self._ordered(self.job.batches[index]))
        self._place.synchronize()

    def feed(self, batch: Batch) -> None:
        """Use the arrays in the next call: on a CPU as tensors on their memory, on a GPU as copies."""
        self._arguments = self._inputs.feed(self._ordered(batch))

    def upload(self) -> None:
        """Enqueue the copy of the selected batch."""
        self._inputs.upload()

    def infer(self) -> None:
        """Call the module once."""
        self._result = self._call(*self._arguments)

    def download(self) -> None:
        """Enqueue the copy of the last result."""
        self._downloaded = self._inputs.download(self._results())

    def synchronize(self) -> None:
        """Wait for the device."""
        self._place.synchronize()

    def outputs(self) -> dict[str, Array]:
        """The last result as fp32 arrays (NumPy has no bf16); at the transfer boundary, the downloaded result."""
        values = self._downloaded or self._results()
        return {
            spec.name: (value.float() if value.is_floating_point() else value).to("cpu", copy=True).numpy()
            for spec, value in zip(self.job.export.outputs, values, strict=True)
        }

    def placement(self) -> Placement:
        """Devices and element types of the module's own parameters, or of its other tensors where it has none, and the
        precision of its products."""
        tensors = self._evidence()
        census = Counter({str(dtype): 0 for dtype in {tensor.dtype for tensor in tensors}})
        for tensor in tensors:
            census[str(tensor.dtype)] += math.prod(tensor.shape)
        floating = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
        names = sorted(_NAMES.get(dtype, str(dtype)) for dtype in floating)
        shares, unseen = self._product_shares()
        held = self._place.precision(names)
        ran, facts = (
            fp8_ran(shares, held, LEAST_SHARE) if self._quantises else (precision_words(shares, LEAST_SHARE), {})
        )
        words = ran if self._quantises else {held, *ran} - {""}
        facts |= fp8.settings(self._module) if self._quantises else {}
        return Placement(
            device="+".join(sorted({tensor.device.type for tensor in tensors})),
            precision=self._ran_precision("+".join(sorted(words)) or NO_FLOATS),
            provider=self.provider,
            settings={**self._place.settings(self._module), **facts, **unseen, **self._copied(), **self._settings()},
            dtype_census=dict(census),
        )

    def _copied(self) -> dict[str, str | int | float | bool]:
        """Inputs that every call copies first, because the module works on them in place."""
        written = self.job.export.written_inputs
        return {"inputs_copied": "+".join(written)} if written else {}

    def _evidence(self) -> list[torch.Tensor]:
        """Tensors that show the precision of the module: its floating-point parameters, else its buffers, inputs or
        results, in that order; all tensors where none is floating."""
        inputs = [tensor for tensor in self._inputs.sets[0] if isinstance(tensor, torch.Tensor)]
        results = [tensor for tensor in self._results() if isinstance(tensor, torch.Tensor)]
        parameters: list[torch.Tensor] = [*self._module.parameters()]
        groups = (parameters, [*self._module.buffers()], inputs, results)
        floating = [group for group in groups if any(tensor.is_floating_point() for tensor in group)]
        return floating[0] if floating else [tensor for group in groups for tensor in group]

    def build_facts(self) -> dict[str, str]:
        """Facts about this PyTorch that change numbers where it ran."""
        return dict(self._place.build_facts())

    def close(self) -> None:
        """Drop every result, leave inference mode, and release the device."""
        self._result, self._downloaded = None, ()
        # Freeing page-locked tensors records an event on the stream, which must still exist then.
        del self._inputs, self._calls, self._call, self._arguments
        self._inference_mode.__exit__(None, None, None)
        self._place.close()

    @property
    def _quantises(self) -> bool:
        return self.job.case.precision == "fp8"

    def _placed(self, module: nn.Module, dtype: torch.dtype) -> nn.Module:
        if not self._quantises:
            return self._place.module(module, dtype)
        self._place.require_fp8()
        return fp8.in_fp8(module, self._place.module, dtype)

    def _product_shares(self) -> tuple[Mapping[Product, float], dict[str, str]]:
        """Shares of the products of an eager pass; and for the settings, why they are unknown."""

        def word(dtype: torch.dtype) -> str:
            return self._place.precision([_NAMES.get(dtype, str(dtype))])

        try:
            shares = product_shares(lambda: self._module(*self._inputs.sets[0]), word)
            self._place.synchronize()
        except RuntimeError as error:  # an eager pass may need more memory than a compiled pass
            return {}, {"products_not_seen": str(error).strip().partition("\n")[0][:200]}
        return shares, {}

    def _compiled(self) -> Call:
        """The callable that replaces the module after compiling."""
        return self._module

    def _settings(self) -> dict[str, str | int | float | bool]:
        return {}

    def _ran_precision(self, precision: str) -> str:
        """`precision` follows from parameters and switches; a backend with better evidence overrides it."""
        return precision

    def _use(self, index: int) -> None:
        self._call, self._arguments = self._calls[index], self._inputs.sets[index]

    def _results(self) -> Tensors:
        return flat_tensors(self._result)

    def _ordered(self, batch: Batch) -> list[Array]:
        return [batch[spec.name] for spec in self.job.export.inputs]


def _place_of(job: BackendJob) -> Place:
    if job.case.device == "cpu":
        return OnCpu(job.threads)
    from harness.backends.torch.cuda import OnCuda  # noqa: PLC0415 - imports pycuda, which a CPU machine lacks

    return OnCuda(job)


class TorchEager(TorchBackend):
    """The module as its authors wrote it: the baseline of every speedup."""
