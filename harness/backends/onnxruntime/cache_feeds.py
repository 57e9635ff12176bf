"""Three ways to hand keys and values from one run of ONNX Runtime to the next, each a setting.

numpy     run() with NumPy arrays: every step copies the whole cache out of the session and back into it
binding   IO binding between two sets of buffers in turn: a step copies the cache once, inside the graph (Concat)
in-place  IO binding to one set: GroupQueryAttention writes only the new keys and values

The lengths of a case are known, so the bindings of all its steps are made before: a step is one call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from harness.backends.base import Array
from harness.backends.decoder import DecoderJob
from harness.statistics.parity import Ids


class Held(Protocol):
    """An array in the memory of a device."""

    @property
    def address(self) -> int:
        """Address of its first byte."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, in elements."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its element type."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""


class BoundMemory(Protocol):
    """Memory that a session's inputs and outputs are bound in."""

    name: str
    """ONNX Runtime's name of it, `cpu` or `cuda`."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new array with undefined values."""

    def write(self, target: Any, values: Array) -> None:
        """Enqueue a copy from the host."""

    def read(self, source: Any) -> Array:
        """A copy on the host, when everything enqueued before is done."""


@dataclass(frozen=True)
class HostArray:
    """A NumPy array with the properties of Held."""

    array: Array

    @property
    def address(self) -> int:
        """Address of its first byte."""
        return int(self.array.ctypes.data)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, in elements."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its element type."""
        return self.array.dtype

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.array.nbytes


class HostMemory:
    """Main memory, where a run returns when its work is done."""

    name = "cpu"

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """A new array with undefined values."""
        return HostArray(np.empty(shape, dtype))

    def write(self, target: HostArray, values: Array) -> None:
        """Copy from `values`, at once."""
        target.array[...] = values

    def read(self, source: HostArray) -> Array:
        """A copy of the array."""
        return source.array.copy()


