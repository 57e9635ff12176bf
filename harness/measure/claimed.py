"""The row of a summary that stands beside a published value, and every condition that is not the same (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.core.schemas import Cell, Claim, ClaimedValue, Device, Differing, Environment, Row, Summary
from harness.measure import changes, grades

_SHAPE = ("backend", "precision", "batch_size", "sequence_length", "boundary", "mode")


@dataclass(frozen=True)
class Found:
    """What a summary has of a value: a sound row, or the reason why there is none."""

    value: ClaimedValue
    row: Row | None
    reason: str | None
    differences: tuple[Differing, ...]


def cell_on(value: ClaimedValue, claim: Claim, device: Device) -> Cell:
    """What is measured for a value on a device: the published cell, or what the claim puts in its place there."""
    found = Cell.model_validate(value.model_dump(include=set(Cell.model_fields)))
    substitute = claim.substitutes.get(device)
    if substitute is None:
        return found
    other = substitute.model_dump(exclude_none=True)
    if value.sequence_length is None:
        other.pop("sequence_length", None)
    return found.model_copy(update=other)


def find(claim: Claim, value: ClaimedValue, summary: Summary | None, left_out: Mapping[str, str]) -> Found:
    """The row for a value. `left_out`: why values cannot be measured here, by name."""
    rows = [row for row in summary.rows if not row.tried] if summary else []
    here = [row for row in rows if _is_for(row, cell_on(value, claim, row.device))]
    environments = list(summary.environments.values()) if summary else []
    around = (*_card(claim, environments), *_versions(claim, environments), *claim.differs)
    if not here:
        return Found(value, None, left_out.get(value.name, "not among the measured cases"), around)
    # A setting that this device does not have leaves the backend its usual one, which is the first.
    row = next((row for row in here if row.setting == value.setting), here[0])
    differences = (*_conditions(claim, value, row), *around)
    flaw = _flaw(row)
    return Found(value, None if flaw else row, flaw, differences)


def between(published: Summary, current: Summary) -> tuple[Differing, ...]:
    """What differs between two runs of this project.

    On a GPU the card decides a latency; what else the machine has is named. A CPU's whole machine decides.
    """
    on_gpu = any(environment.gpu for environment in published.environments.values())
    return tuple(
        Differing(
            name=one.name,
            published=one.baseline,
            here=one.current,
            refuses=one.refuses and (not on_gpu or one.name == "gpu.name"),
        )
        for one in changes.differences(published, current)
    )


def _is_for(row: Row, cell: Cell) -> bool:
    return all(getattr(row, name) == getattr(cell, name) for name in ("model", *_SHAPE))


def _flaw(row: Row) -> str | None:
    """Why a row has no figure to compare."""
    if row.status != "measured":
        return f"{row.status}: {row.reason}" if row.reason else row.status
    if grades.too_short(row):
        return "too short for the clock"
    if row.grade not in grades.RANKED:
        return f"grade {row.grade}: {', '.join(dict.fromkeys(flag.name for flag in row.flags))}"
    return None


def _conditions(claim: Claim, value: ClaimedValue, row: Row) -> Iterator[Differing]:
    model = next(model for model in claim.models if model.name == value.model)
    if model.published not in (None, model.name):
        yield Differing(name="model", published=str(model.published), here=model.name)
    for name in (*_SHAPE, *(["setting"] if value.setting else [])):
        asked, ran = getattr(value, name), getattr(row, name)
        if asked != ran:
            yield Differing(name=name.replace("_", " "), published=str(asked), here=str(ran), refuses=True)


def _card(claim: Claim, environments: Iterable[Environment]) -> Iterator[Differing]:
    here = {one.gpu.name if one.gpu else one.machine.cpu for one in environments}
    if others := sorted(here - set(claim.cards)):
        yield Differing(name="card", published=claim.cards[0], here=", ".join(others), refuses=True)


def _versions(claim: Claim, environments: Sequence[Environment]) -> Iterator[Differing]:
    if not environments:
        return
    for name, published in claim.versions.items():
        libraries = [one.software.libraries for one in environments]
        here = sorted({one[name] for one in libraries if name in one})
        if not here or not all(f"{one}.".startswith(f"{published}.") for one in here):
            yield Differing(name=name, published=published, here=", ".join(here) or "not installed")
