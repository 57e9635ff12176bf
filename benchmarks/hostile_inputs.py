"""Inputs made to crash, to mislead or to steer: configurations, records, names, archives, arrays.

Each kind makes an input from its chance and says what has to become of it; benchmarks/attack.py gives them to stages.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import random
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from benchmarks.forked_stages import FaultError, Folders, call
from harness import aggregate, compare, plan, report, share, verify
from harness.core import archive, store
from harness.core.errors import CaseError
from harness.core.schemas import Summary
from harness.zoo.input_files import read_arrays
from tests.synthetic_results import RESNET, Synthetic, case_of

CASES = [case_of(RESNET, backend, "fp32", 1) for backend in ("torch-eager", "onnxruntime")]
STEERS = "\x1b]0;owned\x07\x1b[2J\u202e"
MARKUP = "<script>alert(1)</script>[x](https://evil.example)![x](//evil.example)"
SMALL = "models: [resnet18]\nmatrix: [{backends: [noop]}]\n"


def base(folders: Folders) -> None:
    """A results folder as a run leaves it."""
    synthetic = Synthetic(models=(RESNET,), cases=CASES, rounds=3, samples=60)
    fsync, os.fsync = os.fsync, lambda fd: None  # it need not survive a power cut
    try:
        synthetic.write(folders.results.root, folders.models.root)
    finally:
        os.fsync = fsync


# --- configurations -------------------------------------------------------------------------------------------------

NUMBERS = (
    *("010", "1:30", "0x10", f"0x{'f' * 5000}", "9" * 5000, "!!int ''", "!!int [1]", "!!float ''", "!!bool x"),
    *(".nan", ".inf", "1.0e+400", "1e400", "true", "2026-01-01", "2026-99-99", "!!timestamp x", "-1", "[1]", "{a: 1}"),
    *("1000000000000", "!!binary x", "!!set {a}", "0", "''", "!!python/object/apply:os.system [id]", "&a [*a]"),
)
FIELDS = ("rounds", "threads", "max_s", "timeout_s", "max_samples", "seed", "target_ci", "export_timeout_s")
TEXTS = (
    "[" * 50_000,
    "{a: " * 20_000,
    "- " * 20_000 + "x\n",
    "a: &a [x, x]\nb: &b [*a, *a]\n",
    "x" * 1_000_001,
    "\x00" * 100,
    "\ufeff" * 3,
    f"{SMALL}report: {{title: '{STEERS}'}}\n",
    f'models: ["resnet18{chr(92)}e[2J"]\nmatrix: [{{backends: [noop]}}]\n',
    f"{SMALL}{SMALL}",
    "models: [../../etc/passwd]\nmatrix: [{backends: [torch-eager]}]\n",
    "models: ['module:os:system']\nmatrix: [{backends: [noop], models: [x]}]\n",
    "models: ['onnx:/dev/zero']\nmatrix: [{backends: [onnxruntime]}]\n",
    f"models: ['hf:{'a' * 400}']\nmatrix: [{{backends: [noop]}}]\n",
    "%YAML 9.9\n---\nx",
    f"{SMALL}trust_remote_code: true\n",
)


def number_in_yaml(chooser: random.Random, place: Path) -> None:
    """A number that YAML, Python or a clock reads in an unexpected way; refused unless its key takes it."""
    text = f"{SMALL}measurement: {{{chooser.choice(FIELDS)}: {chooser.choice(NUMBERS)}}}\n"
    _planned(place, text.encode(), may_pass=True)


def text_as_configuration(chooser: random.Random, place: Path) -> None:
    """A text that exhausts a parser, leads elsewhere or asks for code."""
    _planned(place, chooser.choice(TEXTS).encode(), may_pass=True)


def damaged_configuration(chooser: random.Random, place: Path) -> None:
    """A shipped configuration with some bytes changed: refused, or a plan."""
    source = chooser.choice(sorted(Path("configs").glob("*.yaml")))
    _planned(place, _flipped(source.read_bytes(), chooser, chooser.randrange(1, 20)), may_pass=True)


def odd_file_as_configuration(chooser: random.Random, place: Path) -> None:
    """A pipe, a device, a folder or a link to itself."""
    place.mkdir(exist_ok=True)
    path = _odd(place / "odd.yaml", chooser)
    call(plan.stage, "--config", str(path), "--results", str(place / "results"), place=place / "output").refused()


def _planned(place: Path, content: bytes, may_pass: bool) -> None:
    path = place / "hostile.yaml"
    path.write_bytes(content)
    ended = call(plan.stage, "--config", str(path), "--results", str(place / "results"), place=place / "output")
    if ended.code or not may_pass:
        ended.refused()


# --- records --------------------------------------------------------------------------------------------------------


def damaged_record(chooser: random.Random, place: Path) -> None:
    """A file of a results folder that is cut, changed, empty, endless, of another format or no file at all: refused, or
    named, and nothing of it in a figure."""
    folders, pristine = _results(place)
    path = chooser.choice(sorted(path for path in _files(folders.root) if path.suffix == ".json"))
    _spoil(path, chooser)
    _judged(folders, pristine, path)


def steering_record(chooser: random.Random, place: Path) -> None:
    """Texts of a summary that steer a terminal, are HTML or link elsewhere; all else about it is right."""
    folders, _ = _results(place)
    folders.well(aggregate.stage)
    record = json.loads(folders.results.summary.read_bytes())
    poison = chooser.choice((STEERS, MARKUP))
    for row in record["rows"]:
        row["setting"] = f"default{poison}"
        row["flags"] = [*row["flags"], {"name": "NOTE", "detail": poison, "remedy": poison, "caps_at": "A"}]
    record["title"] = f"Report {poison}"
    record["notes"] = [poison]
    folders.results.summary.write_bytes(json.dumps(record, separators=(",", ":")).encode())
    for stage, more in ((report.stage, ("--no-charts", "--print")), (share.stage, ())):
        ended = folders.call(stage, *more)
        if ended.code:
            ended.refused()
    for path in (folders.results.report, folders.results.report_details, *folders.results.tables.glob("*.csv")):
        if path.is_file():
            text = path.read_text()
            if any(not (letter.isprintable() or letter in "\n\t") for letter in text):
                raise FaultError(f"{path.name} holds control characters")
            links = text.replace("\\](", "")
            if path.suffix == ".md" and ("<script" in links or "](https" in links or "](//" in links):
                raise FaultError(f"{path.name} holds HTML or a link of others")


def link_in_place_of_a_log(chooser: random.Random, place: Path) -> None:
    """A lock or a log that is a link to a user's file, or a pipe: nothing is written through it."""
    from harness import run  # noqa: PLC0415 - as the stage that writes both

    folders, _ = _results(place)
    kept = place / "kept"
    kept.write_text("precious")
    target = chooser.choice((folders.results.lock, folders.results.worker_log("monitor")))
    target.parent.mkdir(parents=True, exist_ok=True)
    if chooser.random() < 0.5:
        target.symlink_to(kept)
    else:
        os.mkfifo(target)
    shutil.rmtree(folders.models.root)
    for path in folders.results.raw.glob("*/*"):
        path.unlink()
    record = folders.results.plan.read_text().replace('"torch-eager"', '"noop"').replace('"onnxruntime"', '"noop"')
    folders.results.plan.write_text(record)
    folders.call(run.stage).refused()
    if kept.read_text() != "precious":
        raise FaultError("a file behind a link was written to")


