"""One phase of a decoder as a pass for profilers: which calls it makes, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.backends.decoder import DecoderPhase
from harness.backends.profile_timing import choose_batch, inference_span, selected_span

PROMPTS = np.arange(12).reshape(6, 2)


class Shown:
    """A decoder that writes down its calls. NEW tokens: three steps an answer."""

    def __init__(self, new_tokens: int = 4) -> None:
        self.job = SimpleNamespace(batch_size=2, new_tokens=new_tokens, device="cpu")
        self.calls: list[Any] = []

    def compile(self) -> None:
        self.calls.append("compile")

    def prefill(self, ids: np.ndarray) -> None:  # type: ignore[type-arg]
        self.calls.append(ids.ravel().tolist())

    def step(self) -> None:
        self.calls.append("step")

    def tokens(self) -> np.ndarray:  # type: ignore[type-arg]
        self.calls.append("wait")
        return np.zeros(2, np.int64)


def phase_of(decoder: Shown, phase: str) -> DecoderPhase:
    return DecoderPhase(decoder, PROMPTS, phase)  # type: ignore[arg-type]


def test_a_prefill_takes_other_prompts_each_time_and_waits_for_its_tokens() -> None:
    decoder = Shown()
    phase = phase_of(decoder, "prefill")
    for index in range(4):
        inference_span(phase, index)
    assert decoder.calls[::2] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [0, 1, 2, 3]]
    assert set(decoder.calls[1::2]) == {"wait"}


def test_steps_go_through_an_answer_and_the_next_prefill_is_outside_the_pass() -> None:
    decoder = Shown()
    phase = phase_of(decoder, "decode")
    for index in range(4):
        choose_batch(phase, index)
        before = len(decoder.calls)
        selected_span(phase)
        assert decoder.calls[before:] == ["step", "wait"]
    begins = [call for call in decoder.calls if isinstance(call, list)]
    assert begins == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert phase.ran == ["prefill", "decode", "decode", "decode", "prefill", "decode"]


def test_traced_steps_never_reach_the_end_of_an_answer() -> None:
    decoder = Shown()
    phase = phase_of(decoder, "decode")
    inference_span(phase, 0)
    steps = phase.alone(10)
    assert steps == 3
    before = len(decoder.calls)
    for index in range(steps):
        inference_span(phase, index)
    assert all(call in ("step", "wait") for call in decoder.calls[before:])
    assert phase_of(decoder, "prefill").alone(10) == 10


def test_only_steps_are_compiled_and_one_token_has_none() -> None:
    decoder = Shown(new_tokens=1)
    phase_of(decoder, "prefill").compile()
    assert decoder.calls == []
    with pytest.raises(ValueError, match="no decode step"):
        phase_of(decoder, "decode")
