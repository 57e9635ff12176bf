"""A store of runs over time, in a folder or behind a URL: runs are added by id and never overwritten.

Records of a store behind a URL are copied here, and new ones are created there. http:// and https:// need nothing, list
a folder by the links of its page, and can only be read. Every other protocol is one of fsspec. Each record is created
under a name that must be free. `history.json` and `history.html`, which follow from them, are replaced.
"""

from __future__ import annotations

import importlib
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from harness.comparison.run_history import points_of, run_of
from harness.core import file_sums, store
from harness.core.errors import (
    InferometerError,
    MalformedFileError,
    MissingInputError,
    StorageError,
    UnavailableError,
    UsageError,
)
from harness.core.layout import RunStore
from harness.core.safe_files import FILE_NAME, SizeLimit, read
from harness.core.schemas import Decision, HistoryRun, Summary
from harness.core.text import one_line

HOW = "make history STORE=<folder>"


def add_run(files: RunStore, summary: Summary | file_sums.ByModel, commit: str | None) -> tuple[HistoryRun, bool]:
    """Add a run; returns its record, and False where the store has it already. A large run is added model by model.

    Raises MissingInputError for a summary without a measured row, and MalformedFileError where the store has other
    results under the same id.
    """
    run = _run(summary, commit)
    if run is None:
        raise MissingInputError("The summary has no measured row, so there is nothing to add.", "make bench")
    same = next((stored for stored in load_runs(files)[0] if _identity(stored) == _identity(run)), None)
    if same is not None and same.points == run.points:
        return same, False
    if same is not None:
        raise MalformedFileError(
            f"{files.run(same.run_id)} has other results of the same run: a run in the store is never overwritten.",
            "Measure again (make bench FORCE=1), or use another store.",
        )
    if isinstance(summary, Summary):
        store.save_summary(files.summary(run.run_id), summary)
    else:
        if summary.rows_file is not None:  # its rows were read, and so checked
            store.save_bytes(files.packed_rows(run.run_id), read(summary.rows_file, SizeLimit.BUNDLE))
        store.save(files.summary(run.run_id), summary.head)
    store.save(files.run(run.run_id), run, indent=None)
    return run, True


def _run(summary: Summary | file_sums.ByModel, commit: str | None) -> HistoryRun | None:
    if isinstance(summary, Summary):
        return run_of(summary, commit)
    points = {name: point for model in summary.models for name, point in points_of(summary.rows(model)).items()}
    return run_of(summary.head, commit, points)


def _identity(run: HistoryRun) -> tuple[str, ...]:
    """The facts that two records of one run share, whatever name its code was given."""
    return (run.plan_id, run.machine_key, run.measured_from, run.measured_to)


def load_runs(files: RunStore) -> tuple[list[HistoryRun], list[str]]:
    """Every run in the store, in order of time, and a note for each file that is damaged or no run of its own."""
    runs: list[HistoryRun] = []
    notes: list[str] = []
    named: dict[tuple[str, ...], str] = {}
    for path in sorted(files.runs.glob("*/run.json")):
        try:
            run = store.load(path, HistoryRun, HOW)
        except InferometerError as error:
            notes.append(f"{error.problem} {error.hint}")
            continue
        if run.run_id != path.parent.name:
            notes.append(f"{path} holds the run {run.run_id}: it was moved or copied. It was left out.")
        elif (first := named.setdefault(_identity(run), run.run_id)) != run.run_id:
            notes.append(f"{path} is the run {first} under another name. It was left out.")
        else:
            runs.append(run)
    return sorted(runs, key=lambda run: (run.measured_from, run.run_id)), notes


def load_decisions(files: RunStore) -> tuple[list[Decision], list[str]]:
    """Every decision in the store, and a note for each file that cannot be read."""
    decisions: list[Decision] = []
    notes: list[str] = []
    for path in sorted(files.decisions.glob("*.json")):
        try:
            decisions.append(store.load(path, Decision, f"{HOW} CONFIRM=<shift>"))
        except InferometerError as error:
            notes.append(f"{error.problem} {error.hint}")
    return decisions, notes


def is_store(folder: Path) -> bool:
    """Whether a folder is a store of runs."""
    return RunStore(folder).runs.is_dir()


