"""Compare published figures with measurements on this machine: published, measured, ratio, verdict.

All measurements are those of the other stages: this stage turns a claim into a configuration of exactly the claim's
cases, starts those stages, and judges their summary. `--claim list` lists the claims.

reads   configs/published/<claim>.yaml
writes  results/reproduce/<claim>/: what the stages write, and config.yaml, reproduction.json, reproduction.md

Exit code 11: something was measured and is not reproduced; 5: this machine can measure none of it; 0: all is
reproduced, or not comparable.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import pipeline
from harness.comparison.claim_verdicts import differences_between, rows_of
from harness.core import cli, file_sums, store
from harness.core.errors import (
    CasesFailedError,
    InferometerError,
    NotReproducedError,
    UnavailableError,
    UsageError,
)
from harness.core.host import gpu
from harness.core.layout import Results
from harness.core.schemas import Claim, Device, Differing, Reproduction, Summary
from harness.core.timestamps import utc_now
from harness.planning import claims
from harness.planning.config import Config, find_configuration
from harness.reporting.prose.conditions import short_conditions
from harness.reporting.tables import reproduction_table as tables
from harness.reporting.writers.markdown import document_text


def stage(arguments: Sequence[str]) -> None:
    """Read the claim, measure it or load earlier results, judge, write, print."""
    options = _options(arguments)
    if options.claim == "list":
        _list(options.claims)
        return
    claim = claims.read(options.claim, options.claims)
    published = claims.published_run(claim)
    if published is not None:
        claim = claims.filled_in(claim, *published)
    device = _device(claim, options)
    config, left_out = claims.configuration(claim, device, options.rounds)
    place = Results(options.results).claim(options.claim)
    summary: Summary | None = None
    if options.only_compare is not None:
        _refuse_itself(claim, options.only_compare)
        summary, left_out = file_sums.load_summary(Results(options.only_compare).summary), {}
    elif config is not None:
        summary = _measured(config, place, options)
    known = differences_between(published[0], summary) if published is not None and summary is not None else ()
    _end(_reproduction(options.claim, claim, summary, left_out, known), place)
    if summary is None and claim.context is None:
        reasons = "; ".join(dict.fromkeys(left_out.values()))
        raise UnavailableError(f"{options.claim}: nothing was measured: {reasons}.", _ELSEWHERE[device])


_ELSEWHERE: Mapping[Device, str] = {
    "cpu": "Run it with DEVICE=cuda, on a machine with an NVIDIA GPU.",
    "cuda": "Run it with DEVICE=cpu.",
}
"""The remedy where a device measures nothing of a claim, by this device."""


def _list(folder: Path) -> None:
    """Print every claim. Then raises the error of a claim that cannot be read, after printing those of the others."""
    bad: list[InferometerError] = []
    for name in claims.names(folder):
        try:
            cli.say(tables.listed(name, claims.read(name, folder)) + "\n")
        except InferometerError as error:
            bad.append(error)
    for refused in bad[:-1]:
        cli.show(refused)
    if bad:
        raise bad[-1]


def _device(claim: Claim, options: argparse.Namespace) -> Device:
    """The device to measure on: the one that was asked for; else the claim's own, where this machine has it. A claim
    that names none is measured on the GPU, where this machine has one that can measure something of it; else on the
    CPU. A line then says which.

    Raises UnavailableError where this machine lacks the device that was asked for.
    """
    if options.only_compare is not None:
        return "cpu"
    if options.device is not None:
        asked: Device = options.device
        gpu.require(asked)
        return asked
    try:
        gpu.require(claim.device or "cuda")
    except UnavailableError:
        if claim.device is None and claim.context is None:
            cli.say("The claim names no device, and this machine has no GPU: it is measured on the CPU.")
        return "cpu"
    if claim.device is not None or claim.context is not None:
        return claim.device or "cpu"
    if claims.configuration(claim, "cuda", options.rounds)[0] is None:
        cli.say("The claim names no device, and a GPU measures nothing of it: it is measured on the CPU.")
        return "cpu"
    cli.say("The claim names no device: it is measured on the GPU; DEVICE=cpu measures it on the CPU.")
    return "cuda"


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = cli.parser("harness.reproduce", __doc__)
    parser.add_argument("--claim", required=True, help="name of a file in configs/published, or `list`")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        help="where to measure (the claim's device; else a GPU; else the CPU)",
    )
    parser.add_argument("--rounds", type=int, help="fresh processes per case, instead of the claim's")
    parser.add_argument(
        "--only-compare", type=Path, metavar="RESULTS", help="judge this results folder, and measure nothing"
    )
    cli.add_interpreters(parser)
    parser.add_argument("--force", action="store_true", help="measure and export again what is already there")
    parser.add_argument(
        "--claims", type=Path, default=find_configuration(claims.FOLDER), help=f"folder of claims ({claims.FOLDER})"
    )
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    if options.rounds is not None and not 1 <= options.rounds <= 100:
        raise UsageError(f"{options.rounds} rounds are out of range.", "Ask for 1 to 100: ROUNDS=5.")
    return options


def _refuse_itself(claim: Claim, given: Path) -> None:
    if claim.results is not None and Path(claim.results).resolve() == given.resolve():
        raise UsageError(f"{given} is the published run itself.", "To measure again, leave --only-compare out.")


def _measured(config: Config, place: Results, options: argparse.Namespace) -> Summary:
    """Measure the claim's cases with the ordinary stages."""
    # JSON is YAML; keys that a configuration leaves out have defaults.
    text = config.model_dump_json(indent=2, exclude_defaults=True)
    store.save_bytes(place.config, text.encode() + b"\n")
    choices = {
        "CONFIG": [str(place.config)],
        "RESULTS": [str(place.root)],
        "MODELS_DIR": [str(options.models_dir)],
        "BACKEND_PYTHONS": options.python,
        "FORCE": ["1"] if options.force else [],
    }
    os.environ[cli.AFTER_EXPORT] = "1"
    pipeline.run(pipeline.steps(pipeline.PARTS["claim"], choices), _stage, lambda: config.device == "cuda")
    return store.load(place.summary, Summary, "make reproduce")


