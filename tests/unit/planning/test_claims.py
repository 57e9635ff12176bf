"""The files of configs/published: all load, hold the figures of their sources, and become plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.core import store
from harness.core.errors import ConfigError, MissingInputError, UsageError
from harness.core.schemas import Claim, Device, Plan, Summary
from harness.planning import claims
from harness.planning.matrix import make_plan

FOLDER = Path(__file__).parents[3] / claims.FOLDER
NAMES = claims.names(FOLDER)
EPYC = Path("results/published/epyc-2-vcpu/2026-11-28")


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER.parents[1])


def whole(name: str) -> Claim:
    """A claim with its values, at any depth."""
    claim = claims.read(name, FOLDER)
    run = claims.published_run(claim)
    return claim if run is None else claims.filled_in(claim, *run)


def test_every_claim_is_here() -> None:
    theirs = {"paddle-trt-resnet50-a100", "demobert-a100", "dist6l-a100", "transformer-deploy-minilm"}
    theirs |= {"timm-compile-ratio", "mlperf-context", "mlperf-h200-resnet50"}
    assert set(NAMES) == {*theirs, "own-epyc", "own-h200"}


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_says_where_it_is_from_and_has_values(name: str) -> None:
    claim = whole(name)
    assert claim.values
    assert claim.source.url is not None or claim.results is not None


@pytest.mark.parametrize(
    ("claim", "value", "figure"),
    [
        # The published values, typed again.
        *(
            ("paddle-trt-resnet50-a100", name, ms)
            for name, ms in {"b1": 0.76, "b8": 1.14, "b32": 2.45, "b128": 7.81, "b256": 14.74}.items()
        ),
        *(
            ("demobert-a100", name, ms)
            for name, ms in {
                "s128 b1": 0.62,
                "s128 b8": 1.31,
                "s128 b32": 3.85,
                "s128 b128": 15.15,
                "s384 b1": 1.26,
                "s384 b128": 48.64,
            }.items()
        ),
        *(
            ("dist6l-a100", f"{runtime} b{batch}", per_s)
            for runtime, both in {
                "TorchScript": (358, 1776),
                "ORT": (514, 1536),
                "ORT+TRT": (998, 2880),
                "TRT": (862, 2784),
            }.items()
            for batch, per_s in zip((1, 16), both, strict=True)
        ),
        ("transformer-deploy-minilm", "PyTorch fp32", 5.43),
        ("transformer-deploy-minilm", "PyTorch fp16", 6.55),
        ("transformer-deploy-minilm", "ORT fp32", 1.57),
        ("transformer-deploy-minilm", "ORT fp16", 0.90),
        ("transformer-deploy-minilm", "TRT fp16", 0.53),
        ("timm-compile-ratio", "resnet50 eager", 4218),
        ("timm-compile-ratio", "resnet50 compiled", 8237),
        ("timm-compile-ratio", "resnet18 eager", 13537),
        ("timm-compile-ratio", "resnet18 compiled", 25949),
        ("timm-compile-ratio", "mobilenet_v2 eager", 10810),
        ("timm-compile-ratio", "mobilenet_v2 compiled", 18996),
        ("timm-compile-ratio", "vit_b_16 eager", 2787),
        ("timm-compile-ratio", "vit_b_16 compiled", 3346),
        ("mlperf-context", "ResNet-50 on an H100 SXM (v3.0)", 91826),
        ("mlperf-context", "ResNet-50 on an H100 SXM (v4.0)", 88714),
        ("mlperf-context", "ResNet-50 on an H200 (v4.1)", 94620),
        ("mlperf-h200-resnet50", "ResNet-50 on an H200", 756_960 / 8),
    ],
)
def test_a_typed_figure_is_the_published_one(claim: str, value: str, figure: float) -> None:
    [results] = [entry for entry in claims.read(claim, FOLDER).values if entry.name == value]
    assert (results.latency_ms or results.items_per_s) == figure


def test_the_ratios_of_timm_are_those_of_the_method() -> None:
    claim = claims.read("timm-compile-ratio", FOLDER)
    values = {value.name: value for value in claim.values}
    ratios = [values[ratio.than].sample_ms / values[ratio.faster].sample_ms for ratio in claim.ratios]
    assert [round(ratio, 2) for ratio in ratios] == [1.95, 1.92, 1.76, 1.20]


def test_figures_and_throughputs_of_one_table_agree() -> None:
    values = {value.name: value for value in claims.read("paddle-trt-resnet50-a100", FOLDER).values}
    assert 128 / values["b128"].batch_ms * 1e3 == pytest.approx(16387, rel=1e-3)
    assert 256 / values["b256"].batch_ms * 1e3 == pytest.approx(17364, rel=1e-3)


# --- plans --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", NAMES)
def test_every_claim_becomes_a_plan_or_says_why_not(name: str, device: Device) -> None:
    claim = whole(name)
    config, left_out = claims.configuration(claim, device, None)
    if config is None:
        assert claim.context is not None or len(left_out) == len(claim.values)
        return
    plan = make_plan(config, name, "")
    assert not [case.skip_reason for case in plan.cases if case.skip_reason]
    assert len(plan.cases) <= len(claim.values) - len(left_out)


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_names_the_only_device_that_measures_it(name: str) -> None:
    """In its file: Make chooses the environment by this line."""
    claim, named = whole(name), claims.read(name, FOLDER).device
    values = claim.model_copy(update={"device": None})
    measured = [device for device in get_args(Device) if claims.configuration(values, device, None)[0]]
    if claim.results is not None:
        assert named == claim.device
    elif claim.context is None:
        assert named == (measured[0] if len(measured) == 1 else None)
    assert ("\ndevice: cuda\n" in (FOLDER / f"{name}.yaml").read_text()) == (named == "cuda")


def test_a_gpu_measures_the_published_cases() -> None:
    config, left_out = claims.configuration(claims.read("timm-compile-ratio", FOLDER), "cuda", None)
    assert config is not None
    assert left_out == {}
    cases = {case.case_id for case in make_plan(config, "", "").cases}
    assert "resnet50-torch-eager-cuda-fp16-b1024-nchw" in cases
    assert "resnet50-torch-compile-cuda-fp16-b256-default" in cases


def test_a_cpu_measures_the_claims_replacement() -> None:
    config, _ = claims.configuration(claims.read("timm-compile-ratio", FOLDER), "cpu", 7)
    assert config is not None
    assert config.measurement.rounds == 7
    cases = make_plan(config, "", "").cases
    assert {(case.precision, case.batch_size, case.setting) for case in cases} == {("fp32", 1, "default")}
    assert len(cases) == 8


def test_a_number_of_threads_that_was_published_is_measured() -> None:
    claim = claims.read("transformer-deploy-minilm", FOLDER)
    single = next(value for value in claim.values if value.backend == "onnxruntime" and value.precision == "fp32")
    changed = claim.model_copy(update={"values": (single.model_copy(update={"setting": "1-thread"}),)})
    config, _ = claims.configuration(changed, "cpu", None)
    assert config is not None
    assert [case.setting for case in make_plan(config, "", "").cases] == ["1-thread"]


def test_a_case_that_a_device_cannot_run_is_left_out_with_the_reason() -> None:
    config, left_out = claims.configuration(claims.read("transformer-deploy-minilm", FOLDER), "cpu", None)
    assert config is not None
    assert [case.backend for case in make_plan(config, "", "").cases] == ["torch-eager", "onnxruntime"]
    assert left_out["TRT fp16"] == "tensorrt does not run on cpu"
    assert "fp16" in left_out["PyTorch fp16"]


def test_our_own_gpu_run_is_not_repeated_on_a_cpu() -> None:
    config, left_out = claims.configuration(whole("own-h200"), "cpu", None)
    assert config is None
    assert set(left_out.values()) == {"published for cuda, DEVICE=cuda measures it"}


def test_context_is_not_measured() -> None:
    assert claims.configuration(claims.read("mlperf-context", FOLDER), "cuda", None) == (None, {})


def test_the_throughput_of_an_h200_is_tried_on_a_gpu_alone() -> None:
    claim = claims.read("mlperf-h200-resnet50", FOLDER)
    assert claims.configuration(claim, "cpu", None)[0] is None
    config, left_out = claims.configuration(claim, "cuda", None)
    assert config is not None
    assert left_out == {}
    (case,) = make_plan(config, "", "").cases
    assert (case.precision, case.batch_size, case.mode, case.boundary) == ("int8", 2048, "offline", "compute")


def test_a_plan_of_a_claim_survives_its_way_through_a_file() -> None:
    config, _ = claims.configuration(whole("own-h200"), "cuda", None)
    assert config is not None
    again = claims.Config.model_validate_json(config.model_dump_json(exclude_defaults=True), strict=True)
    assert make_plan(again, "", "") == make_plan(config, "", "")


# --- our own runs -------------------------------------------------------------------------------------------------


def test_the_values_of_our_own_runs_are_read_and_not_typed() -> None:
    summary = store.load(EPYC / "summary.json", Summary, "git")
    plan = store.load(EPYC / "plan.json", Plan, "git")
    claim = whole("own-epyc")
    rows = {row.case_id: row for row in summary.rows}
    assert "values" not in (FOLDER / "own-epyc.yaml").read_text().split("\n", 1)[1]
    for value in claim.values:
        latency = rows[value.name].latency_ns
        assert latency is not None
        assert latency.ci95 is not None
        assert value.ci95_ms is not None
        assert value.latency_ms == latency.median / 1e6
        assert (value.ci95_ms.low, value.ci95_ms.high) == (latency.ci95.low / 1e6, latency.ci95.high / 1e6)
        assert rows[value.name].grade in ("A", "B")
    assert claim.measurement == plan.measurement
    config, _ = claims.configuration(claim, "cpu", None)
    assert config is not None
    planned = {case.case_id for case in make_plan(config, "", "").cases}
    assert planned == {value.name for value in claim.values}


# --- refused contents of a file ----------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "title": "a claim",
    "source": {"title": "a paper"},
    "cards": ["a card"],
    "models": [{"name": "resnet50"}],
    "common": {"model": "resnet50", "precision": "fp32", "batch_size": 1},
    "values": [{"name": "eager", "backend": "torch-eager", "latency_ms": 1.0}],
}


def test_common_belongs_to_every_value_that_does_not_say_it() -> None:
    value = {"name": "more", "backend": "torch-eager", "latency_ms": 4.0, "batch_size": 8}
    claim = claims.parse({**GOOD, "values": [*GOOD["values"], value]}, "x")
    assert [entry.batch_size for entry in claim.values] == [1, 8]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"titel": "x"}, "titel: unknown key"),
        ({"common": ["fp32"]}, "common: not a mapping"),
        ({"values": []}, "give either values or results"),
        ({"results": "results/x"}, "give either values or results"),
        ({"cards": []}, "cards: "),
        ({"values": [{**GOOD["values"][0], "items_per_s": 2.0}]}, "values[0]: give either latency_ms or items_per_s"),
        ({"values": [{**GOOD["values"][0], "latency_ms": 0}]}, "values[0].latency_ms: "),
        ({"values": [{**GOOD["values"][0], "latency_ms": float("nan")}]}, "values[0].latency_ms: "),
        ({"values": [{**GOOD["values"][0], "latency_ms": "1.0"}]}, "values[0].latency_ms: "),
        ({"values": [{**GOOD["values"][0], "precision": "fp64"}]}, "values[0].precision: "),
        ({"values": [{**GOOD["values"][0], "speed": 1}]}, "values[0].speed: unknown key"),
        ({"values": [*GOOD["values"], *GOOD["values"]]}, "two values have the same name"),
        ({"values": ["eager"]}, "values[0]: "),
        ({"models": [{"name": "resnet18"}]}, "resnet50 is not in models"),
        ({"ratios": [{"faster": "eager", "than": "ort"}]}, "no value is named ort"),
        ({"orders": [["eager"]]}, "orders[0]: "),
        ({"orders": [["eager", "ort"]]}, "no value is named ort"),
        ({"orders": [["eager", "eager"]]}, "a value is compared with itself"),
        ({"ratios": [{"faster": "eager", "than": "eager"}]}, "a value is compared with itself"),
        ({"values": [{**GOOD["values"][0], "ci95_ms": {"low": 2.0, "high": 1.0}}]}, "ci95_ms does not contain"),
        ({"values": [{**GOOD["values"][0], "ci95_ms": {"low": 200.0, "high": 300.0}}]}, "ci95_ms does not contain"),
        ({"substitutes": {"tpu": {}}}, "substitutes.tpu"),
        ({"measurement": {"rounds": 0}}, "measurement.rounds: "),
    ],
)
def test_a_mistake_is_named_with_its_place(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        claims.parse({**GOOD, **changes}, "claim.yaml")
    assert caught.value.problem.startswith("claim.yaml: ")
    assert said in caught.value.problem
    assert caught.value.hint


@pytest.mark.parametrize("path", ["/etc", "../elsewhere", "results/../../elsewhere"])
def test_a_results_folder_lies_below_this_one(path: str) -> None:
    data = {"title": "x", "source": {"title": "x"}, "cards": ["x"], "results": path}
    with pytest.raises(ConfigError, match="no path below a folder"):
        claims.parse(data, "claim.yaml")


def test_a_missing_results_folder_is_reported() -> None:
    data = {"title": "x", "source": {"title": "x"}, "cards": ["x"], "results": "results/published/none"}
    with pytest.raises(MissingInputError, match="does not exist"):
        claims.published_run(claims.parse(data, "claim.yaml"))


@pytest.mark.parametrize("name", ["timm", "../quickstart", "/etc/passwd", "", "--help"])
def test_only_a_listed_name_is_opened(name: str) -> None:
    with pytest.raises(UsageError, match="Unknown claim") as caught:
        claims.read(name, FOLDER)
    assert "CLAIM=list" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x]\nb: [*a, *a]\n",
        "title: x\ntitle: y\n",
        "!!python/object/apply:os.system ['true']\n",
        "- a list\n",
        "title: [unclosed\n",
        "a" * 1_000_001,
    ],
)
def test_hostile_yaml_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError):
        claims.read("bad", tmp_path)


def test_json_is_yaml_here_too(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(json.dumps(GOOD))
    assert claims.read("good", tmp_path).title == "a claim"
