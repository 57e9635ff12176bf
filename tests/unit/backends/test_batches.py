"""The rotating batches of a case."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.backends.batches import load_batches
from harness.core.errors import MalformedFileError, MissingInputError
from harness.core.schemas import Artifact, Case, ExportRecord, NewSamples
from harness.timing.rotation import MIN_BATCHES, batch_starts
from harness.zoo.input_files import read_arrays
from tests import synthetic_results as made

SAMPLES = 64


def test_batches_cover_every_sample_are_at_least_eight_and_all_differ() -> None:
    for batch_size in range(1, 201):
        check(SAMPLES, batch_size)


@given(st.integers(MIN_BATCHES, 300), st.integers(1, 400))
def test_so_they_are_for_any_number_of_samples(samples: int, batch_size: int) -> None:
    check(samples, batch_size)


def check(samples: int, batch_size: int) -> None:
    batches = [
        tuple((start + place) % samples for place in range(batch_size)) for start in batch_starts(samples, batch_size)
    ]
    assert {sample for batch in batches for sample in batch} == set(range(samples))
    assert len(batches) >= MIN_BATCHES
    assert len(set(batches)) == len(batches)


@pytest.fixture
def exported(tmp_path: Path) -> ExportRecord:
    inputs = {"ids": np.arange(SAMPLES * 3).reshape(SAMPLES, 3), "mask": np.arange(SAMPLES)}
    np.savez(tmp_path / "inputs-32.npz", allow_pickle=False, **inputs)
    np.savez(tmp_path / "reference-32.npz", allow_pickle=False, out=np.arange(SAMPLES) * 10)
    return made.export_record(made.MINILM)


def case(batch_size: int, length: int | None = 32) -> Case:
    return made.case_of(made.MINILM, "openvino", "fp32", batch_size, length)


@pytest.mark.parametrize("batch_size", [1, 4, 7, 33, 64, 200])
def test_inputs_and_reference_of_a_batch_are_the_same_samples(
    tmp_path: Path, exported: ExportRecord, batch_size: int
) -> None:
    batches = load_batches(tmp_path, exported, case(batch_size), SAMPLES)
    for index, batch in enumerate(batches.inputs):
        reference = batches.reference(index)["out"]
        assert batch["ids"].shape == (batch_size, 3)
        assert batch["mask"].shape == reference.shape == (batch_size,)
        assert (batch["mask"] * 10 == reference).all()
        assert (batch["ids"][:, 0] == batch["mask"] * 3).all()


def test_batches_share_memory_with_each_other(tmp_path: Path, exported: ExportRecord) -> None:
    batches = load_batches(tmp_path, exported, case(32), SAMPLES)
    owners = {id(batch["ids"].base) for batch in batches.inputs}
    assert len(owners) == 1
    assert np.shares_memory(batches.inputs[0]["ids"], batches.inputs[1]["ids"])


def _artifact(path: str) -> Artifact:
    return Artifact(path=path, sha256="0" * 64, size_bytes=1)


@pytest.mark.parametrize("batch_size", [1, 4, 33, 200])
def test_batches_with_new_samples_have_them_and_their_reference_in_the_place_of_stored_ones(
    tmp_path: Path, exported: ExportRecord, batch_size: int
) -> None:
    news = {"ids": -np.arange(8 * 3).reshape(8, 3), "mask": -np.arange(8)}
    np.savez(tmp_path / "new-inputs.npz", allow_pickle=False, **news)
    np.savez(tmp_path / "new-reference.npz", allow_pickle=False, out=-np.arange(8) * 10)
    new = NewSamples(inputs=_artifact("new-inputs.npz"), reference=_artifact("new-reference.npz"))
    sets = tuple(inputs.model_copy(update={"new": new}) for inputs in exported.input_sets)
    with_new = exported.model_copy(update={"input_sets": sets})
    batches = load_batches(tmp_path, with_new, case(batch_size), SAMPLES)
    assert callable(batches.new)
    replaced = batches.new()
    held = set[int]()
    for index, rows in replaced.rows.items():
        before, after = batches.inputs[index], replaced.inputs(index)
        other = [row for row in range(batch_size) if row not in rows]
        assert (after["mask"] * 10 == replaced.reference(index)["out"]).all()
        assert (after["mask"][rows] == -before["mask"][rows]).all()
        assert (after["ids"][rows] == -before["ids"][rows]).all()
        assert (after["ids"][other] == before["ids"][other]).all()
        assert (before["mask"][rows] < 8).all()
        assert (before["mask"][other] >= 8).all()
        held |= set(before["mask"][rows].tolist())
    assert held == set(range(8))
    assert load_batches(tmp_path, exported, case(batch_size), SAMPLES).new is None
    sets = tuple(inputs.model_copy(update={"new_missing": "one-hot"}) for inputs in exported.input_sets)
    without = exported.model_copy(update={"input_sets": sets})
    assert load_batches(tmp_path, without, case(batch_size), SAMPLES).new == "one-hot"
    at_e2e = case(batch_size).model_copy(update={"boundary": "e2e"})
    assert load_batches(tmp_path, without, at_e2e, SAMPLES).new is None


def test_fewer_samples_than_exported_may_be_used(tmp_path: Path, exported: ExportRecord) -> None:
    batches = load_batches(tmp_path, exported, case(1), 16)
    assert sorted(int(batch["mask"][0]) for batch in batches.inputs) == list(range(16))


@pytest.mark.parametrize(("length", "samples"), [(64, SAMPLES), (None, SAMPLES), (32, SAMPLES + 1)])
def test_inputs_that_were_not_exported_are_missed_by_name(
    tmp_path: Path, exported: ExportRecord, length: int | None, samples: int
) -> None:
    with pytest.raises(MissingInputError, match=rf"minilm-l6 has no {samples} inputs .* {length}") as caught:
        load_batches(tmp_path, exported, case(1, length), samples)
    assert "make export" in caught.value.hint


@pytest.mark.parametrize("keep", [0, 10, 200, -1], ids=["empty", "head", "half", "no last byte"])
def test_a_damaged_file_of_arrays_is_named_with_the_way_to_a_whole_one(keep: int, tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.arange(64, dtype=np.float32))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(MalformedFileError, match=r"inputs\.npz cannot be read \(") as raised:
        read_arrays(path)
    assert "make export" in raised.value.hint


def test_a_changed_byte_of_arrays_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.zeros(64, dtype=np.float32))
    content = bytearray(path.read_bytes())
    content[250] ^= 1
    path.write_bytes(content)
    with pytest.raises(MalformedFileError, match="CRC-32"):
        read_arrays(path)


def test_a_missing_file_of_arrays_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match="FileNotFoundError"):
        read_arrays(tmp_path / "inputs.npz")
