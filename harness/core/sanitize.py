"""Text from others (logs, names, messages of libraries) without what steers a terminal or misleads a reader (pure)."""

from __future__ import annotations

CUT = " […] "
"""Where the middle of a text was left out."""


def one_line(text: str) -> str:
    """Without line breaks, control characters and marks that reorder text; each of them is a space."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def lines(text: str) -> str:
    """The same line by line: line feeds and tabs stay, and a carriage return ends a line, too."""
    if text.isprintable():
        return text
    whole = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join("\t".join(map(one_line, line.split("\t"))) for line in whole)


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a text that is longer than `most` characters."""
    if len(text) <= most:
        return text
    half = (most - len(CUT)) // 2
    return f"{text[:half]}{CUT}{text[-half:]}"


_NAME_LENGTH = 40


def plain_name(text: str) -> str:
    """A name that another program gave itself, safe in a terminal, in Markdown and in HTML: letters, digits, spaces and
    `._-+:@/`; control characters are dropped, others become `?`."""
    seen = "".join(one for one in text if one.isprintable())[:_NAME_LENGTH]
    return "".join(one if one.isalnum() or one in " ._-+:@/" else "?" for one in seen).strip() or "?"
