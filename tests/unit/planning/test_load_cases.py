"""Scenarios → load cases: names, policies, digests, points, estimates; and each mistake in two lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.core.errors import ConfigError, UsageError
from harness.core.schemas import LatencyBound, LoadCase, Plan
from harness.planning.config import parse_config, parse_delay_ns, parse_price, parse_rate
from harness.planning.load_cases import (
    CLOSED_REPLICATIONS,
    CLOSED_S,
    LOADGEN_S,
    backend_case,
    estimate_load,
    served_cases,
)
from harness.planning.matrix import make_plan
from harness.planning.overrides import LoadOverrides, Overrides, apply_overrides
from harness.planning.schedule import select_models
from harness.serving.load_case import (
    LoadPoint,
    batch_sizes,
    planned_points,
    prediction_digest,
    replication_digest,
    replication_seed,
    requests_at_rate,
    service_digest,
    shortened_to,
)

SERVER = {"scenario": "server", "bound": "p99<50ms"}


def planned(*scenarios: Any, alone: bool = False, **more: Any) -> Plan:
    data = {
        "models": ["minilm-l6", "resnet18"],
        "matrix": [{"backends": ["onnxruntime", "openvino"], "models": ["minilm-l6"], "batch_sizes": [1, 8]}],
        "scenarios": list(scenarios),
        **more,
    }
    return make_plan(parse_config(data, "here.yaml"), "here.yaml", "0" * 64, loads_alone=alone)


def test_every_scenario_is_loaded_on_every_deployment_of_the_matrix() -> None:
    plan = planned(SERVER, "offline", "single-stream", "multi-stream", "concurrency", alone=True)
    assert [load.load_id for load in plan.loads if load.backend == "openvino"] == [
        "minilm-l6-openvino-cpu-fp32-s128-server-b8",
        "minilm-l6-openvino-cpu-fp32-s128-offline-b8",
        "minilm-l6-openvino-cpu-fp32-s128-single-stream",
        "minilm-l6-openvino-cpu-fp32-s128-multi-stream-b8",
        "minilm-l6-openvino-cpu-fp32-s128-concurrency",
    ]
    assert len(plan.loads) == 10
    assert plan.cases == ()
    assert [model.name for model in plan.models] == ["minilm-l6"]
    server, offline = plan.loads[0], plan.loads[2]
    assert server.bound == LatencyBound(quantile=0.99, limit_ns=50_000_000)
    assert (server.replications, server.replication_s) == (10, 4.0)
    assert offline.bound is None
    assert (offline.replications, offline.replication_s) == (CLOSED_REPLICATIONS, CLOSED_S)


def test_lists_of_a_policy_make_a_case_each_and_a_batch_of_one_never_waits() -> None:
    plan = planned(
        {**SERVER, "backends": ["openvino"], "max_batch": [1, 4], "max_delay": ["0ms", "2ms"], "workers": [2]}
    )
    assert [load.load_id.removeprefix("minilm-l6-openvino-cpu-fp32-s128-") for load in plan.loads] == [
        "server-w2",
        "server-b4-w2",
        "server-b4-d2ms-w2",
    ]
    assert len(plan.cases) == 4


def test_batches_in_flight_are_cases_of_their_own_and_take_the_place_of_workers() -> None:
    def names(**more: Any) -> list[str]:
        plan = planned({**SERVER, "backends": ["openvino"], "max_batch": [4], **more})
        return [load.load_id.removeprefix("minilm-l6-openvino-cpu-fp32-s128-server-") for load in plan.loads]

    assert names(in_flight=[1, 2]) == ["b4-f1", "b4-f2"]
    assert names(in_flight=[2], workers=[1, 2]) == ["b4", "b4-w2", "b4-f2"]
    (load,) = planned({**SERVER, "backends": ["openvino"], "in_flight": [3]}).loads
    assert (load.workers, load.in_flight, load.parallel) == (1, 3, 3)
    assert load.model_copy(update={"in_flight": None, "workers": 2}).parallel == 2
    assert service_digest(load) != service_digest(server(max_batch=load.max_batch))


def test_a_backend_that_does_not_compute_asynchronously_is_skipped_beside_one_that_does() -> None:
    block = {**SERVER, "in_flight": [2]}
    plan = planned(block, matrix=[{"backends": ["torch-eager", "onnxruntime"], "models": ["minilm-l6"]}])
    reasons = {load.backend: load.skip_reason for load in plan.loads}
    assert reasons["onnxruntime"] is None
    assert reasons["torch-eager"] is not None
    assert "no batches in flight" in reasons["torch-eager"]
    with pytest.raises(ConfigError, match="torch-eager has no batches in flight") as error:
        planned(block, matrix=[{"backends": ["torch-eager"]}])
    assert "WORKERS=2" in error.value.hint
    assert "openvino" in error.value.hint


def test_on_a_gpu_one_thread_issues_to_every_backend_but_to_settings_that_share_memory() -> None:
    block = {**SERVER, "in_flight": [2]}
    backends = ["torch-eager", "torch-script", "torch-aoti", "torch-compile", "onnxruntime", "tensorrt", "noop"]
    plan = planned(block, matrix=[{"backends": backends, "models": ["minilm-l6"]}], device="cuda")
    reasons = {load.backend: load.skip_reason for load in plan.loads}
    refused = reasons.pop("torch-compile")
    assert set(reasons.values()) == {None}
    assert len(reasons) == 6
    assert refused is not None
    assert "in its setting reduce-overhead" in refused
    assert "default+graph" in refused
    (load,) = planned(
        block, matrix=[{"backends": ["torch-compile"], "settings": ["default+graph"]}], device="cuda"
    ).loads[:1]
    assert (load.skip_reason, load.sets) == (None, 2)
    assert estimate_load([load])[0] > estimate_load([load.model_copy(update={"in_flight": 1})])[0]
    with pytest.raises(ConfigError, match="torch-compile has no batches in flight in its setting") as error:
        planned(block, matrix=[{"backends": ["torch-compile"], "models": ["minilm-l6"]}], device="cuda")
    assert "WORKERS=2" in error.value.hint
    assert "SETTINGS=" in error.value.hint
    assert "openvino" not in error.value.hint


def test_without_scenarios_a_plan_has_the_id_that_it_had_before_there_were_any() -> None:
    assert "loads" not in planned().model_dump(exclude_defaults=True)
    assert planned().plan_id == planned().plan_id != planned(SERVER).plan_id
    # As it was before batches could be in flight.
    assert planned({**SERVER, "backends": ["openvino"]}).plan_id == "df57db72913a"
    assert planned({**SERVER, "in_flight": [1]}).plan_id != planned({**SERVER, "workers": [1]}).plan_id


def test_exports_and_engines_know_every_prepared_batch_size() -> None:
    plan = planned({**SERVER, "max_batch": [6], "backends": ["openvino"]})
    (load,) = plan.loads
    assert batch_sizes(load) == (1, 2, 4, 6)
    assert [case.batch_size for case in served_cases(plan.loads)] == [1, 2, 4, 6]
    assert backend_case(load, 4).case_id == "minilm-l6-openvino-cpu-fp32-b4-s128"
    engine = make_plan(
        parse_config(
            {"device": "cuda", "models": ["resnet18"], "matrix": [{"backends": ["tensorrt"]}], "scenarios": [SERVER]},
            "gpu.yaml",
        ),
        "gpu.yaml",
        "0" * 64,
        loads_alone=True,
    )
    assert engine.models[0].onnx_variants == ("fp32-opset17",)


def test_a_combination_that_cannot_run_is_skipped_with_its_reason() -> None:
    plan = planned(SERVER, matrix=[{"backends": ["openvino", "onnxruntime"], "precisions": ["bf16"]}])
    reasons = {load.backend: load.skip_reason for load in plan.loads}
    assert reasons["openvino"] is None
    assert "bf16" in str(reasons["onnxruntime"])
    assert estimate_load(load for load in plan.loads if load.skip_reason) == (0, 0)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({"scenario": "server"}, "scenarios[0]: the server scenario needs a bound on the latency."),
        ({**SERVER, "bound": "p99<50"}, "scenarios[0]: The bound `p99<50` has no unit."),
        ({**SERVER, "bound": "fast"}, "scenarios[0]: `fast` is not a bound on a latency."),
        ({**SERVER, "rates": [0]}, "scenarios[0].rates: a rate of 0 requests a second gives no load."),
        ({**SERVER, "rates": [-5]}, "scenarios[0].rates: a rate of -5 requests a second gives no load."),
        ({"scenario": "offline", "rates": [5]}, "scenarios[0].rates: offline is a closed loop and has no rate."),
        ({**SERVER, "max_delay": ["2"]}, "scenarios[0]: `2` is not a delay."),
        ({**SERVER, "duration": "4"}, "scenarios[0]: `4` is not a time."),
        ({**SERVER, "backends": ["tensorrt"]}, "scenarios[0]: no case of the matrix has these models"),
        ({**SERVER, "max_batch": [0]}, "scenarios[0].max_batch[0]: input should be greater than or equal to 1."),
        ({**SERVER, "batch": 4}, "scenarios[0].batch: "),
        ({"scenario": "single-stream", "in_flight": [2]}, "scenarios[0].in_flight: the single-stream scenario has no"),
        ("sever", "scenarios[0].scenario: "),
    ],
)
def test_a_mistake_names_its_place_and_a_right_value(block: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(block)
    assert error.value.problem.startswith(f"here.yaml: {problem}")
    assert error.value.hint


def test_options_replace_keys_of_every_scenario() -> None:
    data = {"models": ["resnet18"], "matrix": [{"backends": ["openvino"]}], "scenarios": [SERVER, "offline"]}
    config = parse_config(data, "here.yaml")
    given = LoadOverrides(bound="p90<9ms", rates=(5.0,), max_batch=(2,), replications=3)
    server, offline = apply_overrides(config, Overrides(load=given)).scenarios
    assert (server.bound, server.rates, server.max_batch, server.replications) == ("p90<9ms", (5.0,), (2,), 3)
    assert offline.rates == ()
    with pytest.raises(UsageError, match="No scenario here has rates, as server"):
        apply_overrides(config, Overrides(load=given, scenarios=("concurrency",)))
    with pytest.raises(UsageError, match="No scenario here has a bound, as server"):
        apply_overrides(config, Overrides(load=replace(given, rates=()), scenarios=("concurrency",)))
    (only,) = apply_overrides(
        config, Overrides(load=LoadOverrides(replications=3), scenarios=("concurrency",))
    ).scenarios
    assert (only.scenario, only.replications) == ("concurrency", 3)
    flying = LoadOverrides(in_flight=(2,))
    assert [block.in_flight for block in apply_overrides(config, Overrides(load=flying)).scenarios] == [(2,), (2,)]
    both = apply_overrides(config, Overrides(load=flying, scenarios=("server", "concurrency"))).scenarios
    assert [block.in_flight for block in both] == [(2,), ()]
    with pytest.raises(UsageError, match="No scenario here has batches in flight"):
        apply_overrides(config, Overrides(load=flying, scenarios=("concurrency",)))
    bare = parse_config({**data, "scenarios": []}, "here.yaml")
    assert apply_overrides(bare, Overrides(loads_alone=True)).scenarios[0].scenario == "server"
    assert apply_overrides(bare, Overrides()).scenarios == ()
    with pytest.raises(UsageError, match="`bound` belongs to a scenario, and none is planned"):
        apply_overrides(bare, Overrides(load=given))
    with pytest.raises(UsageError, match="WORKERS is not possible"):
        apply_overrides(config, Overrides(load=LoadOverrides(workers=(1_000,))))


def server(**more: Any) -> LoadCase:
    return planned({**SERVER, "backends": ["openvino"]}).loads[0].model_copy(update=more)


def test_points_are_rates_around_the_peak_or_the_rates_that_were_asked_for() -> None:
    assert planned_points(server(), 53.2187) == (
        LoadPoint("r47.9", 47.9, factor=0.9),
        LoadPoint("r53.22", 53.22, factor=1.0),
        LoadPoint("r58.54", 58.54, factor=1.1),
    )
    assert planned_points(server(), None) == ()
    assert planned_points(server(rates=(1_234_567.0,)), None) == (LoadPoint("r1.235e+06", 1_234_567.0),)
    assert [step.name for step in planned_points(server(scenario="concurrency", clients=(1, 3)), None)] == ["c1", "c3"]
    assert planned_points(server(scenario="offline"), None) == (LoadPoint("all"),)


def test_a_replication_has_the_requests_of_its_time_up_to_the_number_of_the_case() -> None:
    # p99<50ms: a replication is at least 2.5 s long, and at most 4 s.
    assert [requests_at_rate(server(), rate) for rate in (1, 50, 500, 700, 5_000)] == [20, 200, 2_000, 2_000, 12_500]
    fast = server(bound=LatencyBound(quantile=0.99, limit_ns=2_000_000))
    assert requests_at_rate(fast, 5_000) == 2_000


def test_a_service_that_answers_in_microseconds_has_no_more_requests_than_asked_for() -> None:
    assert [requests_at_rate(server(), rate) for rate in (80_000, 1e6, 3e7)] == [200_000] * 3
    assert [shortened_to(server(), rate) for rate in (5_000, 80_000)] == [None, None]
    assert shortened_to(server(), 800_000) == pytest.approx(5)
    longer = server(requests=1_000_000)
    assert [requests_at_rate(longer, rate) for rate in (80_000, 1e6)] == [320_000, 1_000_000]
    # As long as its time allows, which is the user's choice.
    assert shortened_to(server(replication_s=0.1), 800_000) is None


def test_seeds_are_those_of_the_replication_alone() -> None:
    assert len({replication_seed(seed, number) for seed in (1, 2) for number in range(1, 31)}) == 60


def test_a_case_that_is_only_judged_otherwise_is_not_measured_again() -> None:
    case, other = server(), LatencyBound(quantile=0.9, limit_ns=1)
    judged = server(bound=other, price_per_hour=2.0, rates=(5.0,), replications=30)
    assert replication_digest(judged) == replication_digest(case)
    assert service_digest(judged) == service_digest(case)
    assert prediction_digest(judged) != prediction_digest(case)
    longer = server(replication_s=9.0, max_delay_ns=5)
    assert replication_digest(longer) != replication_digest(case)
    assert service_digest(longer) == service_digest(case)
    assert service_digest(server(workers=2)) != service_digest(case)


def test_the_time_is_that_of_every_part_of_every_case() -> None:
    low, high = estimate_load([server()])
    assert high >= 4 * 3.0 + 5 * 2.0 + 3 * 10 * 4.0
    assert low < high
    # The fastest service has the most requests: replay and records take as long as there are requests.
    assert estimate_load([server(requests=1_000_000)])[1] > 2 * high
    # Work that takes no time needs no start and no measurement of a given length.
    assert estimate_load([server(backend="noop")])[0] < low
    (loadgen,) = planned({**SERVER, "backends": ["openvino"], "loadgen": True}).loads
    assert (loadgen.method, loadgen.replications, loadgen.replication_s) == ("loadgen", 1, LOADGEN_S)
    assert loadgen.load_id.endswith("-server-b8-loadgen")
    least, most = estimate_load([loadgen])
    assert least < 3 * LOADGEN_S < most  # LOADGEN_MOST requests of a fast service are over before
    # 20 requests at one a second take 20 seconds, whatever the duration.
    slow = server(rates=[1.0], duration="4s", replications=5)
    low, high = estimate_load([slow])
    assert low > 5 * 20
    assert high - low < 110  # the peak is predicted all the same


def test_a_part_of_a_plan_has_the_load_cases_of_its_models() -> None:
    plan = planned(SERVER, matrix=[{"backends": ["openvino"]}])
    assert {load.model for load in select_models(plan, ["resnet18"]).loads} == {"resnet18"}


def test_amounts_of_load_have_their_units() -> None:
    assert [parse_delay_ns(text) for text in ("0", "500us", "2ms", "1.5 ms", "1s")] == [
        0,
        500_000,
        2_000_000,
        1_500_000,
        10**9,
    ]
    assert (parse_rate("12.5"), parse_price("2.50")) == (12.5, 2.5)
    for convert, text in (
        (parse_delay_ns, "2"),
        (parse_rate, "0"),
        (parse_rate, "inf"),
        (parse_rate, "many"),
        (parse_price, "-1"),
        (parse_price, "1e30"),
    ):
        with pytest.raises(UsageError):
            convert(text)
