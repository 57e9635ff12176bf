from __future__ import annotations

from harness.core.schemas import Row
from harness.reporting.figures import ENERGY
from harness.reporting.first_page import first_page
from harness.reporting.tables.energy_table import energy_lines, energy_table
from harness.reporting.writers.markdown import table_text
from harness.reporting.writers.mlflow import case_runs
from harness.reporting.writers.prometheus import metrics_text
from tests.synthetic_cuda import cuda_summary, metered
from tests.synthetic_results import voided


def measured() -> list[Row]:
    return [row for row in cuda_summary().rows if row.latency_ns and row.model == "resnet50" and row.grade != "F"]


def test_a_row_shows_joules_a_batch_and_a_sample_and_the_power_of_the_gpu() -> None:
    row = next(row for row in measured() if row.batch_size == 8)
    text = table_text(energy_table([row], {row.case_id: metered(row)}))
    line = text.splitlines()[-1]
    assert "| 2.50 |" in " ".join(line.split())
    assert "0.312" in line
    assert "500" in line
    assert "J an image" in text
    assert "70 W idle" in text


def test_conditions_that_differ_between_rows_are_a_span() -> None:
    """The idle power of the first row was that of all: `make energy` goes on in another process."""
    first, second = measured()[:2]
    other = metered(second).model_copy(update={"idle_w": 84.3, "window_ns": 6_600_000_000})
    text = table_text(energy_table([first, second], {first.case_id: metered(first), second.case_id: other}))
    assert "70 to 84 W idle" in text
    assert " to 6.6 s a row" in text


def test_the_first_page_refers_to_energy() -> None:
    summary = cuda_summary()
    row = measured()[0]
    page = first_page(summary.model_copy(update={"energies": {row.case_id: metered(row)}}), "details.md", [])
    assert "Energy by the GPU's counter, of 1 row: in the details." in page
    assert "Energy by" not in first_page(summary.model_copy(update={"energies": {}}), "details.md", [])


def test_rows_that_were_not_metered_have_no_line_and_without_any_there_is_no_table() -> None:
    first, second = measured()[:2]
    assert table_text(energy_table([first, second], {})) == ""
    text = table_text(energy_table([first, second], {second.case_id: metered(second)}))
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 3
    assert "Without a figure yet: 1 row of this table" in text
    assert "Without a figure" not in table_text(energy_table([second], {second.case_id: metered(second)}))


def test_a_void_row_has_no_energy() -> None:
    row = voided(measured()[0].model_copy(update={"grade": "F"}))
    assert table_text(energy_table([row], {row.case_id: metered(row)})) == ""


def test_throughput_per_watt_is_in_every_format_and_unknown_below_idle_power() -> None:
    row = next(row for row in measured() if row.batch_size == 8)
    (watt,) = [figure for figure in ENERGY if figure.key == "throughput_per_watt"]
    assert watt.value(metered(row, joules=2.0)) == 4.0
    below = metered(row).model_copy(update={"joules_per_inference": -1.0, "joules_per_item": -0.125})
    assert watt.value(below) is None
    summary = cuda_summary().model_copy(update={"energies": {row.case_id: metered(row, joules=2.0)}})
    assert "| 4.00 |" in " ".join(table_text(energy_table([row], summary.energies)).split())
    assert [line["throughput_per_watt_items_per_j"] for line in energy_lines(summary)] == [4.0]
    assert "inferometer_throughput_per_watt_items_per_joule{" in metrics_text(summary).decode()
    assert [
        run.metrics["throughput_per_watt_items_per_j"] for run in case_runs(summary) if run.name == row.case_id
    ] == [4.0]
