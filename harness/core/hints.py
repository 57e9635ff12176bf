"""Completes the commands in hints, so that a user can type them: with the options of the run, for its interface (pure).

Code names commands, and choices, in Make's words: `make run FORCE=1`, `BATCHES=8`, `leave BATCHING out`. When a text is
printed or written, a command gets the folders and options of the run that it belongs to; for the command `inferometer`
it becomes `inferometer run --force`, for `python -m harness`, as in a container, `python -m harness run --force`, and
for the Python API `force=True`. So do the choices: `--batches 8` and `batch_size=8`.
"""

from __future__ import annotations

import html
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from harness import pipeline
from harness.core.errors import MalformedFileError
from harness.core.layout import Results
from harness.core.safe_files import SizeLimit, read_text
from harness.pipeline import BY_NAME, VARIABLES

Front = Literal["make", "inferometer", "module", "api"]
PROGRAMS: Mapping[Front, str] = {"inferometer": "inferometer", "module": "python -m harness"}
"""Interfaces whose commands are names of stages with options."""
FRONT = "INFEROMETER_FRONT"
"""Environment variable: the interface from which the user started this stage. The Makefile, `inferometer` and the API
set it; without it, the user typed `python -m harness.<stage>`."""
_API_MARK = "# harness.api"


@dataclass(frozen=True)
class HintContext:
    """The run that a hint belongs to. planned: Make's variables that make the same plan again, and its folders.

    ab: the run measures two states in turn, so that only `ab` may measure its cases again; RESULTS is its folder `ab`,
    or `against` inside that.
    """

    front: Front = "make"
    planned: Mapping[str, str] = field(default_factory=dict)
    ab: bool = False


def front() -> Front:
    """The interface that started this process, by its environment."""
    value = os.environ.get(FRONT)
    return next((name for name in get_args(Front) if name == value), "module")


_OF_ONE_COMMAND = ("FORCE", "MAX_ROUNDS", "INTERVAL", "BUDGET")
"""Options for how long to measure and what to measure again: valid for one command, not for the next."""


def choices_in(words: Sequence[str]) -> dict[str, str]:
    """Make's variables in the arguments of a stage, without those that are empty or have their default value.

    >>> choices_in(["--models", "resnet18", "--backends", "", "--results=results", "--tune"])
    {'MODELS': 'resnet18', 'TUNE': '1'}
    """
    parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    given: dict[str, str] = {}
    for variable in VARIABLES:
        if variable.option in parts:
            place = len(parts) - 1 - parts[::-1].index(variable.option)  # the last one counts
            given[variable.name] = "1" if variable.switch else " ".join(parts[place + 1 : place + 2])
    usual = {"CONFIG": f"configs/{'cuda' if given.get('DEVICE') == 'cuda' else 'quickstart'}.yaml"}
    return {
        name: value
        for name, value in given.items()
        if value and value != usual.get(name, BY_NAME[name].usual) and name not in _OF_ONE_COMMAND
    }


def of_command(text: str | None) -> HintContext:
    """The context of a run from its command.txt, the command line of its plan stage; None: there is no such file."""
    words = shlex.split((text or "").partition(_API_MARK)[0])
    choices = choices_in(words)
    by: Front = "make"
    for front, program in PROGRAMS.items():
        if words[: len(program.split())] == program.split():
            by, words = front, words[len(program.split()) :]
    ab = words[:1] == ["ab"] or words[:3] == ["python", "-m", "harness.ab"]
    if ab:
        choices["RESULTS"] = str(Path(choices.get("RESULTS", BY_NAME["RESULTS"].usual)) / "ab")
    return HintContext("api" if text and _API_MARK in text else by, choices, ab)


def of_file(command: Path) -> HintContext:
    """The context of the run that wrote this command.txt; of the other state of `ab`, that of the state here.

    Raises as read_text.
    """
    folder = command.parent.resolve()
    beside = folder.parent / command.name
    if Results(folder.parent).against.root == folder and beside.is_file():
        here = of_command(read_text(beside, SizeLimit.TEXT))
        if here.ab:
            return replace(here, planned={**here.planned, "RESULTS": str(command.parent)})
    return of_command(read_text(command, SizeLimit.TEXT) if command.is_file() else None)


def command_line(by: Front, arguments: Sequence[str], stage: Literal["plan", "ab"] = "plan") -> str:
    """The text of command.txt: the command line of the plan stage, which makes the same plan again, or of `ab`."""
    program = f"{PROGRAMS[by]} {stage}" if by in PROGRAMS else f"python -m harness.{stage}"
    return f"{shlex.join([*program.split(), *arguments])}{f'  {_API_MARK}' if by == 'api' else ''}\n"


