"""monitor: a process of its own that watches the machine while cases are measured. Started by `run`, one per run.

It sleeps between samples and reads a few kernel counters at each; what it costs stands in every record.

reads   messages, one JSON line each, from standard input; kernel counters
writes  results/raw/<case_id>/<round>.usage.json
"""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.core import cli, store
from harness.core.errors import InferometerError
from harness.core.layout import Results
from harness.core.orphans import die_with_parent
from harness.core.schemas import Usage, UsageSample
from harness.core.watching import MESSAGE, End, Phase, Watch
from harness.measure.clock import now_ns
from harness.measure.usage import Probe, Reading, sample
from harness.measure.utilisation import TIMED_PHASE

DEFAULT_INTERVAL_S = 0.25
"""Four samples a second see any disturbance of a block's length; what they cost stands in each record."""


@dataclass
class Watched:
    """One case's process and what was seen of it so far."""

    message: Watch
    probe: Probe
    first: Reading
    before: Reading
    phase: str = "start"
    pss_peak_bytes: int | None = None
    samples: list[UsageSample] = field(default_factory=list)

    @classmethod
    def begin(cls, message: Watch) -> Watched:
        """Take the first reading. Raises psutil.NoSuchProcess when the process is gone already."""
        probe = Probe(message.pid)
        reading = probe.read(now_ns())
        return cls(message, probe, reading, reading)

    def look(self, phase: str | None = None) -> None:
        """Add a sample of what happened since the last one. Raises psutil.NoSuchProcess when the process is gone."""
        now = self.probe.read(now_ns())
        self.samples.append(sample(self.before, now, phase or self.phase, self.first.at_ns))
        self.before = now

    def enter(self, phase: str) -> None:
        """Close the sample of the old phase, so that no sample belongs to two."""
        ended, self.phase = self.phase, phase
        # The process may have gone through its last phases before we came to read about them.
        with contextlib.suppress(psutil.NoSuchProcess):
            self.look(ended)
            if ended == TIMED_PHASE:
                # Not earlier: reading it holds the memory map, which would lengthen load and compile.
                self.pss_peak_bytes = self.probe.pss_bytes()

    def record(self, interval_s: float) -> Usage:
        """Everything that was seen."""
        return Usage(
            case_id=self.message.case_id,
            round=self.message.round,
            plan_id=self.message.plan_id,
            interval_ns=int(interval_s * 1e9),
            samples=tuple(self.samples),
            pss_peak_bytes=self.pss_peak_bytes,
            unavailable=self.probe.unavailable,
            monitor_cpu_ns=int((self.before.monitor_s - self.first.monitor_s) * 1e9),
            watched_ns=self.before.at_ns - self.first.at_ns,
        )


def stage(arguments: Sequence[str]) -> None:
    """Watch whatever standard input names, until it ends."""
    parser = cli.parser("harness.monitor", __doc__)
    parser.add_argument("--interval", type=float, default=DEFAULT_INTERVAL_S, help="seconds between samples")
    options = parser.parse_args(arguments)
    die_with_parent()
    watched: Watched | None = None
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            ready = selector.select(None if watched is None else options.interval)
            if not ready and watched is not None:
                # The process may have ended between two samples; what was seen is written when run says so.
                with contextlib.suppress(psutil.NoSuchProcess):
                    watched.look()
                continue
            chunk = os.read(sys.stdin.fileno(), 65536)
            if not chunk:
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                watched = _obey(line, watched, options.interval)


def _obey(line: bytes, watched: Watched | None, interval_s: float) -> Watched | None:
    message = MESSAGE.validate_json(line)
    if isinstance(message, Watch):
        try:
            return Watched.begin(message)
        except psutil.NoSuchProcess:
            return None
    if watched is None:
        return None
    if isinstance(message, Phase):
        watched.enter(message.phase)
        return watched
    if isinstance(message, End):
        place = Results(Path(watched.message.results))
        path = place.usage_file(watched.message.case_id, watched.message.round)
        try:
            store.save(path, watched.record(interval_s), indent=None)
        except InferometerError as error:
            cli.warn(error.problem)
    return None


if __name__ == "__main__":
    cli.main(stage)