TYPES: Mapping[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


@dataclass(frozen=True)
class Sessions:
    """step: of the decoder file, which is a causal model's prefill, too. first: of a seq2seq model's prefill.

    options: RunOptions of every run, or None.
    """

    step: Any
    first: Any
    options: Any = None

    @property
    def cached(self) -> tuple[str, ...]:
        """`<layer>.key`, `<layer>.value` of every layer, as in the names of the files' tensors."""
        names = [port.name for port in self.step.get_inputs()]
        return tuple(name.removeprefix(PAST) for name in names if name.startswith(PAST))

    def kind(self, name: str) -> np.dtype[Any]:
        """Element type of an input or output of the decoder file."""
        ports = (*self.step.get_inputs(), *self.step.get_outputs())
        return np.dtype(TYPES[next(port.type for port in ports if port.name == name)])


PAST, PRESENT, CROSS = "past_key_values.", "present.", "cross."


class CacheFeeds(ABC):
    """The calls of Decoder that depend on the way (harness/backends/decoder.py)."""

    def __init__(self, sessions: Sessions, job: DecoderJob, memory: BoundMemory) -> None:
        self.sessions, self.job, self.memory = sessions, job, memory
        self.seq2seq = job.shape.kind == "seq2seq"
        self.reads = "decoder_input_ids" if self.seq2seq else "input_ids"
        self.cached = sessions.cached
        self.element = sessions.kind(f"{PAST}{self.cached[0]}")
        self.start = np.full((job.batch_size, 1), job.shape.start_token or 0, np.int64)

    @abstractmethod
    def prefill(self, ids: Ids) -> None:
        """Empty the cache and run over the prompts."""

    @abstractmethod
    def step(self) -> None:
        """Run once more, on the latest tokens."""

    @abstractmethod
    def tokens(self) -> Ids:
        """(batch,), on the host."""

    @abstractmethod
    def logits(self) -> Array:
        """(batch, vocabulary) of the latest run."""

    @abstractmethod
    def force(self, ids: Ids) -> None:
        """Replace the latest tokens."""

    @abstractmethod
    def cache_bytes(self) -> int:
        """Bytes of all buffers with keys and values."""

    def cache_shape(self, positions: int) -> tuple[int, ...]:
        """The shape of one layer's keys."""
        return self.job.batch_size, self.job.shape.kv_heads, positions, self.job.shape.head_dim


class NumpyFeeds(CacheFeeds):
    """The arrays that one run returned are the next run's inputs."""

    def __init__(self, sessions: Sessions, job: DecoderJob, memory: BoundMemory) -> None:
        super().__init__(sessions, job, memory)
        self._empty = {f"{PAST}{name}": np.zeros(self.cache_shape(0), self.element) for name in self.cached}
        self._outputs = [port.name for port in sessions.step.get_outputs()]
        self._first_outputs = [port.name for port in sessions.first.get_outputs()] if self.seq2seq else []
        self._past: dict[str, Array] = {}
        self._token: Array = self.start
        self._cross: dict[str, Array] = {}
        self._answer: dict[str, Array] = {}

    def prefill(self, ids: Ids) -> None:
        """Run over the prompts."""
        if self.seq2seq:
            values = self.sessions.first.run(None, {"input_ids": ids, "decoder_input_ids": self.start})
            self._keep(self._first_outputs, values)
            self._cross = {name: array for name, array in self._answer.items() if name.startswith(CROSS)}
        else:
            self._keep(self._outputs, self.sessions.step.run(None, {self.reads: ids, **self._empty}))

    def step(self) -> None:
        """Run on the latest tokens."""
        feeds = {self.reads: self._token, **self._past, **self._cross}
        self._keep(self._outputs, self.sessions.step.run(None, feeds))

    def tokens(self) -> Ids:
        """The tokens of the latest run."""
        return self._answer["next_token"].reshape(-1).astype(np.int64)

    def logits(self) -> Array:
        """The logits of the latest run."""
        return self._answer["logits"]

    def force(self, ids: Ids) -> None:
        """Replace the latest tokens."""
        self._token = np.array(ids, np.int64)[:, None]

    def cache_bytes(self) -> int:
        """Bytes of the arrays that the next run would read."""
        return sum(array.nbytes for array in (*self._past.values(), *self._cross.values()))

    def _keep(self, names: Sequence[str], values: Sequence[Array]) -> None:
        self._answer = dict(zip(names, values, strict=True))
        self._token = self._answer["next_token"]
        self._past = {f"{PAST}{name}": self._answer[f"{PRESENT}{name}"] for name in self.cached}


class _Bound(CacheFeeds):
    """All bindings of a request: number 0 is the prefill's, number k that of step k.

    Tokens alternate between two buffers: a run reads the one that the run before wrote.
    """

    def __init__(self, sessions: Sessions, job: DecoderJob, memory: BoundMemory) -> None:
        super().__init__(sessions, job, memory)
        self._prompt = memory.empty((job.batch_size, job.prompt_length), np.dtype(np.int64))
        self._tokens = [memory.empty((job.batch_size, 1), np.dtype(np.int64)) for _ in range(2)]
        self._begin = memory.empty((job.batch_size, 1), np.dtype(np.int64))
        memory.write(self._begin, self.start)
        self._logits = memory.empty((job.batch_size, job.shape.vocabulary), sessions.kind("logits"))
        self._make_room()
        self._bindings = [self._bind(number) for number in range(job.new_tokens)]
        self._runs = [(sessions.first if self.seq2seq else sessions.step).run_with_iobinding]
        self._runs += [sessions.step.run_with_iobinding] * (job.new_tokens - 1)
        self._number = 0

    def prefill(self, ids: Ids) -> None:
        """Run over the prompts."""
        self.memory.write(self._prompt, ids)
        self._number = 0
        self._runs[0](self._bindings[0], self.sessions.options)

    def step(self) -> None:
        """Run on the latest tokens."""
        self._number = number = self._number + 1
        self._runs[number](self._bindings[number], self.sessions.options)

    def tokens(self) -> Ids:
        """The tokens of the latest run."""
        return self.memory.read(self._tokens[self._number % 2]).reshape(-1).astype(np.int64, copy=False)

    def logits(self) -> Array:
        """The logits of the latest run."""
        return self.memory.read(self._logits)

    def force(self, ids: Ids) -> None:
        """Replace the latest tokens."""
        self.memory.write(self._tokens[self._number % 2], np.array(ids, np.int64)[:, None])

    @abstractmethod
    def _make_room(self) -> None:
        """Buffers of the cache."""

    @abstractmethod
    def _bind_cache(self, binding: Any, number: int) -> None:
        """Bind the cache of run `number`, and further inputs of the file."""

    def _bind(self, number: int) -> Any:
        session = self.sessions.first if self.seq2seq and not number else self.sessions.step
        binding = session.io_binding()
        before = self._tokens[(number - 1) % 2]
        if number:
            self._input(binding, self.reads, before, before.shape)
        else:
            self._input(binding, "input_ids", self._prompt, self._prompt.shape)
            if self.seq2seq:
                self._input(binding, "decoder_input_ids", self._begin, self._begin.shape)
        self._output(binding, "logits", self._logits, self._logits.shape)
        self._output(binding, "next_token", self._tokens[number % 2], before.shape)
        self._bind_cache(binding, number)
        return binding

    def _input(self, binding: Any, name: str, held: Held, shape: tuple[int, ...], skipped: int = 0) -> None:
        """Bind an array, or a part that begins after so many bytes."""
        binding.bind_input(name, self.memory.name, 0, held.dtype.type, list(shape), held.address + skipped)

    def _output(self, binding: Any, name: str, held: Held, shape: tuple[int, ...]) -> None:
        binding.bind_output(name, self.memory.name, 0, held.dtype.type, list(shape), held.address)


class PingPongBindings(_Bound):
    """Run `number` reads one set of buffers and writes the other; both are of the longest length."""

    def cache_bytes(self) -> int:
        """Bytes of both sets, and of the encoder's keys and values."""
        return sum(array.nbytes for group in (*self._sets, self._cross) for array in group.values())

    def _make_room(self) -> None:
        most = self.cache_shape(self.job.capacity)
        encoded = self.cache_shape(self.job.prompt_length)
        self._sets = [{name: self.memory.empty(most, self.element) for name in self.cached} for _ in range(2)]
        self._cross = {name: self.memory.empty(encoded, self.element) for name in self.cached if self.seq2seq}

    def _bind_cache(self, binding: Any, number: int) -> None:
        first = 1 if self.seq2seq else self.job.prompt_length
        after = self.cache_shape(first + number)
        before = self.cache_shape(first + number - 1 if number else 0)
        for name in self.cached:
            if number or not self.seq2seq:
                self._input(binding, f"{PAST}{name}", self._sets[(number - 1) % 2][name], before)
            self._output(binding, f"{PRESENT}{name}", self._sets[number % 2][name], after)
        for name, held in self._cross.items():
            bind = self._input if number else self._output
            bind(binding, f"{CROSS}{name}", held, held.shape)


class InPlaceBindings(_Bound):
    """Past and present are the same buffers; a run learns from three small inputs how much of them is filled."""

    def cache_bytes(self) -> int:
        """Bytes of the buffers."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def _make_room(self) -> None:
        job, memory = self.job, self.memory
        most = self.cache_shape(job.capacity)
        self._buffers = {name: memory.empty(most, self.element) for name in self.cached}
        filled = np.arange(job.new_tokens) + job.prompt_length  # positions after run `number`
        self._totals = HostArray(filled.astype(np.int32))
        each = np.repeat(filled[:, None], job.batch_size, axis=1)
        self._ends = memory.empty(each.shape, np.dtype(np.int32))
        self._places = memory.empty(each.shape, np.dtype(np.int64))
        self._first_places = memory.empty(self._prompt.shape, np.dtype(np.int64))
        memory.write(self._ends, (each - 1).astype(np.int32))
        memory.write(self._places, each - 1)
        memory.write(self._first_places, np.tile(np.arange(job.prompt_length), (job.batch_size, 1)))

    def _bind_cache(self, binding: Any, number: int) -> None:
        batch = self.job.batch_size
        if number:
            self._input(binding, "position_ids", self._places, (batch, 1), number * batch * 8)
        else:
            self._input(binding, "position_ids", self._first_places, self._first_places.shape)
        self._input(binding, "seqlens_k", self._ends, (batch,), number * batch * 4)
        # The kernel reads it on the host, on a GPU too.
        total = self._totals.address + number * 4
        binding.bind_input("total_sequence_length", "cpu", 0, np.int32, [], total)
        for name, held in self._buffers.items():
            self._input(binding, f"{PAST}{name}", held, held.shape)
            self._output(binding, f"{PRESENT}{name}", held, held.shape)


FEEDS: Mapping[str, type[CacheFeeds]] = {
    "numpy": NumpyFeeds,
    "binding": PingPongBindings,
    "in-place": InPlaceBindings,
}
"""By the option `feeds` of a setting."""
