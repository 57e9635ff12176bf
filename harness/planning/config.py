"""Reads and checks a configuration file: its types, and one clear message for each mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness.core.errors import ConfigError
from harness.core.schemas import (
    Boundary,
    Device,
    EngineOptions,
    ExportOptions,
    GenerationOptions,
    Measurement,
    Mode,
    Precision,
    ReportOptions,
    Scenario,
    Tolerance,
)
from harness.core.schemas.load_record import MOST_BATCH, MOST_REPLICATIONS, MOST_REQUESTS, MOST_WORKERS, Batching
from harness.core.text import unknown_name
from harness.planning import yaml_file
from harness.zoo.sources import portable_name, with_prefix

MOST = 1_000_000
Positive = Annotated[int, Field(ge=1, le=MOST)]

DEFAULT_TOLERANCES: Mapping[Precision, Tolerance] = {
    # Default tolerances of METHOD.md §3, against fp32 eager with the same weights; int8: docs/decisions/0007-int8.md.
    "fp32": Tolerance(relative_l2=1e-4, top1_agreement=0.995),
    "tf32": Tolerance(relative_l2=5e-3, top1_agreement=0.995),
    "fp16": Tolerance(relative_l2=1e-2, top1_agreement=0.995),
    "bf16": Tolerance(relative_l2=3e-2, top1_agreement=0.95),
    # At most 1.3e-1 on a CPU (benchmarks/fp8_distance.py, decision 10); a GPU sums with less precision.
    "fp8": Tolerance(relative_l2=2e-1, cosine=0.98, top1_agreement=0.90),
    "int8": Tolerance(relative_l2=3e-1, cosine=0.97, top1_agreement=0.80),
    # Of generation: the reference has the very weights of 4 bits, so that activations of 8 bits are what differs.
    "int4": Tolerance(relative_l2=3e-1, cosine=0.97),
}


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def _as_list(value: object) -> object:
    # The result is no longer JSON, so that strict mode would not accept a list for a tuple.
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("control characters are not supported")
    return text


class ModelEntry(_Section):
    """One model: its zoo name, weights (None: the zoo's default), and its own tolerances and inputs."""

    name: Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_printable)]
    weights: Literal["pretrained", "seeded"] | None = None
    gates: dict[Precision, Tolerance] = {}
    inputs: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    """Files of the user's own inputs, one per shape; a single file needs no list."""


class MatrixBlock(_Section):
    """One block of the matrix: every combination of its lists. `models: null` means all models."""

    backends: Annotated[tuple[str, ...], Field(min_length=1)]
    models: tuple[str, ...] | None = None
    precisions: Annotated[tuple[Precision, ...], Field(min_length=1)] = ("fp32",)
    batch_sizes: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1,)
    sequence_lengths: Annotated[tuple[Positive, ...], Field(min_length=1)] = (128,)
    """Used for text models only."""
    boundaries: Annotated[tuple[Boundary, ...], Field(min_length=1)] = ("compute",)
    modes: Annotated[tuple[Mode, ...], Field(min_length=1)] = ("sync",)
    settings: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Named settings of the backends; a backend that has none of them runs with its usual setting."""
    tune: bool = False
    """Try each backend's short list of settings in round 1, and give the other rounds to the fastest."""


class GenerationBlock(_Section):
    """One block of generation: every combination of its lists. `models: null` means all models."""

    backends: Annotated[tuple[str, ...], Field(min_length=1)]
    models: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    precisions: Annotated[tuple[Precision, ...], Field(min_length=1)] = ("fp32",)
    batch_sizes: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1,)
    prompt_lengths: Annotated[tuple[Positive, ...], Field(min_length=1)] = (128,)
    """Tokens of a prompt."""
    new_tokens: Annotated[tuple[Positive, ...], Field(min_length=1)] = (128,)
    """Tokens that each sequence gets."""
    settings: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Named settings of the backends' decoders; a backend that has none of them runs with its usual setting."""


