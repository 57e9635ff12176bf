"""Which engines a plan needs, what they are called, and which one serves a case."""

from __future__ import annotations

from typing import Any

import pytest

from harness.backends.tensorrt.engine_request import (
    EnginePlace,
    Options,
    engine_for,
    engine_key,
    engine_name,
    engine_requests,
    merged_options,
    onnx_source,
    serves,
)
from harness.core.errors import CaseError, MissingInputError
from harness.core.schemas import (
    Artifact,
    Case,
    EngineOptions,
    EngineRecord,
    EngineRequest,
    ExportRecord,
    OnnxArtifact,
    Parity,
    TensorSpec,
)

HERE = EnginePlace("8.6.0", "NVIDIA H100 80GB HBM3", "9.0", "580.159")
STATIC: Options = {"profiles": "static", "graph": True}
DYNAMIC: Options = {"profiles": "dynamic", "graph": True}


def case(batch: int, sequence: int | None = 128, **more: Any) -> Case:
    return Case.model_validate(
        {
            "case_id": f"bert-b{batch}-s{sequence}",
            "model": "bert-base",
            "slug": "bert-base",
            "backend": "tensorrt",
            "device": "cuda",
            "precision": "fp16",
            "batch_size": batch,
            "sequence_length": sequence,
            "boundary": "compute",
            "mode": "sync",
            "weights": "seeded",
            "setting": "static+graph",
            **more,
        }
    )


def onnx(sha256: str = "f32") -> OnnxArtifact:
    return OnnxArtifact(
        path="model.onnx", sha256=sha256, size_bytes=1, exporter="torchscript", opset=17, dtype_census={}
    )


def export(**more: Any) -> ExportRecord:
    fields: dict[str, Any] = {
        "request_sha256": "0",
        "model": "bert-base",
        "slug": "bert-base",
        "weights": "seeded",
        "weight_source": "seed",
        "kind": "text",
        "classifier": False,
        "parameters": 100,
        "inputs": tuple(
            TensorSpec(name=name, dtype="int64", shape=("batch", "sequence")) for name in ("input_ids", "mask")
        ),
        "outputs": (TensorSpec(name="hidden", dtype="float32", shape=("batch", "sequence", 8)),),
        "module": None,
        "onnx": {"fp32": onnx("plain")},
        "onnx_variants": {"fp32-opset17": onnx(), "fp16-opset17": onnx("f16")},
        "input_sets": (),
        "checks": (),
        "versions": {},
        "seconds": {},
    }
    return ExportRecord.model_validate({**fields, **more})


IMAGES = export(inputs=(TensorSpec(name="image", dtype="float32", shape=("batch", 3, 224, 224)),))


def asked(*cases: tuple[Case, Options], of: ExportRecord | None = None) -> list[EngineRequest]:
    return engine_requests(cases, of or export(), dict.fromkeys(("fp32", "tf32", "fp16", "bf16", "int8"), onnx()))


def record(request: EngineRequest, place: EnginePlace = HERE) -> EngineRecord:
    return EngineRecord(
        key=engine_key(request, place),
        request=request,
        tensorrt=place.tensorrt,
        gpu=place.gpu,
        sm=place.sm,
        driver=place.driver,
        engine=Artifact(path=f"engines/{engine_name(request)}.plan", sha256="0", size_bytes=1),
        build_s=1.0,
        parity=Parity(samples=0, relative_l2=None, max_abs=None, cosine=None, top1_agreement=None, nonfinite=0),
        kept_fp32=(),
        layers=1,
        precisions={},
        timing_cache_sha256=None,
        builder={},
    )


def test_a_static_engine_takes_exactly_one_shape() -> None:
    (result,) = asked((case(8), STATIC))
    assert set(result.profiles) == {"input_ids", "mask"}
    for profile in result.profiles.values():
        assert profile.minimum == profile.optimum == profile.maximum == (8, 128)
    assert engine_name(result).startswith("fp16-b8-s128-")


def test_a_dynamic_engine_spans_the_plan_and_is_tuned_for_batch_32_and_the_longest_sequence() -> None:
    (result,) = asked(*((case(batch, length), DYNAMIC) for batch in (128, 1, 32) for length in (384, 128)))
    assert result.profiles["mask"].minimum == (1, 128)
    assert result.profiles["mask"].optimum == (32, 384)
    assert result.profiles["mask"].maximum == (128, 384)
    assert engine_name(result).startswith("fp16-b1..128-s128..384-")


@pytest.mark.parametrize(("batches", "tuned"), [((1, 8), 8), ((1, 64), 1), ((16, 48), 16), ((64, 256), 64)])
def test_without_a_batch_of_32_the_nearest_is_tuned_for(batches: tuple[int, ...], tuned: int) -> None:
    (result,) = asked(*((case(batch, None), DYNAMIC) for batch in batches), of=IMAGES)
    assert result.profiles["image"].optimum == (tuned, 3, 224, 224)
    assert "-s" not in engine_name(result)


def test_a_setting_that_does_not_decide_an_engine_makes_no_second_one() -> None:
    plain: Options = {"profiles": "static"}
    assert len(asked((case(8), STATIC), (case(8), plain), (case(8, mode="offline"), STATIC))) == 1


