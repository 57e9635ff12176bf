"""The cases behind a load case: one of each batch size that the service prepares, or of its decoders (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from harness.backends import backend_info
from harness.core.layout import case_id
from harness.core.schemas import Case, GenerationCase, LoadCase
from harness.serving.load_case import sizes_of


def case_of(load: LoadCase, batch_size: int) -> Case:
    """The case of a deployment at one batch size, as a backend gets it: model only, one batch at a time."""
    usual = next(iter(backend_info(load.backend).settings_on(load.device)))
    way = "" if load.setting == usual else load.setting
    shape = batch_size, load.sequence_length
    return Case(
        case_id=case_id(load.slug, load.backend, load.device, load.precision, *shape, "compute", "sync", way),
        model=load.model,
        slug=load.slug,
        backend=load.backend,
        device=load.device,
        precision=load.precision,
        batch_size=batch_size,
        sequence_length=load.sequence_length,
        boundary="compute",
        mode="sync",
        weights=load.weights,
        setting=load.setting,
        skip_reason=load.skip_reason,
    )


def decoder_case_of(load: LoadCase, batch_size: int, prompt_length: int, new_tokens: int) -> GenerationCase:
    """The case of a load case's decoder: so many sequences, prompts and outputs of at most these lengths."""
    return GenerationCase(
        case_id=f"{load.load_id}-b{batch_size}-p{prompt_length}-n{new_tokens}",
        model=load.model,
        slug=load.slug,
        backend=load.backend,
        device=load.device,
        precision=load.precision,
        batch_size=batch_size,
        prompt_length=prompt_length,
        new_tokens=new_tokens,
        weights=load.weights,
        setting=load.setting,
        skip_reason=load.skip_reason,
    )


def served_cases(loads: Iterable[LoadCase]) -> list[Case]:
    """A case for each batch size that the load cases prepare: their exports and engines. Completions need the files of
    generation instead."""
    return [case_of(load, size) for load in loads if load.new_tokens is None for size in sizes_of(load)]