class ScenarioBlock(_Section):
    """One way to load the deployments of the matrix: every model, backend, precision and setting that it has.

    Lists of max_batch, max_delay and workers make a load case for each combination. The other defaults are in LoadCase.
    """

    scenario: Scenario
    models: tuple[str, ...] | None = None
    """None: all models of the matrix; likewise backends and precisions."""
    backends: tuple[str, ...] | None = None
    precisions: tuple[Precision, ...] | None = None
    bound: str | None = None
    """Server: `p99<50ms`; of generation also `ttft_p99<500ms,itl_p99<50ms`."""
    rates: Annotated[tuple[Annotated[float, Field(le=1e9)], ...], BeforeValidator(_as_list)] = ()
    factors: tuple[Annotated[float, Field(gt=0, le=10)], ...] = (0.9, 1.0, 1.1)
    max_batch: tuple[Annotated[int, Field(ge=1, le=MOST_BATCH)], ...] = (8,)
    """Server and offline."""
    batching: Annotated[tuple[Batching, ...], BeforeValidator(_as_list), Field(min_length=1)] = ("static",)
    """Server, of generation in a process of our own."""
    max_delay: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ("0ms",)
    """Server."""
    workers: tuple[Annotated[int, Field(ge=1, le=MOST_WORKERS)], ...] = ()
    """Server and offline: threads that serve; 1 where neither it nor in_flight is given."""
    in_flight: tuple[Annotated[int, Field(ge=1, le=MOST_WORKERS)], ...] = ()
    """Server and offline: batches in flight that one thread issues, besides the cases of `workers`."""
    clients: tuple[Annotated[int, Field(ge=1, le=MOST_WORKERS)], ...] = (1, 2, 4)
    """Concurrency."""
    samples: Annotated[int, Field(ge=1, le=MOST_BATCH)] = 8
    """Of a query of multi-stream."""
    loadgen: bool = False
    """One long run of each load by LoadGen's rules: its schedule, durations, counts, percentile and early stopping."""
    replications: Annotated[int, Field(ge=1, le=MOST_REPLICATIONS)] | None = None
    requests: Annotated[int, Field(ge=1, le=MOST_REQUESTS)] | None = None
    duration: str | None = None
    """Of a replication, as 4s."""
    service_duration: str | None = None
    """Of the measurement of service times, for each batch size."""
    price_per_hour: Annotated[float, Field(gt=0)] | None = None
    endpoint: str | None = None
    """Address of a running service of the model, which is then loaded in place of a backend."""
    prompt_lengths: tuple[Positive, ...] = ()
    """Generation, by the backends of `generation` or by a running service: tokens of prompts, and tokens that are asked
    for. Each combination is a load case."""
    new_tokens: tuple[Positive, ...] = ()
    lengths: tuple[tuple[Positive, Positive], ...] = ()
    """In their place a distribution: pairs of both, of which each request draws one."""

    @property
    def generates(self) -> bool:
        """Whether its requests are prompts."""
        return bool(self.prompt_lengths or self.new_tokens or self.lengths)


class Config(_Section):
    """A whole configuration file."""

    device: Device = "cpu"
    models: Annotated[tuple[ModelEntry, ...], Field(min_length=1)]
    matrix: Annotated[tuple[MatrixBlock, ...], Field(min_length=1)] = ()
    """May be absent where `generation` has a block."""
    generation: Annotated[tuple[GenerationBlock, ...], Field(min_length=1)] = ()
    measurement: Measurement = Measurement()
    gates: dict[Precision, Tolerance] = {}
    report: ReportOptions = ReportOptions()
    export: ExportOptions = ExportOptions()
    engines: EngineOptions = EngineOptions()
    generating: GenerationOptions = GenerationOptions()
    scenarios: tuple[ScenarioBlock, ...] = ()
    """What `load` measures; empty: nothing."""

    def portable(self) -> Config:
        """The same without folders of this machine in the names of models (harness/core/text.py)."""
        entries = [entry.model_copy(update={"name": portable_name(entry.name)}) for entry in self.models]
        names = [None if block.models is None else tuple(map(portable_name, block.models)) for block in self.matrix]
        blocks = [block.model_copy(update={"models": own}) for block, own in zip(self.matrix, names, strict=True)]
        generation = [
            block.model_copy(update={"models": block.models and tuple(map(portable_name, block.models))})
            for block in self.generation
        ]
        loads = [
            block.model_copy(update={"models": block.models and tuple(map(portable_name, block.models))})
            for block in self.scenarios
        ]
        update = {"models": tuple(entries), "matrix": tuple(blocks), "scenarios": tuple(loads)}
        return self.model_copy(update={**update, "generation": tuple(generation)})

    def all_tolerances(self) -> dict[Precision, Tolerance]:
        """The default tolerances, replaced by those of the file where it has any; of the later precisions int4 and fp8
        where a block has them, so that earlier plans keep their ids."""
        lists = [*(block.precisions for block in self.matrix), *(block.precisions for block in self.generation)]
        asked = {precision for precisions in lists for precision in precisions}
        found = {name: one for name, one in DEFAULT_TOLERANCES.items() if name not in ("int4", "fp8") or name in asked}
        return {**found, **self.gates}


_SECTIONS: Mapping[str, type[BaseModel]] = {
    "models": ModelEntry,
    "matrix": MatrixBlock,
    "measurement": Measurement,
    "gates": Tolerance,
    "report": ReportOptions,
    "export": ExportOptions,
    "engines": EngineOptions,
    "generation": GenerationBlock,
    "generating": GenerationOptions,
    "scenarios": ScenarioBlock,
}


