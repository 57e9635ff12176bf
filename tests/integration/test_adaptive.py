"""Further rounds and the monitor's witness through plan → run → aggregate → report."""

from __future__ import annotations

import pytest

from tests.fixtures.stages import Folder, two_lines

pytestmark = pytest.mark.stages

NOOP = {"backends": ["noop"]}


def test_a_case_gets_rounds_until_the_limit_and_says_why_it_stopped(folder: Folder) -> None:
    config = str(folder.configure(NOOP, rounds=1, window_s=0.05, max_s=0.5, block_s=0.1, target_ci=1e-9))
    assert folder("plan", "--config", config, "--target-interval", "0.0001%", "--max-rounds", "4").returncode == 0
    assert folder("run").returncode == 0
    summary = folder.summary()
    (row,) = summary.rows
    assert row.latency_ns is not None
    # One process has no interval, so there is a second; the medians of noop may then be equal to the nanosecond.
    assert row.latency_ns.rounds > 1
    assert row.stopped == ("round limit" if row.latency_ns.rounds == 4 else "interval reached")
    assert row.usage is not None
    assert row.usage.rounds == row.latency_ns.rounds
    assert row.usage.monitor_share < 1
    assert summary.notes == ()
    assert folder.subprocess("report", "--no-charts").returncode == 0
    assert "of one CPU at most" in folder.results.report_details.read_text()


@pytest.mark.parametrize("option", [("--budget", "10"), ("--target-interval", "7"), ("--max-rounds", "0")])
def test_amounts_that_are_none_are_two_lines(folder: Folder, option: tuple[str, str]) -> None:
    done = folder("plan", "--config", str(folder.configure(NOOP)), *option)
    assert done.returncode == 2
    assert f"`{option[1]}`" in two_lines(done)[0]


@pytest.mark.slow
def test_a_budget_counts_from_the_start_of_the_command_and_the_report_names_the_command_for_the_rest(
    folder: Folder,
) -> None:
    config = str(folder.configure({"backends": ["torch-eager"]}, rounds=1, window_s=0.05, max_s=0.2))
    assert folder("plan", "--config", config, "--max-rounds", "3", "--budget", "60s").returncode == 0
    assert folder("export").returncode == 0
    # It began in 1970, so that everything was spent before; the planned round is measured whatever that took.
    assert folder("run", "--began", "0").returncode == 0
    (row,) = folder.summary().rows
    assert row.latency_ns is not None
    assert (row.latency_ns.rounds, row.stopped) == (1, "time budget")
    done = folder("report", "--no-charts", "--print")
    command = f"make bench CONFIG={config} RESULTS={folder.results.root}"
    said = f"1 of 1 row is wider than ±5%. To be surer: {command}"
    assert said in done.stdout
    assert said in folder.results.report.read_text().replace("`", "")
    assert folder.results.report_page.read_text().count("wider than ±5%")
