"""Expand the configuration's matrix into all cases, each of which gets a result.

reads   configs/<name>.yaml
writes  results/plan.json, command.txt, written/plan.json
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from harness.backends import BACKENDS
from harness.core import (
    cli,
    file_sums,
    hints,
    store,
    units,
)
from harness.core.errors import UnavailableError, UsageError
from harness.core.host import gpu
from harness.core.layout import Models, Results
from harness.core.lock import exclusive
from harness.core.parallel import without_garbage_collection
from harness.core.safe_files import SizeLimit, read
from harness.core.schemas import (
    Boundary,
    Case,
    Exporter,
    GenerationCase,
    GivenInputs,
    ModeName,
    Plan,
    Precision,
    Scenario,
    Weights,
)
from harness.core.schemas.load_record import Batching
from harness.core.text import portable, portable_path, short_names, shortened, unknown_name
from harness.pipeline import TEXTS
from harness.planning.config import (
    MOST,
    Config,
    find_configuration,
    parse_duration_s,
    parse_price,
    parse_rate,
    parse_share,
    read_config,
)
from harness.planning.exports import known_exports
from harness.planning.load_cases import NO_SAMPLES, load_time_in_words
from harness.planning.matrix import make_plan
from harness.planning.overrides import LoadOverrides, Overrides, apply_overrides, left_out
from harness.planning.resume import refuse_folder_of_ab
from harness.planning.run_time import (
    SampleTimes,
    engines_in_words,
    expected_sample_times,
    further_in_words,
    time_in_words,
    tuning_in_words,
)
from harness.zoo import ModelInfo, model_info
from harness.zoo.file_graph import FileGraph, fixed_batch_of, graph_of
from harness.zoo.input_files import describe_inputs, length_pairs
from harness.zoo.model_files import DecoderFacts, facts_of
from harness.zoo.quantised_files import DEQUANTISED, FileQuantisation, quantisation_of
from harness.zoo.sources import is_model_file, onnx_path, require_files, with_prefix

T = TypeVar("T")


@without_garbage_collection()
def stage(arguments: Sequence[str]) -> None:
    """Read, expand, check, save, and print what would run."""
    options = _parser().parse_args(arguments)
    results = Results(options.results)
    if not options.ab:
        refuse_folder_of_ab(results, "plan")
    chosen = _overrides(options)
    path = find_configuration(options.config)
    config = read_config(path)
    digest = hashlib.sha256(read(path, SizeLimit.TEXT)).hexdigest()
    final = apply_overrides(config, chosen).portable()
    config = config.portable()
    source = portable_path(str(options.config))
    gpu.require(final.device)
    paths = {entry.name: onnx_path(entry.name) for entry in final.models}
    files = {name: graph_of(own) for name, own in paths.items() if own is not None}
    quantised = _quantised(files)
    fixed = {name: size for name, graph in files.items() if (size := fixed_batch_of(graph)) is not None}
    # Of the file alone first: an error in it is not one of the options.
    base = config.model_copy(update={"device": final.device, "scenarios": ()})
    plan = make_plan(base, source, digest, quantised=quantised, fixed=fixed)
    given = _own_inputs(final)
    final, pairs = _own_prompts(final)
    if final != base or given or pairs or options.load:
        plan = make_plan(
            final,
            source,
            digest,
            merge=True,
            quantised=quantised,
            inputs=given,
            loads_alone=options.load,
            pairs=pairs,
            fixed=fixed,
        )
    for name in dict.fromkeys([*(model.name for model in plan.models), *(case.model for case in plan.generations)]):
        require_files(name)
    _require_a_case(plan)
    # A run that began with other settings must not lose its samples at its end because of this plan.
    with exclusive(results.lock):
        changed = store.save(results.plan, plan)
        line = hints.command_line(hints.front(), [portable(word) for word in arguments])
        file_sums.save(results, "plan", {results.command: line.encode()})
    for refused in BACKENDS.all_refused():
        cli.warn(f"{refused.problem} {refused.hint}")
    known = expected_sample_times(plan, known_exports(plan, results, Models(options.models_dir)))
    _describe(plan, results.plan, changed, known)
    for line in _left_out_lines(left_out(config, chosen), final, plan):
        cli.say(f"  left out  {line}")
    for name in () if chosen.models else config.models_without_block():
        cli.warn(f"{source} lists {name}, and no block has it: it is not measured. Add it to a block's `models`.")
    if options.list:
        _list_cases(plan)


def _overrides(options: argparse.Namespace) -> Overrides:
    """The overrides of the configuration that the options ask for."""
    prompts, lengths = _lengths_of_load(options)
    return Overrides(
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
        exporter=options.exporter or None,
        inputs=options.inputs,
        prompt_lengths=options.prompts[0],
        prompts=prompts,
        new_tokens=options.tokens,
        scenarios=options.scenarios,
        load=LoadOverrides(
            bound=options.bound or None,
            rates=options.rates,
            max_batch=options.max_batch,
            batching=options.batching,
            max_delay=options.max_delay,
            workers=options.workers,
            in_flight=options.in_flight,
            clients=options.clients,
            samples=options.samples,
            loadgen=options.loadgen,
            replications=options.replications,
            requests=options.requests,
            duration=options.duration or None,
            price_per_hour=options.price,
            endpoint=options.endpoint or None,
            lengths=lengths,
        ),
        loads_alone=options.load,
    )


def _require_a_case(plan: Plan) -> None:
    """Raise UnavailableError where every case and load is skipped."""
    every = [case.skip_reason for cases in (plan.cases, plan.generations, plan.loads) for case in cases]
    reasons = dict.fromkeys(reason for reason in every if reason is not None)
    if None not in every:
        hint = "Choose another backend, precision, boundary, mode or batch size."
        if NO_SAMPLES in reasons:
            hint = "Export that file again with a dynamic batch axis, or with the batch size to measure."
        raise UnavailableError(f"Nothing can be measured, every case is skipped: {'; '.join(reasons)}.", hint)


def _left_out_lines(blocks: Sequence[str], config: Config, plan: Plan) -> list[str]:
    """A line for each part of the configuration's blocks that the options leave out, and for models without any
    case."""
    planned = {case.model for cases in (plan.cases, plan.generations, plan.loads) for case in cases}
    models = [entry.name for entry in config.models if entry.name not in planned]
    return [*blocks, *([f"{', '.join(models)}: no entry of it is left"] if blocks and models else [])]


def _quantised(files: Mapping[str, FileGraph]) -> dict[str, FileQuantisation]:
    """Quantisation of the user's ONNX files, for those that are quantised; a line for each."""
    kinds = {}
    for name, graph in files.items():
        kind = quantisation_of(graph)
        if kind is None:
            continue
        kinds[name] = kind
        if kind == "weights":
            cli.say(f"{name} is {DEQUANTISED}: its rows are those of other files, and none is int8")
        else:
            cli.say(f"{name} is quantised already ({kind}): its rows are int8")
    return kinds


