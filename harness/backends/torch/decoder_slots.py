"""torch-eager with continuous batching: slots of one cache, each with a length of its own.

A prompt that joins runs alone with a DynamicCache, as in decoder_eager.py, and its keys and values are copied into its
slot. A step computes the slots from the first to the last one taken; those that are empty between them are computed for
nothing. A mask hides the positions of each slot beyond its own length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Cache, DynamicCache
from transformers.cache_utils import CacheLayerMixin

from harness.backends.decoder import GenerationJob, JoiningDecoder
from harness.backends.torch.decoder_base import TorchDecoder
from harness.core.errors import CaseError


class _Slots:
    """What the layers of the cache share. lengths: of each slot on the host, 0 where it is empty; rows, places: where
    the next step writes, on the device; longest: positions that it attends to."""

    def __init__(self, count: int) -> None:
        self.lengths = np.zeros(count, np.int64)
        self.rows: Any = None
        self.places: Any = None
        self.longest = 0


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers has no types
    """Keys and values of one layer: (slots, heads, capacity, head size)."""

    is_sliding = False

    def __init__(self, slots: _Slots, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self._slots = keys, values, slots
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Its memory is there from the start."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one position of each computed slot, and return those that it may attend to."""
        slots = self._slots
        count = len(key_states)
        self.keys[slots.rows, :, slots.places] = key_states[:, :, 0]
        self.values[slots.rows, :, slots.places] = value_states[:, :, 0]
        return self.keys[:count, :, : slots.longest], self.values[:count, :, : slots.longest]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset."""
        return self._slots.longest, 0

    def get_seq_length(self) -> int:
        """Positions before those of the next step."""
        return self._slots.longest - 1

    def get_max_length(self) -> int:
        """Positions of a slot."""
        return int(self.keys.shape[2])


class SlotDecoder(JoiningDecoder, TorchDecoder):
    """The cache is made at load(), with room for the longest prompt and output in every slot."""

    def __init__(self, job: GenerationJob) -> None:
        super().__init__(job)
        if self._seq2seq:
            raise CaseError(
                f"{job.model} has an encoder, and requests join causal models alone.", "Leave BATCHING out for it."
            )

    def load(self) -> None:
        """Load the model and make the cache. Raises CaseError for attention over a part of the positions."""
        super().load()
        job, config = self.job, self._model.config
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"} or getattr(config, "sliding_window", None):
            raise CaseError(
                f"{job.model} does not attend to all positions, and the mask of slots here does.",
                "Leave BATCHING out for it.",
            )
        size = (job.batch_size, job.shape.kv_heads, job.capacity, job.shape.head_dim)
        room = [
            [torch.zeros(size, dtype=self._model.dtype, device=self._device) for _ in range(2)]
            for _ in range(job.shape.layers)
        ]
        self._slots = _Slots(job.batch_size)
        self._cache = Cache(layers=[_SlotLayer(self._slots, keys, values) for keys, values in room])
        self._rows = torch.zeros((job.batch_size, job.shape.vocabulary), dtype=self._model.dtype, device=self._device)
        self._logits = self._rows
        self._unseen = torch.finfo(self._model.dtype).min

    def join(self, slot: int, ids: NDArray[np.int64]) -> None:
        """The pass over the prompt, and a copy of its keys and values."""
        alone = DynamicCache(config=self._model.config)
        inputs = {"input_ids": self._prompt(ids[None]), self._cache_name: alone, **self._last_only}
        self._choose(slice(slot, slot + 1), self._model(**inputs, use_cache=True).logits[:, -1])
        for own, layer in zip(self._cache.layers, alone.layers, strict=True):
            own.keys[slot, :, : len(ids)] = layer.keys[0]
            own.values[slot, :, : len(ids)] = layer.values[0]
        self._slots.lengths[slot] = len(ids)

    def leave(self, slot: int) -> None:
        """The slot has no positions."""
        self._slots.lengths[slot] = 0

    def width(self) -> int:
        """The slots from the first to the last one taken."""
        return int(self._slots.lengths.nonzero()[0].max(initial=-1)) + 1

    def step(self) -> None:
        """One call with the latest token of each slot; an empty one writes to its first position."""
        slots, count = self._slots, self.width()
        lengths = slots.lengths[:count]
        slots.longest = int(lengths.max()) + 1
        slots.rows = torch.arange(count, device=self._device)
        slots.places = self._prompt(lengths.copy())
        seen = torch.arange(slots.longest, device=self._device) <= slots.places[:, None]
        mask = torch.zeros(seen.shape, dtype=self._model.dtype, device=self._device)
        mask = mask.masked_fill_(~seen, self._unseen)[:, None, None]
        inputs = {"input_ids": self._next[:count], "attention_mask": mask, "position_ids": slots.places[:, None]}
        inputs[self._cache_name] = self._cache
        self._choose(slice(0, count), self._model(**inputs, use_cache=True).logits[:, -1])
        lengths[lengths > 0] += 1

    def force(self, ids: NDArray[np.int64]) -> None:
        """Put the tokens where the next step reads them."""
        self._next.copy_(torch.from_numpy(ids.astype(np.int64)).view(-1, 1))

    def _choose(self, slots: slice, logits: torch.Tensor) -> None:
        self._rows[slots] = logits
        self._next[slots] = logits.argmax(dim=-1, keepdim=True)

    def _caches(self) -> list[Any]:
        return [self._cache]

    def _settings(self) -> dict[str, str | int | float | bool]:
        return {"cache": "slots", "slots": self.job.batch_size, "slot_positions": self.job.capacity}
