"""fp8 linear layers: their values, what they replace, and what may call itself fp8."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from harness.backends.torch.fp8 import Fp8Linear, in_fp8, quantised, require_capability, settings  # noqa: E402
from harness.backends.torch.readback import Product, fp8_ran  # noqa: E402
from harness.core.errors import NotSupportedError  # noqa: E402

nn = torch.nn


def moved(part: Any, dtype: Any) -> Any:
    return part.to(dtype)


def rows(*shape: int, seed: int = 0) -> Any:
    """Values whose rows differ by orders of magnitude."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(*shape, generator=generator, dtype=torch.float32)
    return values * 10.0 ** torch.linspace(-4, 4, shape[0])[:, None]


def test_a_value_is_off_by_no_more_than_half_a_step_of_its_own_magnitude() -> None:
    values = rows(64, 96)
    result, scales = quantised(values)
    assert result.dtype == torch.float8_e4m3fn
    assert scales.shape == (64, 1)
    exact, back = values.double(), result.double() * scales.double()
    # Three bits of mantissa: half a step is 2⁻⁴ of a value; below 2⁻⁶ of the scale, steps are 2⁻⁹ of it.
    bound = torch.maximum(exact.abs() * 2.0**-4, scales.double() * 2.0**-10) * (1 + 1e-5)
    assert bool(((back - exact).abs() <= bound).all())
    assert bool((result.float().abs().amax(1) == 448).all())  # the largest of each row uses the whole range


def test_zeros_stay_zeros_and_nan_and_infinity_are_not_hidden() -> None:
    result, scales = quantised(torch.tensor([[0.0, 0.0], [1.0, float("nan")], [1.0, float("inf")]]))
    assert result[0].float().tolist() == [0.0, 0.0]
    assert bool(torch.isfinite(scales[0]).all())
    back = result.float() * scales
    assert not torch.isfinite(back[1:]).all(dim=1).any()


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_multiplies_its_rounded_values_exactly_and_is_within_the_bound_of_fp64(bias: bool) -> None:
    torch.manual_seed(1)
    linear = nn.Linear(96, 48, bias=bias).requires_grad_(False)
    linear.weight.mul_(10.0 ** torch.linspace(-2, 2, 48)[:, None])  # channels that one scale could not hold
    layer = Fp8Linear(linear, torch.bfloat16)
    values = rows(10, 96, seed=2).to(torch.bfloat16).reshape(2, 5, 96)
    with torch.inference_mode():
        result = layer(values)
    assert (result.dtype, result.shape) == (torch.bfloat16, (2, 5, 48))
    x, weight = values.reshape(10, 96).double(), linear.weight.double()
    offset = linear.bias.to(torch.bfloat16).double() if bias else torch.zeros(48, dtype=torch.float64)

    def rounded(full: Any) -> Any:
        small, scales = quantised(full.float())
        return small.double() * scales.double()

    near, small = rounded(x) @ rounded(weight).t() + offset, result.reshape(10, 48).double()
    size = x.abs() @ weight.abs().t() + offset.abs()
    # bf16 rounds the result to 2⁻⁸, fp32 its sums.
    assert bool(((small - near).abs() <= near.abs() * 2.0**-8 + size * 1e-5).all())
    # Each factor is off by 2⁻⁴ of itself, or by 2⁻¹⁰ of its scale.
    steps = [
        torch.maximum(entry.abs() * 2.0**-4, quantised(entry.float())[1].double() * 2.0**-10) for entry in (x, weight)
    ]
    bound = steps[0] @ weight.abs().t() + x.abs() @ steps[1].t() + steps[0] @ steps[1].t()
    exact = x @ weight.t() + offset
    assert bool(((small - exact).abs() <= bound * (1 + 1e-5) + near.abs() * 2.0**-8 + size * 1e-5).all())


class Parts(nn.Module):  # type: ignore[misc]  # torch is imported at run time
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(32, 64)
        self.again = self.wide
        self.odd = nn.Linear(32, 10)
        self.attention = nn.MultiheadAttention(32, 2)
        self.encoder = nn.TransformerEncoderLayer(32, 2, 64)
        self.norm = nn.LayerNorm(32)


def test_only_layers_that_are_called_and_fit_are_replaced() -> None:
    module = Parts().eval().requires_grad_(False)
    made = in_fp8(module, moved, torch.bfloat16)
    assert isinstance(made.wide, Fp8Linear)
    assert made.again is made.wide
    assert made.wide.weight.dtype == torch.float8_e4m3fn
    assert made.wide.scales.dtype == torch.float32
    kept = {name for name, part in made.named_modules() if isinstance(part, nn.Linear)}
    assert kept == {"odd", "attention.out_proj", "encoder.self_attn.out_proj", "encoder.linear1", "encoder.linear2"}
    assert {parameter.dtype for parameter in (*made.norm.parameters(), made.odd.weight)} == {torch.bfloat16}
    results = settings(made)
    assert (results["fp8_layers"], results["other_linear_layers"]) == (1, 5)


def test_weights_are_quantised_from_fp32_not_from_the_precision_between() -> None:
    module = nn.Sequential(nn.Linear(32, 32))
    expected, _ = quantised(module[0].weight.detach())
    made = in_fp8(module, moved, torch.bfloat16)
    assert torch.equal(made[0].weight.float(), expected.float())


def test_a_model_without_such_layers_is_refused() -> None:
    for module in (nn.Sequential(nn.Conv2d(3, 16, 3)), nn.Sequential(nn.Linear(32, 10))):
        with pytest.raises(NotSupportedError, match="multiples of 16") as caught:
            in_fp8(module, moved, torch.bfloat16)
        assert "PRECISIONS" in caught.value.hint


def test_capability() -> None:
    for enough in ((8, 9), (9, 0), (12, 0)):
        require_capability(enough, "GPU")
    with pytest.raises(NotSupportedError, match=r"8\.9 or higher; NVIDIA A100 has 8\.0"):
        require_capability((8, 0), "NVIDIA A100")


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({("fp8", False): 0.96, ("bf16", True): 0.04}, ("fp8",)),
        ({("fp8", False): 0.6, ("bf16", True): 0.4}, ("fp8",)),  # a long sequence: attention is in bf16 by design
        ({("fp8", False): 0.991, ("bf16", False): 0.009}, ("fp8",)),
        ({("fp8", False): 0.98, ("bf16", False): 0.02}, ("bf16", "fp8")),
        ({("bf16", False): 1.0}, ("bf16",)),
        ({("bf16", True): 1.0}, ("bf16",)),
    ],
)
def test_a_hundredth_of_the_work_in_another_precision_is_named(
    shares: dict[tuple[str, bool], float], words: tuple[str, ...]
) -> None:
    result, facts = fp8_ran({Product(*kind): share for kind, share in shares.items()}, "bf16+fp8", 0.01)
    assert result == words
    assert facts == {"fp8_share_of_products": shares.get(("fp8", False), 0.0)}


def test_unseen_products_leave_the_types_of_the_weights() -> None:
    assert fp8_ran({}, "bf16+fp8", 0.01) == (("bf16+fp8",), {})
