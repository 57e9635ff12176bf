"""The e2e boundary and the modes with real libraries: what is prepared, what is compared, what is in flight."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from harness.backends import backend_info
from harness.backends.base import Backend, BackendJob
from harness.backends.batches import load_batches, load_raw_batches
from harness.core.errors import CaseError
from harness.core.layout import Models
from harness.core.schemas import Case, ExportRecord, InputSet, Measured
from harness.timing.modes import Pipelined
from harness.zoo import model_info
from harness.zoo.inputs.images import photographs
from harness.zoo.inputs.preprocessing import load_samples, prepare_of, samples_in_memory
from tests.fixtures.exporting import SAMPLES
from tests.fixtures.stages import ROOT, TINY, Folder, latest_export

pytestmark = pytest.mark.stages

MINILM, PICTURES = "minilm-l6", "efficientnet-lite0"
LENGTH = 32
E2E = {MINILM: ("torch-eager", "onnxruntime"), PICTURES: ("torch-script", "openvino")}
"""By model: what is prepared does not depend on the backend, and each backend takes it."""
E2E_SHAPE = {"boundaries": ["e2e"], "sequence_lengths": [LENGTH], "batch_sizes": [3]}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Folder:
    """Two real models at the e2e boundary, and one in the other modes."""
    root = tmp_path_factory.mktemp("ways")
    shutil.copytree(trained, root / "models")
    folder = Folder(root, Models(root / "models"))
    folder.plan(
        *({"backends": entry, "models": [model], **E2E_SHAPE} for model, entry in E2E.items()),
        {"backends": ["onnxruntime", "openvino"], "modes": ["offline"], "models": [PICTURES]},
        {"backends": ["onnxruntime", "openvino"], "modes": ["pipelined"], "models": [PICTURES]},
        models=(MINILM, PICTURES),
        parity_samples=SAMPLES,
    )
    for stage in ("export", "run"):
        done = folder(stage)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "exporting" not in done.stdout, "what the fixture exported serves this plan"
    return folder


def export_of(folder: Folder, model: str) -> tuple[Path, ExportRecord, InputSet]:
    place, record = latest_export(folder.models, model_info(model).slug)
    (inputs,) = (entry for entry in record.input_sets if entry.sequence_length in (None, LENGTH))
    return place.root, record, inputs


def prepared(folder: Folder, model: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(inputs by way of text or JPEG, inputs of the other boundaries)."""
    root, record, inputs = export_of(folder, model)
    assert inputs.raw is not None
    kinds = {spec.name: np.dtype(spec.dtype) for spec in record.inputs}
    prepare = prepare_of(inputs.raw.preparation, root, kinds, inputs.sequence_length)
    with np.load(root / inputs.inputs.path) as stored:
        return prepare(samples_in_memory(load_samples(root / inputs.raw.items.path), inputs.raw.preparation)), dict(
            stored
        )


def records(folder: Folder, *parts: str) -> list[Measured]:
    results = [record for (name, _), record in folder.records().items() if all(part in name for part in parts)]
    assert results
    assert all(isinstance(record, Measured) for record in results), results
    return [record for record in results if isinstance(record, Measured)]


def test_the_saved_tokenizer_gives_exactly_the_ids_of_the_other_boundaries(ran: Folder) -> None:
    ours, stored = prepared(ran, MINILM)
    assert set(ours) == set(stored) == {"input_ids", "attention_mask"}
    for name, values in stored.items():
        assert ours[name].dtype == values.dtype
        assert np.array_equal(ours[name], values)


def test_decoded_jpegs_are_the_pictures_but_for_their_loss(ran: Folder) -> None:
    ours, stored = prepared(ran, PICTURES)
    distance = np.linalg.norm(ours["pixel_values"] - stored["pixel_values"]) / np.linalg.norm(stored["pixel_values"])
    assert 0 < distance < 0.1


def test_pictures_have_a_reference_of_their_own_and_texts_share_it(ran: Folder) -> None:
    for model, own in ((MINILM, False), (PICTURES, True)):
        _, _, inputs = export_of(ran, model)
        assert inputs.raw is not None
        assert (inputs.raw.reference.path != inputs.reference.path) is own


