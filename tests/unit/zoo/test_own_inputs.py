"""A user's own inputs: what a plan keeps of the files, and what is refused with the input's name."""

from __future__ import annotations

import doctest
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from harness.core.errors import ExportError, InferometerError, UsageError
from harness.planning.config import parse_config
from harness.planning.matrix import make_plan
from harness.planning.overrides import Overrides, apply_overrides
from harness.zoo import batch_axes, model_files, model_info
from harness.zoo.batch_axes import axes_of_examples, axes_of_graph, batch_first, in_model_layout, sample_first
from harness.zoo.input_files import describe_inputs
from harness.zoo.inputs.own import check_different, rotating_samples, varied_samples, with_own_inputs
from harness.zoo.loaded import Inputs, Loaded

NUMBERS = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return NUMBERS.standard_normal(shape).astype(np.float32)


def write(path: Path, *unnamed: Any, **arrays: Any) -> str:
    np.savez(path, *unnamed, **arrays)
    return str(path)


def model(**more: Any) -> Loaded:
    """Two inputs, and a third that all items share."""
    types = {"image": np.dtype(np.uint8), "ids": np.dtype(np.int64), "scale": np.dtype(np.float32)}
    given: dict[str, Any] = {
        "input_names": tuple(types),
        "input_axes": {"scale": None},
        "input_types": types,
        **more,
    }
    return Loaded(None, "", False, output_names=("y",), make_inputs=lambda samples, length: Inputs({}, ""), **given)


def of_file(path: str, loaded: Loaded | None = None, samples: int = 64) -> Inputs:
    return with_own_inputs(loaded or model(), describe_inputs((path,), "tensor")).make_inputs(samples, None)


def good(count: int = 10) -> dict[str, Any]:
    return {
        "image": np.arange(count * 4, dtype=np.uint8).reshape(count, 2, 2),
        "ids": np.arange(count * 3, dtype=np.int32).reshape(count, 3),
        "scale": np.float64(0.5),
    }


def test_eight_samples_are_taken_as_they_are_in_the_models_types(tmp_path: Path) -> None:
    made = of_file(write(tmp_path / "own.npz", **good()))
    assert {name: (values.dtype, values.shape) for name, values in made.arrays.items()} == {
        "image": (np.uint8, (10, 2, 2)),
        "ids": (np.int64, (10, 3)),
        "scale": (np.float32, (10,)),
    }
    assert np.array_equal(made.arrays["image"], good()["image"])
    assert made.source == "10 different samples of own.npz"


def test_fewer_get_variations_within_their_range_and_shared_inputs_stay(tmp_path: Path) -> None:
    made = of_file(write(tmp_path / "own.npz", **good(3)))
    assert made.source.startswith("3 different samples of own.npz and 61 variations")
    assert made.arrays["image"].max() == good(3)["image"].max()
    assert set(made.arrays["scale"].tolist()) == {0.5}
    unit = rotating_samples({"x": NUMBERS.random((2, 5)).astype(np.float32)}, 50)
    assert (unit.arrays["x"].min() >= 0, unit.arrays["x"].max() <= 1) == (True, True)
    classes = rotating_samples({"x": floats(2, 3), "kind": np.array([4, 9], np.uint8)}, 50).arrays["kind"]
    assert (classes.dtype, classes.min() >= 4, classes.max() <= 9, len(set(classes.tolist())) > 2) == (
        np.uint8,
        True,
        True,
        True,
    )


def test_noise_on_a_constant_input_is_reported_because_it_leaves_the_range() -> None:
    made = rotating_samples({"x": np.ones((4, 5), np.float32), "k": np.ones(4, np.float32)}, 9, shared=frozenset({"k"}))
    assert made.source.startswith("1 different sample handed over and 8 variations: ")
    assert made.source.endswith("within their range; noise of 0.1 on the constant x")
    assert made.arrays["x"].max() > 1


def test_arrays_without_names_count_by_their_order(tmp_path: Path) -> None:
    loaded = model(input_names=("image", "ids"), input_axes={})
    path = write(tmp_path / "own.npz", good()["image"], good()["ids"])
    assert list(of_file(path, loaded).arrays) == ["image", "ids"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"ids": None}, "lacks the input `ids`"),
        ({"idz": np.arange(10)}, "Unknown input `idz`"),
        ({"image": good()["image"].astype(np.float32)}, "Input `image` in .* is float32, and the model takes uint8"),
        ({"image": good()["image"].astype(np.int64) + 300}, "Input `image` in .* is int64"),
        ({"ids": np.arange(9).reshape(3, 3)}, "no number of samples in common: `image` 10, `ids` 3"),
        ({"ids": np.int64(3)}, "Input `ids` in .* is a scalar"),
        ({"scale": np.float64(1e300)}, "Input `scale` in .* has values that are too large for float32"),
    ],
)
def test_an_input_that_does_not_fit_is_named(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    arrays = {name: values for name, values in {**good(), **change}.items() if values is not None}
    with pytest.raises(UsageError, match=problem) as caught:
        of_file(write(tmp_path / "own.npz", **arrays))
    assert caught.value.hint


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_a_file_that_is_none_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InferometerError) as caught:
        describe_inputs((str(path),), "tensor")
    assert "own.npz" in caught.value.problem


