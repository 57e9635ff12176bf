"""The measurement of one case in one process, and the choice of the mode that measures it.

Load → compile → first inference → reference check → warm-up → measure → outputs check → repeat check → close.
"""

from __future__ import annotations

import gc
import random
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness.core import schemas
from harness.core.errors import CaseError
from harness.core.padding import Mask
from harness.core.schemas import (
    Boundary,
    Case,
    ColdCosts,
    CpuUse,
    DeviceSamples,
    Measurement,
    Memory,
    OutputsTime,
    Parity,
    Placement,
    Repeats,
    SplitSamples,
    Stops,
)
from harness.statistics import parity
from harness.statistics.parity import Outputs
from harness.timing import clock
from harness.timing.clock import now_ns
from harness.timing.cuda_modes import (
    DeviceOffline,
    DeviceOverlapped,
    DevicePipelined,
    DeviceSync,
    DeviceTransfer,
    OnStream,
)
from harness.timing.loop import (
    Timed,
    WarmUp,
    measure,
    warm_up,
)
from harness.timing.modes import MODES, Mode
from harness.timing.process_counters import (
    CpuAllowance,
    CpuWatch,
    StopCounter,
    caller_wait_ns,
    cpu_waits_ns,
    peak_bytes,
    resident_bytes,
    waited_between_ns,
)
from harness.timing.repeat_check import (
    LEAST_PAIRS,
    NewBatches,
    Rewritable,
    answer_digest,
    check_repeats,
    new_distances,
)
from harness.timing.rotation import batches_to_check

KEPT_OUTPUTS = 8
"""Number of outputs that are kept for the check after the loop: those of the latest timed blocks."""

KEPT_BYTES = 16 << 20
"""Fewer outputs than KEPT_OUTPUTS are kept, but at least one, where they are larger together: they count as memory of
the backend."""


class Session(Protocol):
    """The part of a backend that a session needs besides its mode's part (harness.backends.base.Backend has it)."""

    compiles: bool

    def load(self) -> None:
        """Load artifacts."""

    def compile(self) -> None:
        """Compile for the case's shapes."""

    def compile_cached(self) -> bool | None:
        """Whether compile() finds earlier work."""

    def outputs(self) -> dict[str, NDArray[np.generic]]:
        """Outputs of the last infer()."""

    def placement(self) -> Placement:
        """Device, precision and settings that really ran."""

    def close(self) -> None:
        """Release resources that would outlive the process."""


TimedPart = Callable[[Mode, Measurement, Callable[[int], None], int, random.Random], Timed]
"""(mode, settings, called after each block with the index of its last input, duration of the warm-up in ns, chance) →
the timed samples. `measure` of loop.py is one."""


@dataclass(frozen=True)
class Measurements:
    """All measurements of one process about its case."""

    warm_up: WarmUp
    timed: Timed
    split: SplitSamples | None
    device: DeviceSamples | None
    parity_before: Parity | None
    parity_timed: Parity | None
    placement: Placement
    memory: Memory
    cold_ns: ColdCosts
    cpu_use: CpuUse
    repeats: Repeats | None
    outputs_time: OutputsTime | None
    stops: Stops | None
    inputs_changed: bool


class KeptOutputs:
    """Outputs of timed iterations for the check after the loop, and how long the backend took to return them."""

    def __init__(self, outputs: Callable[[], Outputs]) -> None:
        self.latest: list[tuple[int, Outputs]] = []
        self.outputs_ns: list[int] = []
        self.waited_ns: list[int] = []
        self._outputs = outputs

    def take(self, index: int) -> None:
        """Keep the outputs of the last inference, on batch `index`."""
        waited, start = caller_wait_ns(), now_ns()
        # A copy, within the time: arrays may be filled, or written to again, after the backend has returned them.
        outputs = {name: np.array(values) for name, values in (self._outputs() or {}).items()}
        self.outputs_ns.append(now_ns() - start)
        if waited is not None:
            self.waited_ns.append((caller_wait_ns() or waited) - waited)
        self.latest.append((index, outputs))
        while len(self.latest) > KEPT_OUTPUTS or (len(self.latest) > 1 and self._bytes() > KEPT_BYTES):
            del self.latest[0]

    def time(self) -> OutputsTime | None:
        """Times of outputs() and of copying the same arrays; None where there are none.

        To be called after the loop and after reading the peak memory: earlier copies would count as the backend's.
        """
        arrays = max((len(outputs) for _, outputs in self.latest), default=0)
        if not arrays:
            return None
        copy_ns = []
        for _, outputs in self.latest:
            start = now_ns()
            _ = [np.copy(values) for values in outputs.values()]
            copy_ns.append(now_ns() - start)
        return OutputsTime(
            outputs_ns=tuple(self.outputs_ns), copy_ns=tuple(copy_ns), arrays=arrays, waited_ns=tuple(self.waited_ns)
        )

    def _bytes(self) -> int:
        return sum(values.nbytes for _, outputs in self.latest for values in outputs.values())


