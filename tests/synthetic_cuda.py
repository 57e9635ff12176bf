"""A synthetic run on an H100 as the published one will be: three models, five backends, four batches, tried settings.

Latencies span 0.3 to 60 ms; one setting failed, one is void, the transfer boundary is measured for one backend.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from harness.core.schemas import (
    Artifact,
    Block,
    Case,
    Clock,
    ColdCosts,
    DeviceSamples,
    Energy,
    EngineRecord,
    EngineRequest,
    Environment,
    ExportRecord,
    Failed,
    Gpu,
    GpuSample,
    Measured,
    OnnxArtifact,
    Placement,
    Precision,
    Roof,
    Row,
    ShapeProfile,
    Summary,
    Unavailable,
    Usage,
    Work,
)
from tests.synthetic_results import (
    CALIBRATION,
    ENVIRONMENT_ID,
    FakeModel,
    Synthetic,
    environment,
    export_record,
    failed,
    latencies,
    measured,
    parity_of,
    sha,
    usage_of,
    usage_sample,
)

BATCHES = (1, 8, 32, 128)
RESNET = FakeModel("resnet50", "image", "seeded", 28e3, 350e3)
BERT = FakeModel("bert-base", "text", "seeded", 57e3, 560e3, (128,))
MINILM = FakeModel("minilm-l6", "text", "pretrained", 9e3, 210e3, (128,))
MODELS = (RESNET, BERT, MINILM)
GFLOP = {"resnet50": 8.2, "bert-base": 22.4, "minilm-l6": 2.9}
PARAMETERS = {"resnet50": 25_557_032, "bert-base": 85_000_000, "minilm-l6": 10_600_000}

SETTINGS: dict[str, dict[str, float]] = {
    "torch-eager": {"default": 1.55},
    "torch-script": {"default": 1.42},
    "torch-compile": {"reduce-overhead": 1.12},
    "onnxruntime": {"graph": 1.30, "nhwc+graph": 1.18, "fused+graph": 1.05},
    "tensorrt": {"static+graph": 1.0, "dynamic+graph": 1.04, "static+graph+fp16io": 0.98},
}
"""Device time by backend and setting, relative to the model's own; the smallest of a backend is taken."""
KINDS = {"nhwc+graph": "image", "static+graph+fp16io": "image", "fused+graph": "text"}
LAUNCHES_NS = {"torch-eager": 2.6e6, "torch-script": 1.7e6}
"""Host time to submit a pass without a CUDA graph, whatever the batch."""
CARD = Gpu(
    name="NVIDIA H100 80GB HBM3",
    uuid="GPU-5ca1ab1e-0000-0000-0000-000000000001",
    sm="9.0",
    memory_bytes=80 << 30,
    driver="570.124.06",
    cuda="12.8",
    vbios="96.00.89.00.01",
    persistence="on",
    ecc="on",
    mig="off",
    power_limit_w=700.0,
    power_limit_default_w=700.0,
    max_sm_mhz=1980,
    max_memory_mhz=2619,
    pcie="gen5 x16",
    bar1_bytes=Unavailable(unavailable="NVML: Not Supported"),
)
ROOF = Roof(
    created_at="2026-11-27T09:00:00+00:00",
    environment_id=ENVIRONMENT_ID,
    device=CARD.name,
    uuid=CARD.uuid,
    flops={"fp32": 51e12, "fp16": 710e12},
    copy_bytes_per_s=2.9e12,
    launch_ns=1_150.0,
    h2d_bytes_per_s=55e9,
    d2h_bytes_per_s=54e9,
)
LOST = "minilm-l6-onnxruntime-cuda-fp16-b8-s128-graph"
VOID = "bert-base-tensorrt-cuda-fp16-b128-s128-dynamic+graph"


def cases() -> list[Case]:
    """A tuned matrix of three models and five backends, and four cases of the transfer boundary."""
    results = [
        gpu_case(model, backend, "fp16", batch, setting, tuned=len(_settings(model, backend)) > 1)
        for model in MODELS
        for batch in BATCHES
        for backend in SETTINGS
        for setting in _settings(model, backend)
    ]
    results += [gpu_case(model, "torch-eager", "fp32", batch, "default") for model in MODELS for batch in BATCHES]
    results += [gpu_case(MINILM, "noop", "fp32", 1, "default")]
    return results + [
        gpu_case(RESNET, "tensorrt", "fp16", batch, "static+graph", boundary="transfer") for batch in BATCHES
    ]


def gpu_case(model: FakeModel, backend: str, precision: Precision, batch: int, setting: str, **more: Any) -> Case:
    """A case with a readable id."""
    length = model.sequence_lengths[0]
    parts = [model.name, backend, "cuda", precision, f"b{batch}", *([f"s{length}"] if length else [])]
    parts += [more["boundary"]] if "boundary" in more else []
    parts += [setting] if setting != "default" else []
    fields = {"boundary": "compute", "mode": "sync", "device": "cuda", "weights": model.weights, **more}
    return Case(
        case_id="-".join(parts),
        model=model.name,
        slug=model.name,
        backend=backend,
        precision=precision,
        batch_size=batch,
        sequence_length=length,
        setting=setting,
        **fields,
    )


