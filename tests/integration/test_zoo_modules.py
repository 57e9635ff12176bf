"""Every model of the table is really what the table says."""

from __future__ import annotations

import errno
import resource
import signal
from pathlib import Path

import pytest

from harness.zoo import MODELS

pytestmark = pytest.mark.stages


@pytest.mark.parametrize("name", sorted(MODELS))
def test_parameter_counts_are_those_of_the_modules(name: str, tmp_path: Path) -> None:
    import torch

    from harness.zoo.construct import family_of
    from harness.zoo.families import hub
    from harness.zoo.loaded import Request

    info = MODELS[name]
    if info.kind == "text":
        request = Request(info, "seeded", seed=0, cache=None, folder=tmp_path)
        hub.configuration(hub.origin_of(request), request).save_pretrained(tmp_path)
    with torch.device("meta"):
        module = family_of(info).architecture(info, tmp_path)
    assert sum(parameter.numel() for parameter in module.parameters()) == info.parameters


@pytest.mark.parametrize("name", ["mobilenet_v2", "vit_b_16"])
def test_seeded_models_answer_with_numbers_of_ordinary_size(name: str, tmp_path: Path) -> None:
    import torch

    from harness.zoo.construct import family_of
    from harness.zoo.loaded import Request

    loaded = family_of(MODELS[name]).load(Request(MODELS[name], "seeded", seed=0, cache=None, folder=tmp_path))
    inputs = loaded.make_inputs(2, None).arrays
    with torch.inference_mode():
        logits = loaded.require_module()(torch.from_numpy(inputs["pixel_values"]))
    assert 1e-2 < float(logits.std()) < 1e2
    assert not torch.equal(logits[0], logits[1])


def test_weights_that_the_disk_does_not_take_are_an_error_of_the_disk(tmp_path: Path) -> None:
    from torch import nn

    from harness.zoo.construct import save_weights

    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="weights") as caught:
            save_weights(nn.Linear(100, 100), tmp_path / "weights.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG


def test_importing_build_runs_nothing() -> None:
    import subprocess
    import sys

    code = (
        "import threading, sys, harness.zoo.construct\n"
        "print(threading.active_count(), 'torchvision' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False", "False"]