def baseline_in(files: RunStore, current: Summary | file_sums.ByModel) -> str:
    """The id of the latest run of the same machine and configuration before the current one.

    Raises MissingInputError where the store has none.
    """
    own = _run(current, None)
    runs, _ = load_runs(files)
    if own is not None:
        earlier = [
            run
            for run in runs
            if (run.machine_key, run.config) == (own.machine_key, own.config) and run.measured_from < own.measured_from
        ]
        if earlier:
            return earlier[-1].run_id
    raise MissingInputError(
        f"{files.root} has no earlier run of this machine and configuration.", f"Add runs to it: {HOW}."
    )


_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^\s?#]+)")
READ_ONLY = ("http", "https")
WITH_FOLDERS = ("ftp", "hdfs", "memory", "sftp", "smb", "ssh", "webhdfs")
"""Protocols that need a folder before a file in it. Others have objects: to make their folders could make a bucket."""
TIMEOUT_S = 60
READERS = 8
"""Records that are read at the same time."""


def is_url(text: str) -> bool:
    """Whether a store is named by a URL, not by a folder or its file:// URL."""
    return "://" in text and not text.startswith("file:///")


def _limit(name: str) -> SizeLimit:
    """Most bytes of a file of a store: the rows of a large summary are in one."""
    return SizeLimit.BUNDLE if name.endswith(store.PARQUET) else SizeLimit.RECORD


class _HttpFolders:
    """Folders that a web server lists, with the names and errors of fsspec."""

    def ls(self, url: str, detail: bool) -> list[str]:
        """URLs of the entries of a folder: the relative links of its page."""
        del detail
        with self.open(f"{url}/", "rb") as page:
            text = page.read(SizeLimit.RECORD).decode(errors="replace")
        links = re.findall(r"""href\s*=\s*["']([^"'?#:/]+/?)["']""", text, flags=re.IGNORECASE)
        return [f"{url}/{urllib.parse.unquote(link)}" for link in links]

    @contextmanager
    def open(self, url: str, mode: str) -> Iterator[IO[bytes]]:
        """The file behind a URL."""
        del mode
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 - http or https
                yield answer
        except urllib.error.HTTPError as error:
            kinds = {401: PermissionError, 403: PermissionError, 404: FileNotFoundError}
            raise kinds.get(error.code, OSError)(f"HTTP {error.code}, {error.reason}") from error


