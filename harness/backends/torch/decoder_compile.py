"""torch-compile: a static cache, the decode step compiled as one graph, the prefill eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch._dynamo.utils import counters
from transformers import EncoderDecoderCache, StaticCache
from transformers.cache_utils import StaticLayer

from harness.backends.decoder import DecoderJob
from harness.backends.torch.compile import code_folder, use_compiler
from harness.backends.torch.decoder import TorchDecoder
from harness.backends.torch.readback import compiled_of, with_shortfalls
from harness.core.errors import CaseError, reason
from harness.core.schemas import Placement

ROUND_TO = 64
"""The cache's length is the next multiple: every step attends to all of it, and kernels work in such blocks."""

SETTLING_STEPS = 4
"""Steps after compiling: torch.compile's CUDA graphs are warmed up, recorded and replayed in the first three."""


class CompiledDecoder(TorchDecoder):
    """The step takes and leaves its tokens in one tensor at a fixed address, so that a CUDA graph holds all of it.

    Options: `mode` is torch.compile's own (None on a CPU, reduce-overhead on a GPU); `graph: True` captures the
    compiled step in a CUDA graph of our own instead, which a step launches without checking guards. A graph break or a
    recompilation is an error: its time would be measured as decoding.
    """

    compiles = True
    provider = "Inductor"

    def __init__(self, job: DecoderJob) -> None:
        super().__init__(job)
        mode = job.options.get("mode")
        self._mode = None if mode is None else str(mode)
        self._own_graph: torch.cuda.CUDAGraph | None = None

    @property
    def max_cache_len(self) -> int:
        """Positions that the cache holds, and that every step attends to."""
        return -(-self.job.capacity // ROUND_TO) * ROUND_TO

    def load(self) -> None:
        """Load the model and make room for the cache."""
        super().load()
        config = self._model.config
        own = StaticCache(config=config, max_cache_len=self.max_cache_len)
        self._cache = own
        if self._seq2seq:
            # Keys and values of the encoder's positions, all of which are there from the first step on.
            self._cache = EncoderDecoderCache(own, StaticCache(config=config, max_cache_len=self.job.prompt_length))
        torch._dynamo.mark_static_address(self._next)
        self._hidden: Any = None
        self._step: Any = self._decode

    def compile_cached(self) -> bool:
        """Whether an earlier process left compiled code for this case."""
        return self._folder.is_dir() and any(self._folder.iterdir())

    def compile(self) -> None:
        """Compile the step by running it after a prefill, until a further step compiles and records nothing."""
        use_compiler(self.job.device, self._folder)
        counters.clear()
        self._step = torch.compile(self._decode, fullgraph=True, dynamic=False, mode=self._mode)
        self._settle()
        if self.job.options.get("graph"):
            self._capture()
        self._graphs = self._compiled_graphs()
        if self._graphs != 1:
            raise CaseError(
                f"{self._graphs} graphs were compiled for one decode step.", "Use torch-eager for this model."
            )

    def prefill(self, ids: NDArray[np.int64]) -> None:
        """Empty the cache and run the prompts eagerly."""
        self._empty_cache()
        prompt = self._prompt(ids)
        if self._seq2seq:
            self._hidden = self._keep(self._model.get_encoder()(input_ids=prompt)[0])
            inputs: dict[str, Any] = {"encoder_outputs": (self._hidden,), "decoder_input_ids": self._start}
        else:
            inputs = {"input_ids": prompt, **self._last_only}
        inputs[self._cache_name] = self._cache
        self._logits = self._model(**inputs, use_cache=True).logits[:, -1]
        self._next.copy_(self._logits.argmax(dim=-1, keepdim=True))

    def step(self) -> None:
        """One call of the compiled step, or one launch of its graph."""
        self._logits = self._step()

    def logits(self) -> NDArray[np.float32]:
        """Logits; a step that compiled again is an error here, outside the clock."""
        self._refuse_recompilation()
        return super().logits()

    def close(self) -> None:
        """Compiled code and graphs go before the model."""
        self._step, self._own_graph = None, None
        torch._dynamo.reset()
        super().close()

    def _decode(self) -> torch.Tensor:
        """Logits of the step, (batch, vocabulary); the chosen tokens replace its input."""
        if self._seq2seq:
            inputs: dict[str, Any] = {"encoder_outputs": (self._hidden,), "decoder_input_ids": self._next}
        else:
            inputs = {"input_ids": self._next}
        inputs[self._cache_name] = self._cache
        logits: torch.Tensor = self._model(**inputs, use_cache=True).logits[:, -1]
        self._next.copy_(logits.argmax(dim=-1, keepdim=True))
        return logits

    def _empty_cache(self) -> None:
        """Start at position 0 again. Keys and values stay: no step attends beyond its own position."""
        own = self._cache.self_attention_cache if self._seq2seq else self._cache
        for layer in own.layers:
            if type(layer) is StaticLayer and layer.is_initialized:
                layer.cumulative_length.zero_()
            else:
                layer.reset()
        if self._seq2seq:
            self._cache.cross_attention_cache.reset()
            self._cache.is_updated = dict.fromkeys(self._cache.is_updated, False)

    def _settle(self) -> None:
        prompts = np.zeros((self.job.batch_size, self.job.prompt_length), np.int64)
        for step in range(SETTLING_STEPS):
            # The cache has room for new_tokens - 1 steps after a prefill.
            if step % max(1, self.job.new_tokens - 1) == 0:
                self.prefill(prompts)
            try:
                self.step()
            except Exception as error:
                raise CaseError(
                    f"The decode step could not be compiled as one graph: {reason(error)}",
                    "Use torch-eager for this model.",
                ) from error
            self._wait()

    def _capture(self) -> None:
        """Record one compiled step: its inputs, outputs and cache all lie at fixed addresses."""
        compiled, graph = self._step, torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits: torch.Tensor = compiled()
        self._own_graph = graph
        replay = graph.replay

        def launch() -> torch.Tensor:
            replay()
            return logits

        self._step = launch

    def _keep(self, hidden: torch.Tensor) -> torch.Tensor:
        """The encoder's answer where the compiled step reads it."""
        if self._hidden is None:
            self._hidden = hidden.clone()
            torch._dynamo.mark_static_address(self._hidden)
        else:
            self._hidden.copy_(hidden)
        kept: torch.Tensor = self._hidden
        return kept

    def _refuse_recompilation(self) -> None:
        now = self._compiled_graphs()
        if now != self._graphs:
            raise CaseError(
                f"The decode step was compiled again while it ran: {now} graphs instead of {self._graphs}.",
                "TORCH_LOGS=recompiles says why; use torch-eager for this model.",
            )

    def _compiled_graphs(self) -> int:
        return int(counters["stats"].get("unique_graphs", 0))

    def _settings(self) -> dict[str, str | int | float | bool]:
        counted = compiled_of(counters)
        return {
            "cache": "static",
            "max_cache_len": self.max_cache_len,
            "mode": self._mode or "default",
            "own_cuda_graph": self._own_graph is not None,
            "prefill": "eager",
            **counted.settings(),
        }

    def placement(self) -> Placement:
        """The placement; where a requested CUDA graph was skipped, the precision says so."""
        self._refuse_recompilation()
        placement = super().placement()
        skips = counters["inductor"].get("cudagraph_skips", 0)
        lacks = ("its CUDA graph was skipped",) if self._mode == "reduce-overhead" and skips else ()
        return placement.model_copy(update={"precision": with_shortfalls(placement.precision, lacks)})

    @property
    def _folder(self) -> Path:
        job = self.job
        case = f"decode-{job.device}-{job.precision}-b{job.batch_size}-c{self.max_cache_len}-{self._mode}"
        return code_folder(job.cache, case, job.threads)