@pytest.mark.parametrize(("model", "backend"), [(model, name) for model, entry in E2E.items() for name in entry])
def test_e2e_outputs_match_the_references_of_the_prepared_inputs(ran: Folder, backend: str, model: str) -> None:
    for record in records(ran, f"{model}-{backend}-", "-e2e"):
        for parity in (record.parity_before, record.parity_timed):
            assert parity is not None
            assert parity.relative_l2 is not None
            assert (
                parity.relative_l2 < 1e-4
            )  # against the reference without JPEG it would be about a thousand times that


@pytest.mark.parametrize("backend", tuple(chain(*E2E.values())))
def test_the_parts_of_every_sample_add_up_to_it(ran: Folder, backend: str) -> None:
    for record in records(ran, f"-{backend}-", "-e2e"):
        split = record.split_ns
        assert split is not None
        sums = [sum(part) for part in zip(split.preprocess, split.inference, split.postprocess, strict=True)]
        assert sums == list(record.latency_ns)
        assert min(*split.preprocess, *split.inference, *split.postprocess) > 0


def test_an_e2e_record_names_its_source_data(ran: Folder) -> None:
    for record in records(ran, MINILM, "-e2e"):
        assert {"raw-inputs-s32.npz", "tokenizer/tokenizer.json"} <= set(record.artifacts)
    for record in records(ran, PICTURES, "offline"):
        assert not any("raw" in name for name in record.artifacts)


def test_an_offline_row_has_throughput_and_no_percentiles(ran: Folder) -> None:
    rows = [row for row in ran.summary().rows if row.mode == "offline"]
    assert {row.backend for row in rows} == {"onnxruntime", "openvino"}
    for row in rows:
        assert row.latency_ns is not None
        assert (row.latency_ns.p50, row.latency_ns.p99, row.latency_ns.max) == (None, None, None)
        assert row.throughput_per_s == pytest.approx(1e9 / row.latency_ns.mean)
    for record in records(ran, "offline"):
        assert (record.latency_ns, record.warmup_ns) == ((), ())
        assert record.parity_timed is not None


def test_pipelined_ran_two_requests_with_right_answers_and_others_are_skipped(ran: Folder) -> None:
    (record,) = records(ran, "pipelined")
    assert record.placement.settings["requests"] == 2
    assert record.latency_ns
    assert record.parity_timed is not None
    assert record.parity_timed.relative_l2 is not None
    assert record.parity_timed.relative_l2 < 1e-4
    (skipped,) = [row for row in ran.summary().rows if row.status == "skipped"]
    assert skipped.case_id.endswith("-pipelined")
    assert "one request at a time" in (skipped.reason or "")


def test_an_unchanged_export_with_raw_inputs_is_not_made_again(ran: Folder) -> None:
    assert ran("export").stdout.count("up to date") == 2


def test_a_damaged_raw_file_is_noticed(ran: Folder) -> None:
    root, _, inputs = export_of(ran, MINILM)
    assert inputs.raw is not None
    path = root / inputs.raw.items.path
    whole = path.read_bytes()
    try:
        path.write_bytes(whole[:-1])
        done = ran("run")
        assert done.returncode != 0
        assert f"{path} has changed since it was made" in done.stderr
    finally:
        path.write_bytes(whole)


def job(folder: Folder, model: str, backend: str, **update: Any) -> BackendJob:
    root, record, inputs = export_of(folder, model)
    case = Case(
        case_id="test",
        model=model,
        slug=record.slug,
        backend=backend,
        device="cpu",
        precision="fp32",
        batch_size=2,
        sequence_length=inputs.sequence_length,
        boundary="compute",
        mode="sync",
        weights="pretrained",
    ).model_copy(update=update)
    batches = load_batches(root, record, case, 16)
    return BackendJob(case, record, root, batches.inputs, 1, root / "cache")


def openvino(job: BackendJob) -> Backend:
    from harness.backends.openvino.runtime import OpenVino

    backend = OpenVino(job)
    backend.load()
    backend.compile()
    return backend


