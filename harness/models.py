"""List the models of the zoo: parameters, inputs, and where their weights come from.

reads   which packages and downloaded weights this machine has
writes  nothing
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from harness.core import cli
from harness.zoo import MODELS, PREFIXES, ModelInfo
from harness.zoo.model_files import hub_folder, user_cache


def models(arguments: Sequence[str]) -> None:
    """Print the table."""
    cli.parser("harness.models", __doc__).parse_args(arguments)
    rows = [
        [info.name, f"{info.parameters or 0:,}", info.input_spec, availability(info), info.weight_source]
        for info in MODELS.values()
    ]
    headers = ["model", "parameters", "inputs", "pretrained weights", "from"]
    cli.say(
        tabulate(rows, headers, tablefmt="simple", disable_numparse=True, colalign=["left", "right"] + ["left"] * 3)
    )
    cli.say()
    cli.say("`weights: seeded` (random, fixed seed) needs no download and works for every model above.")
    cli.say()
    cli.say("Others by name:")
    cli.say(tabulate([[f"  {form}", explanation] for form, explanation in PREFIXES.items()], tablefmt="plain"))


def availability(info: ModelInfo) -> str:
    """Where the pretrained weights are: in a package, in a cache, still to be downloaded, or nowhere."""
    if "pretrained" not in info.weights:
        return "none"
    if info.package is not None:
        return "here" if importlib.util.find_spec(info.package) else "not installed"
    return "here (cache)" if _is_cached(info) else "download"


def _is_cached(info: ModelInfo) -> bool:
    """True where the libraries' own download folders hold weights of this model."""
    if info.family == "harness.zoo.families.vision":
        folder = Path(os.environ.get("TORCH_HOME", user_cache() / "torch")) / "hub" / "checkpoints"
        # torchvision names its files <model>-<eight hex digits>.pth.
        pattern = re.compile(re.escape(info.reference) + r"-[0-9a-f]{8}\.pth")
        return folder.is_dir() and any(pattern.fullmatch(file.name) for file in folder.iterdir())
    return any(hub_folder(info.reference).glob("snapshots/*/*.safetensors"))


if __name__ == "__main__":
    cli.main(models)
