"""Where fp8 loses what its products gain: GPU time by kernel, BERT-base in torch.compile (decision 10).

    python -m benchmarks.fp8_kernels measure fp8 --batch 128 --out fp8.json
    python -m benchmarks.fp8_kernels table fp16.json fp8.json

Needs a GPU of compute capability 8.9 or higher, torch and transformers. Random weights, 128 tokens, reduce-overhead
with frozen weights.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from harness.backends.torch import fp8

TOKENS = 128
WARM_UP, TIMED, PROFILED = 5, 50, 10
KINDS = {
    "elementwise with the scales of fp8": "triton.*amax",
    "elementwise": "triton",
    "attention": "fmha|flash|attention",
    "products": "gemm|cutlass|nvjet|xmma|cublas",
    "copies": "mem(cpy|set)",
}
"""By the name of the kernel; the first that matches."""


def main() -> None:
    """Measure one precision, or print the table of several."""
    parser = argparse.ArgumentParser(description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    entry = actions.add_parser("measure")
    entry.add_argument("precision", choices=["fp16", "fp8"])
    entry.add_argument("--batch", type=int, default=128)
    entry.add_argument("--out", type=Path, required=True)
    actions.add_parser("table").add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    if given.action == "measure":
        given.out.write_text(json.dumps(measure(given.precision, given.batch), indent=1))
    else:
        print(table([json.loads(file.read_text()) for file in given.files]))


def measure(precision: str, batch: int) -> dict[str, Any]:
    """Median milliseconds of a pass by events, and by kernel the microseconds and launches of a pass."""
    call, inputs = compiled(precision, batch)
    with torch.inference_mode():
        for _ in range(WARM_UP):
            call(*inputs)
        torch.cuda.synchronize()
        passes = [elapsed_ms(call, inputs) for _ in range(TIMED)]
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            for _ in range(PROFILED):
                call(*inputs)
            torch.cuda.synchronize()
    times: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for event in trace.events():
        if str(event.device_type).endswith("CUDA"):
            times[event.name] += event.time_range.elapsed_us()
            launches[event.name] += 1
    return {
        "precision": precision,
        "batch": batch,
        "median_ms": median(passes),
        "kernels_us": sum(times.values()) / PROFILED,
        "kernels": {name: [time / PROFILED, launches[name] / PROFILED] for name, time in times.most_common()},
    }


def compiled(precision: str, batch: int) -> tuple[Any, tuple[torch.Tensor, torch.Tensor]]:
    """The encoder, compiled, and its inputs."""
    from transformers import BertConfig, BertModel  # noqa: PLC0415 - not for `table`

    torch.manual_seed(1)
    encoder = Encoder(BertModel(BertConfig())).eval().requires_grad_(False)
    if precision == "fp8":
        module = fp8.in_fp8(encoder, lambda part, dtype: part.to("cuda").to(dtype), torch.bfloat16)
    else:
        module = encoder.to("cuda").to(torch.float16)
    tokens = torch.randint(0, 30000, (batch, TOKENS), device="cuda")
    torch._inductor.config.freezing = True
    return torch.compile(module, dynamic=False, mode="reduce-overhead"), (tokens, torch.ones_like(tokens))


class Encoder(torch.nn.Module):
    """BERT's last hidden state alone."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> Any:
        """Of tokens and mask, both (batch, tokens)."""
        return self.model(input_ids=tokens, attention_mask=mask)[0]


def elapsed_ms(call: Any, inputs: tuple[torch.Tensor, ...]) -> float:
    """Of one pass, by a pair of events."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    call(*inputs)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def table(measured: list[dict[str, Any]]) -> str:
    """Microseconds of a pass by kind of kernel, a column for each measurement."""
    sums: list[Counter[str]] = []
    for each in measured:
        total: Counter[str] = Counter()
        for name, (time, _) in each["kernels"].items():
            total[kind_of(name)] += time
        sums.append(total)
    rows = [f"| {kind} | " + " | ".join(f"{total[kind]:.0f}" for total in sums) + " |" for kind in [*KINDS, "others"]]
    rows.append("| together | " + " | ".join(f"{each['kernels_us']:.0f}" for each in measured) + " |")
    head = " | ".join(f"{each['precision']}, batch {each['batch']}" for each in measured)
    return f"| kernels, µs a pass | {head} |\n|---|" + "---|" * len(measured) + "\n" + "\n".join(rows)


def kind_of(kernel: str) -> str:
    """Of KINDS, or "others"."""
    matches = (kind for kind, pattern in KINDS.items() if re.search(pattern, kernel, re.I))
    return next(matches, "others")


if __name__ == "__main__":
    main()
