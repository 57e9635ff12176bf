"""What is left of a turn's records when its samples are taken away: enough to show how a run gets on (pure)."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas import Failed, Gate, Measured, Record, Usage
from harness.measure.typical import batch_ns


class Seen(Record):
    """Clock, heat and power at the end of a turn; None where the machine does not tell."""

    of: Literal["GPU", "CPU"]
    mhz: float | None
    temperature_c: float | None
    power_w: float | None = None
    held_back: tuple[str, ...] = ()
    """Why a GPU's clock was held back, by NVML's names."""


class Answer(Record):
    """A turn that has ended."""

    case_id: str
    round: int
    started_at: str
    environment_id: str | None
    threads: int | None
    median_ns: float | None
    failure: str | None
    remarks: tuple[str, ...]
    unsound: bool
    """Outputs further from the reference than the gate allows."""
    seconds: float | None
    """Life of the process; None where no monitor watched it."""
    seen: Seen | None


def answer_of(record: Measured | Failed, usage: Usage | None, gate: Gate | None) -> Answer:
    """A record without its samples. gate: what its outputs are held to."""
    measured = record if isinstance(record, Measured) else None
    unsound = measured is not None and _is_unsound(measured, gate)
    return Answer(
        case_id=record.case_id,
        round=record.round,
        started_at=record.started_at,
        environment_id=record.environment_id,
        threads=measured.threads if measured else None,
        median_ns=batch_ns(measured) if measured else None,
        failure=f"failed in {record.phase}: {record.error}" if isinstance(record, Failed) else None,
        remarks=_remarks(measured, unsound) if measured else (),
        unsound=unsound,
        seconds=usage.watched_ns / 1e9 if usage else None,
        seen=_seen(usage),
    )


def _remarks(record: Measured, unsound: bool) -> tuple[str, ...]:
    found = ["void: outputs too far from the reference"] if unsound else []
    found += [] if record.steady else ["not steady"]
    found += [] if record.stop == "converged" else [f"stopped at the {record.stop}"]
    return tuple(found)


def _is_unsound(record: Measured, gate: Gate | None) -> bool:
    distance = record.parity_before
    return bool(gate and distance and (distance.furthest is None or distance.furthest > gate.relative_l2))


def _seen(usage: Usage | None) -> Seen | None:
    if usage is None or not usage.samples:
        return None
    last = usage.samples[-1]
    if card := last.gpu:
        return Seen(
            of="GPU",
            mhz=card.sm_mhz,
            temperature_c=card.temperature_c,
            power_w=card.power_w,
            held_back=card.reasons,
        )
    if last.frequency_mhz is None and last.temperature_c is None:
        return None
    return Seen(of="CPU", mhz=last.frequency_mhz, temperature_c=last.temperature_c)
