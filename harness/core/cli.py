"""The command-line shell of every stage: start, errors, output. Only this module prints and exits."""

from __future__ import annotations

import argparse
import codecs
import difflib
import errno
import io
import os
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from harness.core import hints
from harness.core import text as sanitize
from harness.core.errors import InferometerError, StorageError, UnavailableError, UsageError
from harness.core.given_paths import require_folder
from harness.core.host import limits, orphans
from harness.core.seal import UNSEALED

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as in shells."""
CRASHED = 70
"""Exit code after an unexpected exception: EX_SOFTWARE of sysexits.h. Python's own 1 means a regression here."""


class Parser(argparse.ArgumentParser):
    """argparse with errors in the project's form: the problem, then the next thing to type."""

    def error(self, message: str) -> NoReturn:
        """Print the two lines and exit with argparse's own code."""
        problem = sanitize.one_line(_in_plain_words(message))
        named = hints.with_names(problem)
        if hints.front() == "make" and named != problem:
            self.exit(2, f"Error: {named}\nHint:  `make` alone lists all variables.\n")
        self.exit(2, f"Error: {problem}\nHint:  {self._meant(message)}{self.prog} --help\n")

    def add_argument(self, *names: Any, **how: Any) -> argparse.Action:
        """As of argparse; its help names the choices of the interface in use."""
        if isinstance(text := how.get("help"), str):
            how["help"] = hints.typed(text, hints.HintContext(hints.front()))
        return super().add_argument(*names, **how)

    def _meant(self, message: str) -> str:
        """What the first of unknown arguments was meant for; empty where that is not clear."""
        known = [*self._option_string_actions]
        unknown = re.fullmatch(r"unrecognized arguments: (\S+).*", message)
        if unknown is None:
            return ""
        if not unknown[1].startswith("-"):
            return "Models are named by --models. " if "--models" in known else ""
        close = difflib.get_close_matches(unknown[1].partition("=")[0], known, n=1, cutoff=0.8)
        return f"Did you mean {close[0]}? " if close else ""


def _in_plain_words(message: str) -> str:
    """A message of argparse, in the words of the others."""
    message = re.sub(r": expected (one|at least one) argument$", " has no value, or one with a leading dash.", message)
    message = re.sub(r"invalid int value: '(.*)'$", r"`\1` is not a whole number.", message)
    return re.sub(r"invalid float value: '(.*)'$", r"`\1` is not a number.", message)