def _judged(folders: Folders, pristine: Mapping[str, str], spoilt: Path) -> None:
    """Aggregate and report: refused, or the file is named and in no figure; what was not spoilt is untouched."""
    expected = Synthetic(models=(RESNET,), cases=CASES, rounds=3, samples=60)
    ended = folders.call(aggregate.stage)
    if ended.code:
        ended.refused()
    else:
        changed = _digest(spoilt) != pristine[str(spoilt.relative_to(folders.root))]
        _without(store.load(folders.results.summary, Summary, "make aggregate"), expected, spoilt, changed)
        shown = folders.call(report.stage, "--no-charts")
        if shown.code:
            shown.refused()
    names = [name for name, digest in pristine.items() if _digest(folders.root / name) != digest]
    if lost := [name for name in names if folders.root / name != spoilt]:
        raise FaultError(f"{spoilt.name} was spoilt, and these files changed: {lost}")


def _without(result: Summary, expected: Synthetic, spoilt: Path, changed: bool) -> None:
    """Raise FaultError unless the figures are those of all records but the spoilt one, and the summary says why."""
    case_id, number = spoilt.parent.name, spoilt.name.partition(".")[0]
    for row in result.rows:
        whole = next(other for other in expected.summary().rows if other.case_id == row.case_id)
        medians = whole.latency_ns.process_medians if whole.latency_ns else ()
        own = changed and row.case_id == case_id and spoilt.name == f"{number}.json"
        kept = [median for at, median in enumerate(medians, 1) if not own or str(at) != number]
        if row.latency_ns and sorted(row.latency_ns.process_medians) != sorted(kept):
            raise FaultError(f"{spoilt.name} was spoilt, and {row.case_id} has other figures than those of the rest")
    said = json.dumps([result.notes, [row.model_dump(mode="json") for row in result.rows if row.case_id == case_id]])
    watching = spoilt.name.endswith(".usage.json")
    names = (
        *(spoilt.name, f"{case_id}/{number}", number if len(number) > 8 else spoilt.name),
        *(["UNWATCHED"] if watching else []),
    )
    short = any(row.case_id == case_id and row.latency_ns and row.latency_ns.rounds < 3 for row in result.rows)
    if changed and not short and not any(name in said for name in names):
        raise FaultError(f"{spoilt.name} was spoilt, and the summary does not say so")


