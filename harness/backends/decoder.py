"""The interface of every backend that generates, and one phase of a decoder as a pass that profilers time. A decoder
never reads a clock: timing/token_session.py times all of them.

One `prefill` and `tokens` give the first token of each sequence, each `step` and `tokens` the next one. Generation is
greedy and ignores the end token, so that every sequence has the requested length. Ids are compared, never text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.backends.info import import_target
from harness.core.errors import CaseError
from harness.core.schemas import Device, Placement, Precision
from harness.core.schemas.generation_record import DecoderShape
from harness.core.schemas.profile_record import GenerationPhase
from harness.statistics.parity import Ids


@dataclass(frozen=True)
class DecoderJob:
    """Everything that a decoder needs for one case.

    folder: of the model's files for generation: config.json, weights.safetensors (fp32), where there are any tokenizer/
        and decoder files of other formats.
    batch_size: sequences of each request. prompt_length: tokens of each prompt. new_tokens: tokens of each answer.
    onnx: the decoder's ONNX file for the case's precision, below `folder`; gguf: the file that the weights were made
        from; None where there is none or the backend does not read it.
    threads: intra-op threads to use, the same for every backend.
    options: of the case's setting (harness.backends.settings.Setting).
    cache: a folder where compiled code may be kept between processes.
    """

    model: str
    folder: Path
    shape: DecoderShape
    device: Device
    precision: Precision
    batch_size: int
    prompt_length: int
    new_tokens: int
    threads: int
    cache: Path
    onnx: Path | None = None
    gguf: Path | None = None
    options: Mapping[str, str | int | bool] = field(default_factory=dict)

    @property
    def capacity(self) -> int:
        """Positions that the decoder's own cache holds after the last token, at least: P + N for a causal model, N for
        a seq2seq model, whose P encoder positions are cached apart."""
        return self.new_tokens + (0 if self.shape.kind == "seq2seq" else self.prompt_length)


class Decoder(ABC):
    """One way to generate greedily with a key-value cache.

    Order of calls: load → compile → (prefill → tokens → (step → tokens)…)… → placement → close. `logits` may follow any
    `tokens`; `force` may come before any `step`. A request has at most job.new_tokens tokens: one of the prefill,
    new_tokens - 1 of steps. One that ends earlier is followed by the next prefill.
    """

    compiles = False
    """True when the time of compile() is a separate part of the cold start."""

    def __init__(self, job: DecoderJob) -> None:
        self.job = job

    @abstractmethod
    def load(self) -> None:
        """Load the model and make room for the cache. Outside the clock."""

    def compile(self) -> None:  # noqa: B027 - most decoders have nothing to compile
        """Compile for exactly the shapes of this case."""

    def compile_cached(self) -> bool | None:
        """True when compile() would find the work of an earlier process; None where nothing is compiled."""
        return None

    @abstractmethod
    def prefill(self, ids: NDArray[np.int64]) -> None:
        """Empty the cache and enqueue the pass over the prompts, up to the choice of the first tokens.

        ids: (batch_size, prompt_length) on the host. A seq2seq decoder runs its encoder and its first step.
        """

    def prefill_padded(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """As prefill, for prompts of several lengths. Their padding is masked, so that each prompt gets the same tokens
        as alone, and positions count from its own first token. In the table: `decoder_pads`.

        ids: (batch_size, longest) with each prompt at the end of its row. lengths: (batch_size,) of the prompts.
        """
        raise CaseError(f"This decoder of {self.job.model} masks no padding.", "Load it with prompts of one length.")

    @abstractmethod
    def step(self) -> None:
        """Enqueue one decode step. Its input is the latest token of each sequence, or what force() gave."""

    @abstractmethod
    def tokens(self) -> NDArray[np.int64]:
        """Wait for the latest prefill or step; its tokens, (batch_size,) on the host."""

    @abstractmethod
    def logits(self) -> NDArray[np.float32]:
        """A copy of the logits that the latest tokens were chosen from: (batch_size, vocabulary). Outside the clock."""

    @abstractmethod
    def force(self, ids: NDArray[np.int64]) -> None:
        """Let the next step take these tokens, (batch_size,), instead of the latest ones. Outside the clock."""

    @abstractmethod
    def cache_bytes(self) -> int:
        """Bytes that the keys and values of the latest request occupy, measured on the tensors or buffers themselves;
        memory that a static cache reserves counts."""

    @abstractmethod
    def placement(self) -> Placement:
        """The devices and precision that really ran, from the session, graph or module; never from the request."""

    def build_facts(self) -> dict[str, str]:
        """Facts about the library's build that change numbers, for the environment record."""
        return {}

    def on_purpose(self) -> str | None:
        """A description of behaviour that only serves a test of the harness; None for all real work."""
        return None

    def close(self) -> None:  # noqa: B027 - most decoders hold nothing that outlives the process
        """Release resources that outlive the process."""


