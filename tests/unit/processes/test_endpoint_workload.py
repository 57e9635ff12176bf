"""Prompts of a generation export as requests, and completions against greedy fp32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.core.errors import MissingInputError
from harness.endpoints.contract import Completion, Prompt
from harness.endpoints.timeline import StreamSteps, Timeline
from harness.processes import endpoint_process
from harness.processes.endpoint_process import Answer, PromptWorkload


class _Loaded(PromptWorkload):
    """A workload of two prompts with a reference and one without, without files."""

    def __init__(self) -> None:
        self.samples = [Prompt(text, 2, (1, 2)) for text in ("a", "b", "c")]
        self.artifacts = {}
        self._answers = [Answer((5, 6), "five six"), Answer((7, 8), "seven eight"), None]
        self._pairs = self._distinct = ((2, 2),)


def timeline(replies: dict[int, Completion], sample: list[int]) -> Timeline:
    zeros = np.zeros(len(sample), np.int64)
    names = [
        *("scheduled", "issued", "serialised", "sent", "first", "done", "ended", "connect_ns"),
        *("request_bytes", "answer_bytes", "server_queue_ns", "server_compute_ns"),
    ]
    return Timeline(
        open_loop=True,
        **dict.fromkeys(names, zeros),  # type: ignore[arg-type]
        sample=np.array(sample, np.int64),
        failures=(None,) * len(sample),
        details={},
        steps=StreamSteps(np.zeros(len(sample) + 1, np.int64), zeros[:0], zeros[:0]),
        replies=replies,
        connections=1,
        reopened=0,
        waited=0,
        most_in_flight=1,
    )


def completion(text: str, ids: tuple[int, ...] | None = None) -> Completion:
    return Completion(text, ids, None, "length")


@pytest.mark.parametrize(
    ("reply", "equal"),
    [
        (completion("five six"), 1),
        (completion("five seven"), 0),
        (completion("other text", (5, 6)), 1),
        (completion("five six", (5, 7)), 0),
    ],
)
def test_ids_decide_where_there_are_any_and_else_the_text(reply: Completion, equal: int) -> None:
    judged = _Loaded().judge(timeline({0: reply}, [0]))
    assert (judged.compared, judged.equal, judged.distance, dict(judged.wrong)) == (1, equal, None, {})


@pytest.mark.parametrize(
    ("tokens", "finish", "wrong"),
    [
        (2, "stop", None),
        (None, "length", None),
        (1, "length", "1 instead of 2 tokens"),
        (3, "length", "3 instead of 2 tokens"),
        (None, "stop", "reason to stop is stop"),
        (None, None, "reason to stop is unknown"),
    ],
)
def test_an_answer_of_another_length_is_wrong_with_or_without_a_reference(
    tokens: int | None, finish: str | None, wrong: str | None
) -> None:
    reply = Completion("five six", None, tokens, finish)
    judged = _Loaded().judge(timeline({0: reply, 1: reply}, [0, 2]))
    assert judged.compared == 1
    if wrong is None:
        assert not judged.wrong
    else:
        assert sorted(judged.wrong) == [0, 1]
        assert all(wrong in why for why in judged.wrong.values())


def test_a_prompt_without_a_reference_is_not_compared() -> None:
    replies = {0: completion("seven eight"), 1: completion("x"), 2: completion("five six")}
    judged = _Loaded().judge(timeline(replies, [1, 2, 0]))
    assert (judged.compared, judged.equal) == (2, 2)


class _Distribution(PromptWorkload):
    """Three prompts of each of two pairs of lengths; the file has the second pair twice."""

    def __init__(self) -> None:
        self._distinct = [(2, 4), (3, 8)]
        self._pairs = ((2, 4), (3, 8), (3, 8))
        self.samples = [Prompt("", new, (0,) * length) for _ in range(3) for length, new in self._distinct]


def test_of_a_distribution_each_request_draws_its_lengths_and_asks_for_its_own_tokens() -> None:
    work = _Distribution()
    order = work.order(3_000, 5)
    assert order == work.order(3_000, 5) != work.order(3_000, 6)
    asked = work.asked(timeline({}, order))
    assert set(asked) == {4, 8}
    assert np.mean(np.array(asked) == 8) == pytest.approx(2 / 3, abs=0.05)
    # The prompts of a pair take turns.
    first = [place for place in order if place % 2 == 0]
    assert first[:4] == [*first[:3], first[0]]
    assert len(set(first[:3])) == 3


def test_a_missing_length_names_the_stage_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class _Export:
        model, folder = "m", None

        def prompt_set(self, *_: int) -> None:
            return None

    class _Load:
        pairs, slug = ((16, 8),), "m"

    class _Job:
        load, export, models = _Load(), "x", str(Path("models"))

    monkeypatch.setattr(endpoint_process.store, "load", lambda *_: _Export())
    with pytest.raises(MissingInputError, match="no 8 tokens after prompts of 16"):
        PromptWorkload(_Job())  # type: ignore[arg-type]
