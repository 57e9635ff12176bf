"""The worker's side: run one unit in a folder of its own, and pack what it measured.

A worker executes `python -m harness.run` of its own installation on files that it checks by their sha256. It unpickles
nothing, takes no command from the request, and opens no port.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import harness
from harness.core import archive, store
from harness.core.errors import MalformedFileError, UsageError
from harness.core.host import orphans
from harness.core.host.environment import version
from harness.core.layout import ModelFolder
from harness.core.safe_files import SizeLimit, path_inside, read, read_text
from harness.core.schemas import AttemptReport, UnitRequest
from harness.core.timestamps import utc_now

MACHINE = "INFEROMETER_MACHINE"
"""Environment variable that names this machine; without it its id is a hash of its name and /etc/machine-id."""

REPORT = "attempt.json"
CODE = ("*.py", "*.cu", "*.ptx")
"""Files of the package that decide what is measured."""
KEPT = ("raw", "environments", "logs")
"""Folders of the results that travel back."""
PICKLED = ModelFolder(Path()).pickled.name
OUTPUT_BYTES = 20_000


@functools.cache
def package_digest() -> str:
    """Hash of the code of this package: the same for a commit and for the wheel that was built from it."""
    root, digest = Path(harness.__file__).parent, hashlib.sha256()
    for path in sorted(path for kind in CODE for path in root.rglob(kind)):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def installed_version() -> str:
    """This Inferometer: its version, and the digest of its code, which coordinator and worker must share."""
    return f"{version('inferometer') or 'source tree'} of code {package_digest()}"


def execute(request_json: str, read: Callable[[str], bytes]) -> bytes:
    """Run a unit and return its archive: attempt.json, and the records below raw/, environments/ and logs/.

    read: content of a file by its sha256. Raises UsageError where this installation has other code or where it would
    have to read a pickle, and MalformedFileError where a file differs from the file that the request names.
    """
    request = UnitRequest.model_validate_json(request_json)
    if request.inferometer.rpartition(" ")[2] != package_digest():
        raise UsageError(
            f"The worker has Inferometer {installed_version()}, the plan is of {request.inferometer}.",
            "Install the same one on every machine: one wheel, or one commit without changes.",
        )
    if any(PurePosixPath(file.path).name == PICKLED for file in request.files):
        raise UsageError(
            f"The unit has a {PICKLED}, and a worker unpickles nothing.",
            "Save the module with torch.export or as ONNX, or name a function of every host: MODELS=module:….",
        )
    with _host_slot(), tempfile.TemporaryDirectory(prefix="inferometer-unit-") as temporary:
        folder = Path(temporary)
        for file in request.files:
            content = read(file.sha256)
            if hashlib.sha256(content).hexdigest() != file.sha256:
                raise MalformedFileError(
                    f"{file.path} differs from the file that the request names.", "Submit the unit again."
                )
            target = path_inside(folder, file.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return _measured(request, folder)


def _measured(request: UnitRequest, folder: Path) -> bytes:
    results = folder / "results"
    command = [sys.executable, "-m", "harness.run", "--results", str(results), "--models-dir", str(folder / "models")]
    search = os.pathsep.join(filter(None, [str(Path(harness.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    started_at, log = utc_now(), folder / "output"
    with log.open("wb") as output:
        done = subprocess.run(  # noqa: S603 - our own module, in folders of our own
            orphans.guarded(command),
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": search},
            cwd=folder,
            check=False,
        )
    report = AttemptReport(
        unit_id=request.unit_id,
        attempt=request.attempt,
        machine=machine_id(),
        hostname=socket.gethostname(),
        started_at=started_at,
        ended_at=utc_now(),
        exit_code=done.returncode,
        output=store.tail(log)[-OUTPUT_BYTES:],
    )
    files = {
        path.relative_to(results).as_posix(): read(path, SizeLimit.RECORD)
        for kept in KEPT
        for path in sorted((results / kept).rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
    return archive.pack({REPORT: store.encoded(report), **files}, request.unit_id)


def machine_id() -> str:
    """The id of this machine: twelve digits, or the value of INFEROMETER_MACHINE."""
    if named := os.environ.get(MACHINE):
        return named
    system = Path("/etc/machine-id")
    text = system.read_text().strip() if system.is_file() else ""
    return hashlib.sha256(f"{text} {socket.gethostname()}".encode()).hexdigest()[:12]


@contextlib.contextmanager
def _host_slot() -> Iterator[None]:
    """Hold the only slot of this machine, also against other runners; the kernel frees it with its holder."""
    path = Path(tempfile.gettempdir()) / f"inferometer-{machine_id()}.slot"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def execute_in(folder: str) -> None:
    """Run the unit of a folder that both sides see: <folder>/request.json, <folder>/../../files/<sha256>; the archive
    becomes <folder>/<attempt>.tar.xz."""
    place = Path(folder)
    text = read_text(place / "request.json", SizeLimit.RECORD)
    stored = place.parents[1] / "files"
    packed = execute(text, lambda digest: (stored / digest).read_bytes())
    target = place / f"{UnitRequest.model_validate_json(text).attempt}.tar.xz"
    half = target.with_suffix(".half")
    half.write_bytes(packed)
    half.replace(target)


if __name__ == "__main__":
    orphans.die_with_parent()
    execute_in(sys.argv[1])