class RemoteStore:
    """The folder of a store behind a URL. Raises UsageError for another text, UnavailableError without its library."""

    def __init__(self, url: str) -> None:
        match = _URL.fullmatch(url)
        if match is None or "@" in match[2].partition("/")[0]:
            raise UsageError(
                f"{one_line(url.partition('@')[2] or url)} is no URL of a folder, or it has a password.",
                "STORE=s3://bucket/folder; the credentials come from the environment, as the library reads them.",
            )
        self.url, self._protocol = url.rstrip("/"), match[1]
        self.read_only = self._protocol in READ_ONLY
        if self.read_only:
            self._files: Any = _HttpFolders()
            self._root = self.url
            return
        with self._translated("read"):
            fsspec = importlib.import_module("fsspec")
            options = {"use_listings_cache": False, "skip_instance_cache": True}
            self._files, self._root = fsspec.core.url_to_fs(self.url, **options)
        self._root = self._root.rstrip("/")

    def fetch(self, files: RunStore) -> None:
        """Make `files` have exactly the runs and decisions that the store has. A record that is here already is not
        read again: it never changes."""
        with self._translated("read"):
            wanted = {f"runs/{name}/run.json": files.run(name) for name in self._names("runs")}
            decisions = (name.removesuffix(".json") for name in self._names("decisions"))
            wanted |= {f"decisions/{name}.json": files.decision(name) for name in decisions}
            for path in (*files.runs.glob("*/run.json"), *files.decisions.glob("*.json")):
                if path not in wanted.values():
                    path.unlink()
            missing = [(name, path) for name, path in wanted.items() if not path.is_file()]
            with ThreadPoolExecutor(READERS) as threads:
                contents = threads.map(self._read, (name for name, _ in missing))
                for (_, path), content in zip(missing, contents, strict=True):
                    if content is not None:
                        store.save_bytes(path, content)

    def fetch_summary(self, files: RunStore, run_id: str) -> Path:
        """The summary of a run, copied here, of a large run with its rows. Raises MalformedFileError where the store
        has none."""
        path = files.summary(run_id)
        self._copied(path, f"runs/{run_id}/summary.json", f"summary of {run_id}")
        if file_sums.is_large(path):
            self._copied(files.packed_rows(run_id), f"runs/{run_id}/summary.parquet", f"rows of {run_id}")
        return path

    def _copied(self, path: Path, name: str, what: str) -> None:
        """Copy a file here, unless it was copied before."""
        if path.is_file():
            return
        with self._translated("read"):
            content = self._read(name)
        if content is None:
            raise MalformedFileError(f"{self.url} has no {what}.", "Name another baseline: BASELINE=<results folder>.")
        store.save_bytes(path, content)

    def create(self, files: RunStore, paths: Iterable[Path]) -> None:
        """Create the records at `paths` of `files` in the store, in order.

        Raises StorageError where one cannot be written, MalformedFileError where another record has its name. Those of
        `paths` that the store has not are then removed here as well.
        """
        left = list(paths)
        try:
            while left:
                self._created(files, left[0])
                left.pop(0)
        finally:
            for path in left:
                path.unlink(missing_ok=True)

    def _created(self, files: RunStore, path: Path) -> None:
        name = path.relative_to(files.root).as_posix()
        content = read(path, _limit(name))
        with self._translated("written"):
            place = f"{self._root}/{name}"
            if self._protocol in WITH_FOLDERS:
                self._files.makedirs(place.rpartition("/")[0], exist_ok=True)
            try:
                self._files.pipe_file(place, content, mode="create")
                return
            except FileExistsError:
                same = self._read(name) == content
        if not same:
            raise MalformedFileError(
                f"{self.url}/{name} is another record: a record in the store is never overwritten.",
                "Run the same command again: another command has added a run.",
            )

    def replace(self, files: RunStore, paths: Iterable[Path]) -> None:
        """Write what follows from the records: the page and the analysis."""
        with self._translated("written"):
            for path in paths:
                place = f"{self._root}/{path.relative_to(files.root).as_posix()}"
                self._files.pipe_file(place, read(path, SizeLimit.RECORD))

    def _names(self, folder: str) -> list[str]:
        """Names in a folder of the store that a record may have; none where the folder is missing."""
        try:
            paths = self._files.ls(f"{self._root}/{folder}", detail=False)
        except FileNotFoundError:
            if self.read_only:
                self._files.ls(self._root, detail=False)  # a missing store is no empty one
            return []
        names = (str(path).rstrip("/").rpartition("/")[2] for path in paths)
        return sorted({name for name in names if FILE_NAME.fullmatch(name)})

    def _read(self, name: str) -> bytes | None:
        """The content of a file; None where it is missing or longer than any record."""
        try:
            with self._files.open(f"{self._root}/{name}", "rb") as file:
                content: bytes = file.read(_limit(name) + 1)
                return content if len(content) <= _limit(name) else None
        except FileNotFoundError:
            return None

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        """Errors of fsspec and of the library of a protocol, as two lines."""
        try:
            yield
        except (InferometerError, FileExistsError):
            raise
        except ImportError as error:
            raise UnavailableError(
                f"{self._protocol}:// needs a library that is missing: {one_line(str(error))}",
                f"pip install 'inferometer[stores]', or 'fsspec[{self._protocol}]' for another protocol.",
            ) from error
        except ValueError as error:
            raise UsageError(f"{self.url}: {one_line(str(error))}", "STORE=<folder>, s3://… or https://….") from error
        except FileNotFoundError as error:
            raise StorageError(
                f"{self.url} cannot be {done}: it does not exist ({one_line(str(error))}).",
                "Make the bucket or the folder, or correct STORE.",
            ) from error
        except PermissionError as error:
            raise StorageError(
                f"{self.url} cannot be {done}: {one_line(str(error)) or 'permission denied'}.",
                "Give these credentials the permission to list, read and create objects there.",
            ) from error
        except Exception as error:  # each library of a protocol has exceptions of its own
            raise StorageError(
                f"{self.url} cannot be {done}: {type(error).__name__}: {one_line(str(error))}",
                "Check the network, the credentials and STORE, then run the same command again.",
            ) from error
