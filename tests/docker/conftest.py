"""Images that are built once, and folders that containers write to.

The engine is the one that DOCKER names (docker). Builds take their arguments from the environment as docker/build does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.core import store
from harness.core.layout import Models, Results
from harness.core.schemas import Failed, Measured
from tests.fixtures.stages import QUICK, ROOT

DOCKER = os.environ.get("DOCKER") or "docker"
CPU, CUDA = "inferometer-test:cpu", "inferometer-test:cuda"
OTHER = 4242 if os.getuid() == 0 else os.getuid()
"""A user whom no image knows; only root can give folders away."""
SPIN = {"models": ["spin:1ms"], "matrix": [{"backends": ["spin"]}]}
"""Work of known duration, which needs no export."""
_VARIABLES = set(re.findall(r"^([A-Z_]+) +\?=", (ROOT / "Makefile").read_text(), re.MULTILINE))
_BUILD_S, _GUARD_S = 1800, 900
"""End what hangs; nothing is ever asserted about how long something took."""


def run(command: Sequence[str], seconds: float = _GUARD_S, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout to its end."""
    return subprocess.run(list(command), cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds, **more)


def make(
    *arguments: str, seconds: float = _GUARD_S, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Make; the variables of one that may have started the tests do not reach it, but for how images are built."""
    outer = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", *_VARIABLES} - {"DOCKER", "BUILD_FLAGS"}
    kept = {name: value for name, value in os.environ.items() if name not in outer}
    return run(["make", *arguments], seconds, env={**kept, **(env or {})})


def missing_engine() -> str | None:
    """Why no container can be run here; None where one can."""
    if shutil.which(DOCKER) is None:
        return f"there is no `{DOCKER}` on the PATH"
    done = run([DOCKER, "info"])
    return None if done.returncode == 0 else f"no container engine answers to `{DOCKER}`"


@dataclass(frozen=True)
class Job:
    """A configuration and the folders that containers get of it, owned by one user."""

    root: Path
    user: int

    @property
    def results(self) -> Results:
        return Results(self.root / "results")

    @property
    def models(self) -> Models:
        return Models(self.root / "models")

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    def command(self, *arguments: str, image: str = CPU, flags: Sequence[str] = ()) -> list[str]:
        """`docker run` as docs/images.md has it: read-only, without a network, as this job's user."""
        own = [
            "--user",
            f"{self.user}:{self.user}",
            "--read-only",
            "--tmpfs",
            "/tmp:rw,exec,mode=1777",  # noqa: S108 - a folder of the container
            "--network=none",
        ]
        mounts = [f"--volume={self.root}/{name}:/app/{name}" for name in ("results", "models", "config.yaml")]
        return [DOCKER, "run", "--rm", *own, *mounts, *flags, image, *arguments]

    def __call__(self, *arguments: str, flags: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run a container to its end; one that hangs is killed."""
        name = f"inferometer-test-{uuid.uuid4().hex[:12]}"
        try:
            return run(self.command(*arguments, flags=(*flags, "--name", name)))
        except subprocess.TimeoutExpired:
            run([DOCKER, "kill", name])
            raise

    def records(self) -> dict[Path, Measured | Failed]:
        """Raw file → record."""
        files = (path for path in sorted(self.results.raw.glob("*/*.json")) if path.stem.isdecimal())
        return {path: store.load_raw(path) for path in files}


def new_job(root: Path, config: Mapping[str, Any], user: int = OTHER, **measurement: Any) -> Job:
    """Folders of the user's, and the configuration with few and short rounds."""
    job = Job(root, user)
    job.config.write_text(json.dumps({**config, "measurement": {**QUICK, **measurement}}))
    for folder in (job.results.root, job.models.root):
        folder.mkdir(parents=True)
        os.chown(folder, user, user if os.getuid() == 0 else -1)
    # pytest's own folders are closed to others; the engine's processes may be others.
    for folder in (root, *root.parents[:2]):
        folder.chmod(0o755)
    return job


@pytest.fixture(scope="session")
def engine() -> str:
    """The command of the engine that answers."""
    if missing := missing_engine():
        pytest.skip(missing)
    return DOCKER


@pytest.fixture(scope="session")
def cpu_image(engine: str) -> Iterator[str]:
    """The image of Dockerfile.cpu, as Make builds it."""
    yield from _built(engine, CPU, "image-cpu", {})


@pytest.fixture(scope="session")
def cuda_image(engine: str) -> Iterator[str]:
    """The image of Dockerfile.cuda without torch and TensorRT, which are some gigabytes."""
    yield from _built(engine, CUDA, "image-cuda", {"WITH_TORCH": "0", "WITH_TENSORRT": "0"})


def _built(engine: str, image: str, target: str, arguments: Mapping[str, str]) -> Iterator[str]:
    done = make(target, f"IMAGE={image}", seconds=_BUILD_S, env=arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    yield image
    run([engine, "image", "rm", image])
