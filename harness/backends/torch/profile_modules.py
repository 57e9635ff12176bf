"""Time, arithmetic and results of each module of a torch model, by hooks on the module that the backend runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from harness.backends.profile_timing import (
    ROOT,
    PartTimes,
    SpanMark,
    TimedPass,
    choose_batch,
    inference_span,
    mean_times,
    selected_span,
    spans_in_turns,
    times_of_run,
)
from harness.core.schemas.profile_record import LayerRow
from harness.profiling.layers import group_of
from harness.timing.clock import now_ns
from harness.zoo.unfused_attention import unfused_attention

Hook = Callable[[str], Callable[..., None]]
"""Path of a module → function to call there. It returns nothing: a hook's result would replace inputs or results."""


@contextmanager
def hooked(module: nn.Module, before: Hook, after: Hook) -> Iterator[None]:
    """Call the function from `before` where a module begins, and from `after` where it ends; removed afterwards."""
    with ExitStack() as hooks:
        for path, part in module.named_modules():
            hooks.callback(part.register_forward_pre_hook(before(path or ROOT)).remove)
            hooks.callback(part.register_forward_hook(after(path or ROOT)).remove)
        yield


@contextmanager
def nvtx_ranges(module: nn.Module, nvtx: Any = torch.cuda.nvtx) -> Iterator[None]:
    """Hooks on every module that open a range by its path and close it; all are removed afterwards.

    nvtx: has range_push(text) and range_pop(). Ranges are the host's: while a module's kernels are enqueued.
    """

    def push(path: str) -> Callable[..., None]:
        def enter(*_: object) -> None:
            nvtx.range_push(path)

        return enter

    def pop(_path: str) -> Callable[..., None]:
        def leave(*_: object) -> None:
            nvtx.range_pop()

        return leave

    with hooked(module, push, pop):
        yield


class Stamps(Protocol):
    """Time stamps of one kind."""

    def take(self) -> Any:
        """A stamp of now, or of the present place in the device's stream."""

    def ns(self, first: Any, stamp: Any) -> int:
        """Nanoseconds from one stamp to another, both in the past."""


class HostStamps:
    """The host's clock, for work that is done when a call returns."""

    take = staticmethod(now_ns)

    def ns(self, first: int, stamp: int) -> int:
        """Time from the first stamp to the second, in ns."""
        return stamp - first


class EventStamps:
    """CUDA events on the current stream: device time, in which the waits for a launch are part of their module."""

    def take(self) -> Any:
        """An event, recorded."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def ns(self, first: Any, stamp: Any) -> int:
        """The device's time between them."""
        milliseconds: float = first.elapsed_time(stamp)
        return round(milliseconds * 1e6)


Recorded = list[tuple[str, bool, Any]]
"""(path, whether it begins, stamp) of one run."""


@contextmanager
def recording(module: nn.Module, stamps: Stamps) -> Iterator[Recorded]:
    """Hooks on every module that leave a stamp where it begins and ends; all are removed afterwards."""
    recorded: Recorded = []
    add, take = recorded.append, stamps.take

    def begin(path: str) -> Callable[..., None]:
        return lambda *_: add((path, True, take()))

    def end(path: str) -> Callable[..., None]:
        return lambda *_: add((path, False, take()))

    with hooked(module, begin, end):
        yield recorded


@dataclass(frozen=True)
class Recording:
    """plain_ns: wall times of inferences without hooks. spans_ns: of as many with hooks. marks: the stamps of these."""

    plain_ns: list[int]
    spans_ns: list[int]
    marks: list[list[SpanMark]]


def record(backend: TimedPass, module: nn.Module, runs: int) -> Recording:
    """`runs` inferences of a warm backend without hooks on `module`, which it calls, and as many with them, in turns.

    Marks are device time on a GPU, the host's on a CPU. On a GPU modules are NVTX ranges as well.
    """
    on_gpu = backend.on_gpu
    stamps: Stamps = EventStamps() if on_gpu else HostStamps()
    marks: list[list[SpanMark]] = []

    def watched(index: int) -> int:
        choose_batch(backend, index)
        with nvtx_ranges(module) if on_gpu else nullcontext(), recording(module, stamps) as recorded:
            span = selected_span(backend)
        marks.append(marks_of(recorded, stamps))
        return span

    watched(0)
    marks.clear()
    plain, spans = spans_in_turns(lambda index: inference_span(backend, index), watched, runs)
    return Recording(plain, spans, marks)


