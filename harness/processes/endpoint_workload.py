"""The requests to a running service, and the comparison of its answers with the reference: arrays, or prompts."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.backends.batches import BatchSet, load_batches
from harness.backends.loads import artifacts, export_of
from harness.core import store
from harness.core.errors import MissingInputError
from harness.core.layout import Models
from harness.core.protocol import LoadJob
from harness.core.schemas import GenerationExport, Parity, PromptSet
from harness.endpoints.contract import Completion, Prompt, Sample
from harness.endpoints.timeline import Timeline
from harness.processes.load_process import job_at
from harness.serving.load_case import places_of
from harness.statistics import parity
from harness.zoo.stored import read_arrays


@dataclass(frozen=True)
class Judged:
    """Kept answers against the reference. distance: of arrays, the worst; wrong: why an answer cannot be compared, by
    request; equal: completions with the reference's tokens or text."""

    compared: int
    distance: Parity | None = None
    wrong: Mapping[int, str] = field(default_factory=dict)
    equal: int | None = None


class Workload(ABC):
    """Samples that take turns, and their reference."""

    samples: Sequence[Sample]
    artifacts: dict[str, str]
    """sha256 by name of the files that were read."""

    @abstractmethod
    def judge(self, run: Timeline) -> Judged:
        """Compare the kept answers of a run."""

    def order(self, count: int, seed: int) -> list[int]:
        """Samples in random rounds: each appears once before any appears again."""
        chance = random.Random(seed)  # noqa: S311 - an order, not a secret
        stored = len(self.samples)
        rounds = [number for _ in range(-(-count // stored)) for number in chance.sample(range(stored), stored)]
        return rounds[:count]

    def asked(self, run: Timeline) -> tuple[int, ...]:
        """Tokens that each request asked for, where requests differ in it."""
        return ()


class TensorWorkload(Workload):
    """Batches of arrays, and the fp32 outputs for each."""

    def __init__(self, job: LoadJob) -> None:
        own = job_at(job, job.load.max_batch)
        export, folder = export_of(own)
        self._batches: BatchSet = load_batches(folder.root, export, own.case, job.measurement.parity_samples)
        self._classifier = export.classifier
        self.samples = self._batches.inputs
        self.artifacts = artifacts(export, own.case)

    def judge(self, run: Timeline) -> Judged:
        """Distances by harness/statistics/parity.py; an output that is missing or has another shape is wrong."""
        distances, wrong = list[Parity](), dict[int, str]()
        for number in sorted(run.replies):
            reference = self._batches.reference(int(run.sample[number]))
            try:
                distances.append(parity.compare(run.replies[number], reference, self._classifier))  # type: ignore[arg-type]
            except ValueError as error:
                wrong[number] = str(error)
        return Judged(len(run.replies), parity.worst(distances), wrong)


class PromptWorkload(Workload):
    """Prompts, and what greedy fp32 answers to the first of them; of a distribution each pair of lengths has its own.

    The pairs take turns in the samples, so that the first ones, which are checked before anything is timed, have
    different lengths.
    """

    samples: Sequence[Prompt]

    def __init__(self, job: LoadJob) -> None:
        load = job.load
        export = store.load(Path(job.export or ""), GenerationExport, "make export")
        folder = Models(Path(job.models)).folder(load.slug, export.folder).root
        distinct = [*dict.fromkeys(load.pairs)]
        sets = [_answered(export, folder, *pair) for pair in distinct]
        rows = min(len(prompts) for prompts, _ in sets)
        self.samples = [prompts[row] for row in range(rows) for prompts, _ in sets]
        self._answers = [answers.get(row) for row in range(rows) for _, answers in sets]
        self._pairs, self._distinct = load.pairs, distinct
        chosen = [_prompt_set(export, *pair) for pair in distinct]
        files = (*export.tokenizer, *(file for one in chosen for file in (one.prompts, one.reference)))
        self.artifacts = {file.path: file.sha256 for file in files}

    def order(self, count: int, seed: int) -> list[int]:
        """Of a distribution each request draws its lengths; the prompts of a pair take turns."""
        if len(self._distinct) == 1:
            return super().order(count, seed)
        width = len(self._distinct)
        rows, used = len(self.samples) // width, Counter[int]()
        found = []
        for place in places_of(len(self._pairs), count, seed):
            pair = self._distinct.index(self._pairs[place])
            found.append((seed + used[pair]) % rows * width + pair)
            used[pair] += 1
        return found

    def asked(self, run: Timeline) -> tuple[int, ...]:
        """Of a distribution, tokens that each request asked for."""
        return tuple(self.samples[int(place)].new_tokens for place in run.sample) if len(self._distinct) > 1 else ()

    def judge(self, run: Timeline) -> Judged:
        """Equal ids where the server reports them, else equal text. A server in another precision answers otherwise
        where two tokens are almost as likely, so an unequal answer is no failure. One of another length is wrong: it
        took less, or more, work than was asked for."""
        compared = equal = 0
        wrong = dict[int, str]()
        for number, reply in sorted(run.replies.items()):
            if not isinstance(reply, Completion):
                continue
            place = int(run.sample[number])
            if (why := _other_length(reply, self.samples[place].new_tokens)) is not None:
                wrong[number] = why
            answer = self._answers[place]
            if answer is None:
                continue
            compared += 1
            equal += reply.ids == answer.ids if reply.ids else reply.text == answer.text
        return Judged(compared, wrong=wrong, equal=equal)


@dataclass(frozen=True)
class Answer:
    """Of greedy fp32 to a prompt."""

    ids: tuple[int, ...]
    text: str


def _prompt_set(export: GenerationExport, length: int, tokens: int) -> PromptSet:
    chosen = export.prompt_set(length, tokens)
    if chosen is None:
        raise MissingInputError(
            f"The export of {export.model} has no {tokens} tokens after prompts of {length}.",
            "Run `make export` again: the plan has changed since.",
        )
    return chosen


def _answered(
    export: GenerationExport, folder: Path, length: int, tokens: int
) -> tuple[list[Prompt], dict[int, Answer]]:
    """Prompts of a length, and by row the answers to the first of them."""
    chosen = _prompt_set(export, length, tokens)
    ids: NDArray[np.int64] = read_arrays(folder / chosen.prompts.path)["ids"].astype(np.int64)
    expected = read_arrays(folder / chosen.reference.path)["tokens"][:, :tokens].astype(np.int64)
    texts, answers = _texts_of(export, folder, ids, expected)
    prompts = [Prompt(text, tokens, tuple(row)) for text, row in zip(texts, ids.tolist(), strict=True)]
    rows = zip(expected.tolist(), answers, strict=True)
    return prompts, {number: Answer(tuple(row), text) for number, (row, text) in enumerate(rows)}


def workload_of(job: LoadJob) -> Workload:
    """The workload of a load case. Raises FormatError or MissingInputError where a file is missing."""
    return TensorWorkload(job) if job.load.new_tokens is None else PromptWorkload(job)


def _other_length(reply: Completion, asked: int) -> str | None:
    """Why an answer has not the number of tokens that was asked for; None where it has, or ended by that limit."""
    if reply.tokens is not None:
        return None if reply.tokens == asked else f"{reply.tokens} instead of {asked} tokens"
    if reply.finish == "length":
        return None
    return f"the server gives no number of tokens, and its reason to stop is {reply.finish or 'unknown'}, not length"


def _texts_of(
    export: GenerationExport, folder: Path, ids: NDArray[np.int64], expected: NDArray[np.int64]
) -> tuple[list[str], list[str]]:
    """Prompts and expected answers as text; empty prompts where the model has no tokenizer here."""
    file = next((one for one in export.tokenizer if one.path.endswith("tokenizer.json")), None)
    if file is None:
        return [""] * len(ids), [""] * len(expected)
    from tokenizers import Tokenizer  # noqa: PLC0415 - of the model libraries, for completions alone

    tokenizer = Tokenizer.from_file(str(folder / file.path))
    prompts = [tokenizer.decode(row, skip_special_tokens=False) for row in ids.tolist()]
    whole = [
        tokenizer.decode([*prompt, *answer], skip_special_tokens=False)
        for prompt, answer in zip(ids.tolist(), expected.tolist(), strict=False)
    ]
    return prompts, [text[len(prompt) :] for prompt, text in zip(prompts, whole, strict=False)]