def _own_inputs(config: Config) -> dict[str, tuple[GivenInputs, ...]]:
    """The user's own inputs, by model, for models that have any."""
    own = {}
    for entry in config.models:
        if entry.inputs:
            info = model_info(entry.name)
            own[entry.name] = given = describe_inputs(entry.inputs, info.kind)
            _require_reader(info, entry.weights or info.default_weights, given)
    return own


def _require_reader(info: ModelInfo, weights: Weights, given: Sequence[GivenInputs]) -> None:
    """Raise UsageError where a file holds texts and the model reads none with padding. Of a model on the hub, whose
    configuration is not here, the export says it."""
    texts = next((file.path for file in given if file.holds_texts), None)
    if texts is None:
        return
    if info.kind != "text":
        raise UsageError(
            f"{texts} holds texts, and {info.name} has no tokenizer here.",
            "Give its inputs as arrays: INPUTS=<file>.npz.",
        )
    if isinstance(facts_of(info, weights), DecoderFacts):
        raise UsageError(
            f"{texts} holds texts, and {info.name} answers with the next token: after a padded text, that of padding.",
            "Give an encoder or a classifier. To generate, a decoder reads a file of prompts: PROMPTS=<file>.",
        )


def _own_prompts(config: Config) -> tuple[Config, list[tuple[int, int]]]:
    """The configuration with the hash of the user's prompts; or without the file, and the length pairs that it has."""
    if config.generating.prompts is None:
        return config, []
    path = Path(config.generating.prompts).expanduser()
    pairs = length_pairs(path)
    update = {"prompts": None} if pairs else {"prompts_sha256": store.sha256_file(path)}
    own = list(dict.fromkeys(pairs or []))
    return config.model_copy(update={"generating": config.generating.model_copy(update=update)}), own


