"""The order of a run of generation, the files that it needs, and the turns that are already measured."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.aggregation import admission
from harness.backends import backend_info
from harness.backends.generation_files import onnx_key
from harness.core import store
from harness.core.errors import ExportError, FormatError, InferometerError, MissingInputError
from harness.core.host import environment
from harness.core.layout import Models, Results
from harness.core.schemas import (
    Environment,
    ExportFailure,
    Failed,
    Generated,
    GenerationCase,
    GenerationExport,
    GenerationOptions,
    Plan,
)

NEARLY = 0.9
"""Share of the time limit that the requests of a process take which it ended."""

GenerationTurn = tuple[int, GenerationCase]
"""(round, counted from 1; case)."""


def generation_turns(cases: Sequence[GenerationCase], rounds: int, seed: int) -> list[GenerationTurn]:
    """Every runnable case once a round. Cases of one model and shape run next to each other, in random order."""
    turns: list[GenerationTurn] = []
    for number in range(1, rounds + 1):
        groups: dict[tuple[object, ...], list[GenerationCase]] = {}
        for case in cases:
            if case.skip_reason is None:
                key = (case.model, case.batch_size, case.prompt_length, case.new_tokens)
                groups.setdefault(key, []).append(case)
        order = random.Random(f"{seed}-{number}")  # noqa: S311 - an order, not a secret
        shuffled = [order.sample(group, len(group)) for group in groups.values()]
        order.shuffle(shuffled)
        turns += [(number, case) for group in shuffled for case in group]
    return turns


@dataclass(frozen=True)
class GenerationExports:
    """Exports by model name; absent: why the other models have none."""

    intact: Mapping[str, GenerationExport]
    absent: Mapping[str, InferometerError]

    def reason_against(self, case: GenerationCase) -> InferometerError | None:
        """Why a case cannot be measured; None where it can."""
        info = backend_info(case.backend)
        if info.decoder_reads == "none":
            return None
        record = self.intact.get(case.model)
        if record is None:
            return self.absent.get(case.model)
        key = onnx_key(info, case)
        if info.decoder_reads == "onnx" and key in record.refused:
            return ExportError(record.refused[key].error, record.refused[key].hint)
        if info.decoder_reads == "gguf" and record.gguf is None:
            return ExportError(f"{case.model} comes from no GGUF file.", f"Leave {case.backend} out for it.")
        if record.prompt_set(case.prompt_length, case.new_tokens) is None:
            return MissingInputError(
                f"The export of {case.model} lacks prompts of {case.prompt_length} tokens.", "Run `make export` again."
            )
        return None


def read_generation_exports(
    plan: Plan, names: Sequence[str], results: Results, models: Models | None
) -> GenerationExports:
    """The exports of these models. models: the folder in which their files are checked; None leaves that out.

    Raises the first reason where no model has one and `export` left no error: it has not run yet.
    """
    slugs = {case.model: case.slug for case in plan.generations}
    exports: dict[str, GenerationExport] = {}
    absent: dict[str, InferometerError] = {}
    for name in names:
        files = results.export(slugs[name])
        try:
            if files.generation_failure.is_file():
                failure = store.load(files.generation_failure, ExportFailure, "make export")
                raise ExportError(failure.error, failure.hint)
            record = store.load(files.generation, GenerationExport, "make export")
            if models is not None:
                store.check_generation_files(models.folder(record.slug, record.folder).root, record)
        except (ExportError, FormatError, MissingInputError) as error:
            absent[name] = error
        else:
            exports[name] = record
    reasons = list(absent.values())
    if reasons and not exports and not any(isinstance(reason, ExportError) for reason in reasons):
        raise reasons[0]
    return GenerationExports(exports, absent)


@dataclass
class GeneratedTurns:
    """Turns that need no new measurement, and notes about damaged files."""

    done: set[tuple[str, int]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def has(self, turn: GenerationTurn) -> bool:
        """Whether this turn is already measured."""
        number, case = turn
        return (case.case_id, number) in self.done


def finished_generation(
    plan: Plan,
    turns: Sequence[GenerationTurn],
    exports: Mapping[str, GenerationExport],
    results: Results,
    elsewhere: frozenset[str] = frozenset(),
) -> GeneratedTurns:
    """Read the raw files of the turns: those of the same settings, files, machine and libraries count.

    results: Results.of_generation. elsewhere: backends whose libraries belong to another interpreter.
    """
    finished = GeneratedTurns()
    here: dict[tuple[str, ...], Environment] = {}
    for turn in turns:
        number, case = turn
        path = results.raw_file(case.case_id, number)
        if not path.is_file():
            continue
        try:
            record = store.load_generated(path)
        except FormatError as error:
            finished.notes.append(f"{error.problem} It is measured again.")
            continue
        if isinstance(record, Failed) or not _is_of(record, turn, plan) or not is_enough(record, plan.generation):
            continue
        also = backend_info(case.backend).recorded
        if also not in here:
            here[also] = environment.collect({}, plan.device, also)
        known = known_files(exports.get(case.model))
        same = _same_machine(record, here[also], results, case.backend not in elsewhere)
        if same and admission.foreign_artifact(record, known) is None:
            finished.done.add((case.case_id, number))
    return finished


def known_files(export: GenerationExport | None) -> dict[str, str]:
    """sha256 by path of every file of an export."""
    return {} if export is None else {file.path: file.sha256 for file in export.files()}


def _is_of(record: Generated, turn: GenerationTurn, plan: Plan) -> bool:
    number, case = turn
    return (record.case_id, record.round, record.settings_id) == (case.case_id, number, plan.settings_id)


def is_enough(record: Generated, options: GenerationOptions) -> bool:
    """Whether a record has the warm-ups and requests of these options, or went on for as long as they allow."""
    if len(record.warmups) < options.warmups:
        return False
    # Before the first request and after the last one the process works a little, and the time limit counts it.
    timed_s = (record.requests[-1].token_ns[-1] - record.requests[0].start_ns) / 1e9
    out_of_time = record.stop == "time limit" and timed_s >= NEARLY * options.max_s
    return out_of_time or len(record.requests) >= options.requests


def _same_machine(record: Generated, here: Environment, results: Results, libraries: bool) -> bool:
    if record.environment_id is None:
        return False
    try:
        there = store.load(results.environment(record.environment_id), Environment, "make generate")
    except InferometerError:
        return False
    return not admission.differing(there, here, libraries)
