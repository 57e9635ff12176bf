"""PyTorch's decoders: the common part (the model, where its tokens lie, what really ran), and torch-eager, static and
with continuous batching. The decoder of torch-compile: decoder_compile.py.

torch-eager: our own greedy loop over the model of transformers with its DynamicCache, one operator at a time.

With continuous batching: slots of one cache, each with a length of its own. A prompt that joins runs alone with a
DynamicCache, and its keys and values are copied into its slot. A step computes the slots from the first to the last one
taken; those that are empty between them are computed for nothing. A mask hides the positions of each slot beyond its
own length.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.cache_utils import CacheLayerMixin

from harness.backends.decoder import Decoder, DecoderJob, JoiningDecoder
from harness.backends.torch.place import host_facts, use_threads
from harness.backends.torch.readback import gpu_precision
from harness.core.errors import CaseError
from harness.core.schemas import Placement
from harness.zoo.generation.generative import cache_argument, last_logits_only, rebuild_generative

_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class TorchDecoder(Decoder):
    """One prefill and one step are calls of the model, each followed by the choice of the next tokens.

    The chosen tokens stay on the device as the next input; tokens() copies them to the host.
    """

    provider = "ATen"
    _cache: Any
    """The cache of transformers, which a subclass makes."""

    def __init__(self, job: DecoderJob) -> None:
        super().__init__(job)
        self._seq2seq = job.shape.kind == "seq2seq"

    def load(self) -> None:
        """Rebuild the model on the device in the case's precision."""
        job = self.job
        use_threads(job.threads)
        if job.device == "cuda":
            if not torch.cuda.is_available():
                raise CaseError("This PyTorch sees no GPU.", "Install a CUDA build of PyTorch, or plan DEVICE=cpu.")
            reduced = job.precision == "tf32"
            torch.backends.cuda.matmul.allow_tf32 = reduced
            torch.backends.cudnn.allow_tf32 = reduced
        # Entered for the life of the process: entering it per call would charge PyTorch some microseconds each time.
        self._inference_mode = torch.inference_mode()
        self._inference_mode.__enter__()
        self._device = torch.device(job.device)
        # The weights are converted before they travel: they fit wherever the model fits.
        self._model = rebuild_generative(job.folder).to(_DTYPES[job.precision]).to(self._device)
        self._cache_name = cache_argument(self._model)
        self._last_only = last_logits_only(self._model)
        self._logits: torch.Tensor | None = None
        batch = (job.batch_size, 1)
        self._next = torch.zeros(batch, dtype=torch.int64, device=self._device)
        self._start = torch.full(batch, job.shape.start_token or 0, dtype=torch.int64, device=self._device)
        self._host = torch.zeros(batch, dtype=torch.int64, pin_memory=job.device == "cuda")
        self._on_gpu = job.device == "cuda"
        self._wait()

    @property
    def module(self) -> Any:
        """The model of transformers, after load()."""
        return self._model

    def force(self, ids: NDArray[np.int64]) -> None:
        """Put the tokens where the next step reads them."""
        self._next.copy_(torch.from_numpy(ids.astype(np.int64)).view(-1, 1))

    def tokens(self) -> NDArray[np.int64]:
        """Copy the latest tokens to the host, which waits for them."""
        if not self._on_gpu:
            return self._next.view(-1).numpy()
        self._host.copy_(self._next, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return self._host.view(-1).numpy()

    def logits(self) -> NDArray[np.float32]:
        """The logits of the latest call, as fp32."""
        if self._logits is None:
            raise CaseError("There are no logits before the first prefill.", "Call prefill() first.")
        return self._logits.float().cpu().numpy().copy()

    def placement(self) -> Placement:
        """Device and element types of the weights and of the cache."""
        census: Counter[str] = Counter()
        for parameter in self._model.parameters():
            census[str(parameter.dtype)] += parameter.numel()
        kinds = {
            tensor.dtype for tensor in (*self._model.parameters(), *self._cache_tensors()) if tensor.is_floating_point()
        }
        names = sorted(_NAMES.get(kind, str(kind)) for kind in kinds)
        precision = "+".join(names)
        if self._on_gpu:
            switch = torch.backends.cuda.matmul.allow_tf32
            precision = gpu_precision(names, matmul_tf32=switch, convolution_tf32=switch)
        devices = {tensor.device.type for tensor in (*self._model.parameters(), *self._cache_tensors())}
        return Placement(
            device="+".join(sorted(devices)),
            precision=precision,
            provider=self.provider,
            settings={
                "threads": torch.get_num_threads(),
                "attention": str(self._model.config._attn_implementation),
                **self._settings(),
            },
            dtype_census=dict(census),
        )

    def cache_bytes(self) -> int:
        """Bytes of the cache's tensors."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._cache_tensors())

    def build_facts(self) -> dict[str, str]:
        """Facts about this PyTorch."""
        gpu = {"torch_cuda": str(torch.version.cuda)} if self._on_gpu else {}
        return {**host_facts(), **gpu}

    def close(self) -> None:
        """Free the model."""
        self._logits = None
        del self._model
        self._inference_mode.__exit__(None, None, None)

    def _caches(self) -> list[Any]:
        """The caches of transformers that hold keys and values now."""
        if self._seq2seq:
            return [self._cache.self_attention_cache, self._cache.cross_attention_cache]
        return [self._cache]

    def _settings(self) -> dict[str, str | int | float | bool]:
        return {}

    def _cache_tensors(self) -> list[torch.Tensor]:
        """Every tensor of keys and values."""
        layers = [layer for cache in self._caches() for layer in cache.layers]
        halves = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
        return [half for half in halves if isinstance(half, torch.Tensor)]

    def _prompt(self, ids: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(ids).to(self._device, non_blocking=True)

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()


class EagerDecoder(TorchDecoder):
    """The cache grows by concatenation, as in generate(); nothing of generate()'s own Python work is in a step."""

    def load(self) -> None:
        """Load the model, with an empty cache."""
        super().load()
        self._cache = self._new_cache()
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
        """As prefill, with a mask over the padding, which every later step has, too."""
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

    def _settings(self) -> dict[str, str | int | float | bool]:
        return {"cache": "dynamic"}


class _Slots:
    """The state that the layers of the cache share. lengths: of each slot on the host, 0 where it is empty; rows,
    places: where the next step writes, on the device; longest: positions that it attends to."""

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

    def __init__(self, job: DecoderJob) -> None:
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

    def _choose(self, slots: slice, logits: torch.Tensor) -> None:
        self._rows[slots] = logits
        self._next[slots] = logits.argmax(dim=-1, keepdim=True)

    def _settings(self) -> dict[str, str | int | float | bool]:
        return {"cache": "slots", "slots": self.job.batch_size, "slot_positions": self.job.capacity}