def test_a_changed_file_is_distinguished_from_the_planned_one(tmp_path: Path) -> None:
    path = write(tmp_path / "own.npz", **good())
    planned = describe_inputs((path,), "tensor")
    write(tmp_path / "own.npz", **good(9))
    with pytest.raises(UsageError, match="has changed since it was planned"):
        with_own_inputs(model(), planned)


def test_several_files_are_distinguished_by_their_shapes_and_free_the_axes_that_differ(tmp_path: Path) -> None:
    files = [
        write(
            tmp_path / f"{size}.npz", x=floats(9, 3, size, size + 8), mask=np.ones((9, size), bool), state=floats(9, 2)
        )
        for size in (16, 32)
    ]
    given = describe_inputs(files, "tensor")
    assert [entry.sequence_length for entry in given] == [16, 32]
    types = {"x": np.dtype(np.float32), "mask": np.dtype(bool), "state": np.dtype(np.float32)}
    loaded = with_own_inputs(model(input_names=tuple(types), input_axes={"x": 1}, input_types=types), given)
    assert loaded.make_inputs(4, 32).arrays["x"].shape == (4, 3, 32, 40)
    assert loaded.free_axes == {"x": {2: "sequence", 3: "extent_1"}, "mask": {1: "sequence"}}
    with pytest.raises(UsageError, match="No axis distinguishes the shapes"):
        describe_inputs([files[0], write(tmp_path / "again.npz", **dict(np.load(files[0])))], "tensor")


def test_a_text_models_file_says_its_sequence_length(tmp_path: Path) -> None:
    path = write(tmp_path / "own.npz", attention_mask=np.ones((9, 12)), input_ids=np.ones((9, 12), int))
    assert [entry.sequence_length for entry in describe_inputs((path,), "text")] == [12]


def test_inputs_are_part_of_the_plan_by_their_content_and_decide_its_lengths(tmp_path: Path) -> None:
    short, other, long = (
        write(tmp_path / f"{name}.npz", x=floats(9, size)) for name, size in (("a", 4), ("b", 4), ("c", 6))
    )
    copy = tmp_path / "copy.npz"
    copy.write_bytes(Path(short).read_bytes())

    def planned(*paths: str) -> Any:
        data = {
            "models": [{"name": "onnx:m.onnx", "inputs": list(paths)}],
            "matrix": [{"backends": ["onnxruntime"], "boundaries": ["compute", "e2e"]}],
        }
        config = parse_config(data, "my.yaml")
        own = {"onnx:m.onnx": describe_inputs(paths, "tensor")} if paths else {}
        return make_plan(config, "my.yaml", "", inputs=own)

    plans = [planned(*paths) for paths in ((), (short,), (str(copy),), (other,), (short, long))]
    assert plans[1].plan_id == plans[2].plan_id
    assert len({plan.plan_id for plan in plans}) == 4
    assert [case.sequence_length for case in plans[4].cases if case.skip_reason is None] == [4, 6]
    assert plans[4].models[0].sequence_lengths == (4, 6)
    first = parse_config({"models": [{"name": "resnet18", "inputs": short}], "matrix": [{"backends": ["noop"]}]}, "x")
    assert first.models[0].inputs == (short,)
    assert apply_overrides(first, Overrides(inputs=(long,))).models[0].inputs == (long,)


def test_batch_axes_by_examples_and_by_the_declaration_of_a_file() -> None:
    assert axes_of_examples({"x": (16, 8), "state": (2, 16, 4), "scale": (), "table": (3, 3)}) == {
        "state": 1,
        "scale": None,
        "table": None,
    }
    assert axes_of_graph({"x": ("N", 8), "y": (None, 4), "k": (3, 3), "t": ()}) == {"k": None, "t": None}
    assert axes_of_graph({"x": ("seq", "batch", 8), "h": (1, "batch", 4)}) == {"x": 1, "h": 1}
    assert axes_of_graph({"x": (1, 3, 8, 8), "k": (3, 3), "h": (2, 1, 4)}) == {"k": None, "h": 1}
    assert axes_of_graph({"x": (None, 3), "y": ("unk__1", 3)}) == {}


