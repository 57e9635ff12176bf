"""The machine: results/environments/<id>.json (hardware and software on which samples were taken), results/roof.json
(its measured limits: a Roof for a plan on a GPU, a CpuRoof for a plan on a CPU) and results/selftest.json (the
harness's trials on known work)."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.vocabulary import Precision, Record


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


class Roof(Record):
    """Measured limits of one GPU: no work on it is faster."""

    schema_version: Literal[1] = 1
    created_at: str
    environment_id: str
    device: str
    """Name of the GPU."""
    uuid: str
    flops: dict[Precision, float]
    """Best matrix product, FLOP/s, 2 per multiply-add."""
    copy_bytes_per_s: float
    """Best device-to-device copy, bytes read plus bytes written."""
    launch_ns: float
    """Device time of one more dependent empty kernel in a CUDA graph."""
    h2d_bytes_per_s: float | None = None
    d2h_bytes_per_s: float | None = None
    """Copies from and to pinned host memory."""


class CpuLimits(Record):
    """Measured limits of a CPU with so many threads, each with its own work at the same time."""

    threads: int
    flops: dict[Precision, float]
    """Best matrix products, FLOP/s of all threads together, 2 per multiply-add. A precision that could not be measured
    is absent."""
    by: dict[Precision, str] = {}
    """The library of that matrix product, in words."""
    copy_bytes_per_s: float | None
    """Best copies within memory, bytes read plus bytes written; None where they could not be measured."""


class CpuRoof(Record):
    """Measured limits of one CPU, by the number of threads."""

    schema_version: Literal[1] = 1
    created_at: str
    environment_id: str
    device: str
    """Name of the CPU."""
    machine: Machine
    cpus: int
    """CPUs that the measuring processes could use, by affinity."""
    cache_bytes: int | None
    """Total size of all last-level caches; None where the kernel does not list them."""
    limits: tuple[CpuLimits, ...]
    unmeasured: dict[Precision, str] = {}
    """Why a precision that the plan asks for has no limit."""
    without: tuple[str, ...] = ()
    """Libraries that were not available: their matrix products may be faster."""

    def of(self, threads: int) -> CpuLimits | None:
        """The limits with so many threads; None where they were not measured."""
        return next((limits for limits in self.limits if limits.threads == threads), None)


class SelfTestRow(Record):
    """Work of known duration and its reported time."""

    case_id: str
    nominal_ns: int
    reported_ns: float
    allowed_ns: float
    """Largest allowed bias: 1% + 2 × timer overhead."""
    within: bool


class SelfTestKind(Record):
    """Work whose processes differ, measured twice unchanged and once slowed, and the verdicts of the comparisons."""

    name: str
    what: str
    """How its processes differ."""
    false_alarms: int
    """Equal trials with the verdict FASTER or SLOWER."""
    refused: int
    """Equal trials that were not compared because a row was too uncertain; these are not false alarms."""
    equal_trials: int
    missed: int
    """Slowed trials without the verdict SLOWER. Counted, but not limited: so small a change cannot be detected."""
    slowed_trials: int


class SelfTest(Record):
    """Results of the harness's trials on known work on one machine."""

    schema_version: Literal[1] = 1
    created_at: str
    machine: Machine
    rounds: int
    slowdown: float
    rows: tuple[SelfTestRow, ...]
    false_alarms: int
    """For work that takes the same time in every process; so are the three fields after it."""
    equal_trials: int
    missed: int
    slowed_trials: int
    rate: float | None = None
    """Rate of wrong verdicts that the trials had to exclude at 95%. None in older files, where 95% had to be right."""
    kinds: tuple[SelfTestKind, ...] = ()
    """Work whose processes differ; none in older files."""
    passed: bool
