"""Profiles as results: of a whole configuration, on a GPU, of some layers, of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.api.results import Benchmark, Result
from harness.api.runs import CaseProfile
from harness.core.errors import UnavailableError, UsageError
from harness.core.schemas import GpuUsage, Roofline, Row
from harness.core.schemas.profile_record import LayerRow, ModelProfile, OperatorRow, PartsProfile
from harness.core.schemas.profile_record import MemoryTimeline as Timeline
from harness.core.text import short_names
from harness.profiling.launch_gaps import idle_share
from harness.profiling.layers import (
    LayerChoice,
    chosen_layers,
    near_names,
    total_ns,
    unmatched_words,
)
from harness.profiling.reconcile import Reconciliation, reconcile
from harness.reporting.charts.profile_charts import allocations
from harness.reporting.table import DocumentBlock
from harness.reporting.tables.machine_load_table import machine_load_table
from harness.reporting.tables.profile_tables import layers_block, memory_blocks, model_cost_tables, profile_blocks
from harness.reporting.tables.roofline_table import roofline_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Profile(Benchmark):
    """One configuration in full: its row, the cost of its model, and its time by parts.

    parts: None for a backend without a profiler.
    """

    model: ModelProfile
    parts: PartsProfile | None

    @property
    def row(self) -> Row:
        """The measured row: latency, throughput, grade."""
        return self.rows[0]

    @property
    def latency_ms(self) -> float | None:
        """Median of the process medians, ms per batch; None in a mode without latencies."""
        return self.row.latency_ns.median / 1e6 if self.row.latency_ns else None

    @property
    def roofline(self) -> Roofline | None:
        """The row against the measured limits of its device; None where there are none."""
        return self.row.roofline

    @property
    def layers(self) -> tuple[LayerRow, ...]:
        """Modules or graph nodes with their times; empty where the backend exposes none."""
        return self.parts.layers if self.parts else ()

    @property
    def operators(self) -> tuple[OperatorRow, ...]:
        """Operators and kernels, the longest first; empty where the backend exposes none."""
        return self.parts.operators if self.parts else ()

    @property
    def reconciliation(self) -> Reconciliation | None:
        """How the sum of the parts compares with the latency; None without parts."""
        return reconcile(self.parts, self.row.device == "cuda", self._latency_ns()) if self.parts else None

    def document(self) -> Any:
        """The summary, the cost of the model and the parts."""
        parts = self.parts.model_dump(mode="json") if self.parts else None
        return {"summary": super().document(), "model": self.model.model_dump(mode="json"), "parts": parts}

    def blocks(self) -> list[DocumentBlock]:
        """The row, the roofline, the cost of the model, and the parts."""
        parts = profile_blocks(self.parts, self.row.device == "cuda", self._latency_ns()) if self.parts else []
        roofline = roofline_table(self.rows, self.summary.roof)
        costs = model_cost_tables(_with_short_names([self.model]), {})
        return [*super().blocks(), *([roofline] if roofline else []), *costs, *parts]

    def __repr__(self) -> str:
        return self.markdown()

    def _latency_ns(self) -> int | None:
        return round(self.row.latency_ns.median) if self.row.latency_ns else None


@dataclass(frozen=True, repr=False)
class GpuProfile(Profile):
    """A profile on a GPU, with the state of the GPU while timing."""

    @property
    def usage(self) -> GpuUsage | None:
        """Clocks, power, temperature and memory while the row was timed; None where no monitor ran."""
        return self.row.usage.gpu if self.row.usage else None

    @property
    def idle_share(self) -> float | None:
        """Share of the latency (the plain one where none was measured) in which no kernel ran; None without kernels."""
        share = idle_share(self.parts, self._latency_ns()) if self.parts else None
        return share.share if share else None

    @property
    def kernels(self) -> tuple[OperatorRow, ...]:
        """Kernels on the GPU, the longest first."""
        rows = [row for row in self.operators if row.self_device_ns]
        return tuple(sorted(rows, key=lambda row: -(row.self_device_ns or 0)))

    def blocks(self) -> list[DocumentBlock]:
        """The profile, and the GPU's clocks and power."""
        load = machine_load_table(self.rows)
        return [*super().blocks(), *([load] if load else [])]


