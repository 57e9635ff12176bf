"""The fp32 reference: outputs of eager PyTorch, or for a user's ONNX file those of unoptimised ONNX Runtime; and its
checks.

The checks are made before any exporter or backend is blamed for an error of the model itself. A reference must give the
same answer twice, numbers that can be compared, one answer for each sample, and the same answer whatever else is in the
batch. Each is checked with a few samples; the error names the output that fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils._pytree import register_dataclass, tree_flatten_with_path

from harness.core.errors import ConfigError, ExportError, UsageError, reason
from harness.core.padding import Mask, applies, cut, mask_of
from harness.core.process_state import stay_here
from harness.core.schemas import Parity
from harness.core.units import count
from harness.zoo.batch_axes import Axes, batch_first, in_model_layout
from harness.zoo.construct import seed_everything
from harness.zoo.families.arguments import key_text
from harness.zoo.input_files import Arrays
from harness.zoo.loaded import Loaded
from harness.zoo.onnx.external_data import all_nodes
from harness.zoo.quantised_files import FLOATING_PRODUCTS


def module_outputs(module: nn.Module, arguments: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The outputs of a module, one after the other. Raises ConfigError where its forward raises."""
    return flat_tensors(call_module(module, arguments))


def call_module(module: nn.Module, arguments: Sequence[torch.Tensor]) -> Any:
    """The answer of a module, unchanged. Raises ConfigError where its forward raises."""
    try:
        with stay_here():
            return module(*arguments)
    except (Exception, SystemExit) as error:  # whatever the module's own code raises
        given = ", ".join(
            f"{str(argument.dtype).removeprefix('torch.')}{list(argument.shape)}" for argument in arguments
        )
        hint = (
            "Call the module with inputs of these shapes, in fp32 on the CPU. One that takes only the batch size of "
            "its examples has to be planned with that alone (BATCHES=…)."
        )
        if torch.is_inference_mode_enabled() and "does not require grad" in str(error):
            hint = "Models are measured in torch.inference_mode(), without autograd: use torch.func.grad in forward."
        raise ConfigError(
            f"The forward of {type(module).__name__} raised {reason(error)} (its inputs: {given}).", hint
        ) from error


_NO_OUTPUT = (type(None), bool, int, float, complex, str, bytes)
"""Types of what forward may return beside its tensors: no backend computes it, and it is not compared."""


def flat_tensors(answer: Any) -> tuple[Any, ...]:
    """The tensors of an answer in the order of torch.export: of a dictionary, a tuple of tuples, a dataclass, or a type
    that a library registered with PyTorch."""
    if isinstance(answer, torch.Tensor):
        return (answer,)
    return tuple(leaf for _, leaf in _outputs(answer))


def _outputs(answer: Any) -> list[tuple[Any, Any]]:
    """Path and value of each output."""
    leaves = tree_flatten_with_path(answer)[0]
    unknown = {type(leaf) for _, leaf in leaves if is_dataclass(leaf)}
    for kind in unknown:
        register_dataclass(kind)
    return _outputs(answer) if unknown else [(path, leaf) for path, leaf in leaves if not isinstance(leaf, _NO_OUTPUT)]


def output_names(answer: Any, taken: Collection[str] = ()) -> tuple[str, ...]:
    """The names of the tensors of flat_tensors(): their keys, or `output_<place>`; each name once, and none that is
    taken, because an ONNX file has one name for one value."""
    paths = [path for path, _ in _outputs(answer)]
    words = ["_".join(map(key_text, path)) for path in paths]
    if paths == [()] or (len(words) == 1 and isinstance(answer, tuple | list)):
        words = ["output"]
    names: list[str] = []
    for place, word in enumerate(words):
        name = f"output_{word}" if word[:1].isdigit() or word in taken else word or f"output_{place}"
        while name in {*names, *taken}:
            name += "_"
        names.append(name)
    return tuple(names)


def is_plain_answer(answer: Any) -> bool:
    """Whether it is a tensor or a tuple of tensors, which everything takes."""
    parts = answer if isinstance(answer, tuple) else (answer,)
    return all(isinstance(part, torch.Tensor) for part in parts)


