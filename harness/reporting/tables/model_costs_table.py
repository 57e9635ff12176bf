"""Tables of the cost of models and the performance that rows reach, with links to the profiles (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.core.schemas import Precision, Summary
from harness.core.schemas.profile_record import FileSize, ModelProfile, OnnxCount
from harness.profiling.load_profiles import Profiled
from harness.reporting import units
from harness.reporting.labels import Line, about, per, where
from harness.reporting.table import Block, Column, Table, filled, words
from harness.reporting.units import ABSENT, MILLISECOND
from harness.reporting.writers.markdown import escape


def progress_line(profile: ModelProfile) -> str:
    """One case in one line, for the terminal."""
    cost = f"{_millions(profile.parameters)} M parameters, {_work(profile.macs, 1e9, profile, 4)} GMAC a sample"
    return (
        f"{profile.case_id}: {cost}, at most {units.in_mib(profile.activation_measured_bytes)} MiB allocated, "
        f"{units.in_mib(profile.activation_alone_bytes)} of activations alone, "
        f"{units.in_mib(profile.activation_estimated_bytes)} estimated."
    )


def model_tables(profiles: Sequence[ModelProfile], links: Mapping[str, Sequence[str]]) -> list[Block]:
    """Models, their files, and the traffic, memory and performance of each case; empty where nothing was profiled.

    links: files of each case by case id, relative to the report.
    """
    if not profiles:
        return []
    profile: Column[ModelProfile] = words("profile", lambda found: _links(links.get(found.case_id, ())))
    models = list({(found.model, found.sequence_length): found for found in profiles}.values())
    blocks: list[Block | None] = [
        f"Convention: {profiles[0].convention}. A sample is one image, sequence or input. GMAC by ONNX: a second "
        "count, from the shapes of the exported graph.",
        Table(filled(_MODEL, models), models),
        "\n".join(f"- {escape(found.model)}: {_by_type(found)}" for found in _once(models) if found.parameters_by_type),
        _files_table(_once(models)),
        "Figures of a batch. Latency, throughput and FLOP/s are those of the case's row above; memory and profiles "
        "come from passes of their own. MiB at most: all that a pass allocates beside weights and inputs, with what "
        "operators use inside themselves; activations: without that, as the estimate is.",
        Table([*filled(_CASE, profiles), *filled([profile], profiles)], profiles),
        "\n".join(f"- {note}" for note in _notes(profiles)),
    ]
    return [block for block in blocks if block]


def _length(profile: ModelProfile) -> str:
    return str(profile.sequence_length or ABSENT)


def _giga(number: float | None) -> str:
    return units.significant(None if number is None else number / 1e9, digits=4)


def _work(number: float | None, unit: float, profile: ModelProfile, digits: int = 3) -> str:
    """A figure based on the counted products: a lower bound where some operators were not counted, absent where only
    these have products."""
    if profile.uncounted and not number:
        return ABSENT
    text = units.significant(_per(number, unit), digits=digits)
    return f"at least {text}" if profile.uncounted else text


def _millions(number: float | None) -> str:
    return units.significant(None if number is None else number / 1e6)


def _best_share(profile: ModelProfile) -> str:
    share = profile.achieved.peak_share
    return f"at least {units.percent(share)}" if profile.uncounted and share else units.percent(share or None)


def _by_onnx(count: OnnxCount | None) -> str:
    if count is None or (count.uncounted and not count.macs):
        return ABSENT
    return f"at least {_giga(count.macs)}" if count.uncounted else _giga(count.macs)


_MODEL: Sequence[Column[ModelProfile]] = (
    words("model", lambda found: found.model),
    Column("seq", _length),
    Column("M parameters", lambda found: _millions(found.parameters)),
    Column("trainable", lambda found: _millions(found.trainable_parameters)),
    Column("GMAC a sample", lambda found: _work(found.macs, 1e9, found, 4)),
    Column("GFLOP a sample", lambda found: _work(found.flops, 1e9, found, 4)),
    Column("GMAC by ONNX", lambda found: _by_onnx(found.onnx_count)),
    Column("MiB in fp32", lambda found: units.in_mib(found.weight_bytes.get("fp32"))),
    Column("in fp16, bf16", lambda found: units.in_mib(found.weight_bytes.get("fp16"))),
)

_CASE: Sequence[Column[ModelProfile]] = (
    words("model", lambda found: found.model),
    words("backend", lambda found: found.backend),
    words("precision", lambda found: found.precision),
    Column("batch", lambda found: str(found.batch_size)),
    Column("seq", _length),
    Column("GFLOP", lambda found: _work(found.flops_per_batch, 1e9, found, 4)),
    Column("MB at least", lambda found: _millions(found.least_bytes)),
    Column("FLOP a byte", lambda found: _work(found.flops_per_byte, 1, found)),
    Column("MiB at most", lambda found: units.in_mib(found.activation_measured_bytes)),
    Column("activations MiB", lambda found: units.in_mib(found.activation_alone_bytes)),
    Column("estimated", lambda found: units.in_mib(found.activation_estimated_bytes)),
    Column("latency ms", lambda found: units.significant(_per(found.achieved.latency_ns, 1e6))),
    Column("GFLOP/s", lambda found: _work(found.achieved.flops_per_s, 1e9, found)),
    Column("of the best", _best_share),
    Column("samples/s", lambda found: units.significant(found.achieved.items_per_s)),
    Column("tokens/s", lambda found: units.significant(found.achieved.tokens_per_s)),
)


def _per(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _once(models: Sequence[ModelProfile]) -> list[ModelProfile]:
    """One profile per model, whatever its sequence length."""
    return list({model.model: model for model in models}.values())


def _by_type(profile: ModelProfile) -> str:
    return (
        ", ".join(f"{escape(kind)} {number:,}" for kind, number in profile.parameters_by_type.items()) + " parameters"
    )


def _files_table(models: Sequence[ModelProfile]) -> Table[tuple[str, FileSize]] | None:
    rows = [(model.model, file) for model in models for file in model.files]
    return Table(_FILE, rows) if rows else None


_FILE: Sequence[Column[tuple[str, FileSize]]] = (
    words("model", lambda row: row[0]),
    words("on disk", lambda row: f"{row[1].kind} {row[1].name}"),
    words("file", lambda row: f"`{row[1].path}`"),
    Column("MiB", lambda row: units.in_mib(row[1].size_bytes)),
)


def _links(paths: Sequence[str]) -> str:
    return " ".join(f"[{escape(path.rpartition('/')[2])}]({path})" for path in paths) or ABSENT


def _notes(profiles: Sequence[ModelProfile]) -> list[str]:
    """Missing or doubtful figures, each once with the cases that it concerns."""
    found: dict[str, dict[str, None]] = {}
    for profile in profiles:
        second = profile.onnx_count
        by_model = [*profile.count_notes, *(f"not counted: operator {name}" for name in profile.uncounted)]
        by_model += [f"not in the ONNX count: {name}" for name in (second.uncounted if second else ())]
        for note in (*by_model, f"activations, {profile.activation_bytes_by}"):
            found.setdefault(note, {})[profile.model] = None
        for note in (f"activations, {profile.activation_measured_by}", *profile.achieved.notes):
            found.setdefault(note, {})[profile.backend] = None
    return [f"{', '.join(escape(name) for name in names)}: {escape(note)}" for note, names in found.items()]


def model_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each model and sequence length: the cost of one sample, independent of the backend."""
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
        for weights, one in _models(cases, by_length=True)
    ]


