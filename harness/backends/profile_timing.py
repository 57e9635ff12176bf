"""Times of profiled passes: with and without a profiler, mixed, and of nested parts from the marks of hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.core.schemas.profile_record import LayerRow, PartsProfile
from harness.profiling.launch_gaps import Span, save_trace, spans_back_to_back
from harness.profiling.reconcile import middle_mean
from harness.timing.clock import now_ns

ROOT = "(model)"
"""The model itself, whose own path is empty."""


@dataclass(frozen=True)
class SpanMark:
    """A part begins or ends. at_ns: on any clock; a part inside another part ends before it."""

    part: str
    begins: bool
    at_ns: int


@dataclass(frozen=True)
class PartTimes:
    """Times of one part: calls per run, time in it and in the parts that it calls, and time in it alone, in ns."""

    calls: float
    total_ns: int
    self_ns: int


_NONE = PartTimes(0, 0, 0)


def times_of_run(marks: Iterable[SpanMark]) -> dict[str, PartTimes]:
    """Part → its times in one run, in the order in which parts first began.

    A part that runs inside itself, as a module that calls itself, counts its inner time once as its own and twice in
    total. ValueError where marks do not nest.
    """
    times_of: dict[str, PartTimes] = {}
    open_parts: list[list[int]] = []
    names: list[str] = []
    for mark in marks:
        if mark.begins:
            names.append(mark.part)
            open_parts.append([mark.at_ns, 0])
            times_of.setdefault(mark.part, _NONE)
            continue
        if not names or names[-1] != mark.part:
            raise ValueError(f"{mark.part} ends while {names[-1] if names else 'nothing'} runs")
        names.pop()
        began, inside = open_parts.pop()
        total, before = mark.at_ns - began, times_of[mark.part]
        times_of[mark.part] = PartTimes(before.calls + 1, before.total_ns + total, before.self_ns + total - inside)
        if open_parts:
            open_parts[-1][1] += total
    if names:
        raise ValueError(f"{names[-1]} never ends")
    return times_of


def mean_times(runs: Sequence[Mapping[str, PartTimes]]) -> dict[str, PartTimes]:
    """Part → its mean times over runs, 0 in a run without the part. Self times add up to the whole."""
    parts = dict.fromkeys(part for run in runs for part in run)
    return {part: _mean([run.get(part, _NONE) for run in runs]) for part in parts}


def _mean(times: Sequence[PartTimes]) -> PartTimes:
    return PartTimes(
        calls=sum(time.calls for time in times) / len(times),
        total_ns=round(sum(time.total_ns for time in times) / len(times)),
        self_ns=round(sum(time.self_ns for time in times) / len(times)),
    )


def spans_of_run(marks: Iterable[SpanMark]) -> list[Span]:
    """The marks of one run, which nest, as spans of a trace that starts with the first mark."""
    spans: list[Span] = []
    opened: list[SpanMark] = []
    for mark in marks:
        if mark.begins:
            opened.append(mark)
        else:
            begin = opened.pop()
            spans.append(Span(mark.part, "module", begin.at_ns, mark.at_ns - begin.at_ns))
    return sorted(spans, key=lambda span: (span.start_ns, -span.duration_ns))


def profile_of_layers(
    case_id: str, layers: tuple[LayerRow, ...], trace: Path, window_ns: int, plain_ns: int, notes: tuple[str, ...]
) -> PartsProfile:
    """A profile of layers whose start times are unknown. trace: written, with the layers one after the other."""
    save_trace(trace, case_id, spans_back_to_back((row.name, row.kind, row.self_ns) for row in layers))
    return PartsProfile(
        layers=layers, operators=(), traces=(trace.name,), window_ns=window_ns, plain_ns=plain_ns, notes=notes
    )


WARM_UP_RUNS = 5

Listener = Callable[[str], None]
"""Called with the phase that a profiled process has reached."""

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Report each phase that begins from now on: compiler processes of the case itself are no disturbance."""
    _listeners.append(listener)


def entered(phase: str) -> None:
    """A phase of a session begins."""
    for listener in _listeners:
        listener(phase)


class TimedPass(Protocol):
    """A pass that is timed with and without a profiler: a Backend, or one phase of a decoder (`DecoderPhase`)."""

    @property
    def inputs(self) -> int:
        """Number of batches that select() knows."""

    @property
    def on_gpu(self) -> bool:
        """Whether passes run on a GPU; known after load()."""

    def load(self) -> None:
        """Load the model."""

    def compile(self) -> None:
        """Compile."""

    def alone(self, passes: int) -> int:
        """Prepare up to `passes` passes with no other work between them; returns their number."""

    def select(self, index: int) -> None:
        """Prepare one pass, outside the clock."""

    def infer(self) -> None:
        """Enqueue the pass."""

    def synchronize(self) -> None:
        """Wait for it."""

    def outputs(self) -> Any:
        """Its results on the host."""

    def close(self) -> None:
        """Release resources."""


def inference_span(backend: TimedPass, index: int) -> int:
    """Wall time in ns of one inference of batch `index`, counted round and round, until the device is done."""
    choose_batch(backend, index)
    return selected_span(backend)


def choose_batch(backend: TimedPass, index: int) -> None:
    """Select batch `index`, counted round and round, for selected_span()."""
    backend.select(index % backend.inputs)


def selected_span(backend: TimedPass) -> int:
    """Wall time in ns of one inference of the selected batch. Profilers start after choose_batch()."""
    begin = now_ns()
    backend.infer()
    backend.synchronize()
    return now_ns() - begin


def load_and_warm_up(backend: TimedPass) -> None:
    """Load, compile, warm up; the inferences after that are timed."""
    entered("load")
    backend.load()
    entered("compile")
    backend.compile()
    entered("warm-up")
    warm_up(backend)
    entered("measure")


def warm_up(backend: TimedPass) -> None:
    """Some inferences without timing, and their answers, which are checked before any inference is timed."""
    for index in range(WARM_UP_RUNS):
        inference_span(backend, index)
        backend.outputs()


def plain_ns(backend: TimedPass, runs: int) -> int:
    """The typical wall time of one inference in ns."""
    return middle_mean([inference_span(backend, index) for index in range(runs)])


def spans_alone(backend: TimedPass, runs: int) -> list[int]:
    """Wall times in ns of `runs` inferences of a backend that is made ready for them and closed after.

    For libraries with threads of their own: the threads of a second session would spin beside the timed ones.
    """
    load_and_warm_up(backend)
    spans = [inference_span(backend, index) for index in range(runs)]
    backend.close()
    return spans


def spans_in_turns(
    plain: Callable[[int], int], watched: Callable[[int], int], runs: int
) -> tuple[list[int], list[int]]:
    """Wall times in ns of `runs` inferences without a profiler, and of as many with it, of the same session."""
    spans = [(plain(index), watched(index)) for index in range(runs)]
    return [without for without, _ in spans], [with_it for _, with_it in spans]
