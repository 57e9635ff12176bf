"""The table of what the machine did: a card's columns appear where a row knows them, and nowhere else."""

from __future__ import annotations

from harness.aggregation import usage
from harness.core.schemas import BusyProcess, GpuUsage, Row, UsageSummary
from harness.reporting.tables.machine_load_table import EXPLAINED, GPU_COLUMNS, machine_load_table
from harness.reporting.writers.markdown import table_text
from tests.synthetic_results import usage_of, usage_sample
from tests.synthetic_usage import look


def watched(card: GpuUsage | None) -> UsageSummary:
    result = usage.timed_usage(usage_of("a-case", 1, [usage_sample(250_000_000)]))
    assert result is not None
    return result.model_copy(update={"gpu": card})


def row(card: GpuUsage | None) -> Row:
    return Row.model_construct(
        backend="a-backend", precision="fp16", batch_size=8, sequence_length=None, usage=watched(card)
    )


OF_A_CARD = {column.header for column in GPU_COLUMNS}


def table(*cards: GpuUsage | None) -> list[list[str]]:
    text = table_text(machine_load_table([row(card) for card in cards]))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def test_rows_on_a_cpu_have_no_columns_of_a_gpu() -> None:
    assert not set(table(None)[0]) & OF_A_CARD
    assert EXPLAINED["GPU"] not in table_text(machine_load_table([row(None)]))


def test_every_figure_of_a_gpu_is_under_its_header() -> None:
    seen = usage.gpu_usage_of([look(sm_mhz=1_740, power_w=500.0, reasons=("sw_power_cap",)), look()], 1 << 30)
    head, line, other = table(seen, None)
    cells = dict(zip(head, line, strict=True))
    assert {name: cells[name] for name in OF_A_CARD} == {
        "SM MHz": "1,740 – 1,980",
        "memory MHz": "2,619",
        "GPU °C": "50",
        "GPU W": "400 / 500",
        "GPU %": "90",
        "GPU MiB": "2,048",
        "clock held back by": "sw_power_cap 50%",
    }
    assert {dict(zip(head, other, strict=True))[name] for name in OF_A_CARD} == {"–"}
    assert EXPLAINED["GPU"] in table_text(machine_load_table([row(seen)]))


def test_a_column_that_no_row_fills_is_left_out() -> None:
    blind = usage.gpu_usage_of([look(power_w=None, memory_used_bytes=None)], None)
    assert OF_A_CARD - set(table(blind)[0]) == {"GPU W", "GPU MiB", "clock held back by"}


def test_other_programs_are_named_below_the_table_with_their_largest_share() -> None:
    def beside(percent: float) -> Row:
        single = row(None)
        assert single.usage is not None
        busy = BusyProcess(pid=12, name="`<i>make", cpu_percent=percent)
        return single.model_copy(update={"usage": single.usage.model_copy(update={"busiest": (busy,)})})

    text = table_text(machine_load_table([beside(20.0), beside(85.4)]))
    assert text.endswith("in any round: ??i?make (process 12) 85%.")
    assert "Other programs" not in table_text(machine_load_table([row(None)]))
