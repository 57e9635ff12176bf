"""Reads and writes records: atomically, checked, with a message for each way that a file can be wrong."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from harness.core import text as sanitize
from harness.core.errors import (
    CaseError,
    MalformedFileError,
    MissingInputError,
    NewerFormatError,
    OlderFormatError,
    StorageError,
    UsageError,
)
from harness.core.packed import PackedRows, RowsWriter, written_rows
from harness.core.safe_files import SizeLimit, open_to_read, path_inside, read_at_most
from harness.core.schemas import (
    Artifact,
    ExportRecord,
    Failed,
    Generated,
    GenerationExport,
    LoadFailure,
    Measured,
    PackedSummary,
    RawBase,
    RawRecord,
    Summary,
)
from harness.core.schemas.summary_record import rounded_record
from harness.core.seal import UNSEALED, Opened, sealed, unsealed
from harness.core.text import portable, portable_again

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")

_RAW: TypeAdapter[Measured | Failed] = TypeAdapter(RawRecord)
_GENERATED: TypeAdapter[Generated | Failed] = TypeAdapter(Annotated[Generated | Failed, Field(discriminator="status")])
MAX_RECORD_BYTES: int = SizeLimit.RECORD
PARQUET = ".parquet"
PACKED = 4
"""schema_version of a PackedSummary."""
MAX_LOG_BYTES = 1 << 20
"""Longest log of a failed case; its end is the most useful part."""
TAIL_BYTES = 64 << 10
STALE_S = 3600.0
"""Age from which a temporary file has no writer any more: no write takes an hour."""
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")
"""Names that mkstemp gives in save_bytes."""
_SEAL_HEAD = b'{"sha256":"'
_SEAL_JOIN = b'","record":'
_SEAL_TAIL = b"}\n"
_AGAIN = "Run `make run`: damaged files are measured again."


def save(path: Path, record: BaseModel, indent: int | None = 2) -> bool:
    """Write a record with its seal (core/seal.py); return False, without writing, when the file already has this very
    content, so that its date stays true.

    Raises StorageError when the disk is full or the folder is not writable, and UsageError where the file would be too
    large for any stage to read.
    """
    return save_encoded(path, encoded(record, indent))


def save_encoded(path: Path, content: bytes) -> bool:
    """As save, for the content of a record's file (`encoded`)."""
    _check_fits(path, len(content))
    return save_bytes(path, content)


def save_summary(path: Path, summary: Summary) -> None:
    """Write a summary; the rows of a large one into summary.parquet beside it. Raises as save."""
    if not isinstance(summary, PackedSummary):
        save(path, summary)
        return
    with translate_storage_errors(path):
        writer = RowsWriter(path.with_suffix(PARQUET))
        for model in dict.fromkeys(row.model for row in summary.rows):
            rows = [rounded_record(row) for row in summary.rows if row.model == model]
            writer.add(written_rows(model, rows))
        groups = writer.close()
        writer.keep()
    save(path, summary.model_copy(update={"rows": (), "row_groups": groups}))


def _check_fits(path: Path, size: int) -> None:
    if size > MAX_RECORD_BYTES:
        raise UsageError(
            f"{path} would have {size:,} bytes, and {MAX_RECORD_BYTES:,} are the most that is read.",
            "Plan fewer cases, rounds or samples in one results folder: RESULTS=<folder> names another.",
        )


def check_size(record: BaseModel, remedy: str) -> None:
    """Raise CaseError where a record is larger than its reader accepts."""
    size = len(record.model_dump_json())
    if size > MAX_RECORD_BYTES - (1 << 10):
        raise CaseError(f"Its record has {size:,} bytes, and {MAX_RECORD_BYTES:,} are the most that is read.", remedy)


def encoded(record: BaseModel, indent: int | None = 2) -> bytes:
    """The content of a record's file, sealed."""
    return sealed(record.model_dump_json(indent=indent).encode() + b"\n")


def save_bytes(path: Path, content: bytes) -> bool:
    """Write through a temporary file and a rename: a reader or a crash never sees half a file."""
    with translate_storage_errors(path):
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            # The time is from the clock of the folder's disk, which may belong to another machine.
            sweep_temporary(path.parent, before=os.fstat(handle).st_mtime - STALE_S)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            let_others_read(Path(temporary))  # mkstemp makes files private
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    return True


def sweep_temporary(folder: Path, before: float = math.inf) -> None:
    """Delete temporary files that a killed process left in a folder. before: files changed at this time or later, in
    seconds since 1970, may belong to another writer and stay."""
    for path in folder.glob(".*"):
        # It may be renamed or deleted meanwhile.
        with suppress(OSError):
            status = path.lstat()
            if _TEMPORARY.fullmatch(path.name) and stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                path.unlink()