def run_session(
    backend: Session,
    mode: Mode,
    reference: Callable[[int], Outputs],
    classifier: bool,
    settings: Measurement,
    enter: Callable[[str], None],
    inputs: Sequence[Outputs] = (),
    seed: Sequence[int] = (0,),
    round_number: int = 1,
    timed_part: TimedPart = measure,
    constructed_ns: int = 0,
    masks: Sequence[Mask | None] = (),
    new: Callable[[], NewBatches] | str | None = None,
) -> Measurements:
    """Measure one case.

    mode: how the backend's batches are run. reference(i): the fp32 outputs for batch i. enter: called with the name of
    each phase when it begins, so that a crash can be assigned to a phase. inputs: the arrays of the batches, which the
    repeat check overwrites. seed: decides by how much each block is longer than asked, and the new inputs of the repeat
    check; different for each process. round_number: from 1; decides which batches are compared before timing.
    timed_part: runs and times the blocks. constructed_ns: time to make the backend's object, a part of loading. masks:
    of padded batches, the tokens that are compared; empty where all are. new: as in BatchSet.
    """
    stops, given = StopCounter(enter), CpuAllowance.now()
    enter = stops.enter
    baseline_rss_bytes = resident_bytes()
    contents = _contents(inputs)
    cold = _start_cold(backend, mode, enter, constructed_ns)
    enter("reference check")
    checked = batches_to_check(mode.batches, round_number)
    before, known = compare_answers(_answers(backend, mode, reference, checked, masks), classifier)
    disable_garbage_collection()
    enter("warm-up")
    watch = CpuWatch(given=given)
    warmed = warm_up(mode, settings, watch.time_work)
    enter("measure")
    kept = KeptOutputs(backend.outputs)

    def after_block(index: int) -> None:
        kept.take(index)
        watch.time_work()

    # Not for security: the last input must only differ between blocks.
    random_lengths = random.Random("/".join(map(str, seed)))  # noqa: S311
    timed = timed_part(mode, settings, after_block, warmed.elapsed_ns, random_lengths)
    cpu_use = watch.end()
    peak_rss_bytes = peak_bytes()
    enter("outputs check")
    outputs_time = kept.time()
    after = parity.worst(
        parity.compare(out, expected, classifier, _mask(masks, index))
        for index, out in kept.latest
        if (expected := reference(index))
    )
    placement = backend.placement()
    if not isinstance(placement, Placement):
        raise CaseError(
            f"placement() gave {type(placement).__name__} and no Placement.",
            "Mend the backend: docs/plugins.md has its calls.",
        )
    used = len(timed.samples_ns)
    split, device = mode.split_samples(used), mode.device_samples(used)
    inputs_changed = _contents(inputs) != contents
    repeats = None
    if after is not None:
        enter("repeat check")
        # Last of all: it may change nothing that was measured or read before.
        runs = mode.rewritable(inputs)
        repeats = run_repeat_check(runs, reference, seed, known)
        repeats = with_new_samples(repeats, runs, new, round_number, masks)
    stopped = stops.end()
    backend.close()
    return Measurements(
        warm_up=warmed,
        timed=timed,
        split=split,
        device=device,
        parity_before=before,
        parity_timed=after,
        placement=placement,
        memory=Memory(peak_rss_bytes=peak_rss_bytes, baseline_rss_bytes=baseline_rss_bytes),
        cold_ns=cold,
        cpu_use=cpu_use,
        repeats=repeats,
        outputs_time=outputs_time,
        stops=stopped,
        inputs_changed=inputs_changed,
    )


def run_repeat_check(
    runs: Rewritable,
    reference: Callable[[int], Outputs],
    seed: Sequence[int],
    known: Collection[bytes],
    least: int = LEAST_PAIRS,
) -> Repeats:
    """The repeat check, and for how long it waited for a CPU."""
    before, began = cpu_waits_ns(), clock.now_ns()
    repeats = check_repeats(runs, reference, seed, least, known)
    waited, wall_ns = waited_between_ns(before, cpu_waits_ns()), clock.now_ns() - began
    share = waited / wall_ns if waited is not None and wall_ns else None
    return repeats.model_copy(update={"waited_share": share})


