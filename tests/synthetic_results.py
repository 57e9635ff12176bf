"""Synthetic results folders and summaries: realistic numbers without a run, the same for the same seed.

Used by the tests of aggregate, report, tables and charts, and by benchmarks/scale.py.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.aggregation.join import Notes, join
from harness.aggregation.usage import JUDGED_PHASES
from harness.core import store
from harness.core.host.environment import environment_id
from harness.core.layout import Models, Results
from harness.core.schemas import (
    Artifact,
    Block,
    Case,
    Clock,
    ColdCosts,
    CpuRoof,
    CpuUse,
    Device,
    EngineRecord,
    Environment,
    ExportRecord,
    Failed,
    InputSet,
    Kind,
    Limits,
    Machine,
    Measured,
    Measurement,
    Memory,
    OnnxArtifact,
    OutputsTime,
    Parity,
    Placement,
    Plan,
    PlannedModel,
    Precision,
    Repeats,
    ReportOptions,
    Roof,
    Row,
    Software,
    Stops,
    Summary,
    TensorSpec,
    Tolerance,
    Unavailable,
    Usage,
    UsageSample,
    Weights,
)
from harness.planning.matrix import plan_id
from harness.reporting import ranking

PLAN_ID = "5f0c9a7e2b11"
SETTINGS_ID = "d41b8cd98f00"
CALIBRATION = frozenset({"noop"})

SPEED = {"torch-eager": 1.0, "torch-script": 0.62, "torch-compile": 0.47, "onnxruntime": 0.44, "openvino": 0.40}
"""Latency relative to torch-eager."""
COMPILE_S = {"torch-script": 1.1, "torch-compile": 24.0, "openvino": 0.9}


@dataclass(frozen=True)
class FakeModel:
    """A model of the synthetic plan: its kind and what one item takes in torch-eager."""

    name: str
    kind: Kind
    weights: Weights
    item_ns: float
    overhead_ns: float
    sequence_lengths: tuple[int | None, ...] = (None,)


MINILM = FakeModel("minilm-l6", "text", "pretrained", 5.4e6, 3.1e6, (32, 128))
EFFICIENTNET = FakeModel("efficientnet-lite0", "image", "pretrained", 14.0e6, 9.0e6)
RESNET = FakeModel("resnet50", "image", "seeded", 41.0e6, 6.0e6)
REALISTIC = (MINILM, EFFICIENTNET, RESNET)


def sha(text: str) -> str:
    """A sha256 in place of a file's."""
    return hashlib.sha256(text.encode()).hexdigest()


def environment(**changes: Any) -> Environment:
    """A two-core cloud machine; `cpu`, `threads` and `libraries` can be changed."""
    no_host = Unavailable(unavailable="the virtual machine does not show it")
    return Environment(
        machine=Machine(
            cpu=changes.get("cpu", "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"),
            architecture="x86_64",
            logical_cpus=2,
            physical_cores=1,
            sockets=1,
            numa_nodes=1,
            smt="on",
            microcode="0xffffffff",
            governor=no_host,
            turbo=no_host,
            max_frequency_mhz=no_host,
            cpu_features=("avx2", "avx512f", "avx512_bf16", "amx_bf16"),
            memory_bytes=16 << 30,
            hypervisor="kvm",
            os="Debian GNU/Linux 12",
            kernel="6.1.0-32-cloud-amd64",
        ),
        limits=Limits(
            affinity=(0, 1),
            cpu_quota=None,
            memory_limit_bytes=None,
            threads=changes.get("threads", 2),
            container=None,
            image=None,
        ),
        software=Software(
            python="CPython 3.11.2",
            inferometer="0.1.0",
            git_commit="0123abc",
            git_dirty=False,
            libraries=changes.get(
                "libraries", {"torch": "2.14.1", "onnxruntime": "1.31.1", "openvino": "2026.4.0", "numpy": "2.4.6"}
            ),
            build={"torch.parallel": "OpenMP"},
        ),
    )


ENVIRONMENT_ID = environment_id(environment())


