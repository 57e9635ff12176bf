"""One case in one process: load → compile → reference check → warm-up → measure → outputs check → close."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness import parity
from harness.core.schemas import ColdCosts, CpuUse, DeviceSamples, Measurement, Memory, Parity, Placement, SplitSamples
from harness.measure import memory
from harness.measure.clock import now_ns
from harness.measure.cpu_use import CpuWatch
from harness.measure.loop import Timed, WarmUp, measure, warm_up
from harness.measure.modes import Mode

Outputs = Mapping[str, NDArray[np.generic]]

KEPT_OUTPUTS = 8
"""Outputs of timed iterations that are kept for the check after the loop: the latest blocks'."""

KEPT_BYTES = 16 << 20
"""Fewer than that many where they are larger together, one at least: they count as memory of the backend."""


class Session(Protocol):
    """What a session needs of a backend besides what its mode calls (harness.backends.base.Backend has it)."""

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
        """What really ran."""

    def close(self) -> None:
        """Give back what outlives the process."""


@dataclass(frozen=True)
class Measurements:
    """Everything that one process found out about its case."""

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


def run_session(
    backend: Session,
    mode: Mode,
    reference: Callable[[int], Outputs],
    classifier: bool,
    settings: Measurement,
    enter: Callable[[str], None],
    seed: str = "",
) -> Measurements:
    """Measure one case.

    mode: how the backend's batches are run; reference(i): the fp32 outputs for batch i; enter: told the name
    of each phase as it begins, so that a crash can be placed; seed: decides how much longer than asked each block is.
    """
    baseline_rss_bytes = memory.resident_bytes()
    cold = _start_cold(backend, mode, enter)
    enter("reference check")
    before = parity.worst(_check_all(backend, mode, reference, classifier))
    _quiet_collector()
    enter("warm-up")
    watch = CpuWatch()
    warmed = warm_up(mode, settings, watch.time_work)
    enter("measure")
    kept: list[tuple[int, Outputs]] = []

    def after_block(index: int) -> None:
        _keep(kept, index, backend.outputs())
        watch.time_work()

    timed = measure(mode, settings, after_block, warmed.elapsed_ns, random.Random(seed))  # noqa: S311 - no secret
    cpu_use = watch.end()
    peak_rss_bytes = memory.peak_bytes()
    enter("outputs check")
    after = parity.worst(parity.compare(out, reference(index), classifier) for index, out in kept if out)
    placement = backend.placement()
    used = len(timed.samples_ns)
    split, device = mode.split(used), mode.device(used)
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
    )


def _start_cold(backend: Session, mode: Mode, enter: Callable[[str], None]) -> ColdCosts:
    """Load, compile and answer once, each timed: what the first user pays."""
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
    mode.choose(0)
    first_start = now_ns()
    mode.once()
    return ColdCosts(
        load=loaded - start,
        compile=compile_ns,
        compile_cached=cached,
        first_inference=now_ns() - first_start,
    )


def _check_all(backend: Session, mode: Mode, reference: Callable[[int], Outputs], classifier: bool) -> list[Parity]:
    found = []
    for index in range(mode.batches):
        mode.choose(index)
        mode.once()
        outputs = backend.outputs()
        if outputs:
            found.append(parity.compare(outputs, reference(index), classifier))
    return found


def _keep(kept: list[tuple[int, Outputs]], index: int, outputs: Outputs) -> None:
    kept.append((index, outputs))
    while len(kept) > KEPT_OUTPUTS or (len(kept) > 1 and _bytes(kept) > KEPT_BYTES):
        del kept[0]


def _bytes(kept: Sequence[tuple[int, Outputs]]) -> int:
    return sum(array.nbytes for _, outputs in kept for array in outputs.values())


def _quiet_collector() -> None:
    """No garbage collection inside the loop: a collection would land in some sample as an outlier of ours."""
    gc.collect()
    gc.freeze()
    gc.disable()
