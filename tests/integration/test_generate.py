"""The stages of `make generate` on a tiny model and on work of known duration, with resuming and a bundle."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from harness.core import store
from harness.core.layout import ModelFolder, Results
from harness.core.schemas import Generated, Summary
from tests.fixtures.forked import run_forked
from tests.fixtures.stages import ROOT

pytestmark = pytest.mark.stages

CONFIG = """
models: ["hf:{folder}", "spin:1ms"]
generation:
  - {{backends: [torch-eager, spin], batch_sizes: [2], prompt_lengths: [8], new_tokens: [5]}}
measurement: {{rounds: 1, warmup_max_s: 0.2, min_s: 0.1, threads: 1}}
generating: {{requests: 3}}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything ran once."""
    root = tmp_path_factory.mktemp("generate")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = AutoConfig.for_model("llama", vocab_size=99, bos_token_id=1, eos_token_id=2, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(root / "tiny")
    (root / "c.yaml").write_text(CONFIG.format(folder=root / "tiny"))
    stage("plan", root, "--config", str(root / "c.yaml"))
    for name in ("export", "generate", "aggregate", "report"):
        stage(name, root)
    return root


def stage(name: str, root: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    """What a stage printed on both streams; its workers are forks as well. code: its exit code."""
    folders = ["--results", str(root / "results"), "--models-dir", str(root / "models")]
    words = folders[: {"verify": 0, "report": 2}.get(name, 4)]
    done = run_forked(f"harness.{name}", [*words, *arguments], ROOT, os.environ)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_the_tokens_are_right_and_the_known_durations_are_measured(ran: Path) -> None:
    rows = store.load(Results(ran / "results").summary, Summary, "").generations
    measured = [row for row in rows if row.status == "measured"]
    assert {row.backend for row in measured} == {"torch-eager", "spin"}
    eager = next(row for row in measured if row.backend == "torch-eager")
    assert eager.parity is not None
    assert (eager.parity.free_sequences, eager.parity.free_equal, eager.parity.unexplained) == (2, 2, 0)
    assert eager.cache is not None
    assert eager.cache.measured == eager.cache.formula
    assert "UNWATCHED" not in {flag.name for flag in eager.flags}
    spin = next(row for row in measured if row.backend == "spin")
    assert spin.itl_ns is not None
    assert spin.itl_ns.median >= 1e6


def test_the_time_of_a_users_decoder_is_about_known_from_its_export(ran: Path, tmp_path: Path) -> None:
    """Before, the plan names the length of passes that its time assumes."""
    plan = ("plan", tmp_path, "--config", str(ran / "c.yaml"))
    said, _ = stage(*plan)
    assert " to measure with passes of up to 50 ms, up to " in said
    shutil.copytree(ran / "models", tmp_path / "models", symlinks=True)
    for kept in ("no record in the results", "a record in the results"):
        said, _ = stage(*plan)
        assert re.search(r"^  time .+ to measure, besides export$", said, re.MULTILINE), kept
        shutil.copytree(ran / "results/exports", tmp_path / "results/exports", dirs_exist_ok=True)


def test_every_record_has_n_instants_and_adds_up(ran: Path) -> None:
    paths = sorted((ran / "results/generation").glob("*/1.json"))
    assert len(paths) == 2
    for path in paths:
        record = store.load_generated(path)
        assert isinstance(record, Generated)
        for request in record.requests:
            assert len(request.token_ns) == 5
            ttft = request.token_ns[0] - request.start_ns
            assert ttft + sum(request.steps_ns) == request.token_ns[-1] - request.start_ns


def test_the_report_shows_the_model_and_its_chart(ran: Path) -> None:
    text = (ran / "results/report.md").read_text()
    assert "## Generation" in text
    assert "| torch-eager | fp32" in " ".join(text.split())
    assert list((ran / "results/charts").glob("*-generation-itl.png"))


def test_only_missing_records_are_measured_again(ran: Path, tmp_path: Path) -> None:
    shutil.copytree(ran, tmp_path / "again", symlinks=True)
    again = tmp_path / "again"
    said, _ = stage("generate", again)
    assert "0 processes of generation to run; 2 measured before are kept" in said
    assert "Expected: " not in said
    spin = next((again / "results/generation").glob("*-spin-*/1.json"))
    spin.write_bytes(spin.read_bytes()[:-9])
    said, warned = stage("generate", again)
    assert "It is measured again" in warned
    assert "1 process of generation to run" in said
    assert re.search(r"^Expected: .+ to measure\.$", said, re.MULTILINE)


def test_a_forced_run_compiles_again(ran: Path, tmp_path: Path) -> None:
    shutil.copytree(ran, tmp_path / "again", symlinks=True)
    again = tmp_path / "again"
    weights = next((again / "models").rglob("weights.safetensors"))
    code = ModelFolder(weights.parent).decoder_cache / "decode-cpu-fp32" / "code"
    code.parent.mkdir(parents=True)
    code.write_text("compiled before")
    stage("generate", again)
    assert code.is_file()
    said, _ = stage("generate", again, "--force")
    assert "2 processes of generation to run." in said
    assert not code.exists()


def test_run_refuses_a_plan_that_has_only_generation(ran: Path) -> None:
    _, refused = stage("run", ran, code=2)
    assert "has only cases of generation, which `run` does not measure." in refused
    assert re.search(r"^Hint:  `make generate .*measures? them\.$|make generate", refused, re.MULTILINE)


def test_a_bundle_gives_the_same_report(ran: Path) -> None:
    stage("bundle", ran)
    packed = next((ran / "results").glob("*.tar.xz"))
    said, _ = stage("verify", ran, "--bundle", str(packed))
    assert "come out the same" in said