def _spoil(path: Path, chooser: random.Random) -> None:
    content = path.read_bytes()
    texts: Sequence[bytes] = (
        b"",
        content[: chooser.randrange(1, max(2, len(content)))],
        _flipped(content, chooser, 1),
        _flipped(content, chooser, 8),
        re.sub(rb'"schema_version": ?\d+', b'"schema_version":99', content, count=1),
        b'{"schema_version":2,' + b'"a":' * 1 + b"[" * 100_000,
        b'{"schema_version":' + b"9" * 10_000 + b"}",
        b"[1, 2, 3]",
        b"\xff\xfe" + content,
        content + content,
    )
    way = chooser.randrange(len(texts) + 2)
    path.unlink()
    if way < len(texts):
        path.write_bytes(texts[way])
    elif way == len(texts):
        with path.open("wb") as file:
            file.write(content)
            file.truncate(store.MAX_RECORD_BYTES + 2)
    else:
        _odd(path, chooser)


# --- names ----------------------------------------------------------------------------------------------------------

NAMES = (
    *(
        "../../x",
        "/etc/passwd",
        "onnx:/dev/zero",
        "onnx:/proc/self/mem",
        "hf:../..",
        "hf:a/../../b",
        "torchvision:x;id",
    ),
    *(
        "module:os:system",
        "module:..:x",
        "a" * 5_000,
        "",
        "-x",
        "$(id)",
        "`id`",
        f"resnet18{STEERS}",
        "resnet18\n",
        "٣",
    ),
    *("resnet18@", "@seeded", "resnet18@own", "spin:1e400s", "spin:-1ms", "spin:", f"spin:{'9' * 5000}ms", "\ud800"),
)
AMOUNTS = ("9" * 5000, "1e400", "nan", "-1", "0", "inf", "1,", ",", "٣" * 10, "0x10", "1_0", "")
LIMITS = ("latency<1e400", "throughput>", "p95<20", "a/b:latency<1ms;;", "latency_p95<-1ms", f"latency<{'9' * 5000}ms")


def odd_name(chooser: random.Random, place: Path) -> None:
    """A model's name that leads elsewhere, is code for a shell or no text: refused, or a name."""
    small = place / "small.yaml"
    small.write_text(SMALL)
    ended = call(
        *(plan.stage, "--config", str(small), "--results", str(place / "results")),
        *("--models", chooser.choice(NAMES)),
        place=place / "output",
    )
    if ended.code:
        ended.refused()


def odd_amount(chooser: random.Random, place: Path) -> None:
    """A number, a share or a duration on a command line that is none."""
    option = chooser.choice(("--batches", "--rounds", "--max-rounds", "--target-interval", "--budget", "--seq-lengths"))
    small = place / "small.yaml"
    small.write_text(SMALL)
    folders = ("--config", str(small), "--results", str(place / "results"))
    ended = call(plan.stage, *folders, f"{option}={chooser.choice(AMOUNTS)}", place=place / "output")
    if ended.code:
        ended.refused()


def odd_limit(chooser: random.Random, place: Path) -> None:
    """A limit for `compare` that is none."""
    folders, _ = _results(place)
    folders.well(aggregate.stage)
    ended = folders.call(compare.stage, f"--threshold={chooser.choice(LIMITS)}")
    if ended.code not in (0, 1):
        ended.refused()


# --- archives and arrays --------------------------------------------------------------------------------------------

