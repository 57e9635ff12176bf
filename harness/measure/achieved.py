"""A case's counted work over the time that its row was measured in (pure)."""

from __future__ import annotations

from harness.core.schemas import Case, CpuRoof, ExportRecord, Roof, Row, Work
from harness.core.schemas.profile import Achieved, Counts, FileSize, MeasuredMemory, ModelProfile
from harness.measure.roofline import best_product, least_bytes, pass_ns

_INT8_BYTES = "least_bytes: of int8 with one byte a weight, though its files keep some tensors wider"


def model_profile(
    case: Case,
    identity: tuple[str, str],
    export: ExportRecord,
    files: tuple[FileSize, ...],
    counts: Counts,
    memory: MeasuredMemory,
    row: Row | None,
    roof: Roof | CpuRoof | None,
) -> ModelProfile:
    """The model level of a case.

    identity: (settings id, date); row: of the same case in the summary, None where there is none; roof: of the device
    that the summary's rows ran on.
    """
    settings_id, created_at = identity
    work = next((found for found in export.work if found.sequence_length == case.sequence_length), None)
    flops = _times(counts.flops, case)
    traffic = _traffic(case, work)
    notes = (*counts.count_notes, *((_INT8_BYTES,) if work is not None and case.precision == "int8" else ()))
    return ModelProfile(
        **counts.model_copy(update={"count_notes": notes}).model_dump(),
        case_id=case.case_id,
        settings_id=settings_id,
        created_at=created_at,
        environment_id=memory.environment_id,
        model=case.model,
        backend=case.backend,
        setting=case.setting,
        precision=case.precision,
        batch_size=case.batch_size,
        sequence_length=case.sequence_length,
        files=files,
        macs_per_batch=_times(counts.macs, case),
        flops_per_batch=flops,
        least_bytes=traffic,
        flops_per_byte=None if flops is None or not traffic else flops / traffic,
        activation_estimated_bytes=_times(counts.activation_bytes, case),
        activation_measured_bytes=memory.peak_bytes,
        activation_alone_bytes=memory.activations_bytes,
        activation_measured_by=memory.by,
        export_sha256=export.request_sha256,
        achieved=achieved(row, flops, roof),
    )


def achieved(row: Row | None, flops: int | None, roof: Roof | CpuRoof | None) -> Achieved:
    """What a row reached of the FLOPs of one batch; each figure that is None has its reason among the notes."""
    if row is None or row.latency_ns is None:
        why = "the case has no row in summary.json" if row is None else row.reason or "its row is void (grade F)"
        return Achieved(
            latency_ns=None,
            device_ns=None,
            items_per_s=None,
            tokens_per_s=None,
            flops_per_s=None,
            peak_share=None,
            notes=(f"not measured: {why}",),
        )
    time_ns, items = pass_ns(row), row.throughput_per_s
    rate = None if flops is None else flops / (time_ns or row.latency_ns.median) * 1e9
    peak = best_product(row, roof)
    notes = [f"peak_share: {peak}"] if isinstance(peak, str) else []
    if row.mode == "offline":
        notes.append("latency_ns: wall time a batch, back to back")
    return Achieved(
        latency_ns=row.latency_ns.median,
        device_ns=None if row.device == "cpu" else time_ns,
        items_per_s=items,
        tokens_per_s=items * row.sequence_length if items and row.sequence_length else None,
        flops_per_s=rate,
        peak_share=None if rate is None or isinstance(peak, str) else rate / peak,
        notes=tuple(notes),
    )


def _times(of_an_item: int | None, case: Case) -> int | None:
    """Of a batch."""
    return None if of_an_item is None else of_an_item * case.batch_size


def _traffic(case: Case, work: Work | None) -> int | None:
    """Least bytes of one batch; None where nothing was counted."""
    return None if work is None else least_bytes(work, case.precision, case.batch_size)
