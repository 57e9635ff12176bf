"""results/environments/<id>.json: the machine and software on which samples were taken."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.vocabulary import Record


class Unavailable(Record):
    """A fact that could not be read, and why: never 0, never an empty string."""

    unavailable: str


class Machine(Record):
    cpu: str
    architecture: str
    logical_cpus: int
    physical_cores: int | Unavailable
    sockets: int | Unavailable
    numa_nodes: int | Unavailable
    smt: str | Unavailable
    microcode: str | Unavailable
    governor: str | Unavailable
    turbo: str | Unavailable
    max_frequency_mhz: int | Unavailable
    cpu_features: tuple[str, ...]
    """Instruction sets that decide which precision a library may choose: avx2, avx512f, avx512_bf16, amx_bf16, …"""
    memory_bytes: int
    hypervisor: str | Unavailable
    os: str
    kernel: str


class Limits(Record):
    affinity: tuple[int, ...]
    cpu_quota: float | None
    """Cores by cgroup quota; None without a quota."""
    memory_limit_bytes: int | None
    threads: int
    """Threads of every backend, from affinity and quota."""
    container: str | None
    """How a container was recognised, None outside one."""
    image: str | None
    """Name of the container image, set when the container was started (INFEROMETER_IMAGE)."""
    image_digest: str | None = None
    """Its id or digest (INFEROMETER_IMAGE_DIGEST): a name can be moved to another image."""


class Software(Record):
    python: str
    inferometer: str
    git_commit: str | None
    git_dirty: bool | None
    libraries: dict[str, str]
    build: dict[str, str]
    """Build facts that change numbers: torch's parallel backend and oneDNN, ONNX Runtime's build, …"""


class Gpu(Record):
    """The GPU that a case ran on, as NVML reports it. Only facts that do not change during a run."""

    name: str
    uuid: str
    sm: str
    """Compute capability, `9.0`."""
    memory_bytes: int
    driver: str
    cuda: str
    """Newest CUDA version that the driver supports."""
    vbios: str | Unavailable
    persistence: str | Unavailable
    ecc: str | Unavailable
    mig: str | Unavailable
    power_limit_w: float | Unavailable
    power_limit_default_w: float | Unavailable
    max_sm_mhz: int | Unavailable
    max_memory_mhz: int | Unavailable
    pcie: str | Unavailable
    """Generation and width of the link, `gen5 x16`."""
    bar1_bytes: int | Unavailable


class Environment(Record):
    """The machine and software of a sample; stored once under its hash, which every raw file names."""

    schema_version: Literal[1] = 1
    machine: Machine
    limits: Limits
    software: Software
    gpu: Gpu | None = None
    """None where the case did not run on a GPU."""
