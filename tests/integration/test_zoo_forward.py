"""A user's module that raises at a batch size that an export tries: the module's error, not a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from harness.core.errors import ConfigError
from harness.zoo import model_info
from harness.zoo.families.own_module import load, load_module
from harness.zoo.loaded import Inputs, Loaded, Request
from harness.zoo.reference import module_outputs, reference_of


class Picky(nn.Module):
    """Takes four items at a time and no other number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) != 4:
            raise ValueError(f"four, not {len(x)}\nat a time")
        return x


def made(samples: int, sequence: int | None) -> Inputs:
    del sequence
    return Inputs({"x": torch.rand(samples, 2).numpy()}, "random")


def picky(examples: int) -> Loaded:
    return load_module(model_info("module:own:picky"), Picky(), (torch.rand(examples, 2),), ("x",), made)


@pytest.mark.parametrize(
    ("items", "where"),
    [
        (2, lambda: picky(2)),
        (8, lambda: reference_of(picky(4), threads=1)(made(8, None).arrays)),
    ],
    ids=["loading", "reference"],
)
def test_a_forward_that_raises_is_named_with_its_inputs(items: int, where: object) -> None:
    with pytest.raises(ConfigError) as raised:
        where()  # type: ignore[operator]
    assert raised.value.problem == (
        f"The forward of Picky raised ValueError: four, not {items} at a time (its inputs: float32[{items}, 2])."
    )
    assert "the batch size of its examples" in raised.value.hint


def test_a_function_that_its_module_lacks_is_named_and_not_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="json has no function absent") as raised:
        load(Request(model_info("module:json:absent"), "own", seed=0, cache=None, folder=tmp_path))
    assert raised.value.hint.startswith("Define it there.")


def test_outputs_are_a_tuple() -> None:
    result = torch.rand(4, 2)
    assert module_outputs(Picky(), [result]) == (result,)
