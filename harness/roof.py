"""Measure the limits of the plan's device: matrix products and copies, on a GPU kernel launches as well.

reads   results/plan.json
writes  results/roof.json, results/environments/<id>.json
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from harness.aggregation.roofline import other_cpu
from harness.backends import backend_info
from harness.core import cli, store
from harness.core.errors import FormatError, UnavailableError
from harness.core.host import (
    environment,
    gpu,
    limits,
)
from harness.core.layout import Results
from harness.core.lock import exclusive
from harness.core.schemas import CpuLimits, CpuRoof, Plan, Precision, Roof
from harness.core.timestamps import utc_now
from harness.core.units import count
from harness.planning.block_settings import threads_of
from harness.processes import cpu_peaks

R = TypeVar("R", Roof, CpuRoof)


def stage(arguments: Sequence[str]) -> None:
    """Measure the limits of this machine's device, unless they are already known."""
    parser = cli.parser("harness.roof", __doc__)
    parser.add_argument("--force", action="store_true", help="measure again what is already there")
    cli.add_folders(parser, models=False)
    options = parser.parse_args(arguments)
    results = Results(options.results)
    plan = store.load(results.plan, Plan, "make plan")
    if plan.device == "cuda":
        _measure_gpu(plan, results, options.force)
    else:
        _measure_cpu(plan, results, options.force)


def _measure_gpu(plan: Plan, results: Results, force: bool) -> None:
    gpu.require(plan.device)
    facts = gpu.facts()
    known = _read_limits(results.roof, Roof)
    if not force and known is not None and known.uuid == facts.uuid:
        cli.say(f"{results.roof}: the limits of this {facts.name} are known; `make roof FORCE=1` measures again.")
        return
    peaks = _peaks()
    with exclusive(results.lock):  # other work on the GPU would make the limits too low
        roof = _measured(peaks, results)
    store.save(results.roof, roof)
    _say(roof)


def _measure_cpu(plan: Plan, results: Results, force: bool) -> None:
    """Measure the limits of a CPU; does nothing where no case of the plan computes."""
    threads, precisions = needed(plan, limits.thread_count())
    if not threads:
        return
    here = environment.collect({})
    known = _read_limits(results.roof, CpuRoof)
    if not force and known is not None and other_cpu(known, [here]) is None and _covers(known, threads, precisions):
        cli.say(f"{results.roof}: the limits of this {known.device} are known; `make roof FORCE=1` measures again.")
        return
    with exclusive(results.lock):
        measured = cpu_peaks.measure_limits(threads, precisions)
    identity = environment.save(results, here)
    roof = CpuRoof(
        created_at=utc_now(),
        environment_id=identity,
        device=here.machine.cpu,
        machine=here.machine,
        cpus=len(here.limits.affinity),
        cache_bytes=environment.last_level_cache_bytes(),
        limits=measured.limits,
        unmeasured=measured.unmeasured,
        without=measured.without,
    )
    store.save(results.roof, roof)
    _say_cpu(roof)


def needed(plan: Plan, usual: int) -> tuple[list[int], list[Precision]]:
    """(numbers of threads, precisions) that the plan's cases compute with on a CPU. fp32 is always included, because a
    library may compute any other precision through it. usual: threads of a case that names no number."""
    cases = [case for case in plan.cases if case.skip_reason is None and backend_info(case.backend).computes]
    threads = {threads_of(case, plan.measurement.threads or usual) for case in cases}
    generations = [case for case in plan.generations if case.skip_reason is None]
    generations = [case for case in generations if backend_info(case.backend).computes]
    threads |= {
        backend_info(case.backend).decoder_setting(case.device, case.setting).threads
        or plan.measurement.threads
        or usual
        for case in generations
    }
    asked = [*(case.precision for case in cases), *(case.precision for case in generations)]
    precisions: dict[Precision, None] = {"fp32": None, **dict.fromkeys(asked)}
    return sorted(threads), list(precisions)


def _covers(roof: CpuRoof, threads: Iterable[int], precisions: Iterable[Precision]) -> bool:
    """Whether every limit that the plan needs was measured, or cannot be measured on this machine."""
    known = {number: set(roof.unmeasured) | set(recorded.flops) for number in threads if (recorded := roof.of(number))}
    return all(number in known and set(precisions) <= known[number] for number in threads)


def _read_limits(path: Path, kind: type[R]) -> R | None:
    """The limits in the file; None where it has none for that kind of device or cannot be read."""
    if not path.is_file():
        return None
    try:
        return store.load(path, kind, "make roof")
    except FormatError:
        return None


def _peaks() -> ModuleType:
    """The module that measures, with CUDA started."""
    try:
        from harness.backends import gpu_peaks as peaks  # noqa: PLC0415 - PyTorch, which a plan on a CPU does not need
    except ImportError as error:
        raise UnavailableError(
            f"The GPU's limits are measured with PyTorch, which cannot be imported: {error}.",
            "Install it; or go on without this stage: rows then have no roofline.",
        ) from error
    peaks.require()
    return peaks


def _measured(peaks: ModuleType, results: Results) -> Roof:
    here = environment.collect(peaks.build_facts(), "cuda")
    identity = environment.save(results, here)
    facts = gpu.facts()
    to_device, from_device = peaks.link_bytes_per_s()
    return Roof(
        created_at=utc_now(),
        environment_id=identity,
        device=facts.name,
        uuid=facts.uuid,
        flops=peaks.flops_per_s(),
        copy_bytes_per_s=peaks.copy_bytes_per_s(),
        launch_ns=peaks.launch_ns(),
        h2d_bytes_per_s=to_device,
        d2h_bytes_per_s=from_device,
    )


def _say(roof: Roof) -> None:
    products = ", ".join(f"{flops / 1e12:.0f} {precision}" for precision, flops in roof.flops.items())
    cli.say(
        f"{roof.device}: {products} TFLOP/s, copies {roof.copy_bytes_per_s / 1e9:,.0f} GB/s, "
        f"{roof.launch_ns / 1e3:.2f} µs a kernel."
    )


def _say_cpu(roof: CpuRoof) -> None:
    cli.say(f"{roof.device}: {'; '.join(map(_thread_limits_text, roof.limits))}.")
    for precision, why in roof.unmeasured.items():
        cli.warn(f"No matrix product in {precision} could be measured ({why}): its rows have no limit to compare with.")
    if roof.without:
        cli.warn(f"The limits were measured without {', '.join(roof.without)}, whose products may be faster.")


def _thread_limits_text(cpu_limits: CpuLimits) -> str:
    products = ", ".join(f"{flops / 1e9:,.0f} {precision}" for precision, flops in cpu_limits.flops.items())
    copies = cpu_limits.copy_bytes_per_s
    copies_text = f", copies {copies / 1e9:,.1f} GB/s" if copies is not None else ""
    return f"with {count(cpu_limits.threads, 'thread')} {products} GFLOP/s{copies_text}"


if __name__ == "__main__":
    cli.main(stage)
