"""The templates of a page, and the files embedded in it so that it needs no network: style, program, and the library
that draws charts."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from importlib.resources import files
from importlib.util import find_spec

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from harness.core.units import count
from harness.reporting.writers import html

PROGRAM = ("base", "charts", "tables", "layers", "profiles", "filters", "print", "start", "models")
"""Parts of the page's program in the order in which they run; they share one scope."""


def template(name: str) -> Template:
    """A template of a page."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("harness.reporting.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "ensure_ascii": False, "separators": (",", ":")}
    environment.filters["inline"] = html.inline
    environment.filters["count"] = count
    return environment


def has_plotly() -> bool:
    """Whether the library that draws the page's charts is installed (a machine that only measures may lack it)."""
    return find_spec("plotly") is not None


def plotly_js() -> str:
    """The library from its Python package."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - only a page with charts needs it

    return str(get_plotlyjs())


def compressed(text: str) -> str:
    """The text compressed and in base64; the same text gives the same result."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@cache
def compressed_library(text: str) -> str:
    """The library compressed and in base64, a third of its size."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def style() -> str:
    """The page's style sheet, with the same colours as the live page."""
    palette = files("harness.reporting").joinpath("palette.css").read_text(encoding="utf-8")
    return palette + _asset("report.css") + _asset("profile.css")


@cache
def program() -> str:
    """The page's own program."""
    return '"use strict";\n(() => {\n' + "".join(_asset(f"{name}.js") for name in PROGRAM) + "})();\n"


def sha256(text: str) -> str:
    """Source expression of Content-Security-Policy for an inline script (w3.org/TR/CSP3)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return files("harness.reporting.html").joinpath("assets", name).read_text(encoding="utf-8")
