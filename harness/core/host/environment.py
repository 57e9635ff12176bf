"""Collects the environment record, which distinguishes runs later; an unreadable fact has its reason instead."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

import psutil

from harness.core import store
from harness.core.host import git, gpu, limits
from harness.core.layout import Results
from harness.core.schemas import Device, Environment, Limits, Machine, Software, Unavailable
from harness.core.store import digest_of
from harness.core.text import portable

VARIABLES = "runtime variables"
"""Name of the build fact."""

_LIBRARIES = ("ATEN_", "DNNL_", "GOMP_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_", "ORT_", "TORCHINDUCTOR_")
"""Prefixes of the variables of OpenMP and its two implementations (OpenMP 5.2, chapter 21; manuals of libgomp and
LLVM), MKL, oneDNN under both of its names, PyTorch, Inductor and ONNX Runtime."""

_ALONE = frozenset({"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE"})
"""CUDA's variables that change times. Others choose a GPU, which the record names, or name folders of files."""

_OWN = frozenset(
    {
        "KMP_DUPLICATE_LIB_OK",
        "KMP_INIT_AT_FORK",
        "MKL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "ORT_DISABLE_TELEMETRY",
        "TORCHINDUCTOR_CACHE_DIR",
    }
)
"""Variables that the harness or a library sets itself, independent of the shell."""


