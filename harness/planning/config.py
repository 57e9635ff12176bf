"""Reads and checks what a user writes: a configuration file, in strict YAML, with its types and one clear message for
each mistake; and the amounts of the command line, as `0.5%` and `10m`.

YAML: no repeated keys, no aliases, no huge files; errors name line and column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from harness.core.errors import ConfigError, MissingInputError, UsageError
from harness.core.safe_files import SizeLimit, open_to_read
from harness.core.schemas import (
    Boundary,
    Device,
    EngineOptions,
    ExportOptions,
    GenerationOptions,
    Measurement,
    ModeName,
    Precision,
    ReportOptions,
    Scenario,
    Tolerance,
)
from harness.core.schemas.load_record import MOST_BATCH, MOST_REPLICATIONS, MOST_REQUESTS, MOST_WORKERS, Batching
from harness.core.schemas.plan_record import MOST_S
from harness.core.text import shortened, unknown_name
from harness.zoo.sources import portable_name, with_prefix

FOLDER = Path("configs")
_PACKAGED = Path(__file__).parents[1] / FOLDER
"""The same folder, packed into the wheel."""
MAX_BYTES = int(SizeLimit.TEXT)


_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]{0,17})")
_NUMBER = re.compile(r"[-+]?([0-9][0-9_]*)(\.[0-9_]*)?([eE][-+]?[0-9]{1,4})?|[-+]?\.[0-9]+([eE][-+]?[0-9]{1,4})?")
_TOO_LARGE_OR_NOT_A_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map"))

_KEY_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:int")


_BOOLEAN = re.compile(r"(?i)true|false|yes|no|on|off")
_NOT_DATA = {
    "timestamp": "a date is not supported; put it in quotes",
    "merge": "merge keys (`<<`) are not supported",
    "binary": "`!!binary` is not supported",
}


class _StrictLoader(yaml.SafeLoader):
    """Refuses what SafeLoader accepts silently: of two equal keys it would keep the last, aliases can expand to huge
    data, and YAML 1.1 reads `010` as 8 and `1:30` as 90."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (`*name`) are not supported", problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        if node is not None and node.tag not in _TAGS:
            kind = node.tag.rpartition(":")[2] or node.tag
            problem = _NOT_DATA.get(kind, f"the tag `{shortened(node.tag, 60)}` is not supported")
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        meant = "an integer of at most 18 digits, in decimal and without leading zeros"
        return int(self._plain(node, _INTEGER, meant).replace("_", ""))

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        text = str(node.value)
        if _TOO_LARGE_OR_NOT_A_NUMBER.fullmatch(text):
            return float(text.replace(".", "", 1))
        return float(self._plain(node, _NUMBER, "a number, in decimal").replace("_", ""))

    def construct_yaml_bool(self, node: yaml.ScalarNode) -> bool:
        return self.bool_values[self._plain(node, _BOOLEAN, "true or false").lower()]

    @staticmethod
    def _plain(node: yaml.ScalarNode, form: re.Pattern[str], meant: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or not form.fullmatch(node.value):
            text = shortened(str(node.value), 40)
            raise yaml.MarkedYAMLError(problem=f"`{text}` is not {meant}", problem_mark=node.start_mark)
        return str(node.value)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag not in _KEY_TAGS:
                raise yaml.MarkedYAMLError(problem="a key must be a word", problem_mark=key_node.start_mark)
            key = key_node.value
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"duplicate key `{key}`", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


for _name, _constructor in (
    ("int", _StrictLoader.construct_yaml_int),
    ("float", _StrictLoader.construct_yaml_float),
    ("bool", _StrictLoader.construct_yaml_bool),
):
    _StrictLoader.add_constructor(f"tag:yaml.org,2002:{_name}", _constructor)

# YAML 1.1 reads `1e-3` as text: its numbers with an exponent have a point and a sign.
_WITH_EXPONENT = re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9]+)[eE][-+]?[0-9]{1,4}\Z")
_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:float", _WITH_EXPONENT, list("-+.0123456789"))


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises MissingInputError or ConfigError with line and column."""
    try:
        with open_to_read(path) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        is_folder = path.is_dir()
        beside = sorted((path if is_folder else path.parent).glob("*.yaml")) or [
            FOLDER / place.name for place in sorted(_PACKAGED.glob("*.yaml"))
        ]
        raise MissingInputError(
            f"{path} is a folder, and a configuration is a file."
            if is_folder
            else f"The configuration {path} cannot be read: {error.strerror}.",
            f"Name one with CONFIG=…; there are: {', '.join(map(str, beside))}.",
        ) from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES:,} bytes.", "A configuration is a page of YAML text.")
    try:
        data = yaml.load(content, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader that refuses more
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        not_text = isinstance(error, UnicodeDecodeError | yaml.reader.ReaderError)
        hint = "Save it as text in UTF-8." if not_text else "Compare it with configs/quickstart.yaml."
        raise ConfigError(f"{path} is not valid YAML: {_yaml_problem(error)}", hint) from error
    if not isinstance(data, dict):
        found = "is empty" if data is None else "has no keys"
        raise ConfigError(f"{path} {found}.", "Write `models:` and `matrix:`, as in configs/quickstart.yaml.")
    return data


def _yaml_problem(error: Exception) -> str:
    """`line 3, column 5: problem`."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}."
    if isinstance(error, RecursionError):
        return "it is nested too deeply."
    return f"{str(error).splitlines()[0]}."


SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_share(text: str) -> float:
    """`0.5%` or `0.005`; UsageError unless it is between 0 and 1."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*(%?)", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < value < 1:
        raise UsageError(
            f"`{shortened(text, 40)}` is not a share between 0 and 1.",
            "Write it as per cent or as a fraction: 0.5% or 0.005.",
        )
    return value


def parse_duration_s(text: str) -> float:
    """`90s`, `10m` or `1.5h`, in seconds; UsageError for anything else, also for a number without a unit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())
    seconds = float(match[1]) * SECONDS[match[2]] if match else 0.0
    if not 0 < seconds <= MOST_S:
        problem = "is not a time" if seconds <= 0 else f"is more than {MOST_S / 86_400:g} days"
        raise UsageError(f"`{shortened(text, 40)}` {problem}.", "Write it with its unit: 90s, 10m or 1.5h.")
    return seconds


_DELAYS_NS = {"us": 1e3, "ms": 1e6, "s": 1e9}


def parse_delay_ns(text: str) -> int:
    """`2ms`, `500us` or `0`, in nanoseconds; UsageError for anything else, also for a number without a unit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s)|0", text.strip())
    if not match:
        raise UsageError(f"`{shortened(text, 40)}` is not a delay.", "Write it with its unit: MAX_DELAY=2ms or 500us.")
    return round(float(match[1]) * _DELAYS_NS[match[2]]) if match[1] else 0


def parse_rate(text: str) -> float:
    """Requests a second; UsageError unless it is a number above 0."""
    if (value := _number(text)) <= 0:
        raise UsageError(
            f"A rate of {shortened(text, 40)} requests a second gives no load.", "Write rates above 0: RATES=50,100."
        )
    return value


def parse_price(text: str) -> float:
    """Price of an hour; UsageError unless it is a number above 0."""
    if (value := _number(text)) <= 0:
        raise UsageError(f"`{shortened(text, 40)}` is not the price of an hour.", "Write a number: PRICE=2.50.")
    return value


def _number(text: str) -> float:
    """The number, or 0 for a text that is none or too large."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if value < 1e9 else 0.0


MOST = 1_000_000
Positive = Annotated[int, Field(ge=1, le=MOST)]

