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


def _locked_caches(stage: str) -> set[str]:
    """The id of each, which is its target where it has none."""
    mounts = [
        dict(option.partition("=")[::2] for option in text.split(",")) for text in re.findall(r"--mount=(\S+)", stage)
    ]
    return {mount.get("id", mount["target"]) for mount in mounts if mount.get("sharing") == "locked"}
