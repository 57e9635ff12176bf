"""How far fp8 linear layers are from fp32, and what the type between them adds (decision 10). Computes; times nothing:

    .venv/bin/python -m benchmarks.fp8_distance minilm-l6 distilbert@seeded bert-base@seeded

Each model runs once in fp32 and once a way on its real inputs, on the CPU, whose torch._scaled_mm multiplies the same
fp8 values in fp32. A GPU adds its own rounding of sums.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from harness.backends.torch.base import product_shares
from harness.backends.torch.fp8 import Fp8Linear, in_fp8
from harness.core.schemas import Parity
from harness.statistics.parity import compare
from harness.zoo import model_info
from harness.zoo.construct import family_of
from harness.zoo.loaded import Request
from harness.zoo.reference import flat_tensors

LENGTH = 128
SAMPLES = 8
SEED = 0


def main() -> None:
    """A line for each model and way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL[@seeded]")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    given = parser.parse_args()
    print("| model | way | rel. L2 | worst sample | cosine | products in fp8 |\n|---|---|---|---|---|---|")
    with torch.inference_mode():
        for asked in given.models:
            _lines(asked, given.samples)


def _lines(asked: str, samples: int) -> None:
    name, _, weights = asked.partition("@")
    info = model_info(name)
    with TemporaryDirectory() as folder:
        request = Request(info, weights or info.default_weights, SEED, None, Path(folder))  # type: ignore[arg-type]
        loaded = family_of(info).load(request)
    module = loaded.require_module()
    arrays = loaded.make_inputs(samples, LENGTH if loaded.sequence_inputs else None).arrays
    inputs = [torch.from_numpy(arrays[key]) for key in loaded.input_names]
    reference = _outputs(module, inputs)
    ways: list[tuple[str, nn.Module]] = [
        (f"{word} alone", copy.deepcopy(module).to(dtype)) for word, dtype in _BETWEEN.items()
    ]
    ways += [(f"fp8, {word} between", _quantised(module, dtype)) for word, dtype in _BETWEEN.items()]
    for way, changed in ways:
        result = compare(_outputs(changed, inputs), reference, False)
        share = _share(changed, inputs) if any(isinstance(part, Fp8Linear) for part in changed.modules()) else 0.0
        print(_line(asked, way, result, share), flush=True)


_BETWEEN = {"fp16": torch.float16, "bf16": torch.bfloat16}


def _quantised(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    return in_fp8(copy.deepcopy(module), lambda part, to: part.to(to), dtype)


def _outputs(module: nn.Module, inputs: list[torch.Tensor]) -> dict[str, Any]:
    dtype = next(part.dtype for part in module.parameters() if part.dtype != torch.float8_e4m3fn)
    typed = [entry.to(dtype) if entry.is_floating_point() else entry for entry in inputs]
    return {str(place): entry.float().numpy() for place, entry in enumerate(flat_tensors(module(*typed)))}


def _share(module: nn.Module, inputs: list[torch.Tensor]) -> float:
    shares = product_shares(lambda: module(*inputs), str)
    return sum(share for kind, share in shares.items() if kind.word == str(torch.float8_e4m3fn))


def _line(model: str, way: str, result: Parity, share: float) -> str:
    figures = [result.relative_l2, result.item_relative_l2, result.cosine]
    entry, sample, cosine = (
        "–" if value is None else f"{value:.{digits}}"
        for value, digits in zip(figures, ("2e", "2e", "5f"), strict=True)
    )
    return f"| {model} | {way} | {entry} | {sample} | {cosine} | {share:.1%} |"


if __name__ == "__main__":
    main()
