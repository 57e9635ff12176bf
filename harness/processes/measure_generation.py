"""The part of a worker that measures a case of generation, in the case's own process."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.backends import backend_info
from harness.backends.decoder import Decoder, DecoderJob, JoiningDecoder, construct_decoder
from harness.backends.generation_files import files_read, onnx_file
from harness.backends.info import import_target
from harness.core import store
from harness.core.errors import CaseError, MissingInputError
from harness.core.host import environment
from harness.core.host.environment import loaded_runtimes
from harness.core.layout import ModelFolder, Models, Results
from harness.core.protocol import Enter, GenerationCaseJob
from harness.core.schemas import DecoderShape, Generated, GenerationCase, GenerationExport, PromptSet
from harness.core.timestamps import utc_now
from harness.statistics.parity import GreedyAnswer
from harness.timing.clock import calibrate
from harness.timing.token_session import run_token_session
from harness.zoo.input_files import read_arrays

CALIBRATION_SHAPE = DecoderShape(
    kind="causal", layers=1, heads=1, kv_heads=1, head_dim=1, hidden=1, vocabulary=1_000, longest=None
)
"""Of decoders that compute nothing."""
CALIBRATION_PROMPTS = 64


def measure_generation(job: GenerationCaseJob, results: Results, enter: Enter) -> Generated:
    """Measure one case. Raises InferometerErrors for files that are missing or do not fit."""
    case, started_at = job.case, utc_now()
    info = backend_info(case.backend)
    if info.decoder_reads == "none":
        decoder_job = make_decoder_job(case, job.threads, CALIBRATION_SHAPE, Models(Path(job.models)).folder(case.slug))
        seeded = calibration_prompts(case.batch_size, case.prompt_length, job.measurement.seed)
        prompts, reference, loaded = seeded, None, {}
    else:
        export, folder = read_generation_export(job)
        chosen = find_prompt_set(export, case.prompt_length, case.new_tokens)
        decoder_job = make_decoder_job(case, job.threads, export.shape, folder, export)
        prompts, reference = load_prompts(folder, chosen)
        loaded = {
            file.path: file.sha256 for file in (*files_read(export, info, case), chosen.prompts, chosen.reference)
        }
    decoder = decoder_of(case, decoder_job)
    seed = zlib.crc32(f"{job.measurement.seed}/{case.case_id}/{job.round}".encode())
    measurements = run_token_session(
        decoder, prompts, reference, case.batch_size, case.new_tokens, job.options, job.measurement, enter, seed
    )
    enter("record")
    facts = {**decoder.build_facts(), **loaded_runtimes(), **environment.plugin_fact(info.plugin)}
    machine = environment.collect(facts, case.device, info.recorded)
    environment_id = environment.save(results, machine)
    purpose = decoder.on_purpose()
    return Generated(
        case_id=case.case_id,
        round=job.round,
        settings_id=job.settings_id,
        started_at=started_at,
        environment_id=environment_id,
        artifacts=loaded,
        threads=job.threads,
        clock=calibrate(),
        warmups=measurements.warmups,
        requests=measurements.requests,
        steady=measurements.steady,
        stop=measurements.stop,
        cache_bytes=measurements.cache_bytes,
        parity=measurements.parity,
        reuse=measurements.reuse,
        placement=measurements.placement,
        memory=measurements.memory,
        cold_ns=measurements.cold_ns,
        cpu_use=measurements.cpu_use,
        stops=measurements.stops,
        notes=() if purpose is None else (purpose,),
    )


def read_generation_export(job: GenerationCaseJob) -> tuple[GenerationExport, ModelFolder]:
    """The record of the model's files for generation, and their folder."""
    if job.export is None:
        raise MissingInputError(f"{job.case.model} has no files for generation.", "Run `make export` first.")
    export = store.load(Path(job.export), GenerationExport, "make export")
    return export, Models(Path(job.models)).folder(job.case.slug, export.folder)


def decoder_of(case: GenerationCase, decoder_job: DecoderJob) -> Decoder:
    """The decoder of a case, not yet loaded. Raises CaseError where its backend has none."""
    info = backend_info(case.backend)
    target = info.decoder_target_on(case.device)
    if target is None:
        raise CaseError(f"{case.backend} does not generate: {info.decodes_not}.", "Plan again: `make plan`.")
    return construct_decoder(target, decoder_job)


def joining_decoder_of(backend: str, decoder_job: DecoderJob) -> JoiningDecoder:
    """The decoder of a backend that requests may join. Raises CaseError where it has none."""
    target = backend_info(backend).decoder_joins
    if target is None:
        raise CaseError(f"{backend} lets no request join a running batch.", "Plan again: `make plan`.")
    decoder: JoiningDecoder = import_target(target)(decoder_job)
    return decoder


def find_prompt_set(export: GenerationExport, prompt_length: int, new_tokens: int) -> PromptSet:
    """The prompts of a length. Raises MissingInputError where the export has none with so long a reference."""
    prompts = export.prompt_set(prompt_length, new_tokens)
    if prompts is None:
        raise MissingInputError(
            f"The export of {export.model} has no {new_tokens} tokens after prompts of {prompt_length}.",
            "Run `make export` again: the plan has changed since.",
        )
    return prompts


def load_prompts(folder: ModelFolder, chosen: PromptSet) -> tuple[NDArray[np.int64], GreedyAnswer]:
    """Prompts and reference of a set."""
    prompts, answer = (read_arrays(folder.root / entry.path) for entry in (chosen.prompts, chosen.reference))
    tokens, margins, logits = (answer[name] for name in ("tokens", "margins", "logits"))
    return (
        prompts["ids"].astype(np.int64, copy=False),
        GreedyAnswer(
            tokens.astype(np.int64, copy=False),
            margins.astype(np.float32, copy=False),
            logits.astype(np.float32, copy=False),
        ),
    )


def calibration_prompts(batch_size: int, prompt_length: int, seed: int) -> NDArray[np.int64]:
    """Seeded ids for a decoder that computes nothing."""
    generator = np.random.default_rng(seed)
    rows = max(CALIBRATION_PROMPTS, 2 * batch_size)
    return generator.integers(0, CALIBRATION_SHAPE.vocabulary, (rows, prompt_length), dtype=np.int64)


def make_decoder_job(
    case: GenerationCase,
    threads: int,
    shape: DecoderShape,
    folder: ModelFolder,
    export: GenerationExport | None = None,
) -> DecoderJob:
    """A case as its decoder gets it."""
    info = backend_info(case.backend)
    onnx = None if export is None else onnx_file(export, info, case)
    gguf = None if export is None else export.gguf
    return DecoderJob(
        model=case.model,
        folder=folder.root,
        shape=shape,
        device=case.device,
        precision=case.precision,
        batch_size=case.batch_size,
        prompt_length=case.prompt_length,
        new_tokens=case.new_tokens,
        threads=threads,
        cache=folder.decoder_cache,
        onnx=None if onnx is None else Path(onnx.path),
        gguf=None if gguf is None else Path(gguf.path),
        options=info.decoder_setting(case.device, case.setting).all_options(),
    )
