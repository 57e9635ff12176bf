"""What the cold costs and the memory of a row hold is the library's: load() runs nothing and copies no inputs."""

from __future__ import annotations

import gc
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch

from harness.backends import backend_info
from harness.backends.base import Backend, BackendJob
from harness.backends.batches import BatchSet, load_batches
from harness.core.layout import Models
from harness.core.schemas import Case
from tests.fixtures.stages import latest_export

pytestmark = pytest.mark.stages


def prepared(exports: Models, backend: str) -> tuple[Any, BatchSet]:
    """A backend that has not loaded yet, and its batches with their reference."""
    place, export = latest_export(exports, "*tiny*")
    case = Case(
        case_id="test",
        model=export.model,
        slug=export.slug,
        backend=backend,
        device="cpu",
        precision="fp32",
        batch_size=2,
        sequence_length=None,
        boundary="compute",
        mode="sync",
        weights=export.weights,
    )
    batches = load_batches(place.root, export, case, 16)
    job = BackendJob(case, export, place.root, batches.inputs, 1, place.compile_cache)
    module, _, name = backend_info(backend).target.partition(":")
    made: Backend = getattr(importlib.import_module(module), name)(job)
    return made, batches


def test_the_first_inference_of_onnxruntime_is_not_part_of_its_load(
    exports: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    for name in ("run", "run_with_iobinding"):
        real = getattr(ort.InferenceSession, name)
        monkeypatch.setattr(ort.InferenceSession, name, lambda *given, real=real: runs.append("run") or real(*given))
    backend, batches = prepared(exports, "onnxruntime")
    backend.load()
    assert runs == []
    answers = []
    for index in (0, 1, 2, 0):
        backend.select(index)
        backend.infer()
        answers.append(backend.outputs())
        (name,) = answers[-1]
        np.testing.assert_allclose(answers[-1][name], batches.reference(index)[name], rtol=1e-4, atol=1e-5)
    assert len(runs) == len(answers)
    assert not np.array_equal(answers[0][name], answers[1][name])


def test_all_batches_of_onnxruntime_write_their_answers_to_one_place(exports: Models) -> None:
    backend, _ = prepared(exports, "onnxruntime")
    backend.load()
    backend.infer()
    backend.outputs()
    places = set()
    for index in (0, 1, 2):
        backend.select(index)
        backend.infer()
        places.add(backend._binding.get_outputs()[0].data_ptr())
    assert len(places) == 1


def test_code_compiled_for_another_number_of_threads_is_not_called_cached(exports: Models, tmp_path: Path) -> None:
    backend, _ = prepared(exports, "torch-compile")
    backend.job = replace(backend.job, cache=tmp_path)
    assert backend.compile_cached() is False
    backend._cache.mkdir(parents=True)
    (backend._cache / "code").touch()
    assert backend.compile_cached() is True
    backend.job = replace(backend.job, threads=2)
    assert backend.compile_cached() is False


@pytest.mark.slow
def test_frozen_weights_are_counted_in_the_compiled_code_and_their_absence_voids_the_label(
    exports: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch._inductor.config, "freezing", False)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    backend, batches = prepared(exports, "torch-compile")
    backend.job = replace(backend.job, cache=tmp_path, options={"freezing": True})
    backend.load()
    backend.compile()
    gc.freeze()
    backend.infer()
    (name,) = backend.outputs()
    np.testing.assert_allclose(backend.outputs()[name], batches.reference(0)[name], rtol=1e-4, atol=1e-5)
    placement = backend.placement()
    assert placement.precision == "fp32"
    assert placement.settings["frozen_weights"] > 0
    gc.unfreeze()
    backend._frozen = 0
    assert backend.placement().precision == "fp32, but no weight was frozen,"
    backend.close()


def test_pytorch_reads_its_inputs_where_every_library_reads_them(exports: Models) -> None:
    backend, batches = prepared(exports, "torch-eager")
    backend.load()
    (array,) = batches.inputs[1].values()
    assert np.shares_memory(backend.input_sets[1][0].numpy(), array)
    backend.close()
