"""plan: expand the configuration's matrix into every case that is owed an answer.

reads   configs/<name>.yaml
writes  results/plan.json, command.txt
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from harness.backends import BACKENDS
from harness.core import cli, devices, store
from harness.core.errors import UsageError
from harness.core.layout import Results
from harness.core.lock import exclusive
from harness.core.sanitize import shortened
from harness.core.schemas import Boundary, Mode, Plan, Precision, Quantisation
from harness.planning import amounts
from harness.planning.config import MOST, Config, read_config
from harness.planning.estimate import estimate, further_in_words, in_words
from harness.planning.matrix import make_plan
from harness.planning.overrides import Overrides, apply
from harness.render import units
from harness.zoo.quantised_file import quantisation_of

T = TypeVar("T")


def stage(arguments: Sequence[str]) -> None:
    """Read, expand, check, save, and print what would run."""
    options = _parser().parse_args(arguments)
    chosen = Overrides(
        device=options.device,
        models=options.models,
        backends=options.backends,
        precisions=options.precisions,
        batch_sizes=options.batches,
        sequence_lengths=options.seq_lengths,
        boundaries=options.boundaries,
        modes=options.modes,
        settings=options.settings,
        tune=options.tune,
        rounds=options.rounds,
        max_rounds=options.max_rounds,
        target_interval=options.target_interval,
        budget_s=options.budget,
    )
    config = read_config(options.config)
    digest = hashlib.sha256(options.config.read_bytes()).hexdigest()
    final = apply(config, chosen)
    devices.require(final.device)
    quantised = _quantised(final)
    make_plan(config.model_copy(update={"device": final.device}), str(options.config), digest, quantised=quantised)
    plan = make_plan(final, str(options.config), digest, merge=True, quantised=quantised)
    results = Results(options.results)
    # A run that began with other settings must not find its samples left out by this one at its end.
    with exclusive(results.lock):
        changed = store.save(results.plan, plan)
        store.save_bytes(results.command, f"{shlex.join(['python', '-m', 'harness.plan', *arguments])}\n".encode())
    for refused in BACKENDS.all_refused():
        cli.warn(f"{refused.problem} {refused.hint}")
    _describe(plan, results.plan, changed, options.list)


def _quantised(config: Config) -> dict[str, Quantisation]:
    """How the users' ONNX files among the models are quantised, of those that are."""
    found = {}
    for entry in config.models:
        prefix, _, reference = entry.name.partition(":")
        kind = quantisation_of(Path(reference)) if prefix == "onnx" else None
        if kind is not None:
            cli.say(f"{entry.name} is quantised already ({kind}): its rows are int8")
            found[entry.name] = kind
    return found


def _parser() -> cli.Parser:
    parser = cli.parser("harness.plan", __doc__)
    parser.add_argument("--config", type=Path, default=Path("configs/quickstart.yaml"))
    parser.add_argument("--device", choices=("cpu", "cuda"), help="instead of the configuration's")
    text = "comma-separated, instead of the configuration's"
    parser.add_argument("--models", type=_list(str), default=(), help=f"{text}; `name@seeded` names the weights")
    parser.add_argument("--backends", type=_list(str), default=(), help=text)
    parser.add_argument("--precisions", type=_list(_one_of("precision", Precision)), default=(), help=text)
    parser.add_argument("--batches", type=_list(_positive), default=(), help=text)
    parser.add_argument("--seq-lengths", type=_list(_positive), default=(), help=text)
    parser.add_argument("--boundaries", type=_list(_one_of("boundary", Boundary)), default=(), help=text)
    parser.add_argument("--modes", type=_list(_one_of("mode", Mode)), default=(), help=text)
    parser.add_argument(
        "--settings", type=_list(str), default=(), help="named settings of the backends; excludes --tune"
    )
    parser.add_argument("--tune", action="store_true", help="try each backend's settings and measure the fastest fully")
    parser.add_argument("--rounds", type=_positive, help="fresh processes per case, instead of the configuration's")
    parser.add_argument("--max-rounds", type=_positive, help="further rounds, up to this, where the interval is wide")
    parser.add_argument(
        "--target-interval", type=amounts.share, help="half-width of the 95%% CI that ends a case's rounds, as 0.5%%"
    )
    parser.add_argument("--budget", type=amounts.duration_s, help="time after which no further round begins, as 10m")
    parser.add_argument("--list", action="store_true", help="print every case")
    cli.add_folders(parser)  # exports are no matter of a plan, but command.txt says whose they are
    return parser


def _describe(plan: Plan, path: Path, changed: bool, every_case: bool) -> None:
    runnable = [case for case in plan.cases if case.skip_reason is None]
    skipped = len(plan.cases) - len(runnable)
    backends = list(dict.fromkeys(case.backend for case in plan.cases))
    cli.say(f"Plan {plan.plan_id} ({'written' if changed else 'unchanged'}): {path}")
    cli.say(f"  models    {', '.join(f'{model.name} ({model.weights})' for model in plan.models)}")
    cli.say(f"  backends  {', '.join(backends)} on {plan.device}")
    cli.say(
        f"  cases     {len(runnable)} to measure in {units.count(plan.measurement.rounds, 'round')}"
        + (f", {skipped} skipped with their reason in the report" if skipped else "")
    )
    if further := further_in_words(plan.measurement):
        cli.say(f"  further   {further}")
    cli.say(f"  time      {in_words(estimate(plan))} to measure, besides export")
    if every_case:
        for case in plan.cases:
            cli.say(f"  {case.case_id}" + (f"  skipped: {case.skip_reason}" if case.skip_reason else ""))


def _list(item: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """A converter of `a,b,c`; an empty text is an empty choice, as Make passes it."""

    def convert(text: str) -> tuple[T, ...]:
        return tuple(item(part) for part in dict.fromkeys(text.replace(" ", ",").split(",")) if part)

    return convert


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() and len(text) <= len(str(MOST)) else 0
    if not 1 <= number <= MOST:
        problem = f"`{shortened(text, 40)}` is not a whole number from 1 to {MOST:,}."
        raise UsageError(problem, "For example: BATCHES=1,8 ROUNDS=3.")
    return number


def _one_of(what: str, kind: Any) -> Callable[[str], str]:
    known = get_args(kind)

    def convert(text: str) -> str:
        if text not in known:
            raise UsageError(f"Unknown {what} `{text}`.", f"Known: {', '.join(known)}.")
        return text

    return convert


if __name__ == "__main__":
    cli.main(stage)
