"""Completes the commands in hints, so that a user can type them: with the options of the run, for its interface (pure).

Code names the next command in its short form, `make run FORCE=1`. When a text is printed or written, this command gets
the folders and options of the run that it belongs to; for the command `inferometer` it becomes `inferometer run
--force`, for `python -m harness`, as in a container, `python -m harness run --force`, and for the Python API
`force=True`.
"""

from __future__ import annotations

import html
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from harness import pipeline
from harness.core.errors import MalformedFileError
from harness.core.safe_files import SizeLimit, read_text
from harness.pipeline import BY_NAME, VARIABLES

Front = Literal["make", "inferometer", "module", "api"]
PROGRAMS: Mapping[Front, str] = {"inferometer": "inferometer", "module": "python -m harness"}
"""Interfaces whose commands are names of stages with options."""
FRONT = "INFEROMETER_FRONT"
"""Environment variable: the interface from which the user started this stage."""
_API_MARK = "# harness.api"


@dataclass(frozen=True)
class HintContext:
    """The run that a hint belongs to. planned: Make's variables that make the same plan again, and its folders."""

    front: Front = "make"
    planned: Mapping[str, str] = field(default_factory=dict)


def front() -> Front:
    """The interface that started this process, by its environment."""
    value = os.environ.get(FRONT)
    return next((name for name in get_args(Front) if name == value), "make")


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
            place = parts.index(variable.option)
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
    if text and _API_MARK in text:
        return HintContext("api", choices)
    for front, program in PROGRAMS.items():
        if words[: len(program.split())] == program.split():
            return HintContext(front, choices)
    return HintContext("make", choices)


def of_file(command: Path) -> HintContext:
    """The context of the run that wrote this command.txt. Raises as read_text."""
    return of_command(read_text(command, SizeLimit.TEXT) if command.is_file() else None)


def command_line(by: Front, arguments: Sequence[str]) -> str:
    """The text of command.txt: the command line of the plan stage, which makes the same plan again."""
    program = f"{PROGRAMS[by]} plan" if by in PROGRAMS else "python -m harness.plan"
    return f"{shlex.join([*program.split(), *arguments])}{f'  {_API_MARK}' if by == 'api' else ''}\n"


def of_stage(stage: str, words: Sequence[str], by: Front) -> HintContext:
    """The context of a running stage: its own arguments override those that made the plan in its folder."""
    own = choices_in(words)
    if stage in ("plan", "bench", "profile"):
        return HintContext(by, own)
    path = Path(own.get("RESULTS", BY_NAME["RESULTS"].usual)) / "command.txt"
    try:
        planned = of_command(read_text(path, SizeLimit.TEXT)).planned
    except (OSError, ValueError, MalformedFileError):  # the stage itself reports it
        planned = {}
    folders: dict[str, str] = {name: own[name] for name in ("RESULTS", "MODELS_DIR") if name in own}
    # Where a stage has no option for the folder of exports, the plan's folder applies.
    named = {"RESULTS", *(("MODELS_DIR",) if stage in BY_NAME["MODELS_DIR"].stages else ())}
    return HintContext(by, {**{name: value for name, value in planned.items() if name not in named}, **folders})


