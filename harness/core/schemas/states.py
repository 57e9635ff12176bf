"""results/ab/states.json: the two states that `ab` measures in turn."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.vocabulary import Record


class State(Record):
    """One state of the code."""

    name: str
    """For a reader: `commit 0a1b2c3`, `working folder`, …"""
    stamp: str
    """Other digits where any of its files may have changed: then nothing that was measured of it is used again."""


class States(Record):
    """Which two; the rounds of both are measured next to each other."""

    schema_version: Literal[1] = 1
    against: State
    here: State
