"""Matrix products whose speed is a limit of a GPU; here on the CPU, each once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from harness.backends import gpu_peaks


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What each product returned; each counts as 1 ns."""
    answers: list[object] = []

    def best_ns(work: Callable[[], object]) -> float:
        answers.append(work())
        return 1.0

    monkeypatch.setattr(gpu_peaks, "_DEVICE", "cpu")
    monkeypatch.setattr(gpu_peaks, "SIZES", (32, 64))
    monkeypatch.setattr(gpu_peaks, "_best_ns", best_ns)
    return answers


def test_products_of_int8_are_summed_in_int32_in_both_layouts(calls: list[torch.Tensor]) -> None:
    assert gpu_peaks._best_int8_product() == 2 * 64**3 * 1e9
    assert [(answer.shape[0], answer.dtype) for answer in calls] == [
        *[(32, torch.int32)] * 2,
        *[(64, torch.int32)] * 2,
    ]
    assert all(answer.abs().max() > 127 for answer in calls)


def test_a_product_that_a_library_lacks_is_no_limit(monkeypatch: pytest.MonkeyPatch, calls: list[object]) -> None:
    def lacking(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not implemented for this GPU")

    monkeypatch.setattr(torch, "_int_mm", lacking)
    assert gpu_peaks._best_int8_product() == 0.0
    assert not calls


def test_too_little_memory_is_an_error_and_no_missing_product(
    monkeypatch: pytest.MonkeyPatch, calls: list[object]
) -> None:
    def too_large(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("3 GB")

    monkeypatch.setattr(torch, "_int_mm", too_large)
    with pytest.raises(torch.OutOfMemoryError):
        gpu_peaks._best_int8_product()
    assert not calls