class Counting:
    """Passes everything on and counts what is in flight."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.in_flight = self.most = 0
        self.answers: list[Any] = []
        self.inputs: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def select(self, index: int) -> None:
        self.inputs.append(index)
        self._backend.select(index)

    def submit(self) -> None:
        self._backend.submit()
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)

    def wait(self) -> None:
        self._backend.wait()
        self.in_flight -= 1
        self.answers.append(next(iter(self._backend.outputs().values())))


def test_two_openvino_requests_in_flight_answer_each_its_own_input(ran: Folder) -> None:
    from array import array

    result = job(ran, PICTURES, "openvino", mode="pipelined")
    counting = Counting(openvino(result))
    Pipelined(counting, len(result.batches)).block(array("q", bytes(8 * 9)), 0, 10**12, 9)
    root, record, _ = export_of(ran, PICTURES)
    reference = load_batches(root, record, result.case, 16).reference
    assert (counting.most, counting.in_flight, len(counting.answers)) == (2, 0, 11)
    for index, answer in zip(counting.inputs, counting.answers, strict=True):
        expected = reference(index)["logits"]
        assert np.linalg.norm(answer - expected) / np.linalg.norm(expected) < 1e-4


def loaded(job: BackendJob) -> Backend:
    import importlib

    module, _, name = backend_info(job.case.backend).target.partition(":")
    backend: Backend = getattr(importlib.import_module(module), name)(job)
    backend.load()
    if backend.compiles:
        backend.compile()
    return backend


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_issued_passes_call_back_once_and_answer_each_its_own_input(ran: Folder, backend: str) -> None:
    result = replace(job(ran, PICTURES, backend), in_flight=2, threads=2)
    subject, ends = loaded(result), SimpleQueue[tuple[int, str | None]]()
    root, record, _ = export_of(ran, PICTURES)
    reference = load_batches(root, record, result.case, 16).reference
    order = [index % len(result.batches) for index in range(9)]
    ended = []
    for number, index in enumerate(order):
        if number >= result.in_flight:
            ended.append(ends.get(timeout=600))
        subject.issue(index, lambda error, number=number: ends.put((number, error)))
    ended += [ends.get(timeout=600) for _ in range(result.in_flight)]
    assert sorted(ended) == [(number, None) for number in range(9)]
    assert ends.empty()
    answers = subject.issued()
    assert len(answers) == 2
    assert {index for index, _ in answers} <= set(order)
    for index, answer in answers:
        expected = reference(index)["logits"]
        assert np.linalg.norm(answer["logits"] - expected) / np.linalg.norm(expected) < 1e-4
    assert 2 in subject.placement().settings.values()
    subject.close()


def test_run_async_without_threads_of_its_own_is_refused(ran: Folder) -> None:
    with pytest.raises(CaseError, match="run_async") as error:
        loaded(replace(job(ran, PICTURES, "onnxruntime"), in_flight=2))
    assert "WORKERS" in error.value.hint


@pytest.mark.parametrize("backend", ["torch-eager", "onnxruntime", "openvino"])
def test_fed_arrays_answer_like_selected_ones_and_do_not_stick(ran: Folder, backend: str) -> None:
    result = job(ran, PICTURES, backend)
    subject = loaded(result)
    root, record, _ = export_of(ran, PICTURES)
    raw = load_raw_batches(root, record, result.case, 16)
    answers = []
    for index in (0, 1, 2, 1):
        batch = raw.prepare(raw.samples[index])
        subject.feed(batch)
        del batch  # the backend alone keeps what it reads
        subject.infer()
        subject.synchronize()
        answers.append(subject.outputs()["logits"])
        expected = raw.reference(index)["logits"]
        assert np.linalg.norm(answers[-1] - expected) / np.linalg.norm(expected) < 1e-4
    assert np.array_equal(answers[1], answers[3])
    subject.close()


def test_preparing_needs_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from harness.zoo.inputs.preprocessing import prepare_of, answer_of\n"
        "import harness.zoo.inputs.images, tokenizers\n"
        "print({'torch', 'transformers', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("name", ["ResNet50_Weights", "ViT_B_16_Weights", "MobileNet_V2_Weights", "ResNet18_Weights"])
def test_our_preprocessing_equals_torchvisions_transform(name: str) -> None:
    from torchvision import models

    from harness.zoo.families.vision import preparation_of
    from harness.zoo.inputs.images import pixels_of

    weights = getattr(models, name).DEFAULT
    transform: Callable[[Any], Any] = weights.transforms()
    ours = photographs(5, pixels_of(preparation_of(weights)))
    theirs = photographs(5, lambda picture: transform(picture).numpy())
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() < 1e-5


def test_a_module_of_ones_own_has_no_e2e_and_the_report_says_why(folder: Folder) -> None:
    folder.plan({"backends": ["torch-eager"]}, {"backends": ["onnxruntime"], "boundaries": ["e2e"]}, models=(TINY,))
    assert folder("run").returncode == 0
    (row,) = [row for row in folder.summary().rows if row.boundary == "e2e"]
    assert row.status == "skipped"
    assert "is not known" in (row.reason or "")
