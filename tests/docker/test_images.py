"""Both images, built from the Dockerfiles as they are: what is in them, and what starting them does.

The CUDA image, which takes minutes to build, is left for `make test-all`; .ci/run builds it where its files changed.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from harness.pipeline import STAGES
from tests.docker.conftest import CPU, CUDA, DOCKER, run

pytestmark = pytest.mark.docker

BOTH = pytest.mark.parametrize("image", [CPU, pytest.param(CUDA, marks=pytest.mark.slow)], indirect=True)


@pytest.fixture
def image(request: pytest.FixtureRequest) -> str:
    """Builds the one that a test asks for."""
    built: str = request.getfixturevalue("cpu_image" if request.param == CPU else "cuda_image")
    return built


def inside(image: str, *command: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = command
    return run([DOCKER, "run", "--rm", "--network=none", "--entrypoint", program, image, *arguments])


@BOTH
def test_it_carries_version_and_revision_and_no_health_check(image: str) -> None:
    config = json.loads(run([DOCKER, "image", "inspect", image]).stdout)[0]["Config"]
    assert config["Labels"]["org.opencontainers.image.version"]
    assert config["Labels"]["org.opencontainers.image.revision"]
    assert config["Labels"]["org.opencontainers.image.licenses"] == "MIT"
    assert not config.get("Healthcheck")
    assert config["User"] not in ("", "root", "0", "0:0")
    assert config["Entrypoint"][0] == "tini"


@BOTH
def test_started_with_nothing_it_lists_the_stages(image: str) -> None:
    done = run([DOCKER, "run", "--rm", "--network=none", image])
    assert done.returncode == 0
    assert all(f"\n  {name} " in done.stdout for name in ("bench", *STAGES))


@BOTH
def test_exit_codes_and_the_two_lines_of_an_error_pass_through(image: str) -> None:
    done = run([DOCKER, "run", "--rm", "--network=none", image, "run"])
    assert done.returncode == 3
    assert "Error: results/plan.json does not exist." in done.stderr
    assert run([DOCKER, "run", "--rm", "--network=none", image, "run", "--help"]).returncode == 0


@BOTH
def test_nothing_of_it_needs_to_be_root(image: str) -> None:
    done = run([DOCKER, "run", "--rm", "--network=none", "--read-only", "--user", "4242:4242", image, "models"])
    assert done.returncode == 0, done.stderr
    assert "minilm-l6" in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("cuda_image")
def test_the_cuda_image_has_a_c_compiler_for_triton_and_none_for_cpp() -> None:
    # pycuda was compiled in the builder; what is left compiles Triton's launchers.
    assert inside(CUDA, "gcc", "--version").returncode == 0
    assert (
        run([DOCKER, "run", "--rm", "--network=none", "--entrypoint", "sh", CUDA, "-c", "command -v g++"]).returncode
        != 0
    )


@pytest.mark.slow
@pytest.mark.usefixtures("cuda_image")
def test_the_cuda_image_has_pycuda_and_asks_for_the_driver_alone() -> None:
    done = inside(CUDA, "python", "-c", "import pycuda.driver")
    # Where the host gives its driver to every container there is nothing to miss.
    assert done.returncode == 0 or "libcuda.so.1: cannot open shared object file" in done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("cuda_image")
def test_the_cuda_image_names_its_needs_where_no_gpu_is() -> None:
    done = run([DOCKER, "run", "--rm", "--network=none", CUDA, "plan", "--config", "configs/cuda.yaml"])
    assert done.returncode == 5
    assert done.stderr.splitlines()[-2].startswith("Error: ")
    assert "--gpus all" in done.stderr.splitlines()[-1]