def export_record(model: FakeModel) -> ExportRecord:
    """What export would have written for a model."""
    file = Artifact(path="weights.safetensors", sha256=sha(f"{model.name} weights"), size_bytes=90 << 20)
    inputs = [
        InputSet(
            sequence_length=length,
            samples=64,
            inputs=Artifact(path=f"inputs-{length}.npz", sha256=sha(f"{model.name} in {length}"), size_bytes=1 << 20),
            reference=Artifact(path=f"reference-{length}.npz", sha256=sha(f"{model.name} out"), size_bytes=1 << 18),
            source="64 sentences from the package's own text",
        )
        for length in model.sequence_lengths
    ]
    onnx = OnnxArtifact(
        path="model.onnx",
        sha256=sha(f"{model.name} onnx"),
        size_bytes=91 << 20,
        exporter="torch.onnx dynamo",
        opset=20,
        dtype_census={"float32": 22_713_216},
    )
    return ExportRecord(
        request_sha256=sha(model.name),
        model=model.name,
        slug=model.name,
        weights=model.weights,
        weight_source="package" if model.weights == "pretrained" else "random, seed 20261127",
        kind=model.kind,
        classifier=model.kind == "image",
        parameters=22_713_216,
        inputs=(TensorSpec(name="input", dtype="float32", shape=("batch", 3, 224, 224)),),
        outputs=(TensorSpec(name="output", dtype="float32", shape=("batch", 1000)),),
        module=file,
        onnx={"fp32": onnx},
        input_sets=tuple(inputs),
        checks=(),
        versions={"torch": "2.14.1", "onnx": "1.19.0"},
        seconds={"load": 1.2, "inputs": 0.4, "reference": 2.1, "onnx": 7.3, "check": 1.9},
    )


def case_of(
    model: FakeModel,
    backend: str,
    precision: Precision,
    batch_size: int,
    sequence_length: int | None = None,
    **more: Any,
) -> Case:
    """A case with a readable id."""
    tail = f"-s{sequence_length}" if sequence_length else ""
    return Case(
        case_id=f"{model.name}-{backend}-cpu-{precision}-b{batch_size}{tail}",
        model=model.name,
        slug=model.name,
        backend=backend,
        device="cpu",
        precision=precision,
        batch_size=batch_size,
        sequence_length=sequence_length,
        boundary="compute",
        mode="sync",
        weights=model.weights,
        **more,
    )


def plan_of(models: Sequence[FakeModel], cases: Sequence[Case], rounds: int = 3, device: Device = "cpu") -> Plan:
    """A plan over given cases with the usual gates."""
    return Plan(
        plan_id=PLAN_ID,
        settings_id=SETTINGS_ID,
        config="configs/synthetic.yaml",
        config_sha256=sha("config"),
        device=device,
        models=tuple(
            PlannedModel(
                name=model.name,
                slug=model.name,
                weights=model.weights,
                kind=model.kind,
                sequence_lengths=tuple(length for length in model.sequence_lengths if length),
                onnx_precisions=("fp32",),
            )
            for model in models
        ),
        measurement=Measurement(rounds=rounds),
        gates={
            "fp32": Tolerance(relative_l2=1e-4),
            "bf16": Tolerance(relative_l2=3e-2, top1_agreement=0.98),
            "fp16": Tolerance(relative_l2=1e-2, top1_agreement=0.99),
        },
        report=ReportOptions(title="Synthetic report"),
        cases=tuple(cases),
    )


def named(plan: Plan) -> Plan:
    """The plan with the id of its content, as plan writes it."""
    return plan.model_copy(update={"plan_id": plan_id(plan)})


def matrix(
    models: Sequence[FakeModel],
    backends: Sequence[str] = ("noop", *SPEED),
    batch_sizes: Sequence[int] = (1, 4, 16),
    bf16: Sequence[str] = ("torch-eager", "openvino", "onnxruntime"),
) -> list[Case]:
    """Every model × backend × batch × sequence length in fp32, and bf16 for some backends."""
    cases = []
    for model in models:
        shapes = [(batch, length) for length in model.sequence_lengths for batch in batch_sizes]
        for batch, length in shapes:
            cases += [case_of(model, backend, "fp32", batch, length) for backend in backends]
            cases += [_bf16_case(model, backend, batch, length) for backend in bf16 if backend in backends]
    return cases