_IN_MEMORY: Sequence[Precision] = ("fp32", "fp16", "bf16")


def _counted(count: OnnxCount | None) -> int | None:
    """Counted products; None instead of 0 where only uncounted operators have products."""
    return None if count is None or (count.uncounted and not count.macs) else count.macs


def parameter_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each class of module that has parameters."""
    return [
        {"model": one.model, "weights": weights, "module_type": kind, "parameters": number, **where(summary)}
        for weights, one in _models(cases)
        for kind, number in one.parameters_by_type.items()
    ]


def file_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
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
        for weights, one in _models(cases)
        for file in one.files
    ]


def case_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each case: work, traffic and memory of a batch, and the performance of its row."""
    return [about(summary, one.row, _case_line(one.model)) for one in cases]


def _case_line(profile: ModelProfile) -> Line:
    reached = profile.achieved
    return {
        "flops_per_batch": profile.flops_per_batch,
        "least_bytes_per_batch": profile.least_bytes,
        "flops_per_byte": profile.flops_per_byte,
        "pass_peak_bytes": profile.activation_measured_bytes,
        "activations_bytes": profile.activation_alone_bytes,
        "measured_by": profile.activation_measured_by,
        "activations_estimated_bytes": profile.activation_estimated_bytes,
        "estimated_by": profile.activation_bytes_by,
        "latency_median_ms": per(reached.latency_ns, MILLISECOND),
        "device_median_ms": per(reached.device_ns, MILLISECOND),
        "flops_per_s": reached.flops_per_s,
        "flops_share_of_best": reached.peak_share,
        "throughput_items_per_s": reached.items_per_s,
        "throughput_tokens_per_s": reached.tokens_per_s,
        "notes": "; ".join(reached.notes),
    }


def _models(cases: Iterable[Profiled], by_length: bool = False) -> list[tuple[str, ModelProfile]]:
    """(weights, profile) of each model once; by_length: once for each sequence length."""
    models: dict[tuple[str, int | None], tuple[str, ModelProfile]] = {}
    for one in cases:
        length = one.model.sequence_length if by_length else None
        models.setdefault((one.model.model, length), (one.row.weights, one.model))
    return list(models.values())
