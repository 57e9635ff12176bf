"""What the Dockerfiles owe to engines that are not at hand."""

from __future__ import annotations

import re

import pytest

from tests.fixtures.stages import ROOT


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile.cuda"])
def test_no_two_stages_lock_the_same_cache(name: str) -> None:
    """Podman 4.3 waits forever for a cache that an earlier stage of the build had locked."""
    stages = re.split(r"^FROM ", (ROOT / name).read_text(), flags=re.MULTILINE)[1:]
    locked = [cache for stage in stages for cache in _locked_caches(stage)]
    assert locked
    assert len(set(locked)) == len(locked)


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile.cuda"])
def test_every_stage_begins_with_the_base_by_its_digest_or_with_a_stage_before_it(name: str) -> None:
    text = (ROOT / name).read_text()
    assert re.search(r"^ARG BASE=python:3\.12-slim-bookworm@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    stages: set[str] = set()
    for base, stage in re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE):
        assert base in {"${BASE}", *stages}
        stages.add(stage)
    assert len(stages) == text.count("\nFROM ")


def test_actions_are_named_by_their_commit() -> None:
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        used = re.findall(r"uses: (\S+)(.*)", path.read_text())
        assert used
        for action, comment in used:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), f"{path.name}: {action}"
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), f"{path.name}: {action} does not say its version"


def test_the_image_without_a_compiler_is_built_where_no_target_is_named() -> None:
    text = (ROOT / "Dockerfile.cpu").read_text()
    *_, variant, last = re.split(r"^FROM ", text, flags=re.MULTILINE)
    assert (variant.startswith("runtime AS compile"), last.startswith("runtime AS cpu")) == (True, True)
    assert "g++" in variant
    assert "g++" not in text.partition("AS runtime")[2].partition("AS compile")[0] + last


def test_the_documented_run_is_closed() -> None:
    """Without a network, without capabilities, with a root that cannot be written."""
    runs = []
    for name in ("docs/images.md", "docs/ci.md", ".github/workflows/bench.yml"):
        text = (ROOT / name).read_text().replace("\\\n", " ")
        flags = re.search(r"^FLAGS=\((.+)\)$", text, re.MULTILINE)
        lines = text.replace('"${FLAGS[@]}"', flags[1] if flags else "").splitlines()
        runs += [line for line in lines if "docker run" in line and ("inferometer:" in line or "$IMAGE" in line)]
    assert len(runs) >= 6
    for line in runs:
        assert {"--network=none", "--read-only", "--cap-drop=ALL"} <= set(line.split()), line
        assert ("--ipc=host" in line) == ("--gpus" in line), line


def _locked_caches(stage: str) -> set[str]:
    """The id of each, which is its target where it has none."""
    mounts = [
        dict(option.partition("=")[::2] for option in text.split(",")) for text in re.findall(r"--mount=(\S+)", stage)
    ]
    return {mount.get("id", mount["target"]) for mount in mounts if mount.get("sharing") == "locked"}