def parser(module: str, docstring: str | None) -> Parser:
    """A parser for `python -m harness.<stage>` whose description is the stage's own docstring."""
    program = hints.PROGRAMS.get(hints.front()) if hints.FRONT in os.environ else None
    return Parser(
        prog=module.replace("harness.", f"{program} ") if program else f"python -m {module}",
        description=docstring and hints.typed(docstring, hints.HintContext(hints.front())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_folders(target: argparse.ArgumentParser, models: bool = True) -> None:
    """Add the `--results` option and, for stages that need exports, `--models-dir`: the same in every stage."""
    if models:
        target.add_argument(
            "--models-dir",
            type=partial(_folder, variable="MODELS_DIR", usual="models"),
            default=Path("models"),
            help="folder of exports (models)",
        )
    target.add_argument(
        "--results",
        type=partial(_folder, variable="RESULTS", usual="results"),
        default=Path("results"),
        help="folder of results (results)",
    )


def _folder(text: str, variable: str, usual: str) -> Path:
    if not text:
        raise UsageError(
            "The name of a folder is empty.", "Leave RESULTS and MODELS_DIR out, or name one: RESULTS=results."
        )
    require_folder(path(text), variable, usual)
    return path(text)


def path(text: str) -> Path:
    """A path of the command line; `~`, which command.txt may contain, is the home folder."""
    return Path(text).expanduser()


def add_models(target: argparse.ArgumentParser) -> None:
    """Add the `--models` option, which selects a part of the plan."""
    target.add_argument("--models", nargs="+", metavar="NAME", help="only these models of the plan")


def add_interpreters(target: argparse.ArgumentParser) -> None:
    """Add the `--python` option: the same in every stage that starts backends, or other stages that start them."""
    target.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="BACKEND=PATH",
        help="interpreter that has a backend's libraries",
    )


AFTER_EXPORT = "INFEROMETER_AFTER_EXPORT"
"""Environment variable: set by a command of several stages whose export stage printed why a model was not exported."""


def after_export() -> bool:
    """Whether the output of this command already has the reasons of exports that failed."""
    return AFTER_EXPORT in os.environ


def main(stage: Callable[[Sequence[str]], None], arguments: Sequence[str] | None = None) -> None:
    """Run a stage: two lines and an exit code for a user's mistake, a traceback for an error of Inferometer."""
    # ONNX Runtime (1.29 and later) sends model names and hashes over the network unless this is set before its import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    write_anything()
    if hints.front() == "make":
        # A signal to Make ends the shell of a recipe, which does not pass it on.
        orphans.die_with_parent(by=signal.SIGTERM)
    words = sys.argv[1:] if arguments is None else arguments
    before, _reader.context = _reader.context, hints.of_program(Path(sys.argv[0]), words, hints.front())
    try:
        check_limits()
        _check_characters(words)
        stage(words)
        _warn_of_unsealed()
        print(end="", flush=True)
    except InferometerError as error:
        _fail(error)
    except KeyboardInterrupt:
        print("\nStopped. Measured results are kept; the same command continues.", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # `make models | head` is not an error: exit silently, and keep Python from flushing into the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except Exception as error:
        # store.py reports errors of its own files in more detail; the rest is mostly output redirected to a file.
        if (refused := of_limits(error)) is not None:
            _fail(refused)
        with suppress(OSError):
            traceback.print_exc()
        raise SystemExit(CRASHED) from None
    finally:
        _reader.context = before


def check_limits() -> None:
    """Exit with two lines where a limit of this process is too low for any stage."""
    if problem := limits.too_narrow():
        _fail(UnavailableError(*problem))


def _check_characters(words: Sequence[str]) -> None:
    """Raise UsageError for bytes that are no text: no file of the results could hold the name."""
    for word in words:
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise UsageError(
                f"`{word}` is no text in {sys.getfilesystemencoding()}.",
                "Rename the file or folder; where its name is in UTF-8, set LC_ALL=C.UTF-8.",
            )


_REFUSED: Mapping[int, tuple[type[InferometerError], str, str]] = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT),
        (StorageError, "The disk is full: {name} could not be written.", "Free space"),
    ),
    errno.EFBIG: (StorageError, "{name} may grow no larger (ulimit -f).", "Raise the limit, ulimit -f unlimited,"),
    **dict.fromkeys(
        (errno.EMFILE, errno.ENFILE),
        (UnavailableError, "No more files may be opened.", "Raise the limit, ulimit -n 4096,"),
    ),
    **dict.fromkeys(
        (errno.EAGAIN, errno.ENOMEM),
        (
            UnavailableError,
            "The system starts no more processes, or has no memory for them.",
            "Raise the limits (ulimit -u, ulimit -v) or end other programs,",
        ),
    ),
}
"""By errno: the class of the error, its problem, and its remedy."""


def of_limits(error: BaseException) -> InferometerError | None:
    """The error to show where the system lacked space, files, processes or memory; None for any other exception."""
    again = "and run the same command again; measured results are kept."
    if isinstance(error, MemoryError):
        return UnavailableError("Memory ran out.", f"Free memory or raise its limit (ulimit -v), {again}")
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return UnavailableError("No more threads may be started.", f"Raise the limit (ulimit -u), {again}")
    refused = _REFUSED.get(error.errno or 0) if isinstance(error, OSError) else None
    if refused is None:
        return None
    kind, problem, remedy = refused
    return kind(problem.format(name=getattr(error, "filename", None) or "the output"), f"{remedy} {again}")


_PLAIN = str.maketrans({"×": "x", "±": "+-", "…": "...", "·": "-", "–": "-", "µ": "u", "≥": ">=", "≤": "<=", "→": "->"})
"""ASCII replacements for the characters of our messages, for a terminal that has only ASCII."""


def write_anything() -> None:
    """Let no character fail on a terminal or in a file that is not UTF-8: a missing character is replaced."""
    codecs.register_error("plain", _plain)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")


def _open_closed_streams() -> None:
    """Open the null device where the caller closed a standard stream (`>&-`): the next file would get its number, and
    all that child processes print."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return lost.translate(_PLAIN).encode("ascii", "replace").decode(), error.end


def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The hook for exceptions before `main` is called: Ctrl-C prints one line there, too, and no traceback. It ends
    the process, because Python's own exit code, 1, means a regression here."""
    code = CRASHED
    if issubclass(kind, KeyboardInterrupt) or str(error).rstrip(": \n").endswith("KeyboardInterrupt"):  # pydantic's
        print("\nStopped before it began.", file=sys.stderr)
        code = INTERRUPTED
    elif (refused := error if isinstance(error, InferometerError) else of_limits(error)) is not None:
        show(refused)
        code = refused.exit_code
    else:
        sys.__excepthook__(kind, error, trace)
    if not issubclass(kind, KeyboardInterrupt):  # after it Python ends by the signal
        sys.stderr.flush()
        os._exit(code)


