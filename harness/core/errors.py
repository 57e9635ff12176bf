"""Every error that a user can cause or meet, each with a hint (the next thing to type) and an exit code.

    InferometerError           70   base of the errors below; never raised itself
    ├── UsageError              2   an option or a combination of options that is not possible
    │   ├── ConfigError         2   a configuration file that cannot be used: file, key path, problem
    │   └── NotComparableError  2   two summaries without a row that can be compared
    ├── MissingInputError       3   a stage's input is missing: an earlier stage has to run first
    ├── FormatError             4   a file that exists and cannot be used
    │   ├── OlderFormatError    4   written by an older Inferometer
    │   ├── NewerFormatError    4   written by a newer Inferometer
    │   └── MalformedFileError  4   damaged, or not a file of Inferometer
    ├── UnavailableError        5   a device, library or model that this machine does not have
    │   └── HubError            5   pretrained weights that could not be fetched
    ├── StorageError            6   disk full, folder not writable
    ├── BusyError               7   another run holds the results folder
    ├── ExportError             8   a model that could not be turned into a checked ONNX file
    ├── CaseError               9   a case that failed: becomes a `Failed` row, never ends the run
    │   └── NotSupportedError   9   a case that its backend does not run: becomes a skipped row
    ├── RegressionError         1   a comparison that found a slower row or a missed threshold
    └── SelfTestError          12   a self-test in which the harness missed a target

`CasesFailedError` (exit 10) ends a run that is complete but has failed rows, `NotReproducedError` (exit 11) one that
does not confirm a published result. Code 1 means only a regression, so that CI can distinguish it from a crash: any
other exception ends with 70, EX_SOFTWARE of sysexits.h (core/cli.py). `reason` puts a library's exception on one line.
"""

from __future__ import annotations

import re


class InferometerError(Exception):
    """A mistake or a condition that the user can act on: shown as two lines, without a traceback."""

    exit_code = 70

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint

    def __reduce__(self) -> tuple[type[InferometerError], tuple[str, str]]:
        # Exception's own pickling passes only args and would lose the hint between processes.
        return type(self), (self.problem, self.hint)


class UsageError(InferometerError):
    """An option, or a combination of options, that is not possible."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration that cannot be used."""


class NotComparableError(UsageError):
    """Two summaries that have no row in common that can be compared."""


class MissingInputError(InferometerError):
    """A stage's input does not exist yet."""

    exit_code = 3


class FormatError(InferometerError):
    """A file that exists and cannot be used."""

    exit_code = 4


class OlderFormatError(FormatError):
    """A file written by an older Inferometer."""


class NewerFormatError(FormatError):
    """A file written by a newer Inferometer."""


class MalformedFileError(FormatError):
    """A damaged file, or one that Inferometer did not write."""


class UnavailableError(InferometerError):
    """A device, library or model that this machine does not have."""

    exit_code = 5


class HubError(UnavailableError):
    """Pretrained weights that could not be fetched."""


class StorageError(InferometerError):
    """The disk is full or a folder cannot be written."""

    exit_code = 6


class BusyError(InferometerError):
    """Another run holds the results folder."""

    exit_code = 7


class ExportError(InferometerError):
    """A model that could not be turned into a checked ONNX file."""

    exit_code = 8


class CaseError(InferometerError):
    """A case that failed while it was loaded, checked or measured."""

    exit_code = 9


class NotSupportedError(CaseError):
    """A model that a backend does not run, as its file shows: a skipped row with the reason, no failure of the run."""


class RegressionError(InferometerError):
    """A comparison is complete and found a slower row or a missed threshold."""

    exit_code = 1


class SelfTestError(InferometerError):
    """A self-test is complete and the harness missed a target."""

    exit_code = 12


class CasesFailedError(InferometerError):
    """The run went through every case and some of them failed."""

    exit_code = 10


class NotReproducedError(InferometerError):
    """A claim was measured here, and at least one of its results differs from the published one."""

    exit_code = 11


def reason(error: BaseException) -> str:
    """`ImportError: no module named x` on one line, without a full stop, with the exception that caused it.

    The whole message without colours and line breaks: messages of libraries often begin with the failure and end with
    its reason. The middle of a very long message is left out. Where an exception has a cause, the result has the first
    line of the exception and all of the cause, unless the exception already repeats the cause in short.
    """
    cause = error
    seen = {id(error)}
    while cause.__cause__ is not None and id(cause.__cause__) not in seen:
        cause = cause.__cause__
        seen.add(id(cause))
    outer, inner = _message(error), _message(cause)
    if cause is error or (inner in outer and len(outer) <= _LONGEST):
        return _named(error, _shortened(outer)).removesuffix(".")
    first = _named(error, _shortened(_message(error, lines=1)))
    return f"{first} Caused by {_named(cause, _shortened(inner))}".removesuffix(".")


_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f]")
"""ECMA-48 control sequences (colours, links) and other control characters, except line breaks and tabs."""

_LONGEST = 1200
"""Longest message of a library, in characters. A message of torch.onnx has several thousand, with the reason in the
middle of the exception that caused it."""


def _message(error: BaseException, lines: int | None = None) -> str:
    """The message on one line; lines: only so many of its first lines."""
    printed = [" ".join(line.split()) for line in _COLOURS.sub("", str(error)).splitlines()]
    return " ".join([line for line in printed if line][:lines])


def _shortened(text: str) -> str:
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half].rstrip()} … {text[-half:].lstrip()}"


def _named(error: BaseException, text: str) -> str:
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
