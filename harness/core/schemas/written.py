"""results/written/<stage>.json: the sums of the files that a stage wrote and that carry no seal of their own."""

from __future__ import annotations

from typing import Literal

from harness.core.confine import RelativePath
from harness.core.schemas.vocabulary import Record, Sha256


class Written(Record):
    schema_version: Literal[1] = 1
    files: dict[RelativePath, Sha256]
    """sha256 by path below the results folder."""