def marks_of(recorded: Recorded, stamps: Stamps) -> list[SpanMark]:
    """The stamps of one run from its first on."""
    first = recorded[0][2]
    return [SpanMark(path, begins, stamps.ns(first, stamp)) for path, begins, stamp in recorded]


def module_rows(module: nn.Module, backend: TimedPass, runs: list[list[SpanMark]]) -> tuple[LayerRow, ...]:
    """One row per module that ran, in the order of their begin. backend: runs the module twice more, to get its results
    and to count."""
    times = mean_times([times_of_run(marks) for marks in runs])
    parts = _parts(module)
    choose_batch(backend, 0)
    made = _results(module, backend.infer)
    choose_batch(backend, 0)
    flops = _flops(module, backend.infer)
    return tuple(_row(path, parts, times, made, flops) for path in times)


def _row(
    path: str,
    parts: Mapping[str, nn.Module],
    times: Mapping[str, PartTimes],
    made: Mapping[str, list[torch.Tensor]],
    flops: Mapping[str, int] | None,
) -> LayerRow:
    above = _ancestors(path)
    ran = [name for name in above if name in times]  # a ModuleList is only a name: it is never called
    tensors = made.get(path, [])
    return LayerRow(
        name=path,
        kind=type(parts[path]).__name__,
        depth=len(ran),
        parent=ran[-1] if ran else None,
        calls=times[path].calls,
        self_ns=times[path].self_ns,
        total_ns=times[path].total_ns,
        flops=None if flops is None else flops.get(path, 0),
        parameters=sum(parameter.numel() for parameter in parts[path].parameters()),
        output_shapes=tuple(tuple(tensor.shape) for tensor in tensors),
        output_bytes=sum(tensor.nbytes for tensor in tensors),
        members=(),
        group=group_of((type(parts[path]).__name__,), _words(path, [parts[name] for name in above])),
    )


def _ancestors(path: str) -> list[str]:
    """Paths of the modules around a module, from the model itself down."""
    names = path.split(".")
    return [] if path == ROOT else [ROOT, *(".".join(names[:depth]) for depth in range(1, len(names)))]


def _words(path: str, above: Sequence[nn.Module]) -> list[str]:
    """The names in a path and the classes of the modules above it, without the model: its class is particular to it."""
    return [*(path.split(".") if path != ROOT else []), *(type(part).__name__ for part in above[1:])]


def _parts(module: nn.Module) -> dict[str, nn.Module]:
    return {path or ROOT: part for path, part in module.named_modules()}


def _results(module: nn.Module, call: Callable[[], Any]) -> dict[str, list[torch.Tensor]]:
    """Path → the tensors that the module returned last."""
    tensors: dict[str, list[torch.Tensor]] = {}

    def keep(path: str) -> Callable[..., None]:
        return lambda _module, _inputs, output: tensors.update({path: _tensors(output)})

    with ExitStack() as hooks:
        for path, part in _parts(module).items():
            hooks.callback(part.register_forward_hook(keep(path)).remove)
        call()
    return tensors


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for value in inner for tensor in _tensors(value)]


def _flops(module: nn.Module, call: Callable[[], Any]) -> dict[str, int] | None:
    """Path → FLOPs of the module and the modules that it calls, 2 per multiply-add. Attention is computed in separate
    products while counting, as the counter does not see into fused kernels (harness/zoo/cost/torch_counts.py). None
    where the module does not run below the counter."""
    counter = FlopCounterMode(display=False)
    try:
        with _outermost(module) as outermost, unfused_attention(), sdpa_kernel(SDPBackend.MATH), counter:
            call()
    except RuntimeError:
        return None
    flops_of: dict[str, int] = {}
    for name, counts in counter.get_flop_counts().items():
        root, _, below = name.partition(".")
        if root in outermost:
            path = outermost[root]
            inner = ".".join(filter(None, ("" if path == ROOT else path, below)))
            flops_of[inner or ROOT] = sum(counts.values())
    return flops_of


@contextmanager
def _outermost(module: nn.Module) -> Iterator[dict[str, str]]:
    """Class → path of the modules that no other module calls: the counter names their content by it. Usually this is
    the model itself; a prefill with an encoder calls the encoder first."""
    paths: dict[str, str] = {}
    entered: list[str] = []
    kinds = {path or ROOT: type(part).__name__ for path, part in module.named_modules()}

    def enter(path: str) -> Callable[..., None]:
        def begin(*_: object) -> None:
            if not entered:
                paths.setdefault(kinds[path], path)
            entered.append(path)

        return begin

    def leave(_path: str) -> Callable[..., None]:
        def end(*_: object) -> None:
            entered.pop()

        return end

    with hooked(module, enter, leave):
        yield paths