def load(path: Path, kind: type[R], made_by: str, sums: dict[Path, str] | None = None) -> R:
    """Read a record of the given kind and check its seal.

    made_by: the command that writes the file, for the hint. sums: receives the sha256 of the record without its seal,
    for the files that are computed from it. Raises MissingInputError, OlderFormatError, NewerFormatError or
    MalformedFileError.
    """
    return parse(path, read_bytes(path, made_by), kind, made_by, sums)


def parse(path: Path, content: bytes, kind: type[R], made_by: str, sums: dict[Path, str] | None = None) -> R:
    """A record from the content of a file; `path` names it in messages. Raises as `load` does."""
    record = _opened(path, content, made_by)
    known = _versions_of(kind)
    check_version(path, record.content, (*known, PACKED) if kind is Summary else known, made_by)
    if record.seal is None:
        UNSEALED[path] = None
    if sums is not None:
        sums[path] = record.digest
    try:
        if kind is Summary and is_packed(record.content):
            return _with_rows(path, PackedSummary.model_validate_json(record.content))  # type: ignore[return-value]
        return kind.model_validate_json(record.content)
    except ValidationError as error:
        if any(problem["loc"] == ("seal",) for problem in error.errors()):  # a program formatted the file again
            raise _changed(path, made_by) from error
        raise MalformedFileError(
            f"{path} is not a valid {kind.__name__}: {first_problem(error)}",
            _run_again(made_by),
        ) from error


def _with_rows(path: Path, summary: PackedSummary) -> PackedSummary:
    """The summary with its rows, all in memory: 12 kB each."""
    packed = PackedRows(path.with_suffix(PARQUET), summary.row_groups)
    rows = (row for at in range(len(summary.row_groups)) for row in packed.group(at))
    return summary.model_copy(update={"rows": tuple(rows)})


def load_head(path: Path, made_by: str) -> Summary:
    """A summary; of a large run a PackedSummary without its rows. Raises as load."""
    content = read_bytes(path, made_by)
    return parse(path, content, PackedSummary if is_packed(content) else Summary, made_by)


def is_packed(content: bytes) -> bool:
    """Whether the content of a summary's file is a PackedSummary."""
    return _version(content) == PACKED


def content_sums(path: Path, made_by: str) -> tuple[str, ...]:
    """sha256 of a record without its seal, which is checked, as in `sums` of load and load_raw; of a Parquet file that
    of the file. A raw record has two where its texts are passed on in another form. Raises as they do."""
    if path.suffix == PARQUET:
        return (sha256_file(path),)
    content = read_bytes(path, made_by)
    if content.startswith(_SEAL_HEAD):
        digest, payload = opened_raw(path, content)
        return tuple(dict.fromkeys((digest, _passed_on(digest, payload))))
    return (_opened(path, content, made_by).digest,)


def _opened(path: Path, content: bytes, made_by: str) -> Opened:
    record = unsealed(content)
    if record.broken:
        raise _changed(path, made_by)
    return record


def _changed(path: Path, made_by: str) -> MalformedFileError:
    return MalformedFileError(
        f"{path} has changed since it was written: it does not match its seal.",
        f"Run `{made_by}` to make it again, or put back the file that was written.",
    )


def read_bytes(path: Path, made_by: str) -> bytes:
    """The content of a file, or MissingInputError naming the command that writes it."""
    try:
        with open_to_read(path) as file:
            content = read_at_most(file, MAX_RECORD_BYTES)
    except FileNotFoundError as error:
        raise MissingInputError(f"{path} does not exist.", f"Run `{made_by}` first.") from error
    except OSError as error:
        hint = _NAME_ANOTHER if error.errno in _NO_SUCH_PLACE else "Check its owner and permissions."
        raise StorageError(f"{path} cannot be read: {error.strerror}.", hint) from error
    if content is None:
        raise MalformedFileError(
            f"{path} has more than {MAX_RECORD_BYTES:,} bytes, which no record of ours has.",
            _run_again(made_by),
        )
    return content


def save_raw(path: Path, record: Measured | Generated | Failed) -> None:
    """Write a raw record sealed with the sha256 of its own bytes, to detect later damage. Raises as save."""
    content = encoded_raw(record)
    _check_fits(path, len(content))
    save_bytes(path, content)