FILES = {"manifest.json": b"{}", "results/plan.json": b"plan", "results/raw/a/1.json": b"raw" * 400}
MEMBERS: Sequence[tuple[str, Mapping[str, object]]] = (
    ("x/../../escaped", {}),
    ("/escaped", {}),
    ("x/link", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
    ("x/hard", {"type": tarfile.LNKTYPE, "linkname": "x/manifest.json"}),
    ("x/device", {"type": tarfile.CHRTYPE}),
    ("x/pipe", {"type": tarfile.FIFOTYPE}),
    ("x/large", {"size": 65 << 20}),
    ("x/a\x1b[2J", {}),
    ("y/other", {}),
)


def hostile_archive(chooser: random.Random, place: Path) -> None:
    """A bundle that is cut, changed, a bomb, or holds a member that is no file below its folder."""
    path = place / "x.tar.xz"
    good = archive.pack(FILES, "x")
    way = chooser.randrange(6)
    if way == 0:
        path.write_bytes(good[: chooser.randrange(len(good))])
    elif way == 1:
        path.write_bytes(_flipped(good, chooser, 3))
    elif way == 2:
        path.write_bytes(good + b"more")
    elif way == 3:
        _odd(path, chooser)
    elif way == 4:
        path.write_bytes(lzma.compress(bytes(300 << 20), preset=0))
    else:
        path.write_bytes(_tar_with(*chooser.choice(MEMBERS)))
    call(verify.stage, "--bundle", str(path), place=place / "output").refused()
    if (place / "escaped").exists() or Path("/escaped").exists():
        raise FaultError("a member was written outside of its folder")


def hostile_arrays(chooser: random.Random, place: Path) -> None:
    """An .npz that holds a pickle, a bomb or half an array: refused by its reader, and no code runs."""
    path, canary = place / "inputs.npz", place / "canary"

    class Touch:
        def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
            return os.system, (f"touch {canary}",)

    whole = io.BytesIO()
    np.savez(whole, input=np.zeros((8, 4), np.float32))
    way = chooser.randrange(4)
    if way == 0:
        np.savez(path, input=np.array([Touch()], dtype=object), allow_pickle=True)
    elif way == 1:
        path.write_bytes(whole.getvalue()[: chooser.randrange(1, len(whole.getvalue()))])
    elif way == 2:
        path.write_bytes(_flipped(whole.getvalue(), chooser, 4))
    else:
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("input.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)

    def read(_arguments: Sequence[str]) -> None:
        try:
            read_arrays(path)
        except Exception as error:  # as the worker does: the case is a failed row
            raise CaseError(f"{type(error).__name__}: {error}", "Export it again.") from error

    read.__module__ = "read_arrays"
    ended = call(read, place=place / "output")
    if ended.code:
        ended.refused()
    if canary.exists():
        raise FaultError("the file of arrays ran code")


def _tar_with(name: str, fields: Mapping[str, object]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        for known in sorted(FILES):
            member = tarfile.TarInfo(f"x/{known}")
            member.size = len(FILES[known])
            out.addfile(member, io.BytesIO(FILES[known]))
        odd = tarfile.TarInfo(name)
        for field, value in fields.items():
            setattr(odd, field, value)
        out.addfile(odd, io.BytesIO(bytes(odd.size)))
    return lzma.compress(buffer.getvalue(), preset=0)


# --- all of them ----------------------------------------------------------------------------------------------------

KINDS: Sequence[Callable[[random.Random, Path], None]] = (
    number_in_yaml,
    text_as_configuration,
    damaged_configuration,
    odd_file_as_configuration,
    damaged_record,
    steering_record,
    link_in_place_of_a_log,
    odd_name,
    odd_amount,
    odd_limit,
    hostile_archive,
    hostile_arrays,
)


def give(number: int, chooser: random.Random, place: Path) -> str:
    """One hostile input; raises FaultError where something came of it."""
    kind = KINDS[number % len(KINDS)]
    kind(chooser, place)
    return kind.__name__.replace("_", " ")


def _results(place: Path) -> tuple[Folders, dict[str, str]]:
    folders = Folders(place / "given", place / "output")
    base(folders)
    return folders, {str(path.relative_to(folders.root)): _digest(path) for path in _files(folders.root)}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _digest(path: Path) -> str:
    with suppress(OSError):
        if path.is_file():
            return store.sha256_file(path)
    return "not there"


def _flipped(content: bytes, chooser: random.Random, times: int) -> bytes:
    changed = bytearray(content)
    for _ in range(times):
        changed[chooser.randrange(len(changed))] = chooser.randrange(256)
    return bytes(changed)


def _odd(path: Path, chooser: random.Random) -> Path:
    """What is no ordinary file, in the place of one."""
    way = chooser.randrange(5)
    if way == 0:
        os.mkfifo(path)
    elif way == 1:
        path.mkdir()
    elif way == 2:
        path.symlink_to("/dev/zero")
    elif way == 3:
        path.symlink_to(path)
    else:
        path.symlink_to("/dev/null")
    return path