class Flat(nn.Module):
    """A module whose answer is a tuple of tensors, for libraries that accept nothing else."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """The module's answer, flat."""
        return flat_tensors(self.module(*inputs))


Forward = Callable[[Arrays], Arrays]
"""Inputs of any batch size, sample axis first → outputs, by name."""

_CHUNK = 8
"""Samples at a time: enough to occupy the cores, little memory."""


def reference_of(loaded: Loaded, threads: int) -> Forward:
    """The function that computes the reference outputs of a loaded model with this many threads, in full fp32, each
    with its batch axis first."""
    if loaded.onnx_file is not None:
        session = open_session(loaded.onnx_file, threads, level="ORT_DISABLE_ALL")
        return lambda arrays: batch_first(
            run_session(session, in_model_layout(arrays, loaded.input_axes)), loaded.batch_axes
        )
    module = loaded.require_module()
    torch.set_num_threads(threads)
    _compute_exactly()
    return lambda arrays: batch_first(_torch_outputs(module, arrays, loaded), loaded.batch_axes)


def _compute_exactly() -> None:
    """Restore the precision that a model's code may have lowered."""
    torch.set_float32_matmul_precision("highest")
    kinds: list[Any] = [getattr(torch.backends.mkldnn, name, None) for name in ("conv", "rnn")]
    for kind in kinds:
        if getattr(kind, "fp32_precision", "none") not in ("none", "ieee"):
            kind.fp32_precision = "ieee"