def encoded_raw(record: Measured | Generated | Failed) -> bytes:
    """The content of a raw record's file, which names no folder of this machine."""
    return _encoded_raw(portable_failure(record) if isinstance(record, Failed) else record)


def passed_on_raw(record: Failed) -> bytes:
    """As encoded_raw, of a record that was read."""
    return _encoded_raw(passed_on_failure(record))


def _encoded_raw(record: Measured | Generated | Failed) -> bytes:
    payload = record.model_dump_json().encode()
    digest = hashlib.sha256(payload).hexdigest().encode()
    return _SEAL_HEAD + digest + _SEAL_JOIN + payload + _SEAL_TAIL


def load_raw(path: Path, sums: dict[Path, str] | None = None) -> Measured | Failed:
    """Read a raw record. sums: as in load. Raises MalformedFileError, which names the damage."""
    return _load_raw(path, _RAW, sums, "make run")


def load_generated(path: Path, sums: dict[Path, str] | None = None) -> Generated | Failed:
    """As load_raw, for a record of `generate`."""
    return _load_raw(path, _GENERATED, sums, "make generate")


def _load_raw(path: Path, kind: TypeAdapter[T], sums: dict[Path, str] | None, made_by: str) -> T:
    digest, payload = opened_raw(path, read_bytes(path, made_by))
    check_version(path, payload, _versions_of(RawBase), made_by)
    try:
        record = kind.validate_json(payload)
        if sums is not None:
            sums[path] = _passed_on(digest, payload)
        return record
    except ValidationError as error:
        again = f"Run `{made_by}`: damaged files are measured again."
        raise MalformedFileError(f"{path} is not a valid raw record: {first_problem(error)}", again) from error


def opened_raw(path: Path, content: bytes) -> tuple[str, bytes]:
    """(sha256, record). Raises MalformedFileError where the sha256 does not belong to the record."""
    start = len(_SEAL_HEAD) + 64 + len(_SEAL_JOIN)
    digest, payload = content[len(_SEAL_HEAD) : len(_SEAL_HEAD) + 64], content[start : -len(_SEAL_TAIL)]
    # Every byte around digest and payload is compared too: a damaged file must never pass the check.
    if content[: len(_SEAL_HEAD)] + content[start - len(_SEAL_JOIN) : start] != _SEAL_HEAD + _SEAL_JOIN or not (
        content.endswith(_SEAL_TAIL)
    ):
        raise MalformedFileError(f"{path} is cut off or is not a raw record.", _AGAIN)
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        raise MalformedFileError(f"{path} does not match its checksum.", _AGAIN)
    return digest.decode(), payload


def _passed_on(digest: str, payload: bytes) -> str:
    """The sum of a raw record as a bundle contains it: a failed record loses the folders of this machine, which earlier
    versions wrote."""
    if b'"status":"failed"' not in payload:
        return digest
    record = _GENERATED.validate_json(payload)
    return passed_on_raw(record)[len(_SEAL_HEAD) :][:64].decode() if isinstance(record, Failed) else digest


