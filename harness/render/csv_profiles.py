"""CSV lines of profiles: what models cost, and where the time of each case goes, every layer and operator (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.core.schemas import Precision, Summary
from harness.core.schemas.profile import ModelProfile, OnnxCount
from harness.core.schemas.profile_parts import LayerRow, OperatorRow, PartsProfile
from harness.measure.alike import alike
from harness.measure.launch_gaps import idle_share
from harness.measure.layer_sums import by_group, total
from harness.measure.profile_grades import flags_of, grade_of, spread
from harness.measure.profiled import Profiled
from harness.measure.reconcile import reconcile
from harness.measure.side_by_side import SideBySide
from harness.render.units import MILLISECOND
from harness.reporting.labels import Line, about, per, where


def profile_models(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each model and sequence length: what it costs whoever runs it, of one item."""
    return [
        {
            "model": one.model,
            "weights": weights,
            "sequence_length": one.sequence_length,
            "parameters": one.parameters,
            "trainable_parameters": one.trainable_parameters,
            "macs_per_item": one.macs,
            "flops_per_item": one.flops,
            "onnx_macs_per_item": _counted(one.onnx_count),
            "convention": one.convention,
            "counted_by": one.counted_by,
            "not_counted": "; ".join(one.uncounted),
            "count_notes": "; ".join(one.count_notes),
            **{f"weights_{precision}_bytes": one.weight_bytes.get(precision) for precision in _IN_MEMORY},
            **where(summary),
        }
        for weights, one in _models(found, by_length=True)
    ]


def _counted(count: OnnxCount | None) -> int | None:
    """None, and no 0, where only operators that were not counted hold products."""
    return None if count is None or (count.uncounted and not count.macs) else count.macs


_IN_MEMORY: Sequence[Precision] = ("fp32", "fp16", "bf16")