def with_new_samples(
    repeats: Repeats,
    runs: Rewritable,
    new: Callable[[], NewBatches] | str | None,
    round_number: int,
    masks: Sequence[Mask | None],
) -> Repeats:
    """The repeat check with the distances of the answers to new samples. Arguments as of run_session."""
    if new is None or isinstance(new, str):
        return repeats.model_copy(update={"new_missing": new})
    try:
        distances = new_distances(runs, new(), round_number, masks)
    except Exception as error:  # it must not lose the earlier measurements
        missing = f"a pass on a new sample failed: {type(error).__name__}: {str(error)[:200]}"
        return repeats.model_copy(update={"new_missing": missing})
    no_floats = None if distances else "no output has floats for each sample"
    return repeats.model_copy(update={"new_l2": distances, "new_missing": no_floats})


def _contents(batches: Sequence[Outputs]) -> list[int]:
    """A checksum of each array. Not for security: a pass that writes into its input changes it all the same."""
    return [
        zlib.crc32(np.ascontiguousarray(values).view(np.uint8).data) if values.size and values.dtype.kind != "O" else 0
        for batch in batches
        for values in batch.values()
    ]


def _start_cold(backend: Session, mode: Mode, enter: Callable[[str], None], constructed_ns: int) -> ColdCosts:
    """Load, compile and answer once, each timed: the cold start."""
    enter("load")
    start = now_ns()
    backend.load()
    loaded = now_ns()
    cached, compile_ns = None, None
    if backend.compiles:
        enter("compile")
        cached = backend.compile_cached()
        compile_start = now_ns()
        backend.compile()
        compile_ns = now_ns() - compile_start
    enter("first inference")
    mode.select_batch(0)
    first_start = now_ns()
    mode.run_once()
    return ColdCosts(
        load=constructed_ns + loaded - start,
        compile=compile_ns,
        compile_cached=cached,
        first_inference=now_ns() - first_start,
    )


def _answers(
    backend: Session,
    mode: Mode,
    reference: Callable[[int], Outputs],
    batches: Iterable[int],
    masks: Sequence[Mask | None],
) -> Iterator[tuple[Outputs, Outputs, Mask | None]]:
    """Outputs, reference and mask of each batch that has a reference: a backend without one computes nothing."""
    for index in batches:
        mode.select_batch(index)
        mode.run_once()
        if expected := reference(index):
            yield backend.outputs() or {}, expected, _mask(masks, index)


def compare_answers(
    answers: Iterable[tuple[Outputs, Outputs, Mask | None]], classifier: bool
) -> tuple[Parity | None, frozenset[bytes]]:
    """The worst comparison of outputs with their reference; and the digests of the outputs for the repeat check, none
    where two answers are the same. No outputs beside a reference are wrong outputs."""
    parities, digests = [], []
    for outputs, expected, mask in answers:
        parities.append(parity.compare(outputs, expected, classifier, mask))
        digests.append(answer_digest(outputs))
    different = frozenset(filter(None, digests))
    return parity.worst(parities), different if len(different) == len(digests) else frozenset()


def _mask(masks: Sequence[Mask | None], index: int) -> Mask | None:
    return masks[index] if masks else None


def disable_garbage_collection() -> None:
    """No garbage collection inside the loop: it would make a sample an outlier that the harness caused."""
    gc.collect()
    gc.freeze()
    gc.disable()


MakeMode = Callable[[OnStream, int], Mode]

DEVICE_MODES: Mapping[tuple[Boundary, schemas.ModeName], MakeMode] = {
    ("compute", "sync"): DeviceSync,
    ("compute", "pipelined"): DevicePipelined,
    ("compute", "offline"): DeviceOffline,
    ("transfer", "sync"): DeviceTransfer,
    ("transfer", "pipelined"): DeviceOverlapped,
}
"""Modes on a GPU."""


def mode_for(case: Case, backend: OnStream, batches: int) -> Mode:
    """The mode of a case whose samples start from arrays: every boundary except e2e (end_to_end.py).

    `batches`: number of different input batches. The backend need not be loaded yet. CaseError for a combination that
    is not measured.
    """
    if case.device == "cpu":
        return MODES[case.mode](backend, batches)
    try:
        make = DEVICE_MODES[case.boundary, case.mode]
    except KeyError:
        raise CaseError(
            f"The {case.boundary} boundary is not measured in {case.mode} mode on a GPU.",
            "Leave the combination out of the configuration and run `make plan` again.",
        ) from None
    return make(backend, batches)
