"""Export one model for generation: weights, tokenizer, prompts and reference tokens, and decoder files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core import store
from harness.core.errors import ExportError, FormatError, MissingInputError
from harness.core.host import limits
from harness.core.layout import ModelFolder
from harness.core.schemas import (
    Artifact,
    Device,
    ExportFailure,
    GenerationExport,
    OnnxArtifact,
    Precision,
    PromptSet,
    Weights,
)
from harness.zoo import ModelInfo, identity
from harness.zoo.construct import save_weights
from harness.zoo.generation import LEAST_REFERENCED
from harness.zoo.generation.generative import Generative, greedy, load_generative, read_parameters, rounding_of
from harness.zoo.generation.prompts import make_prompts
from harness.zoo.identity import artifact, versions
from harness.zoo.input_files import Arrays, write_arrays
from harness.zoo.loaded import Request, StepTimer

_FORMAT = 1
"""Increased when this module writes other files than before, so that old files are made again."""

MIN_PROMPTS = 16
PROMPTS_PER_SEQUENCE = 8
"""Different prompts of a set for each sequence of the largest batch: a prompt returns after so many requests."""


@dataclass(frozen=True)
class GenerationRequest:
    """One model to export for generation.

    lengths: most new tokens by prompt length. batch_size: the largest. onnx: precisions of decoder files; forms: their
    further forms. rounded: precisions whose rounding is measured, on `device`. prompts: the user's texts;
    prompts_sha256: of that file.
    """

    info: ModelInfo
    slug: str
    weights: Weights
    lengths: Mapping[int, int]
    batch_size: int
    seed: int
    onnx: tuple[Precision, ...] = ()
    forms: tuple[str, ...] = ()
    rounded: tuple[Precision, ...] = ()
    device: Device = "cpu"
    prompts: Path | None = None
    prompts_sha256: str | None = None
    cache: Path | None = None

    @property
    def digest(self) -> str:
        """Hash of everything that decides the content of the files; what a longer record covers is left out."""
        asked = [self.info.name, self.slug, self.weights, self.seed, self.prompts_sha256]
        return store.digest_of("generation", _FORMAT, asked, versions(), identity.file_hashes(self.info, self.cache))

    def covered_by(self, record: GenerationExport) -> bool:
        """Whether a record has every length, prompt and file."""
        enough = all(
            (prompts := record.prompt_set(length, tokens)) is not None
            and prompts.referenced >= self._referenced(prompts)
            and set(self.rounded) <= prompts.rounding.keys()
            for length, tokens in self.lengths.items()
        )
        keys = [*self.onnx, *(f"{precision}-{form}" for precision in self.onnx for form in self.forms)]
        return enough and set(keys) <= {*record.onnx, *record.refused}

    def _referenced(self, prompts: PromptSet) -> int:
        return min(self.batch_size, prompts.samples)


def intact_generation(folder: ModelFolder, request: GenerationRequest) -> GenerationExport | None:
    """The record of an earlier export that serves the request, its files unchanged; None otherwise."""
    try:
        record = store.load(folder.generation, GenerationExport, "make export")
        if record.request_sha256 != request.digest or not request.covered_by(record):
            return None
        store.check_artifacts(folder.root, record)
    except (FormatError, MissingInputError):
        return None
    return record


def export_generation(
    request: GenerationRequest,
    folder: ModelFolder,
    step: StepTimer,
    seconds: Mapping[str, float],
    now_ns: Callable[[], int],
) -> GenerationExport:
    """Write the model's files and return their record, which the caller saves.

    `step` fills `seconds`. now_ns: the clock. Raises HubError, ConfigError, UsageError, ExportError or StorageError.
    """
    with store.translate_storage_errors(folder.root):
        with step("load"):
            model = load_generative(Request(request.info, request.weights, request.seed, request.cache, folder.root))
        with step("weights"):
            save_weights(model.module, folder.weights)
            tokenizer = _save_tokenizer(model, folder)
            gguf = _save_gguf(model, folder)
        sets = []
        for prompt_length, new_tokens in request.lengths.items():
            with step("reference"):
                sets.append(_prompt_set(request, model, folder, prompt_length, new_tokens, now_ns))
        onnx: dict[str, OnnxArtifact] = {}
        refused: dict[str, ExportFailure] = {}
        for precision in request.onnx:
            with step(f"onnx-{precision}"):
                try:
                    onnx |= _onnx_files(request, model, folder, precision)
                except ExportError as error:
                    why = ExportFailure(error=error.problem, hint=error.hint)
                    refused |= dict.fromkeys([precision, *(f"{precision}-{form}" for form in request.forms)], why)
    return GenerationExport(
        request_sha256=request.digest,
        model=request.info.name,
        slug=request.slug,
        weights=request.weights,
        weight_source=model.weight_source,
        shape=model.shape,
        parameters=sum(parameter.numel() for parameter in model.module.parameters()),
        read_parameters=read_parameters(model.module, model.shape.kind),
        module=artifact(folder.weights),
        configuration=artifact(folder.configuration),
        tokenizer=tokenizer,
        gguf=gguf,
        onnx=onnx,
        refused=refused,
        sets=tuple(sets),
        versions=versions(),
        seconds=dict(seconds),
    )


def _prompt_set(
    request: GenerationRequest,
    model: Generative,
    folder: ModelFolder,
    prompt_length: int,
    new_tokens: int,
    now_ns: Callable[[], int],
) -> PromptSet:
    import torch  # noqa: PLC0415 - the caller has it

    samples = max(MIN_PROMPTS, PROMPTS_PER_SEQUENCE * request.batch_size)
    vocabulary = model.shape.vocabulary
    prompts = make_prompts(model.tokenizer, vocabulary, samples, prompt_length, request.seed, request.prompts)
    referenced = min(max(LEAST_REFERENCED, request.batch_size), len(prompts.ids))
    before = torch.get_num_threads()
    torch.set_num_threads(limits.thread_count())
    instants = [now_ns()]
    try:
        generated = greedy(
            model.module,
            model.shape.kind,
            prompts.ids[:referenced],
            new_tokens,
            model.shape.start_token,
            lambda: instants.append(now_ns()),
        )
    finally:
        torch.set_num_threads(before)
    stored, kind, start = len(generated.logits), model.shape.kind, model.shape.start_token
    rounding = {
        precision: rounding_of(model.module, kind, prompts.ids[:stored], generated, precision, start, request.device)
        for precision in request.rounded
    }
    write_arrays(folder.prompts(prompt_length), {"ids": prompts.ids})
    answer: Arrays = {"tokens": generated.tokens, "margins": generated.margins, "logits": generated.logits}
    write_arrays(folder.generation_reference(prompt_length), answer)
    return PromptSet(
        prompt_length=prompt_length,
        new_tokens=new_tokens,
        samples=len(prompts.ids),
        prompts=artifact(folder.prompts(prompt_length)),
        reference=artifact(folder.generation_reference(prompt_length)),
        referenced=referenced,
        rounding=rounding,
        source=prompts.source,
        prompt_s=max(1, instants[1] - instants[0]) / referenced / 1e9,
        step_s=max(1, instants[-1] - instants[1]) / (new_tokens - 1) / 1e9 if new_tokens > 1 else None,
        real_text=prompts.real_text,
    )


def _save_tokenizer(model: Generative, folder: ModelFolder) -> tuple[Artifact, ...]:
    if model.tokenizer is None:
        return ()
    model.tokenizer.save(folder.tokenizer)
    files = sorted(path for path in folder.tokenizer.rglob("*") if path.is_file())
    return tuple(artifact(path).model_copy(update={"path": path.relative_to(folder.root).as_posix()}) for path in files)


def _save_gguf(model: Generative, folder: ModelFolder) -> Artifact | None:
    """The very file that the weights were made from; a hard link where the file system has them."""
    if model.gguf is None:
        return None
    try:
        os.link(model.gguf.resolve(), folder.gguf)
    except OSError:
        shutil.copyfile(model.gguf, folder.gguf)
    return artifact(folder.gguf)


def _onnx_files(
    request: GenerationRequest, model: Generative, folder: ModelFolder, precision: Precision
) -> dict[str, OnnxArtifact]:
    from harness.zoo.generation.onnx_decoder import write_decoder  # noqa: PLC0415 - onnx, where a case needs it

    in_place = "in-place" in request.forms and model.shape.kind == "causal"
    return write_decoder(model.module, model.shape, folder.root, precision, in_place)
