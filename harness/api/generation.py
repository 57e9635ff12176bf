"""Generation from Python: the stages of `make generate` for one model, and their rows as a typed result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.api.results import Result
from harness.api.runs import Run, folder_of
from harness.core import cli
from harness.core.layout import Models
from harness.core.schemas import Device, GenerationRow, Precision, Summary
from harness.reporting.figures import CSV_UNITS, GENERATION, columns
from harness.reporting.prose.generation_text import generation_section, terminal_generation
from harness.reporting.table import DocumentBlock
from harness.zoo import model_info
from harness.zoo.sources import with_prefix

DEFAULT_BACKENDS = ("torch-eager",)


@dataclass(frozen=True, repr=False)
class Generation(Result):
    """The rows of one call of `generate`."""

    summary: Summary

    @property
    def rows(self) -> tuple[GenerationRow, ...]:
        """A row for each backend, precision, batch size and length, measured or not."""
        return self.summary.generations

    def blocks(self) -> Sequence[DocumentBlock]:
        """Conditions, tables, flags, and what was not measured."""
        return generation_section(self.summary)

    def records(self) -> list[dict[str, Any]]:
        """A flat dictionary per row, with units in the names as in the CSV file."""
        named = ("case_id", "model", "backend", "setting", "precision", "batch_size", "prompt_length", "new_tokens")
        return [
            {
                **{name: getattr(row, name) for name in (*named, "status", "grade", "reason")},
                **columns(GENERATION, row, CSV_UNITS),
            }
            for row in self.rows
        ]

    def __str__(self) -> str:
        return terminal_generation(self.summary) or self.markdown()


@cli.in_words_of("api")
def generate(
    model: str,
    *,
    prompts: Sequence[int] = (128,),
    tokens: Sequence[int] = (64,),
    batches: Sequence[int] = (1,),
    backends: Sequence[str] = DEFAULT_BACKENDS,
    precisions: Sequence[Precision] = ("fp32",),
    settings: Sequence[str] | None = None,
    device: Device = "cpu",
    weights: str | None = None,
    rounds: int = 3,
    requests: int = 8,
    measurement: Mapping[str, Any] | None = None,
    folder: str | Path = "inferometer",
    force: bool = False,
) -> Generation:
    """Measure how fast a model writes, through the stages of `make generate`, in separate processes.

    model: `smollm2-135m`, `gpt2`, `t5-small`, `llama-1b`, `hf:…` or a folder saved by save_pretrained. prompts, tokens:
        lengths. rounds: fresh processes per case; requests: the fewest timed requests of each. measurement, folder,
        force: as of ModelProfiler. Raises the InferometerError of the stage that refused; a case that failed is a row.
    """
    name = with_prefix(model)
    block = {
        "backends": list(backends),
        "precisions": list(precisions),
        "batch_sizes": list(batches),
        "prompt_lengths": list(prompts),
        "new_tokens": list(tokens),
        **({} if settings is None else {"settings": list(settings)}),
    }
    wanted = {
        "device": device,
        "models": [{"name": name, **({} if weights is None else {"weights": weights})}],
        "generation": [block],
        "generating": {"requests": requests},
        "measurement": {**(measurement or {}), "rounds": rounds},
    }
    label = f"generate-{model_info(name).slug}"
    root = Path(folder)
    run = Run(folder_of(root, label, wanted), Models(root / "models"), force, None)
    return Generation(run.results.root, run.generate(wanted))