def _fail(error: InferometerError) -> NoReturn:
    # Where the error stream cannot be written, the exit code still has to show the error.
    with suppress(OSError):
        show(error)
    raise SystemExit(error.exit_code) from None


def progress(text: str) -> None:
    """Replace the progress line on a terminal or in a notebook; an empty text removes it."""
    kernel = _kernel()
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{typed(text)[:width]}", end="", file=sys.stderr, flush=True)
    elif kernel is not None:
        _reader.show_in_cell(kernel.execution_count, typed(text))


def notice(text: str) -> None:
    """Print one line that stays, above the progress line, for a caller of the Python API: on the error stream, or in a
    notebook, which shows that as an error, on the output stream."""
    progress("")
    print(sanitize.one_line(typed(text)), file=sys.stderr if _kernel() is None else sys.stdout, flush=True)


def _kernel() -> Any:
    """The notebook kernel, where this process is one; else None."""
    shell = sys.modules.get("IPython")
    kernel = shell.get_ipython() if shell is not None else None
    return kernel if hasattr(kernel, "kernel") else None


def _warn_of_unsealed() -> None:
    """Warn of the files that were read and have no seal: a change in them is not detected."""
    if not UNSEALED:
        return
    first, *others = UNSEALED
    files = f"{first} carries" if not others else f"{first} and {len(others)} more carry"
    warn(f"{files} no seal, as records of older versions: it is unknown whether they changed since.")


def last_error(output: str) -> tuple[str, str] | None:
    """(problem, hint) of the last error that a stage printed; output: the text of its error stream."""
    lines = output.splitlines()
    pairs = [
        (line, hint) for line, hint in pairwise(lines) if line.startswith("Error: ") and hint.startswith("Hint:  ")
    ]
    return (pairs[-1][0].removeprefix("Error: "), pairs[-1][1].removeprefix("Hint:  ")) if pairs else None


def relay(line: str) -> None:
    """Print a line of a stage that runs beside others; the error and the hint that end it are left to the caller."""
    if line.startswith("Warning: "):
        warn(line.removeprefix("Warning: "))
    elif not line.startswith(("Error: ", "Hint:  ")):
        say(line)


class _Reader:
    """The reader of this process's output: the interface in use and the notebook's cell."""

    context = hints.HintContext(hints.front())
    cell: tuple[int, Any] | None = None

    def show_in_cell(self, number: int, text: str) -> None:
        """Replace the progress line of the notebook's cell, or start it."""
        content = {"text/plain": text}
        if self.cell is not None and self.cell[0] == number:
            self.cell[1].update(content, raw=True)
        elif text:
            self.cell = number, sys.modules["IPython"].display.display(content, raw=True, display_id=True)


_reader = _Reader()


@contextmanager
def in_words_of(front: hints.Front) -> Iterator[None]:
    """Within it, hints that are printed, and those of errors that leave it, are in the words of this interface."""
    before, _reader.context = _reader.context, hints.HintContext(front)
    try:
        yield
    except InferometerError as error:
        error.problem, error.hint = typed(error.problem), typed(error.hint)
        error.args = (error.problem,)
        raise
    finally:
        _reader.context = before


def typed(text: str) -> str:
    """A text whose commands the user of this process can type."""
    return hints.typed(text, _reader.context)


def typed_html(page: str) -> str:
    """As typed, for the text of an HTML page, or of XML."""
    return hints.typed_html(page, _reader.context)


def say(text: str = "") -> None:
    """Print one line for the user."""
    print(sanitize.lines(typed(text)), flush=True)


def show(error: InferometerError) -> None:
    """Print an error's two lines."""
    problem, hint = (typed(_one_line(text)) for text in (error.problem, error.hint))
    print(f"Error: {problem}\nHint:  {hint}", file=sys.stderr, flush=True)


def _one_line(text: str) -> str:
    """A message on one line: a library's message may have several lines, and `last_error` looks for two lines."""
    return " ".join(filter(None, map(str.strip, sanitize.lines(text).splitlines())))


def warn(text: str) -> None:
    """Print a warning of one line."""
    print(f"Warning: {sanitize.one_line(typed(text))}", file=sys.stderr, flush=True)
