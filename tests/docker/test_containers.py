"""Jobs in the CPU image, as docs/images.md has them: users, no network, signals, too little memory, one CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from harness.core import store
from harness.core.schemas import Environment, Failed, Measured
from tests.docker.conftest import DOCKER, OTHER, SPIN, Job, make, new_job, run
from tests.fixtures.stages import QUICK, ROOT, until

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("cpu_image")]

SMOKE = {"models": ["minilm-l6"], "matrix": [{"backends": ["onnxruntime", "torch-eager"], "sequence_lengths": [32]}]}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, subprocess.CompletedProcess[str]]:
    """The whole way of a real model as another user, read-only, without a network."""
    job = new_job(tmp_path_factory.mktemp("smoke"), SMOKE)
    return job, job("bench", "--config", "config.yaml", "--json")


def test_another_user_gets_the_whole_report_and_a_line_for_programs(
    smoke: tuple[Job, subprocess.CompletedProcess[str]],
) -> None:
    job, done = smoke
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["exit_code"] == 0
    assert said["rows"] == {"measured": 2}
    assert "minilm-l6" in said["fastest"]
    assert job.results.report.is_file()
    assert {record.status for record in job.records().values()} == {"measured"}


def test_its_files_belong_to_the_user_and_are_readable_by_all(
    smoke: tuple[Job, subprocess.CompletedProcess[str]],
) -> None:
    job, _ = smoke
    files = [path for path in job.results.root.rglob("*") if path.is_file()]
    assert files
    assert {path.stat().st_uid for path in files} == {OTHER}
    assert all(path.stat().st_mode & 0o044 for path in files if not path.name.endswith("lock"))


def test_too_little_memory_is_a_failed_row_or_a_clear_exit(
    smoke: tuple[Job, subprocess.CompletedProcess[str]],
) -> None:
    job, _ = smoke
    # The inputs alone are larger than the limit. Where only the libraries are, the kernel may read their pages from the
    # disk again and again, for minutes and as fast as the disk allows, before it ends a process.
    large = {"backends": ["onnxruntime"], "sequence_lengths": [32], "batch_sizes": [1 << 18]}
    job.config.write_text(json.dumps({**SMOKE, "matrix": [large], "measurement": QUICK}))
    assert job("plan", "--config", "config.yaml").returncode == 0
    limit = ("--memory=400m", "--memory-swap=400m")
    done = job("run", flags=limit)
    failed = [record for record in job.records().values() if isinstance(record, Failed)]
    assert done.returncode in (10, 137)
    assert failed or done.returncode == 137
    assert all(record.hint for record in failed)


def test_make_runs_every_stage_in_the_image_as_the_caller(tmp_path: Path, cpu_image: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({**SPIN, "measurement": {"rounds": 1, "max_s": 0.1}}))
    place = (f"RESULTS={tmp_path}/results", f"MODELS_DIR={tmp_path}/models", f"CONFIG={config}")
    done = make("bench", "WHERE=docker", f"IMAGE={cpu_image}", *place)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results/report.md").stat().st_uid == os.getuid()
    environment = _environment(tmp_path / "results/environments")
    assert environment.limits.image == cpu_image
    assert environment.limits.image_digest
    assert environment.limits.image_digest.startswith("sha256:")


def test_one_cpu_is_one_thread_and_on_record(tmp_path: Path) -> None:
    job = new_job(tmp_path, SPIN)
    done = job("bench", "--config", "config.yaml", flags=("--cpus=1",))
    assert done.returncode == 0, done.stderr
    assert [record.threads for record in job.records().values() if isinstance(record, Measured)] == [1]
    limits = _environment(job.results.environments).limits
    assert (limits.cpu_quota, limits.threads) == (1.0, 1)


@pytest.mark.slow
def test_a_run_that_was_ended_continues_from_there(tmp_path: Path) -> None:
    job = new_job(tmp_path, SPIN, rounds=6, max_s=1.0)
    assert job("plan", "--config", "config.yaml").returncode == 0
    name = f"inferometer-test-{uuid.uuid4().hex[:12]}"
    with subprocess.Popen(job.command("run", flags=("--name", name)), stdout=subprocess.DEVNULL) as container:
        assert until(lambda: len(job.records()) >= 2, 600)
        assert run([DOCKER, "kill", "--signal=TERM", name]).returncode == 0
        assert container.wait(300) == 143
    before = {path: path.stat().st_mtime_ns for path in job.records()}
    assert 2 <= len(before) < 6
    done = job("run")
    assert done.returncode == 0, done.stderr
    assert f"{len(before)} measured before are kept" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(job.records()) == 6


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_to_make_stops_the_container(number: signal.Signals, tmp_path: Path, cpu_image: str) -> None:
    # A job in the background of a script ignores SIGINT, and so would everything that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    job = new_job(tmp_path, SPIN, os.getuid(), rounds=50, max_s=1.0)
    assert job("plan", "--config", "config.yaml").returncode == 0
    name = f"inferometer-test-{uuid.uuid4().hex[:12]}"
    places = (f"RESULTS={job.results.root}", f"MODELS_DIR={job.models.root}")
    command = ["make", "run", "WHERE=docker", f"IMAGE={cpu_image}", f"RUN_FLAGS=--name={name}", *places]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True) as made:
        assert until(job.records, 600)
        os.killpg(made.pid, number)
        assert made.wait(300) != 0
    assert until(lambda: run([DOCKER, "inspect", name]).returncode != 0)
    assert 1 <= len(job.records()) < 50


@pytest.mark.slow
def test_the_engine_is_asked_for_gpus_with_cuda(tmp_path: Path, cuda_image: str) -> None:
    places = (f"RESULTS={tmp_path}/results", f"MODELS_DIR={tmp_path}/models")
    done = make("plan", "WHERE=docker", "DEVICE=cuda", f"IMAGE={cuda_image}", *places)
    # An engine without NVIDIA's toolkit refuses the flag by these words, Docker or Podman; with it there is a plan.
    words = (
        'could not select device driver "" with capabilities: [[gpu]]',
        "unresolvable CDI devices nvidia.com/gpu=all",
    )
    refused = any(word in done.stderr for word in words)
    assert refused or (done.returncode == 0 and (tmp_path / "results/plan.json").is_file())


def _environment(folder: Path) -> Environment:
    (file,) = folder.glob("*.json")
    return store.load(file, Environment, "make run")