@dataclass(frozen=True, repr=False)
class LayerProfile(Result):
    """Some layers of one configuration. everything: all of its layers; choice: the requested layers."""

    model: ModelProfile
    everything: tuple[LayerRow, ...]
    choice: LayerChoice

    @property
    def layers(self) -> tuple[LayerRow, ...]:
        """The chosen layers; self_ns is the time of each layer alone, so these times add up."""
        return chosen_layers(self.everything, self.choice)

    @property
    def share(self) -> float:
        """Share of the model's time: 0 to 1."""
        return total_ns(self.layers) / total_ns(self.everything)

    def records(self) -> list[dict[str, Any]]:
        """A dictionary per layer: the fields of LayerRow, and its share of the model's time."""
        everything = total_ns(self.everything)
        return [{**_flat(row), "share": row.self_ns / everything} for row in self.layers]

    def blocks(self) -> list[DocumentBlock]:
        """The chosen layers, the longest first, with their shares of the model's time."""
        return [
            _subject(*_with_short_names([self.model])),
            layers_block(self.everything, len(self.everything), self.choice),
        ]


@dataclass(frozen=True, repr=False)
class MemoryProfile(Result):
    """Memory that a model holds and allocates, a profile per batch size; nothing was timed for it.

    timelines: by case id, every allocation of one pass; absent where the backend's library reports none.
    """

    models: tuple[ModelProfile, ...]
    timelines: Mapping[str, Timeline]

    def records(self) -> list[dict[str, Any]]:
        """A dictionary per batch size, in bytes: weights, and activations estimated and measured."""
        return [
            {
                "case_id": model.case_id,
                "batch_size": model.batch_size,
                "weight_bytes": model.weight_bytes.get(model.precision),
                "activation_estimated_bytes": model.activation_estimated_bytes,
                "activation_measured_bytes": model.activation_measured_bytes,
                "activation_measured_by": model.activation_measured_by,
            }
            for model in self.models
        ]

    def document(self) -> Any:
        """The models' profiles and the timelines."""
        return {
            "models": [model.model_dump(mode="json") for model in self.models],
            "timelines": {name: timeline.model_dump(mode="json") for name, timeline in self.timelines.items()},
        }

    def blocks(self) -> list[DocumentBlock]:
        """Model, files and activations by batch size; then the allocations of each pass."""
        passes = [
            block for name, timeline in self.timelines.items() for block in (f"**{name}**", *memory_blocks(timeline))
        ]
        return [*model_cost_tables(_with_short_names(self.models), {}), *passes]

    def figure(self, case_id: str | None = None) -> Figure:
        """The memory of one pass over its allocations and frees; of the first case where none is named.

        Raises UnavailableError where the backend's library reports no allocations.
        """
        name = case_id or self.models[0].case_id
        if name not in self.timelines:
            raise UnavailableError(f"{name} has no record of allocations.", "Use backend='torch-eager'.")
        from harness.reporting.charts import matplotlib_drawer  # noqa: PLC0415 - no other result needs it

        return matplotlib_drawer.draw(allocations(name, self.timelines[name]))


def _with_short_names(models: Sequence[ModelProfile]) -> list[ModelProfile]:
    """The profiles with the short names of tables."""
    short = short_names(model.model for model in models)
    return [model.model_copy(update={"model": short[model.model]}) for model in models]


def _subject(profile: ModelProfile) -> str:
    """The conditions of times under a profiler."""
    length = f", sequence {profile.sequence_length}" if profile.sequence_length else ""
    return (
        f"{profile.model} · {profile.backend} {profile.precision} · batch {profile.batch_size}{length} · "
        f"under a profiler · {profile.created_at[:10]} · settings {profile.settings_id}."
    )


def _flat(row: LayerRow) -> dict[str, Any]:
    """A row's fields; shapes as `1x64x56x56` and names joined by spaces."""
    return {
        **row.model_dump(exclude={"output_shapes", "members"}),
        "output_shapes": " ".join("x".join(map(str, shape)) for shape in row.output_shapes),
        "members": " ".join(row.members),
    }


def some_layers(
    folder: Path, profile: CaseProfile, names: Sequence[str] | str | None, depth: int | None
) -> LayerProfile:
    """The layers that match any of the names; all for None.

    Raises UsageError for a depth below 0 and for a name that matches nothing, with similar names, and UnavailableError
    where the backend exposes no layers.
    """
    if depth is not None and depth < 0:
        raise UsageError(f"depth={depth} is above the model itself.", "At least 0: the model as a whole.")
    layers = profile.parts.layers if profile.parts else ()
    if not layers:
        raise UnavailableError(f"{profile.model.backend} has no per-layer profile.", "Use backend='torch-eager'.")
    words = (names,) if isinstance(names, str) else tuple(names or ())
    for word in unmatched_words(words, [layers]):
        near = ", ".join(f"`{name}`" for name in near_names(word, [layers]))
        raise UsageError(f"No layer matches `{word}`.", f"Near: {near}. A group, a path of modules or a class.")
    return LayerProfile(folder, profile.model, layers, LayerChoice(words, depth))
