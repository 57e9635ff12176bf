"""Measure what the GPU of the plan can do at most: matrix products, copies, launches.

reads   results/plan.json
writes  results/roof.json, results/environments/<id>.json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from harness.core import cli, devices, environment, gpu, store
from harness.core.errors import FormatError, UnavailableError
from harness.core.layout import Results
from harness.core.lock import exclusive
from harness.core.schemas import Plan, Roof
from harness.core.timestamps import utc_now


def stage(arguments: Sequence[str]) -> None:
    """Measure the limits of this machine's GPU, unless they are known; nothing to do for a plan on a CPU."""
    parser = cli.parser("harness.roof", __doc__)
    parser.add_argument("--force", action="store_true", help="measure anew what is already there")
    cli.add_folders(parser, models=False)
    options = parser.parse_args(arguments)
    results = Results(options.results)
    plan = store.load(results.plan, Plan, "make plan")
    if plan.device != "cuda":
        return
    devices.require(plan.device)
    card = gpu.facts()
    if not options.force and _is_of(results.roof, card.uuid):
        cli.say(f"{results.roof}: the limits of this {card.name} are known; --force measures anew.")
        return
    peaks = _peaks()
    with exclusive(results.lock):  # whatever else runs there would make the limits too low
        roof = _measured(peaks, results)
    store.save(results.roof, roof)
    _say(roof)


def _is_of(path: Path, uuid: str) -> bool:
    """Whether the file holds limits of this very GPU; one that cannot be read is written anew."""
    if not path.is_file():
        return False
    try:
        return store.load(path, Roof, "make roof").uuid == uuid
    except FormatError:
        return False


def _peaks() -> ModuleType:
    """What measures, with CUDA started in it."""
    try:
        from harness.backends import peaks  # noqa: PLC0415 - PyTorch, which a plan on a CPU need not have
    except ImportError as error:
        raise UnavailableError(
            f"The GPU's limits are measured with PyTorch, which cannot be imported: {error}.",
            "Install it; or go on without this stage: rows then have no roofline.",
        ) from error
    peaks.require()
    return peaks


def _measured(peaks: ModuleType, results: Results) -> Roof:
    here = environment.collect(peaks.build_facts(), "cuda")
    identity = environment.environment_id(here)
    store.save(results.environment(identity), here)
    card = gpu.facts()
    to_device, from_device = peaks.link_bytes_per_s()
    return Roof(
        created_at=utc_now(),
        environment_id=identity,
        device=card.name,
        uuid=card.uuid,
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


if __name__ == "__main__":
    cli.main(stage)
