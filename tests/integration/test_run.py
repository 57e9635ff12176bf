"""plan → export → run → aggregate with real libraries on modules of a few numbers, and everything that can go wrong."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import run
from harness.core import lock, store
from harness.core.errors import CasesFailedError
from harness.core.layout import Models, Results
from harness.core.protocol import EVENT, Ready
from harness.core.schemas import Failed, Measured
from harness.processes import launcher, pool
from harness.processes.launcher import Worker
from harness.timing.clock import now_ns
from tests.fixtures.stages import POLLUTING, ROOT, TINY, Folder, latest_export, two_lines, until
from tests.fixtures.waiting import WAITING, install_waiting

pytestmark = pytest.mark.stages

BACKENDS = ("noop", "torch-eager", "torch-script", "torch-compile", "onnxruntime", "openvino")
CPU = set(Path("/proc/cpuinfo").read_text().split())
HAS_BF16 = bool({"avx512_bf16", "amx_bf16"} & CPU) or {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= CPU
"""Whether OpenVINO computes in bf16 here: with AVX-512 it does also without instructions of their own."""
NOOP = {"backends": ["noop"]}
ONNX = {"backends": ["onnxruntime"]}


# --- everything works ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, exports: Models) -> Folder:
    """Every backend in fp32, two in bf16, and a module that pollutes its process; two rounds."""
    folder = Folder(tmp_path_factory.mktemp("ran"), exports, {"INFEROMETER_TEST_POLLUTE": "1"})
    folder.plan(
        {"backends": BACKENDS, "models": [TINY]},
        {"backends": ["torch-eager", "openvino"], "models": [TINY], "precisions": ["bf16"]},
        {"backends": ["torch-eager"], "models": [POLLUTING]},
        models=(TINY, POLLUTING),
        rounds=2,
        threads=None,  # as many as usual: with one, OpenVINO computes both layers of the module as one, in fp32
    )
    done = folder("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert folder.orphans() == []
    return folder


def of(folder: Folder, backend: str, precision: str = "fp32") -> list[Measured]:
    """The measured rounds of one of the tiny module's cases."""
    wanted = f"tiny-4889fe-{backend}-cpu-{precision}"
    results = [record for (case, _), record in folder.records().items() if wanted in case]
    assert len(results) == 2
    assert all(isinstance(record, Measured) for record in results), results
    return [record for record in results if isinstance(record, Measured)]


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_every_backend_answers_like_the_reference(ran: Folder, backend: str) -> None:
    for record in of(ran, backend):
        for parity in (record.parity_before, record.parity_timed):
            assert parity is not None
            assert parity.nonfinite == 0
            assert parity.relative_l2 is not None
            assert parity.relative_l2 < 1e-5
        assert record.parity_before is not None
        assert record.parity_before.samples == (16 if record.round == 1 else 8)


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_every_backend_ran_where_and_how_it_was_asked(ran: Folder, backend: str) -> None:
    for record in of(ran, backend):
        assert (record.placement.device, record.placement.precision) == ("cpu", "fp32")
        assert record.placement.settings["threads"] == record.threads
        assert record.artifacts


def test_noop_claims_nothing(ran: Folder) -> None:
    for record in of(ran, "noop"):
        assert (record.parity_before, record.parity_timed) == (None, None)
        assert (record.placement.precision, record.placement.provider) == ("none", "CPython")
        assert record.cold_ns.compile is None


def test_openvino_runs_f32_unless_it_is_asked_for_bf16_and_claims_only_the_precision_that_ran(ran: Folder) -> None:
    for record in of(ran, "openvino"):
        assert "bf16" not in record.placement.dtype_census
        assert record.placement.settings["computing_layers"] == 2
    for record in of(ran, "openvino", "bf16"):
        assert (record.placement.precision == "bf16") is HAS_BF16
        assert ("bf16" in record.placement.dtype_census) is HAS_BF16


