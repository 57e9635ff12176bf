"""Everything that the harness uses of TensorRT is there in 8.6, 10.16 and 11.4, or is not reached.

8.6.0 is run for real on a GPU machine (docs/gpu-machine.md); its list of names was made from the real library. Of the
others the vendor's own bindings are imported, on stub libraries: what they offer is asked, not assumed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.compat.attributes import MODULE, missing, unknown_owners, used
from tests.compat.bindings import ROOT, VERSIONS, Bindings, prepare

FILES = [path for path in (ROOT / "harness/backends/tensorrt").glob("*.py") if used(path.read_text())]
NAMES_8_6 = Path(__file__).with_name("tensorrt-8.6.0.json")


@pytest.fixture(scope="session", params=VERSIONS)
def bindings(request: pytest.FixtureRequest) -> Bindings:
    version: str = request.param
    if sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)):
        pytest.skip("the bindings' wheels are fetched for Python 3.11 to 3.13")
    return prepare(version, request.config.cache.mkdir("tensorrt-bindings"))


@pytest.fixture(scope="session")
def described(bindings: Bindings) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(bindings.run(str(Path(__file__).with_name("describe_tensorrt.py"))))
    return content


@pytest.fixture(scope="session")
def exercised(bindings: Bindings) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(bindings.run(str(Path(__file__).with_name("exercise_api.py"))))
    return content


def offered(described: Mapping[str, Any]) -> dict[str, list[str]]:
    return {MODULE: described["module"], **described["classes"]}


def complaints(described: Mapping[str, Any]) -> list[str]:
    names, typed = offered(described), "FP16" not in described["classes"]["BuilderFlag"]
    return [
        f"{path.relative_to(ROOT)} {use}" for path in FILES for use in missing(used(path.read_text()), names, typed)
    ]


def test_the_files_that_use_tensorrt_are_seen() -> None:
    assert {path.stem for path in FILES} >= {"versions", "builder", "layers", "runtime"}


def test_8_6_has_all_that_is_used() -> None:
    described = json.loads(NAMES_8_6.read_text())
    assert described["version"] == "8.6.0"
    assert complaints(described) == []


def test_newer_bindings_have_all_that_is_used(described: dict[str, Any]) -> None:
    assert complaints(described) == []


def test_no_class_is_looked_up_under_a_name_that_a_version_does_not_have(described: dict[str, Any]) -> None:
    for names in (offered(described), offered(json.loads(NAMES_8_6.read_text()))):
        assert [unknown_owners(used(path.read_text()), names) for path in FILES] == [set()] * len(FILES)


WRONG = """
import tensorrt as trt
from typing import Any
flags = trt.BuilderFlag.FP_16
def build(config: Any, log: object) -> None:
    builder = trt.Builder(log)
    made = builder.create_network(0)
    config.set_tacticsources(1)
    made.get_layer(0).precission = trt.float32
class Backend:
    def load(self, runtime: trt.Runtime) -> None:
        self._context = runtime.deserialize_cuda_engine(b"").create_execution_context()
    def infer(self) -> None:
        self._context.execute_async_v4(1)
"""


def test_a_wrong_attribute_is_caught_in_8_6() -> None:
    assert wrong(json.loads(NAMES_8_6.read_text())) == [
        "line 4: BuilderFlag.FP_16",
        "line 8: IBuilderConfig.set_tacticsources",
        "line 9: ILayer.precission",
        "line 14: IExecutionContext.execute_async_v4",
    ]


def test_a_wrong_attribute_is_caught_in_newer_bindings(described: dict[str, Any]) -> None:
    assert wrong(described) == wrong(json.loads(NAMES_8_6.read_text()))


def wrong(described: Mapping[str, Any]) -> list[str]:
    return [str(use) for use in missing(used(WRONG), offered(described), strongly_typed=False)]


FLAGS_ONLY = """
import tensorrt
def early(config: object) -> None:
    config = tensorrt.Builder(None).create_builder_config()
    if strongly_typed():
        raise ValueError
    config.set_flag(tensorrt.BuilderFlag.FP16)
def late(network: object) -> None:
    flag = tensorrt.BuilderFlag.FP16
    if strongly_typed():
        return
"""


def test_an_attribute_that_needs_flags_is_excused_only_behind_the_question(described: dict[str, Any]) -> None:
    typed = "FP16" not in described["classes"]["BuilderFlag"]
    results = [str(use) for use in missing(used(FLAGS_ONLY), offered(described), typed)]
    assert results == (["line 9: BuilderFlag.FP16"] if typed else [])


def test_11_is_strongly_typed_and_10_has_flags(exercised: dict[str, Any]) -> None:
    assert exercised["strongly_typed"] == exercised["version"].startswith("11.")


def test_precisions_by_flags_or_by_the_file(exercised: dict[str, Any]) -> None:
    no_tf32 = ["clear_flag", "TF32"]
    assert exercised["fp32"] == [no_tf32]
    assert exercised["tf32"] == [no_tf32, ["set_flag", "TF32"]]
    if exercised["strongly_typed"]:
        assert exercised["fp16"] == exercised["int8"] == [no_tf32]
        assert "bf16" in exercised["bf16"]  # refused: no ONNX file of ours holds bf16
    else:
        assert exercised["fp16"] == [no_tf32, ["set_flag", "FP16"]]
        assert exercised["bf16"] == [no_tf32, ["set_flag", "BF16"]]
        assert ["set_flag", "INT8"] in exercised["int8"]


def test_layers_kept_in_fp32_and_fp16_ends_are_refused_where_the_file_decides(exercised: dict[str, Any]) -> None:
    if exercised["strongly_typed"]:
        assert exercised["version"] in exercised["keep_fp32"]
        assert exercised["version"] in exercised["fp16_ends"]
    else:
        assert exercised["keep_fp32"] == [["set_flag", "OBEY_PRECISION_CONSTRAINTS"]]
        assert exercised["fp16_ends"] == [["dtype", "HALF"]]


def test_the_builder_gets_the_settings_of_the_request(exercised: dict[str, Any]) -> None:
    assert ["set_memory_pool_limit", "WORKSPACE", 1 << 30] in exercised["configure"]
    assert ["builder_optimization_level", 4] in exercised["configure"]
    assert ["profiling_verbosity", "DETAILED"] in exercised["configure"]
    assert ["hardware_compatibility_level", "AMPERE_PLUS"] in exercised["configure"]
    assert ["set_flag", "VERSION_COMPATIBLE"] in exercised["configure"]
    assert exercised["applied"]["optimization_level"] == "4"
    assert exercised["applied"]["tactic_sources"]
