"""How Make and the scripts call the engine: with a stand-in for it that writes down its arguments."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from tests.docker.conftest import make, run
from tests.fixtures.stages import ROOT

RECORDER = """#!/bin/sh
case "$1" in
  --version) echo "${{FAKE_VERSION:-Docker version 20.10}}"; exit 0 ;;
  info) exit ${{FAKE_INFO:-0}} ;;
  image) [ -e {folder}/no-image ] && exit 1
         case "$4" in *revision*) echo "${{FAKE_REVISION-}}" ;; *) echo "${{FAKE_ID:-sha256:feed}}" ;; esac; exit 0 ;;
  build) printf '%s\\0' "$@" >{folder}/built; echo "step 3 of 9 failed" >&2; exit ${{FAKE_BUILD:-0}} ;;
esac
printf '%s\\0' "$@" >{folder}/said
"""


class Engine:
    """The stand-in: its last arguments, and how it answers."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "docker"
        self._folder = folder
        self.path.write_text(RECORDER.format(folder=folder))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    def has_no_image(self) -> None:
        (self._folder / "no-image").touch()

    def built(self) -> list[str]:
        """The words of the last build."""
        return (self._folder / "built").read_text().split("\0")[:-1]

    def said(self) -> list[str]:
        return (self._folder / "said").read_text().split("\0")[:-1]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def stage(engine: Engine, name: str, *arguments: str) -> list[str]:
    """The command line of one target with WHERE=docker."""
    folder = engine.path.parent
    places = (f"RESULTS={folder}/r", f"MODELS_DIR={folder}/m")
    done = make(name, "WHERE=docker", f"DOCKER={engine.path}", *places, *arguments)
    assert done.returncode == 0, done.stderr
    return engine.said()


def test_every_stage_but_the_export_is_without_a_network(engine: Engine) -> None:
    for name in ("plan", "run", "aggregate", "report", "engines", "roof", "energy", "compare"):
        assert "--network=none" in stage(engine, name), name
    assert "--network=none" not in stage(engine, "export")