def test_samples_are_laid_out_as_the_model_takes_them_and_back() -> None:
    axes: dict[str, int | None] = {"state": 1, "scale": None}
    items = {"x": floats(4, 3), "state": floats(4, 2, 5), "scale": np.full(4, 0.5, np.float32)}
    taken = in_model_layout(items, axes)
    assert {name: values.shape for name, values in taken.items()} == {"x": (4, 3), "state": (2, 4, 5), "scale": ()}
    assert taken["state"].flags.c_contiguous
    assert all(np.array_equal(sample_first(taken, axes)[name], items[name]) for name in items)
    assert batch_first({"y": taken["state"]}, {"y": 1})["y"].shape == (4, 2, 5)


@pytest.mark.parametrize("module", [batch_axes, model_files], ids=lambda module: str(module.__name__))
def test_the_examples_of_the_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_the_inputs_of_a_transformer_are_read_from_its_folder_or_the_hubs_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = '{"architectures": ["ViTModel"], "image_size": 32, "num_channels": 3}'
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    cached = tmp_path / "hub" / "models--some--vit"
    assert model_info("hf:some/vit").kind == "text"
    (cached / "snapshots" / "abc").mkdir(parents=True)
    (cached / "snapshots" / "abc" / "config.json").write_text(config)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    info = model_info("hf:some/vit")
    assert (info.kind, info.quantisation, info.input_spec.startswith("photographs")) == ("image", "dynamic", True)
    assert model_info(f"hf:{cached / 'snapshots' / 'abc'}").kind == "image"
    (cached / "snapshots" / "abc" / "config.json").write_text("{")
    assert model_info("hf:some/vit").kind == "text", "a damaged file is for the export to name"


WORDS = ["bread", "water", "ferry", "dawn", "snow", "slope", "winter", "tractor", "notebook", "repair"]


def pad(texts: Sequence[str], length: int | None) -> Inputs:
    """A tokenizer of one token a word, 1 and 2 around them, 0 as padding."""
    assert length is not None
    ids, mask = np.zeros((2, len(texts), length), np.int64)
    for row, text in enumerate(texts):
        tokens = [1, *[3 + WORDS.index(word) for word in text.split()][: length - 2], 2]
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
    return Inputs({"input_ids": ids, "attention_mask": mask}, "its tokenizer")


def reader(**more: Any) -> Loaded:
    types = dict.fromkeys(("input_ids", "attention_mask"), np.dtype(np.int64))
    return model(input_names=tuple(types), input_types=types, input_axes={}, **{"pad_texts": pad, **more})


def text_file(folder: Path, lines: Sequence[str], name: str = "own.txt") -> str:
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / name)


def sentences(count: int) -> list[str]:
    """Of one to eight words, the first of each another one."""
    return [" ".join((WORDS * 2)[place : place + 1 + place % 8]) for place in range(count)]


def test_texts_are_padded_on_the_right_to_each_planned_length(tmp_path: Path) -> None:
    lines = ["", sentences(9)[0], "  ", *sentences(9), ""]
    loaded = with_own_inputs(reader(), describe_inputs((text_file(tmp_path, lines),), "text"))
    for length in (16, 5):
        arrays = loaded.make_inputs(64, length).arrays
        assert [values.shape for values in arrays.values()] == [(9, length)] * 2
    made = loaded.make_inputs(64, 16)
    ids, mask = made.arrays["input_ids"], made.arrays["attention_mask"]
    assert ids[2].tolist() == [1, 5, 6, 7, 2, *[0] * 11]
    assert np.array_equal(mask, ids != 0)
    assert (np.diff(mask, axis=1) <= 0).all(), "padding is on the right alone"
    assert made.source == "9 texts of own.txt, cut or padded to 16 tokens; its tokenizer"
    some = loaded.make_inputs(4, 16)
    assert some.source.startswith("4 of 9 texts of own.txt")
    assert np.array_equal(some.arrays["input_ids"], ids[:4])
    assert (loaded.make_raw, loaded.lengths, loaded.own_inputs) == (None, (), False)


def test_texts_that_begin_alike_count_once_at_a_length_that_cuts_them(tmp_path: Path) -> None:
    lines = [*(f"bread water ferry dawn {word}" for word in WORDS), *(f"{word} dawn" for word in WORDS)]
    loaded = with_own_inputs(reader(), describe_inputs((text_file(tmp_path, lines),), "text"))
    made = loaded.make_inputs(8, 6)
    assert len(np.unique(made.arrays["input_ids"], axis=0)) == len(made.arrays["input_ids"]) == 8
    with pytest.raises(UsageError, match="gives 1 different sample of 2 tokens, and 8 are the least") as caught:
        loaded.make_inputs(64, 2)
    assert "plan a larger sequence length" in caught.value.hint