def profile_parameters(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each class of module that has parameters."""
    return [
        {"model": one.model, "weights": weights, "module_type": kind, "parameters": number, **where(summary)}
        for weights, one in _models(found)
        for kind, number in one.parameters_by_type.items()
    ]


def profile_files(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each file that a backend can load a model from."""
    return [
        {
            "model": one.model,
            "weights": weights,
            "kind": file.kind,
            "name": file.name,
            "path": file.path,
            "file_bytes": file.size_bytes,
            **where(summary),
        }
        for weights, one in _models(found)
        for file in one.files
    ]


def profile_cases(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each case: work, traffic and memory of a batch, and what its row reached."""
    return [about(summary, one.row, _case(one.model)) for one in found]


def _case(found: ModelProfile) -> Line:
    reached = found.achieved
    return {
        "flops_per_batch": found.flops_per_batch,
        "least_bytes_per_batch": found.least_bytes,
        "flops_per_byte": found.flops_per_byte,
        "pass_peak_bytes": found.activation_measured_bytes,
        "activations_bytes": found.activation_alone_bytes,
        "measured_by": found.activation_measured_by,
        "activations_estimated_bytes": found.activation_estimated_bytes,
        "estimated_by": found.activation_bytes_by,
        "latency_median_ms": per(reached.latency_ns, MILLISECOND),
        "device_median_ms": per(reached.device_ns, MILLISECOND),
        "flops_per_s": reached.flops_per_s,
        "flops_share_of_best": reached.peak_share,
        "throughput_items_per_s": reached.items_per_s,
        "throughput_tokens_per_s": reached.tokens_per_s,
        "notes": "; ".join(reached.notes),
    }


def profile_sums(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each case with parts: whether they add up to the latency, and what explains it where they do not."""
    return [about(summary, one.row, _sums(one, one.parts)) for one in found if one.parts]


def _sums(one: Profiled, parts: PartsProfile) -> Line:
    measured = one.model.achieved.latency_ns
    sums = reconcile(parts, one.row.device == "cuda", None if measured is None else round(measured))
    gaps = idle_share(parts, measured)
    return {
        "profile_grade": grade_of(parts),
        "profile_flags": " ".join(dict.fromkeys(flag.name for flag in flags_of(parts))),
        "outcome": sums.outcome if sums else None,
        "parts_ms": per(sums.parts_ns if sums else None, MILLISECOND),
        "profiled_run_ms": per(parts.window_ns, MILLISECOND),
        "plain_run_ms": per(parts.plain_ns, MILLISECOND),
        "measured_latency_ms": per(measured, MILLISECOND),
        "parts_over_plain": sums.ratio if sums else None,
        "corrected_parts_over_plain": sums.corrected if sums else None,
        "repeats": len(parts.ratios) or None,
        "repeats_spread": spread(parts.ratios),
        "profiling_overhead_share": sums.overhead if sums else None,
        "launch_gap_share": gaps.share if gaps else None,
        "launch_gap_share_of": gaps.of if gaps else None,
        "tokenising_ms": per(parts.tokenising.time_ns if parts.tokenising else None, MILLISECOND),
        "reasons": "; ".join(sums.reasons) if sums else None,
        "notes": "; ".join(parts.notes),
    }


def profile_groups(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each group of layers of each case; the shares of a case add up to 1."""
    return [
        about(summary, one.row, {"group": group, **_spent(spent, one.layers)})
        for one in found
        for group, spent in by_group(one.layers).items()
    ]


def side_by_side_groups(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each group and backend of cases that differ in their backend alone."""
    return _beside(summary, found, "group", [one.groups for one in alike(found)])


def side_by_side_modules(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """The same for each module that the backends can tell apart."""
    return _beside(summary, found, "module", [one.modules for one in alike(found) if one.modules])


def _beside(summary: Summary, found: Sequence[Profiled], what: str, compared: Sequence[SideBySide]) -> list[Line]:
    """what: header of the lines' names. Gains are those of each backend over the slowest one."""
    rows = {one.row.case_id: one.row for one in found}
    lines = []
    for beside in compared:
        for line in beside.lines:
            slowest_ns = line.times_ns[-1] or 0
            for column, spent in zip(beside.columns, line.times_ns, strict=True):
                figures: Line = {
                    what: line.name,
                    "modules": " ".join(line.modules),
                    "self_ms": per(spent, MILLISECOND),
                    "gain_ms": per(slowest_ns - (spent or 0), MILLISECOND),
                    "gain_over": beside.slowest.case_id,
                }
                lines.append(about(summary, rows[column.case_id], figures))
    return lines


def profile_layers(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each layer of each case, in the order in which its profiler told them."""
    return [about(summary, one.row, _layer(layer, one.layers)) for one in found for layer in one.layers]


def _layer(layer: LayerRow, layers: Sequence[LayerRow]) -> Line:
    return {
        "layer": layer.name,
        "kind": layer.kind,
        "group": layer.group,
        "depth": layer.depth,
        "parent": layer.parent,
        "calls": layer.calls,
        **_spent(layer.self_ns, layers),
        "total_ms": per(layer.total_ns, MILLISECOND),
        "in_stream_ms": per(layer.stream_ns, MILLISECOND),
        "flops": layer.flops,
        "parameters": layer.parameters,
        "output_shapes": " ".join("x".join(map(str, shape)) or "1" for shape in layer.output_shapes),
        "output_bytes": layer.output_bytes,
        "fused_from": " ".join(layer.members),
    }


def profile_operators(summary: Summary, found: Sequence[Profiled]) -> list[Line]:
    """A line for each operator or kernel of each case."""
    return [
        about(summary, one.row, _operator(operator))
        for one in found
        for operator in (one.parts.operators if one.parts else ())
    ]


def _operator(operator: OperatorRow) -> Line:
    return {
        "operator": operator.name,
        "input_shapes": operator.shapes,
        "calls": operator.calls,
        "self_cpu_ms": per(operator.self_cpu_ns, MILLISECOND),
        "self_device_ms": per(operator.self_device_ns, MILLISECOND),
    }


def _spent(self_ns: int | None, layers: Sequence[LayerRow]) -> Line:
    whole = total(layers)
    share = None if self_ns is None or not whole else self_ns / whole
    return {"self_ms": per(self_ns, MILLISECOND), "self_share": share}


def _models(found: Iterable[Profiled], by_length: bool = False) -> list[tuple[str, ModelProfile]]:
    """(weights, profile) of each model once; by_length: of each of its sequence lengths."""
    models: dict[tuple[str, int | None], tuple[str, ModelProfile]] = {}
    for one in found:
        length = one.model.sequence_length if by_length else None
        models.setdefault((one.model.model, length), (one.row.weights, one.model))
    return list(models.values())
