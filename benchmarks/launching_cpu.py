"""Why does one process of PyTorch eager launch its kernels slower than the next: CPU, process, or memory layout?

    python -m benchmarks.launching_cpu [--device cuda] [--out FILE.json]

Runs ResNet-50 with random weights at batch 1 in several processes. Each process times some passes on each CPU that it
may use, pinned to it, in a random order, twice; and some without pinning. Half of the processes run without address
space randomisation (`setarch --addr-no-randomize`) and with a fixed hash seed, so that objects and code lie at the same
addresses in each of them.

Printed: the medians by process, pinned and unpinned; the scatter between processes, between CPUs within a process, and
between the two sweeps of one CPU; a fixed piece of arithmetic on each CPU, which shows its clock.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FIX_LAYOUT = ("setarch", "--addr-no-randomize")
PASSES = 30
SWEEPS = 2
WARM_UP = 100


@dataclass(frozen=True)
class Sweep:
    """One process: medians of PASSES passes in microseconds and of the fixed piece of work in nanoseconds."""

    fixed_layout: bool
    unpinned_us: tuple[float, ...]
    unpinned_cpus: int
    """CPUs that the unpinned process ran on, read after each pass."""
    pinned_us: dict[int, tuple[float, ...]]
    work_ns: dict[int, float]


@dataclass(frozen=True)
class Parts:
    """Standard deviations of the logarithms, as shares: 0.1 is about 10%."""

    processes: float
    cpus: float
    repeats: float


def parts(sweeps: Sequence[Sweep]) -> Parts:
    """Scatter between processes (their medians), between the CPUs of a process, and between two sweeps of one CPU."""
    logs = [{cpu: [math.log(us) for us in values] for cpu, values in entry.pinned_us.items()} for entry in sweeps]
    of_cpus = [{cpu: statistics.mean(values) for cpu, values in entry.items()} for entry in logs]
    return Parts(
        processes=_scatter([statistics.median(entry.values()) for entry in of_cpus]),
        cpus=_root_mean_square([_scatter(list(entry.values())) for entry in of_cpus]),
        repeats=_root_mean_square([_scatter(values) for entry in logs for values in entry.values()]),
    )


def _scatter(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else math.nan


def _root_mean_square(values: Sequence[float]) -> float:
    return math.sqrt(statistics.mean(value * value for value in values))


def sweep(device: str, fixed_layout: bool) -> Sweep:
    """The measurement of this process."""
    import torch  # noqa: PLC0415 - in the measuring process only
    import torchvision  # noqa: PLC0415

    from harness.timing.clock import now_ns, work_ns  # noqa: PLC0415

    kind = torch.float16 if device == "cuda" else torch.float32
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    module = torchvision.models.resnet50(weights=None).eval().to(device, kind, memory_format=torch.channels_last)
    picture = torch.rand(1, 3, 224, 224).to(device, kind, memory_format=torch.channels_last)
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def passes(count: int) -> tuple[float, set[int]]:
        times, used = [], set()
        for _ in range(count):
            start = now_ns()
            module(picture)
            wait()  # type: ignore[no-untyped-call]
            times.append((now_ns() - start) / 1e3)
            used.add(_cpu())
        return statistics.median(times), used

    allowed = sorted(os.sched_getaffinity(0))
    with torch.inference_mode():
        passes(WARM_UP)
        unpinned, seen = [], set[int]()
        for _ in range(4):
            median, used = passes(PASSES)
            unpinned.append(median)
            seen |= used
        pinned: dict[int, list[float]] = {cpu: [] for cpu in allowed}
        work: dict[int, list[int]] = {cpu: [] for cpu in allowed}
        for _ in range(SWEEPS):
            order = allowed[:]
            random.shuffle(order)
            for cpu in order:
                os.sched_setaffinity(0, {cpu})
                passes(3)
                pinned[cpu].append(passes(PASSES)[0])
                work[cpu].append(min(work_ns() for _ in range(20)))
        os.sched_setaffinity(0, allowed)
    return Sweep(
        fixed_layout=fixed_layout,
        unpinned_us=tuple(unpinned),
        unpinned_cpus=len(seen),
        pinned_us={cpu: tuple(values) for cpu, values in pinned.items()},
        work_ns={cpu: min(values) for cpu, values in work.items()},
    )


def _cpu() -> int:
    """The CPU that this thread ran on last (field 39 of proc_pid_stat)."""
    return int(Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[36])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--processes", type=int, default=6, help="of each kind of layout")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", choices=("random", "fixed"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(asdict(sweep(options.device, options.child == "fixed"))))
        return
    result = []
    kinds = (False, True) if _can_fix_layout() else (False,)
    for number in range(len(kinds) * options.processes):
        fixed = kinds[number % len(kinds)]
        result.append(_child(options.device, fixed))
        print(_line(result[-1]), flush=True)
        if options.out:
            options.out.write_text(json.dumps([asdict(entry) for entry in result]))
    for fixed in kinds:
        of_kind = [entry for entry in result if entry.fixed_layout == fixed]
        spread = parts(of_kind)
        print(
            f"{'fixed' if fixed else 'random'} layout, {len(of_kind)} processes: scatter between processes "
            f"{spread.processes:.1%}, between CPUs {spread.cpus:.1%}, between sweeps of one CPU {spread.repeats:.1%}"
        )


def _can_fix_layout() -> bool:
    """Whether this machine lets a process switch off address space randomisation."""
    if shutil.which(FIX_LAYOUT[0]) and subprocess.run([*FIX_LAYOUT, "true"], check=False).returncode == 0:
        return True
    print("Address space randomisation cannot be switched off here: processes with a random layout only.")
    return False


def _child(device: str, fixed: bool) -> Sweep:
    command = [sys.executable, "-m", "benchmarks.launching_cpu", "--device", device]
    environment = dict(os.environ)
    if fixed:
        command = [*FIX_LAYOUT, *command]
        environment["PYTHONHASHSEED"] = "0"
    command += ["--child", "fixed" if fixed else "random"]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    values = json.loads(ended.stdout.splitlines()[-1])
    return Sweep(
        values["fixed_layout"],
        tuple(values["unpinned_us"]),
        values["unpinned_cpus"],
        {int(cpu): tuple(times) for cpu, times in values["pinned_us"].items()},
        {int(cpu): time for cpu, time in values["work_ns"].items()},
    )


def _line(entry: Sweep) -> str:
    medians = [statistics.median(values) for values in entry.pinned_us.values()]
    works = entry.work_ns.values()
    return (
        f"{'fixed' if entry.fixed_layout else 'random'} layout: "
        f"unpinned {statistics.median(entry.unpinned_us):,.0f} µs on {entry.unpinned_cpus} CPUs; "
        f"pinned {min(medians):,.0f} to {max(medians):,.0f} µs, median {statistics.median(medians):,.0f}; "
        f"fixed work {min(works) / 1e3:.2f} to {max(works) / 1e3:.2f} µs"
    )


if __name__ == "__main__":
    main()
