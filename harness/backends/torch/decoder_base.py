"""The common part of PyTorch's decoders: the model, where its tokens lie, and what really ran."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.backends.decoder import Decoder, GenerationJob
from harness.backends.torch.cpu import host_facts, use_threads
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

    def __init__(self, job: GenerationJob) -> None:
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

    @abstractmethod
    def _caches(self) -> list[Any]:
        """The caches of transformers that hold keys and values now."""

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
