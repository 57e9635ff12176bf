"""llama.cpp, through llama-cpp-python (an optional library that is built from source), generates from the GGUF file
itself: one prefill or step is one llama_decode, then the largest logit.

Its low-level functions are called, because `Llama.generate` samples in Python and may keep a prefix of the prompt.

With continuous batching a slot is a sequence of one context. All sequences share its cells (`kv_unified`), as in
llama.cpp's own server: where each has its own, a step over sequences whose numbers have a gap is computed in two parts,
and each part reads the weights.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from harness.backends.decoder import Decoder, DecoderJob, JoiningDecoder
from harness.core.errors import CaseError
from harness.core.schemas import Placement

_ALL_LAYERS = 9_999
_CELLS = 256
"""llama.cpp rounds the cells of a sequence up to a multiple of this number."""
_NAMES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16", "Q8_0": "int8", "Q4_0": "int4", "Q4_1": "int4", "Q4_K": "int4"}
"""Types of GGUF by the plan's precision; others keep their own name."""


class LlamaCppDecoder(Decoder):
    """Every sequence has a stream of its own in one cache of keys and values in fp16, llama.cpp's default."""

    unified = False
    """Whether all sequences share the cells of the cache."""

    def __init__(self, job: DecoderJob) -> None:
        super().__init__(job)
        if job.gguf is None:
            raise CaseError(
                f"{job.model} was not made from a GGUF file, and llama.cpp reads no other.",
                "Choose smollm2-135m, or leave llamacpp out of its backends.",
            )
        self._file = job.folder / job.gguf
        self._model: Any = None
        self._context: Any = None
        self._batches: list[Any] = []

    def load(self) -> None:
        """Load the file and make the context with its cache."""
        job, batch = self.job, self.job.batch_size
        _be_quiet()
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_default_params()
        model.n_gpu_layers = _ALL_LAYERS if job.device == "cuda" else 0
        self._model = llama_cpp.llama_model_load_from_file(str(self._file).encode(), model)
        if not self._model:
            raise CaseError(f"llama.cpp cannot load {self._file}.", "Export the model again: `make generate`.")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = batch * -(-job.capacity // _CELLS) * _CELLS
        context.n_batch = max(batch * job.prompt_length, context.n_batch)
        context.n_seq_max = batch
        context.kv_unified = self.unified
        context.n_threads = context.n_threads_batch = job.threads
        context.offload_kqv = context.op_offload = job.device == "cuda"
        self._context = llama_cpp.llama_init_from_model(self._model, context)
        if not self._context:
            raise CaseError("llama.cpp made no context of this size.", "Try a smaller batch or shorter prompts.")
        self._vocabulary = int(llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model)))
        self._cache = llama_cpp.llama_get_memory(self._context)
        self._make_batches()
        self._filled = 0
        self._tokens: NDArray[np.int64] | None = None

    def prefill(self, ids: NDArray[np.int64]) -> None:
        """Empty the cache and decode the prompts; only each last position gets logits."""
        llama_cpp.llama_memory_clear(self._cache, True)
        self._filled = 0
        self._decode(self._prompt, ids)

    def step(self) -> None:
        """Decode the latest token of each sequence."""
        self._decode(self._step_batch, self.tokens()[:, None])

    def tokens(self) -> NDArray[np.int64]:
        """The largest logit of each sequence."""
        if self._tokens is None:
            self._tokens = self._rows(self.job.batch_size).argmax(-1)
        return self._tokens

    def logits(self) -> NDArray[np.float32]:
        """Logits of the latest call."""
        return self._rows(self.job.batch_size).copy()

    def force(self, ids: NDArray[np.int64]) -> None:
        """Replace the latest tokens."""
        self._tokens = np.array(ids, np.int64)

    def cache_bytes(self) -> int:
        """Bytes of the filled cells of every sequence as llama.cpp would save them: keys, values and a few bytes a
        cell."""
        state = llama_cpp.llama_state_seq_get_size
        return sum(int(state(self._context, sequence)) for sequence in range(self.job.batch_size))

    def placement(self) -> Placement:
        """Types of the file's weights, the threads of the context, and whether the build can use a GPU."""
        census = _census(self._file)
        products = Counter({name: count for name, count in census.items() if name != "F32"}) or Counter(census)
        most = products.most_common(1)[0][0]
        on_gpu = bool(llama_cpp.llama_supports_gpu_offload())
        return Placement(
            device="cuda" if on_gpu and self.job.device == "cuda" else "cpu",
            precision=_NAMES.get(most, most),
            provider="llama.cpp",
            settings={
                "threads": int(llama_cpp.llama_n_threads(self._context)),
                "prompt_threads": int(llama_cpp.llama_n_threads_batch(self._context)),
                "cells": int(llama_cpp.llama_n_ctx(self._context)),
                "cells_shared": self.unified,
                "cache_precision": "fp16",
                "weights": most,
                "weight_bytes": int(llama_cpp.llama_model_size(self._model)),
            },
            dtype_census=dict(census),
        )

    def build_facts(self) -> dict[str, str]:
        """Version of the binding, and what the build uses of the processor."""
        system = llama_cpp.llama_print_system_info().decode().strip()
        return {"llama_cpp_python": str(llama_cpp.__version__), "llama_cpp_system": system}

    def close(self) -> None:
        """Free batches, context and model. Safe after a load() that failed half-way."""
        while self._batches:
            llama_cpp.llama_batch_free(self._batches.pop())
        if self._context:
            llama_cpp.llama_free(self._context)
        if self._model:
            llama_cpp.llama_model_free(self._model)
        self._context = self._model = None

    def _make_batches(self) -> None:
        self._prompt = self._batch_of(self.job.batch_size, self.job.prompt_length)
        self._step_batch = self._batch_of(self.job.batch_size, 1)

    def _batch_of(self, sequences: int, length: int, first: int = 0) -> Any:
        """A llama_batch of `length` tokens for each sequence, which asks for logits of each last one. first: sequence;
        freed in close()."""
        batch = llama_cpp.llama_batch_init(sequences * length, 0, 1)
        self._batches.append(batch)
        batch.n_tokens = sequences * length
        for place in range(sequences * length):
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = first + place // length
            batch.logits[place] = place % length == length - 1
        return batch

    def _decode(self, batch: Any, ids: NDArray[np.int64]) -> None:
        """ids (batch, length): the same number of tokens for each sequence, after those in the cache."""
        places = np.broadcast_to(np.arange(self._filled, self._filled + ids.shape[1]), ids.shape)
        self._run(batch, ids.reshape(-1), places.reshape(-1))
        self._filled += ids.shape[1]

    def _run(self, batch: Any, ids: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        """Decode the tokens at their positions; their sequences are those of the batch."""
        batch.n_tokens = len(ids)
        view(batch.token, len(ids), np.int32)[:] = ids
        view(batch.pos, len(ids), np.int32)[:] = places
        code = llama_cpp.llama_decode(self._context, batch)
        if code:
            raise CaseError(f"llama_decode returned {code}.", "Try a smaller batch or shorter prompts.")
        self._tokens = None

    def _rows(self, count: int) -> NDArray[np.float32]:
        """A view of (count, vocabulary), the logits of the latest call in the order of its batch; waits for it."""
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits(self._context), (count, self._vocabulary))


