"""What a worker notes down about a case, without starting one."""

from __future__ import annotations

from harness.backends import BACKENDS
from harness.backends.loads import artifacts
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
