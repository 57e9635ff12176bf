"""The environment record: nothing empty, the same id for the same facts, another for any other fact."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.core.host import environment
from harness.core.host.environment import RUNTIMES, loaded_runtimes
from harness.core.schemas import Environment, Unavailable


@pytest.fixture(scope="module")
def here() -> Environment:
    return environment.collect({"library": "a build"})


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, f"{path}.{key}")]
    return [(path, value)]


def test_no_fact_is_empty(here: Environment) -> None:
    known_empty = {".machine.cpu_features"}  # a processor may have none of the features that we ask for
    results = [path for path, value in leaves(here.model_dump()) if value in ("", 0, 0.0, ()) and value is not False]
    assert set(results) <= known_empty


def test_a_file_that_is_missing_or_empty_says_so(tmp_path: Path) -> None:
    file = tmp_path / "governor"
    assert "No such file" in _reason(environment.file_fact(file))
    file.write_text("\n")
    assert _reason(environment.file_fact(file)) == f"{file} is empty"
    file.write_text("performance\n")
    assert environment.file_fact(file) == "performance"


def _reason(fact: str | Unavailable) -> str:
    assert isinstance(fact, Unavailable)
    return fact.unavailable


def test_the_id_is_the_same_for_the_same_facts(here: Environment) -> None:
    again = environment.collect({"library": "a build"})
    assert environment.environment_id(again) == environment.environment_id(here)
    assert environment.environment_id(Environment.model_validate_json(here.model_dump_json())) == (
        environment.environment_id(here)
    )


@pytest.mark.filterwarnings("ignore:Pydantic serializer")  # the changed fact is of another type
def test_the_id_changes_with_any_fact(here: Environment) -> None:
    ids = {environment.environment_id(here)}
    for section in ("machine", "limits", "software"):
        part = getattr(here, section)
        for name in type(part).model_fields:
            changed = part.model_copy(update={name: Unavailable(unavailable="another fact")})
            ids.add(environment.environment_id(here.model_copy(update={section: changed})))
    fields = sum(len(type(getattr(here, section)).model_fields) for section in ("machine", "limits", "software"))
    assert len(ids) == 1 + fields


def test_libraries_that_are_not_installed_are_left_out() -> None:
    versions = environment.versions(["numpy", "a-distribution-that-does-not-exist"])
    assert list(versions) == ["numpy"]


def test_collecting_imports_no_inference_library() -> None:
    code = (
        "import sys; from harness.core.host import environment; environment.collect({})\n"
        "sys.exit(', '.join({'torch', 'onnxruntime', 'openvino'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True).stderr == "\n"


def test_a_container_is_known_where_its_marker_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("container", "podman")
    assert environment.collect({}).limits.container == "podman"


def test_the_image_is_the_one_that_its_starter_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_IMAGE", "inferometer:cpu")
    monkeypatch.setenv("INFEROMETER_IMAGE_DIGEST", "sha256:abc")
    limits = environment.collect({}).limits
    assert (limits.image, limits.image_digest) == ("inferometer:cpu", "sha256:abc")


def test_runtimes_are_named_by_the_file_that_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", ["", "/home/somebody/packages"])
    monkeypatch.setattr("sys.base_prefix", "/opt/python")
    maps = tmp_path / "maps"
    lines = [
        "7f00-7f01 r-xp 00000000 08:01 99   /venv/lib/python3.11/site-packages/torch/lib/libgomp.so.1",
        "7f01-7f02 rw-p 00001000 08:01 99   /venv/lib/python3.11/site-packages/torch/lib/libgomp.so.1",
        "7f02-7f03 r-xp 00000000 08:01 98   /home/somebody/build/libiomp5.so",
        "7f02-7f03 r-xp 00000000 08:01 98   /home/somebody/packages/numpy.libs/libopenblas.so",
        "7f02-7f03 r-xp 00000000 08:01 98   /opt/python/lib/libomp.so.5",
        "7f03-7f04 r-xp 00000000 08:01 97   /venv/lib/python3.11/site-packages/nvidia/lib/libcublas.so.13",
        "7f04-7f05 rw-p 00000000 00:00 0",
        "7f05-7f06 r-xp 00000000 08:01 96   /venv/lib/python3.11/site-packages/openvino/libs/libtbb.so.12",
    ]
    maps.write_text("\n".join(lines))
    runtimes = loaded_runtimes(maps)
    assert runtimes[RUNTIMES].split(", ") == [
        "(elsewhere)/libiomp5.so",
        "lib/libomp.so.5",
        "numpy.libs/libopenblas.so",
        "openvino/libs/libtbb.so.12",
        "torch/lib/libgomp.so.1",
    ]
    assert loaded_runtimes(tmp_path / "absent") == {}


def test_of_two_distributions_of_one_module_the_imported_one_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, name, version in (("first", "onnxruntime-gpu", "2.0"), ("second", "onnxruntime", "1.0")):
        package = tmp_path / place / "onnxruntime"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        metadata = tmp_path / place / f"{name.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.setattr("sys.path", [str(tmp_path / "first"), str(tmp_path / "second")])
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    assert environment.versions(["onnxruntime", "onnxruntime-gpu", "absent"]) == {"onnxruntime-gpu": "2.0"}
