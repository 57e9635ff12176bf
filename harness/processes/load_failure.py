"""The record of a load case that was not measured, or not completely."""

from __future__ import annotations

from harness.core import store
from harness.core.layout import LoadFiles
from harness.core.protocol import LoadJob
from harness.core.schemas import LoadFailure
from harness.core.timestamps import utc_now
from harness.serving.load_case import replication_digest


def save_failure(
    job: LoadJob, files: LoadFiles, error: str, hint: str, phase: str, stderr_tail: str = ""
) -> LoadFailure:
    """Record why a load case was not measured, or not completely."""
    record = store.portable_failure(
        LoadFailure(
            load_id=job.load.load_id,
            settings_id=job.settings_id,
            load_sha256=replication_digest(job.load),
            artifacts_id="",
            started_at=utc_now(),
            environment_id=None,
            error=error,
            hint=hint,
            phase=phase,
            stderr_tail=stderr_tail,
        )
    )
    store.save(files.failure, record)
    return record
