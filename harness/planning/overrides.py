"""Applies command-line options to a configuration (pure).

Models and backends select blocks: a block keeps those of its own that are asked for, and is left out where it has
none. A model that no block names gets the lists of the first block; a backend that no block names replaces those of
all. Every other option replaces one list in all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, get_args

from pydantic import ValidationError

from harness.aggregation.more_rounds import MANY_ROUNDS
from harness.backends import BACKENDS
from harness.core.errors import UsageError
from harness.core.schemas import Boundary, Device, Exporter, ExportOptions, Measurement, ModeName, Precision, Scenario
from harness.core.schemas.load_record import Batching
from harness.core.text import shortened
from harness.planning.config import READ_BY, Config, GenerationBlock, MatrixBlock, ModelEntry, ScenarioBlock

Name = TypeVar("Name", bound=str)

_SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)
_WORDS: Mapping[str, str] = {
    "rates": "rates",
    "bound": "a bound",
    "batching": "a choice of batching",
    "max_delay": "a delay of batches",
    "max_batch": "batches of requests",
    "workers": "a number of workers",
    "in_flight": "batches in flight",
    "clients": "a number of clients",
    "samples": "samples of a query",
}
"""Options that not all scenarios have."""
_LISTS = ("precisions", "batch_sizes", "sequence_lengths", "boundaries", "modes", "settings")


@dataclass(frozen=True)
class LoadOverrides:
    """Options that replace keys of all `scenarios`; empty, None and False leave them unchanged."""

    bound: str | None = None
    rates: Sequence[float] = ()
    max_batch: Sequence[int] = ()
    batching: Sequence[Batching] = ()
    max_delay: Sequence[str] = ()
    workers: Sequence[int] = ()
    in_flight: Sequence[int] = ()
    clients: Sequence[int] = ()
    samples: int | None = None
    loadgen: bool = False
    replications: int | None = None
    requests: int | None = None
    duration: str | None = None
    price_per_hour: float | None = None
    endpoint: str | None = None
    prompt_lengths: Sequence[int] = ()
    new_tokens: Sequence[int] = ()
    lengths: Sequence[tuple[int, int]] = ()
    """Pairs of both, from a file."""


@dataclass(frozen=True)
class Overrides:
    """The command-line options; empty or None leaves the configuration unchanged."""

    device: Device | None = None
    models: Sequence[str] = ()
    backends: Sequence[str] = ()
    precisions: Sequence[Precision] = ()
    batch_sizes: Sequence[int] = ()
    sequence_lengths: Sequence[int] = ()
    boundaries: Sequence[Boundary] = ()
    modes: Sequence[ModeName] = ()
    settings: Sequence[str] = ()
    tune: bool = False
    rounds: int | None = None
    max_rounds: int | None = None
    target_interval: float | None = None
    budget_s: float | None = None
    exporter: Exporter | None = None
    inputs: Sequence[str] = ()
    prompt_lengths: Sequence[int] = ()
    prompts: str | None = None
    new_tokens: Sequence[int] = ()
    scenarios: Sequence[Scenario] = ()
    load: LoadOverrides | None = None
    loads_alone: bool = False
    """True for a plan of load cases alone: the server scenario, where neither the options nor the file name another."""


DEFAULT_MAX_ROUNDS = MANY_ROUNDS
"""Default of max_rounds where an interval or a budget is given."""

MOST_ROUNDS = 100
"""Largest number that Measurement allows."""


def apply_overrides(config: Config, chosen: Overrides) -> Config:
    """The configuration with the options applied; its blocks may then overlap (make_plan merges them)."""
    chosen = _load_plan_options(chosen)
    update: dict[str, object] = {"matrix": _matrix(config, chosen)[0], "generation": _generation(config, chosen)[0]}
    if chosen.prompts is not None:
        update["generating"] = config.generating.model_copy(update={"prompts": chosen.prompts})
    if chosen.device:
        update["device"] = chosen.device
    if chosen.models:
        update["models"] = _chosen_models(config, chosen)
    if chosen.inputs:
        own = {"inputs": tuple(chosen.inputs)}
        entries = _chosen_models(config, chosen)
        update["models"] = tuple(entry.model_copy(update=own) for entry in entries)
    if chosen.exporter:
        update["export"] = ExportOptions(exporter=chosen.exporter)
    update["measurement"] = _measurement(config.measurement, chosen)
    update["scenarios"] = _scenarios(config.scenarios, chosen)
    return config.model_copy(update=update)


def left_out(config: Config, chosen: Overrides) -> tuple[str, ...]:
    """A line for each part of the configuration that the choice of backends leaves out."""
    chosen = _load_plan_options(chosen)
    return (*_matrix(config, chosen)[1], *_generation(config, chosen)[1])


def _load_plan_options(chosen: Overrides) -> Overrides:
    """The options; where only loads are planned, with the running service, and lengths of prompts as lengths of
    requests."""
    if chosen.load is not None and chosen.load.endpoint:
        return _for_endpoint(chosen, chosen.load)
    return _with_lengths(chosen) if chosen.loads_alone else chosen


def _for_endpoint(chosen: Overrides, load: LoadOverrides) -> Overrides:
    """The options with the running service as the only backend. A precision chooses only the tolerance of answers; the
    lengths of prompts and outputs become the lengths of its completions."""
    if chosen.backends or chosen.device == "cuda":
        raise UsageError(
            "ENDPOINT names the service to load, so that there is no backend or device to choose.",
            "Leave BACKENDS and DEVICE out.",
        )
    remote = [name for name, info in BACKENDS.items() if info.remote]
    precisions = chosen.precisions or ("fp32",)
    return _with_lengths(replace(chosen, backends=remote, precisions=precisions, device="cpu", load=load))


def _with_lengths(chosen: Overrides) -> Overrides:
    """The options with the lengths of prompts and outputs moved from the blocks of generation to the scenarios."""
    if chosen.prompts:
        raise UsageError(
            f"{shortened(chosen.prompts, 60)} has texts, and a load has prompts of our own.",
            "Give their lengths: PROMPTS=128 TOKENS=64, or a file with lines `<prompt tokens> <new tokens>`.",
        )
    load = chosen.load or LoadOverrides()
    lengths = replace(load, prompt_lengths=chosen.prompt_lengths, new_tokens=chosen.new_tokens)
    return replace(chosen, load=lengths, prompt_lengths=(), new_tokens=())


def _scenarios(blocks: Sequence[ScenarioBlock], chosen: Overrides) -> tuple[ScenarioBlock, ...]:
    """The scenarios with the options applied. Raises UsageError for options of scenarios where there are none."""
    given = chosen.load or LoadOverrides()
    replaced = {
        name: tuple(value) if isinstance(value, list | tuple) else value
        for name, value in vars(given).items()
        if value not in (None, (), False)
    }
    names = chosen.scenarios or (("server",) if chosen.loads_alone and not blocks else ())
    if names:
        known = {block.scenario: block for block in blocks}
        blocks = [known.get(name) or ScenarioBlock(scenario=name) for name in names]
    if replaced and not blocks:
        raise UsageError(
            f"`{next(iter(replaced))}` belongs to a scenario, and none is planned.", "Name one: SCENARIOS=server."
        )
    if chosen.models:
        blocks = [block.model_copy(update={"models": None}) for block in blocks]
    if chosen.backends:
        blocks = [block.model_copy(update={"backends": None}) for block in blocks]
    if chosen.precisions:
        blocks = [block.model_copy(update={"precisions": None}) for block in blocks]
    for name in [name for name in _WORDS if name in replaced]:
        if all(block.scenario not in READ_BY[name] for block in blocks):
            raise UsageError(
                f"No scenario here has {_WORDS[name]}, as {' and '.join(READ_BY[name])}.", f"Leave {name.upper()} out."
            )
    return tuple(
        _changed(
            block, {key: value for key, value in replaced.items() if block.scenario in READ_BY.get(key, _SCENARIOS)}
        )
        for block in blocks
    )


def _changed(block: ScenarioBlock, update: Mapping[str, object]) -> ScenarioBlock:
    """The block with these values, checked as in a file. Raises UsageError."""
    try:
        return ScenarioBlock.model_validate({**dict(block), **update})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).upper() if first["loc"] else "A scenario"
        raise UsageError(f"{name} is not possible: {first['msg']}.", "configs/README.md lists every key.") from error


def _chosen_models(config: Config, chosen: Overrides) -> tuple[ModelEntry, ...]:
    """The selected models, or all of the configuration."""
    return tuple(_entry(config, name) for name in chosen.models) if chosen.models else config.models


def _measurement(settings: Measurement, chosen: Overrides) -> Measurement:
    """The measurement settings with the options for rounds. Raises UsageError where these contradict each other."""
    names = ("rounds", "max_rounds", "target_interval", "budget_s")
    given = {name: value for name in names if (value := getattr(chosen, name)) is not None}
    adaptive = chosen.target_interval is not None or chosen.budget_s is not None
    if adaptive and chosen.max_rounds is None and settings.max_rounds is None:
        given["max_rounds"] = max(DEFAULT_MAX_ROUNDS, given.get("rounds", settings.rounds))
    updated = settings.model_copy(update=given)
    if max(updated.rounds, updated.max_rounds or 0) > MOST_ROUNDS:
        raise UsageError(f"More than {MOST_ROUNDS} rounds.", f"Ask for at most {MOST_ROUNDS}.")
    if chosen.max_rounds is not None and chosen.max_rounds < updated.rounds:
        raise UsageError(
            f"At most {chosen.max_rounds} rounds, and {updated.rounds} are planned in any case.",
            f"Raise MAX_ROUNDS, or plan fewer: ROUNDS={chosen.max_rounds}.",
        )
    return updated


def _generation(config: Config, chosen: Overrides) -> tuple[tuple[GenerationBlock, ...], list[str]]:
    """The blocks of generation with the options that they have, and what the choice of backends leaves out."""
    if (chosen.prompt_lengths or chosen.new_tokens or chosen.prompts) and not config.generation:
        raise UsageError(
            "Prompts and tokens were given, and this configuration has no `generation` block.",
            "make generate plans from configs/generation.yaml; or add a block.",
        )
    names = ("precisions", "batch_sizes", "settings", "prompt_lengths", "new_tokens")
    replaced: dict[str, object] = {name: tuple(getattr(chosen, name)) for name in names if getattr(chosen, name)}
    device = chosen.device or config.device

    def has(backend: str, setting: str) -> bool:
        return setting in BACKENDS[backend].decoder_settings_on(device)

    selected, notes = _for_backends(config.generation, chosen, has, "generation")
    blocks = [block.model_copy(update=replaced) for block in selected]
    if chosen.models:
        blocks = _for_models(blocks, [_name(text) for text in chosen.models])
    return tuple(blocks), notes


_Block = TypeVar("_Block", MatrixBlock, GenerationBlock)


def _for_backends(
    blocks: Sequence[_Block], chosen: Overrides, has: Callable[[str, str], bool], what: str
) -> tuple[list[_Block], list[str]]:
    """The blocks with the chosen backends, and what is left out. has: whether a backend has a setting.

    A block with other backends keeps the settings that one of them has; without any, they run in their usual one.
    """
    if not chosen.backends:
        return list(blocks), []
    named = {name for block in blocks for name in block.backends}
    kept: list[_Block] = []
    lost: list[str] = []
    notes: list[str] = []
    for block in blocks:
        backends = tuple(name for name in chosen.backends if name in block.backends or name not in named)
        if not backends:
            continue
        given = () if set(backends) >= set(block.backends) or chosen.settings else block.settings or ()
        missed = [name for name in given if not any(has(backend, name) for backend in backends if backend in BACKENDS)]
        if missed:
            lost.append(f"{', '.join(missed)}, {'settings' if len(missed) > 1 else 'a setting'} of other backends")
        settings = tuple(name for name in block.settings or () if name not in missed) or None
        kept.append(block.model_copy(update={"backends": backends, "settings": settings}))
    without = len(blocks) - len(kept)
    if without:
        notes.append(f"{without} of {len(blocks)} entries of `{what}`: they name other backends")
    return kept, [*notes, *dict.fromkeys(lost)]


def _matrix(config: Config, chosen: Overrides) -> tuple[tuple[MatrixBlock, ...], list[str]]:
    """The blocks with the options, and what the choice of backends leaves out."""
    if not config.matrix:
        return (), []
    device = chosen.device or config.device

    def has(backend: str, setting: str) -> bool:
        return BACKENDS[backend].has_setting(device, setting)

    selected, notes = _for_backends(config.matrix, chosen, has, "matrix")
    replaced: dict[str, object] = {name: tuple(getattr(chosen, name)) for name in _LISTS if getattr(chosen, name)}
    if chosen.settings:
        replaced["tune"] = False
    if chosen.tune:
        replaced.update(tune=True, settings=None)
    # Not every boundary has every mode: a chosen boundary must not be combined with a block's modes, or vice versa.
    if chosen.boundaries:
        replaced.setdefault("modes", ("sync",))
    elif chosen.modes:
        replaced["boundaries"] = ("compute",)
    blocks = [block.model_copy(update=replaced) for block in selected]
    if chosen.models:
        blocks = _for_models(blocks, [_name(text) for text in chosen.models])
    # `BACKENDS=noop` leaves no case in a block of quantised files: such blocks are dropped, unless all are.
    able = [block for block in blocks if _runs_something(block, device)] or blocks
    if without := [block for block in blocks if block not in able]:
        precisions = ", ".join(dict.fromkeys(name for block in without for name in block.precisions))
        notes.append(f"entries in {precisions}: their backends do not run it")
    if chosen.precisions or chosen.backends:
        able, narrowed = _with_own_precisions(able, device, asked=bool(chosen.precisions))
        notes += narrowed
    return tuple(_with_own_settings(able, device) if chosen.settings else able), notes


def _with_own_settings(blocks: Sequence[MatrixBlock], device: Device) -> list[MatrixBlock]:
    """Keep a chosen setting only in blocks with its backend; make_plan refuses a name that no block has."""
    had = [{name for name in block.settings or () if _has_setting(block, device, name)} for block in blocks]
    kept = _names_by_block([block.settings or () for block in blocks], had)
    return [block.model_copy(update={"settings": names or None}) for block, names in zip(blocks, kept, strict=True)]


def _with_own_precisions(
    blocks: Sequence[MatrixBlock], device: Device, asked: bool
) -> tuple[list[MatrixBlock], list[str]]:
    """Keep a precision only in blocks whose backends run it, and a note for each that a block loses; make_plan refuses
    a precision that was asked for and no block runs, and blocks that run nothing."""
    run = [_precisions_of(block, device) for block in blocks]
    if asked:
        kept = _names_by_block([block.precisions for block in blocks], run)
    else:
        kept = [
            tuple(name for name in block.precisions if name in names) or block.precisions
            for block, names in zip(blocks, run, strict=True)
        ]
    lost = [
        f"{name} of {', '.join(block.backends)} ({', '.join((*block.boundaries, *block.modes))})"
        for block, names in zip(blocks, kept, strict=True)
        for name in block.precisions
        if name not in names
    ]
    narrowed = [block.model_copy(update={"precisions": names}) for block, names in zip(blocks, kept, strict=True)]
    return narrowed, list(dict.fromkeys(lost))


def _names_by_block(chosen: Sequence[Sequence[Name]], had: Sequence[set[Name]]) -> list[tuple[Name, ...]]:
    """The chosen names that each block has, then the names that no block has."""
    known = set().union(*had)
    return [
        tuple(name for name in names if name in own or name not in known)
        for names, own in zip(chosen, had, strict=True)
    ]


def _has_setting(block: MatrixBlock, device: Device, name: str) -> bool:
    return any(BACKENDS[backend].has_setting(device, name) for backend in block.backends if backend in BACKENDS)


def _runs_something(block: MatrixBlock, device: Device) -> bool:
    """False where none of its backends has any of its precisions; make_plan refuses unknown names."""
    return bool(_precisions_of(block, device))


def _precisions_of(block: MatrixBlock, device: Device) -> set[Precision]:
    """Those precisions of a block that one of its backends runs; all where a name of a backend is unknown."""
    known = [BACKENDS[name] for name in block.backends if name in BACKENDS]
    if len(known) < len(block.backends):
        return set(block.precisions)
    return {name for name in block.precisions if any(name in table.precisions.get(device, ()) for table in known)}


def _for_models(blocks: Sequence[_Block], names: Sequence[str]) -> list[_Block]:
    """Restrict the blocks to the chosen models; a model that is in no block gets the first block's lists."""
    kept = [
        block if block.models is None else block.model_copy(update={"models": common})
        for block in blocks
        if block.models is None or (common := tuple(name for name in block.models if name in names))
    ]
    covered = {name for block in kept for name in (names if block.models is None else block.models)}
    missing = tuple(name for name in names if name not in covered)
    if missing and blocks:
        kept.append(blocks[0].model_copy(update={"models": missing}))
    return kept


def _name(text: str) -> str:
    return text.rpartition("@")[0] if text.endswith(("@seeded", "@pretrained")) else text


def _entry(config: Config, text: str) -> ModelEntry:
    """`resnet50` keeps the configuration's weights for it; `resnet50@seeded` names them."""
    name = _name(text)
    if not name:
        raise UsageError(f"`{text}` names no model.", "Write MODELS=<name> or MODELS=<name>@seeded.")
    known = {entry.name: entry for entry in config.models}
    try:
        model = known.get(name) or ModelEntry(name=name)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise UsageError(f"`{shortened(name, 60)}` is no model's name: {why}.", "`make models` lists them.") from error
    weights = text.rpartition("@")[2] if name != text else model.weights
    # Tolerances belong to a model with its weights: for other weights they have no meaning.
    other = {"name": name, "weights": weights, "inputs": model.inputs}
    return model if weights == model.weights else ModelEntry.model_validate(other)
