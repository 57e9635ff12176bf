"""The report's section "Profile": the cost of models, and their time by parts, side by side (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.aggregation.flags import RANKED
from harness.core.schemas import Summary
from harness.core.schemas.profile_record import ModelProfile, PartsProfile
from harness.profiling.grades import flags_of, grade_of, spread
from harness.profiling.launch_gaps import idle_share, without_operator
from harness.profiling.load_profiles import Profiled
from harness.profiling.reconcile import are_kernels, reconcile
from harness.reporting import units
from harness.reporting.labels import Line, about, per
from harness.reporting.table import Block, Column, Table, filled, titled, words
from harness.reporting.tables.layers_table import groups_table, mark
from harness.reporting.tables.model_costs_table import model_tables
from harness.reporting.units import MILLISECOND


def profile_section(
    profiles: Sequence[ModelProfile], parts: Mapping[str, PartsProfile], folder: str, compared: Sequence[Block] = ()
) -> list[Block]:
    """The whole section; empty where nothing was profiled.

    parts: by case id, for the cases that have them; folder: of the profiles, relative to the report; compared: the
    sections that compare backends side by side.
    """
    links = {found.case_id: _files(found, parts.get(found.case_id), folder) for found in profiles}
    shapes: dict[tuple[str, int | None, int], list[ModelProfile]] = {}
    for profile in profiles:
        if profile.case_id in parts:
            shapes.setdefault((profile.model, profile.sequence_length, profile.batch_size), []).append(profile)
    alone = [
        block
        for group in shapes.values()
        # Cases that differ only in the backend are already compared side by side, except profiles that show nothing.
        if len({found.backend for found in group}) == 1
        or len({found.precision for found in group}) > 1
        or any(mark(parts[found.case_id]) for found in group)
        for block in _shape(group, {_name(found): parts[found.case_id] for found in group})
    ]
    trust = trust_table(profiles, parts)
    return [*model_tables(profiles, links), *([trust] if trust else []), *compared, *alone]


def trust_table(
    profiles: Sequence[ModelProfile], parts: Mapping[str, PartsProfile]
) -> Table[tuple[ModelProfile, PartsProfile]] | None:
    """How far each profile can be trusted, and the flags of grade C; None where no profile has parts.

    parts: by case id.
    """
    with_parts = [(profile, parts[profile.case_id]) for profile in profiles if profile.case_id in parts]
    if not with_parts:
        return None
    with_length = any(found.sequence_length for found, _ in with_parts)
    columns = [column for column in _TRUST if with_length or column.header != "seq"]
    gaps = filled([_GAPS], with_parts)
    why = [
        f"- `{found.case_id}`: " + " ".join(f"{flag.name}: {flag.detail}. {flag.remedy}" for flag in flags_of(of))
        for found, of in with_parts
        if grade_of(of) not in RANKED
    ]
    how = (
        "Layers and operators of each case, by its own profiler beside a monitor, in fresh processes until two sums "
        "agree. Parts / plain: their sum over the latency of the same process without its profiler. Explained: with "
        "what was measured beside them it comes to the figure there. Of grade C and of an unexplained sum nothing is "
        "concluded."
    )
    if gaps:
        how += (
            " No kernel or operator: on a GPU the share of the latency in which none ran; on a CPU of traced passes, "
            "which the profiler stretches."
        )
    return Table([*columns, *gaps], with_parts, how, "\n".join(why))


def _backend(profile: ModelProfile) -> str:
    return profile.backend if profile.setting == "default" else f"{profile.backend} {profile.setting}"


def _ratio(parts: PartsProfile) -> str:
    found = reconcile(parts, are_kernels(parts))
    return f"{found.ratio:.2f}" if found else units.ABSENT


def _outcome(parts: PartsProfile) -> str:
    found = reconcile(parts, are_kernels(parts))
    if found is None:
        return units.ABSENT
    return f"explained, {found.corrected:.2f}" if found.outcome == "explained" else found.outcome


def _without(found: ModelProfile, parts: PartsProfile) -> str:
    """The share of time in which nothing computed: on a GPU of the latency, on a CPU of the traced passes."""
    gaps = idle_share(parts, found.achieved.latency_ns)
    if gaps is not None:
        return units.percent(gaps.share)
    return units.percent(None if parts.operator_gaps is None else without_operator(parts.operator_gaps))


_TRUST: Sequence[Column[tuple[ModelProfile, PartsProfile]]] = (
    words("model", lambda row: row[0].model),
    words("backend", lambda row: _backend(row[0])),
    words("precision", lambda row: row[0].precision),
    Column("batch", lambda row: str(row[0].batch_size)),
    Column("seq", lambda row: str(row[0].sequence_length or units.ABSENT)),
    words("grade", lambda row: " ".join([grade_of(row[1]), *dict.fromkeys(flag.name for flag in flags_of(row[1]))])),
    Column("parts / plain", lambda row: _ratio(row[1])),
    Column("sum", lambda row: _outcome(row[1])),
    Column("repeats", lambda row: str(len(row[1].ratios) or units.ABSENT)),
    Column("spread", lambda row: units.percent(spread(row[1].ratios))),
)
_GAPS: Column[tuple[ModelProfile, PartsProfile]] = Column("no kernel or operator", lambda row: _without(*row))


def _shape(group: Sequence[ModelProfile], named: Mapping[str, PartsProfile]) -> list[Block]:
    """Groups of layers of one model at one shape, a column per backend and precision."""
    groups = groups_table(named)
    if groups is None:
        return []
    first = group[0]
    length = f", sequence length {first.sequence_length}" if first.sequence_length else ""
    title = f"Where the time of {first.model} goes at batch {first.batch_size}{length}"
    how = "By each backend's own profiler, which costs time itself."
    if any(map(mark, named.values())):
        how += " Nothing is concluded from the times of marked columns; each case's `parts.md` says why."
    return titled(title, how, groups, level=3)


def _name(profile: ModelProfile) -> str:
    way = "" if profile.setting == "default" else f" {profile.setting}"
    return f"{profile.backend} {profile.precision}{way}"


def _files(profile: ModelProfile, parts: PartsProfile | None, folder: str) -> list[str]:
    names = ["model.json", *profile.memory_files, *(["parts.md", *parts.traces] if parts else [])]
    return [f"{folder}/{profile.case_id}/{name}" for name in names]


def sum_lines(summary: Summary, cases: Sequence[Profiled]) -> list[Line]:
    """A line for each case with parts: whether they add up to the latency, and explanations where they do not."""
    return [about(summary, one.row, _sums(one, one.parts)) for one in cases if one.parts]


def _sums(profiled: Profiled, parts: PartsProfile) -> Line:
    measured = profiled.model.achieved.latency_ns
    sums = reconcile(parts, profiled.row.device == "cuda", None if measured is None else round(measured))
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
        "without_operator_share": without_operator(parts.operator_gaps) if parts.operator_gaps else None,
        "tokenising_ms": per(parts.tokenising.time_ns if parts.tokenising else None, MILLISECOND),
        "reasons": "; ".join(sums.reasons) if sums else None,
        "notes": "; ".join(parts.notes),
    }