def _settings(model: FakeModel, backend: str) -> dict[str, float]:
    return {name: factor for name, factor in SETTINGS[backend].items() if KINDS.get(name, model.kind) == model.kind}


def device_ns(model: FakeModel, case: Case) -> float:
    """Device time of one batch, copies left out."""
    if case.backend in CALIBRATION:
        return 1_500.0
    slower = 6.5 if case.precision == "fp32" else 1.0
    return SETTINGS[case.backend][case.setting] * (model.overhead_ns + slower * model.item_ns * case.batch_size)


def on_gpu(case: Case, record: Measured) -> Measured | Failed | None:
    """The record with a GPU's times; None for further rounds of a setting that round 1 did not choose."""
    model = next(model for model in MODELS if model.name == case.model)
    if case.case_id == LOST:
        return failed(case, record.round, phase="warm-up", error="CUDA out of memory", hint="Try batch 4.")
    # Wrong outputs neither win nor lose: such a setting gets all rounds.
    sound = case.tuned and case.case_id != VOID
    best = min(_settings(model, case.backend).values()) if sound else 0
    if record.round > 1 and sound and SETTINGS[case.backend][case.setting] > best:
        return None
    return measured(case, model, record.round, 40, **_changes(case, model, record.round))


def _changes(case: Case, model: FakeModel, round_number: int) -> dict[str, Any]:
    rng = np.random.default_rng([round_number, *case.case_id.encode()[-8:]])
    compute = latencies(rng, device_ns(model, case), 150) // 4 * 4
    copied = case.boundary == "transfer"
    h2d = np.full(150, int(case.batch_size * 602_112 / 55)) if copied else np.zeros(0, dtype=np.int64)
    d2h = np.full(150, int(6_000 + case.batch_size * 4_000 / 54)) if copied else np.zeros(0, dtype=np.int64)
    device = compute + h2d + d2h if copied else compute
    launches = int(LAUNCHES_NS.get(case.backend, 9_000))
    host = np.maximum(device, launches) + 11_000
    void = case.case_id == VOID
    far = 0.3 if void else (3.4e-7 if case.precision == "fp32" else 9e-4)
    parity = parity_of(case, model, relative_l2=far, cosine=1 - far**2 / 2)
    plain = case.backend in CALIBRATION
    compile_s = {"torch-compile": 41.0, "torch-script": 2.2}.get(case.backend)
    return {
        "artifacts": {} if plain else _artifacts(case, model),
        "latency_ns": tuple(map(int, host)),
        "warmup_ns": tuple(map(int, host[:10])),
        "blocks": tuple(Block(iterations=len(part), wall_ns=int(part.sum())) for part in np.array_split(host, 5)),
        "device": DeviceSamples(
            clock=Clock(name="CUDA events", resolution_ns=500.0, overhead_ns=1_480),
            device_ns=tuple(map(int, device)),
            enqueue_ns=(launches,) * 150,
            h2d_ns=tuple(map(int, h2d)),
            compute_ns=tuple(map(int, compute)) if copied else (),
            d2h_ns=tuple(map(int, d2h)),
        ),
        "parity_before": None if plain else parity,
        "parity_timed": None if plain else parity,
        "placement": Placement(
            device="cuda:0",
            precision=case.precision,
            provider=case.backend,
            settings={"graph": "graph" in case.setting},
            dtype_census={"float16": 100},
        ),
        "cold_ns": ColdCosts(
            load=int(1.1e9),
            compile=None if compile_s is None else int(compile_s * 1e9),
            compile_cached=None if compile_s is None else False,
            first_inference=int(3 * host[0]),
        ),
    }


def _artifacts(case: Case, model: FakeModel) -> dict[str, str]:
    if case.backend == "tensorrt":
        name = engine_name(case.setting, case.batch_size)
        return {f"engines/{name}.plan": sha(f"{model.name} {name}")}
    if case.backend == "onnxruntime":
        file = "model-fp16-fused.onnx" if "fused" in case.setting else "model-fp16.onnx"
        return {file: sha(f"{model.name} {file}")}
    return {"weights.safetensors": sha(f"{model.name} weights")}


def engine_name(setting: str, batch: int) -> str:
    """As build_engine names them: the precision, and the batch where an engine takes no other."""
    ends = "-fp16io" if "fp16io" in setting else ""
    return f"fp16-{'dynamic' if 'dynamic' in setting else f'b{batch}'}{ends}"


