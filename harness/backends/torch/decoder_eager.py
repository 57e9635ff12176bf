"""torch-eager: our own greedy loop over the model of transformers with its DynamicCache, one operator at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache, EncoderDecoderCache

from harness.backends.torch.decoder_base import TorchDecoder


class EagerDecoder(TorchDecoder):
    """The cache grows by concatenation, as in generate(); nothing of generate()'s own Python work is in a step."""

    def load(self) -> None:
        """Load the model, with an empty cache."""
        super().load()
        self._cache: Any = self._new_cache()
        self._hidden: Any = None
        self._mask: Any = None
        """(batch, positions of cache and input) of padded prompts; None where all have one length."""
        self._positions: Any = None

    def prefill(self, ids: NDArray[np.int64]) -> None:
        """A new cache, and the pass over the prompts."""
        self._cache = self._new_cache()
        self._mask = None
        prompt = self._prompt(ids)
        if self._seq2seq:
            self._hidden = self._model.get_encoder()(input_ids=prompt)
            self._call({"encoder_outputs": self._hidden, "decoder_input_ids": self._start})
        else:
            self._call({"input_ids": prompt, **self._last_only})

    def prefill_padded(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """The same with a mask over the padding, which every later step has, too."""
        if self._seq2seq:
            super().prefill_padded(ids, lengths)
        self._cache = self._new_cache()
        places = np.arange(ids.shape[1]) - (ids.shape[1] - lengths[:, None])
        self._mask = self._prompt((places >= 0).astype(np.int64))
        self._positions = self._prompt(np.maximum(places, 0))
        masked = {"attention_mask": self._mask, "position_ids": self._positions}
        self._call({"input_ids": self._prompt(ids), **masked, **self._last_only})

    def step(self) -> None:
        """One call with the latest tokens."""
        if self._seq2seq:
            self._call({"encoder_outputs": self._hidden, "decoder_input_ids": self._next})
        elif self._mask is not None:
            self._mask = torch.nn.functional.pad(self._mask, (0, 1), value=1)
            self._positions = self._positions[:, -1:] + 1
            self._call({"input_ids": self._next, "attention_mask": self._mask, "position_ids": self._positions})
        else:
            self._call({"input_ids": self._next})

    def force(self, ids: NDArray[np.int64]) -> None:
        """Put the tokens where the next step reads them."""
        self._next = torch.from_numpy(ids.astype(np.int64)).view(-1, 1).to(self._device)

    def _call(self, inputs: dict[str, Any]) -> None:
        inputs[self._cache_name] = self._cache
        self._logits = self._model(**inputs, use_cache=True).logits[:, -1]
        self._next = self._logits.argmax(dim=-1, keepdim=True)

    def _new_cache(self) -> Any:
        config = self._model.config
        if self._seq2seq:
            return EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
        return DynamicCache(config=config)

    def _caches(self) -> list[Any]:
        if self._seq2seq:
            return [self._cache.self_attention_cache, self._cache.cross_attention_cache]
        return [self._cache]

    def _settings(self) -> dict[str, str | int | float | bool]:
        return {"cache": "dynamic"}
