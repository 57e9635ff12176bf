"""The section and the chart of memory, from a record by hand."""

from __future__ import annotations

import pytest

from harness.core.schemas.profile_record import Fragmentation, MemoryBlock, MemoryTimeline
from harness.reporting.charts import plotly_drawer
from harness.reporting.charts.matplotlib_drawer import draw, image
from harness.reporting.charts.profile_charts import allocations
from harness.reporting.tables.profile_tables import memory_blocks
from harness.reporting.writers.markdown import blocks_text

MIB = 1 << 20
BLOCK = MemoryBlock(size_bytes=9 * MIB, category="temporaries", operator="aten::conv2d", shapes="[1,512,7,7] [512]")
FOUND = MemoryTimeline(
    case_id="case",
    device="cpu",
    by="measured: somehow",
    allocations=3,
    frees=1,
    peak_bytes=60 * MIB,
    at_peak={"parameters": 44 * MIB, "inputs": 6 * MIB, "held": 0, "activations": MIB, "temporaries": 9 * MIB},
    alive_at_peak=(BLOCK,),
    pass_peak_bytes=10 * MIB,
    activations_peak_bytes=6 * MIB,
    at_ns=(0, 1_000_000, 2_000_000),
    allocated_bytes=(51 * MIB, 60 * MIB, 56 * MIB),
    temporaries_bytes=(0, 9 * MIB, 0),
    reserved_bytes=None,
    fragmentation=None,
    snapshot=None,
    notes=("held: why",),
)
ON_GPU = FOUND.model_copy(
    update={
        "reserved_bytes": (64 * MIB, 64 * MIB, 64 * MIB),
        "fragmentation": Fragmentation(
            reserved_bytes=64 * MIB,
            allocated_bytes=48 * MIB,
            unused_bytes=16 * MIB,
            unused_share=0.25,
            largest_free_bytes=10 * MIB,
            unused_at_peak_bytes=4 * MIB,
        ),
        "snapshot": "memory.pickle",
    }
)


def test_the_parts_of_the_peak_add_up() -> None:
    text = blocks_text(memory_blocks(FOUND, "memory.png"))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    assert ["temporaries", "9.00", "15.0%"] in rows
    assert ["all", "60.0", "100%"] in rows
    assert not any(row[0] == "held" for row in rows)
    assert ["aten::conv2d", "temporaries", "9.00", "[1×512×7×7] [512]"] in rows
    assert "3 allocations and 1 free; it holds at most 10.0 MiB" in text
    assert "activations alone at most 6.00 MiB" in text
    assert "- held: why" in text
    assert text.endswith("(memory.png)")


def test_activations_that_are_not_distinguished_get_no_figure() -> None:
    text = blocks_text(memory_blocks(FOUND.model_copy(update={"activations_peak_bytes": None})))
    assert "activations alone" not in text
    assert "memory.png" not in text


def test_fragmentation_and_snapshot_are_reported_where_there_are_any() -> None:
    assert "reserved" not in blocks_text(memory_blocks(FOUND))
    text = blocks_text(memory_blocks(ON_GPU))
    assert "64.0 MiB reserved and 48.0 MiB allocated: 16.0 MiB (25.0%) are unused" in text
    assert "`memory.pickle` opens in" in text


@pytest.mark.parametrize("found", [FOUND, ON_GPU], ids=["cpu", "cuda"])
def test_the_chart_shows_temporaries_the_peak_and_reserved_memory(found: MemoryTimeline) -> None:
    spec = allocations("Memory", found)
    figure = draw(spec)
    (ax,) = figure.axes
    names = [name.replace("\n", " ") for name in ax.get_legend_handles_labels()[1]]
    reserved = [] if found.reserved_bytes is None else ["reserved"]
    assert sorted(names) == sorted(["activations", "temporaries of operators", *reserved])
    assert [text.get_text() for text in ax.texts] == ["peak 10.0 MiB"]
    assert ax.get_ylim()[1] > (14 if reserved else 10)
    assert image(figure, "png").startswith(b"\x89PNG")
    (plot,) = plotly_drawer.draw(spec).plots
    assert [trace["name"].replace("\n", " ") for trace in plot.data] == names
    assert [trace.get("fill") for trace in plot.data[:2]] == ["tozeroy", "tonexty"]
    assert max(plot.data[1]["y"]) == spec.peak[1] == 10.0


def test_a_pass_without_allocations_has_no_chart() -> None:
    with pytest.raises(ValueError, match="no allocations"):
        allocations("Memory", FOUND.model_copy(update={"at_ns": ()}))
