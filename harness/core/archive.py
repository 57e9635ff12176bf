"""Packs and unpacks a .tar.xz archive whose bytes depend only on its files; no other module unpacks one.

Reading trusts nothing: the whole archive is unpacked in memory within limits, every member has to be an ordinary file
below one folder, and packing the content again has to give the very same tar. Nothing is written by tarfile.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Mapping
from pathlib import Path

from harness.core.errors import MalformedFileError, UsageError
from harness.core.safe_files import SizeLimit, open_to_read, read_at_most, relative_name

MAX_PACKED_BYTES = int(SizeLimit.BUNDLE)
MAX_UNPACKED_BYTES = 1 << 30
"""Most bytes in memory at once; a run of a thousand cases and five rounds has about half of it (100 kB a record)."""
MAX_MEMBER_BYTES = int(SizeLimit.RECORD)
MAX_MEMBERS = 100_000
_DECODER_BYTES = 128 << 20
"""lzma's preset 6 needs 9 MiB; a file may ask for 4 GiB."""
ASK_AGAIN = "Do not use it; ask for it again where it came from."


def pack(files: Mapping[str, bytes], folder: str) -> bytes:
    """The files by name, below one folder, as .tar.xz: sorted, mode 644, owner 0, time 0.

    Raises ValueError for a name that is not a path below a folder, and UsageError for more than `unpack` accepts.
    """
    largest = max(files, key=lambda name: len(files[name]), default="")
    _require(len(files) <= MAX_MEMBERS, f"It has {len(files):,} files, and {MAX_MEMBERS:,} are the most.")
    _require_bytes(largest, len(files.get(largest, b"")), MAX_MEMBER_BYTES)
    tar = _tar(files, folder)
    _require_bytes("Unpacked it", len(tar), MAX_UNPACKED_BYTES)
    packed = lzma.compress(tar, preset=6)
    _require_bytes("It", len(packed), MAX_PACKED_BYTES)
    return packed


def _require_bytes(name: str, size: int, most: int) -> None:
    _require(size <= most, f"{name} has {size:,} bytes, and {most:,} are the most that a bundle's reader takes.")


def _require(held: bool, problem: str) -> None:
    if not held:
        raise UsageError(problem, "Measure fewer cases or rounds in one folder: RESULTS=<folder> names another.")


def unpack(path: Path) -> dict[str, bytes]:
    """Content by name, without the folder that all names share. Raises MalformedFileError, which names the member."""
    tar = _decompress(path)
    files: dict[str, bytes] = {}
    folder = ""
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
            for member in archive:
                folder = folder or member.name.split("/")[0]
                name = _checked(path, member, folder)
                if name in files:
                    raise _refused(path, f"{member.name!r} is in it twice")
                if len(files) == MAX_MEMBERS:
                    raise _refused(path, f"it has more than {MAX_MEMBERS:,} members")
                content = archive.extractfile(member)
                files[name] = content.read() if content else b""
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        raise _refused(path, f"it is no tar archive ({error})") from error
    if _tar(files, folder) != tar:
        raise _refused(path, "its order, owners, times or padding are not those of `make bundle`")
    return files


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files that `unpack` checked into an empty folder."""
    for name, content in files.items():
        target = folder / relative_name(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _tar(files: Mapping[str, bytes], folder: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(relative_name(f"{folder}/{name}"))
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))
    return buffer.getvalue()


def _decompress(path: Path) -> bytes:
    try:
        with open_to_read(path) as file:
            packed = read_at_most(file, MAX_PACKED_BYTES)
    except OSError as error:
        raise _refused(path, f"it cannot be read ({error.strerror})") from error
    if packed is None:
        raise _refused(path, f"it has more than {MAX_PACKED_BYTES:,} bytes")
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DECODER_BYTES)
    try:
        tar = decoder.decompress(packed, max_length=MAX_UNPACKED_BYTES + 1)
    except lzma.LZMAError as error:
        raise _refused(path, f"it is damaged or no .tar.xz ({error})") from error
    if len(tar) > MAX_UNPACKED_BYTES:
        raise _refused(path, f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
    if not decoder.eof:
        raise _refused(path, "it is cut off")
    if decoder.unused_data:
        raise _refused(path, f"{len(decoder.unused_data):,} bytes follow its end")
    return tar


def _checked(path: Path, member: tarfile.TarInfo, folder: str) -> str:
    """The member's name below the folder."""
    if member.type != tarfile.REGTYPE:
        kind = "a link" if member.issym() or member.islnk() else "a device" if member.isdev() else "no ordinary file"
        raise _refused(path, f"{member.name!r} is {kind}")
    try:
        relative_name(member.name)
    except ValueError as error:
        raise _refused(path, str(error)) from error
    if member.size > MAX_MEMBER_BYTES:
        raise _refused(path, f"{member.name!r} has more than {MAX_MEMBER_BYTES:,} bytes")
    if not member.name.startswith(f"{folder}/"):
        raise _refused(path, f"{member.name!r} is not below {folder}/")
    return member.name.removeprefix(f"{folder}/")


def _refused(path: Path, why: str) -> MalformedFileError:
    return MalformedFileError(f"{path} is refused: {why}.", ASK_AGAIN)