_TARGETS = {*pipeline.PIPELINES, *pipeline.ALIASES, *(stage for variable in VARIABLES for stage in variable.stages)}
_WORD = f"(?:{'|'.join(sorted(_TARGETS, key=len, reverse=True))})(?![\\w-])"
_VALUE = r"(?:'[^']*'|<[^/>][^>]*>|&lt;[^&]*&gt;|[^\s`'\"<>&]*[^\s`'\"<>&.,;:)])+"
_ASSIGNED = rf"[A-Z][A-Z_]+={_VALUE}"
_COMMAND = re.compile(rf"(?<![\w-])make (?P<targets>{_WORD}(?: {_WORD})*)(?P<given>(?: {_ASSIGNED})*)")
_ALONE = re.compile(rf"(?<![\w-])(?P<name>{'|'.join(BY_NAME)})=(?P<value>{_VALUE})")
_KEYWORDS: Mapping[str, Callable[[str], str]] = {
    "FORCE": lambda _: "force=True",
    "ROUNDS": "rounds={}".format,
    "PROFILE_RUNS": "num_runs={}".format,
    "DEVICE": 'device="{}"'.format,
    "BACKENDS": 'backend="{}"'.format,
    "PRECISIONS": 'precision="{}"'.format,
    "BATCHES": "batch_size={}".format,
    "SEQ_LENGTHS": "sequence_length={}".format,
    "MAX_ROUNDS": 'measurement={{"max_rounds": {}}}'.format,
}
"""The API's keyword for each option."""
_OF_API = {*pipeline.PIPELINES, *pipeline.ALIASES, *pipeline.stages_of("bench"), *pipeline.stages_of("profile")}


def typed(text: str, context: HintContext) -> str:
    """The text, with each command in the form that its reader can type.

    >>> typed("Measure again: `make run FORCE=1`.", HintContext(planned={"RESULTS": "results/x", "MODELS": "resnet18"}))
    'Measure again: `make run RESULTS=results/x FORCE=1`.'
    >>> typed("Measure again: `make run FORCE=1`.", HintContext("inferometer", {"RESULTS": "results/x"}))
    'Measure again: `inferometer run --results results/x --force`.'
    >>> typed("Measure again: `make run FORCE=1`.", HintContext("api"))
    'Measure again: `force=True`.'
    """
    if "make " not in text and "=" not in text:
        return text
    done = _COMMAND.sub(lambda match: _again(match, context), text)
    if context.front == "make":
        return done
    return _ALONE.sub(lambda match: _choice(match["name"], match["value"], context.front), done)


def typed_html(page: str, context: HintContext) -> str:
    """As typed, for the text of an HTML page; its scripts and styles stay unchanged."""
    parts = re.split(r"(<(script|style)\b.*?</\2>)", page, flags=re.DOTALL)
    planned = {name: html.escape(value, quote=False) for name, value in context.planned.items()}
    text = HintContext(context.front, planned)
    # Text, a whole script or style, its name, text, …
    return "".join(part if place % 3 == 1 else typed(part, text) for place, part in enumerate(parts) if place % 3 != 2)


def _again(match: re.Match[str], context: HintContext) -> str:
    targets = match["targets"].split()
    given = dict(word.split("=", 1) for word in re.findall(rf" ({_ASSIGNED})", match["given"]))
    if context.front == "api" and _OF_API.issuperset(targets):
        choices = [_choice(name, value, "api") for name, value in given.items() if name in BY_NAME]
        return ", ".join(choices) or ("benchmark()" if "bench" in targets else "profile()")
    commands = [[target] for target in targets] if context.front in PROGRAMS else [targets]
    return " && ".join(_command(command, given, context) for command in commands)


def _command(targets: Sequence[str], given: Mapping[str, str], context: HintContext) -> str:
    """One command line. given: the variables as the text has them, already quoted where necessary."""
    taken = pipeline.options_of([stage for target in targets for stage in pipeline.stages_of(target)])
    names = {variable.name for variable in taken}
    own = {name: shlex.quote(value) for name, value in context.planned.items() if name in names and name not in given}
    if context.front not in PROGRAMS:
        return " ".join(["make", *targets, *(f"{name}={value}" for name, value in {**own, **given}.items())])
    asked = {**own, **{name: value for name, value in given.items() if name in names}}
    options = (_choice(name, value, context.front) for name, value in asked.items())
    return " ".join([PROGRAMS[context.front], *targets, *options])


def _choice(name: str, value: str, by: Front) -> str:
    variable = BY_NAME[name]
    if by == "api":
        return _KEYWORDS[name](value) if name in _KEYWORDS else f"{name}={value}"
    return variable.option if variable.switch else f"{variable.option} {value}"
