"""noop and spin: on a CPU they touch no GPU library; on a GPU they show a stream and enqueue what is known."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.backends.base import Backend, BackendJob
from harness.backends.batches import NO_BATCHES, empty_export
from harness.backends.calibration.noop import Noop
from harness.backends.calibration.slowdown import slow_down
from harness.backends.calibration.spin import KERNEL, Spin
from harness.core.errors import CaseError
from harness.core.schemas import Measurement
from harness.timing.session import mode_for, run_session
from tests.fixtures.gpu import Stream, install
from tests.synthetic_results import FakeModel, case_of

MS = 1_000_000
KINDS: list[tuple[type[Backend], str]] = [(Noop, "resnet50"), (Spin, "spin:1ms")]


def made_for(kind: type[Backend], model: str, device: str) -> Backend:
    case = case_of(FakeModel(model.replace(":", "-"), "tensor", "seeded", 1, 1), kind.__name__.lower(), "fp32", 1)
    case = case.model_copy(update={"device": device, "model": model})
    return kind(BackendJob(case, empty_export(case), Path(), NO_BATCHES.inputs, 1, Path()))


def loaded(kind: type[Backend], model: str, device: str) -> Backend:
    backend = made_for(kind, model, device)
    backend.load()
    return backend


class Kernel:
    """pycuda.driver.Function, made ready for one unsigned 64-bit argument."""

    def prepare(self, kinds: str) -> Kernel:
        assert kinds == "Q"
        return self

    def prepared_async_call(self, grid: tuple[int, ...], block: tuple[int, ...], stream: Stream, duration: int) -> None:
        assert (grid, block) == ((1, 1, 1), (1, 1, 1))
        stream.enqueue("kernel", duration)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A driver that writes down what becomes of its context and which file it loads."""
    calls: list[str] = []
    context = SimpleNamespace(push=lambda: calls.append("push"), pop=lambda: calls.append("pop"))
    install(
        monkeypatch,
        init=lambda: calls.append("init"),
        Device=lambda index: SimpleNamespace(retain_primary_context=lambda: context),
        Stream=lambda flags: Stream(),
        Error=OSError,
        module_from_file=lambda path: (
            calls.append(Path(path).name) or SimpleNamespace(get_function=lambda name: {"spin": Kernel()}[name])
        ),
    )
    monkeypatch.delitem(sys.modules, "harness.backends.cuda.context", raising=False)
    return calls


@pytest.mark.parametrize(("kind", "model"), KINDS)
def test_a_cpu_needs_no_gpu_library_and_pays_for_none(
    kind: type[Backend], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.delitem(sys.modules, "harness.backends.cuda.context", raising=False)
    backend = loaded(kind, model, "cpu")
    assert backend.stream is None
    assert type(backend) is kind  # the form without a word about GPUs
    assert backend.placement().device == "cpu"
    backend.close()


@pytest.mark.parametrize(("kind", "model"), KINDS)
def test_on_a_gpu_they_show_a_stream_and_give_the_context_back(
    kind: type[Backend], model: str, driver: list[str]
) -> None:
    backend = loaded(kind, model, "cuda")
    assert isinstance(backend.stream, Stream)
    assert backend.placement().device == "cuda"
    assert driver[:2] == ["init", "push"]
    backend.close()
    assert driver[-1] == "pop"


def test_a_slow_down_on_purpose_is_not_lost_when_the_gpu_is_taken(driver: list[str]) -> None:
    backend = made_for(Spin, "spin:50us", "cuda")
    slow_down(backend, 2.0)
    backend.load()
    backend.infer()
    assert backend.stream.calls == ["kernel", "synchronize"]


def test_noop_enqueues_nothing(driver: list[str]) -> None:
    backend = loaded(Noop, "resnet50", "cuda")
    backend.select(0)
    backend.infer()
    backend.synchronize()
    assert backend.stream.calls == ["synchronize"]


def test_spin_enqueues_one_kernel_of_its_duration(driver: list[str]) -> None:
    backend = loaded(Spin, "spin:50us", "cuda")
    backend.infer()
    assert backend.stream.calls == ["kernel"]
    assert backend.stream.free_ns - backend.stream.now_ns == 50_000
    assert driver[-1] == "spin.ptx"


def test_a_driver_that_does_not_take_the_kernel_is_said_in_two_lines(
    driver: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> Any:
        raise OSError("cuModuleLoad failed: the provided PTX was compiled with an unsupported toolchain.")

    monkeypatch.setattr(sys.modules["pycuda.driver"], "module_from_file", refused, raising=False)
    with pytest.raises(CaseError, match=r"does not take spin\.ptx") as caught:
        loaded(Spin, "spin:1ms", "cuda")
    assert "spin.cu" in caught.value.hint


def test_a_whole_case_on_a_gpu_has_the_duration_on_its_clock(
    driver: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = loaded(Spin, "spin:1ms", "cuda")
    monkeypatch.setattr(backend, "load", lambda: None)
    now: Callable[[], int] = backend.stream.read
    for module in ("harness.timing.loop", "harness.timing.clock", "harness.timing.session"):
        monkeypatch.setattr(f"{module}.now_ns", now)
    mode = mode_for(backend.job.case, backend, 8)
    settings = Measurement(max_s=0.5, warmup_max_s=0.5)
    result = run_session(backend, mode, NO_BATCHES.reference, False, settings, lambda phase: None)
    assert result.device is not None
    assert result.timed.stop == "converged"
    for device, host in zip(result.device.device_ns, result.timed.samples_ns, strict=True):
        assert MS <= device <= host < 1.02 * MS
    assert driver[-1] == "pop"


def test_the_kernel_is_compiled_from_its_source() -> None:
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None or "release 13.0" not in _output(nvcc, "--version"):
        pytest.skip("no nvcc 13.0 here, which spin.ptx was made with")
    made = _output(nvcc, "-arch=compute_75", "-ptx", "-o", "-", str(KERNEL.with_suffix(".cu")))
    assert _code(made) == _code(KERNEL.read_text())


def test_any_driver_since_turing_takes_the_kernel() -> None:
    assert re.search(r"^\.version 6\.3\n\.target sm_75$", KERNEL.read_text(), re.MULTILINE)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _code(ptx: str) -> list[str]:
    """Without comments and the version, which is nvcc's own."""
    lines = (line.partition("//")[0].strip() for line in ptx.splitlines())
    return [line for line in lines if line and not line.startswith(".version")]