class JoiningDecoder(Decoder):
    """A decoder whose sequences come and go one by one (continuous batching): each has a slot, of job.batch_size slots.

    Order of calls: load → compile → (join → tokens | step → tokens | leave)… → placement → close. Prompts and answers
    have at most job.prompt_length and job.new_tokens tokens. tokens() and force() have an entry for each slot, and
    logits() a row; those of slots that the latest pass did not compute mean nothing. In the table: `decoder_joins`.
    """

    @abstractmethod
    def join(self, slot: int, ids: NDArray[np.int64]) -> None:
        """Empty the slot and enqueue a pass of its own over one prompt, up to the choice of its first token. No other
        sequence gets a token, and none loses its latest one.

        ids: (length,) on the host.
        """

    @abstractmethod
    def leave(self, slot: int) -> None:
        """The slot's sequence is complete: it gets no more tokens. An empty slot stays empty. Not waited for."""

    @abstractmethod
    def width(self) -> int:
        """Sequences that the next step computes; with empty slots, where the step has them between others."""

    def prefill(self, ids: NDArray[np.int64]) -> None:
        """All slots join, one after the other."""
        self.prefill_padded(ids, np.full(len(ids), ids.shape[1]))

    def prefill_padded(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """As prefill: a prompt that joins alone needs no padding."""
        for slot, (prompt, length) in enumerate(zip(ids, lengths.tolist(), strict=True)):
            self.join(slot, prompt[len(prompt) - length :])


def construct_decoder(target: str, job: DecoderJob) -> Decoder:
    """The decoder of a table entry's `module:Class`; imports its libraries."""
    decoder: Decoder = import_target(target)(job)
    return decoder


class DecoderPhase:
    """Passes of one phase, with the clock's boundaries of timing/token_session.py.

    prefill: from the prompt ids on the host to the first tokens there; each pass takes the next prompts. decode: from
    one token on the host to the next. Steps follow each other through an answer, as they do when it is timed, so that
    their mean is over all contexts of the answer; after its end the next prompts are prefilled outside the clock.
    """

    def __init__(self, decoder: Decoder, prompts: Ids, phase: GenerationPhase) -> None:
        """prompts: (samples, length). ValueError for a decode phase of one-token answers, which have no step."""
        if phase == "decode" and decoder.job.new_tokens < 2:
            raise ValueError("an answer of one token has no decode step")
        self.decoder, self.phase = decoder, phase
        self.ran: list[GenerationPhase] = []
        """The phase of each pass of the model, in order."""
        self._prompts, self._request, self._left = prompts, 0, 0

    @property
    def inputs(self) -> int:
        """Batches that the prompts make."""
        return max(1, len(self._prompts) // self.decoder.job.batch_size)

    @property
    def on_gpu(self) -> bool:
        """Whether passes run on a GPU."""
        return self.decoder.job.device == "cuda"

    def load(self) -> None:
        """Load the model."""
        self.decoder.load()

    def compile(self) -> None:
        """Compile the step, where steps are timed."""
        if self.phase == "decode":
            self.decoder.compile()

    def alone(self, passes: int) -> int:
        """Decode steps follow each other until the answer's end: begin a new answer for them."""
        if self.phase == "prefill":
            return passes
        self._begin()
        return min(passes, self._left)

    def select(self, index: int) -> None:
        """Prefill: take prompts `index` next. Decode: begin a new answer where the last one is complete."""
        if self.phase == "prefill":
            self._request = index
        elif not self._left:
            self._begin()

    def infer(self) -> None:
        """One prefill or one step."""
        self.ran.append(self.phase)
        if self.phase == "prefill":
            self.decoder.prefill(self._ids())
        else:
            self._left -= 1
            self.decoder.step()

    def synchronize(self) -> None:
        """Wait for the tokens, as the loop does."""
        self.decoder.tokens()

    def outputs(self) -> Ids:
        """The latest tokens."""
        return self.decoder.tokens().copy()

    def close(self) -> None:
        """Release the decoder."""
        self.decoder.close()

    def _begin(self) -> None:
        self.ran.append("prefill")
        self.decoder.prefill(self._ids())
        self.decoder.tokens()
        self._request += 1
        self._left = self.decoder.job.new_tokens - 1

    def _ids(self) -> Ids:
        size = self.decoder.job.batch_size
        rows = [(self._request * size + place) % len(self._prompts) for place in range(size)]
        return np.ascontiguousarray(self._prompts[rows])