def _lengths_of_load(options: argparse.Namespace) -> tuple[str | None, tuple[tuple[int, int], ...]]:
    """The file of prompts of a plan, or for a plan of loads the length pairs in it, as often as it has them."""
    file = options.prompts[1]
    if file is None or not (options.load or options.endpoint):
        return file, ()
    pairs = length_pairs(Path(file).expanduser())
    return (file, ()) if pairs is None else (None, tuple(pairs))


def _prompts(text: str) -> tuple[tuple[int, ...], str | None]:
    """Lengths and a file of prompts from `128,1024` or `prompts.txt`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    files = [part for part in parts if not part.isdecimal()]
    if len(files) > 1:
        raise UsageError(f"{files[0]} and {files[1]} are two files of prompts.", "Name one, and lengths beside it.")
    lengths = dict.fromkeys(map(_positive("PROMPTS"), filter(str.isdecimal, parts)))
    return tuple(lengths), next(iter(files), None)


def _parser() -> cli.Parser:
    parser = cli.parser("harness.plan", __doc__)
    usual = Path("configs/quickstart.yaml")
    parser.add_argument("--config", type=cli.path, default=usual, help=f"configuration ({usual})")

    def add(option: str, **how: Any) -> None:
        parser.add_argument(option, help=TEXTS[option], **how)

    add("--device", choices=("cpu", "cuda"))
    add("--models", type=_models, default=())
    add("--backends", type=_list(str), default=())
    add("--precisions", type=_list(_one_of("precision", Precision)), default=())
    add("--batches", type=_list(_positive("BATCHES")), default=())
    add("--seq-lengths", type=_list(_positive("SEQ_LENGTHS")), default=())
    add("--boundaries", type=_list(_one_of("boundary", Boundary)), default=())
    add("--modes", type=_list(_one_of("mode", ModeName)), default=())
    add("--settings", type=_list(str), default=())
    add("--inputs", type=_files, default=())
    add("--exporter", type=_one_of("exporter", Exporter))
    add("--prompts", type=_prompts, default=((), None))
    add("--tokens", type=_list(_positive("TOKENS")), default=())
    add("--tune", action="store_true")
    add("--rounds", type=_positive("ROUNDS"))
    add("--max-rounds", type=_positive("MAX_ROUNDS"))
    add("--target-interval", type=parse_share)
    add("--budget", type=parse_duration_s)
    add("--scenarios", type=_list(_one_of("scenario", Scenario)), default=())
    add("--bound")
    add("--rates", type=_list(parse_rate), default=())
    add("--max-batch", type=_list(_positive("MAX_BATCH")), default=())
    add("--batching", type=_list(_one_of("batching", Batching)), default=())
    add("--max-delay", type=_list(str), default=())
    add("--workers", type=_list(_positive("WORKERS")), default=())
    add("--in-flight", type=_list(_positive("IN_FLIGHT")), default=())
    add("--clients", type=_list(_positive("CLIENTS")), default=())
    add("--samples", type=_positive("SAMPLES"))
    add("--replications", type=_positive("REPLICATIONS"))
    add("--requests", type=_positive("REQUESTS"))
    add("--duration")
    add("--price", type=parse_price)
    add("--loadgen", action="store_true")
    add("--endpoint")
    parser.add_argument("--load", action="store_true", help="plan scenarios alone: server where none is named")
    parser.add_argument("--list", action="store_true", help="print every case")
    parser.add_argument("--ab", action="store_true", help="for the stage `ab`, which plans two states in their folders")
    cli.add_folders(
        parser
    )  # a plan does not depend on exports; its expected time does, and command.txt records their folder
    return parser


def _describe(plan: Plan, path: Path, changed: bool, known: SampleTimes) -> None:
    every: list[Case | GenerationCase] = [*plan.cases, *plan.generations]
    runnable = [case for case in every if case.skip_reason is None]
    skipped = len(every) - len(runnable)
    backends = list(dict.fromkeys([*(case.backend for case in every), *(load.backend for load in plan.loads)]))
    weights: dict[str, str] = {model.name: model.weights for model in plan.models}
    weights |= {case.model: case.weights for case in plan.generations}
    cli.say(f"Plan {plan.plan_id} ({'written' if changed else 'unchanged'}): {path}")
    short = short_names(weights)
    cli.say(f"  models    {', '.join(f'{short[name]} ({own})' for name, own in weights.items())}")
    cli.say(f"  backends  {', '.join(backends)} on {plan.device}")
    if every:
        cli.say(
            f"  cases     {len(runnable)} to measure in {units.count(plan.measurement.rounds, 'round')}"
            + (f", {skipped} skipped, with the reason in the report" if skipped else "")
        )
    if runnable and plan.cases and (further := further_in_words(plan.measurement)):
        cli.say(f"  further   {further}")
    if tuning := tuning_in_words(plan, known):
        cli.say(f"  tuning    {tuning}")
    if engines := engines_in_words(plan):
        cli.say(f"  engines   {engines}")
    if runnable:
        cli.say(f"  time      {time_in_words(plan, known)}")
    if plan.loads:
        skipped = sum(load.skip_reason is not None for load in plan.loads)
        left_out = f", {skipped} skipped, with the reason in the report" if skipped else ""
        cli.say(f"  loads     {units.count(len(plan.loads) - skipped, 'load case')}{left_out}")
        cli.say(f"  load time {load_time_in_words(plan.loads)}")


def _list_cases(plan: Plan) -> None:
    every = [(case.case_id, case.skip_reason) for cases in (plan.cases, plan.generations) for case in cases]
    for name, reason in (*every, *((load.load_id, load.skip_reason) for load in plan.loads)):
        cli.say(f"  {name}" + (f"  skipped: {reason}" if reason else ""))


def _list(part_of: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """A converter of `a,b,c`; an empty text, as Make passes it, is an empty choice."""

    def convert(text: str) -> tuple[T, ...]:
        return tuple(part_of(part) for part in _parts(text.replace(" ", ",")))

    return convert


def _parts(text: str, split: Callable[[str], list[str]] = lambda text: text.split(",")) -> list[str]:
    """The parts between commas, each once. Raises UsageError for commas alone: no choice would measure everything."""
    parts = list(dict.fromkeys(part.strip() for part in split(text) if part.strip()))
    if text.strip() and not parts:
        raise UsageError(f"`{shortened(text, 40)}` names nothing.", "Name at least one, or leave the option out.")
    return parts


def _between_paths(text: str) -> list[str]:
    """The parts between commas, except that the longest row of parts that is a path of this machine stays whole."""
    parts, kept = text.split(","), list[str]()
    while parts:
        rows = {count: ",".join(parts[:count]) for count in range(len(parts), 1, -1)}
        count = next((count for count, row in rows.items() if _is_there(row)), 1)
        kept.append(",".join(parts[:count]))
        del parts[:count]
    return kept


def _is_there(name: str) -> bool:
    """Whether a name, with or without its prefix, is the path of a file or folder; a folder's has a slash."""
    paths = [Path(text) for text in (name.strip(), re.sub(r"^\w+:", "", name.strip()))]
    try:
        return any(
            path.expanduser().is_file() or (len(path.parts) > 1 and path.expanduser().is_dir()) for path in paths
        )
    except (OSError, ValueError, RuntimeError):  # too long for a path, a zero byte, the home of an unknown user
        return False


