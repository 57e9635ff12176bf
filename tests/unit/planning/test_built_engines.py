"""The records beside a model's engines."""

from __future__ import annotations

from pathlib import Path

from harness.core import store
from harness.core.layout import ModelFolder
from harness.planning.exports import built_engines
from tests.fixtures.engines import NAME, engine_record
from tests.synthetic_results import RESNET, export_record

ENGINE = engine_record(export_record(RESNET))


def test_every_record_of_the_folder_is_read_and_damaged_ones_are_named(tmp_path: Path) -> None:
    folder, notes = ModelFolder(tmp_path), []
    store.save(folder.engine_record(NAME), ENGINE)
    folder.engine(NAME).write_bytes(b"an engine")
    folder.engine_record("another").write_text("{")
    assert built_engines(folder, notes) == (ENGINE,)
    assert len(notes) == 1
    assert "engines/another.json" in notes[0]
    assert "make engines" in notes[0]


def test_a_model_without_engines_has_none(tmp_path: Path) -> None:
    assert built_engines(ModelFolder(tmp_path), []) == ()
