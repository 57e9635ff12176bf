"""Counts on a PyTorch module: arithmetic and least memory traffic of one sample, parameters, live tensors.

Fused kernels hide their products from the counter: a ViT-B/16 whose attention is fused shows 11.3 of its 17.6 GMAC.
So attention is computed in separate products while counting, and put back as it was.
"""

from __future__ import annotations

import math
import re
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from harness.core.errors import ConfigError
from harness.core.padding import cut, mask_of
from harness.core.schemas import ELEMENT_BYTES, Precision, Work
from harness.zoo.batch_axes import in_model_layout
from harness.zoo.input_files import Arrays
from harness.zoo.loaded import Inputs, Loaded
from harness.zoo.reference import module_outputs
from harness.zoo.unfused_attention import unfused_attention

Shape = Sequence[int]

# fmt: off
_PRODUCTS = frozenset((
    "addbmm", "addmm", "addmv", "attention", "baddbmm", "bmm", "cdist", "cholesky", "conv", "convolution", "dot",
    "eigh", "fft", "gemm", "gru", "inv", "inverse", "linear", "lstm", "lu", "matmul", "matrix", "mm", "mv", "pinv",
    "qr", "rnn", "solve", "svd", "transformer", "vdot",
))
# fmt: on
"""Words in the names of operators that consist of products: a counter without such an operator counts too little.
Activations, normalisations, poolings and interpolations are left out of FLOPs by convention, here as in published
figures."""

_OURS = frozenset(("aten", "prim", "prims"))
_WITHOUT_PRODUCTS = frozenset(("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"))
"""Operators of torchvision that pick or interpolate. Operators of other libraries are unknown."""


def _recurrent_flops(values: Shape, weight: Shape, recurrent: Shape, *_: Any, **__: Any) -> int:
    """One layer in one direction: each of (steps, batch, features) meets both matrices (gates x hidden, features)."""
    return 2 * math.prod(values[:-1]) * (math.prod(weight) + math.prod(recurrent))


def _bilinear_flops(first: Shape, weight: Shape, second: Shape, *_: Any, **__: Any) -> int:
    """x W y for each output: x by each of (out, in1, in2), then the result by y."""
    del first
    return 2 * math.prod(second[:-1]) * (math.prod(weight) + weight[0] * weight[2])