def _files(text: str) -> tuple[str, ...]:
    """Paths may hold spaces, and commas where they exist."""
    return tuple(_parts(text, _between_paths))


def _models(text: str) -> tuple[str, ...]:
    """Names of models; a path may hold spaces, and commas where it exists, and needs no prefix."""
    parts = _parts(text, _between_paths)
    is_path = [is_model_file(part) or "/" in part for part in parts]
    names = [name for part, path in zip(parts, is_path, strict=True) for name in ([part] if path else part.split())]
    return tuple(dict.fromkeys(map(with_prefix, names)))


def _positive(variable: str) -> Callable[[str], int]:
    """Converts a whole number from 1 on; an error names the variable."""

    def convert(text: str) -> int:
        number = int(text) if text.isdecimal() and len(text) <= len(str(MOST)) else 0
        if not 1 <= number <= MOST:
            problem = f"`{shortened(text, 40)}` is not a whole number from 1 to {MOST:,}."
            raise UsageError(problem, f"For example: {variable}=8.")
        return number

    return convert


def _one_of(what: str, kind: Any) -> Callable[[str], str]:
    known = get_args(kind)

    def convert(text: str) -> str:
        if text not in known:
            raise UsageError(*unknown_name(what, text, known))
        return text

    return convert


if __name__ == "__main__":
    cli.main(stage)
