"""The notebooks: a copy of each runs to its end, and what is committed is clean, whole and says what it must."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.core.schemas.vocabulary import OLD_FLAGS

nbclient = pytest.importorskip("nbclient", reason="nbclient is not there: pip install '.[dev]'")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not there: pip install '.[dev]'")

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = ("quickstart", "resnet", "vit")
MAX_BYTES = 300_000
TIMEOUT_S = 1200
"""Of one cell, on a machine that does other things too."""

OF_ONE_MACHINE = re.compile(
    r"/(?:home|root|Users|tmp|var|private|work|opt|mnt)/|~/|\\\\Users|https?://(?!pytorch\.org)"
)
"""Paths and addresses that mean nothing to who reads the notebook elsewhere."""

COUNTED = {
    "quickstart": {"model-level": ("390,986", "15,043,072", "30,086,144")},
    "resnet": {"model-level": ("11.69 M", "1.814 G an image; 1.814 G", "3.628 G")},
    "vit": {"naive": ("11.271 G\n", "17.564 G\n"), "model-level": ("86.57 M", "17.564 G an image; 17.564 G")},
}
"""What is counted is the same everywhere: by notebook and cell, parts of what it prints."""

SHOWN = {
    "quickstart": ("layer-figure", "benchmark-figure"),
    "resnet": ("layer-figure", "benchmark-figure", "gain-figure"),
    "vit": ("layer-figure", "batch-figure"),
}
"""Cells that draw."""

each_notebook = pytest.mark.parametrize("name", NOTEBOOKS)


def read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_cells(notebook: Any) -> dict[str, Any]:
    return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}


def printed(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in code_cells(notebook).values() for output in cell.outputs]


def check_answers(name: str, notebook: Any) -> None:
    """What a run of a notebook owes, wherever it ran."""
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells.values()] == list(range(1, len(cells) + 1))
    assert {output.output_type for output in outputs(notebook)} <= {"stream", "display_data", "execute_result"}
    assert "stderr" not in {output.get("name") for output in outputs(notebook)}
    for cell, parts in COUNTED[name].items():
        assert [part for part in parts if part not in printed(cells[cell])] == []
    for cell in SHOWN[name]:
        assert ["image/png" in output.get("data", {}) for output in cells[cell].outputs] == [True]


def test_every_notebook_is_tested() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NOTEBOOKS)


@each_notebook
def test_committed_notebooks_have_their_outputs(name: str) -> None:
    check_answers(name, read(name))


@each_notebook
def test_committed_notebooks_are_clean(name: str) -> None:
    path, notebook = FOLDER / f"{name}.ipynb", read(name)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert path.stat().st_size < MAX_BYTES
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert [dict(cell.metadata) for cell in notebook.cells if cell.metadata] == []  # no times of execution
    # An id in words says in a diff which cell changed; a tool's is random.
    assert [cell.id for cell in notebook.cells if not re.fullmatch(r"[a-z]+(-[a-z]+)*", cell.id)] == []
    without_images = [
        {**output, "data": {kind: text for kind, text in output.get("data", {}).items() if kind != "image/png"}}
        for output in outputs(notebook)
    ]
    assert OF_ONE_MACHINE.findall(json.dumps(without_images)) == []


@each_notebook
def test_committed_notebooks_name_flags_as_the_code_does(name: str) -> None:
    texts = [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs(read(name))]
    assert set(re.findall(r"[A-Z]+(?:_[A-Z]+)+", "".join(texts))).isdisjoint(OLD_FLAGS)


@pytest.mark.stages
@pytest.mark.slow
@each_notebook
def test_a_copy_runs_to_its_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(shutil.copy(FOLDER / f"{name}.ipynb", tmp_path), as_version=4)
    for cell in code_cells(notebook).values():
        cell.outputs, cell.execution_count = [], None
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    client = nbclient.NotebookClient(notebook, timeout=TIMEOUT_S, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises what a cell raised
    check_answers(name, notebook)
