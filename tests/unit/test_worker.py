"""What a worker notes down about a case, without starting one."""

from __future__ import annotations

import pytest

from harness.backends import BACKENDS
from harness.backends.loads import artifacts
from harness.worker import _OUT_OF_MEMORY
from tests import synthetic_results as made


def test_a_record_names_the_files_that_its_case_loads_and_no_others() -> None:
    export = made.export_record(made.MINILM)
    known = {"inputs-32.npz", "reference-32.npz", "inputs-128.npz", "reference-128.npz"}
    for backend, info in BACKENDS.items():
        case = made.case_of(made.MINILM, backend, "bf16", 1, 32)
        model = {"onnx": {"model.onnx"}, "module": {"weights.safetensors"}}.get(info.artifact, set())
        found = artifacts(export, case)
        assert set(found) == model | {"inputs-32.npz", "reference-32.npz"}
        assert not set(found) & (known - {"inputs-32.npz", "reference-32.npz"})
        assert all(len(digest) == 64 for digest in found.values())


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
    assert _OUT_OF_MEMORY.search(message)