@pytest.mark.parametrize("more", [{"fp16_io": True}, {"workspace_mib": 64}, {"optimization_level": 5}])
def test_a_setting_that_decides_an_engine_makes_another_one(more: dict[str, Any]) -> None:
    first, other = asked((case(8), STATIC), (case(8), {**STATIC, **more}))
    assert engine_name(first) != engine_name(other)


def test_options_reach_the_request_in_its_units() -> None:
    options: Options = {**STATIC, "workspace_mib": 64, "optimization_level": 0, "version_compatible": True}
    (result,) = asked((case(8), options))
    assert (result.workspace_bytes, result.optimization_level) == (64 << 20, 0)
    assert (result.version_compatible, result.hardware_compatible) == (True, False)


def test_a_dynamic_engine_spans_only_cases_of_its_precision() -> None:
    result = asked((case(1), DYNAMIC), (case(8, precision="fp32"), DYNAMIC))
    assert [engine_name(request).rpartition("-")[0] for request in result] == ["fp16-b1-s128", "fp32-b8-s128"]


@pytest.mark.parametrize("field", ["tensorrt", "gpu", "sm", "driver"])
def test_the_key_changes_with_the_place(field: str) -> None:
    (request,) = asked((case(8), STATIC))
    elsewhere = EnginePlace(**{**vars(HERE), field: "other"})
    assert engine_key(request, HERE) == engine_key(request, EnginePlace(**vars(HERE)))
    assert engine_key(request, HERE) != engine_key(request, elsewhere)


def test_the_engine_of_a_case_is_selected_from_others() -> None:
    cases = [(case(batch), options) for batch in (1, 8) for options in (STATIC, DYNAMIC)]
    records = [record(entry) for entry in asked(*cases)]
    assert len(records) == 3
    for wanted, options in cases:
        engine = engine_for(wanted, options, export(), records, HERE)
        assert engine.request.dynamic == (options is DYNAMIC)
        assert serves(engine.request, wanted, options)


def test_a_dynamic_engine_of_a_single_shape_still_serves_its_setting_and_no_other() -> None:
    (request,) = asked((case(8), DYNAMIC))
    assert engine_for(case(8), DYNAMIC, export(), [record(request)], HERE).request == request
    with pytest.raises(MissingInputError):
        engine_for(case(8), STATIC, export(), [record(request)], HERE)


@pytest.mark.parametrize(
    "other", [case(9), case(8, 129), case(8, precision="fp32")], ids=["batch", "sequence", "precision"]
)
@pytest.mark.parametrize("options", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_a_case_outside_of_every_engine_names_the_next_command(other: Case, options: Options) -> None:
    records = [record(entry) for entry in asked((case(1), options), (case(8), options))]
    with pytest.raises(MissingInputError, match=r"no (fp16|fp32) engine of bert-base for batch") as caught:
        engine_for(other, options, export(), records, HERE)
    assert "make engines" in caught.value.hint


def test_fp16_ends_are_never_taken_for_fp32_ones() -> None:
    (request,) = asked((case(8), {**STATIC, "fp16_io": True}))
    with pytest.raises(MissingInputError):
        engine_for(case(8), STATIC, export(), [record(request)], HERE)


@pytest.mark.parametrize("field", ["tensorrt", "gpu", "sm", "driver"])
def test_an_engine_of_another_place_is_refused_by_both_names(field: str) -> None:
    (request,) = asked((case(8), STATIC))
    foreign = record(request, EnginePlace(**{**vars(HERE), field: "theirs"}))
    with pytest.raises(CaseError, match=f"{field} theirs") as caught:
        engine_for(case(8), STATIC, export(), [foreign], HERE)
    assert getattr(HERE, field) in caught.value.problem
    assert engine_for(case(8), STATIC, export(), [record(request), foreign], HERE).gpu == HERE.gpu


def test_an_engine_of_an_earlier_export_is_not_used() -> None:
    (request,) = asked((case(8), STATIC))
    later = export(onnx_variants={"fp32-opset17": onnx("other weights")})
    with pytest.raises(MissingInputError, match="earlier export"):
        engine_for(case(8), STATIC, later, [record(request)], HERE)


def test_engines_are_built_from_the_older_operator_set_and_from_fp16_only_where_there_are_no_flags() -> None:
    assert onnx_source(export(), "fp16", strongly_typed=False).sha256 == "f32"
    assert onnx_source(export(), "fp16", strongly_typed=True).sha256 == "f16"
    assert onnx_source(export(), "tf32", strongly_typed=True).sha256 == "f32"
    with pytest.raises(MissingInputError, match="int8"):
        onnx_source(export(), "int8", strongly_typed=False)


@pytest.mark.parametrize("other", [{"optimization_level": 5}, {"workspace_mib": 256}, {"hardware_compatible": True}])
def test_an_engine_that_was_built_otherwise_does_not_serve(other: dict[str, Any]) -> None:
    engines = EngineOptions(**other)
    (plain,) = asked((case(8), STATIC))
    (otherwise,) = asked((case(8), merged_options(engines, STATIC)))
    assert engine_name(plain) != engine_name(otherwise)
    assert serves(otherwise, case(8), merged_options(engines, STATIC))
    assert not serves(plain, case(8), merged_options(engines, STATIC))
    assert not serves(otherwise, case(8), merged_options(EngineOptions(), STATIC))