def view(pointer: Any, size: int, kind: type[np.generic]) -> Any:
    """The memory that a pointer of a batch names, as an array."""
    memory = np.ctypeslib.as_array(pointer, (size,))
    return memory.view(kind)


def _census(file: Path) -> dict[str, int]:
    """Number of weights by GGUF's type."""
    from gguf import GGUFReader  # noqa: PLC0415 - only the record needs it

    census: Counter[str] = Counter()
    for tensor in GGUFReader(file).tensors:
        census[tensor.tensor_type.name] += int(tensor.n_elements)
    return dict(census)


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]  # the binding has no types
def _ignore(level: int, text: bytes, data: ctypes.c_void_p) -> None:
    """Drop llama.cpp's log, pages for each load."""


def _be_quiet() -> None:
    llama_cpp.llama_log_set(_ignore, ctypes.c_void_p(0))


class LlamaCppSlots(JoiningDecoder, LlamaCppDecoder):
    """A join is one llama_decode of a prompt, a step is one of the latest token of every sequence."""

    unified = True

    def load(self) -> None:
        """Load the model as for static batches, with no sequence in the cache."""
        super().load()
        self._lengths: dict[int, int] = {}
        self._latest = self._tokens = np.zeros(self.job.batch_size, np.int64)
        self._computed: list[int] = []

    def join(self, slot: int, ids: NDArray[np.int64]) -> None:
        """Remove what the slot holds, and decode the prompt; only its last position gets logits."""
        self.tokens()
        self.leave(slot)
        batch = self._prompts[slot]
        wanted = view(batch.logits, self.job.prompt_length, np.int8)
        wanted[:] = 0
        wanted[len(ids) - 1] = 1
        self._run(batch, ids, np.arange(len(ids)))
        self._computed, self._lengths[slot] = [slot], len(ids)

    def leave(self, slot: int) -> None:
        """Free the cells of the slot."""
        llama_cpp.llama_memory_seq_rm(self._cache, slot, -1, -1)
        self._lengths.pop(slot, None)

    def width(self) -> int:
        """The sequences that are there."""
        return len(self._lengths)

    def step(self) -> None:
        """Decode the latest token of every sequence."""
        latest, slots = self.tokens(), sorted(self._lengths)
        for place, slot in enumerate(slots):
            self._step_batch.seq_id[place][0] = slot
        self._run(self._step_batch, latest[slots], np.array([self._lengths[slot] for slot in slots]))
        self._computed = slots
        for slot in slots:
            self._lengths[slot] += 1

    def tokens(self) -> NDArray[np.int64]:
        """The largest logit of each sequence of the latest call; the others keep theirs."""
        if self._tokens is None:
            self._latest[self._computed] = self._rows(len(self._computed)).argmax(-1)
            self._tokens = self._latest
        return self._tokens

    def logits(self) -> NDArray[np.float32]:
        """Logits of the latest call, each at its slot."""
        logits = np.zeros((self.job.batch_size, self._vocabulary), np.float32)
        logits[self._computed] = self._rows(len(self._computed))
        return logits

    def force(self, ids: NDArray[np.int64]) -> None:
        """Replace the latest tokens."""
        self._latest = self._tokens = np.array(ids, np.int64)

    def _make_batches(self) -> None:
        slots = range(self.job.batch_size)
        self._prompts = [self._batch_of(1, self.job.prompt_length, first=slot) for slot in slots]
        self._step_batch = self._batch_of(self.job.batch_size, 1)
