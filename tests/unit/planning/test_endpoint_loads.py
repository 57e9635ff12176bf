"""A running service in a plan."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harness.core.errors import ConfigError, InferometerError, UsageError
from harness.core.schemas import LoadCase, Plan
from harness.planning.config import Config
from harness.planning.generation_cases import generation_needs
from harness.planning.matrix import make_plan
from harness.planning.overrides import LoadOverrides, Overrides, apply_overrides, left_out

CONFIG = Config.model_validate(
    {
        "models": ({"name": "minilm-l6"},),
        "matrix": ({"backends": ("onnxruntime", "openvino"), "batch_sizes": (1,), "sequence_lengths": (32,)},),
    }
)
URL = "kserve+http://127.0.0.1:8000/v2/models/minilm"


def loads(url: str = URL, **options: object) -> tuple[LoadCase, ...]:
    given = {"bound": "p99<50ms", "rates": (10.0,), **options}
    chosen = Overrides(load=LoadOverrides(endpoint=url, **given), loads_alone=True)  # type: ignore[arg-type]
    return make_plan(apply_overrides(CONFIG, chosen), "test", "0" * 64, loads_alone=True).loads


def test_the_service_is_the_only_deployment_and_its_batching_is_its_own() -> None:
    (load,) = loads(max_batch=(4, 8), workers=(1, 2))
    assert (load.backend, load.precision, load.endpoint) == ("endpoint", "fp32", URL)
    assert (load.max_batch, load.max_delay_ns, load.workers, load.skip_reason) == (1, 0, 1, None)


def test_two_services_are_two_load_cases() -> None:
    ids = {loads(url)[0].load_id for url in (URL, URL + "/versions/2", "kserve+grpc://127.0.0.1:8001/v2/models/minilm")}
    assert len(ids) == 3
    assert all(name.startswith("minilm-l6-endpoint-") and name.endswith("-fp32-s32-server") for name in ids)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"rates": ()}, "no service times to predict a peak from"),
        ({"url": "http://127.0.0.1:8000/"}, "is no address of an endpoint"),
        ({"url": "kserve+http://me:secret@h/v2/models/m"}, "has a user name or password"),
    ],
)
def test_impossible_loads_are_refused(given: Mapping[str, object], problem: str) -> None:
    with pytest.raises(InferometerError, match=problem) as caught:
        loads(**given)  # type: ignore[arg-type]
    assert "secret" not in caught.value.problem


@pytest.mark.parametrize("more", [{"backends": ("openvino",)}, {"device": "cuda"}])
def test_a_backend_or_device_beside_a_service_is_refused(more: Mapping[str, object]) -> None:
    with pytest.raises(UsageError, match="no backend or device to choose"):
        apply_overrides(CONFIG, Overrides(load=LoadOverrides(endpoint=URL), loads_alone=True, **more))  # type: ignore[arg-type]


def test_a_service_without_its_address_is_skipped_with_the_way_to_load_it() -> None:
    config = apply_overrides(CONFIG, Overrides(backends=("endpoint",)))
    plan = make_plan(config, "test", "0" * 64)
    assert {case.skip_reason for case in plan.cases} == {
        "a running service is only loaded, by its address: make load ENDPOINT=<address>"
    }
    scenario = apply_overrides(CONFIG, Overrides(backends=("endpoint",), scenarios=("offline",)))
    with pytest.raises(ConfigError, match="no case of the matrix"):
        make_plan(scenario, "test", "0" * 64, loads_alone=True)


COMPLETIONS = "openai+http://127.0.0.1:8000/v1/completions"


def test_nothing_is_left_out_where_lengths_belong_to_the_completions_of_a_service() -> None:
    load = LoadOverrides(endpoint=COMPLETIONS, bound="p99<2s", rates=(1.0,))
    chosen = Overrides(models=("smollm2-135m",), load=load, loads_alone=True, prompt_lengths=(128,), new_tokens=(64,))
    assert left_out(CONFIG, chosen) == ()


def completions(url: str = COMPLETIONS, **lengths: tuple[int, ...]) -> Plan:
    load = LoadOverrides(endpoint=url, bound="p99<2s", rates=(1.0,))
    chosen = Overrides(models=("smollm2-135m",), load=load, loads_alone=True, **lengths)  # type: ignore[arg-type]
    return make_plan(apply_overrides(CONFIG, chosen), "test", "0" * 64, loads_alone=True)


def test_completions_need_the_files_of_generation_and_no_others() -> None:
    plan = completions(prompt_lengths=(16, 32), new_tokens=(8,))
    assert [(load.prompt_length, load.new_tokens, load.sequence_length) for load in plan.loads] == [
        (16, 8, None),
        (32, 8, None),
    ]
    assert all(load.load_id.endswith(f"-server-p{load.prompt_length}-n8") for load in plan.loads)
    assert [model.exported for model in plan.models] == [False]
    needs = generation_needs(plan)["smollm2-135m"]
    assert (needs.lengths, needs.batch_size, needs.onnx) == ({16: 8, 32: 8}, 16, ())


@pytest.mark.parametrize(
    ("url", "lengths", "problem"),
    [
        (COMPLETIONS, {}, "completions need lengths"),
        (COMPLETIONS, {"new_tokens": (8,)}, "completions need lengths"),
        (URL, {"prompt_lengths": (16,), "new_tokens": (8,)}, "belong to completions"),
    ],
)
def test_lengths_belong_to_completions(url: str, lengths: dict[str, tuple[int, ...]], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        completions(url, **lengths)
