"""Loading of a case: the job for its backend, its engine, and the hashes of all its files for the record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.backends import backend_info
from harness.backends.base import BackendJob, Batch
from harness.backends.precision import onnx_key, onnx_precision
from harness.backends.tensorrt.engine_request import Options, engine_for, merged_options
from harness.core import store
from harness.core.errors import MissingInputError
from harness.core.layout import ModelFolder, Models
from harness.core.protocol import CaseJob
from harness.core.schemas import SOURCES, Case, EngineRecord, ExportRecord, OnnxArtifact, Precision


def onnx_artifact(export: ExportRecord, precision: Precision, variant: str | None = None) -> OnnxArtifact:
    """The file of a precision, in the form that a setting requires. MissingInputError where it was not exported."""
    name = onnx_key(precision, variant)
    artifact = export.onnx_variants.get(name) if variant else export.onnx.get(onnx_precision(precision))
    if artifact is None:
        if name in export.refused:
            raise MissingInputError(export.refused[name].error, export.refused[name].hint)
        raise MissingInputError(
            f"The export of {export.model} has no {name} ONNX file.",
            "Run `make export` again: the plan has changed since.",
        )
    return artifact


def make_backend_job(
    job: CaseJob, export: ExportRecord, folder: ModelFolder, batches: Sequence[Batch], in_flight: int = 0
) -> BackendJob:
    """A job as its backend gets it. in_flight: passes that are issued at once. Raises FormatError or MissingInputError
    for an engine that it needs."""
    case, info = job.case, backend_info(job.case.backend)
    options = info.setting(case.device, case.setting).all_options()
    needs_engine = info.artifact == "engine"
    engine = read_engine(case, merged_options(job.engines, options), export, folder) if needs_engine else None
    process = f"{job.measurement.seed}/{case.case_id}/{job.round}"
    cache = folder.compile_cache
    return BackendJob(
        case,
        export,
        folder.root,
        batches,
        job.threads,
        cache,
        options,
        engine=engine,
        engine_folder=folder.home,
        process=process,
        in_flight=in_flight,
    )


def read_case_export(job: CaseJob) -> tuple[ExportRecord, ModelFolder]:
    """The export of a job, and the folder of its files. Raises FormatError or MissingInputError."""
    models = Models(Path(job.models))
    path = models.folder(job.case.slug).record if job.export is None else Path(job.export)
    export = store.load(path, ExportRecord, "make export")
    return export, models.folder(job.case.slug, export.folder)


def read_engine(case: Case, options: Options, export: ExportRecord, folder: ModelFolder) -> EngineRecord:
    """The engine of a case, its file checked against its hash."""
    from harness.backends.tensorrt.versions import engine_place_here  # noqa: PLC0415 - TensorRT, in the process of a backend that needs it anyway

    records = [store.load(path, EngineRecord, "make engines") for path in sorted(folder.engines.glob("*.json"))]
    engine = engine_for(case, options, export, records, engine_place_here())
    store.check_artifact(folder.home, engine.engine, "make engines")
    return engine


def artifact_hashes(export: ExportRecord, case: Case, engine: EngineRecord | None = None) -> dict[str, str]:
    """sha256 by file name of the files that the case loads: model file or engine, inputs, reference."""
    kind = backend_info(case.backend).artifact
    files = [
        file
        for inputs in export.input_sets
        if inputs.sequence_length == case.sequence_length
        for file in inputs.files(case.boundary)
    ]
    if engine is not None:
        files.append(engine.engine)
    if kind == "onnx":
        variant = backend_info(case.backend).setting(case.device, case.setting).variant
        files += onnx_artifact(export, case.precision, variant).files()
    if kind == "module" and export.module is not None:
        files.append(export.module)
    sources = {SOURCES: export.sources_sha256} if kind == "module" and export.sources_sha256 else {}
    return {**{file.path: file.sha256 for file in files}, **sources}