def configuration(path: Path) -> Path:
    """The file of a configuration: the path itself, else the file of this name in the package.

    `configs/quickstart.yaml` and `quickstart` are known in every folder.
    """
    name = f"{path.name.removesuffix('.yaml')}.yaml"
    if path.exists() or path.parent not in (Path(), Path("configs")):
        return path
    places = (_PACKAGE / "configs" / name, _PACKAGE.parent / "configs" / name)
    return next((place for place in places if place.is_file()), path)


_PACKAGE = Path(__file__).parents[1]


def read_config(path: Path) -> Config:
    """Read and check a configuration. Raises ConfigError naming file, key path, problem and hint."""
    return parse_config(yaml_file.read(path), str(path))


def parse_config(data: Mapping[str, Any], source: str) -> Config:
    """Check a configuration given as plain data; `source` names it in messages."""
    try:
        # Through JSON, because only there pydantic's strict mode accepts a list for a tuple.
        # Strict also here: the sections that results share (Measurement, Tolerance) are not strict themselves.
        config = Config.model_validate_json(json.dumps(_full_entries(data), default=str), strict=True)
    except ValidationError as error:
        problem, hint = _explain(error)
        raise ConfigError(f"{source}: {problem}", hint) from error
    if not config.matrix and not config.generation:
        raise ConfigError(
            f"{source}: matrix: there is no block, and none of `generation` either: nothing would be measured.",
            "Write a block under one of them: configs/quickstart.yaml and configs/generation.yaml have examples.",
        )
    _refuse_contradictions(config.measurement, source)
    return config


def _refuse_contradictions(asked: Measurement, source: str) -> None:
    """Raise ConfigError where the most rounds are fewer than the rounds that are always measured."""
    if asked.max_rounds is not None and asked.max_rounds < asked.rounds:
        raise ConfigError(
            f"{source}: measurement.max_rounds: {asked.max_rounds} is below measurement.rounds ({asked.rounds}).",
            "Raise `max_rounds`, lower `rounds`, or leave `max_rounds` out.",
        )


def _full_entries(data: Mapping[str, Any]) -> dict[str, Any]:
    """`- resnet50` is short for `- {name: resnet50}`, `- offline` for `- {scenario: offline}`."""
    full = dict(data)
    if isinstance(models := data.get("models"), list):
        entries = [{"name": entry} if isinstance(entry, str) else entry for entry in models]
        full["models"] = [_with(entry, "name", _full_name) for entry in entries]
    for key in ("matrix", "generation"):
        if isinstance(blocks := data.get(key), list):
            full[key] = [_with(block, "models", _full_names) for block in blocks]
    if isinstance(loads := data.get("scenarios"), list):
        entries = [{"scenario": entry} if isinstance(entry, str) else entry for entry in loads]
        full["scenarios"] = [_with(entry, "models", _full_names) for entry in entries]
    return full


def _with(section: Any, key: str, change: Callable[[Any], Any]) -> Any:
    return {**section, key: change(section[key])} if isinstance(section, dict) and key in section else section


def _full_name(name: Any) -> Any:
    """`model.onnx` is short for `onnx:model.onnx`, and so on."""
    return with_prefix(name) if isinstance(name, str) else name


def _full_names(names: Any) -> Any:
    return [_full_name(name) for name in names] if isinstance(names, list) else names


def _explain(error: ValidationError) -> tuple[str, str]:
    """(key path: problem, hint) for pydantic's first error; unknown keys come before missing keys that they cause."""
    first = min(error.errors(), key=lambda finding: finding["type"] != "extra_forbidden")
    place = [part for part in first["loc"] if part != "[key]"]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    if first["type"] == "extra_forbidden":
        problem, hint = unknown_name("key", str(place[-1]), _known_keys(place))
        return f"{path}: {problem}", hint
    if first["type"] == "literal_error" and isinstance(first["input"], str):
        known = re.findall(r"'([^']+)'", first["ctx"]["expected"])
        problem, hint = unknown_name("value", first["input"], known)
        return f"{path}: {problem}", hint
    message = first["msg"][0].lower() + first["msg"][1:]
    hint = "See configs/README.md for every key, its type and its default."
    if first["type"] == "tuple_type" and isinstance(first["input"], str | int | float):
        hint = f"Write a list: `[{first['input']}]`."
    if first["type"] == "too_short":
        message, hint = "the list is empty", "Name at least one, or leave the key out where it has a default."
    return f"{path or '(whole file)'}: {message}.", hint


def _known_keys(place: Sequence[int | str]) -> list[str]:
    section = _SECTIONS.get(str(place[0]), Config) if len(place) > 1 else Config
    return list(section.model_fields)
