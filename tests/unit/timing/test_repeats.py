"""The repeat check: what a new input is, that both inputs of a pair are treated alike, and what is left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.core.errors import CaseError
from harness.core.new_inputs import mixed
from harness.core.schemas import Repeats
from harness.timing import repeat_check
from harness.timing.repeat_check import (
    LEAST_PAIRS,
    MOST_PAIRS,
    Rewritable,
    answer_digest,
    check_repeats,
)

MS = 1_000_000
BATCHES = 8
Array = np.ndarray[Any, Any]


def stored() -> list[dict[str, Array]]:
    """Pictures, token ids and a mask."""
    random = np.random.default_rng(1)
    return [
        {
            "pixels": random.normal(size=(2, 3, 4)).astype(np.float32),
            "ids": random.integers(0, 30_000, (2, 16)),
            "mask": np.ones((2, 16), np.int64),
        }
        for _ in range(BATCHES)
    ]


def answer(batch: dict[str, Array]) -> dict[str, Array]:
    return {"y": batch["pixels"].sum(axis=(1, 2)) + batch["ids"].sum(axis=1)}


class Model:
    """Takes 10 ms a pass on its own clock, or 1 ms where it remembers the answer by the key of its input."""

    def __init__(
        self, batches: list[dict[str, Array]], remembers_by: Callable[[int, Any], object] | None = None
    ) -> None:
        self.batches = batches
        self.now_ns = 0
        self.index = -1
        self.passes: list[dict[str, Array]] = []
        self._remembers_by = remembers_by
        self._known: dict[object, dict[str, Array]] = {}
        for index in range(len(batches)):  # they rotated
            self.ready(index)
            self.run_once()
        self.passes.clear()

    def ready(self, index: int) -> None:
        self.index = index
        self.now_ns += MS

    def run_once(self) -> None:
        batch = self.batches[self.index]
        self.passes.append({name: values.copy() for name, values in batch.items()})
        key = self._remembers_by and self._remembers_by(self.index, batch)
        known = key is not None and key in self._known
        self.now_ns += MS if known else 10 * MS
        if key is None or not known:
            self._known[key] = answer(batch)
        self.answer = self._known[key]

    def outputs(self) -> dict[str, Array]:
        return self.answer

    def run(self, monkeypatch: pytest.MonkeyPatch, seed: int = 1) -> Repeats:
        right = [answer(batch) for batch in self.batches]
        monkeypatch.setattr(repeat_check, "now_ns", lambda: self.now_ns)
        runs = Rewritable(self.batches, self.ready, self.run_once, self.outputs)
        known = [digest for entry in right if (digest := answer_digest(entry)) is not None]
        return check_repeats(runs, right.__getitem__, (7, seed), known=known)


def by_content(index: int, batch: dict[str, Array]) -> object:
    return b"".join(values.tobytes() for values in batch.values())


def test_an_honest_model_takes_as_long_for_a_new_input_and_answers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Model(stored()).run(monkeypatch)
    assert set(result.fresh_ns) == set(result.repeated_ns) == {10 * MS}
    assert (result.compared, result.unchanged, result.missing) == (LEAST_PAIRS, 0, None)


def test_answers_that_share_their_memory_are_still_those_of_their_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(stored())
    shared = answer(model.batches[0])

    def outputs() -> dict[str, Array]:
        np.copyto(shared["y"], model.answer["y"])
        return shared

    monkeypatch.setattr(model, "outputs", outputs)
    assert model.run(monkeypatch).unchanged == 0


def test_answers_by_content_are_fast_for_repeated_inputs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Model(stored(), by_content).run(monkeypatch)
    assert (set(result.fresh_ns), set(result.repeated_ns)) == ({10 * MS}, {MS})
    assert result.unchanged == 0


def test_answers_by_place_do_not_change_with_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Model(stored(), lambda index, batch: index).run(monkeypatch)
    assert result.compared == result.unchanged == LEAST_PAIRS


def test_the_answer_to_any_stored_input_is_none_to_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(stored())
    near = [answer(batch) for batch in model.batches]

    def run_once() -> None:
        key = answer(model.batches[model.index])["y"]
        model.now_ns += MS
        model.answer = min(near, key=lambda entry: float(np.square(entry["y"] - key).sum()))

    monkeypatch.setattr(model, "run_once", run_once)
    result = model.run(monkeypatch)
    assert set(result.fresh_ns) == set(result.repeated_ns) == {MS}
    assert result.compared == result.unchanged == LEAST_PAIRS


def test_only_floats_identify_an_answer() -> None:
    real = {"y": np.array([0.5, 2.0], np.float32)}
    assert answer_digest(real) == answer_digest({**real, "label": np.array([3])})
    assert answer_digest(real) != answer_digest({"y": np.array([0.5, 2.5], np.float32)})
    whole = {"one_hot": np.array([0.0, 1.0, np.inf])}
    assert answer_digest(whole) is answer_digest({"label": np.array([3])}) is answer_digest({}) is None


def test_both_inputs_of_a_pair_are_written_before_their_pass_and_chance_says_which_is_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = stored()
    before = [{name: values.copy() for name, values in batch.items()} for batch in batches]
    model = Model(batches)
    result = model.run(monkeypatch)
    pairs = [model.passes[1:][place : place + 2] for place in range(0, 2 * len(result.fresh_ns), 2)]
    repeated_first = []
    for number, pair in enumerate(pairs):
        old = before[number % BATCHES]
        same = [np.array_equal(entry["pixels"], old["pixels"]) for entry in pair]
        assert sorted(same) == [False, True]
        repeated_first.append(same[0])
    assert all(entry != other for entry, other in zip(repeated_first[::2], repeated_first[1::2], strict=False))
    assert set(repeated_first[::2]) == {True, False}


def test_inputs_are_afterwards_as_they_were_also_where_batches_share_memory() -> None:
    whole = np.random.default_rng(2).normal(size=(20, 6)).astype(np.float32)
    before = whole.copy()
    overlapping = [{"pixels": whole[start : start + 8]} for start in range(0, 12, 2)]
    seen: list[int] = []
    result = check_repeats(
        Rewritable(overlapping, seen.append, lambda: None, lambda: {"y": overlapping[seen[-1]]["pixels"].copy()}),
        lambda index: {"y": before[2 * index : 2 * index + 8]},
        (1,),
    )
    assert (result.compared, result.unchanged) == (LEAST_PAIRS, 0)
    assert seen[-1] == (len(result.fresh_ns) - 1) % len(overlapping)  # brought up to date once more
    np.testing.assert_array_equal(whole, before)


def test_slow_models_make_few_pairs_and_fast_ones_no_more_than_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = Model(stored()), Model(stored())
    monkeypatch.setattr(repeat_check, "BUDGET_NS", 1)
    assert len(slow.run(monkeypatch).fresh_ns) == LEAST_PAIRS
    monkeypatch.setattr(repeat_check, "BUDGET_NS", 10**12)
    assert len(fast.run(monkeypatch).fresh_ns) == MOST_PAIRS


def test_the_same_process_has_the_same_new_inputs_and_another_one_has_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def inputs(seed: int) -> bytes:
        model = Model(stored())
        model.run(monkeypatch, seed)
        return b"".join(entry["pixels"].tobytes() + entry["ids"].tobytes() for entry in model.passes)

    assert inputs(1) == inputs(1) != inputs(2)


def test_why_there_are_no_pairs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = [{"mask": np.array([[index % 2, 1]])} for index in range(BATCHES)]

    def refuse(index: int) -> None:
        raise CaseError("It cannot.", "Do not.")

    def fail() -> None:
        raise ZeroDivisionError("by zero")

    def missing(
        batches: list[dict[str, Array]], ready: Any = lambda index: None, once: Any = lambda: None
    ) -> str | None:
        return check_repeats(Rewritable(batches, ready, once, dict), lambda index: {}, (1,)).missing

    assert missing(masks) == missing([]) == "no input has more than two values, so that none can be made of two others"
    assert missing([{"x": np.arange(3.0)[None]}] * 2) == "the inputs are too alike to make another one of two of them"
    assert missing(stored(), ready=refuse) == "It cannot."
    assert missing(stored(), once=fail) == "a pass on a new input failed: ZeroDivisionError: by zero"


kinds = st.sampled_from([np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8])


@given(
    kinds.flatmap(lambda kind: st.tuples(*[hnp.arrays(kind, (3, 5), elements={"min_value": 0, "max_value": 200})] * 2))
)
def test_a_new_input_lies_between_two_stored_ones_and_has_their_type(two: tuple[Array, Array]) -> None:
    first, other = two
    between = mixed(first, other, np.random.default_rng(3))
    assert (between.shape, between.dtype) == (first.shape, first.dtype)
    if np.issubdtype(first.dtype, np.integer):
        assert ((between == first) | (between == other)).all()
    else:
        room = 2 * np.spacing(np.maximum(first, other))
        assert (between >= np.minimum(first, other) - room).all()
        assert (between <= np.maximum(first, other) + room).all()


def test_a_series_of_one_or_two_values_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [{**batch, "mask": batch["mask"] * [[1] * 12 + [0] * 4]} for batch in stored()]
    model = Model(batches)
    model.run(monkeypatch)
    assert all(np.array_equal(entry["mask"], batches[0]["mask"]) for entry in model.passes)
    assert len({entry["ids"].tobytes() for entry in model.passes}) > LEAST_PAIRS


def test_padding_stays_so_that_a_model_that_skips_it_answers_every_new_input(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [3, 16, 4, 9, 3, 12, 5, 7]
    batches = [
        {"input_ids": np.where(mask, batch["ids"][:1], 0), "attention_mask": mask.astype(np.int64)}
        for batch, length in zip(stored(), lengths, strict=True)
        if (mask := np.arange(16)[None] < length) is not None
    ]
    seen = []

    def skipping(batch: dict[str, Array]) -> dict[str, Array]:
        seen.append(batch["input_ids"][batch["attention_mask"] == 0])
        return {"y": (batch["input_ids"] * batch["attention_mask"]).sum(axis=1)}

    monkeypatch.setattr(f"{__name__}.answer", skipping)
    result = Model(batches).run(monkeypatch)
    assert (result.compared, result.unchanged, result.missing) == (LEAST_PAIRS, 0, None)
    assert not np.concatenate(seen).any()


def test_a_text_of_one_word_is_mixed_with_a_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [[101, 2000 + word, 102, 0, 0, 0] for word in range(BATCHES - 1)] + [[101, 7, 8, 9, 10, 102]]
    batches = [
        {"input_ids": np.array([text]), "attention_mask": np.array([text]).astype(bool).astype(np.int64)}
        for text in texts
    ]
    monkeypatch.setattr(f"{__name__}.answer", lambda batch: {"y": batch["input_ids"].sum(axis=1)})
    result = Model(batches).run(monkeypatch)
    assert (result.compared, result.missing) == (LEAST_PAIRS, None)


def test_texts_of_one_word_are_mixed_by_a_word_between(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [{"input_ids": np.array([[101, 2000 + 10 * word, 102]])} for word in range(BATCHES)]
    before = {int(batch["input_ids"][0, 1]) for batch in batches}
    monkeypatch.setattr(f"{__name__}.answer", lambda batch: {"y": batch["input_ids"].sum(axis=1)})
    model = Model(batches)
    result = model.run(monkeypatch)
    assert (result.compared, result.missing) == (LEAST_PAIRS, None)
    words = {int(entry["input_ids"][0, 1]) for entry in model.passes}
    assert len(words - before) > LEAST_PAIRS // 2
    assert min(words) >= min(before) and max(words) <= max(before)  # noqa: PT018 - ids that the model knows
