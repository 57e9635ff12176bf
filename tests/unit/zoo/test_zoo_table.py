"""The table of models: complete, consistent, and free of heavy imports."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from harness.core.errors import ConfigError
from harness.zoo import MODELS, model_info
from harness.zoo.sources import with_prefix

HEAVY = ("torch", "torchvision", "transformers", "numpy", "onnx", "onnxruntime", "openvino", "sklearn")

ISSUE = {
    *("resnet18", "resnet50", "mobilenet_v2", "vit_b_16"),
    *("bert-base", "bert-large", "distilbert", "minilm-l6", "gpt2", "t5-small", "efficientnet-lite0"),
    *("smollm2-135m", "llama-1b"),
}


def test_table_has_every_model_of_the_issue() -> None:
    assert set(MODELS) == ISSUE


@pytest.mark.parametrize("name", sorted(ISSUE))
def test_entries_are_consistent(name: str) -> None:
    info = MODELS[name]
    assert info.name == name
    assert info.default_weights in info.weights
    assert info.has_module
    assert info.parameters is not None
    assert info.parameters > 1_000_000
    assert info.flops is not None
    assert re.fullmatch(r"[A-Za-z0-9._-]+", info.slug)


def test_folders_of_different_sources_differ() -> None:
    names = [
        *ISSUE,
        *("torchvision:resnet34", "hf:a/model", "hf:b/model", "hf:./model", "hf:/x/model", "hf:model/"),
        *("module:model:build", "module:a.model:build", "onnx:a/model.onnx", "onnx:b/model.onnx"),
    ]
    slugs = [model_info(name).slug for name in names]
    assert len(set(slugs)) == len(slugs)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", slug) for slug in slugs)


def test_sources_name_their_conditions() -> None:
    assert model_info("torchvision:resnet34").family == MODELS["resnet50"].family
    assert model_info("hf:prajjwal1/bert-tiny").weights == ("pretrained", "seeded")
    own = model_info("module:mine.models:build")
    assert (own.weights, own.default_weights, own.has_module) == (("own",), "own", True)
    onnx = model_info("onnx:some folder/net.onnx")
    assert (onnx.weights, onnx.has_module, onnx.reference) == (("own",), False, "some folder/net.onnx")
    assert onnx.slug.startswith("onnx-net-")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "module:..evil:f",
            "module:a..b:f",
            "module:a/b:f",
            "module:a",
            "module:a:b:c",
            "module:a:b()",
            "module:a;b:f",
        ),
        *("onnx:", "onnx:net.pb", "onnx:net\n.onnx", "onnx:\x1b[2J.onnx", "hf:", "hf: x", "hf:a\x00b"),
        *("torchvision:", "torchvision:../x", "torchvision:ResNet"),
    ],
)
def test_malformed_sources_are_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        model_info(name)
    assert caught.value.hint.startswith("Write `")
    assert caught.value.problem.isprintable()


@pytest.mark.parametrize(
    ("name", "problem", "remedy"),
    [
        ("net.pt", "net.pt is not loaded unseen", "module:<python path>:<function>"),
        ("./net.PTH", "./net.PTH is not loaded unseen", "module:<python path>:<function>"),
        ("net.engine", "net.engine is in a format that is not read", "ONNX"),
        ("net.gguf", "net.gguf is a file of llama.cpp", "`hf:<folder>`"),
        ("net.py", "net.py is a Python file", "`module:net:<function>`"),
        ("module:../nets/net.py:build", "is a Python file", "Set `PYTHONPATH=../nets`. Name"),
        ("./net.py:build", "is a Python file", "its example inputs: `module:net:build`."),
    ],
)
def test_a_file_of_another_kind_is_named_with_the_right_kind(name: str, problem: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        with_prefix(name)
    assert remedy in raised.value.hint


def test_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        model_info("resnet5")
    assert "resnet5" in caught.value.problem
    assert "Did you mean `resnet50`?" in caught.value.hint
    assert "onnx:<file>" in caught.value.hint


def test_the_path_of_a_function_without_its_prefix_gets_it() -> None:
    with pytest.raises(ConfigError, match=r"Unknown model `nets\.small:build`") as caught:
        model_info("nets.small:build")
    assert caught.value.hint.startswith("For the function of that name: `module:nets.small:build`. Known: ")
    with pytest.raises(ConfigError) as caught:
        model_info("torchvison:resnet18")
    assert caught.value.hint.startswith("Did you mean `torchvision:<name>`? ")


@pytest.mark.parametrize("module", ["harness.zoo", "harness.models", "harness.export"])
def test_table_imports_nothing_heavy(module: str) -> None:
    # harness.export compares arrays and so has numpy; what takes seconds comes only when a model is exported.
    heavy = [name for name in HEAVY if not (module == "harness.export" and name == "numpy")]
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("resnet50", "static"),
        ("efficientnet-lite0", "static"),
        ("torchvision:resnet34", "static"),
        ("vit_b_16", "dynamic"),
        ("torchvision:swin_t", "dynamic"),
        ("minilm-l6", "dynamic"),
        ("module:a.b:c", "dynamic"),
        ("onnx:own.onnx", "dynamic"),
    ],
)
def test_convolutional_networks_are_quantised_statically_and_transformers_dynamically(name: str, method: str) -> None:
    assert model_info(name).quantisation == method