def of_stage(stage: str, words: Sequence[str], by: Front) -> HintContext:
    """The context of a running stage: its own arguments override those that made the plan in its folder."""
    own = choices_in(words)
    if stage in ("plan", "bench", "profile", "ab"):
        return HintContext(by, own)
    try:
        made = of_file(Results(Path(own.get("RESULTS", BY_NAME["RESULTS"].usual))).command)
    except (OSError, ValueError, MalformedFileError):  # the stage itself reports it
        made = HintContext()
    folders: dict[str, str] = {name: own[name] for name in ("RESULTS", "MODELS_DIR") if name in own}
    # Where a stage has no option for the folder of exports, the plan's folder applies.
    named = {"RESULTS", *(("MODELS_DIR",) if stage in BY_NAME["MODELS_DIR"].stages else ())}
    planned = {name: value for name, value in made.planned.items() if name not in named}
    return HintContext(by, {**planned, **folders}, made.ab)


def of_program(program: Path, words: Sequence[str], by: Front) -> HintContext:
    """The context of a running program: of a stage, or of a process that a stage starts. The texts of such a process
    stay in Make's words: the stage completes them where it prints them, as the report does with those in records."""
    return HintContext() if program.parent.name == "processes" else of_stage(program.stem, words, by)


_TARGETS = {*pipeline.PIPELINES, *pipeline.ALIASES, *pipeline.STAGES}
_WORD = f"(?:{'|'.join(sorted(_TARGETS, key=len, reverse=True))})(?![\\w-])"
_VALUE = r"(?:'[^']*'|<[^/>][^>]*>|&lt;[^&]*&gt;|[^\s`'\"<>&]*[^\s`'\"<>&.,;:)])+"
_ASSIGNED = rf"[A-Z][A-Z_]+={_VALUE}"
_COMMAND = re.compile(rf"(?<![\w-])make (?P<targets>{_WORD}(?: {_WORD})*)(?P<given>(?: {_ASSIGNED})*)")
_ALONE = re.compile(rf"(?<![\w-])(?P<name>[A-Z][A-Z_]+)=(?P<value>{_VALUE})")
_NAME = re.compile(r"(?<![\w./$<{\[\"'=-])(?P<name>[A-Z][A-Z_]+)(?![\w/=\"'\]-]|\.\w)")
_KEYWORDS: Mapping[str, str] = {
    "DEVICE": "device={}",
    "MODELS": "model={}",
    "BACKENDS": "backend={}",
    "PRECISIONS": "precision={}",
    "BATCHES": "batch_size={}",
    "SEQ_LENGTHS": "sequence_length={}",
    "BOUNDARIES": "boundary={}",
    "MODES": "mode={}",
    "SETTINGS": "setting={}",
    "INPUTS": "input_data=…",  # arrays, not a file
    "EXPORTER": "exporter={}",
    "PROMPTS": "prompts={}",
    "TOKENS": "tokens={}",
    "ROUNDS": "rounds={}",
    "MAX_ROUNDS": 'measurement={{"max_rounds": {}}}',
    "SCENARIOS": "scenarios={}",
    "BOUND": "bound={}",
    "RATES": "rates={}",
    "MAX_BATCH": "max_batch={}",
    "BATCHING": "batching={}",
    "MAX_DELAY": "max_delay={}",
    "WORKERS": "workers={}",
    "IN_FLIGHT": "in_flight={}",
    "CLIENTS": "clients={}",
    "SAMPLES": "samples={}",
    "REPLICATIONS": "replications={}",
    "REQUESTS": "requests={}",
    "DURATION": "duration={}",
    "PRICE": "price_per_hour={}",
    "LOADGEN": "loadgen=True",
    "LAYERS": "layer_names={}",
    "DEPTH": "depth={}",
    "PROFILE_RUNS": "num_runs={}",
    "BASELINE": "baseline={}",
    "MAX_REGRESSION": "max_regression={}",
    "EQUIVALENCE": "equivalence={}",
    "AGAINST": "against={}",
    "FORCE": "force=True",
    "RESULTS": "folder={}",
    "MODELS_DIR": "folder={}",
}
"""The API's argument for a variable; `{}` is its value. Variables without an argument keep their option."""
_LISTS = ("PROMPTS", "TOKENS")
"""Variables whose argument is a list also of one value."""
_CALLS: Mapping[str, str] = {
    **dict.fromkeys(("profile", *pipeline.stages_of("bench"), *pipeline.stages_of("profile")), "profile()"),
    "bench": "benchmark()",
    "generate": "generate()",
    "load": "load()",
    "ab": "ab()",
    "compare": "detect_regressions()",
}
"""The API's call that runs a target; targets without a call keep their command."""


def typed(text: str, context: HintContext) -> str:
    """The text, with each command in the form that its reader can type.

    >>> typed("Measure again: `make run FORCE=1`.", HintContext(planned={"RESULTS": "results/x", "MODELS": "resnet18"}))
    'Measure again: `make run RESULTS=results/x FORCE=1`.'
    >>> typed("Measure again: `make run FORCE=1`.", HintContext("inferometer", {"RESULTS": "results/x"}))
    'Measure again: `inferometer run --results results/x --force`.'
    >>> typed("Measure again: `make run FORCE=1`.", HintContext("api"))
    'Measure again: `force=True`.'
    """
    return _typed(text, context, str)


def _typed(text: str, context: HintContext, written: Callable[[str], str]) -> str:
    """As typed. written: how the text's format writes a command."""
    done = _COMMAND.sub(lambda match: written(_again(match, context)), text)
    if context.front == "make":
        return done
    done = _ALONE.sub(lambda match: written(_assigned(match, context.front)), done)
    return _NAME.sub(lambda match: _named(match, context.front), done)