def sha256_file(path: Path) -> str:
    """Hex digest of a file's content."""
    digest = hashlib.sha256()  # hashlib.file_digest is not in the Python 3.10 that TensorRT 8.6 needs
    with open_to_read(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def check_artifacts(folder: Path, export: ExportRecord | GenerationExport) -> None:
    """Raise MalformedFileError when a file of an export is missing or has changed since."""
    for file in export.files():
        check_artifact(folder, file, "make export")


def check_artifact(folder: Path, file: Artifact, made_by: str) -> None:
    """Raise MalformedFileError when a file is missing, has changed since it was made or lies outside the folder."""
    path = path_inside(folder, file.path)
    # The size first: a file that has grown is not read completely.
    if not path.is_file() or path.stat().st_size != file.size_bytes or sha256_file(path) != file.sha256:
        state = "has changed since it was made" if path.is_file() else "is missing"
        raise MalformedFileError(f"{path} {state}.", f"Run `{made_by}`: it makes the file again.")


def tail(log: Path, lines: int = 40) -> str:
    """The last lines of a log, safe for a terminal; empty without a log. Reads only its end, whatever its length. A
    crash's list of loaded modules is left out: it is longer than the stack."""
    try:
        with open_to_read(log) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
    except (OSError, MalformedFileError):
        return ""
    tail_lines = sanitize.lines(text if size <= TAIL_BYTES else text.partition("\n")[2]).splitlines()
    return "\n".join([line for line in tail_lines if not line.startswith("Extension modules: ")][-lines:])


def shorten_log(log: Path) -> None:
    """Keep only the end of a log longer than MAX_LOG_BYTES, with a note about the removed part."""
    with translate_storage_errors(log):
        if not log.is_file() or log.stat().st_size <= MAX_LOG_BYTES:
            return
        with open_to_read(log) as file:
            left_out = file.seek(-MAX_LOG_BYTES, os.SEEK_END)
            kept = file.read(MAX_LOG_BYTES)
        save_bytes(log, f"[{left_out:,} bytes left out here]\n".encode() + kept)


def digest_of(*parts: Any) -> str:
    """Twelve hex digits that identify JSON-able values: the same values give the same digits everywhere."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def first_problem(error: ValidationError) -> str:
    """The first of pydantic's errors as `field: reason`."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "(whole file)"
    return f"{where}: {first['msg']}"


def _run_again(made_by: str) -> str:
    # The file may be a user's own, named by mistake: the hint must not only say to delete it.
    return f"If it is a damaged one of ours, delete it and run `{made_by}` again; else name another file."


F = TypeVar("F", Failed, LoadFailure)


def portable_failure(record: F) -> F:
    """A failed record whose texts name no folder of this machine."""
    return _with_texts(record, portable)


def passed_on_failure(record: F) -> F:
    """As portable_failure, of a record that was read: the same in every working directory."""
    return _with_texts(record, portable_again)


def _with_texts(record: F, change: Callable[[str], str]) -> F:
    return record.model_copy(update={name: change(getattr(record, name)) for name in ("error", "hint", "stderr_tail")})


_NAME_ANOTHER = "Name another: RESULTS=<folder>, MODELS_DIR=<folder> or STORE=<folder>."
_NO_RIGHTS = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_SUCH_PLACE = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP)
"""A file in place of a folder or the reverse, a name that the system does not take, a circle of links."""


@contextmanager
def translate_storage_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's errors about disks and permissions into StorageError."""
    try:
        yield
    except OSError as error:
        again = "run the same command again; measured results are kept."
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"The disk is full: {path} could not be written.", f"Free some space and {again}"
            ) from error
        if error.errno == errno.EFBIG:
            raise StorageError(
                f"{path} may grow no larger (ulimit -f).", f"Raise the limit, ulimit -f unlimited, and {again}"
            ) from error
        if error.errno in (*_NO_RIGHTS, *_NO_SUCH_PLACE) and _is_about(error, path):
            hint = _NAME_ANOTHER
            if error.errno in _NO_RIGHTS:
                hint = f"Make the folder writable, or n{hint.removeprefix('N')}"
            raise StorageError(f"{path} could not be written: {error.strerror}.", hint) from error
        raise


def _is_about(error: OSError, path: Path) -> bool:
    """Whether the error is about this path, its neighbours or a folder above it, and not about a file elsewhere that a
    model's own code may have opened meanwhile."""
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return True
    refused, target = Path(os.fsdecode(error.filename)).absolute(), path.absolute()
    return target.parent in (refused, *refused.parents) or refused in target.parents


def let_others_read(path: Path) -> None:
    """Give a file the usual permissions of a new file: the caller of a container and CI read results."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def _versions_of(kind: type[BaseModel]) -> tuple[int, ...]:
    """The versions that its reader accepts; the last is the version that is written."""
    return tuple(sorted(get_args(kind.model_fields["schema_version"].annotation)))


def check_version(path: Path, content: bytes, known: tuple[int, ...], made_by: str) -> None:
    """Detect older and newer formats before validation, which would only show many field errors."""
    # The version is near the start of every file that Inferometer writes: no need to parse 100 kB of samples twice.
    head = _head(content)
    if not head.startswith(_VERSION):
        raise MalformedFileError(f"{path} was not written by Inferometer.", _run_again(made_by))
    version = _version(content)
    if version is None:
        raise MalformedFileError(f"{path} has no readable schema_version.", _run_again(made_by))
    if version < known[0]:
        raise OlderFormatError(
            f"{path} has format {version}; this Inferometer writes format {known[-1]}.",
            f"Run `{made_by}` again to make a new one.",
        )
    if version > known[-1]:
        raise NewerFormatError(
            f"{path} has format {version}; this Inferometer knows up to {known[-1]}.",
            "Update Inferometer, or name another results folder: `RESULTS=<folder>`.",
        )


_VERSION = b'{"schema_version":'


def _head(content: bytes) -> bytes:
    return content[:64].replace(b" ", b"").replace(b"\n", b"")


def _version(content: bytes) -> int | None:
    digits = _head(content)[len(_VERSION) :].split(b",")[0].split(b"}")[0]
    return int(digits) if digits.isdigit() else None
