"""NVTX ranges around modules, with a recording fake in the place of torch.cuda.nvtx."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from harness.backends.torch.profile_modules import nvtx_ranges


class Nvtx:
    """Keeps what was pushed and popped."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def range_push(self, text: str) -> int:
        self.calls.append(text)
        return 1

    def range_pop(self) -> int:
        self.calls.append("pop")
        return 1


def test_every_module_is_a_range_inside_its_parents() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU()))
    nvtx, x = Nvtx(), torch.ones(1, 2)
    plain = module(x)
    with nvtx_ranges(module, nvtx):
        marked = module(x)
    assert nvtx.calls == ["(model)", "0", "pop", "1", "1.0", "pop", "pop", "pop"]
    assert torch.equal(plain, marked)


def test_no_range_is_left_on_the_module() -> None:
    module, nvtx = torch.nn.Sequential(torch.nn.ReLU()), Nvtx()
    with nvtx_ranges(module, nvtx):
        pass
    module(torch.ones(1))
    assert nvtx.calls == []
