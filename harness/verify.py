"""Check a bundle: its checksums, and that its records give exactly the same summary, report and charts.

reads   the archive that `bundle` wrote
writes  nothing: the files that it makes again are in a temporary folder
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core import archive, cli, packed, store
from harness.core.archive import ASK_AGAIN
from harness.core.errors import MalformedFileError, UsageError
from harness.core.given_paths import require_file
from harness.core.layout import BUNDLE_MANIFEST, Results
from harness.core.schemas import Bundle, PackedSummary, Summary
from harness.core.seal import unsealed
from harness.core.text import PACKED_ELSEWHERE

_CREATED = re.compile(rb'(?m)^  "created_at": "[^"\n]*"')
_TIMEOUT_S = 600
_INSIDE = Results(Path("results"))
"""The results folder inside a bundle."""
_BESIDE = ("config.yaml", "constraints.txt", "constraints-cuda.txt")


def stage(arguments: Sequence[str]) -> None:
    """Unpack, compare the checksums, make all derived files again, compare."""
    parser = cli.parser("harness.verify", __doc__)
    parser.add_argument("--bundle", type=Path, help="archive that `make bundle` wrote")
    options = parser.parse_args(arguments)
    if options.bundle is None:
        raise UsageError("No bundle was named.", "make verify BUNDLE=results/<plan_id>.tar.xz")
    require_file(options.bundle, "a bundle", "make verify BUNDLE=<archive>", _in_folder(options.bundle))
    files = archive.unpack(options.bundle)
    manifest = read_manifest(options.bundle, files)
    check_sums(options.bundle, manifest, files)
    _check_seals(options.bundle, files)
    derived = {name: content for name, content in files.items() if is_derived(name)}
    with tempfile.TemporaryDirectory(prefix="inferometer-verify-") as folder:
        archive.write({name: content for name, content in files.items() if name not in derived}, Path(folder))
        _make_again(options.bundle, Path(folder), charts=any(Path(name).parent == _INSIDE.charts for name in derived))
        made = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in Path(folder).rglob("*")
            if path.is_file() and is_derived(path.relative_to(folder).as_posix())
        }
        # Two versions of pyarrow write the same rows in other bytes: the sums in the summary are of the rows.
        for name, differences in (("derived", derived), ("made", made)):
            check_rows(options.bundle, differences, Path(folder) / name)
    check_derived(options.bundle, manifest, derived, made)
    cli.say(f"{options.bundle}: {len(manifest.files)} files as packed; {', '.join(sorted(derived))} come out the same.")
    cli.say(f"Plan {manifest.plan_id}, Inferometer {_code(manifest)}.")


def _in_folder(folder: Path) -> str:
    """The command that verifies the latest bundle in a folder, or packs one."""
    if packed := sorted(folder.glob("*.tar.xz"), key=lambda path: path.stat().st_mtime):
        return f"Name the archive in it: make verify BUNDLE={shlex.quote(str(packed[-1]))}"
    again = f"make bundle RESULTS={shlex.quote(str(folder))}"
    return f"It has no archive. `{again}` packs the run of a results folder."


def read_manifest(bundle: Path, files: dict[str, bytes]) -> Bundle:
    """Take the manifest out of the files. Raises MalformedFileError or a related error."""
    if BUNDLE_MANIFEST not in files:
        raise MalformedFileError(f"{bundle} is refused: it has no {BUNDLE_MANIFEST}.", ASK_AGAIN)
    return store.parse(bundle / BUNDLE_MANIFEST, files.pop(BUNDLE_MANIFEST), Bundle, "make bundle")


def check_sums(bundle: Path, manifest: Bundle, files: Mapping[str, bytes]) -> None:
    """Raise MalformedFileError naming a file that is missing, unexpected, out of place or changed."""
    listed = {file.path: file for file in manifest.files}
    for name in sorted(listed.keys() | files.keys()):
        if name not in files:
            problem = "is missing"
        elif name not in listed:
            problem = "is not in the manifest"
        elif not _belongs(name):
            problem = "does not belong in a bundle"
        elif hashlib.sha256(files[name]).hexdigest() != listed[name].sha256:
            problem = "does not match its checksum"
        else:
            continue
        raise MalformedFileError(f"{bundle} is refused: {name} {problem}.", ASK_AGAIN)


def _check_seals(bundle: Path, files: Mapping[str, bytes]) -> None:
    """Raise MalformedFileError naming a record that has changed since it was sealed, before it was packed.

    A record that the summary left out with a note is no reason: a new summary has to have the same note.
    """
    broken = [name for name, content in sorted(files.items()) if name.endswith(".json") and unsealed(content).broken]
    notes = _notes(bundle, files) if broken else ""
    for name in broken:
        if f" {name.removeprefix(f'{_INSIDE.root}/')} " not in notes:
            raise MalformedFileError(f"{bundle} is refused: {name} does not match its seal.", ASK_AGAIN)


def _notes(bundle: Path, files: Mapping[str, bytes]) -> str:
    """The notes of the summary, with a space before and after each; empty without a summary."""
    name = str(_INSIDE.summary)
    if name not in files:
        return ""
    kind = PackedSummary if store.is_packed(files[name]) else Summary
    return f" {' '.join(store.parse(bundle / name, files[name], kind, 'make bundle').notes)} "


def check_derived(bundle: Path, manifest: Bundle, packed: Mapping[str, bytes], made: Mapping[str, bytes]) -> None:
    """Raise MalformedFileError naming a file that its records do not reproduce byte for byte.

    Only the creation date of the summary may differ.
    """
    for name in sorted(packed.keys() | made.keys()):
        packed_content, made_content = (
            _CREATED.sub(b"", unsealed(files.get(name, b"")).content, count=1) for files in (packed, made)
        )
        if packed_content != made_content:
            difference = _first_difference(name, packed_content, made_content)
            raise MalformedFileError(
                f"{bundle}: {name} differs from the one that its records give{difference}.",
                f"It was made by Inferometer {_code(manifest)}: verify it with that, or do not trust it.",
            )


def check_rows(bundle: Path, files: dict[str, bytes], folder: Path) -> None:
    """Take summary.parquet out of the files. Raises MalformedFileError where its rows do not belong to the summary."""
    content = files.pop(str(_INSIDE.packed_rows), None)
    if content is None:
        return
    inside = Results(folder)
    archive.write({inside.packed_rows.name: content, inside.summary.name: files[str(_INSIDE.summary)]}, inside.root)
    summary = store.load_head(inside.summary, "make bundle")
    if not isinstance(summary, PackedSummary):
        raise MalformedFileError(f"{bundle} is refused: {inside.packed_rows.name} has no summary.", ASK_AGAIN)
    rows = packed.PackedRows(inside.packed_rows, summary.row_groups)
    for at in range(len(summary.row_groups)):
        rows.group(at)


def is_derived(name: str) -> bool:
    """True for files that `aggregate` and `report` write."""
    path = Path(name)
    texts = (_INSIDE.summary, _INSIDE.packed_rows, _INSIDE.summary_csv, _INSIDE.report, _INSIDE.report_details)
    return path in texts or path.parent == _INSIDE.charts


def _belongs(name: str) -> bool:
    """True only for files that `bundle` packs: no file that a program might read from its working folder."""
    return name.startswith(("results/", "models/")) or name in _BESIDE


def _make_again(bundle: Path, folder: Path, charts: bool) -> None:
    aggregate = ["aggregate", "--results", "results", "--models-dir", "models"]
    report = ["report", "--results", "results", *([] if charts else ["--no-charts"])]
    # -P: Python must not look for modules in the folder of a stranger's archive.
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTHONSAFEPATH": "1",
        PACKED_ELSEWHERE: "1",
    }
    for name, *options in (aggregate, report):
        command = [sys.executable, "-P", "-m", f"harness.{name}", *options]
        try:
            done = subprocess.run(  # noqa: S603 - fixed words
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            raise MalformedFileError(f"{bundle}: {name} needs more than {_TIMEOUT_S} s for it.", ASK_AGAIN) from error
        if done.returncode:
            problem, _ = cli.last_error(done.stderr) or ((done.stderr.strip().splitlines() or ["no message"])[-1], "")
            raise MalformedFileError(f"{bundle}: {name} does not take its records: {problem}", ASK_AGAIN)


def _first_difference(name: str, packed: bytes, made: bytes) -> str:
    if not packed or not made:
        return ": it is there only once"
    if name.endswith(".png"):
        return ""
    pairs = zip(packed.splitlines(), made.splitlines(), strict=False)
    line = next((number for number, (left, right) in enumerate(pairs, 1) if left != right), None)
    return f": line {line}" if line else ": one is longer"


def _code(manifest: Bundle) -> str:
    if manifest.git_commit is None:
        return f"{manifest.inferometer}, of no known commit"
    return f"{manifest.inferometer}, commit {manifest.git_commit}{' with changes' if manifest.git_dirty else ''}"


if __name__ == "__main__":
    cli.main(stage)