def test_a_container_is_the_callers_read_only_and_gone_afterwards(engine: Engine) -> None:
    said = stage(engine, "run")
    assert said[:2] == ["run", "--rm"]
    assert said[said.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
    assert {"--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"} <= set(said)
    assert "INFEROMETER_IMAGE_DIGEST=sha256:feed" in said


def test_only_a_gpu_gets_the_hosts_ipc(engine: Engine) -> None:
    assert not [word for word in stage(engine, "run") if word.startswith("--ipc")]
    assert "--ipc=host" in stage(engine, "run", "DEVICE=cuda")


def test_memory_and_processes_have_limits_that_run_flags_change(engine: Engine) -> None:
    if os.getuid() and not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        pytest.skip("without root and cgroup v2 no engine can limit anything")
    total = int(re.findall(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text())[0])
    said = stage(engine, "run")
    memory = [word for word in said if word.startswith("--memory=")]
    assert [int(word.removeprefix("--memory=").removesuffix("k")) / total for word in memory] == [
        pytest.approx(0.9, abs=1e-4)
    ]
    assert "--pids-limit=8192" in said
    said = stage(engine, "run", "RUN_FLAGS=--memory=8g --pids-limit=99")
    assert [word for word in said if word.startswith(("--memory", "--pids"))][2:] == ["--memory=8g", "--pids-limit=99"]


def test_an_image_is_on_record_with_the_name_of_its_hash(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ID", "feed")  # as Podman has it
    assert "INFEROMETER_IMAGE_DIGEST=sha256:feed" in stage(engine, "run")


@pytest.mark.parametrize(
    ("revision", "warning"),
    [
        ("", ""),
        ("HEAD", ""),
        ("HEAD-dirty", "was built with uncommitted changes. make image-cpu-compile builds it again."),
        ("0" * 40, "(commit 000000000000) is older than this checkout. make image-cpu-compile builds it again."),
    ],
)
def test_an_image_of_an_older_commit_is_named(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, revision: str, warning: str
) -> None:
    head = run(["git", "rev-parse", "HEAD"]).stdout.strip()
    monkeypatch.setenv("FAKE_REVISION", revision.replace("HEAD", head))
    folder = engine.path.parent
    done = make("run", "WHERE=docker", f"DOCKER={engine.path}", f"RESULTS={folder}/r", f"MODELS_DIR={folder}/m")
    if revision == "HEAD" and run(["git", "status", "--porcelain", "harness", "docker"]).stdout:
        pytest.skip("this checkout has changes of its own")
    assert done.returncode == 0
    assert warning in done.stderr
    assert ("Warning: image" in done.stderr) is bool(warning)


def test_results_and_models_are_mounted_where_they_are_and_inputs_read_only(engine: Engine) -> None:
    folder = engine.path.parent
    (folder / "own.yaml").touch()
    said = stage(engine, "plan", f"CONFIG={folder}/own.yaml")
    assert f"type=bind,source={folder}/r,target={folder}/r" in said
    assert f"type=bind,source={folder}/m,target={folder}/m" in said
    assert f"type=bind,source={folder}/own.yaml,target={folder}/own.yaml,readonly" in said
    assert said[said.index("--config") + 1] == f"{folder}/own.yaml"


def test_a_file_of_prompts_is_mounted_and_a_length_beside_it_is_no_path(engine: Engine) -> None:
    folder = engine.path.parent
    (folder / "prompts.txt").touch()
    said = stage(engine, "plan", f"PROMPTS=128,{folder}/prompts.txt", "CONFIG=configs/generation.yaml")
    assert f"type=bind,source={folder}/prompts.txt,target={folder}/prompts.txt,readonly" in said
    assert not any("/128" in word for word in said)


def test_gpus_are_asked_for_with_cuda_alone(engine: Engine) -> None:
    said = stage(engine, "run", "DEVICE=cuda")
    assert said[said.index("--gpus") + 1] == "all"
    assert "inferometer:cuda" in said
    said = stage(engine, "run", "DEVICE=cuda", "GPUS=device=0")
    assert said[said.index("--gpus") + 1] == "device=0"
    assert "--gpus" not in stage(engine, "run")


def test_podman_is_given_gpus_by_name(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VERSION", "podman version 4.3.1")
    said = stage(engine, "run", "DEVICE=cuda")
    assert "--device=nvidia.com/gpu=all" in said
    assert not {"--gpus", "--ulimit"} & set(said)
    said = stage(engine, "run", "DEVICE=cuda", "GPUS=device=0,GPU-4a1b")
    assert {"--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=GPU-4a1b"} <= set(said)
    assert not [flag for flag in stage(engine, "run") if "nvidia.com" in flag]


def test_a_number_of_gpus_is_no_name_of_one(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VERSION", "podman version 4.3.1")
    done = make("run", "WHERE=docker", f"DOCKER={engine.path}", "DEVICE=cuda", "GPUS=2")
    error, hint = (line for line in done.stderr.splitlines() if not line.startswith("make"))
    assert (error, hint) == (
        "Error: Podman gets GPUs by name, and GPUS=2 is none.",
        "Hint:  GPUS=all, or GPUS=device=0,1.",
    )


def test_stages_may_have_images_of_their_own(engine: Engine) -> None:
    assert "exporter:1" in stage(engine, "export", "IMAGE_EXPORT=exporter:1", "IMAGE=other:2")
    assert "other:2" in stage(engine, "run", "IMAGE_EXPORT=exporter:1", "IMAGE=other:2")


def test_a_value_with_any_characters_is_one_argument(engine: Engine, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    hostile = f"a b;touch {trap}`touch {trap}`--privileged"
    said = stage(engine, "plan", f"MODELS={hostile}")
    assert said[said.index("--models") + 1] == hostile
    assert "--privileged" not in said
    assert not trap.exists()


def test_a_model_of_the_users_is_mounted_read_only_and_the_checkout_is_not(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "my nets").mkdir()
    for name in ("model.onnx", "model.onnx.data"):
        (tmp_path / "my nets" / name).touch()
    (tmp_path / "saved").mkdir()
    nets = f"{tmp_path}/my nets/model.onnx,onnx:{tmp_path}/my nets/other.onnx"
    (tmp_path / "my nets/other.onnx").touch()
    said = stage(engine, "export", f"MODELS={nets},hf:{tmp_path}/saved,resnet18")
    for folder in (f"{tmp_path}/my nets", f"{tmp_path}/saved"):
        assert said.count(f"type=bind,source={folder},target={folder},readonly") == 1, "twice is refused"
    beside = ROOT / f"only-for-{os.getpid()}.onnx"
    beside.touch()
    try:
        said = stage(engine, "export", f"MODELS={beside.name},onnx:./{beside.name}")
    finally:
        beside.unlink()
    assert f"type=bind,source={beside},target={beside},readonly" in said
    assert f"type=bind,source={ROOT},target={ROOT},readonly" not in said


def test_a_folder_that_would_add_a_mount_option_is_refused(engine: Engine, tmp_path: Path) -> None:
    done = make("run", "WHERE=docker", f"DOCKER={engine.path}", f"RESULTS={tmp_path}/r,target=/etc")
    error, hint = (line for line in done.stderr.splitlines() if not line.startswith("make"))
    assert error.startswith("Error: A container cannot mount ")
    assert hint.startswith("Hint:  ")


def test_a_missing_image_and_a_missing_engine_are_two_lines(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.has_no_image()
    for code, problem in (("0", "There is no image inferometer:cpu-compile"), ("1", "No container engine answers")):
        monkeypatch.setenv("FAKE_INFO", code)
        done = make("models", "WHERE=docker", f"DOCKER={engine.path}")
        error, hint = (line for line in done.stderr.splitlines() if not line.startswith("make"))
        assert error.startswith(f"Error: {problem}")
        assert "WHERE=local" in hint


def prepare(engine: Engine, **env: str) -> tuple[int, str, str]:
    done = run(["docker/prepare"], env={"PATH": os.environ["PATH"], "DOCKER": str(engine.path), **env})
    return done.returncode, done.stdout, done.stderr


def test_without_an_engine_stages_run_here(engine: Engine) -> None:
    code, said, _ = prepare(engine, FAKE_INFO="1")
    assert (code, said) == (1, "Running in .venv: no container engine answers.\n")


def test_with_an_engine_the_image_is_built_first(engine: Engine) -> None:
    engine.has_no_image()
    code, said, _ = prepare(engine)
    assert code == 0
    assert said.splitlines()[0].startswith("Building the image inferometer:cpu-compile")
    assert said.splitlines()[-1] == "Running in the image inferometer:cpu-compile."


def test_a_build_that_fails_says_why_and_stages_run_here(engine: Engine) -> None:
    code, said, reason = prepare(engine, FAKE_BUILD="1")
    assert code == 1
    assert "could not be built" in said
    assert reason == "step 3 of 9 failed\n"


def test_the_large_image_is_never_built_unasked(engine: Engine) -> None:
    engine.has_no_image()
    code, said, _ = prepare(engine, SUITE="cuda", FAKE_BUILD="1")
    assert code == 1
    assert "make image-cuda" in said


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (
            {"BASE": "python:3.11-slim-bookworm"},
            "Base: python:3.11-slim-bookworm, given by BASE, in place of python:3.12",
        ),
        ({"TORCH_BACKEND": ""}, "TORCH_BACKEND is empty: torch comes from the default index, in its CUDA build."),
        ({}, ""),
    ],
)
def test_a_build_first_lists_differences_from_the_published_image(
    engine: Engine, env: dict[str, str], words: str
) -> None:
    if "TORCH_BACKEND" in env and os.uname().machine != "x86_64":
        pytest.skip("the default index has a CPU build for this machine")
    done = run(["docker/build", "cpu"], env={"PATH": os.environ["PATH"], "DOCKER": str(engine.path), **env})
    said = done.stderr.partition("step 3 of 9 failed")[0]
    assert said.startswith(words)
    assert bool(said) == bool(words)


def test_the_variant_is_a_target_of_the_same_dockerfile(engine: Engine) -> None:
    run(["docker/build", "cpu-compile"], env={"PATH": os.environ["PATH"], "DOCKER": str(engine.path)})
    said = engine.built()
    assert said[said.index("--file") + 1] == "Dockerfile.cpu"
    assert said[said.index("--target") + 1] == "compile"
    assert said[said.index("--tag") + 1] == "inferometer:cpu-compile"


def test_an_image_that_was_named_is_not_built(engine: Engine) -> None:
    assert prepare(engine, IMAGE="theirs:1", FAKE_BUILD="1")[0] == 0


def test_auto_settles_where_to_run_for_every_target_that_runs_a_stage() -> None:
    text = (ROOT / "Makefile").read_text()
    staged = set(re.findall(r"^([a-z-]+): where ", text, re.MULTILINE))
    settled = re.search(r"^ifeq \(\$\(WHERE\),auto\)\n(.+):\n", text, re.MULTILINE)
    assert settled is not None
    assert set(settled[1].split()) == staged | {"where"}
