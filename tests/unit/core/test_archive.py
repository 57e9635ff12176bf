"""archive: the same files give the same bytes, and nothing but those bytes is read."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import archive
from harness.core.errors import MalformedFileError, UsageError

FILES = {"manifest.json": b"{}", "results/plan.json": b"plan", "results/raw/a/1.json": b"raw" * 400}
FOLDER = "inferometer-abc"


def put(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "x.tar.xz"
    path.write_bytes(content)
    return path


def refused(path: Path) -> str:
    """The two lines of the refusal, without a line break in either."""
    with pytest.raises(MalformedFileError) as caught:
        archive.unpack(path)
    assert caught.value.problem.startswith(f"{path} is refused: ")
    assert "\n" not in caught.value.problem + caught.value.hint
    return caught.value.problem


def tar_with(*members: tarfile.TarInfo) -> bytes:
    """The good archive's members, and these."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        for name in sorted(FILES):
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(FILES[name])
            out.addfile(member, io.BytesIO(FILES[name]))
        for member in members:
            out.addfile(member, io.BytesIO(b"\0" * member.size))
    return lzma.compress(buffer.getvalue())


def member(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def test_packed_files_come_out_again(tmp_path: Path) -> None:
    assert archive.unpack(put(tmp_path, archive.pack(FILES, FOLDER))) == FILES


def test_the_order_of_files_does_not_matter() -> None:
    assert archive.pack(dict(reversed(FILES.items())), FOLDER) == archive.pack(FILES, FOLDER)


def test_owner_time_and_mode_are_fixed() -> None:
    with tarfile.open(fileobj=io.BytesIO(archive.pack(FILES, FOLDER)), mode="r:xz") as opened:
        assert {(m.uid, m.gid, m.uname, m.gname, m.mtime, m.mode) for m in opened} == {(0, 0, "", "", 0, 0o644)}


def test_a_name_that_leads_out_is_not_packed() -> None:
    with pytest.raises(ValueError, match="no path below"):
        archive.pack({"../x": b""}, FOLDER)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (member("/etc/cron.d/x"), "'/etc/cron.d/x' is no path below a folder"),
        (member(f"{FOLDER}/../../x"), "/../../x' is no path below a folder"),
        (member(f"{FOLDER}/results/./x"), "results/./x' is no path below a folder"),
        (member("elsewhere/x"), f"'elsewhere/x' is not below {FOLDER}/"),
        (member(FOLDER), f"is not below {FOLDER}/"),
        (member(f"{FOLDER}/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"), f"'{FOLDER}/link' is a link"),
        (member(f"{FOLDER}/hard", type=tarfile.LNKTYPE, linkname="/etc/passwd"), f"'{FOLDER}/hard' is a link"),
        (member(f"{FOLDER}/null", type=tarfile.CHRTYPE), f"'{FOLDER}/null' is a device"),
        (member(f"{FOLDER}/disk", type=tarfile.BLKTYPE), f"'{FOLDER}/disk' is a device"),
        (member(f"{FOLDER}/pipe", type=tarfile.FIFOTYPE), f"'{FOLDER}/pipe' is a device"),
        (member(f"{FOLDER}/folder", type=tarfile.DIRTYPE), f"'{FOLDER}/folder' is no ordinary file"),
        (member(f"{FOLDER}/results/plan.json"), f"'{FOLDER}/results/plan.json' is in it twice"),
        (member(f"{FOLDER}/zzz", mtime=1), "not those of `make bundle`"),
        (member(f"{FOLDER}/zzz", mode=0o4755), "not those of `make bundle`"),
        (member(f"{FOLDER}/zzz", pax_headers={"comment": "hidden"}), "not those of `make bundle`"),
        (member(f"{FOLDER}/aaa"), "not those of `make bundle`"),  # out of order
    ],
    ids=lambda value: value.name if isinstance(value, tarfile.TarInfo) else None,
)
def test_a_hostile_member_is_refused_by_name(tmp_path: Path, extra: tarfile.TarInfo, words: str) -> None:
    assert words in refused(put(tmp_path, tar_with(extra)))


def test_a_member_that_is_too_large_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = archive.pack(FILES, FOLDER)
    monkeypatch.setattr(archive, "MAX_MEMBER_BYTES", 1000)
    assert f"'{FOLDER}/results/raw/a/1.json' has more than 1,000 bytes" in refused(put(tmp_path, packed))
    with pytest.raises(UsageError, match=r"results/raw/a/1\.json has 1,200 bytes, and 1,000 are the most"):
        archive.pack(FILES, FOLDER)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("MAX_PACKED_BYTES", "it has more than 2 bytes"),
        ("MAX_UNPACKED_BYTES", "it unpacks to more than 2 bytes"),
        ("MAX_MEMBERS", "it has more than 2 members"),
    ],
)
def test_each_limit_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, words: str) -> None:
    packed = archive.pack(FILES, FOLDER)
    monkeypatch.setattr(archive, limit, 2)
    assert words in refused(put(tmp_path, packed))
    with pytest.raises(UsageError, match="2 are the most"):
        archive.pack(FILES, FOLDER)


def test_a_decompression_bomb_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 1 << 20)
    assert "unpacks to more than 1,048,576 bytes" in refused(put(tmp_path, lzma.compress(b"\0" * (64 << 20), preset=0)))


def test_a_file_that_asks_for_a_giant_dictionary_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 256 << 20}]
    assert "damaged or no .tar.xz" in refused(put(tmp_path, lzma.compress(b"x", filters=filters)))


def flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda content: content[:-1], "it is cut off"),
        (lambda content: content + b"\0", "1 bytes follow its end"),
        (lambda content: content + content, "bytes follow its end"),
        (lambda _content: b"", "it is cut off"),
        (lambda _content: b"PK\3\4 this is a zip archive", "damaged or no .tar.xz"),
        (lambda _content: lzma.compress(b"no tar"), "refused"),
        (lambda _content: lzma.compress(b""), "refused"),
        (lambda content: lzma.compress(lzma.decompress(content) + b"\0" * 512), "not those of `make bundle`"),
        (lambda content: lzma.compress(lzma.decompress(content)[:1500]), "refused"),
    ],
)
def test_a_damaged_archive_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes], words: str) -> None:
    assert words in refused(put(tmp_path, damage(archive.pack(FILES, FOLDER))))


def test_no_changed_byte_goes_unseen(tmp_path: Path) -> None:
    whole = archive.pack(FILES, FOLDER)
    for at in range(len(whole)):
        refused(put(tmp_path, flip(whole, at)))


@given(st.binary(max_size=3000))
def test_any_tar_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, tar: bytes) -> None:
    path = put(tmp_path_factory.getbasetemp(), lzma.compress(tar, preset=0))
    refused(path)


def test_files_are_written_below_the_folder_only(tmp_path: Path) -> None:
    archive.write({"a/b": b"1"}, tmp_path)
    assert (tmp_path / "a/b").read_bytes() == b"1"
    with pytest.raises(ValueError, match="no path below"):
        archive.write({"../c": b""}, tmp_path)
