"""Prepares texts that people read: no control characters, short names of models, and no folders of this machine,
because a published text must not show where its owner keeps files."""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

CUT = " […] "
"""Mark in place of the middle of a text that was left out."""


def one_line(text: str) -> str:
    """The text with a space for each line break, control character and mark that reorders text."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def lines(text: str) -> str:
    """one_line for each line: line feeds and tabs stay, and a carriage return ends a line, too."""
    if text.isprintable():
        return text
    parts = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join("\t".join(map(one_line, line.split("\t"))) for line in parts)


def paragraphs(texts: Iterable[str]) -> str:
    """The texts with an empty line between two of them; empty ones are left out.

    >>> paragraphs(["a", "", "b"])
    'a\\n\\nb'
    """
    return "\n\n".join(filter(None, texts))


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a text that is longer than `most` characters."""
    if len(text) <= most:
        return text
    half = (most - len(CUT)) // 2
    return f"{text[:half]}{CUT}{text[-half:]}"


_NAME_LENGTH = 40


def plain_name(text: str) -> str:
    """A name that another program chose, made safe for a terminal, Markdown and HTML: letters, digits, spaces and
    `._-+:@/` stay, control characters are dropped, others become `?`."""
    seen = "".join(character for character in text if character.isprintable())[:_NAME_LENGTH]
    return "".join(part if part.isalnum() or part in " ._-+:@/" else "?" for part in seen).strip() or "?"


def unknown_name(thing: str, given: str, known: Iterable[str]) -> tuple[str, str]:
    """(problem, hint) for an unknown name: the hint has the nearest name, whatever its capitals, and the list."""
    names = sorted(known)
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(given.lower(), lower, n=1, cutoff=0.6)
    near = near or [name for name in sorted(lower, key=len) if len(given) > 2 and name.startswith(given.lower())]
    hint = f"Did you mean `{lower[near[0]]}`? " if near else ""
    return f"Unknown {thing} `{given}`.", f"{hint}Known: {', '.join(names)}." if names else "None is known."


_DIGITS = 16
"""Length of the hash at the end of a pickle's name."""


def short_names(names: Iterable[str]) -> dict[str, str]:
    """The short name by full name; where short names would be equal, each gets the shortest form that differs.

    >>> short_names(["onnx:/data/a/net.onnx", "onnx:/data/b/net.onnx", "hf:./bert"])
    {'onnx:/data/a/net.onnx': 'a/net.onnx', 'onnx:/data/b/net.onnx': 'b/net.onnx', 'hf:./bert': 'bert'}
    """
    longer = {name: _names(name) for name in dict.fromkeys(names)}
    level = dict.fromkeys(longer, 0)
    while True:
        shown = {name: longer[name][level[name]] for name in longer}
        counts = Counter(shown.values())
        alike = [name for name in longer if counts[shown[name]] > 1 and level[name] < len(longer[name]) - 1]
        if not alike:
            return shown
        for name in alike:
            level[name] += 1


def _names(name: str) -> list[str]:
    """The ways to write a name, the shortest first, the full name last."""
    prefix, colon, reference = name.partition(":")
    if not colon:
        return [name]
    if prefix == "pickle":
        label, _, digits = reference.rpartition("-")
        parts = [label, *(f"{label}-{digits[:count]}" for count in range(1, _DIGITS + 1))]
    elif prefix == "module":
        module, _, function = reference.rpartition(":")
        packages = module.split(".")
        parts = [function, *(f"{'.'.join(packages[place:])}:{function}" for place in reversed(range(len(packages))))]
    elif prefix in ("onnx", "pt2", "hf", "torchvision", "timm"):
        folders = reference.rstrip("/").split("/")
        parts = ["/".join(folders[place:]) for place in reversed(range(len(folders))) if folders[place] != "."]
    else:
        return [name]
    return list(dict.fromkeys([*filter(None, parts), name]))


_CHECKOUT = Path(__file__).resolve().parents[2]
_END = r"(?![\w.-])"
"""A path ends here or continues below: /home/me is not a parent of /home/me2."""
_BEGIN = r"(?<![\w.~/-])"


PACKED_ELSEWHERE = "INFEROMETER_PACKED_ELSEWHERE"
"""Environment variable: set by `verify` for the stages that read a bundle."""


def portable(text: str) -> str:
    """The text with paths below the working directory and the checkout made relative, and the home folder as `~`."""
    return _without(_roots(_here()), text)


def portable_again(text: str) -> str:
    """A text of a record, as `portable`: an earlier version wrote it as it was. Records are read in any working
    directory, and bundles on any machine: that directory stays, and all of a text that was packed elsewhere."""
    return text if PACKED_ELSEWHERE in os.environ else _without(_roots(None), text)


def _without(roots: Iterable[tuple[str, str]], text: str) -> str:
    for root, instead in roots:
        path = re.escape(root)
        text = re.sub(f"{_BEGIN}{path}/", f"{instead}/" if instead else "", text)
        text = re.sub(f"{_BEGIN}{path}{_END}", instead or ".", text)
    return text


def portable_path(path: str) -> str:
    """A user's path for a record: below the working directory `./…`, below home `~/…`, else unchanged.

    `Path.expanduser` reads both forms.
    """
    given, here, home = Path(path), _here(), _home()
    if not given.is_absolute():
        return path
    if here and given.is_relative_to(here):
        return f"./{given.relative_to(here).as_posix()}"
    return f"~/{given.relative_to(home).as_posix()}" if home and given.is_relative_to(home) else path


def _roots(here: Path | None) -> list[tuple[str, str]]:
    """(folder, its replacement), inner folders first."""
    folders = {str(root): "" for root in (here, _CHECKOUT) if root}
    if home := _home():
        folders.setdefault(str(home), "~")
    return sorted(folders.items(), key=lambda folder: -len(folder[0]))


def _here() -> Path | None:
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return None
    return here if here != Path("/") else None


def _home() -> Path | None:
    try:
        home = Path.home()
    except RuntimeError:  # the home folder is unknown
        return None
    return home if home != Path("/") else None
