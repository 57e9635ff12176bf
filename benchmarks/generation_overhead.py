"""What the harness's token loop adds to a step, against a bare greedy loop of the same decoder: docs/generation.md.

    .venv/bin/python -m benchmarks.generation_overhead            a small seeded model, made here
    .venv/bin/python -m benchmarks.generation_overhead FOLDER     files for generation: models/<slug>/<export>

Two figures. The loop alone: steps of a decoder that does nothing, with clock, copies and lists, less the same calls in
a loop that keeps nothing. And in pairs in random order, requests of one decoder through the harness's loop and through
the bare loop, each timed as a whole: the ratio is the harness's share, with a 95% interval over pairs.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM

from harness.backends.decoder import Decoder, DecoderJob
from harness.backends.torch.decoder import EagerDecoder
from harness.core import store
from harness.core.schemas import DecoderShape, GenerationExport
from harness.statistics.estimators import median_interval
from harness.timing.clock import now_ns
from harness.timing.token_session import time_request
from harness.zoo.construct import save_weights
from harness.zoo.generation.generative import shape_of

STEPS, PROMPT, PAIRS, EMPTY_STEPS = 64, 64, 30, 20_000


class Empty:
    """A decoder whose calls do nothing."""

    def __init__(self) -> None:
        self.ids = np.zeros(1, np.int64)

    def prefill(self, ids: NDArray[np.int64]) -> None:
        """Do nothing."""

    def step(self) -> None:
        """Do nothing."""

    def tokens(self) -> NDArray[np.int64]:
        """The same ids each time."""
        return self.ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--threads", type=int, help="of the decoder (all)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    gc.disable()
    print(f"loop alone: {empty_ns():.0f} ns a step ({EMPTY_STEPS:,} steps, median of 5)")
    with tempfile.TemporaryDirectory() as place:
        folder, shape, vocabulary = _model(options.folder, Path(place))
        threads = options.threads or len(os.sched_getaffinity(0))
        job = DecoderJob(
            "x", folder, shape, options.device, options.precision, 1, PROMPT, STEPS, threads, folder / "cache"
        )
        decoder = EagerDecoder(job)
        decoder.load()
        prompts = np.random.default_rng(0).integers(0, vocabulary, (2 * PAIRS + 4, 1, PROMPT))
        for ids in prompts[:4]:
            time_request(decoder, ids, STEPS)
        ratios, steps = pairs(decoder, prompts[4:])
        interval = median_interval(ratios)
        ends = f" [{interval.low:.4f}, {interval.high:.4f}]" if interval else ""
        typical = statistics.median(steps) / 1e3
        print(f"median step {typical:,.1f} µs; harness / bare {statistics.median(ratios):.4f}{ends}")


def empty_ns() -> float:
    """ns that the harness's loop adds to a step of a decoder that does nothing."""
    decoder, ids = Empty(), np.zeros((1, 8), np.int64)
    result = []
    for _ in range(5):
        start = now_ns()
        time_request(decoder, ids, EMPTY_STEPS)
        middle = now_ns()
        decoder.prefill(ids)
        for _ in range(EMPTY_STEPS):
            decoder.step()
            decoder.tokens()
        result.append(((middle - start) - (now_ns() - middle)) / EMPTY_STEPS)
    return statistics.median(result)


def pairs(decoder: Decoder, prompts: NDArray[np.int64]) -> tuple[list[float], list[float]]:
    """Ratios of whole requests, and ns of each step."""
    order = random.Random(0)  # noqa: S311 - an order, not a secret
    ratios, steps = [], []
    for ours, theirs in zip(prompts[::2], prompts[1::2], strict=False):
        if order.random() < 0.5:
            harness, bare = _harness_ns(decoder, ours), _bare_ns(decoder, theirs)
        else:
            bare, harness = _bare_ns(decoder, theirs), _harness_ns(decoder, ours)
        ratios.append(harness / bare)
        steps.append(bare / STEPS)
    return ratios, steps


def _harness_ns(decoder: Decoder, ids: NDArray[np.int64]) -> int:
    start = now_ns()
    time_request(decoder, ids, STEPS)
    return now_ns() - start


def _bare_ns(decoder: Decoder, ids: NDArray[np.int64]) -> int:
    """The loop that a user would write: it needs the tokens on the host too, to show them."""
    start = now_ns()
    decoder.prefill(ids)
    result = [int(decoder.tokens()[0])]
    for _ in range(STEPS - 1):
        decoder.step()
        result.append(int(decoder.tokens()[0]))
    return now_ns() - start


def _model(given: Path | None, place: Path) -> tuple[Path, DecoderShape, int]:
    if given is not None:
        export = store.load(given / "generation.json", GenerationExport, "make export")
        return given, export.shape, export.shape.vocabulary
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 512}
    config = AutoConfig.for_model("llama", vocab_size=2_000, max_position_embeddings=256, **sizes)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(place)
    save_weights(AutoModelForCausalLM.from_config(config).eval(), place / "weights.safetensors")
    return place, shape_of(config, "causal"), 2_000


if __name__ == "__main__":
    main()
