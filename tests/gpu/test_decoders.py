"""ONNX Runtime generates on a GPU: each way to keep the cache, on small models with random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.backends.decoder import construct_decoder
from harness.statistics.parity import compare
from tests.fixtures import tiny_decoders

GPU = "harness.backends.onnxruntime.decoder_cuda:OnnxDecoderOnGpu"
CPU = "harness.backends.onnxruntime.decoder:OnnxDecoder"
TOLERANCE = 0.1
"""Of relative L2, as far as any tolerance of fp16 goes (decision 35): wrong caches are above 1."""


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[tiny_decoders.Tiny, Path]:
    from harness.zoo.generation.onnx_decoder import write_decoder

    model = tiny_decoders.tiny(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    write_decoder(model.module, model.shape, folder, "fp16", in_place=True)
    return model, folder


@pytest.mark.parametrize("feeds", ["in-place", "binding", "numpy"])
def test_every_step_is_that_of_the_cpu(files: tuple[tiny_decoders.Tiny, Path], feeds: str) -> None:
    model, folder = files
    file = Path(f"decoder-fp16{'-in-place' if feeds == 'in-place' else ''}.onnx")
    results = {}
    for device, target in (("cpu", CPU), ("cuda", GPU)):
        decoder = construct_decoder(
            target, model.job(folder, "fp16", device=device, onnx=file, options={"feeds": feeds})
        )
        decoder.load()
        # The second prompt follows the first: what is left of its cache must not be read.
        results[device] = [
            tiny_decoders.forced(decoder, model.prompts[index], model.answers[index]) for index in (0, 1)
        ]
        placement = decoder.placement()
        decoder.close()
    assert (placement.device, placement.precision) == ("cuda", "fp16")
    for ours, theirs in zip(results["cuda"], results["cpu"], strict=True):
        for own, reference in zip(ours, theirs, strict=True):
            distance = compare({"logits": own}, {"logits": reference}, classifier=False).furthest
            assert distance is not None
            assert distance <= TOLERANCE
            assert np.isfinite(own).all()
