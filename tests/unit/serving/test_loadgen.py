"""MLPerf LoadGen itself, in this process: its schedule, its percentile, its early stopping and its verdict are ours."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.serving import arrivals
from harness.serving.load_verdict import loadgen_upper_estimate, server_verdict

lg = pytest.importorskip("mlperf_loadgen", reason="mlcommons-loadgen is not installed (extra dev)")

SEED = 16159082839903944936


def loadgen_run(folder: Path, requests: int, limit_ns: int | None, work: Callable[[int], None]) -> dict[str, Any]:
    """One run of LoadGen, Server with a bound for p90, else SingleStream: the entries of its detailed log, with
    `scheduled` and `latency` in ns from its trace."""
    served = 0

    def issue(samples: list[Any]) -> None:
        nonlocal served
        for sample in samples:
            work(served)
            served += 1
            lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0)])

    settings, outputs, logs = lg.TestSettings(), lg.LogOutputSettings(), lg.LogSettings()
    settings.mode = lg.TestMode.PerformanceOnly
    settings.scenario = lg.TestScenario.Server if limit_ns else lg.TestScenario.SingleStream
    settings.server_target_qps, settings.schedule_rng_seed = 2_000, SEED
    settings.server_target_latency_ns, settings.server_target_latency_percentile = limit_ns or 1, 0.9
    settings.single_stream_expected_latency_ns = 1_000_000
    settings.min_duration_ms = 0
    settings.min_query_count = settings.max_query_count = requests
    outputs.outdir = str(folder)
    logs.log_output, logs.enable_trace = outputs, True
    under, samples = lg.ConstructSUT(issue, lambda: None), lg.ConstructQSL(64, 64, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(under, samples, settings, logs, "")
    lg.DestroyQSL(samples)
    lg.DestroySUT(under)
    lines = (folder / "mlperf_log_detail.txt").read_text().splitlines()
    results = {entry["key"]: entry["value"] for line in lines if (entry := json.loads(line.removeprefix(":::MLLOG ")))}
    trace = (folder / "mlperf_log_trace.json").read_text()
    entries = re.findall(r'"ts":([\d.]+),"args":{[^}]*"complete_ns":(\d+)', trace)
    nanoseconds = sorted((round(float(start) * 1e3), int(latency)) for start, latency in entries)
    return results | dict(zip(("scheduled", "latency"), np.array(nanoseconds).T, strict=True))


@pytest.mark.parametrize(
    ("requests", "limit_ns", "work", "valid"),
    [
        (300, 60_000_000_000, lambda _: None, True),
        (40, 60_000_000_000, lambda _: None, False),  # within the bound, but p90 needs 44 to show it
        (300, 15_000_000, lambda at: time.sleep(0.2 if at == 100 else 0), False),  # all that arrive in it are late
    ],
    ids=["valid", "too few", "stall"],
)
def test_a_server_run_has_loadgens_schedule_and_verdict(
    tmp_path: Path, requests: int, limit_ns: int, work: Callable[[int], None], valid: bool
) -> None:
    result = loadgen_run(tmp_path, requests, limit_ns, work)
    scheduled = result["scheduled"] - result["scheduled"][0]
    assert np.array_equal(scheduled, arrivals.loadgen(2_000, requests, SEED))
    ours = server_verdict(scheduled, result["latency"].astype(np.float64), 0.9, limit_ns)
    assert ours.percentile_ns == result["result_90.00_percentile_latency_ns"]
    assert ours.over == result["result_overlatency_query_count"]
    assert ours.within_bound == result["result_perf_constraints_met"]
    assert ours.early_stopping == result["early_stopping_met"]
    assert ours.valid == (result["result_validity"] == "VALID") == valid


def test_single_stream_has_loadgens_estimate(tmp_path: Path) -> None:
    result = loadgen_run(tmp_path, 200, None, lambda at: time.sleep(at % 7 / 1e5))
    assert loadgen_upper_estimate(result["latency"], 0.9) == result["early_stopping_latency_ss"]