def _stage(name: str, arguments: Sequence[str]) -> int:
    """Run a stage to its end; it prints its own messages. Raises CasesFailedError where no stage may follow."""
    command = [sys.executable, "-m", f"harness.{name}", *arguments]
    done = subprocess.run(command, check=False)  # noqa: S603 - our own module, no shell
    if not pipeline.goes_on_after(name, done.returncode):
        raise CasesFailedError(
            f"The {name} stage ended with exit code {done.returncode}; its message is above.",
            "Measured results are kept; the same command continues.",
        )
    return done.returncode


def _reproduction(
    name: str, claim: Claim, summary: Summary | None, left_out: dict[str, str], known: Sequence[Differing]
) -> Reproduction:
    measured = [row for row in summary.rows if row.status == "measured"] if summary else []
    full_claim = claim.model_copy(update={"differs": (*claim.differs, *known)})
    return Reproduction(
        created_at=utc_now(),
        claim=name,
        title=claim.title,
        source=claim.source,
        card=claim.cards[0],
        conditions={**claim.conditions, **claim.versions},
        here=short_conditions(summary, measured) if summary and measured else None,
        plan_id=summary.plan_id if summary else None,
        rows=rows_of(full_claim, summary, left_out),
    )


def _end(reproduction: Reproduction, place: Results) -> None:
    store.save(place.reproduction, reproduction)
    text = document_text(cli.typed(tables.document(reproduction)), addresses=True)
    store.save_bytes(place.reproduction_report, text.encode())
    cli.say(tables.terminal(reproduction))
    cli.say(f"Reproduction: {place.reproduction_report}")
    if any(row.verdict == "NOT REPRODUCED" for row in reproduction.rows):
        raise NotReproducedError(tables.headline(reproduction), f"{place.reproduction_report} names the differences.")
    cli.say(tables.headline(reproduction))


if __name__ == "__main__":
    cli.main(stage)
