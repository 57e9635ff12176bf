"""Records of generation made by hand."""

from __future__ import annotations

from typing import Any

from harness.core.schemas import (
    Artifact,
    Clock,
    ColdCosts,
    CpuUse,
    DecoderShape,
    Generated,
    GeneratedRequest,
    GenerationCase,
    GenerationExport,
    Measurement,
    Memory,
    Placement,
    Plan,
    PromptSet,
    ReportOptions,
    ReuseCheck,
    TokenParity,
    Tolerance,
)

CASE = GenerationCase(
    case_id="tiny-torch-eager-cpu-fp32-b2-p5-n4",
    model="tiny",
    slug="tiny",
    backend="torch-eager",
    device="cpu",
    precision="fp32",
    batch_size=2,
    prompt_length=5,
    new_tokens=4,
    weights="seeded",
)
PLAN = Plan(
    plan_id="p",
    settings_id="s",
    config="c.yaml",
    config_sha256="0" * 64,
    device="cpu",
    models=(),
    measurement=Measurement(rounds=2),
    gates={"fp32": Tolerance(relative_l2=1e-4)},
    report=ReportOptions(),
    cases=(),
    generations=(CASE,),
)
_FILE = Artifact(path="f", sha256="0" * 64, size_bytes=1)
EXPORT = GenerationExport(
    request_sha256="r",
    folder="f",
    model="tiny",
    slug="tiny",
    weights="seeded",
    weight_source="random",
    shape=DecoderShape(kind="causal", layers=2, heads=4, kv_heads=2, head_dim=8, hidden=32, vocabulary=50, longest=64),
    parameters=1_500,
    read_parameters=1_000,
    module=_FILE,
    configuration=_FILE,
    sets=(
        PromptSet(
            prompt_length=5,
            new_tokens=4,
            samples=16,
            prompts=_FILE,
            reference=_FILE,
            referenced=2,
            source="seeded ids",
            real_text=False,
        ),
    ),
    versions={},
    seconds={},
)


def parity(**changes: Any) -> TokenParity:
    """Of a right decoder, with changes."""
    results = {
        "sequences": 2,
        "steps": 8,
        "max_abs": 1e-6,
        "relative_l2": 1e-6,
        "cosine": 1.0,
        "nonfinite": 0,
        "forced_agreement": 1.0,
        "free_sequences": 2,
        "free_equal": 2,
    }
    return TokenParity(**{**results, **changes})


def request(number: int, ttft: int = 1_000_000, steps: tuple[int, ...] = (100_000,) * 3) -> GeneratedRequest:
    """One request, TTFT and ITLs in ns."""
    start = number * 10_000_000
    instants = [start + ttft]
    for step in steps:
        instants.append(instants[-1] + step)
    tokens = tuple((1, 2, 3, 4)[: len(instants)] for _ in range(2))
    rows = (2 * number, 2 * number + 1)
    return GeneratedRequest(
        prompts=rows, prompts_sha256="0" * 64, start_ns=start, token_ns=tuple(instants), tokens=tokens
    )


def record(
    number: int, token_parity: TokenParity | None = None, case: GenerationCase = CASE, **changes: Any
) -> Generated:
    """The record of a round."""
    known: dict[str, Any] = {
        "case_id": case.case_id,
        "round": number,
        "settings_id": "s",
        "started_at": "2026-11-30T00:00:00+00:00",
        "environment_id": None,
        "artifacts": {"f": "0" * 64},
        "threads": 2,
        "clock": Clock(name="perf_counter_ns", resolution_ns=1, overhead_ns=40),
        "warmups": (request(0),),
        "requests": tuple(request(place) for place in range(8)),
        "steady": True,
        "stop": "requests",
        "cache_bytes": 7,
        "parity": token_parity or parity(),
        "reuse": ReuseCheck(compared=2, unequal=0, repeated_ns=(100, 102) * 6, fresh_ns=(101, 99) * 6),
        "placement": Placement(device="cpu", precision="fp32", provider="x", settings={}, dtype_census={}),
        "memory": Memory(peak_rss_bytes=1, baseline_rss_bytes=1),
        "cold_ns": ColdCosts(load=1, compile=None, compile_cached=None, first_inference=1),
        "cpu_use": CpuUse(
            wall_ns=75_000_000 + number,
            cpu_ns=75_000_000,
            waited_ns=0,
            threads=2,
            threads_ended=0,
            affinity_start=(0, 1),
            affinity_end=(0, 1),
            quota_start=None,
            quota_end=None,
            work_ns=(10, 10),
        ),
        "stops": None,
    }
    return Generated(**{**known, **changes})
