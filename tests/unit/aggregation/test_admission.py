"""Several cards in one run: rows of one model share a card, models may be on equal ones. And what else never mixes."""

from __future__ import annotations

import pytest

from harness.aggregation.admission import foreign_machine, references
from harness.core.host.environment import ALLOCATOR, VARIABLES
from harness.core.schemas import Environment, Gpu, Unavailable
from tests import synthetic_results as made

UNKNOWN = Unavailable(unavailable="a fake card")
MINILM = made.case_of(made.MINILM, "onnxruntime", "fp16", 1, 32)
RESNET = made.case_of(made.RESNET, "onnxruntime", "fp16", 1)


def on(uuid: str, name: str = "A GPU") -> Environment:
    fields = dict.fromkeys(
        ("vbios", "persistence", "ecc", "mig", "power_limit_w", "power_limit_default_w", "max_sm_mhz"), UNKNOWN
    )
    fields |= dict.fromkeys(("max_memory_mhz", "pcie", "bar1_bytes"), UNKNOWN)
    card = Gpu(name=name, uuid=uuid, sm="9.0", memory_bytes=1, driver="580", cuda="13.0", **fields)
    return made.environment().model_copy(update={"gpu": card})


def test_models_may_be_on_equal_gpus_and_one_model_on_one() -> None:
    environments = {"one": on("GPU-1"), "two": on("GPU-2")}
    used = [(MINILM, "one", "t1"), (MINILM, "one", "t2"), (MINILM, "two", "t3"), (RESNET, "two", "t1")]
    agreed = references(used, environments)
    assert foreign_machine("one", MINILM, environments, agreed) is None
    assert foreign_machine("two", RESNET, environments, agreed) is None
    assert "gpu.uuid GPU-2 instead of GPU-1" in (foreign_machine("two", MINILM, environments, agreed) or "")


def test_cases_that_were_spread_may_be_on_equal_gpus_and_compared_cases_on_one() -> None:
    environments = {"one": on("GPU-1"), "two": on("GPU-2")}
    larger = made.case_of(made.MINILM, "onnxruntime", "fp16", 8, 32)
    rival = made.case_of(made.MINILM, "openvino", "fp32", 1, 32)
    used = [(MINILM, "one", "t1"), (MINILM, "one", "t2"), (rival, "two", "t3"), (larger, "two", "t4")]
    agreed = references(used, environments, by_shape=True)
    assert foreign_machine("two", larger, environments, agreed) is None
    assert foreign_machine("one", larger, environments, agreed) is not None
    assert "gpu.uuid GPU-2 instead of GPU-1" in (foreign_machine("two", rival, environments, agreed) or "")


def test_gpus_of_another_type_are_another_machine() -> None:
    environments = {"one": on("GPU-1"), "two": on("GPU-2", "Another GPU")}
    used = [(MINILM, "one", "t1"), (MINILM, "one", "t2"), (RESNET, "two", "t1")]
    agreed = references(used, environments)
    assert "gpu.name Another GPU instead of A GPU" in (foreign_machine("two", RESNET, environments, agreed) or "")


@pytest.mark.parametrize(
    ("name", "setting"), [(ALLOCATOR, "MALLOC_TRIM_THRESHOLD_=1"), (VARIABLES, "OMP_WAIT_POLICY=passive")]
)
def test_samples_under_other_settings_from_outside_are_not_joined(name: str, setting: str) -> None:
    plain = made.environment()
    tuned = plain.model_copy(update={"software": plain.software.model_copy(update={"build": {name: setting}})})
    environments = {"plain": plain, "tuned": tuned}
    agreed = references([(MINILM, "plain", "t1"), (MINILM, "plain", "t2"), (MINILM, "tuned", "t3")], environments)
    assert foreign_machine("plain", MINILM, environments, agreed) is None
    shown = foreign_machine("tuned", MINILM, environments, agreed) or ""
    assert f"{name} {setting} instead of as it is" in shown
