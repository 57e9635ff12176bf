"""Show the live progress of a run, in the terminal or as a page that only this machine can open.

reads   results/plan.json, running.json, raw/<case_id>/<round>.json and .usage.json, again and again
writes  nothing
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live

from harness.core import cli
from harness.core.errors import MissingInputError, UsageError
from harness.core.layout import Results
from harness.live import terminal_view as watch_terminal
from harness.live.reader import WatchedFolder
from harness.live.server import PageServer

WIDE = 200
"""Width in characters of a table that goes to a file or a pipe."""


def stage(arguments: Sequence[str]) -> None:
    """Show progress until the run is complete; Ctrl-C ends it at any time without an error."""
    options = _parser().parse_args(arguments)
    if options.port is not None and not options.web:
        raise UsageError("PORT is of the page.", f"Ask for the page too: make watch WEB=1 PORT={options.port}")
    results = Results(options.results)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.nice(19)  # the measured processes have priority
    with contextlib.suppress(KeyboardInterrupt):
        if options.once:
            _print_once(results)
        elif options.web:
            _serve(results, options.port or 0)
        elif sys.stdout.isatty():
            _live(WatchedFolder(results), options.follow)
        else:
            _log(WatchedFolder(results), options.follow)


def _parser() -> cli.Parser:
    parser = cli.parser("harness.watch", __doc__)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--once", action="store_true", help="print the state once")
    forms.add_argument("--follow", action="store_true", help="continue after the run is complete, for the next run")
    forms.add_argument("--web", action="store_true", help="serve a page on 127.0.0.1, until Ctrl-C")
    parser.add_argument("--port", type=_port, metavar="N", help="port of the page (0: a free one)")
    cli.add_folders(parser, models=False)
    return parser


def _print_once(results: Results) -> None:
    progress = WatchedFolder(results).look()
    if progress is None:
        raise MissingInputError(f"{results.plan} does not exist.", "Run `make plan` first.")
    terminal = sys.stdout.isatty()
    Console(width=None if terminal else WIDE, highlight=False).print(watch_terminal.view(progress))


def _live(watched: WatchedFolder, follow: bool) -> None:
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            progress = watched.look()
            live.update(watch_terminal.view(progress, console.height), refresh=True)
            if progress is not None and progress.state == "complete" and not follow:
                return
            time.sleep(watched.pause_s)


def _log(watched: WatchedFolder, follow: bool) -> None:
    """A line for each change: output to a file or a pipe has no escape codes."""
    before, waiting = None, False
    while True:
        progress = watched.look()
        if progress is not None:
            for line in watch_terminal.changes(before, progress):
                cli.say(line)
            if progress.state == "complete" and not follow:
                return
        elif not waiting:
            cli.say(watch_terminal.NO_PLAN)
        before, waiting = progress, progress is None
        time.sleep(watched.pause_s)


def _serve(results: Results, port: int) -> None:
    with PageServer(WatchedFolder(results), port) as server:
        cli.say(f"Watching {results.root} at {server.address} (this machine alone; Ctrl-C ends it)")
        server.serve_forever()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise UsageError(f"`{text}` is no port.", "A number from 0 to 65535; 0 takes a free one: PORT=0.")
    return int(text)


if __name__ == "__main__":
    cli.main(stage)