def in_chunks(answer: Forward, arrays: Arrays, fixed_batch: int | None) -> Arrays:
    """Outputs for all samples, computed a few at a time: as many as a graph with a fixed batch takes.

    Raises UsageError where a fixed batch does not divide the number of samples.
    """
    chunk = fixed_batch or _CHUNK
    samples = len(next(iter(arrays.values())))
    if fixed_batch is not None and samples % fixed_batch:
        raise UsageError(
            f"{samples} inputs cannot be cut into batches of {fixed_batch}, the only size that the model takes.",
            f"Set `parity_samples` to a multiple of {fixed_batch}.",
        )
    parts = [
        answer({name: values[start : start + chunk] for name, values in arrays.items()})
        for start in range(0, samples, chunk)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def takes_only(answer: Forward, arrays: Arrays, batch: int) -> bool:
    """Whether the model takes a batch of that size and no larger one, or answers a larger one as if it had that size.

    answer: the reference, its outputs as the model gives them.
    """

    def shapes(count: int) -> dict[str, tuple[int, ...]] | None:
        try:
            outputs = answer({name: values[:count] for name, values in arrays.items()})
        except (ConfigError, ExportError):
            return None
        return {name: values.shape for name, values in outputs.items()}

    usual = shapes(batch)
    return usual is not None and shapes(batch + 2) in (None, usual)


def relative_l2(values: NDArray[np.generic], reference: NDArray[np.generic]) -> float:
    """‖v − r‖ / ‖r‖ of two arrays of one shape, computed in double precision."""
    computed, other = np.asarray(values, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    return float(np.linalg.norm(computed - other) / np.linalg.norm(other))


def _torch_outputs(module: nn.Module, arrays: Arrays, loaded: Loaded) -> Arrays:
    taken = in_model_layout(arrays, loaded.input_axes)
    with torch.inference_mode():
        # Copies: a module that changes its inputs in place must not change the inputs of later calls.
        outputs = module_outputs(module, [torch.from_numpy(taken[name].copy()) for name in loaded.input_names])
    if len(outputs) != len(loaded.output_names):
        samples = len(next(iter(arrays.values())))
        raise ExportError(
            f"{type(module).__name__} gives {count(len(outputs), 'tensor')} for {count(samples, 'sample')}, and "
            f"{len(loaded.output_names)} for its examples.",
            "Return the same tensors for a batch of any size, such as one for all samples instead of one for each.",
        )
    return {name: output.numpy() for name, output in zip(loaded.output_names, outputs, strict=True)}


Level = Literal["ORT_DISABLE_ALL", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"]


def open_session(path: Path, threads: int, level: Level = "ORT_ENABLE_ALL") -> Any:
    """A session on the CPU. Raises ExportError where ONNX Runtime cannot load the file, with its versions."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.add_session_config_entry(*FLOATING_PRODUCTS)
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base below Exception
        why = reason(error)
        raise ExportError(
            f"ONNX Runtime {onnxruntime.__version__} cannot load {path} ({_versions(path)}): {why}", _remedy(path, why)
        ) from error


def _versions(path: Path) -> str:
    """`IR version 8, opset 17, com.microsoft 1`, as the file says."""
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # ONNX Runtime's own message reports the damage
        return f"{path.stat().st_size:,} bytes" if path.is_file() else "not there"
    opsets = ", ".join(f"{entry.domain or 'opset'} {entry.version}" for entry in model.opset_import)
    return f"IR version {model.ir_version}, {opsets or 'no opset'}"


_REMEDIES: Mapping[str, str] = {
    "IR version": (
        "Save it with an older one: `python -c \"import onnx; m = onnx.load('{path}'); m.ir_version = 10; "
        "onnx.save(m, 'older.onnx')\"`; or install a newer onnxruntime."
    ),
    "under development|opset version|guarantees": (
        "Convert it to an older one: `onnx.version_converter.convert_version(onnx.load('{path}'), 20)`; or install a "
        "newer onnxruntime."
    ),
    "not a registered function|No Op registered|NOT_IMPLEMENTED|Could not find an implementation": (
        "ONNX Runtime's CPU provider has no such operator, or not for this element type (bfloat16): export the model "
        "without it, or with operators of ONNX in fp32."
    ),
    "External initializer|external data|No such file|GetFileLength|cannot open file": (
        "Put the whole file that holds the weights beside it, under the name that it asks for."
    ),
    "No graph was found": "Is it a whole ONNX file? A download or an export may have stopped.",
    "MLDataType": "Export it with real numbers in place of complex ones, or as tensors of another type.",
}
"""Remedies by a pattern of ONNX Runtime's message."""


def _remedy(path: Path, why: str) -> str:
    remedy = next((text for words, text in _REMEDIES.items() if re.search(words, why, re.IGNORECASE)), None)
    return (
        "Open it in Netron, or check it by `onnx.checker.check_model`." if remedy is None else remedy.format(path=path)
    )


def run_session(session: Any, arrays: Arrays, of_user: bool = True) -> Arrays:
    """Outputs by name. Raises ExportError where the shapes or types do not fit the graph.

    of_user: whether the file is the user's own, not made here by an exporter.
    """
    names = [output.name for output in session.get_outputs()]
    try:
        return dict(zip(names, session.run(names, arrays), strict=True))
    except Exception as error:
        shapes = ", ".join(f"{name} {values.dtype}{list(values.shape)}" for name, values in arrays.items())
        fixed = "Its axes may be fixed: try the other exporter (EXPORTER=torchscript or dynamo)."
        own = "Give inputs that it takes (INPUTS=<file>.npz), or ask only for the batch size that it takes (BATCHES=1)."
        raise ExportError(
            f"The ONNX file does not run with {shapes}: {reason(error)}", own if of_user else fixed
        ) from error


Compare = Callable[[Arrays, Arrays, bool, Mask | None], Parity]
"""harness.statistics.parity.compare."""

SAMPLES = 3
"""Size of the batch for these checks. Not 2: many fixed axes have that extent."""

_LIMITS: Mapping[str, float] = {"float16": 2e-2}
_LIMIT = 1e-4
"""Largest relative L2 of two equal answers, in half precision and otherwise: the same limits as for exported files."""
_LIMIT_QUANTISED = 1e-1
"""The limit for a file whose scales are computed while running, over the whole batch."""

_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)


def output_batch_axes(
    name: str, loaded: Loaded, answer: Forward, inputs: Arrays, compare: Compare
) -> dict[str, int | None]:
    """The axis of each output that is the batch; None for an output that is the same for all samples.

    answer: the reference, its outputs as the model gives them.

    Raises ExportError where an output cannot be compared, differs from call to call, has no batch axis, or depends on
    the other samples of its batch.
    """
    count = loaded.fixed_batch or SAMPLES
    samples = {key: values[:count] for key, values in inputs.items()}
    first = answer(samples)
    check_comparable(name, first)
    _check_repeats(name, loaded, answer, samples, first, compare)
    if loaded.fixed_batch is not None:
        others = answer({key: values[-count:] for key, values in inputs.items()})
        fixed = _one_at_least(
            name, {key: _only_axis(name, key, values, others[key], count) for key, values in first.items()}
        )
        _check_fixed(name, loaded, answer, inputs, batch_first(first, fixed), fixed, compare)
        return fixed
    alone = [answer({key: values[place : place + 1] for key, values in samples.items()}) for place in range(SAMPLES)]
    axes = _one_at_least(
        name, {key: _batch_axis(loaded, name, key, [own[key] for own in alone], first[key]) for key in first}
    )
    together = batch_first(first, axes)
    for place, sample in enumerate(alone):
        beside = {key: values[place : place + 1] for key, values in together.items()}
        own = {key: values[place : place + 1] for key, values in samples.items()}
        _check_apart(name, loaded, own, batch_first(sample, axes), beside, compare)
    return axes


def check_comparable(name: str, outputs: Arrays) -> None:
    """Raise ExportError for an output that is not real numbers, holds NaN, or nothing but infinities.

    Some infinities are right: a mask of logits. They are equal where both sides have them (statistics/parity.py).
    """
    for key, values in outputs.items():
        if values.dtype.kind not in "biuf":
            raise ExportError(
                f"Output `{key}` of {name} is of type {values.dtype}: only real numbers can be compared.",
                "Return real numbers: of complex ones the real and the imaginary part, of text its ids.",
            )
        nans = int(np.count_nonzero(np.isnan(values))) if values.dtype.kind == "f" else 0
        if nans:
            raise ExportError(
                f"Output `{key}` of {name} is NaN in {nans:,} of {values.size:,} values of the reference itself: "
                "nothing can be compared with it.",
                "Look for 0/0, inf - inf or the logarithm of a negative number in it, and at the inputs that it gets.",
            )
        if values.size and values.dtype.kind == "f" and not np.isfinite(values).any():
            raise ExportError(
                f"Output `{key}` of {name} has no finite value: nothing can be compared with it.",
                "Look for a division by zero or an overflow in it, and at the inputs that it gets.",
            )


def check_not_empty(name: str, outputs: Arrays) -> None:
    """Raise ExportError where no output has a value."""
    if not any(values.size for values in outputs.values()):
        raise ExportError(
            f"No output of {name} has a value: {', '.join(outputs)}.",
            "Return what it computes, or give it other inputs.",
        )


def check_token_axes(name: str, answer: Forward, inputs: Arrays, outputs: Arrays, fixed_batch: int | None) -> None:
    """Raise ExportError where the mask of padded inputs would hide values of an output that belong to no token: it has
    as many for each sample whatever the length. A model that takes one length alone is judged by the shapes."""
    mask, samples = mask_of(inputs), fixed_batch or 1
    if mask is None:
        return
    some = {key: values[:samples] for key, values in inputs.items()}
    try:
        shorter = answer(cut(some, mask[:samples], mask.shape[1] - 1))
    except (ConfigError, ExportError):
        return
    for key, values in outputs.items():
        if applies(mask, values.shape) and shorter[key].shape[1] == mask.shape[1]:
            raise ExportError(
                f"Output `{key}` of {name} has {mask.shape[1]} values for each sample at any length, and its inputs "
                f"have {mask.shape[1]} tokens: the attention mask would hide some of them.",
                "Give inputs of another length (SEQ_LENGTHS=…), or inputs without padding.",
            )


def exchanged_answers(outputs: Arrays, classifier: bool, mask: Mask | None, compare: Compare) -> Parity | None:
    """How far the answers to different samples are apart, in the output in which they are nearest: another output would
    hide that any answer passes there. An output that is the same for all samples has no wrong sample; it counts where
    all are so. None for one sample."""
    if len(next(iter(outputs.values()))) < 2:
        return None
    first = next(iter(outputs))
    others = {name: np.roll(values, 1, axis=0) for name, values in outputs.items()}
    differing = [name for name, values in outputs.items() if not np.array_equal(values, others[name])]
    apart = [
        compare({name: others[name]}, {name: outputs[name]}, classifier and name == first, mask) for name in differing
    ]
    nearest = min(apart, key=lambda parity: (parity.furthest is None, parity.furthest or 0.0), default=None)
    return nearest or compare(others, outputs, classifier, mask)


def _check_repeats(
    name: str, loaded: Loaded, answer: Forward, samples: Arrays, first: Arrays, compare: Compare
) -> None:
    difference = _difference(loaded, answer(samples), first, compare)
    if difference is None:
        return
    same, again, other = (_seeded(answer, samples, seed) for seed in (0, 0, 1))
    # ONNX Runtime has a generator of its own, and a file has no other state. A state may return to what it was, but
    # does not follow the seed.
    draws = loaded.onnx_file is not None or (
        _difference(loaded, again, same, compare) is None and _difference(loaded, other, same, compare) is not None
    )
    cause = "draws random numbers" if draws else "keeps a state from one call to the next"
    hint = "Draw them outside and give them as an input, or leave them out where it answers (dropout: training=False)."
    if not draws:
        hint = "Give the state as an input and return the new one, or set it back at the beginning of forward."
    raise ExportError(
        f"{name} {cause}: asked twice with the same inputs, {difference}, so that no backend can be compared with it.",
        f"{_culprits(loaded)}{hint}",
    )


def _check_apart(name: str, loaded: Loaded, sample: Arrays, alone: Arrays, together: Arrays, compare: Compare) -> None:
    """alone, together: the answer to one sample by itself, and in its batch."""
    difference = _difference(loaded, alone, together, compare, mask_of(sample))
    if difference is None:
        return
    raise ExportError(
        f"The answer of {name} to a sample depends on the rest of its batch, or on its place in it: alone and beside "
        f"{SAMPLES - 1} others {difference}.",
        f"{_batch_second(loaded)}{_culprits(loaded)}Let each sample have its own answer: no statistics over the batch "
        "(BatchNorm in training mode, a mean over axis 0).",
    )


def _check_fixed(
    name: str, loaded: Loaded, answer: Forward, inputs: Arrays, first: Arrays, axes: Axes, compare: Compare
) -> None:
    """No sample of a fixed batch can be asked alone: the batch in reverse order must have the reverse answers, and a
    sample beside others its own. first: the answers to the first batch of inputs; axes: of the outputs."""
    count = len(next(iter(first.values())))
    turned = {key: values[:count][::-1].copy() for key, values in inputs.items()}
    beside = {key: np.concatenate([values[:1], values[len(values) - count + 1 :]]) for key, values in inputs.items()}
    reverse = {key: values[::-1] for key, values in batch_first(answer(turned), axes).items()}
    other = {key: values[:1] for key, values in batch_first(answer(beside), axes).items()}
    in_reverse = _difference(
        loaded, reverse, first, compare, mask_of({key: values[:count] for key, values in inputs.items()})
    )
    beginning, sample = ({key: values[:1] for key, values in arrays.items()} for arrays in (first, inputs))
    difference = in_reverse or _difference(loaded, other, beginning, compare, mask_of(sample))
    if difference is None:
        return
    raise ExportError(
        f"The answer of {name} to a sample depends on the rest of its batch, or on its place in it: in its batch of "
        f"{count} {'in reverse order' if in_reverse else 'with other samples'} {difference}.",
        f"{_culprits(loaded)}Is the first axis of its inputs the batch? Export the file with a batch axis, and with an "
        "answer for each sample.",
    )


def _difference(
    loaded: Loaded, outputs: Arrays, reference: Arrays, compare: Compare, mask: Mask | None = None
) -> str | None:
    """The first output that differs, in words; None where none does. mask: of the inputs, where outputs are batch
    first."""
    for key, values in reference.items():
        if outputs[key].shape != values.shape:
            return f"output `{key}` has shape {outputs[key].shape} and {values.shape}"
        if values.dtype.kind == "f" and np.isnan(values).any():
            return f"output `{key}` is NaN in one of them"
        parity = compare({key: np.atleast_1d(outputs[key])}, {key: np.atleast_1d(values)}, False, mask)
        if parity.relative_l2 is None:
            return f"output `{key}` has {parity.nonfinite} infinities or NaN in other places"
        limit = _LIMITS.get(str(values.dtype), _LIMIT)
        if parity.relative_l2 > (limit if loaded.quantised is None else _LIMIT_QUANTISED):
            return f"output `{key}` differs by {parity.relative_l2:.1e} (relative L2)"
    return None


def _seeded(answer: Forward, samples: Arrays, seed: int) -> Arrays:
    seed_everything(seed)
    return answer(samples)


def _culprits(loaded: Loaded) -> str:
    """A sentence on the parts of the model that are known to cause such answers; empty where there are none."""
    if loaded.onnx_file is not None:
        random_nodes = _random_nodes(loaded.onnx_file)
        return f"In the file: {', '.join(random_nodes)}. " if random_nodes else ""
    module = loaded.require_module()
    training = [f"`{path}` ({type(part).__name__})" for path, part in module.named_modules() if _trains(path, part)]
    return f"In training mode: {', '.join(training[:5])}. " if training else ""


def _batch_second(loaded: Loaded) -> str:
    """A sentence on the parts that take axis 1 of their input as the batch; empty where there are none."""
    parts = [] if loaded.module is None else loaded.module.named_modules()
    second = [
        f"`{path}` ({type(part).__name__})" for path, part in parts if getattr(part, "batch_first", True) is False
    ]
    return f"Axis 1 is the batch of {', '.join(second[:5])}: set batch_first=True. " if second else ""


def _trains(path: str, part: nn.Module) -> bool:
    return bool(path) and part.training and not any(part.children())


def _random_nodes(path: Path) -> list[str]:
    nodes = all_nodes(onnx.load(path, load_external_data=False))
    drawing = [node.op_type for node in nodes if node.op_type in _RANDOM]
    training = [
        f"{node.op_type} in training mode"
        for node in nodes
        if (node.op_type == "Dropout" and len(node.input) > 2 and node.input[2])
        or any(entry.name == "training_mode" and entry.i for entry in node.attribute)
    ]
    return sorted({*drawing, *training})


def _batch_axis(
    loaded: Loaded, name: str, key: str, alone: Sequence[NDArray[np.generic]], together: NDArray[np.generic]
) -> int | None:
    """alone: the output for each sample by itself."""
    one, all_of_them = alone[0].shape, together.shape
    if len(one) == len(all_of_them):
        axes = [axis for axis, extents in enumerate(zip(one, all_of_them, strict=True)) if extents == (1, SAMPLES)]
        if axes:
            return axes[0]
    if all(np.array_equal(values, together) for values in alone):
        return None
    raise ExportError(
        f"Output `{key}` of {name} has no batch axis: its shape is {one} for 1 sample and {all_of_them} for {SAMPLES}.",
        f"{_batch_second(loaded)}{_of_boxes(key)}Return one answer a sample, the first axis the batch, or leave "
        f"`{key}` out of its result.",
    )


def _only_axis(name: str, key: str, values: NDArray[np.generic], others: NDArray[np.generic], count: int) -> int | None:
    """values, others: the output for two batches."""
    if count in values.shape:
        return values.shape.index(count)
    if np.array_equal(values, others):
        return None
    raise ExportError(
        f"Output `{key}` of {name} has no batch axis: its shape is {values.shape} for its fixed batch of {count}.",
        f"Leave `{key}` out of the file's outputs, or give it one answer a sample.",
    )


def _one_at_least(name: str, axes: dict[str, int | None]) -> dict[str, int | None]:
    if all(axis is None for axis in axes.values()):
        raise ExportError(
            f"No output of {name} depends on its input, or has a batch axis: {', '.join(axes)}.",
            f"{_of_boxes(*axes)}Return one answer a sample, the first axis the batch.",
        )
    return axes


def _of_boxes(*keys: str) -> str:
    """A sentence for detectors, by the names of outputs; empty for other models."""
    if not any("boxes" in key for key in keys):
        return ""
    return "A detector finds any number of boxes: return the values before non-maximum suppression (of its head). "
