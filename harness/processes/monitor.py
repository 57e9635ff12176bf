"""monitor: a process of its own that watches the machine while cases are measured. Started by `run`, one per run.

`profile_ops` starts one for each process that it times.

It sleeps between samples. At each sample it reads a few kernel counters, and on a GPU the values of NVML. Every record
has its overhead.

reads   messages, one JSON line each, from standard input; kernel counters; NVML
writes  a line to standard output when it can see; results/raw/<case_id>/<round>.usage.json, or of a profile
        results/profiles/<case_id>/<repeat>.usage.json
"""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.aggregation.usage import JUDGED_PHASES, TIMED_PHASE
from harness.core import cli, store
from harness.core.errors import InferometerError, UnavailableError
from harness.core.host.gpu import GpuHandle, first_gpu
from harness.core.host.orphans import die_with_parent, started_ticks
from harness.core.layout import Results
from harness.core.protocol import (
    MESSAGE,
    End,
    Phase,
    Watch,
)
from harness.core.schemas import BusyProcess, Device, Usage, UsageSample
from harness.monitoring.cpu_probe import (
    Probe,
    ProcessCpu,
    Reading,
    busiest,
    sample,
)
from harness.monitoring.gpu_probe import GpuProbe
from harness.timing.clock import now_ns

DEFAULT_INTERVAL_S = 0.25
"""Four samples per second show any disturbance as long as a block. Each record has their overhead."""


@dataclass(frozen=True)
class View:
    """The GPU that a monitor reads besides the process, and the interval.

    gpu: the GPU that the cases run on. blind: why it cannot be read although the cases run on a GPU.
    """

    interval_s: float = DEFAULT_INTERVAL_S
    gpu: GpuHandle | None = None
    blind: str | None = None

    @classmethod
    def on(cls, device: Device, interval_s: float) -> View:
        """The view for a device. Call it before the first case: starting the driver later would load that case."""
        if device != "cuda":
            return cls(interval_s)
        try:
            return cls(interval_s, first_gpu())
        except UnavailableError as error:
            cli.warn(error.problem)
            return cls(interval_s, blind=error.problem.removesuffix("."))


@dataclass
class WatchedProcess:
    """The process of one case and its samples so far."""

    message: Watch
    probe: Probe
    first: Reading
    before: Reading
    gpu: GpuProbe | None = None
    gpu_memory_before_bytes: int | None = None
    phase: str = "start"
    pss_peak_bytes: int | None = None
    samples: list[UsageSample] = field(default_factory=list)
    others: Mapping[int, ProcessCpu] = field(default_factory=dict)
    others_at_ns: int = 0
    busiest: tuple[BusyProcess, ...] = ()
    started_ticks: int | None = None

    @classmethod
    def begin(cls, message: Watch, handle: GpuHandle | None = None) -> WatchedProcess:
        """Take the first reading. Raises psutil.NoSuchProcess where the process has ended."""
        gpu = None if handle is None else GpuProbe(handle)
        # First: the process was forked a moment ago and will soon allocate memory on the GPU.
        gpu_memory_before_bytes = None if gpu is None else gpu.memory_used_bytes()
        probe = Probe(message.pid)
        reading = probe.read(now_ns())
        started = started_ticks(message.pid)
        return cls(message, probe, reading, reading, gpu, gpu_memory_before_bytes, started_ticks=started)

    def look(self) -> None:
        """Add a sample of the time since the last sample. Raises psutil.NoSuchProcess where the process has ended."""
        self._add(self.phase)
        if self.gpu is not None:
            # A GPU reports its state now, not since the last sample. So a reading belongs to the phase in which it is
            # taken, and samples that close a phase have none. It may last milliseconds, which the next sample covers.
            seen = self.gpu.read(self.message.pid)
            self.samples[-1] = self.samples[-1].model_copy(update={"gpu": seen})

    def enter(self, phase: str) -> None:
        """Close the sample of the old phase, so that no sample belongs to two."""
        ended, self.phase = self.phase, phase
        # The process may have ended before this message was read.
        with contextlib.suppress(psutil.NoSuchProcess):
            self._add(ended)
            if phase in JUDGED_PHASES and ended not in JUDGED_PHASES:
                self.others, self.others_at_ns = self.probe.others(), self.before.at_ns
            if ended == TIMED_PHASE:
                # All processes are read twice, at the start and end of the judged phases. More would cost too much.
                self.busiest = busiest(self.others, self.probe.others(), (self.before.at_ns - self.others_at_ns) / 1e9)
                # Not earlier: reading it locks the memory map, which would slow load and compile.
                self.pss_peak_bytes = self.probe.pss_bytes()

    def record(self, view: View) -> Usage:
        """All samples as a record."""
        unavailable = dict(self.probe.unavailable)
        if view.blind is not None:
            unavailable["gpu"] = view.blind
        if self.gpu is not None:
            unavailable |= self.gpu.unavailable
        return Usage(
            case_id=self.message.case_id,
            round=self.message.round,
            settings_id=self.message.settings_id,
            interval_ns=int(view.interval_s * 1e9),
            samples=tuple(self.samples),
            pss_peak_bytes=self.pss_peak_bytes,
            gpu_memory_before_bytes=self.gpu_memory_before_bytes,
            busiest=self.busiest,
            unavailable=unavailable,
            started_ticks=self.started_ticks,
            monitor_cpu_ns=int((self.before.monitor_s - self.first.monitor_s) * 1e9),
            watched_ns=self.before.at_ns - self.first.at_ns,
        )

    def _add(self, phase: str) -> None:
        now = self.probe.read(now_ns())
        self.samples.append(sample(self.before, now, phase, self.first.at_ns))
        self.before = now


def stage(arguments: Sequence[str]) -> None:
    """Watch the processes that standard input names, until it ends."""
    parser = cli.parser("harness.processes.monitor", __doc__)
    parser.add_argument("--interval", type=float, default=DEFAULT_INTERVAL_S, help="seconds between samples")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="what the cases run on")
    options = parser.parse_args(arguments)
    die_with_parent()
    view = View.on(options.device, options.interval)
    cli.say("ready")
    watched: WatchedProcess | None = None
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            ready = selector.select(None if watched is None else view.interval_s)
            if not ready and watched is not None:
                # The process may have ended between two samples; the record is written at the message End.
                with contextlib.suppress(psutil.NoSuchProcess):
                    watched.look()
                continue
            chunk = os.read(sys.stdin.fileno(), 65536)
            if not chunk:
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                watched = obey(line, watched, view)


def obey(line: bytes, watched: WatchedProcess | None, view: View) -> WatchedProcess | None:
    """The process that is watched after one message; None where there is none. The record of an ended one is saved."""
    message = MESSAGE.validate_json(line)
    if isinstance(message, Watch):
        try:
            return WatchedProcess.begin(message, view.gpu)
        except psutil.NoSuchProcess:
            return None
    if watched is None:
        return None
    if isinstance(message, Phase):
        watched.enter(message.phase)
        return watched
    if isinstance(message, End):
        watch = watched.message
        place = Results(Path(watch.results)).usage_file(watch.case_id, watch.round)
        path = place if watch.record is None else Path(watch.record)
        try:
            store.save(path, watched.record(view), indent=None)
        except InferometerError as error:
            cli.warn(error.problem)
    return None


if __name__ == "__main__":
    cli.main(stage)
