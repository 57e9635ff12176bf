"""The stage with a GPU and a TensorRT that compute: what it builds, keeps, builds again, and says."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness import build_engine
from harness.core import store
from harness.core.errors import ExportError, UnavailableError, UsageError
from harness.core.layout import Results
from harness.core.schemas import (
    LatencyBound,
    LoadCase,
    Plan,
)
from tests.fixtures import tensorrt, tensorrt_builder
from tests.fixtures.computing_gpu import FakeGpu
from tests.fixtures.engine_folder import SAMPLES, Folder
from tests.fixtures.nvml import FakeDriver, FakeNvml

SAME = ("model", "slug", "backend", "device", "precision", "sequence_length", "weights")
STATIC, DYNAMIC = "static+graph", "dynamic+graph"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    result = FakeGpu()
    own = ctypes.CDLL(None)  # the C library, which starts and ends processes
    libraries = {"libcuda.so.1": FakeDriver(), None: own}
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libraries.get(name) or _absent(name))
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())  # type: ignore[arg-type]
    tensorrt.install(monkeypatch, result, **tensorrt_builder.names())
    return result


def _absent(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


@pytest.fixture
def folder(tmp_path: Path, gpu: FakeGpu) -> Folder:
    result = Folder(tmp_path)
    result.export()
    result.plan(("tensorrt", 8, STATIC))
    return result


def test_an_engine_is_built_checked_and_described(folder: Folder) -> None:
    folder.build()
    (record,) = folder.records()
    assert (record.tensorrt, record.gpu, record.sm, record.driver) == ("8.6.0", "A GPU", "9.0", "580.1")
    assert record.engine.path.startswith("engines/fp16-b8-")
    assert record.engine.sha256 == store.sha256_file(folder.model.root / record.engine.path)
    assert record.parity.samples >= len(SAMPLES)
    assert record.parity.relative_l2 == 0.0
    assert record.kept_fp32 == ()
    assert record.timing_cache_sha256 == store.sha256_file(folder.models.timing_cache("8.6.0", "A GPU"))


def test_only_changed_engines_are_built_again(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    made = sys.modules["tensorrt"].Builder.made
    folder.build()
    folder.build()
    assert len(made) == 1
    assert "up to date" in capsys.readouterr().out
    folder.build("--force")
    assert len(made) == 2
    (folder.model.root / folder.records()[0].engine.path).write_bytes(b"cut off")
    folder.build()
    assert len(made) == 3
    folder.export(note="other weights")
    folder.build()
    assert len(made) == 4


def test_a_new_driver_makes_every_engine_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.build()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(SystemGetDriverVersion="590.2"))  # type: ignore[arg-type]
    folder.build()
    assert [record.driver for record in folder.records()] == ["590.2"]


def test_each_setting_gets_the_engines_that_it_asks_for(folder: Folder) -> None:
    folder.plan(*(("tensorrt", batch, setting) for batch in (1, 8) for setting in (STATIC, DYNAMIC, "static")))
    folder.build()
    assert [record.engine.path.rpartition("-")[0] for record in folder.records()] == [
        "engines/fp16-b1",
        "engines/fp16-b1..8",
        "engines/fp16-b8",
    ]


def test_a_load_case_gets_an_engine_of_each_batch_size_that_it_prepares(folder: Folder) -> None:
    path = Results(folder.root).plan
    plan = store.load(path, Plan, "make plan")
    for setting, names in ((STATIC, ["b1", "b2", "b4"]), (DYNAMIC, ["b1", "b1..4", "b2", "b4"])):
        load = LoadCase(
            load_id="load",
            **{name: getattr(plan.cases[0], name) for name in SAME},
            setting=setting,
            scenario="server",
            bound=LatencyBound(quantile=0.99, limit_ns=1_000_000),
            max_batch=4,
        )
        store.save(path, plan.model_copy(update={"cases": (), "loads": (load,)}))
        folder.build()
        assert sorted(record.engine.path.split("-")[1] for record in folder.records()) == names


def test_a_plan_of_a_single_batch_can_have_both_profiles(folder: Folder) -> None:
    folder.plan(("tensorrt", 8, STATIC), ("tensorrt", 8, DYNAMIC))
    folder.build()
    assert [record.request.dynamic for record in folder.records()].count(True) == 1
    assert len(folder.records()) == 2


def test_where_fp16_is_far_off_sensitive_layers_are_kept_in_fp32(folder: Folder) -> None:
    folder.export(fp16_scale=2.1, network=[["norm", "NORMALIZATION"], ["conv", "CONVOLUTION"]])
    folder.build()
    (record,) = folder.records()
    assert record.kept_fp32 == ("norm",)
    assert record.parity.relative_l2 == 0.0


def test_the_time_of_an_engine_is_that_of_all_its_builds(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    took = iter((100.0, 13.5))
    monkeypatch.setattr(build_engine, "_timed", lambda build: (build(), next(took)))
    folder.export(fp16_scale=2.1, network=[["norm", "NORMALIZATION"], ["conv", "CONVOLUTION"]])
    folder.build()
    assert folder.records()[0].build_s == 113.5


def test_where_fp16_overflows_they_are_too(folder: Folder) -> None:
    folder.export(fp16_scale=1e39, network=[["norm", "NORMALIZATION"]])
    folder.build()
    assert folder.records()[0].kept_fp32 == ("norm",)
    assert folder.records()[0].parity.nonfinite == 0


@pytest.mark.parametrize("boundary", ["transfer", "e2e"])
def test_the_check_gives_the_engine_every_batch_at_any_planned_boundary(folder: Folder, boundary: str) -> None:
    folder.plan(("tensorrt", 4, STATIC), boundary=boundary)
    folder.build()
    (record,) = folder.records()
    assert record.parity.relative_l2 == 0.0
    assert len(sys.modules["tensorrt"].Builder.made) == 1


def test_the_list_names_the_missing_engines_and_builds_nothing(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder.root / "engines.json"
    folder.build("--only-list", "--list-file", str(path))
    assert "engine fp16-b8-" in (listed := capsys.readouterr().out)
    assert "would be built" in listed
    assert [name.startswith("fp16-b8-") for name in json.loads(path.read_text())] == [True]
    assert folder.records() == []


def test_an_engine_that_stays_far_off_is_kept_with_its_distance(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.export(scale=2.2)
    folder.build()
    (record,) = folder.records()
    assert record.parity.relative_l2 == pytest.approx(0.1, rel=1e-3)
    assert "1.0e-01 from the reference" in capsys.readouterr().out


def test_fp32_is_never_built_with_layers_kept(folder: Folder) -> None:
    folder.plan(("tensorrt", 8, STATIC), precision="fp32")
    folder.export(scale=2.2, network=[["norm", "NORMALIZATION"]])
    folder.build()
    assert len(sys.modules["tensorrt"].Builder.made) == 1
    assert folder.records()[0].kept_fp32 == ()


def test_the_timings_of_one_engine_go_to_the_next(folder: Folder) -> None:
    folder.plan(("tensorrt", 1, STATIC), ("tensorrt", 8, STATIC))
    folder.build()
    assert folder.models.timing_cache("8.6.0", "A GPU").read_bytes() == b"+kernels+kernels"


def test_an_engine_that_cannot_be_checked_does_not_keep_the_others_from_being_built(
    folder: Folder, gpu: FakeGpu
) -> None:
    folder.export(largest=4)
    folder.plan(("tensorrt", 8, STATIC), ("tensorrt", 4, STATIC))
    with pytest.raises(ExportError, match="does not take x of shape") as caught:
        folder.build()
    assert "fp16-b8" in caught.value.problem
    assert [record.engine.path.rpartition("-")[0] for record in folder.records()] == ["engines/fp16-b4"]
    assert gpu.contexts == 0  # one that is left pushed aborts the process at its end


def test_a_gpu_without_room_for_one_batch_still_builds_the_others(folder: Folder, gpu: FakeGpu) -> None:
    folder.plan(("tensorrt", 64, STATIC), ("tensorrt", 1, STATIC))
    gpu.room_bytes = 2000
    with pytest.raises(ExportError, match="Out of GPU memory at batch 64"):
        folder.build()
    assert [record.engine.path.rpartition("-")[0] for record in folder.records()] == ["engines/fp16-b1"]
    assert gpu.room_bytes == 2000


def test_a_plan_without_engines_asks_for_no_gpu(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", _absent)
    folder.plan(("torch-eager", 8, "default"))
    folder.build()
    assert folder.records() == []


def test_without_tensorrt_there_is_a_word_on_where_to_get_it(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "harness.backends.tensorrt.versions",
        "harness.backends.tensorrt.versions",
    ):  # what an earlier test imported
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delattr(name, raising=False)
    monkeypatch.setitem(sys.modules, "tensorrt", None)  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match="TensorRT cannot be imported") as caught:
        folder.build()
    assert "BACKEND_PYTHONS=tensorrt=" in caught.value.hint


def test_without_a_gpu_nothing_is_built(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", _absent)
    with pytest.raises(UnavailableError, match="DEVICE=cuda"):
        folder.build()
    assert folder.records() == []


def test_a_model_without_an_export_does_not_keep_the_engines_of_others_from_being_built(folder: Folder) -> None:
    plan = store.load(Results(folder.root).plan, Plan, "make plan")
    absent = plan.cases[0].model_copy(update={"slug": "absent", "model": "absent", "case_id": "absent"})
    models = (plan.models[0].model_copy(update={"slug": "absent", "name": "absent"}), *plan.models)
    store.save(Results(folder.root).plan, plan.model_copy(update={"models": models, "cases": (absent, *plan.cases)}))
    with pytest.raises(ExportError, match=r"absent has no engines\. .*export\.json does not exist"):
        folder.build()
    assert len(folder.records()) == 1


ROOT = Path(__file__).parents[2]
AT_ONCE = (sys.executable, "-m", "tests.fixtures.building")
"""One of several builds: a process of its own with the same fakes."""


@pytest.fixture
def several(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(build_engine, "COMMAND", AT_ONCE)
    monkeypatch.chdir(ROOT)
    (folder.root / "meeting").mkdir()
    return folder


def test_engines_are_built_at_the_same_time_and_the_timings_of_each_are_kept(
    several: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "a line of the library, written in two halves"
    several.export(meets=[str(several.root / "meeting"), 2], prints=[line] * 5)
    several.plan(("tensorrt", 1, STATIC), ("tensorrt", 8, STATIC))
    several.build("--engine-jobs", "2")
    assert [record.engine.path.rpartition("-")[0] for record in several.records()] == [
        "engines/fp16-b1",
        "engines/fp16-b8",
    ]
    cache = several.models.timing_cache("8.6.0", "A GPU").read_bytes().decode()
    builds = {path.name for path in (several.root / "meeting").iterdir()}
    assert len(builds) == 2
    assert set(cache.replace("+kernels by ", " ").split()) == builds
    shown = capsys.readouterr().out
    assert "2 engines to build, 2 at the same time" in shown
    assert shown.splitlines().count(line) == 10
    assert shown.count(": building engine fp16-b") == shown.count(" from the reference") == 2
    several.build("--engine-jobs", "2")
    assert capsys.readouterr().out.count("is up to date") == 2


def test_one_engine_that_fails_beside_others_does_not_stop_them(
    several: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    several.export(largest=4)
    several.plan(("tensorrt", 8, STATIC), ("tensorrt", 4, STATIC), ("tensorrt", 2, STATIC))
    with pytest.raises(
        ExportError, match=r"^1 engines were not built\. resnet50 fp16-b8-\w+: .*does not take x of shape"
    ):
        several.build("--engine-jobs", "2")
    assert len(several.records()) == 2
    printed = capsys.readouterr()
    assert "was not built" in printed.err
    assert "Hint:" not in printed.out + printed.err  # the stage prints one for all


def test_a_build_that_is_killed_is_named_with_the_signal(several: Folder) -> None:
    several.export(ended_by=int(signal.SIGKILL))
    several.plan(("tensorrt", 8, STATIC), ("tensorrt", 4, STATIC))
    with pytest.raises(ExportError, match=r"^2 engines .*fp16-b8-\w+: its build ended with signal 9 \| .*fp16-b4-"):
        several.build("--engine-jobs", "2")
    assert several.records() == []


def test_ctrl_c_ends_every_build(several: Folder) -> None:
    meeting = several.root / "meeting"
    several.export(meets=[str(meeting), 3])
    several.plan(("tensorrt", 1, STATIC), ("tensorrt", 8, STATIC))
    places = ["--results", str(several.root), "--models-dir", str(several.models.root)]
    # A job in the background of a script ignores SIGINT, and so would everything that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [*AT_ONCE, *places, "--engine-jobs", "2"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as stage:
        while len(list(meeting.iterdir())) < 2 and stage.poll() is None:
            time.sleep(0.01)
        stage.send_signal(signal.SIGINT)
        _, errors = stage.communicate()
    assert (stage.returncode, errors.strip().splitlines()[0][:8]) == (130, "Stopped.")
    builds = [int(path.name) for path in meeting.iterdir()]
    assert len(builds) == 2
    for pid in builds:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert several.records() == []


@pytest.mark.parametrize(
    ("present", "kept"),
    [(b"a", b"a+kernels"), (b"b", b"ba+kernels"), (b"damaged", b"a+kernels"), (b"of another driver", b"a+kernels")],
)
def test_timings_that_another_build_saved_since_stay(folder: Folder, present: bytes, kept: bytes) -> None:
    from harness.backends.tensorrt import builder

    assert builder.merged(present, b"a+kernels") == kept


@pytest.mark.parametrize("number", ["0", "65"])
def test_a_number_of_builds_out_of_range_is_refused(folder: Folder, number: str) -> None:
    with pytest.raises(UsageError, match=f"^{number} engines cannot be built at the same time") as caught:
        folder.build("--engine-jobs", number)
    assert "ENGINE_JOBS=4" in caught.value.hint


def test_the_interpreter_of_tensorrt_gets_the_same_options(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def become(_path: Path, words: list[str], environment: dict[str, str]) -> None:
        started.append([*words, environment["PYTHONPATH"]])
        raise SystemExit

    monkeypatch.setattr(os, "execve", become)
    options = ["--force", "--engine-jobs", "4", "--engines", "fp16-b8"]
    with pytest.raises(SystemExit):
        folder.build(*options, "--python", f"tensorrt={sys.executable}")
    ((python, *words, search_path),) = started
    assert (python, words[:2], search_path) == (sys.executable, ["-m", "harness.build_engine"], str(ROOT))
    assert {word for word in words if word.startswith("--")} == {
        *("--results", "--models-dir"),
        *(word for word in options if word.startswith("--")),
    }
    assert words[words.index("--engine-jobs") + 1] == "4"
