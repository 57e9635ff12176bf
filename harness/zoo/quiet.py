"""Keep the chatter of libraries off the terminal while they export."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard prints, logs and warnings of Python code; exceptions pass."""
    sink = io.StringIO()
    before = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(before)


@contextlib.contextmanager
def quiet_natively() -> Iterator[None]:
    """As quiet, and discard the output of native code; a crash inside leaves no word on stderr."""
    with quiet(), Path(os.devnull).open("w") as sink:
        before = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in before:
                os.dup2(sink.fileno(), number)
            yield
        finally:
            for number, copy in before.items():
                os.dup2(copy, number)
                os.close(copy)