def _deformable_flops(values: Shape, weight: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    """As a convolution's: (out, in / groups, kernel…). Where the samples are taken is interpolation."""
    del values
    return 2 * math.prod(out_shape) * math.prod(weight[1:])


def _distance_flops(first: Shape, second: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    """A difference, squared and added, for each feature of each pair."""
    del second
    return 2 * math.prod(out_shape) * first[-1]


def _matrix_vector_flops(*shapes: Any, out_shape: Shape = (), **__: Any) -> int:
    """A matrix by a vector, or two vectors: all elements of the first of them."""
    del out_shape
    return 2 * int(math.prod(next(shape for shape in shapes if shape)))


def _flops() -> dict[Any, Callable[..., int]]:
    """Formulas for operators that PyTorch's counter lacks, by operator; torchvision's only where it is loaded."""
    formulas: dict[Any, Callable[..., int]] = {
        torch.ops.aten.mkldnn_rnn_layer: _recurrent_flops,
        torch.ops.aten._trilinear: _bilinear_flops,
        torch.ops.aten._cdist_forward: _distance_flops,
        **dict.fromkeys((torch.ops.aten.mv, torch.ops.aten.dot, torch.ops.aten.vdot), _matrix_vector_flops),
    }
    if hasattr(torch.ops.torchvision, "deform_conv2d"):
        formulas[torch.ops.torchvision.deform_conv2d] = _deformable_flops
    return formulas


_WINOGRAD_KERNELS = ((3, 3), (5, 5))
"""Kernel sizes for which cuDNN offers Winograd's algorithm (cuDNN, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED)."""

_CONVOLUTIONS = (torch.ops.aten.convolution, torch.ops.aten._convolution)
"""The second operator is used in traced modules; the arguments of both begin alike."""

_LOOKUPS = (nn.Embedding, nn.EmbeddingBag)


def work_of(loaded: Loaded, inputs: Mapping[int | None, Inputs]) -> tuple[Work, ...]:
    """The cost of one sample, by sequence length of the given inputs.

    () for a user's ONNX file, which has no module, and for a module that cannot run below the counter, whose hooks need
    autograd, although it answered without it.
    """
    if loaded.module is None:
        return ()
    module, counted = loaded.module, []
    with torch.no_grad(), _unfused(loaded):
        for length, made in inputs.items():
            try:
                counted.append(_count(module, loaded, length, made.arrays))
            except ConfigError:
                return ()
            counted[-1] = _without_padding(counted[-1], module, loaded, made.arrays)
    return tuple(counted)


def _count(module: nn.Module, loaded: Loaded, length: int | None, arrays: Arrays) -> Work:
    count = loaded.fixed_batch or 1
    sample = in_model_layout({name: arrays[name][:count] for name in loaded.input_names}, loaded.input_axes)
    with _counting() as (counter, seen):
        outputs = module_outputs(module, [torch.from_numpy(sample[name].copy()) for name in loaded.input_names])
    return Work(
        sequence_length=length,
        flops_per_item=int(counter.get_total_flops()) // count,
        parameters=_read_parameters(module),
        input_bytes_per_item=sum(values.nbytes for values in sample.values()) // count,
        output_elements_per_item=sum(output.numel() for output in outputs) // count,
        winograd_flops_per_item=seen.winograd_flops // count,
        uncounted=tuple(sorted(seen.uncounted)),
    )


def _without_padding(work: Work, module: nn.Module, loaded: Loaded, arrays: Arrays) -> Work:
    """The work with the arithmetic of the text alone beside it, where inputs are padded.

    It is counted once, at the mean or the median number of tokens, whichever is smaller: arithmetic grows at least in
    proportion to the length, so that a batch of these texts, and the median of several, need no less.
    """
    mask = mask_of(arrays)
    if mask is None:
        return work
    lengths = mask.sum(axis=1)
    tokens = max(1, int(min(lengths.mean(), np.median(lengths))))
    try:
        least = _count(module, loaded, work.sequence_length, cut(arrays, mask, tokens))
    except ConfigError:  # it takes texts of one length alone
        return work
    return work.model_copy(update={"text_flops_per_item": least.flops_per_item})


@contextmanager
def _counting() -> Iterator[tuple[FlopCounterMode, _OperatorWatch]]:
    formulas = _flops()
    counter, seen = FlopCounterMode(display=False, custom_mapping=formulas), _OperatorWatch(frozenset(formulas))
    # The counter takes composite operators apart; the mode around it sees the parts.
    with seen, counter:
        yield counter, seen


def flops_of(call: Callable[[], Any]) -> tuple[int, tuple[str, ...]]:
    """(FLOPs of what is called, operators made of products that were not counted). Attention of torch's functional
    interface is computed in separate products."""
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), _counting() as (counter, seen):
        call()
    return int(counter.get_total_flops()), tuple(sorted(seen.uncounted))


def _read_parameters(module: nn.Module) -> int:
    """Elements of all parameters less lookup tables, of which a pass reads some rows; a table that is also an output
    layer's weight counts, because that reads all of it."""
    read = {
        id(parameter): parameter.numel()
        for part in module.modules()
        if not isinstance(part, _LOOKUPS)
        for parameter in part.parameters(recurse=False)
    }
    return sum(read.values())


@contextmanager
def _unfused(loaded: Loaded) -> Iterator[None]:
    """Attention in separate products, of transformers as of torch's own nn.MultiheadAttention."""
    if loaded.set_attention is not None:
        loaded.set_attention("eager")
    try:
        with sdpa_kernel(SDPBackend.MATH), unfused_attention():
            yield
    finally:
        if loaded.set_attention is not None and loaded.attention is not None:
            loaded.set_attention(loaded.attention)


class _OperatorWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches the operators that really run: which products the counter misses, which convolutions need fewer."""

    def __init__(self, counted: Collection[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counted = counted
        self.uncounted: set[str] = set()
        self.winograd_flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and look at it."""
        answer = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        if packet in self._counted:
            return answer
        if packet not in flop_registry:
            if _may_multiply(func.namespace, packet.__name__):
                self.uncounted.add(packet.__name__)
        elif packet in _CONVOLUTIONS and _is_winograd(*args):
            self.winograd_flops += int(flop_registry[packet](*args, **(kwargs or {}), out_val=answer))
        return answer


def _may_multiply(namespace: str, name: str) -> bool:
    return is_product(name) if namespace in _OURS else name not in _WITHOUT_PRODUCTS


def is_product(name: str) -> bool:
    """Whether an operator of PyTorch's consists of products, by its name."""
    words = set(re.split(r"[\d_]+", name))
    if "upsample" in words:  # upsample_linear1d
        return False
    return bool(_PRODUCTS & words or ("linalg" in words and "norm" not in words))


def _is_winograd(
    _values: Any, weight: torch.Tensor, _bias: Any, stride: Any, _padding: Any, dilation: Any, *more: Any
) -> bool:
    """Whether Winograd's algorithm can compute a convolution (arguments of _CONVOLUTIONS)."""
    transposed, _output_padding, groups, *_ = more
    plain = not transposed and groups == 1 and set(stride) == set(dilation) == {1}
    return plain and tuple(weight.shape[2:]) in _WINOGRAD_KERNELS


@dataclass(frozen=True)
class Parameters:
    """Elements of a module's parameters; by_type: by the class of the module that owns them."""

    total: int
    trainable: int
    by_type: Mapping[str, int]


def parameters_of(module: nn.Module) -> Parameters:
    """Count each parameter once, for the first module that owns it."""
    by_type: Counter[str] = Counter()
    seen: set[int] = set()
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                by_type[type(part).__name__] += parameter.numel()
    trainable = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    return Parameters(sum(by_type.values()), trainable, dict(by_type.most_common()))


def weight_bytes(module: nn.Module) -> dict[Precision, int]:
    """Bytes of parameters and buffers by the precision that their floats are held in."""
    tensors = [*module.parameters(), *module.buffers()]
    floats = sum(tensor.numel() for tensor in tensors if tensor.is_floating_point())
    others = sum(tensor.nbytes for tensor in tensors if not tensor.is_floating_point())
    return {precision: floats * element + others for precision, element in ELEMENT_BYTES.items()}


def live_bytes(module: nn.Module, arguments: Sequence[torch.Tensor], precision: Precision) -> int | None:
    """Most bytes of tensors made by one pass that are alive at the same time, floats in `precision`; None for int8.

    Runs the module once, operator by operator. Weights and inputs are not counted; the memory that an operator uses
    internally is not seen.
    """
    element = ELEMENT_BYTES.get(precision)
    if element is None:
        return None
    watch = _Alive([*module.parameters(), *module.buffers(), *arguments], element)
    with torch.no_grad(), watch:
        module(*arguments)
    return watch.peak


class _Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the storages that operators make, until Python lets go of them."""

    def __init__(self, known: Sequence[torch.Tensor], element_bytes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._live = 0
        self._element_bytes = element_bytes
        self._seen = {tensor.untyped_storage()._cdata for tensor in known}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and look at its results."""
        answer = func(*args, **(kwargs or {}))
        for made in tree_leaves(answer):
            if isinstance(made, torch.Tensor):
                self._add(made)
        self.peak = max(self.peak, self._live)
        return answer

    def _add(self, made: torch.Tensor) -> None:
        storage = made.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        size = storage.nbytes()
        if made.is_floating_point():
            size = math.ceil(size / made.element_size()) * self._element_bytes
        self._seen.add(key)
        self._live += size
        weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self._live -= size