def _bf16_case(model: FakeModel, backend: str, batch: int, length: int | None) -> Case:
    reason = "ONNX Runtime's CPU provider has no bf16 kernels" if backend == "onnxruntime" else None
    return case_of(model, backend, "bf16", batch, length, skip_reason=reason)


def true_latency_ns(model: FakeModel, case: Case) -> float:
    """What a case takes when nothing disturbs it."""
    if case.backend in CALIBRATION:
        return 180.0
    tokens = (case.sequence_length or 128) / 128
    faster = 0.45 if case.precision == "bf16" else 1.0
    speed = SPEED.get(case.backend, 0.3 + (int(sha(case.backend)[:4], 16) % 100) / 100)
    return speed * (model.overhead_ns + model.item_ns * case.batch_size * tokens * faster)


def latencies(rng: np.random.Generator, centre_ns: float, count: int, correlation: float = 0.5) -> np.ndarray[Any, Any]:
    """Latencies of one process: AR(1) noise of 1%, a right tail of stalls, its own offset of 0.5%."""
    shocks = rng.normal(size=count) * np.sqrt(1 - correlation**2)
    noise = np.empty(count)
    level = 0.0
    for index, shock in enumerate(shocks):
        level = correlation * level + shock
        noise[index] = level
    stalls = (rng.random(count) < 0.02) * rng.exponential(0.25, count)
    return np.rint(centre_ns * (1 + rng.normal() * 0.005) * (1 + 0.01 * noise + stalls)).astype(np.int64)


def measured(
    case: Case, model: FakeModel, round_number: int, samples: int | None = None, seed: int = 0, **changes: Any
) -> Measured:
    """A record of one round; any field can be changed."""
    rng = np.random.default_rng([seed, round_number, *hashlib.sha256(case.case_id.encode()).digest()[:8]])
    centre_ns = true_latency_ns(model, case)
    count = samples or int(np.clip(8e9 / centre_ns, 100, 700))
    values = latencies(rng, centre_ns, count)
    blocks = [Block(iterations=len(part), wall_ns=int(part.sum() * 1.01)) for part in np.array_split(values, 5)]
    calibration = case.backend in CALIBRATION
    parity = None if calibration else parity_of(case, model)
    onnx = case.backend in ("onnxruntime", "openvino")
    name, digest = (
        ("model.onnx", sha(f"{model.name} onnx")) if onnx else ("weights.safetensors", sha(f"{model.name} weights"))
    )
    compile_s = COMPILE_S.get(case.backend)
    fields: dict[str, Any] = {
        "case_id": case.case_id,
        "round": round_number,
        "settings_id": SETTINGS_ID,
        "started_at": f"2026-11-27T1{round_number}:{int(rng.integers(60)):02d}:00+00:00",
        "environment_id": ENVIRONMENT_ID,
        "artifacts": {} if calibration else {name: digest},
        "threads": 2,
        "clock": Clock(name="perf_counter_ns", resolution_ns=1.0, overhead_ns=41),
        "warmup_ns": tuple(int(value) for value in values[:20] * 1.2),
        "latency_ns": tuple(int(value) for value in values),
        "blocks": tuple(blocks),
        "steady": True,
        "stop": "converged",
        "parity_before": parity,
        "parity_timed": parity,
        "placement": Placement(
            device="cpu",
            precision=case.precision,
            provider=case.backend,
            settings={"threads": changes.get("threads", 2)},
            dtype_census={"float32": 100},
        ),
        "memory": Memory(peak_rss_bytes=int(6e8 + 3e7 * case.batch_size), baseline_rss_bytes=int(3e8)),
        "cold_ns": ColdCosts(
            load=int(2.5e8 * rng.uniform(0.9, 1.1)),
            compile=None if compile_s is None else int(compile_s * 1e9 * rng.uniform(0.9, 1.1)),
            compile_cached=None if compile_s is None else False,
            first_inference=int(centre_ns * 3),
        ),
    }
    fields |= changes
    # No two processes agree in every nanosecond.
    wall_ns, threads = window_ns(fields["blocks"]) + int(rng.integers(1_000_000)), fields["threads"]
    cpu_ns = int(0.98 * threads * wall_ns) - int(rng.integers(1_000_000))
    fields.setdefault("cpu_use", cpu_use(wall_ns, threads, cpu_ns=cpu_ns))
    fields.setdefault("stops", Stops(suspended_ns=0))
    if not calibration:
        fields.setdefault("repeats", repeats_of(centre_ns))
        fields.setdefault("outputs_time", OutputsTime(outputs_ns=(9_000, 9_200), copy_ns=(2_000, 2_100), arrays=1))
    return Measured(**fields)


