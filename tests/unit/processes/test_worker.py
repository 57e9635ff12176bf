"""What a worker notes down about a case, without starting one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.backends import BACKENDS
from harness.backends.base import is_out_of_memory
from harness.backends.case_files import artifact_hashes
from harness.core.errors import CaseError, NotSupportedError
from harness.core.protocol import CaseJob
from harness.core.schemas import Measurement
from harness.processes.launcher import ProcessOutcome
from harness.processes.pool import explain_end
from harness.processes.worker import failed_record
from tests import synthetic_results as made


def test_a_record_names_the_files_that_its_case_loads_and_no_others() -> None:
    export = made.export_record(made.MINILM)
    known = {"inputs-32.npz", "reference-32.npz", "inputs-128.npz", "reference-128.npz"}
    for backend, info in BACKENDS.items():
        case = made.case_of(made.MINILM, backend, "bf16", 1, 32)
        model = {"onnx": {"model.onnx"}, "module": {"weights.safetensors"}}.get(info.artifact, set())
        results = artifact_hashes(export, case)
        assert set(results) == model | {"inputs-32.npz", "reference-32.npz"}
        assert not set(results) & (known - {"inputs-32.npz", "reference-32.npz"})
        assert all(len(digest) == 64 for digest in results.values())


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate 1024.00 PiB",
        "cuMemAlloc failed: out of memory",
        "Failed to allocate memory for requested buffer of size 1",
        "Error Code 2: OutOfMemory (no further information)",
        "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate",
        "std::bad_alloc",
    ],
)
def test_every_library_s_way_to_say_that_memory_is_over_is_understood(message: str) -> None:
    assert is_out_of_memory(message)


def job_of(tmp_path: Path) -> CaseJob:
    case = made.case_of(made.MINILM, "tensorrt", "fp16", 1, 32).model_copy(update={"device": "cuda"})
    return CaseJob(
        case=case,
        round=1,
        settings_id="p",
        measurement=Measurement(),
        threads=1,
        results=str(tmp_path),
        models=str(tmp_path),
    )


def test_memory_of_the_host_is_not_called_the_gpu_s(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    assert failed_record(job, MemoryError("Unable to allocate 9 TiB"), "load", tmp_path / "log").error.startswith(
        "Out of memory"
    )
    full = RuntimeError("cuMemAlloc failed: out of memory")
    assert failed_record(job, full, "load", tmp_path / "log").error.startswith("Out of GPU memory")


def test_a_missing_module_says_in_which_python(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    result = failed_record(
        job, ModuleNotFoundError("No module named 'tokenizers'", name="tokenizers"), "start", tmp_path / "log"
    )
    assert result.error == f"{sys.executable} has no module tokenizers."
    assert "BACKEND_PYTHONS=tensorrt=" in result.hint


@pytest.mark.parametrize(("error", "refused"), [(NotSupportedError, True), (CaseError, False)])
def test_a_case_that_a_backend_does_not_run_is_refused_and_no_other_failure(
    tmp_path: Path, error: type[CaseError], refused: bool
) -> None:
    result = failed_record(job_of(tmp_path), error("It does not run Erf.", "Leave it out."), "load", tmp_path / "log")
    assert (result.error, result.hint, result.refused) == ("It does not run Erf.", "Leave it out.", refused)


@pytest.mark.parametrize(
    ("backend", "library", "command"),
    [("cudnn", "cudnn", "pip install 'inferometer[cudnn]'"), ("openvino", "openvino", "pip install openvino;")],
)
def test_a_missing_library_of_an_optional_part_names_the_part(backend: str, library: str, command: str) -> None:
    assert command in explain_end(ProcessOutcome(0, "import", absent=(library,)), backend, 1, "")[1]


def test_an_instruction_that_the_machine_does_not_run_is_no_fault_of_the_model() -> None:
    outcome = ProcessOutcome(-4, "first request")
    problem, hint = explain_end(outcome, "llamacpp", 1, "Fatal Python error: Illegal instruction")
    assert problem.startswith("Crashed with signal 4: a native library uses an instruction")
    assert "docs/generation.md" in hint