def gpu_export(model: FakeModel) -> ExportRecord:
    """Weights, fp16 ONNX and its fused form, and the counted work."""
    plain = export_record(model)
    files = {name: _onnx(model, f"model-{name}.onnx") for name in ("fp16", "fp16-fused")}
    length = model.sequence_lengths[0]
    work = Work(
        sequence_length=length,
        flops_per_item=int(GFLOP[model.name] * 1e9),
        parameters=PARAMETERS[model.name],
        input_bytes_per_item=602_112 if length is None else 3 * 8 * length,
        output_elements_per_item=1_000 if length is None else 384 * length,
    )
    return plain.model_copy(
        update={
            "onnx": {**plain.onnx, "fp16": files["fp16"]},
            "onnx_variants": {"fp16-fused": files["fp16-fused"]},
            "work": (work,),
            "seconds": {**plain.seconds, "onnx-fp16": 2.5},
        }
    )


def _onnx(model: FakeModel, path: str) -> OnnxArtifact:
    size = 2 * PARAMETERS[model.name]
    census = {"float16": PARAMETERS[model.name]}
    return OnnxArtifact(
        path=path,
        sha256=sha(f"{model.name} {path}"),
        size_bytes=size,
        exporter="torch.onnx",
        opset=17,
        dtype_census=census,
    )


def engines_of(model: FakeModel) -> list[EngineRecord]:
    """One engine for all batches, and one for each."""
    settings = _settings(model, "tensorrt")
    results = {engine_name(setting, batch): (setting, batch) for setting in settings for batch in BATCHES}
    return [_engine(model, name, "dynamic" in setting, batch) for name, (setting, batch) in results.items()]


def _engine(model: FakeModel, name: str, dynamic: bool, batch: int) -> EngineRecord:
    rest = (3, 224, 224) if model.sequence_lengths[0] is None else (128,)
    low, best, high = (1, 32, 128) if dynamic else (batch,) * 3
    profile = ShapeProfile(minimum=(low, *rest), optimum=(best, *rest), maximum=(high, *rest))
    names = ("input",) if model.kind == "image" else ("input_ids", "attention_mask")
    return EngineRecord(
        key=sha(f"{model.name} {name}")[:12],
        request=EngineRequest(
            onnx="model-fp16.onnx",
            onnx_sha256=sha(f"{model.name} model-fp16.onnx"),
            precision="fp16",
            profiles=dict.fromkeys(names, profile),
            dynamic=dynamic,
        ),
        tensorrt="8.6.0",
        gpu=CARD.name,
        sm=CARD.sm,
        driver=CARD.driver,
        engine=Artifact(
            path=f"engines/{name}.plan",
            sha256=sha(f"{model.name} {name}"),
            size_bytes=int(2.1 * PARAMETERS[model.name]) + batch,
        ),
        build_s=38.0 + batch / 10,
        parity=parity_of(gpu_case(model, "tensorrt", "fp16", batch, "static+graph"), model),
        kept_fp32=() if model.kind == "image" else tuple(f"/encoder/layer.{n}/LayerNorm" for n in range(5)),
        layers=64,
        precisions={"fp16": 60, "fp32": 4},
        timing_cache_sha256=None,
        builder={"optimization level": "5", "workspace": "8 GiB"},
    )


def gpu_usage(case_id: str, round_number: int) -> Usage:
    """A quiet host, and a card at a constant clock."""
    card = GpuSample(
        sm_mhz=1980,
        memory_mhz=2619,
        temperature_c=41,
        power_w=412.0,
        utilisation_percent=97,
        memory_used_bytes=3 << 30,
        reasons=(),
        other_processes=0,
    )
    samples = [
        usage_sample(index * 250_000_000, "load" if index <= 2 else "measure", cpu_percent=99.0, gpu=card)
        for index in range(1, 11)
    ]
    return usage_of(case_id, round_number, samples, gpu_memory_before_bytes=600 << 20)


def gpu_environment() -> Environment:
    """The host of an H100."""
    libraries = {"torch": "2.14.1", "onnxruntime-gpu": "1.31.1", "tensorrt": "8.6.0", "numpy": "2.4.6"}
    return environment(threads=16, libraries=libraries).model_copy(update={"gpu": CARD})


def cuda_run() -> Synthetic:
    """The run, for its records."""
    return Synthetic(
        models=MODELS,
        cases=cases(),
        samples=40,
        change=on_gpu,
        watch=gpu_usage,
        environments={ENVIRONMENT_ID: gpu_environment()},
        device="cuda",
        export=gpu_export,
        engines={model.name: engines_of(model) for model in MODELS},
        roof=ROOF,
    )


@cache
def cuda_summary() -> Summary:
    """Its summary, made once."""
    return cuda_run().summary()


def metered(row: Row, joules: float = 2.5) -> Energy:
    return Energy(
        case_id=row.case_id,
        settings_id="p",
        created_at="2026-11-28T00:00:00+00:00",
        environment_id=None,
        gpu="A GPU",
        uuid="GPU-1",
        batch_size=row.batch_size,
        idle_w=70.0,
        idle_ns=5_000_000_000,
        energy_j=3000.0,
        window_ns=6_000_000_000,
        busy_ns=5_900_000_000,
        batches=round(2580 / joules),
        joules_per_inference=joules,
        joules_per_item=joules / row.batch_size,
    )
