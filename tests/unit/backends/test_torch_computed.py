"""What products are computed in, whatever the parameters are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from harness.backends.torch.base import LEAST_SHARE, product_shares  # noqa: E402 - needs torch
from harness.backends.torch.readback import precision_words  # noqa: E402

WORDS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def computed_in(call: Callable[[], object], word: Callable[[Any], str]) -> tuple[str, ...]:
    """Words for the precisions of a pass."""
    return precision_words(product_shares(call, word), LEAST_SHARE)


def seen(module: Any, *arguments: Any) -> tuple[str, ...]:
    with torch.inference_mode():
        return computed_in(lambda: module(*arguments), lambda dtype: WORDS[dtype])


def autocast(module: Any) -> Any:
    def call(*arguments: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(*arguments).float()

    return call


def modules() -> list[Any]:
    nn = torch.nn
    torch.manual_seed(0)
    return [
        (nn.Linear(16, 16), torch.ones(2, 8, 16)),
        (nn.Conv2d(3, 8, 3), torch.ones(2, 3, 8, 8)),
        (lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x), torch.ones(1, 2, 8, 16)),
    ]


@pytest.mark.parametrize("number", range(3))
def test_products_are_seen_in_the_type_that_they_ran_in(number: int) -> None:
    module, example = modules()[number]
    assert seen(module, example) == ("fp32",)
    assert seen(autocast(module), example) == ("bf16",)


def test_a_layer_that_is_one_operator_is_seen() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    assert seen(layer, torch.ones(2, 8, 16)) == ("fp32",)
    assert seen(layer.to(torch.bfloat16), torch.ones(2, 8, 16, dtype=torch.bfloat16)) == ("bf16",)


def test_a_hundredth_of_the_products_says_nothing_about_the_whole() -> None:
    large, small = torch.ones(256, 256), torch.ones(4, 4).to(torch.bfloat16)

    def call(x: Any) -> Any:
        return x @ x, small @ small

    assert seen(call, large) == ("fp32",)
    assert seen(lambda x: (x @ x, x.to(torch.bfloat16) @ x.to(torch.bfloat16)), large) == ("bf16", "fp32")


def test_a_pass_without_products_says_nothing() -> None:
    assert seen(torch.relu, torch.ones(3)) == ()


def test_the_switches_are_read_at_each_product() -> None:
    switch = ["fp32"]

    def call(x: Any) -> Any:
        switch[0] = "less"
        y = x @ x
        switch[0] = "fp32"
        return y

    with torch.inference_mode():
        assert computed_in(lambda: call(torch.ones(4, 4)), lambda dtype: switch[0]) == ("less",)