def test_texts_of_the_same_tokens_get_no_advice_to_plan_more_of_them(tmp_path: Path) -> None:
    """As those of a language that the tokenizer does not know: at no length they differ."""

    def unknown(texts: Sequence[str], length: int | None) -> Inputs:
        return pad(["bread"] * len(texts), length)

    loaded = with_own_inputs(reader(pad_texts=unknown), describe_inputs((text_file(tmp_path, sentences(9)),), "text"))
    with pytest.raises(UsageError, match="gives 1 different sample of 8 tokens, and 8 are the least") as caught:
        loaded.make_inputs(64, 8)
    assert "No text was cut" in caught.value.hint
    assert "length" not in caught.value.hint


def test_few_texts_and_no_texts_are_refused_at_planning(tmp_path: Path) -> None:
    for lines, problem in (
        (sentences(7), "has 7 different texts, and 8 are the least"),
        (["bread"] * 20, "has 1 different text, and 8 are the least"),
        ([], "has 0 different texts"),
    ):
        with pytest.raises(UsageError, match=problem) as caught:
            describe_inputs((text_file(tmp_path, lines),), "text")
        assert caught.value.hint
    (tmp_path / "latin.txt").write_bytes("é\n".encode("latin-1") * 20)
    for name, problem in (("latin.txt", "is no text in UTF-8"), ("none.txt", "There is no file .*none.txt")):
        with pytest.raises(InferometerError, match=problem):
            describe_inputs((str(tmp_path / name),), "text")
    path = text_file(tmp_path, sentences(9))
    with pytest.raises(UsageError, match="holds texts, and INPUTS names 2 files"):
        describe_inputs((write(tmp_path / "a.npz", x=floats(9, 4)), path), "text")


def test_a_changed_file_of_texts_and_a_model_without_tokenizer_are_refused(tmp_path: Path) -> None:
    planned = describe_inputs((text_file(tmp_path, sentences(9)),), "text")
    with pytest.raises(UsageError, match="holds texts, and the model has no tokenizer here") as caught:
        with_own_inputs(reader(pad_texts=None), planned)
    assert "npz" in caught.value.hint
    text_file(tmp_path, sentences(10))
    with pytest.raises(UsageError, match="has changed since it was planned"):
        with_own_inputs(reader(), planned)


def test_texts_take_the_lengths_of_the_plan(tmp_path: Path) -> None:
    def planned(lines: Sequence[str]) -> Any:
        path = text_file(tmp_path, lines)
        data = {
            "models": [{"name": "minilm-l6", "inputs": path}],
            "matrix": [{"backends": ["torch-eager"], "sequence_lengths": [64, 128]}],
        }
        own = {"minilm-l6": describe_inputs((path,), "text")}
        return make_plan(parse_config(data, "my.yaml"), "my.yaml", "", inputs=own)

    plan, other = planned(sentences(9)), planned(sentences(10))
    assert [case.sequence_length for case in plan.cases] == [64, 128]
    assert plan.models[0].sequence_lengths == (64, 128)
    assert plan.models[0].inputs[0].holds_texts
    assert plan.plan_id != other.plan_id


def test_variations_of_padded_texts_keep_their_padding() -> None:
    given = dict(pad(sentences(3), 12).arrays)
    made = rotating_samples(given, 16).arrays
    assert np.array_equal(made["attention_mask"], np.resize(given["attention_mask"], (16, 12)))
    assert np.array_equal(made["input_ids"] != 0, made["attention_mask"] == 1)
    assert len(np.unique(made["input_ids"], axis=0)) > 3
    further = varied_samples(given, 9)
    assert np.array_equal(further["input_ids"] != 0, further["attention_mask"] == 1)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            np.full((1, 4), np.nan, np.float32),
            "Input `x` of net has no finite value: it is NaN or infinite throughout.",
        ),
        (
            np.full((9, 4), -np.inf, np.float32),
            "Input `x` of net has no finite value: it is NaN or infinite throughout.",
        ),
        (np.zeros((8, 0), np.float32), "The inputs of net have no values: an axis of each is 0."),
        (np.full((1, 4), 7, np.int64), "Only 1 of 16 inputs of net differ, and 8 have to."),
        (np.full((1, 4), 0.5, np.float32), None),
    ],
)
def test_inputs_that_cannot_be_varied_are_refused_with_the_reason(given: Any, problem: str | None) -> None:
    made = rotating_samples({"x": given}, 16).arrays
    if problem is None:
        check_different("net", made)
        return
    with pytest.raises(ExportError) as caught:
        check_different("net", made)
    assert caught.value.problem == problem
