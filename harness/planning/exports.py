"""The exports that a plan measures, and why a model has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.backends import backend_info
from harness.core import store
from harness.core.errors import ExportError, FormatError, InferometerError, MissingInputError
from harness.core.layout import ModelFolder, Models
from harness.core.schemas import Case, ExportFailure, ExportRecord, Plan
from harness.planning.matrix import onnx_files


@dataclass(frozen=True)
class Exports:
    """By model name. found: records whose files are intact. absent: why the other models have none."""

    found: Mapping[str, ExportRecord]
    absent: Mapping[str, InferometerError]

    def reason_against(self, case: Case) -> InferometerError | None:
        """Why a case cannot be measured; None where it can, also without an export where its backend needs none."""
        if backend_info(case.backend).artifact == "none":
            return None
        record = self.found.get(case.model)
        return self.absent.get(case.model) if record is None else refusal_of(record, case)


def refusal_of(export: ExportRecord, case: Case) -> ExportError | None:
    """Why the export has no ONNX file for a case that needs one; None where it has, and for a case that needs none."""
    names = [precision if form is None else f"{precision}-{form}" for precision, form in onnx_files(case)]
    refused = [export.refused[name] for name in names if name in export.refused]
    # Of two files an engine is built from one, and which one is TensorRT's to say.
    return ExportError(refused[0].error, refused[0].hint) if refused and len(refused) == len(names) else None


def read_exports(plan: Plan, models: Models) -> Exports:
    """The plan's exports, with their files checked against their hashes.

    Raises the first reason where no model has an export and `export` did not say why: nobody ran it yet.
    """
    found: dict[str, ExportRecord] = {}
    absent: dict[str, InferometerError] = {}
    for model in (model for model in plan.models if model.exported):
        try:
            found[model.name] = _intact(models.folder(model.slug))
        except (ExportError, FormatError, MissingInputError) as error:
            absent[model.name] = error
    reasons = list(absent.values())
    if reasons and not found and not any(isinstance(reason, ExportError) for reason in reasons):
        raise reasons[0]
    return Exports(found, absent)


def _intact(folder: ModelFolder) -> ExportRecord:
    if folder.failure.is_file():
        told = store.load(folder.failure, ExportFailure, "make export")
        raise ExportError(told.error, told.hint)
    record = store.load(folder.record, ExportRecord, "make export")
    store.check_artifacts(folder.root, record)
    return record
