"""The style of charts: size, fonts, and for each backend the same colour and marker in every chart."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

WIDTH_IN = 8.3
"""Inches. A README shows images about 830 pixels wide, so a point of font size is 1.4 pixels there."""

DPI = 200
"""Twice the README's pixels: sharp on a dense screen."""

GREY = "#8a8a8a"
"""Colour of rows that are not ranked."""

INK = "#222222"
FAINT = "#dddddd"


@dataclass(frozen=True)
class Look:
    """Colour and marker of one backend."""

    colour: str
    marker: str


LOOKS: Mapping[str, Look] = {
    "torch-eager": Look("#000000", "o"),
    "torch-script": Look("#E69F00", "s"),
    "torch-compile": Look("#D55E00", "^"),
    "onnxruntime": Look("#0072B2", "D"),
    "openvino": Look("#009E73", "v"),
    "tensorrt": Look("#CC79A7", "P"),
    "onnxruntime-tensorrt": Look("#56B4E9", "X"),
    "torch-aoti": Look("#56B4E9", "p"),
    "cudnn": Look("#009E73", "h"),  # the colour of openvino, which runs on CPUs
}
"""Okabe and Ito's palette, distinct with every common colour blindness (jfly.uni-koeln.de/color); the markers are
distinct in print. A backend has the same colour in every figure, and its usual setting the same marker."""

_OTHER_COLOURS = ("#56B4E9", "#CC79A7", "#0072B2", "#D55E00", "#E69F00", "#009E73")
_OTHER_MARKERS = ("X", "h", "p", "<", ">", "*", "8")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h", "<", ">", "8")

_TINT = 0.35
"""Share of the colour in a tint; the rest is white."""

RC: Any = {
    "font.family": "DejaVu Sans",
    "text.parse_math": False,  # a `$` in the name of a model must not start a formula
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "text.color": INK,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 9.0,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "inferometer",  # else names within the file are random
    "svg.fonttype": "path",  # the same look where the font is missing
}


@contextmanager
def chart_style() -> Iterator[None]:
    """Context in which matplotlib uses our fonts and colours; its settings are restored afterwards.

    A letter that the font lacks, as in a Chinese name of a file, is drawn as a box.
    """
    import matplotlib as mpl  # noqa: PLC0415 - the page and reports without charts do without it

    with mpl.rc_context(RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+")
        yield


def backend_look(backend: str, number: int = 0) -> Look:
    """The look of a backend. A backend that is not in the table gets a fixed look, derived from its name.

    number: of the line among those of its backend and precision; further ones have other markers.
    """
    digest = hashlib.sha256(backend.encode()).digest()
    other = Look(_OTHER_COLOURS[digest[0] % len(_OTHER_COLOURS)], _OTHER_MARKERS[digest[1] % len(_OTHER_MARKERS)])
    own = LOOKS.get(backend, other)
    if number == 0:
        return own
    further = [marker for marker in _MARKERS if marker != own.marker]
    return Look(own.colour, further[(number - 1) % len(further)])


def precision_dashes(precision: str, number: int) -> tuple[float, ...]:
    """Lengths of line and gap in multiples of the line's width: full precision is solid (empty), others are dashed.

    number: of the line among those of its backend and precision; the line has this many dots after each dash.
    """
    if number == 0:
        return () if precision == "fp32" else (4, 2)
    return (8 if precision == "fp32" else 4, 1.5, *(1, 1.5) * number)


def marker_face(colour: str, fill: str) -> str:
    """Colour inside a marker on white: the given colour, a tint of it, or white for a hollow or open marker."""
    return {"solid": colour, "tint": _tint(colour), "hollow": "white", "open": "white"}[fill]


def _tint(colour: str) -> str:
    """A tint of a colour."""
    return shade(colour, _TINT)


def shade(colour: str, share: float) -> str:
    """A colour mixed with white. share: of the colour, from 0 for white to 1."""
    channels = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - channel)):02x}" for channel in channels)