def with_names(text: str) -> str:
    """The text with Make's variables in place of the options that they become.

    >>> with_names("argument --batches: expected one argument")
    'BATCHES: expected one argument'
    """
    names = {variable.option: variable.name for variable in VARIABLES}
    return re.sub(r"argument (--[a-z][a-z-]*)", lambda match: names.get(match[1], match[0]), text)


def typed_html(page: str, context: HintContext) -> str:
    """As typed, for the text of an HTML page; its scripts and styles stay unchanged."""
    parts = re.split(r"(<(script|style)\b.*?</\2>)", page, flags=re.DOTALL)
    planned = {name: html.escape(value, quote=False) for name, value in context.planned.items()}
    text = HintContext(context.front, planned)
    # Text, a whole script or style, its name, text, …
    return "".join(
        part if place % 3 == 1 else _typed(part, text, lambda command: command.replace('"', "&quot;"))
        for place, part in enumerate(parts)
        if place % 3 != 2
    )


def _again(match: re.Match[str], context: HintContext) -> str:
    targets = match["targets"].split()
    given = dict(word.split("=", 1) for word in re.findall(rf" ({_ASSIGNED})", match["given"]))
    if context.ab and {*targets} <= {"ab", "bench", "plan", "run"}:
        targets, context = ["ab"], replace(context, planned=_beside_ab(context.planned))
    elif context.ab:
        # The plan of both states stays: a choice would plan again, and for one state alone.
        kept = {name: value for name, value in context.planned.items() if name not in pipeline.PLANNING}
        context = replace(context, planned=kept)
    if context.front == "api" and _CALLS.keys() >= set(targets) and _KEYWORDS.keys() >= given.keys():
        return ", ".join(_choice(name, value, "api") for name, value in given.items()) or _CALLS[targets[0]]
    if context.front == "make":
        return _command(targets, given, context)
    return " && ".join(_command([_spread(target, given)], given, context) for target in targets)


def _beside_ab(planned: Mapping[str, str]) -> dict[str, str]:
    """The choices with the folder that `ab` takes: the one that has its own folder `ab`."""
    own = Path(planned["RESULTS"])
    place = str((own if Results(own.parent).ab.root == own else own.parent).parent)
    others = {name: value for name, value in planned.items() if name != "RESULTS"}
    return others if place == BY_NAME["RESULTS"].usual else {**others, "RESULTS": place}


def _spread(target: str, given: Mapping[str, str]) -> str:
    """The stage of a target: `make run` over several GPUs is the stage `spread`."""
    return "spread" if target == "run" and not {"CARDS", "LAYOUT"}.isdisjoint(given) else target


def _command(targets: Sequence[str], given: Mapping[str, str], context: HintContext) -> str:
    """One command line. given: the variables as the text has them, already quoted where necessary."""
    taken = pipeline.options_of([stage for target in targets for stage in pipeline.stages_of(target)])
    names = {variable.name for variable in taken}
    own = {name: shlex.quote(value) for name, value in context.planned.items() if name in names and name not in given}
    if context.front == "make":
        return " ".join(["make", *targets, *(f"{name}={value}" for name, value in {**own, **given}.items())])
    asked = {**own, **{name: value for name, value in given.items() if name in names}}
    program = PROGRAMS.get(context.front, PROGRAMS["inferometer"])
    return " ".join([program, *targets, *(_option(BY_NAME[name], value) for name, value in asked.items())])


def _assigned(match: re.Match[str], by: Front) -> str:
    """`BATCHES=8` for this interface; unchanged where the name is no variable."""
    return _choice(match["name"], match["value"], by) if match["name"] in BY_NAME else match[0]


def _named(match: re.Match[str], by: Front) -> str:
    """The name of a variable in running text, as `leave BATCHING out`; unchanged where it is none."""
    name = match["name"]
    if name not in BY_NAME:
        return match[0]
    return _KEYWORDS[name].partition("=")[0] if by == "api" and name in _KEYWORDS else BY_NAME[name].option


def _choice(name: str, value: str, by: Front) -> str:
    if by == "api" and name == "MODELS" and value.endswith("@seeded"):
        return 'weights="seeded"'
    if by == "api" and name in _KEYWORDS:
        return _KEYWORDS[name].format(_literal(value, name in _LISTS))
    return _option(BY_NAME[name], value)


def _option(variable: pipeline.Variable, value: str) -> str:
    return variable.option if variable.switch else f"{variable.option} {value}"


def _literal(value: str, is_list: bool) -> str:
    """A value of Make as Python writes it: numbers, texts, and lists of them; a quoted value is one text."""
    if value.startswith("'"):
        return f'"{value[1:-1]}"'
    plain = r"[0-9.]+|…" + (r"|<.*>|&lt;.*&gt;" if is_list else "")
    texts = [part if re.fullmatch(plain, part) else f'"{part}"' for part in value.split(",")]
    return f"[{', '.join(texts)}]" if is_list or len(texts) > 1 else texts[0]