def test_torch_in_bf16_really_holds_bf16_and_differs_from_fp32(ran: Folder) -> None:
    for record in of(ran, "torch-eager", "bf16"):
        assert record.placement.precision == "bf16"
        assert list(record.placement.dtype_census) == ["torch.bfloat16"]
        assert record.parity_before is not None
        assert record.parity_before.relative_l2 is not None
        assert 1e-5 < record.parity_before.relative_l2 < 3e-2


def test_torch_compile_really_compiled_and_only_the_first_process_paid(ran: Folder) -> None:
    first, second = of(ran, "torch-compile")
    assert (first.placement.settings["graphs"], first.placement.settings["graph_breaks"]) == (1, 0)
    assert (first.cold_ns.compile_cached, second.cold_ns.compile_cached) == (False, True)
    assert first.cold_ns.compile is not None


def test_cold_costs_are_there_where_a_backend_has_them(ran: Folder) -> None:
    for backend in BACKENDS:
        compiled = [record.cold_ns.compile is not None for record in of(ran, backend)]
        assert compiled == [backend in ("torch-script", "torch-compile", "openvino")] * 2


def test_every_sample_is_kept_with_its_place(ran: Folder) -> None:
    for record in ran.records().values():
        assert isinstance(record, Measured)
        assert sum(block.iterations for block in record.blocks) == len(record.latency_ns)
        assert min(record.latency_ns) >= 0
        assert record.warmup_ns
        assert record.environment_id is not None
        assert ran.results.environment(record.environment_id).is_file()


def test_a_process_sees_nothing_of_the_one_before(ran: Folder) -> None:
    """Both rounds of `polluting` were forked from one server: had they shared anything, the second would refuse."""
    results = [record for (case, _), record in ran.records().items() if "polluting" in case]
    assert [record.status for record in results] == ["measured", "measured"]


