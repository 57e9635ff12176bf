"""FLOPs as the papers and other counters have them, on the models themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.schemas import Work
from harness.zoo import COUNTED_TOKENS, MODELS
from harness.zoo.loaded import Inputs
from tests.fixtures.counted_models import count, image, image_model, loaded_of, text, text_model

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.stages


def assert_declared(name: str, work: Work) -> None:
    """The table has the FLOPs, for the expected time of a plan."""
    assert work.flops_per_item == pytest.approx(MODELS[name].flops, rel=0.001)


@pytest.mark.parametrize(
    ("name", "gflop"),
    [
        ("resnet18", 2 * 1.814),
        ("efficientnet-lite0", 2 * 0.385),
        ("mobilenet_v2", 2 * 0.301),
        pytest.param("resnet50", 2 * 4.089, marks=pytest.mark.slow),
        pytest.param("vit_b_16", 2 * 17.56, marks=pytest.mark.slow),
    ],
)
def test_image_models(name: str, gflop: float, tmp_path: Path) -> None:
    (work,) = count(image_model(name, tmp_path), {None: image()})
    assert work.flops_per_item / 1e9 == pytest.approx(gflop, rel=0.002)
    assert_declared(name, work)
    assert (work.sequence_length, work.uncounted) == (None, ())
    assert work.parameters == MODELS[name].parameters
    assert (work.input_bytes_per_item, work.output_elements_per_item) == (602_112, 1000)


@pytest.mark.parametrize(
    ("name", "gflop", "layers", "hidden"),
    [
        ("minilm-l6", 2 * 1.435, 6, 384),
        pytest.param("bert-base", 2 * 11.17, 12, 768, marks=pytest.mark.slow),
        pytest.param("bert-large", 2 * 39.46, 24, 1024, marks=pytest.mark.slow),
        pytest.param("distilbert", 2 * 5.59, 6, 768, marks=pytest.mark.slow),
    ],
)
def test_text_models_with_attention_counted(name: str, gflop: float, layers: int, hidden: int, tmp_path: Path) -> None:
    loaded = text_model(name, tmp_path)
    attention = loaded.module.model.config._attn_implementation  # type: ignore[union-attr]
    short, long = count(loaded, {128: text(128), 256: text(256)})
    assert short.flops_per_item / 1e9 == pytest.approx(gflop, rel=0.002)
    assert_declared(name, short)
    # What is more than twice as much at twice the length is attention's: scores and their sums, s x s x hidden each.
    assert (long.flops_per_item - 2 * short.flops_per_item) // 2 == layers * 2 * hidden * (256**2 - 2 * 128**2)
    assert (short.sequence_length, long.sequence_length, short.uncounted) == (128, 256, ())
    assert short.input_bytes_per_item == 2 * 8 * 128
    assert short.parameters < MODELS[name].parameters  # its lookup tables are not read as a whole
    assert loaded.module.model.config._attn_implementation == attention  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "smollm2-135m", "llama-1b"])
def test_decoders(name: str, tmp_path: Path) -> None:
    (work,) = count(text_model(name, tmp_path), {COUNTED_TOKENS: text(COUNTED_TOKENS)})
    assert_declared(name, work)


def test_of_padded_texts_the_text_alone_is_counted_too(tmp_path: Path) -> None:
    loaded = text_model("minilm-l6", tmp_path)
    padded = {name: np.repeat(values[:1], 3, axis=0) for name, values in text(128).arrays.items()}
    for row, tokens in enumerate((20, 32, 128)):  # median 32, mean 60
        padded["attention_mask"][row, tokens:] = 0
    (work,) = count(loaded, {128: Inputs(padded, "")})
    (full, least) = count(loaded, {128: text(128), 32: text(32)})
    assert work == full.model_copy(update={"text_flops_per_item": least.flops_per_item})
    assert work.least_flops_per_item < full.least_flops_per_item / 4


def test_switches_that_were_off_for_counting_are_on_again(tmp_path: Path) -> None:
    def switches() -> tuple[bool, bool]:
        return torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()

    assert switches() == (True, True)
    count(image_model("vit_b_16", tmp_path), {None: image()})
    assert switches() == (True, True)


def test_a_users_onnx_file_has_no_work() -> None:
    assert count(loaded_of(None, ("pixel_values",)), {None: image()}) == ()


def module_work(module: object, *shapes: tuple[int, ...]) -> Work:
    """Of a module of fp32 inputs, counted for one sample."""
    names = tuple(f"input_{place}" for place in range(len(shapes)))
    inputs = Inputs({name: np.ones((2, *shape), np.float32) for name, shape in zip(names, shapes, strict=True)}, "ones")
    return count(loaded_of(module, names), {None: inputs})[0]


class First(torch.nn.Module):  # type: ignore[name-defined,misc]
    """The first answer of another module."""

    def __init__(self, module: object) -> None:
        super().__init__()
        self.module = module

    def forward(self, values: object) -> object:
        """Without its states."""
        return self.module(values)[0]


@pytest.mark.parametrize(
    ("make", "shapes", "macs"),
    [
        # 12 steps x 4 gates of 32 x (20 inputs + 32 hidden), then the same with 32 inputs
        (
            lambda: First(torch.nn.LSTM(20, 32, num_layers=2, batch_first=True)),
            [(12, 20)],
            12 * 128 * (20 + 32) + 12 * 128 * 64,
        ),
        (
            lambda: First(torch.nn.LSTM(20, 32, bidirectional=True, batch_first=True)),
            [(12, 20)],
            2 * 12 * 128 * (20 + 32),
        ),
        (lambda: First(torch.nn.GRU(20, 32, batch_first=True)), [(12, 20)], 12 * 96 * (20 + 32)),
        (lambda: First(torch.nn.RNN(20, 32, batch_first=True)), [(12, 20)], 12 * 32 * (20 + 32)),
        # x W for each of 8 outputs, and the result by y
        (lambda: torch.nn.Bilinear(16, 24, 8), [(16,), (24,)], 8 * 16 * 24 + 8 * 24),
        # the norm of a 10 x 32 matrix: one product with each side's vector, one of the two vectors
        (
            lambda: torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(32, 10)),
            [(32,)],
            32 * 10 + 10 * 32 + 10,
        ),
        (lambda: torch.nn.Upsample(scale_factor=2, mode="linear"), [(3, 8)], 0),
        (lambda: torch.nn.Softmax(-1), [(8,)], 0),
    ],
)
def test_layers_by_hand(make: Callable[[], Any], shapes: list[tuple[int, ...]], macs: int) -> None:
    work = module_work(make().eval(), *shapes)
    assert (work.flops_per_item, work.uncounted) == (2 * macs, ())


def test_a_deformable_convolution_by_hand() -> None:
    operators = pytest.importorskip("torchvision.ops")

    class Deformed(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.convolution = operators.DeformConv2d(3, 8, 3, padding=1)

        def forward(self, values: Any) -> object:
            return self.convolution(values, torch.zeros(len(values), 18, 10, 10))

    work = module_work(Deformed().eval(), (3, 10, 10))
    assert (work.flops_per_item, work.uncounted) == (2 * 8 * 100 * 27, ())


def test_operators_that_the_counter_does_not_know_are_named() -> None:
    class Transformed(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, values: object) -> object:
            return torch.fft.rfft(self.linear(values)).abs() + torch.linalg.det(torch.eye(3))

    work = module_work(Transformed().eval(), (8,))
    assert work.flops_per_item == 2 * 64
    assert "_fft_r2c" in work.uncounted
    assert any("linalg" in name or "lu" in name for name in work.uncounted)


def test_an_operator_of_another_library_is_named() -> None:
    @torch.library.custom_op("inferometer_test::mystery", mutates_args=())
    def mystery(values: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return values.clone()

    class Mysterious(torch.nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, values: Any) -> object:
            return mystery(values)

    work = module_work(Mysterious(), (8,))
    assert (work.flops_per_item, work.uncounted) == (0, ("mystery",))


def test_a_table_that_is_also_the_output_layer_is_read_and_winograds_convolutions_are_reported() -> None:
    class Tied(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.other = torch.nn.Embedding(10, 4), torch.nn.Embedding(7, 4)
            self.out = torch.nn.Linear(4, 10, bias=False)
            self.out.weight = self.table.weight

        def forward(self, ids: object) -> object:
            return self.out(self.table(ids) + self.other(ids))

    ids = Inputs({"ids": np.ones((2, 3), np.int64)}, "ones")
    assert count(loaded_of(Tied(), ("ids",)), {3: ids})[0].parameters == 40

    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1, bias=False),
        torch.nn.Conv2d(4, 4, 3, padding=1, stride=2, bias=False),
        torch.nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False),
        torch.nn.Conv2d(4, 4, 1, bias=False),
    )
    pixels = Inputs({"x": np.zeros((2, 3, 8, 8), np.float32)}, "zeros")
    (work,) = count(loaded_of(layers, ("x",)), {None: pixels})
    assert work.winograd_flops_per_item == 2 * 8 * 8 * 4 * 3 * 9
    assert work.flops_per_item > work.winograd_flops_per_item
    traced = torch.jit.trace(layers, torch.from_numpy(pixels.arrays["x"]))
    assert count(loaded_of(traced, ("x",)), {None: pixels}) == (work,)
