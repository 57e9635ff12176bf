"""manifest.json of a bundle: what one run consists of, with a checksum for every file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.confine import FileName, RelativePath
from harness.core.schemas.vocabulary import Record, Sha256


class BundledFile(Record):
    """A file of the bundle, by its path below the bundle's folder."""

    path: RelativePath
    sha256: Sha256
    size_bytes: Annotated[int, Field(ge=0)]


class Bundle(Record):
    """What one run consists of. No date of its own: the same files give the same archive."""

    schema_version: Literal[1] = 1
    plan_id: FileName
    inferometer: str
    """Version that packed it; a report comes out byte for byte only with the code that wrote it."""
    git_commit: str | None
    git_dirty: bool | None
    """True where files of the checkout differed from that commit; None where there is no checkout."""
    images: tuple[str, ...]
    """Digests (names, where there is no digest) of the container images that the samples were taken in."""
    command: str | None
    """Command line of the plan stage; None for a plan that was made before it was kept."""
    files: tuple[BundledFile, ...]
