"""Short display names of models: `Tower` for `pickle:Tower-0f3a…`, `model.onnx` for `onnx:/data/model.onnx` (pure).

Files keep the whole names; tables and charts show the short ones, and the report's last section says which is which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.core.schemas import Summary
from harness.zoo import MODELS

_DIGITS = 16
"""Of the hash at the end of a pickle's name."""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """By whole name its short one; of names that would be short alike, each gets the least that tells them apart.

    >>> short_names(["onnx:/data/a/net.onnx", "onnx:/data/b/net.onnx", "hf:./bert"])
    {'onnx:/data/a/net.onnx': 'a/net.onnx', 'onnx:/data/b/net.onnx': 'b/net.onnx', 'hf:./bert': 'bert'}
    """
    longer = {name: _names(name) for name in dict.fromkeys(names)}
    level = dict.fromkeys(longer, 0)
    while True:
        shown = {name: longer[name][level[name]] for name in longer}
        counts = Counter(shown.values())
        alike = [name for name in longer if counts[shown[name]] > 1 and level[name] < len(longer[name]) - 1]
        if not alike:
            return shown
        for name in alike:
            level[name] += 1


def _names(name: str) -> list[str]:
    """The ways to write a name, the shortest first, the whole one last."""
    prefix, colon, reference = name.partition(":")
    if name in MODELS or not colon:
        return [name]
    if prefix == "pickle":
        label, _, digits = reference.rpartition("-")
        parts = [label, *(f"{label}-{digits[:count]}" for count in range(1, _DIGITS + 1))]
    elif prefix == "module":
        module, _, function = reference.rpartition(":")
        packages = module.split(".")
        parts = [function, *(f"{'.'.join(packages[place:])}:{function}" for place in reversed(range(len(packages))))]
    elif prefix in ("onnx", "hf", "torchvision"):
        folders = reference.rstrip("/").split("/")
        parts = ["/".join(folders[place:]) for place in reversed(range(len(folders))) if folders[place] != "."]
    else:
        return [name]
    return list(dict.fromkeys([*filter(None, parts), name]))


def with_short_names(summary: Summary) -> Summary:
    """The summary as tables and charts show it. Its exports still hold the whole names."""
    short = short_names([*(row.model for row in summary.rows), *summary.exports])
    if all(name == shown for name, shown in short.items()):
        return summary
    return summary.model_copy(
        update={
            "rows": tuple(row.model_copy(update={"model": short[row.model]}) for row in summary.rows),
            "exports": {short[name]: record for name, record in summary.exports.items()},
        }
    )


def whole_names(summary: Summary) -> str:
    """Which model each short name of a summary is; empty where every name is whole."""
    pairs = [(shown, record.model) for shown, record in summary.exports.items() if shown != record.model]
    return " ".join(f"`{shown}` is `{whole}`." for shown, whole in pairs)
