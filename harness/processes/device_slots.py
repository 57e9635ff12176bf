"""The devices of one host that work at the same time: GPUs, or shares of the CPUs, each with CPUs of its own.

Shares of the CPUs are for a plan for CPUs. They need no GPU, so the same code runs and is tested on any machine; their
records name the device, so no figure of a CPU is labelled as one of a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.core.errors import UnavailableError, UsageError
from harness.core.host import gpu, limits
from harness.core.schemas import Device, DeviceSlot
from harness.core.text import one_line

EVERY = "all"
"""Value of CARDS for every GPU, or every NUMA node of a plan for CPUs."""

MIN_CPUS = 2
"""Beside a GPU: one CPU submits work to it; the monitor and the stage itself need another."""

_NODES = Path("/sys/devices/system/node")

_ASK = (
    "import json, os; from harness.core.host import gpu; handle = gpu.first_gpu(); facts = gpu.facts_of(handle); "
    "near = gpu.near_cpus(handle, os.cpu_count() or 1); "
    "print(json.dumps([facts.name, facts.uuid, near if isinstance(near, tuple) else None]))"
)

Described = tuple[str, str, tuple[int, ...] | None]
"""Name and UUID of a GPU, and the CPUs near it; None where NVML does not report them."""


def find_slots(
    text: str,
    device: Device,
    describe: Callable[[str], Described] | None = None,
    nodes: Path = _NODES,
) -> list[DeviceSlot]:
    """The slots that the value of CARDS names.

    text: `all`, or names as CUDA_VISIBLE_DEVICES has them, `0,1`; for a plan for CPUs the numbers of equal shares.
    describe: asks the driver about one GPU. nodes: the kernel's folder of NUMA nodes. Raises UsageError for a value
    that names no device or one twice, UnavailableError where a GPU cannot be used.
    """
    names = [name for name in (part.strip() for part in text.split(",")) if name]
    if not names:
        raise UsageError("CARDS names no device.", "CARDS=all, or CARDS=0,1")
    if len(set(names)) < len(names):
        raise UsageError(f"A device is named twice in {text}.", "Name each once: CARDS=0,1.")
    if device == "cuda":
        return _gpus(_every_gpu() if names == [EVERY] else names, describe or describe_gpu)
    return _cpu_shares(names, nodes)


def _every_gpu() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in (part.strip() for part in visible.split(",")) if name]
    return [str(number) for number in range(gpu.Driver.start().count())]


def _gpus(names: Sequence[str], describe: Callable[[str], Described]) -> list[DeviceSlot]:
    with ThreadPoolExecutor(len(names)) as threads:  # each takes a second or more
        gpus = list(threads.map(describe, names))
    own = cpu_shares(limits.affinity(), [near for *_, near in gpus], MIN_CPUS)
    return [
        DeviceSlot(name=name, device="cuda", gpu=title, uuid=uuid, cpus=cpus, near=near)
        for name, (title, uuid, _), (cpus, near) in zip(names, gpus, own, strict=True)
    ]


def describe_gpu(name: str) -> Described:
    """Ask the driver and NVML about one GPU, in a process that sees only this one, as its cases will."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": name}
    command = [sys.executable, "-c", _ASK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UnavailableError(
            f"GPU {name} cannot be used: {one_line(last)}", "`nvidia-smi -L` lists the GPUs; name them: CARDS=0,1."
        )
    title, uuid, near = json.loads(done.stdout)
    return title, uuid, None if near is None else tuple(near)


def _cpu_shares(names: Sequence[str], nodes: Path) -> list[DeviceSlot]:
    allowed = limits.affinity()
    if names == [EVERY]:
        by_node = {folder.name.removeprefix("node"): _cpus_of(folder) & set(allowed) for folder in nodes.glob("node*")}
        own = [(name, tuple(sorted(cpus)), True) for name, cpus in sorted(by_node.items()) if cpus]
        if len(own) < 2:
            raise UsageError(
                "This host has one NUMA node, so CARDS=all is one share of the CPUs.", "Name equal shares: CARDS=0,1."
            )
        fewest = min(len(cpus) for _, cpus, _ in own)
        own = [(name, cpus[:fewest], near) for name, cpus, near in own]
    else:
        shares = cpu_parts(allowed, len(names), 1)
        if not shares[0]:
            raise UsageError(
                f"{len(allowed)} CPUs are too few for {len(names)} shares.", "Name fewer: CARDS=0,1; or use more CPUs."
            )
        own = [(name, cpus, False) for name, cpus in zip(names, shares, strict=True)]
    return [DeviceSlot(name=name, device="cpu", gpu=None, uuid=None, cpus=cpus, near=near) for name, cpus, near in own]


def _cpus_of(node: Path) -> set[int]:
    cpus: set[int] = set()
    for part in (node / "cpulist").read_text().strip().split(","):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1)) if part else set()
    return cpus


def cpu_shares(
    allowed: Sequence[int], near: Sequence[Sequence[int] | None], least: int
) -> list[tuple[tuple[int, ...], bool]]:
    """(CPUs, whether they are near) for each device, without a CPU twice.

    Devices that report the same near CPUs divide these equally. Where a device reports none, where two sets overlap
    without being equal, or where a share would have fewer than `least` CPUs, all devices divide all allowed CPUs.
    """
    sets = [None if cpus is None else tuple(cpu for cpu in allowed if cpu in set(cpus)) for cpus in near]
    distinct = list(dict.fromkeys(sets))
    known = [cpus for cpus in distinct if cpus]
    apart = sum(map(len, known)) == len({cpu for cpus in known for cpu in cpus})
    if len(known) == len(distinct) and apart:
        divided = {cpus: iter(cpu_parts(cpus, sets.count(cpus), least)) for cpus in known}
        own = [next(divided[cpus]) for cpus in sets if cpus]
        if all(own):
            fewest = min(map(len, own))  # equally many: rows of devices with more CPUs would not be comparable
            return [(cpus[:fewest], True) for cpus in own]
    return [(cpus, False) for cpus in cpu_parts(allowed, len(near), least)]


def cpu_parts(cpus: Sequence[int], count: int, least: int = MIN_CPUS) -> list[tuple[int, ...]]:
    """`count` equal, contiguous parts of the CPUs, so that devices do not share CPUs; the remainder stays idle. Where
    a part would have fewer than `least` CPUs, or CPUs cannot be selected, the parts are empty: all share all CPUs."""
    each = len(cpus) // count
    if each < least or not hasattr(os, "sched_setaffinity"):
        return [()] * count
    return [tuple(cpus[place * each : (place + 1) * each]) for place in range(count)]


def pin_to_cpus(slot: DeviceSlot) -> None:
    """Bind the calling thread to the CPUs of a slot: a process that it starts inherits them."""
    if slot.cpus:
        os.sched_setaffinity(0, slot.cpus)


def slot_variables(slot: DeviceSlot) -> Mapping[str, str]:
    """Variables of a process that may use only this slot's GPU; empty for a share of the CPUs."""
    return {"CUDA_VISIBLE_DEVICES": slot.name} if slot.device == "cuda" else {}