def runtime_variables(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """{VARIABLES: settings of the shell}; empty where none is set."""
    names = (name for name in sorted(variables) if name.startswith(_LIBRARIES) or name in _ALONE)
    settings = [f"{name}={portable(variables[name])}" for name in names if name not in _OWN]
    return {VARIABLES: ", ".join(settings)} if settings else {}


ALLOCATOR = "memory allocator"
"""Name of the build fact."""

_PRELOADED = ("jemalloc", "tcmalloc", "mimalloc")


def allocator_settings(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """{ALLOCATOR: settings of the shell}; empty where the C library's own allocator runs with its defaults.

    Source: mallopt(3) for MALLOC_…, the GNU C library's manual for GLIBC_TUNABLES.
    """
    settings = [f"{name}={variables[name]}" for name in sorted(variables) if name.startswith("MALLOC_")]
    tunables = variables.get("GLIBC_TUNABLES", "")
    if "glibc.malloc." in tunables:
        settings.append(f"GLIBC_TUNABLES={tunables}")
    files = [Path(name).name for name in variables.get("LD_PRELOAD", "").replace(":", " ").split()]
    settings += [f"LD_PRELOAD={name}" for name in files if any(known in name for known in _PRELOADED)]
    return {ALLOCATOR: ", ".join(settings)} if settings else {}


LIBRARIES = (
    "torch",
    "torchvision",
    "transformers",
    "onnx",
    "onnxruntime",
    "onnxruntime-gpu",
    "openvino",
    "tensorrt",
    "tensorrt-cu12-bindings",
    "tensorrt-cu13-bindings",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-cublas",
    "nvidia-cublas-cu12",
    "triton",
    "pycuda",
    "cuda-bindings",
    "nvidia-ml-py",
    "numpy",
)
"""Distributions whose versions affect a number or its measurement; only installed distributions are recorded."""

_SHARED_MODULES = {"onnxruntime": "onnxruntime", "onnxruntime-gpu": "onnxruntime"}
"""Distributions that contain the same module."""

_FEATURES = (
    "avx2",
    "avx512f",
    "avx_vnni",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
)
PLUGIN = "backend's plugin"
"""Name of a build fact that does not come from a library."""

COMMIT = "git commit"
"""Name of a build fact: why the commit of a checkout is unknown."""

_SYS_CPU = Path("/sys/devices/system/cpu")


def collect(build: dict[str, str], device: Device = "cpu", also: Iterable[str] = ()) -> Environment:
    """Read the environment of this process; `build` adds facts that only a backend's library knows.

    also: distributions, besides LIBRARIES, whose versions affect a number.
    On a GPU this starts CUDA's driver in the process and raises UnavailableError where NVML cannot identify the GPU.
    """
    gpu_facts = gpu.facts() if device == "cuda" else None
    return Environment(machine=_machine(), limits=_limits(), software=_software(build, also), gpu=gpu_facts)


def environment_id(environment: Environment) -> str:
    """The hash that names the file of an environment."""
    return digest_of(environment.model_dump(mode="json"))


def save(results: Results, environment: Environment) -> str:
    """Save an environment; returns its id. Raises as store.save."""
    identity = environment_id(environment)
    store.save(results.environment(identity), environment)
    return identity


def cpu_flags() -> frozenset[str]:
    """Instruction sets and other features of the processor, by the kernel's names; empty where it lists none."""
    info = _cpuinfo()
    return frozenset(info.get("flags", info.get("Features", "")).split())


def last_level_cache_bytes(cpus: Path = _SYS_CPU) -> int | None:
    """Total size of all last-level caches of the machine; None where the kernel does not list them."""
    sizes: dict[tuple[int, str], int] = {}
    try:
        for cache in cpus.glob("cpu[0-9]*/cache/index*"):
            if (cache / "type").read_text().strip() != "Instruction":
                shared = (cache / "shared_cpu_list").read_text().strip()
                size = (cache / "size").read_text().strip()
                sizes[int((cache / "level").read_text()), shared] = int(size.removesuffix("K")) << 10
    except (OSError, ValueError):
        return None
    last = max((level for level, _ in sizes), default=0)
    return sum(size for (level, _), size in sizes.items() if level == last) or None


def _machine() -> Machine:
    info = _cpuinfo()
    flags = set(cpu_flags())
    return Machine(
        cpu=info.get("model name") or platform.processor() or platform.machine(),
        architecture=platform.machine(),
        logical_cpus=psutil.cpu_count(logical=True) or 1,
        physical_cores=psutil.cpu_count(logical=False) or Unavailable(unavailable="not reported by this system"),
        sockets=_sockets(),
        numa_nodes=_count("/sys/devices/system/node", "node[0-9]*"),
        smt=file_fact(_SYS_CPU / "smt/control"),
        microcode=info.get("microcode") or Unavailable(unavailable="/proc/cpuinfo has no microcode line"),
        governor=file_fact(_SYS_CPU / "cpu0/cpufreq/scaling_governor"),
        turbo=_turbo(),
        max_frequency_mhz=_max_frequency_mhz(),
        cpu_features=tuple(name for name in _FEATURES if name in flags),
        memory_bytes=psutil.virtual_memory().total,
        hypervisor=_hypervisor(flags),
        os=_os_name(),
        kernel=platform.release(),
    )


def _limits() -> Limits:
    return Limits(
        affinity=limits.affinity(),
        cpu_quota=limits.cpu_quota(),
        memory_limit_bytes=limits.memory_limit_bytes(),
        threads=limits.thread_count(),
        container=_container(),
        image=os.environ.get("INFEROMETER_IMAGE") or None,
        image_digest=os.environ.get("INFEROMETER_IMAGE_DIGEST") or None,
    )


def _software(build: dict[str, str], also: Iterable[str]) -> Software:
    commit = git.commit()
    unknown = {} if commit.missing is None else {COMMIT: f"unknown: {commit.missing}"}
    return Software(
        python=f"{platform.python_implementation()} {platform.python_version()}",
        inferometer=version("inferometer") or "source tree",
        git_commit=commit.head,
        git_dirty=commit.changed,
        libraries=versions((*LIBRARIES, *also)),
        build={**build, **allocator_settings(), **runtime_variables(), **unknown},
    )


def commit_text(software: Software) -> str | None:
    """The commit of Inferometer's checkout, or why it is unknown; None outside a checkout."""
    return software.git_commit or software.build.get(COMMIT)


def versions(names: Iterable[str]) -> dict[str, str]:
    """Installed versions by distribution name; distributions that are not installed are left out."""
    known = {name: version(name) for name in names}
    return {name: text for name, text in known.items() if text is not None and not _hidden(name)}


def _hidden(name: str) -> bool:
    """True where another distribution's module of the same name comes first, so that Python imports that module."""
    module = _SHARED_MODULES.get(name)
    spec = importlib.util.find_spec(module) if module else None
    if spec is None or spec.origin is None:
        return False
    return Path(str(metadata.distribution(name).locate_file(f"{module}/__init__.py"))) != Path(spec.origin)


def version(name: str) -> str | None:
    """The installed version of a distribution, without importing it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def plugin_fact(distribution: str | None) -> dict[str, str]:
    """The build fact of a plugin's backend: its distribution and version; empty for a built-in backend."""
    return {PLUGIN: f"{distribution} {version(distribution)}"} if distribution else {}


def _cpuinfo() -> dict[str, str]:
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def file_fact(file: Path) -> str | Unavailable:
    """The text of a one-line file of the kernel, or why it is unknown."""
    try:
        text = file.read_text().strip()
    except OSError as error:
        return Unavailable(unavailable=f"{file}: {error.strerror}")
    return text or Unavailable(unavailable=f"{file} is empty")


def _count(folder: str, pattern: str) -> int | Unavailable:
    number = len(list(Path(folder).glob(pattern)))
    return number or Unavailable(unavailable=f"{folder} is not there")


def _sockets() -> int | Unavailable:
    packages = {file.read_text().strip() for file in _SYS_CPU.glob("cpu[0-9]*/topology/physical_package_id")}
    return len(packages) or Unavailable(unavailable="no topology below /sys/devices/system/cpu")


def _turbo() -> str | Unavailable:
    boost = file_fact(_SYS_CPU / "cpufreq/boost")
    if isinstance(boost, str):
        return "on" if boost == "1" else "off"
    no_turbo = file_fact(_SYS_CPU / "intel_pstate/no_turbo")
    if isinstance(no_turbo, str):
        return "off" if no_turbo == "1" else "on"
    return Unavailable(unavailable="neither cpufreq/boost nor intel_pstate/no_turbo is there (usual in a guest)")


def _max_frequency_mhz() -> int | Unavailable:
    kilohertz = file_fact(_SYS_CPU / "cpu0/cpufreq/cpuinfo_max_freq")
    return int(kilohertz) // 1000 if isinstance(kilohertz, str) else kilohertz


def _hypervisor(flags: set[str]) -> str | Unavailable:
    if not flags:
        return Unavailable(unavailable="/proc/cpuinfo has no flags")
    if "hypervisor" not in flags:
        return "none"
    vendor = file_fact(Path("/sys/class/dmi/id/sys_vendor"))
    return vendor if isinstance(vendor, str) and vendor else "present, vendor unknown"


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"


def _container() -> str | None:
    # Podman's --read-only hides its marker file under an empty /run; the variable of systemd's interface stays set.
    if named := os.environ.get("container"):  # noqa: SIM112 - the name is lower case
        return named
    for marker, name in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if Path(marker).exists():
            return name
    return None


RUNTIMES = "loaded runtimes"
"""Name of the build fact."""

_RUNTIME = re.compile(r"lib(gomp|iomp5|omp|tbb|mkl_(rt|core|\w*thread)|\w*openblas\w*|blis|dnnl|onednn)\b[^/]*\.so")


def loaded_runtimes(maps: Path = Path("/proc/self/maps")) -> dict[str, str]:
    """OpenMP, TBB and BLAS libraries that this process has loaded, by file: two of a kind compete for its threads.

    How a wheel was built says little: the file that the loader chose decides. Empty where the kernel lists none.
    """
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return {}
    paths = {fields[5] for line in lines if len(fields := line.split(maxsplit=5)) == 6}
    loaded = [path for path in paths if _RUNTIME.match(path.rpartition("/")[2])]
    return {RUNTIMES: ", ".join(sorted(map(_without_place, loaded)))} if loaded else {}


def _without_place(path: str) -> str:
    """The end of a library's path, which shows whose copy it is. No folder of this machine: results are published."""
    _, site, below = path.rpartition("/site-packages/")
    if site:
        return below
    roots = {os.path.realpath(entry) for entry in (*sys.path, sys.prefix, sys.base_prefix) if entry} - {"/"}
    for root in sorted(roots, key=len, reverse=True):
        if path.startswith(f"{root}/"):
            return path.removeprefix(f"{root}/")
    return f"(elsewhere)/{path.rpartition('/')[2]}"
