"""What a case loads: all that its backend is given, its engine, and the hashes of all its files for the record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.backends import backend_info
from harness.backends.base import Batch
from harness.backends.base import Job as BackendJob
from harness.backends.onnx_of import onnx_of
from harness.core import store
from harness.core.jobs import Job
from harness.core.layout import ModelFolder, Models
from harness.core.schemas import SOURCES, Case, EngineRecord, ExportRecord
from harness.engines.request import Options, engine_for, options_of


def job_of(job: Job, export: ExportRecord, folder: ModelFolder, batches: Sequence[Batch]) -> BackendJob:
    """What the backend of a job is given. Raises FormatError or MissingInputError for an engine that it needs."""
    case, info = job.case, backend_info(job.case.backend)
    options = info.setting(case.device, case.setting).told()
    needs_engine = info.artifact == "engine"
    engine = engine_of(case, options_of(job.engines, options), export, folder) if needs_engine else None
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
    )


def export_of(job: Job) -> tuple[ExportRecord, ModelFolder]:
    """The export of a job, and the folder of its files. Raises FormatError or MissingInputError."""
    models = Models(Path(job.models))
    path = models.folder(job.case.slug).record if job.export is None else Path(job.export)
    export = store.load(path, ExportRecord, "make export")
    return export, models.folder(job.case.slug, export.folder)


def engine_of(case: Case, options: Options, export: ExportRecord, folder: ModelFolder) -> EngineRecord:
    """The engine of a case, its file checked against its hash."""
    from harness.engines.here import here  # noqa: PLC0415 - TensorRT, in the process of a backend that needs it anyway

    records = [store.load(path, EngineRecord, "make engines") for path in sorted(folder.engines.glob("*.json"))]
    found = engine_for(case, options, export, records, here())
    store.check_artifact(folder.home, found.engine, "make engines")
    return found


def artifacts(export: ExportRecord, case: Case, engine: EngineRecord | None = None) -> dict[str, str]:
    """sha256 by file name of what the case loads: model file or engine, inputs, reference."""
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
        files += onnx_of(export, case.precision, variant).files()
    if kind == "module" and export.module is not None:
        files.append(export.module)
    sources = {SOURCES: export.sources_sha256} if kind == "module" and export.sources_sha256 else {}
    return {**{file.path: file.sha256 for file in files}, **sources}
