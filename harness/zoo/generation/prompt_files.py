"""The user's file of prompts: texts, or pairs of lengths. No library is imported: a plan reads it."""

from __future__ import annotations

import re
from pathlib import Path

from harness.core.errors import ConfigError, MissingInputError
from harness.core.safe_files import Limit, read_text

_PAIR = re.compile(r"\s*(\d{1,7})[\s,]+(\d{1,7})\s*")


def length_pairs(path: Path) -> list[tuple[int, int]] | None:
    """(prompt tokens, new tokens) of each line; None where the file holds texts. Raises ConfigError, MissingInputError.

    Empty lines and lines that begin with # are left out. A pair may occur several times.
    """
    matches = [_PAIR.fullmatch(line) for line in prompt_lines(path)]
    if not any(matches):
        return None
    wrong = next((number for number, match in enumerate(matches, 1) if match is None), None)
    if wrong is not None:
        raise ConfigError(
            f"{path}: entry {wrong} is not `<prompt tokens> <new tokens>`, and others are.",
            "Write a pair of numbers in each line, or a prompt in each line.",
        )
    pairs = [(int(match[1]), int(match[2])) for match in matches if match is not None]
    if any(0 in pair for pair in pairs):
        raise ConfigError(f"{path} has a length of 0.", "A prompt and an output have at least one token.")
    return pairs


def prompt_lines(path: Path) -> list[str]:
    """Its lines without spaces around them. Raises ConfigError where there are none."""
    if not path.is_file():
        raise MissingInputError(
            f"There is no file {path}.", "PROMPTS takes lengths, as 128,1024, or a file of prompts."
        )
    lines = [line.strip() for line in read_text(path, Limit.TEXT).splitlines()]
    kept = [line for line in lines if line and not line.startswith("#")]
    if not kept:
        raise ConfigError(f"{path} is empty.", "Write a prompt in each line, or a pair of lengths.")
    return kept
