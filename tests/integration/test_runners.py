"""One conformance test for all runners: a worker is killed in the second case, and nothing is lost or mixed.

The tests of Ray and submitit need these libraries (docs/fleet.md says how they were run).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from harness import dispatch
from harness.core import store
from harness.core.layout import Results
from harness.core.schemas import Fleet, Measured, Plan, Summary
from harness.planning.exports import read_exports
from harness.runners.execution import MACHINE
from harness.runners.local_runner import LocalRunner
from harness.runners.runner import Runner
from tests.fixtures.stages import TINY, Folder, processes

pytestmark = pytest.mark.stages

ROUNDS = 2
SECOND = 2
"""Batch size of the case whose worker is killed."""


def measuring(batch_size: int) -> psutil.Process | None:
    """The process that measures the case of a batch size in a unit, if there is one now."""
    for process in processes():
        with suppress(psutil.Error, OSError, ValueError, IndexError):
            words = process.cmdline()
            if words[1:3] != ["-m", "harness.run"] or "inferometer-unit-" not in words[words.index("--results") + 1]:
                continue
            plan = store.load(Results(Path(words[words.index("--results") + 1])).plan, Plan, "")
            if [case.batch_size for case in plan.cases] == [batch_size]:
                return process
    return None


@contextmanager
def killing(kill: Callable[[psutil.Process], None]) -> Iterator[list[int]]:
    """Call `kill` once, with the process that measures the second case, as soon as there is one."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set() and not killed:
            result = measuring(SECOND)
            if result is not None:
                killed.append(result.pid)
                kill(result)
            time.sleep(0.05)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def kill_worker(process: psutil.Process) -> None:
    """Kill the worker: above the process that measures there is a guard, and above that the worker."""
    guard = process.parent()
    worker = guard.parent() if guard else None
    assert worker is not None
    worker.kill()


def conforms(
    folder: Folder, start: Callable[[], Runner], kill: Callable[[psutil.Process], None], cases: int = 5
) -> Fleet:
    sizes = list(range(1, cases + 1))
    plan = folder.plan({"backends": ["noop"], "batch_sizes": sizes}, models=(TINY,), rounds=ROUNDS)
    results, models = folder.results, folder.models
    with killing(kill) as killed:
        fleet = dispatch.dispatch(plan, read_exports(plan, results, models), results, models, start)
    dispatch.write_report(plan, fleet, results, models)
    assert len(killed) == 1
    assert len(fleet.units) == cases
    # All are accounted for, one with two attempts.
    assert [len(unit.attempts) for unit in fleet.units] == [2 if size == SECOND else 1 for size in sizes]
    lost, again = fleet.units[1].attempts
    assert (lost.outcome, lost.machine) == ("lost", None)
    assert lost.reason
    assert again.outcome == "complete"
    owners: dict[str, set[str]] = {}
    for place in sorted((results.root / "machines").iterdir()):
        machine = Results(place)
        for path in machine.raw.glob("*/*.json"):
            if path.stem.isdecimal():
                owners.setdefault(path.parent.name, set()).add(place.name)
                assert isinstance(store.load_raw(path), Measured)
        rows = store.load(machine.summary, Summary, "").rows
        assert all(row.status == "measured" for row in rows)
        assert machine.report.is_file()
    # No row has two machines, and every case has one.
    assert owners == {case.case_id: {unit.machine} for case, unit in zip(plan.cases, fleet.units, strict=True)}
    text = results.fleet_report.read_text()
    assert f"{cases} complete" in text
    assert "lost" in text
    return fleet


def test_the_local_runner_conforms(folder: Folder) -> None:
    fleet = conforms(folder, LocalRunner, kill_worker, cases=3)
    assert "SIGKILL" in str(fleet.units[1].attempts[0].reason)
    # What is complete is not measured again.
    plan = store.load(folder.results.plan, Plan, "")
    exports = read_exports(plan, folder.results, folder.models)

    def never() -> Runner:
        raise AssertionError("nothing is left to run")

    assert dispatch.dispatch(plan, exports, folder.results, folder.models, never).units == fleet.units


@pytest.mark.slow
def test_the_ray_runner_conforms_when_a_node_is_removed(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    from harness.runners.ray_runner import RayRunner

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        usual = {"num_cpus": 1, "resources": {"host_slot": 1}, "object_store_memory": 80_000_000}
        nodes = {name: cluster.add_node(**usual, env_vars={MACHINE: name}) for name in ("one", "two", "three")}
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        cluster.wait_for_nodes()

        def remove(process: psutil.Process) -> None:
            cluster.remove_node(nodes[process.environ()[MACHINE]], allow_graceful=False)

        fleet = conforms(folder, lambda: RayRunner(""), remove)
        assert {unit.machine for unit in fleet.units} <= set(nodes)
        assert len({unit.machine for unit in fleet.units}) == 2
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.slow
def test_submitit_conforms_with_one_unit_at_a_time(folder: Folder) -> None:
    pytest.importorskip("submitit")
    from harness.runners.slurm_runner import SlurmRunner

    conforms(folder, lambda: SlurmRunner(folder.results.jobs, cluster="local"), kill_worker)


@pytest.mark.slow
@pytest.mark.skipif("INFEROMETER_SLURM" not in os.environ, reason="needs a Slurm: INFEROMETER_SLURM=1")
def test_slurm_conforms(folder: Folder) -> None:
    from harness.runners.slurm_runner import SlurmRunner

    conforms(folder, lambda: SlurmRunner(folder.results.jobs), kill_worker)