def test_polluting_would_be_noticed_in_one_process() -> None:
    code = (
        "from tests.fixtures import models\n"
        "module, x = models.polluting(); module(x)\n"
        "try: models.polluting()\n"
        "except RuntimeError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "INFEROMETER_TEST_POLLUTE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "another case left its traces here: ['seen', 'INFEROMETER_TEST_MARK'], 7 threads\n"


def test_every_case_has_its_row(ran: Folder) -> None:
    summary = ran.summary()
    assert {row.case_id for row in summary.rows} == {case for case, _ in ran.records()}
    assert {row.status for row in summary.rows} == {"measured"}
    assert summary.notes == ()


def test_a_finished_run_measures_nothing_again(ran: Folder) -> None:
    before = ran.files()
    done = ran("run")
    assert done.returncode == 0
    assert "0 processes to run" in done.stdout
    assert ran.files() == before


def test_a_measured_case_leaves_no_log(ran: Folder) -> None:
    assert list(ran.results.raw.rglob("*.log")) == []


@pytest.mark.parametrize(
    "backend",
    [
        *("noop", "onnxruntime", "openvino"),  # torch-compile: in test_torch_cuda.py
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("torch-eager", "torch-script")),
    ],
)
def test_a_server_has_one_thread_when_it_forks(backend: str, tmp_path: Path) -> None:
    worker = Worker(backend, 2, tmp_path / "log")
    done = subprocess.run(
        worker._command, env=worker._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    event = EVENT.validate_json(done.stdout)
    assert isinstance(event, Ready)
    assert event.threads == 1


def test_a_fresh_interpreter_gives_the_same_records_as_a_fork(folder: Folder) -> None:
    plan = folder.plan({"backends": ["noop", "onnxruntime"]})
    assert folder("run", "--isolation", "spawn").returncode == 0
    assert {case for case, _ in folder.records()} == {case.case_id for case in plan.cases}
    for record in folder.records().values():
        assert isinstance(record, Measured)


@pytest.mark.slow
def test_a_case_gets_the_threads_that_its_setting_names_and_the_others_theirs(folder: Folder) -> None:
    backends = ["torch-eager", "onnxruntime", "openvino"]
    folder.plan({"backends": backends, "settings": ["default", "1-thread"]}, threads=2)
    done = folder("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "with 1 or 2 threads each" in done.stdout
    result = set()
    for (case, _), record in folder.records().items():
        assert isinstance(record, Measured)
        assert record.placement.settings["threads"] == record.threads
        result.add((case.endswith("-1-thread"), record.threads))
    assert result == {(True, 1), (False, 2)}


# --- cases that fail ----------------------------------------------------------------------------------------------


SIZES = (1, 2, 3, 4, 6, 7, 8)
Broken = tuple[Folder, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, exports: Models) -> Broken:
    """The tiny module with another fault at each batch size but that of the hang; batches 1 and 8 are well.

    Not in forks: what a crash prints depends on what was imported.
    """
    folder = Folder(tmp_path_factory.mktemp("broken"), exports, {"INFEROMETER_TEST_FAULTS": "1"})
    folder.plan({"backends": ["torch-eager"], "batch_sizes": SIZES})
    done = folder.subprocess("run")
    assert folder.orphans() == []
    return folder, done


def batch(folder: Folder, size: int) -> Measured | Failed:
    return next(record for (case, _), record in folder.records().items() if case.endswith(f"-b{size}"))


def test_failures_do_not_stop_the_run_and_end_it_with_their_code(broken: Broken) -> None:
    folder, done = broken
    assert done.returncode == 10
    error, hint = two_lines(done)
    assert error.startswith("Error: 4 ")
    assert "failed" in error
    assert "make run" in hint
    assert len(folder.records()) == len(SIZES)
    assert {size for size in SIZES if batch(folder, size).status == "measured"} == {1, 6, 8}


@pytest.mark.parametrize(
    ("size", "error", "hint", "tail"),
    [
        (2, "RuntimeError: the forward pass does not like this batch", "Full log", ("about to raise", "Traceback")),
        (3, "Crashed with signal 11", "native library", ("Segmentation fault", "models.py")),
        (4, "Killed by the system (signal 9), most likely out of memory", "smaller batch than 4", ()),
        (7, "EOFError: ", "Full log", ("Traceback",)),
    ],
)
def test_a_failed_case_has_problem_place_and_hint(
    broken: Broken, size: int, error: str, hint: str, tail: tuple[str, ...]
) -> None:
    record = batch(broken[0], size)
    assert isinstance(record, Failed)
    assert record.error.startswith(error)
    assert hint in record.hint
    assert record.phase == "first inference"
    assert all(part in record.stderr_tail for part in tail)


def test_nan_that_only_later_calls_return_is_detected_in_the_timed_run(broken: Broken) -> None:
    record = batch(broken[0], 6)
    assert isinstance(record, Measured)
    assert record.parity_before is not None
    assert record.parity_timed is not None
    assert (record.parity_before.nonfinite, record.parity_timed.nonfinite > 0) == (0, True)


def test_the_summary_reports_the_failures(broken: Broken) -> None:
    rows = {row.batch_size: row for row in broken[0].summary().rows}
    assert [rows[size].status for size in SIZES] == [
        *("measured", "failed", "failed", "failed", "measured", "failed", "measured")
    ]
    assert "does not like this batch" in (rows[2].reason or "")
    assert rows[6].grade not in ("A", "B")
    assert rows[6].flags


def test_the_next_run_tries_the_failed_ones_again_and_only_them(broken: Broken) -> None:
    folder = broken[0]
    well = {path: when for path, when in folder.files().items() if store.load_raw(path).status == "measured"}
    folder.environment.clear()
    done = folder("run")
    assert done.returncode == 0, done.stderr
    assert "4 processes to run" in done.stdout
    assert {record.status for record in folder.records().values()} == {"measured"}
    assert {path: folder.files()[path] for path in well} == well
    assert list(folder.results.raw.rglob("*.log")) == []


def test_a_case_that_hangs_ends_at_the_time_limit_with_all_that_it_started(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.plan({"backends": ["torch-eager"], "batch_sizes": [5]}, timeout_s=5000.0)
    folder.environment["INFEROMETER_TEST_FAULTS"] = "1"
    for name, value in folder.own_variables().items():
        monkeypatch.setenv(name, value)
    passed_ns = 0
    monkeypatch.setattr(launcher, "now_ns", lambda: now_ns() + passed_ns)
    entered = pool._Watcher.entered

    def entered_and_hanging(watcher: pool._Watcher, phase: str) -> None:
        nonlocal passed_ns
        entered(watcher, phase)
        if phase == "first inference":
            assert until(lambda: folder.named("sleep 600"))
            passed_ns = 5_000_000_000_000

    monkeypatch.setattr(pool._Watcher, "entered", entered_and_hanging)
    with pytest.raises(CasesFailedError, match="1 measurement failed"):
        run.stage(["--results", str(folder.results.root), "--models-dir", str(folder.models.root)])
    record = batch(folder, 5)
    assert isinstance(record, Failed)
    assert (record.phase, record.error) == ("first inference", "Ended at the time limit of 5000 s.")
    assert "measurement.timeout_s" in record.hint
    assert folder.orphans() == []


def test_a_missing_library_is_a_row_with_the_install_command(folder: Folder) -> None:
    folder.plan({"backends": ["onnxruntime", "noop"]})
    hidden = folder.root / "hidden" / "sitecustomize.py"
    hidden.parent.mkdir()
    hidden.write_text(
        "import importlib.util\n_find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'onnxruntime' else _find(name)\n"
    )
    folder.environment["PYTHONPATH"] = str(hidden.parent)
    assert folder.subprocess("run").returncode == 10
    results = {case: record for (case, _), record in folder.records().items() if isinstance(record, Failed)}
    assert len(results) == 1
    (record,) = results.values()
    assert record.error == "onnxruntime is not installed."
    assert "pip install onnxruntime" in record.hint


# --- runs that are stopped, disturbed or refused --------------------------------------------------------------------


@pytest.mark.parametrize("sent", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_run_that_was_killed_is_finished_by_the_next(folder: Folder, sent: signal.Signals) -> None:
    wait = install_waiting(folder, from_round=4)
    plan = folder.plan(WAITING, rounds=6)
    with folder.started("run") as process:
        assert until(lambda: len(folder.files()) >= 3)
        process.send_signal(sent)
        process.wait()
    assert folder.orphans() == []
    kept = folder.files()
    assert len(kept) == 3
    wait.unlink()
    assert folder("run").returncode == 0
    assert sorted(folder.records()) == [(plan.cases[0].case_id, number) for number in range(1, 7)]
    assert {path: folder.files()[path] for path in kept} == kept
    (row,) = folder.summary().rows
    assert row.latency_ns is not None
    assert row.latency_ns.rounds == 6


@pytest.mark.parametrize(
    "killed", ["run", *(pytest.param(name, marks=pytest.mark.slow) for name in ("worker", "case"))]
)
def test_a_process_that_a_case_started_in_another_session_ends_with_it(folder: Folder, killed: str) -> None:
    folder.environment["INFEROMETER_TEST_FAULTS"] = "1"
    folder.plan({"backends": ["torch-eager"], "batch_sizes": [5]})  # hangs
    with folder.started("run") as process:
        assert until(lambda: folder.named("sleep"), 600)
        (case,) = folder.named("harness.processes.worker", of_worker=True)
        victim = {"run": process.pid, "worker": case.ppid(), "case": case.pid}[killed]
        os.kill(victim, signal.SIGKILL)
        process.wait()
    assert folder.orphans() == []


@pytest.mark.parametrize(
    "killed", ["stage", *(pytest.param(name, marks=pytest.mark.slow) for name in ("group", "guard", "case"))]
)
@pytest.mark.parametrize(
    "words",
    [("export",), pytest.param(("profile_ops",), marks=pytest.mark.slow), ("run", "--isolation", "spawn")],
    ids=lambda words: words[0],
)
def test_so_it_does_in_exports_profiles_and_cases_that_were_not_forked(
    folder: Folder, tmp_path: Path, words: tuple[str, ...], killed: str
) -> None:
    if words == ("export",):
        folder.models = Models(tmp_path / "models")
        folder.plan({"backends": ["torch-eager"]}, models=("module:tests.fixtures.models:lingering",))
    else:
        folder.environment["INFEROMETER_TEST_FAULTS"] = "1"
        folder.plan({"backends": ["torch-eager"], "batch_sizes": [5]})  # hangs
    with folder.started(*words) as process:
        assert until(lambda: folder.named("sleep 600"), 120)
        case = folder.named("sleep 600")[0].parent()
        assert case is not None
        guard = case.ppid()
        assert guard not in (process.pid, os.getpid())
        if killed == "group":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            os.kill({"stage": process.pid, "guard": guard, "case": case.pid}[killed], signal.SIGKILL)
        process.wait()
    assert folder.orphans() == []


def test_so_it_does_where_an_export_comes_to_its_time_limit(folder: Folder, tmp_path: Path) -> None:
    folder.models = Models(tmp_path / "models")
    folder.plan(
        {"backends": ["torch-eager"]}, models=("module:tests.fixtures.models:lingering",), export_timeout_s=15.0
    )
    with folder.started("export") as process:
        assert until(lambda: folder.named("sleep 600"), 120)
        assert "did not end within 15 s" in process.communicate()[1]
    assert process.returncode == 8
    assert folder.orphans() == []


@pytest.mark.slow
def test_a_run_killed_while_compiling_leaves_no_compiler_behind(folder: Folder) -> None:
    folder.plan({"backends": ["torch-compile"], "batch_sizes": [3]})
    with folder.started("run") as process:
        assert until(lambda: list(folder.models.root.glob("*/*/compile-cache/*-b3/*")), 600)
        process.kill()
        process.wait()
    assert folder.orphans() == []


def test_ctrl_c_keeps_the_measured_records(folder: Folder) -> None:
    install_waiting(folder, from_round=4)
    folder.plan(WAITING, rounds=6)
    with folder.started("run") as process:
        assert until(lambda: len(folder.files()) >= 3)
        os.killpg(process.pid, signal.SIGINT)
        errors = process.communicate()[1]
    assert process.returncode == 130
    assert "Measured results are kept" in errors
    assert "Traceback" not in errors
    assert folder.orphans() == []
    assert len(folder.records()) == 3
    assert {record.status for record in folder.records().values()} == {"measured"}


def test_force_measures_again(folder: Folder) -> None:
    folder.plan(NOOP, rounds=2)
    assert folder("run").returncode == 0
    before = folder.files()
    assert folder("run", "--force").returncode == 0
    after = folder.files()
    assert list(after) == list(before)
    assert all(after[path] > before[path] for path in before)


def test_a_damaged_file_is_named_marked_and_measured_again(folder: Folder) -> None:
    folder.plan(NOOP, rounds=2)
    assert folder("run").returncode == 0
    first, second = folder.files()
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    summary = folder.summary()
    name = first.relative_to(folder.results.root).as_posix()
    assert any(note.startswith(name) and "checksum" in note for note in summary.notes)
    (row,) = summary.rows
    assert row.latency_ns is None or row.latency_ns.rounds == 1
    kept = second.stat().st_mtime_ns
    done = folder("run")
    assert done.returncode == 0
    assert f"{first} does not match its checksum. It is measured again." in done.stderr
    assert len(folder.records()) == 2
    assert second.stat().st_mtime_ns == kept


def test_a_second_run_and_a_new_plan_are_refused_while_a_run_is_active(folder: Folder) -> None:
    folder.plan(NOOP)
    plan = folder.results.plan.read_bytes()
    other = folder.configure(NOOP, rounds=2)
    with lock.exclusive(folder.results.lock):
        for done in (folder("run"), folder("plan", "--config", str(other))):
            assert done.returncode == 7
            assert f"process {os.getpid()}" in two_lines(done)[0]
    assert folder.files() == {}
    assert folder.results.plan.read_bytes() == plan


@pytest.mark.parametrize("stage", ["export", "run", "aggregate"])
def test_without_a_plan_make_plan_is_the_hint(folder: Folder, stage: str) -> None:
    done = folder(stage)
    assert done.returncode == 3
    assert two_lines(done)[1] == f"Hint:  Run `make plan {_folders(folder)}` first."


@pytest.mark.parametrize("stage", ["run", "aggregate"])
def test_without_an_export_make_export_is_the_hint(folder: Folder, stage: str) -> None:
    folder.plan(ONNX)
    folder.models = Models(folder.root / "nothing")
    done = folder(stage)
    assert done.returncode == 3
    assert two_lines(done)[1] == f"Hint:  Run `make export {_folders(folder)}` first."


def _folders(folder: Folder) -> str:
    return f"RESULTS={folder.results.root} MODELS_DIR={folder.models.root}"


def test_an_export_whose_files_changed_is_refused(folder: Folder) -> None:
    plan = folder.plan(ONNX)
    ours = Models(folder.root / "models")
    shutil.copytree(folder.models.root, ours.root)
    latest_export(ours, plan.models[0].slug)[0].onnx("fp32").write_bytes(b"something else")
    folder.models = ours
    done = folder("run")
    assert done.returncode == 4
    error, hint = two_lines(done)
    assert "model.onnx has changed since it was made" in error
    assert "make export" in hint


@pytest.mark.parametrize("what", ["results", "raw", "logs"])
def test_a_file_in_the_way_of_a_folder_is_reported(folder: Folder, what: str) -> None:
    folder.plan(NOOP)
    if what == "results":
        plan = folder.results.plan.read_bytes()
        shutil.rmtree(folder.results.root)
        folder.results.root.write_bytes(plan)
        done = folder("plan", "--config", str(folder.root / "config.yaml"))
    else:
        (folder.results.root / what).touch()
        done = folder("run")
    assert done.returncode == (2 if what == "results" else 6)
    assert str(folder.results.root) in two_lines(done)[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; run the tests as another user")
def test_a_folder_without_write_permission_is_said(folder: Folder) -> None:
    folder.plan(NOOP)
    folder.results.root.chmod(0o500)
    try:
        done = folder("run")
    finally:
        folder.results.root.chmod(0o700)
    assert done.returncode == 6
    assert "Permission denied" in two_lines(done)[0]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        done = subprocess.run(["mount", *options], check=False, capture_output=True, text=True)  # noqa: S607
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a file system may not be mounted here ({done.stderr.strip()}); run the tests as root")
    yield place
    subprocess.run(["umount", str(place)], check=True)  # noqa: S607


def test_a_full_disk_is_reported_and_measured_records_stay(folder: Folder, tiny_disk: Path) -> None:
    folder.root = tiny_disk
    folder.plan(NOOP, rounds=3, max_samples=2000)
    for number in range(100):
        try:
            (tiny_disk / f"filler-{number}").write_bytes(b"x" * 4096)
        except OSError:
            break
    (tiny_disk / "filler-0").unlink()
    (tiny_disk / "filler-1").unlink()
    done = folder("run")
    assert done.returncode == 6
    error, hint = two_lines(done)
    assert "disk is full" in error
    assert "measured results are kept" in hint
    folder.records()  # whatever was written is whole
    for filler in tiny_disk.glob("filler-*"):
        filler.unlink()
    assert folder("run").returncode in (0, 6)


def test_cuda_without_a_gpu_is_said_before_anything_runs(folder: Folder) -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        config = folder.configure(NOOP)
        done = folder("plan", "--config", str(config), "--device", "cuda")
        assert done.returncode == 5
        error, hint = two_lines(done)
        assert "DEVICE=cuda was asked for and there is no NVIDIA driver" in error
        assert "DEVICE=cpu" in hint
        assert not Results(folder.root / "results").plan.exists()
    else:
        pytest.skip("there is an NVIDIA driver here")
