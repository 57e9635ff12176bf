"""TensorBoard opens the folder of profiles: started as a user starts it, and asked over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from harness.core.layout import Results
from harness.core.schemas.profile_record import LayerRow, PartsProfile
from harness.processes.profile_launcher import write_events
from tests.fixtures.stages import until
from tests.synthetic_results import RESNET, case_of
from tests.synthetic_roof import profile

pytest.importorskip("tensorboard", reason="TensorBoard is not installed; it is in the dev extra")
pytest.importorskip("torch_tb_profiler", reason="torch-tb-profiler is not installed; it is in the dev extra")
torch = pytest.importorskip("torch")

Ask = Callable[..., Any]
MODEL = profile(case_of(RESNET, "torch-eager", "fp32", 1)).model_copy(update={"created_at": "2026-01-02T03:04:05Z"})
LAYER = LayerRow(name="fc", kind="Linear", self_ns=1000, total_ns=1000)
PARTS = PartsProfile(layers=(LAYER,), operators=(), traces=(), window_ns=3_000_000, plain_ns=2_000_000)
CASE = MODEL.case_id
_ON_LOOPBACK = ("--host", "127.0.0.1", "--port", "0", "--load_fast", "false")
"""On a free port; not by the fast reader, which no plugin works with."""


def backend() -> Any:
    """What torch.profiler watches."""
    module = torch.nn.Linear(4, 4)
    run = SimpleNamespace(on_gpu=False, inputs=1, alone=lambda passes: passes)
    run.select, run.synchronize = lambda _index: None, lambda: None
    run.infer = lambda: module(torch.ones(1, 4))
    return run


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Answers of a TensorBoard that has read one profile: ask(path, …query)."""
    from harness.backends.torch.profile_operators import operators

    root = tmp_path_factory.mktemp("tensorboard")
    results = Results(root / "results")
    write_events(results, MODEL, PARTS, "| layer |\n|-|\n| fc |")
    operators(backend(), results.profile(CASE), 2)
    log = root / "log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", "--logdir", str(results.profile(CASE).parent), *_ON_LOOPBACK],
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        assert until(lambda: _address(log) or process.poll() is not None, guard_s=600)
        address = _address(log)
        assert address, log.read_text()

        def answer(path: str, **query: str) -> Any:
            with urlopen(f"{address}data/{path}?{urlencode(query)}", timeout=900) as response:  # noqa: S310 - loopback
                return json.load(response)

        yield answer
    finally:
        # The profiler's plugin reads in a process of its own, which would outlive TensorBoard.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _address(log: Path) -> str:
    result = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())
    return result[0] if result else ""


def test_the_profiler_plugin_finds_the_trace(ask: Ask) -> None:
    assert "pytorch_profiler" in ask("plugins_listing")
    assert until(lambda: ask("plugin/pytorch_profiler/runs")["runs"] == [CASE], guard_s=600)
    assert ask("plugin/pytorch_profiler/workers", run=CASE, view="Operator") == ["operators"]


def test_figures_are_among_the_scalars(ask: Ask) -> None:
    assert until(lambda: CASE in ask("plugin/scalars/tags"), guard_s=600)
    tags = ask("plugin/scalars/tags")[CASE]
    assert {"latency/beside_the_profiler_ms", "latency/under_the_profiler_ms", "cost/gflop"} <= set(tags)
    assert "memory/allocated_mib" not in tags  # not known, so not zero
    ((_, step, value),) = ask("plugin/scalars/scalars", run=CASE, tag="latency/under_the_profiler_ms")
    assert (step, value) == (0, 3)


def test_layers_are_a_histogram_and_tables_are_text(ask: Ask) -> None:
    assert until(lambda: CASE in ask("plugin/histograms/tags") and CASE in ask("plugin/text/tags"), guard_s=600)
    assert list(ask("plugin/histograms/tags")[CASE]) == ["layers/self_us"]
    (text,) = ask("plugin/text/text", run=CASE, tag="profile")
    assert "<td>fc</td>" in text["text"]


def test_the_same_profile_gives_the_same_file(tmp_path: Path) -> None:
    results = Results(tmp_path)
    write_events(results, MODEL, PARTS, "text")
    first = results.profile_events(CASE).read_bytes()
    write_events(results, MODEL, PARTS, "text")
    assert results.profile_events(CASE).read_bytes() == first
    assert [path.name for path in results.profile(CASE).iterdir()] == ["events.out.tfevents.profile"]
