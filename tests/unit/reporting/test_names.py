"""Short display names: as short as distinguishes them, and never two alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.core.text import short_names
from harness.reporting.details import provenance
from harness.reporting.prose.conditions import whole_names, with_short_names
from harness.zoo import PREFIXES
from tests.synthetic_loads import closed_row
from tests.synthetic_results import RESNET, Synthetic, case_of


def shown(*names: str) -> list[str]:
    return list(short_names(names).values())


def test_each_kind_of_name_has_a_short_one() -> None:
    assert shown(
        "pickle:Tower-0123456789abcdef",
        "onnx:/data/nets/model.onnx",
        "hf:./my-model/",
        "hf:google-bert/bert-tiny",
        "module:mypackage.models:build",
        "torchvision:resnet34",
        "timm:vit_tiny_patch16_224.augreg",
        "pt2:/data/nets/model.pt2",
        "resnet50",
    ) == [
        "Tower",
        "model.onnx",
        "my-model",
        "bert-tiny",
        "build",
        "resnet34",
        "vit_tiny_patch16_224.augreg",
        "model.pt2",
        "resnet50",
    ]


def test_every_kind_of_name_of_ones_own_is_shortened() -> None:
    """Work of known duration aside, whose prefix says what it is: `spin:1ms`."""
    for form in PREFIXES:
        prefix = form.partition(":")[0]
        assert not shown(f"{prefix}:packages.part:name")[0].startswith(prefix), form
    assert shown("spin:1ms") == ["spin:1ms"]


def test_the_least_that_differs_distinguishes_equal_ones() -> None:
    assert shown("pickle:Tower-0123456789abcdef", "pickle:Tower-0f23456789abcdef") == ["Tower-01", "Tower-0f"]
    assert shown("pt2:/a/m.pt2", "pt2:/b/m.pt2", "timm:resnet18", "resnet18") == [
        "a/m.pt2",
        "b/m.pt2",
        "timm:resnet18",
        "resnet18",
    ]
    assert shown("onnx:/a/x/m.onnx", "onnx:/b/x/m.onnx", "onnx:n.onnx") == ["a/x/m.onnx", "b/x/m.onnx", "n.onnx"]
    assert shown("resnet18", "torchvision:resnet18") == ["resnet18", "torchvision:resnet18"]
    assert shown("module:a.nets:build", "module:b.nets:build") == ["a.nets:build", "b.nets:build"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["onnx:", "pt2:", "hf:", "timm:", "module:", "pickle:", ""]), st.text("ab/.:-", min_size=1)
        ),
        unique=True,
    )
)
def test_no_two_models_look_alike(pairs: list[tuple[str, str]]) -> None:
    names = [prefix + rest for prefix, rest in pairs]
    assert len(set(shown(*names))) == len(set(names))


def test_tables_have_the_short_name_and_the_last_section_the_whole_one() -> None:
    name = "pickle:Tower-0123456789abcdef"
    made = Synthetic((RESNET,), [case_of(RESNET, "torch-eager", "fp32", 1)]).summary()
    rows = tuple(row.model_copy(update={"model": name}) for row in made.rows)
    exports = {name: made.exports[RESNET.name].model_copy(update={"model": name})}
    summary = made.model_copy(update={"rows": rows, "exports": exports})
    short = with_short_names(summary)
    assert {row.model for row in short.rows} == set(short.exports) == {"Tower"}
    assert whole_names(short) == "`Tower` is `pickle:Tower-0123456789abcdef`."
    assert whole_names(short) in provenance(short)
    assert whole_names(summary) == ""


def test_loads_have_short_names_too() -> None:
    loads = (closed_row("onnx:/data/nets/model.onnx", "onnxruntime", "single-stream", 1e6),)
    summary = Synthetic((RESNET,), [case_of(RESNET, "torch-eager", "fp32", 1)]).summary()
    short = with_short_names(summary.model_copy(update={"loads": loads}))
    assert {row.model for row in short.loads} == {"model.onnx"}
