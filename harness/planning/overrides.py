"""Command-line choices laid over a configuration: each replaces one list everywhere (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.errors import UsageError
from harness.core.schemas import Device, Precision
from harness.planning.config import Block, Config, ModelEntry

_LISTS = ("backends", "precisions", "batch_sizes", "sequence_lengths")


@dataclass(frozen=True)
class Overrides:
    """Empty or None leaves the configuration as it is."""

    device: Device | None = None
    models: Sequence[str] = ()
    backends: Sequence[str] = ()
    precisions: Sequence[Precision] = ()
    batch_sizes: Sequence[int] = ()
    sequence_lengths: Sequence[int] = ()
    rounds: int | None = None


def apply(config: Config, chosen: Overrides) -> Config:
    """The configuration with the choices laid over it; blocks may overlap after it (make_plan merges them)."""
    update: dict[str, object] = {"matrix": _matrix(config, chosen)}
    if chosen.device:
        update["device"] = chosen.device
    if chosen.models:
        update["models"] = tuple(_entry(config, name) for name in chosen.models)
    if chosen.rounds is not None:
        update["measurement"] = config.measurement.model_copy(update={"rounds": chosen.rounds})
    return config.model_copy(update=update)


def _matrix(config: Config, chosen: Overrides) -> tuple[Block, ...]:
    replaced = {name: tuple(getattr(chosen, name)) for name in _LISTS if getattr(chosen, name)}
    blocks = [block.model_copy(update=replaced) for block in config.matrix]
    if chosen.models:
        blocks = _for_models(blocks, [_name(text) for text in chosen.models])
    return tuple(blocks)


def _for_models(blocks: Sequence[Block], names: Sequence[str]) -> list[Block]:
    """Keep what blocks say about the chosen models; a model that no block covers gets the first block's lists."""
    kept = [_narrowed(block, names) for block in blocks]
    result = [block for block in kept if block is not None]
    covered = {name for block in result for name in (names if block.models is None else block.models)}
    missing = tuple(name for name in names if name not in covered)
    if missing:
        result.append(blocks[0].model_copy(update={"models": missing}))
    return result


def _narrowed(block: Block, names: Sequence[str]) -> Block | None:
    if block.models is None:
        return block
    common = tuple(name for name in block.models if name in names)
    return block.model_copy(update={"models": common}) if common else None


def _name(text: str) -> str:
    return text.rpartition("@")[0] if text.endswith(("@seeded", "@pretrained")) else text


def _entry(config: Config, text: str) -> ModelEntry:
    """`resnet50` keeps the configuration's weights for it; `resnet50@seeded` names them."""
    name = _name(text)
    if not name:
        raise UsageError(f"`{text}` names no model.", "Write MODELS=<name> or MODELS=<name>@seeded.")
    if name != text:
        return ModelEntry.model_validate({"name": name, "weights": text.rpartition("@")[2]})
    known = {entry.name: entry for entry in config.models}
    return known.get(name, ModelEntry(name=name))