def repeats_of(centre_ns: float, pairs: int = 16) -> Repeats:
    """New inputs that take as long as repeated ones, and change the answer."""
    steps = range(-pairs // 2, pairs // 2)
    return Repeats(
        fresh_ns=tuple(int(centre_ns * (1 + step / 1_000)) for step in steps),
        repeated_ns=tuple(int(centre_ns * (1 - step / 1_000)) for step in steps),
        compared=pairs,
    )


def slowed(record: Measured, factor: float) -> Measured:
    """The same process, had every inference taken so many times as long."""
    samples = tuple(int(value * factor) for value in record.latency_ns)
    blocks = tuple(block.model_copy(update={"wall_ns": math.ceil(block.wall_ns * factor)}) for block in record.blocks)
    return record.model_copy(
        update={"latency_ns": samples, "blocks": blocks, "cpu_use": cpu_use(window_ns(blocks), record.threads)}
    )


def window_ns(blocks: Sequence[Block]) -> int:
    """Warm-up and timed part of a process; never shorter than what the monitor needs."""
    blocks_ns = sum(block.wall_ns for block in blocks)
    return max(math.ceil(1.2 * blocks_ns), 2_000_000_000 + blocks_ns % 1_000_000)


def stretched(usage: Usage, record: Measured | Failed) -> Usage:
    """The monitor's record, had it watched this process for as long as that was warmed up and timed."""
    judged, before = 0, 0
    for sample in usage.samples:
        judged += (sample.at_ns - before) * (sample.phase in JUDGED_PHASES)
        before = sample.at_ns
    if not isinstance(record, Measured) or record.cpu_use is None or not judged:
        return usage
    factor = record.cpu_use.wall_ns / judged
    samples = tuple(sample.model_copy(update={"at_ns": round(sample.at_ns * factor)}) for sample in usage.samples)
    return usage.model_copy(update={"samples": samples, "interval_ns": round(usage.interval_ns * factor)})


def cpu_use(wall_ns: int = 3_000_000_000, threads: int = 2, **changes: Any) -> CpuUse:
    """A process that had its threads' CPUs for itself, at one clock."""
    fields: dict[str, Any] = {
        "wall_ns": wall_ns,
        "cpu_ns": int(0.98 * threads * wall_ns),
        "waited_ns": int(0.002 * threads * wall_ns),
        "threads": threads,
        "threads_ended": 0,
        "affinity_start": tuple(range(threads)),
        "affinity_end": tuple(range(threads)),
        "quota_start": None,
        "quota_end": None,
        "work_ns": (10_200, 10_180, 10_190),
    }
    return CpuUse(**{**fields, **changes})


def parity_of(case: Case, model: FakeModel, **changes: Any) -> Parity:
    """Outputs as near as the precision allows."""
    distance = 8e-3 if case.precision == "bf16" else (0.0 if case.backend == "torch-eager" else 3.4e-7)
    fields: dict[str, Any] = {
        "samples": 64,
        "relative_l2": distance,
        "max_abs": distance * 2,
        "cosine": 1 - distance**2,
        "top1_agreement": 1.0 if model.kind == "image" else None,
        "nonfinite": 0,
    }
    return Parity(**{**fields, **changes})


def failed(case: Case, round_number: int, **changes: Any) -> Failed:
    """A failed round."""
    fields: dict[str, Any] = {
        "case_id": case.case_id,
        "round": round_number,
        "settings_id": SETTINGS_ID,
        "started_at": "2026-11-27T10:00:00+00:00",
        "environment_id": ENVIRONMENT_ID,
        "error": "the process was killed (signal 9), most likely out of memory",
        "hint": "Use a smaller batch, or a machine with more memory.",
        "phase": "load",
        "stderr_tail": "Killed",
    }
    return Failed(**{**fields, **changes})


def usage_sample(at_ns: int, phase: str = "measure", **changes: Any) -> UsageSample:
    """A sample of a quiet machine with two CPUs, both of them busy with the case."""
    fields: dict[str, Any] = {
        "cpu_percent": 196.0,
        "others_percent": 1.5,
        "steal_percent": 0.0,
        "rss_bytes": 400 << 20,
        "major_faults": 0,
        "minor_faults": 25,
        "read_bytes": 0,
        "written_bytes": 4096,
        "frequency_mhz": None,
        "temperature_c": None,
        "throttled_periods": 0,
        "thermal_events": None,
    }
    return UsageSample(at_ns=at_ns, phase=phase, **{**fields, **changes})


def usage_of(case_id: str, round_number: int, samples: Sequence[UsageSample] = (), **changes: Any) -> Usage:
    """What the monitor saw of one round: half a second of loading, then two seconds timed."""
    usual = [usage_sample(index * 250_000_000, "load" if index <= 2 else "measure") for index in range(1, 11)]
    no_guest = "the virtual machine does not show it"
    fields: dict[str, Any] = {
        "case_id": case_id,
        "round": round_number,
        "settings_id": SETTINGS_ID,
        "interval_ns": 250_000_000,
        "samples": tuple(samples or usual),
        "pss_peak_bytes": 380 << 20,
        "unavailable": dict.fromkeys(("frequency_mhz", "temperature_c", "thermal_events"), no_guest),
        "monitor_cpu_ns": 4_000_000,
        "watched_ns": 2_500_000_000,
    }
    return Usage(**{**fields, **changes})


Change = Callable[[Case, Measured], Measured | Failed | None]
"""What happened to a round: another record, a failure, or nothing at all (None)."""


@dataclass
class Synthetic:
    """A plan and everything that a run of it would have left behind."""

    models: tuple[FakeModel, ...] = REALISTIC
    cases: list[Case] = field(default_factory=lambda: matrix(REALISTIC))
    rounds: int = 3
    samples: int | None = None
    change: Change = lambda _case, record: record
    watch: Callable[[str, int], Usage | None] = usage_of
    environments: dict[str, Environment] = field(default_factory=lambda: {ENVIRONMENT_ID: environment()})
    device: Device = "cpu"
    export: Callable[[FakeModel], ExportRecord] = export_record
    engines: Mapping[str, Sequence[EngineRecord]] = field(default_factory=dict)
    roof: Roof | CpuRoof | None = None

    @property
    def plan(self) -> Plan:
        """The plan over the cases."""
        return plan_of(self.models, self.cases, self.rounds, self.device)

    def records(self) -> Iterator[Measured | Failed]:
        """Every record, in the order of cases."""
        by_name = {model.name: model for model in self.models}
        for case in self.cases:
            for number in range(1, self.rounds + 1):
                if case.skip_reason is None:
                    record = self.change(case, measured(case, by_name[case.model], number, self.samples))
                    if record is not None:
                        yield record

    def summary(self) -> Summary:
        """The summary of all this, without touching a disk."""
        results = {(record.case_id, record.round): record for record in self.records()}
        exports = {model.name: self.export(model) for model in self.models}
        load = lambda case_id, number: results.get((case_id, number))  # noqa: E731

        def watch(case_id: str, number: int) -> Usage | None:
            usage = self.watch(case_id, number)
            return usage and stretched(usage, results[case_id, number])

        return join(
            self.plan,
            exports,
            self.environments,
            load,
            watch,
            calibration=CALIBRATION,
            notes=Notes(),
            created_at="2026-11-27T14:00:00+00:00",
            engines=self.engines,
            roof=self.roof,
        )

    def write(self, results: Path, models: Path) -> None:
        """Leave everything on disk as plan, export and run would."""
        files = Results(results)
        store.save(files.plan, named(self.plan))
        for model in self.models:
            store.save(Models(models).folder(model.name).record, self.export(model))
        for identity, result in self.environments.items():
            store.save(files.environment(identity), result)
        for record in self.records():
            store.save_raw(files.raw_file(record.case_id, record.round), record)
            usage = self.watch(record.case_id, record.round)
            if usage is not None:
                store.save(files.usage_file(record.case_id, record.round), stretched(usage, record), indent=None)


def eventful(case: Case, record: Measured) -> Measured | Failed | None:  # noqa: PLR0911 - a list of events
    """One of everything that can go wrong, for reports and tables."""
    name = case.case_id
    if name == "resnet50-torch-compile-cpu-fp32-b16":
        return failed(case, record.round)
    if name == "resnet50-openvino-cpu-fp32-b16" and record.round > 1:
        return None
    if name == "resnet50-torch-script-cpu-fp32-b16":
        return None
    if name == "efficientnet-lite0-torch-script-cpu-fp32-b4":
        parity = parity_of(case, EFFICIENTNET, relative_l2=0.021, cosine=0.9997)
        return record.model_copy(update={"parity_timed": parity})
    if name == "minilm-l6-openvino-cpu-fp32-b4-s128":
        return record.model_copy(update={"placement": record.placement.model_copy(update={"precision": "bf16"})})
    if name == "efficientnet-lite0-onnxruntime-cpu-fp32-b16":
        return record.model_copy(update={"steady": record.round == 1})
    if name == "minilm-l6-torch-script-cpu-fp32-b1-s32":
        return slowed(record, 1 + 0.06 * (record.round == 2))
    return record


def restless(case_id: str, round_number: int) -> Usage | None:
    """A monitor that saw a neighbour in one round of a case and in all of another, and missed a third."""
    if case_id == "efficientnet-lite0-openvino-cpu-fp32-b4":
        return None
    noisy = {"efficientnet-lite0-openvino-cpu-fp32-b16": {2}, "efficientnet-lite0-torch-script-cpu-fp32-b16": {1, 2, 3}}
    if round_number in noisy.get(case_id, ()):
        samples = [usage_sample(at * 250_000_000, cpu_percent=150.0, others_percent=48.0) for at in range(1, 9)]
        return usage_of(case_id, round_number, samples)
    return usage_of(case_id, round_number)


def many_rows(rows: int) -> Summary:
    """A summary of as many measured rows: one model with 10 backends and 20 batch sizes, under rows / 200 names."""
    model = FakeModel("model-000", "image", "pretrained", 1e6, 5e5)
    backends = ["torch-eager", *(f"backend-{index}" for index in range(1, 10))]
    cases = [case_of(model, backend, "fp32", batch) for batch in range(1, 21) for backend in backends]
    summary = Synthetic(models=(model,), cases=cases, rounds=3, samples=100).summary()
    names = [f"model-{index:03d}" for index in range(rows // len(cases))]
    exports = dict.fromkeys(names, summary.exports[model.name])
    return summary.model_copy(
        update={"rows": tuple(_under(name, row) for name in names for row in summary.rows), "exports": exports}
    )


def _under(name: str, row: Row) -> Row:
    """The same row of a model with another name."""
    baseline = row.speedup and row.speedup.model_copy(
        update={"baseline": row.speedup.baseline.replace(row.model, name)}
    )
    return row.model_copy(update={"model": name, "case_id": row.case_id.replace(row.model, name), "speedup": baseline})


def voided(row: Row) -> Row:
    """The row as aggregate leaves it: one that a test gave grade F has its figures in `void`."""
    return Row(**dict(row)) if row.grade == "F" else row


def with_baseline_grades(rows: Sequence[Row]) -> list[Row]:
    """Rows whose speedups name the grade that their baseline now has: for tests that change grades afterwards."""
    grades = {row.case_id: row.grade for row in rows}
    results = []
    for row in rows:
        speedup = row.speedup and row.speedup.model_copy(update={"baseline_grade": grades[row.speedup.baseline]})
        results.append(row.model_copy(update={"speedup": speedup}))
    return results


def rows_of(summary: Summary, model: str) -> list[Row]:
    return next(rows for key, rows in ranking.by_table(summary.rows) if key[0] == model)