DEFAULT_TOLERANCES: Mapping[Precision, Tolerance] = {
    # Default tolerances, against fp32 eager with the same weights; int8: docs/decisions/0007-int8.md.
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
    modes: Annotated[tuple[ModeName, ...], Field(min_length=1)] = ("sync",)
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
    models: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """None: all models of the matrix; likewise backends and precisions."""
    backends: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    precisions: Annotated[tuple[Precision, ...], Field(min_length=1)] | None = None
    bound: str | None = None
    """Server: `p99<50ms`; of generation also `ttft_p99<500ms,itl_p99<50ms`."""
    rates: Annotated[tuple[Annotated[float, Field(le=1e9)], ...], BeforeValidator(_as_list)] = ()
    factors: Annotated[tuple[Annotated[float, Field(gt=0, le=10)], ...], Field(min_length=1)] = (0.9, 1.0, 1.1)
    max_batch: Annotated[tuple[Annotated[int, Field(ge=1, le=MOST_BATCH)], ...], Field(min_length=1)] = (8,)
    """Server and offline."""
    batching: Annotated[tuple[Batching, ...], BeforeValidator(_as_list), Field(min_length=1)] = ("static",)
    """Server, of generation in a process of our own."""
    max_delay: Annotated[tuple[str, ...], BeforeValidator(_as_list), Field(min_length=1)] = ("0ms",)
    """Server: how long the first request of a batch waits for others."""
    workers: tuple[Annotated[int, Field(ge=1, le=MOST_WORKERS)], ...] = ()
    """Server and offline: threads that serve; 1 where neither it nor in_flight is given."""
    in_flight: tuple[Annotated[int, Field(ge=1, le=MOST_WORKERS)], ...] = ()
    """Server and offline: batches in flight that one thread issues, besides the cases of `workers`."""
    clients: Annotated[tuple[Annotated[int, Field(ge=1, le=MOST_WORKERS)], ...], Field(min_length=1)] = (1, 2, 4)
    """Concurrency: clients with one request in flight each."""
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


READ_BY: Mapping[str, tuple[Scenario, ...]] = {
    "bound": ("server",),
    "rates": ("server",),
    "factors": ("server",),
    "batching": ("server",),
    "max_delay": ("server",),
    "max_batch": ("server", "offline"),
    "workers": ("server", "offline"),
    "in_flight": ("server", "offline"),
    "clients": ("concurrency",),
    "samples": ("multi-stream",),
}
"""Keys of a scenario that the other scenarios do not have: a closed loop has no rate."""


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
        """The configuration without folders of this machine in the names of models (harness/core/text.py)."""
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

    def models_without_block(self) -> list[str]:
        """Models that no block has, so that nothing of them is measured."""
        own = [*(block.models for block in self.matrix), *(block.models for block in self.generation)]
        if None in own:
            return []
        named = {name for models in own for name in models or ()}
        return [entry.name for entry in self.models if entry.name not in named]

    def all_tolerances(self) -> dict[Precision, Tolerance]:
        """The default tolerances, replaced by the file's; of the later precisions int4 and fp8 only where a block has
        them, so that earlier plans keep their ids."""
        lists = [*(block.precisions for block in self.matrix), *(block.precisions for block in self.generation)]
        asked = {precision for precisions in lists for precision in precisions}
        tolerances = {
            name: tolerance
            for name, tolerance in DEFAULT_TOLERANCES.items()
            if name not in ("int4", "fp8") or name in asked
        }
        return {**tolerances, **self.gates}


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


def find_configuration(path: Path) -> Path:
    """The file or folder itself, else the packaged file or folder of this name.

    `configs/quickstart.yaml`, `quickstart` and `configs/published` are known in every folder.
    """
    if path.exists() or path.parent not in (Path(), FOLDER):
        return path
    places = (_PACKAGED / f"{path.name.removesuffix('.yaml')}.yaml", _PACKAGED / path.name)
    return next((place for place in places if place.exists()), path)


def read_config(path: Path) -> Config:
    """Read and check a configuration. Raises ConfigError naming file, key path, problem and hint."""
    return parse_config(read_yaml(path), str(path))


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
    for index, block in enumerate(config.scenarios):
        _refuse_unread(block, f"{source}: scenarios[{index}]")
    return config


def _refuse_unread(block: ScenarioBlock, where: str) -> None:
    """Raise ConfigError for a key that the scenario does not read: it would change nothing, without a word."""
    for key in sorted(block.model_fields_set & READ_BY.keys() - {"rates", "batching", "in_flight"}):
        if getattr(block, key) is not None and block.scenario not in READ_BY[key]:
            raise ConfigError(
                f"{where}.{key}: the {block.scenario} scenario does not read it.",
                f"Leave it out; it is of {' and '.join(READ_BY[key])}.",
            )


def _refuse_contradictions(asked: Measurement, source: str) -> None:
    """Raise ConfigError where a lower limit that was written is above its upper limit, as written or by default: the
    upper one would end every process, and the lower one change nothing.

    A default gives way to an upper limit that was written, but not the default of `rounds`.
    """
    limits = [
        ("min_samples", "max_samples", asked.max_samples, "Raise `max_samples`, or lower `min_samples`."),
        ("warmup_min_s", "warmup_max_s", asked.warmup_max_s, "Raise `warmup_max_s`, or lower `warmup_min_s`."),
        (
            "min_s",
            "warmup_max_s and max_s together",
            asked.warmup_max_s + asked.max_s,
            "Raise `max_s`, or lower `min_s`.",
        ),
        ("rounds", "max_rounds", asked.max_rounds, "Raise `max_rounds`, lower `rounds`, or leave `max_rounds` out."),
    ]
    for lower, upper, most, hint in limits:
        least = getattr(asked, lower)
        counts = lower == "rounds" or lower in asked.model_fields_set
        if counts and most is not None and least > most:
            raise ConfigError(f"{source}: measurement.{lower}: {least:.12g} is above {upper} ({most:.12g}).", hint)


def _full_entries(data: Mapping[str, Any]) -> dict[str, Any]:
    """`- resnet50` is short for `- {name: resnet50}`, `- offline` for `- {scenario: offline}`."""
    full = dict(data)
    if isinstance(models := data.get("models"), list):
        entries = [{"name": entry} if isinstance(entry, str) else entry for entry in models]
        full["models"] = [_with_changed_key(entry, "name", _full_name) for entry in entries]
    for key in ("matrix", "generation"):
        if isinstance(blocks := data.get(key), list):
            full[key] = [_with_changed_key(block, "models", _full_names) for block in blocks]
    if isinstance(loads := data.get("scenarios"), list):
        entries = [{"scenario": entry} if isinstance(entry, str) else entry for entry in loads]
        full["scenarios"] = [_with_changed_key(entry, "models", _full_names) for entry in entries]
    return full


def _with_changed_key(section: Any, key: str, change: Callable[[Any], Any]) -> Any:
    return {**section, key: change(section[key])} if isinstance(section, dict) and key in section else section


def _full_name(name: Any) -> Any:
    """`model.onnx` is short for `onnx:model.onnx`, and so on."""
    return with_prefix(name) if isinstance(name, str) else name


def _full_names(names: Any) -> Any:
    return [_full_name(name) for name in names] if isinstance(names, list) else names


def first_error(error: ValidationError) -> ErrorDetails:
    """pydantic's first error; unknown keys come before missing keys that they cause."""
    return min(error.errors(), key=lambda finding: finding["type"] != "extra_forbidden")


def key_path(place: Iterable[int | str]) -> str:
    """The place of a value in a file: `matrix[0].precisions`; empty for the whole file."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def _explain(error: ValidationError) -> tuple[str, str]:
    """(key path: problem, hint) for the first error."""
    first = first_error(error)
    place = [part for part in first["loc"] if part != "[key]"]
    path = key_path(place)
    if first["type"] == "extra_forbidden":
        problem, hint = unknown_name("key", str(place[-1]), _known_keys(place))
        return f"{path}: {problem}", hint
    if first["type"] == "literal_error" and isinstance(first["input"], str):
        known = re.findall(r"'([^']+)'", first["ctx"]["expected"])
        problem, hint = unknown_name("value", first["input"], known)
        return f"{path}: {problem}", hint
    message = _IN_YAML.get(first["type"]) or first["msg"][0].lower() + first["msg"][1:]
    hint = "See configs/README.md for every key, its type and its default."
    if first["type"] == "tuple_type" and isinstance(first["input"], str | int | float):
        hint = f"Write a list: `[{first['input']}]`."
    if first["type"] == "too_short":
        message, hint = "the list is empty", "Name at least one, or leave the key out where it has a default."
    return f"{path or '(whole file)'}: {message}.", hint


_IN_YAML: Mapping[str, str] = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "keys with values are needed here"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list is needed here"),
    "string_type": "text is needed here",
    "int_type": "a whole number is needed here",
    "float_type": "a number is needed here",
    "bool_type": "true or false is needed here",
    "missing": "this key is required",
}
"""The problem by pydantic's type of error, in place of its words for JSON."""


def _known_keys(place: Sequence[int | str]) -> list[str]:
    section = _SECTIONS.get(str(place[0]), Config) if len(place) > 1 else Config
    return list(section.model_fields)
