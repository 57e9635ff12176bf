"""What the plan stage says about a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import plan
from harness.core import store
from harness.core.errors import ConfigError, MissingInputError, UnavailableError, UsageError
from harness.core.layout import Results
from harness.core.schemas import Plan

SMOKE = Path(__file__).parents[2] / "configs/smoke.yaml"


@pytest.mark.parametrize(("rounds", "said"), [("1", "in 1 round\n"), ("2", "in 2 rounds\n")])
def test_one_round_is_a_round(rounds: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan.stage(["--config", str(SMOKE), "--rounds", rounds, "--results", str(tmp_path)])
    assert said in capsys.readouterr().out


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's, with an ONNX file, a saved program and a saved transformer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my nets").mkdir()
    (tmp_path / "my nets/model.onnx").touch()
    (tmp_path / "my nets/model.pt2").touch()
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/config.json").write_text("{}")
    return tmp_path


def planned(*models: str) -> list[str]:
    plan.stage(["--config", "smoke", "--models", ",".join(models)])
    return [model.name for model in store.load(Results(Path("results")).plan, Plan, "make plan").models]


def test_a_missing_configuration_lists_those_of_the_package(here: Path) -> None:
    with pytest.raises(MissingInputError) as caught:
        plan.stage(["--config", "smok"])
    assert "configs/smoke.yaml" in caught.value.hint


def test_files_and_folders_need_no_prefix_and_may_hold_spaces(here: Path) -> None:
    assert planned("my nets/model.onnx", "my nets/model.pt2", " ./saved", "resnet18@seeded minilm-l6") == [
        "onnx:my nets/model.onnx",
        "pt2:my nets/model.pt2",
        "hf:./saved",
        "resnet18",
        "minilm-l6",
    ]
    assert planned(f"{here}/my nets/model.onnx", f"{here}/my nets/model.pt2", f"{here}/saved") == [
        "onnx:./my nets/model.onnx",
        "pt2:./my nets/model.pt2",
        "hf:./saved",
    ]


def test_a_path_that_exists_is_not_split_at_its_commas(here: Path) -> None:
    nets = here / "my nets, old"
    nets.mkdir()
    for name in ("a,b.onnx", "b.onnx", "c, d,e.pt2"):
        (nets / name).touch()
    (nets / "x,y").mkdir()
    (nets / "x,y/config.json").write_text("{}")
    (here / "resnet18,minilm-l6").mkdir()
    assert planned("my nets, old/a,b.onnx", "resnet18,minilm-l6", "onnx:my nets, old/b.onnx") == [
        "onnx:my nets, old/a,b.onnx",
        "resnet18",
        "minilm-l6",
        "onnx:my nets, old/b.onnx",
    ]
    assert planned("my nets, old/c, d,e.pt2", "./my nets, old/x,y") == [
        "pt2:my nets, old/c, d,e.pt2",
        "hf:./my nets, old/x,y",
    ]


def test_models_of_a_configuration_need_no_prefix_either(here: Path) -> None:
    text = {
        "models": ["my nets/model.onnx"],
        "matrix": [{"backends": ["onnxruntime"], "models": ["my nets/model.onnx"]}],
    }
    (here / "own.yaml").write_text(json.dumps(text))
    plan.stage(["--config", "own.yaml"])
    assert Results(Path("results")).plan.is_file()


@pytest.mark.parametrize("option", ["--models", "--backends", "--batches", "--inputs", "--scenarios"])
def test_commas_alone_are_no_choice_of_everything(option: str, here: Path) -> None:
    with pytest.raises(UsageError, match="names nothing"):
        plan.stage(["--config", "smoke", option, ", ,"])


@pytest.mark.parametrize(
    ("scenario", "option", "given", "said"),
    [
        ("offline", "--clients", "3", "No scenario here has a number of clients, as concurrency"),
        ("offline", "--samples", "3", "No scenario here has samples of a query, as multi-stream"),
        ("offline", "--bound", "p99<1s", "No scenario here has a bound, as server"),
        ("concurrency", "--max-batch", "3", "No scenario here has batches of requests, as server and offline"),
        ("concurrency", "--workers", "3", "No scenario here has a number of workers, as server and offline"),
        ("offline", "--max-delay", "2ms", "No scenario here has a delay of batches, as server"),
    ],
)
def test_an_option_that_no_scenario_reads_is_refused(
    scenario: str, option: str, given: str, said: str, here: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        plan.stage(["--config", "smoke", "--scenarios", scenario, option, given])


def test_a_model_that_no_block_has_is_said_to_be_unmeasured(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = {"models": ["resnet18", "resnet50"], "matrix": [{"backends": ["noop"], "models": ["resnet18"]}]}
    (here / "own.yaml").write_text(json.dumps(text))
    plan.stage(["--config", "own.yaml"])
    assert "own.yaml lists resnet50, and no block has it: it is not measured." in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--models", "smollm2-135m", "--backends", "openvino", "--precisions", "int8"],
        ["--models", "smollm2-135m", "--backends", "openvino", "--precisions", "int8", "--load", "--bound", "p99<1s"],
    ],
)
def test_a_plan_of_which_every_case_is_skipped_is_an_error_with_the_reasons(options: list[str], here: Path) -> None:
    with pytest.raises(
        UnavailableError, match="every case is skipped: OpenVINO would run this dynamically quantised"
    ) as raised:
        plan.stage(["--config", "quickstart", *options])
    assert raised.value.hint == "Choose another backend, precision, boundary, mode or batch size."
    assert not (here / "results/plan.json").exists()


def test_a_plan_with_one_case_to_measure_is_none(here: Path) -> None:
    plan.stage(
        ["--config", "quickstart", "--models", "smollm2-135m", "--backends", "openvino", "--precisions", "fp32,int8"]
    )


@pytest.mark.parametrize(
    ("model", "problem", "hint"),
    [
        ("my nets/modle.onnx", "There is no file my nets/modle.onnx.", "Did you mean my nets/model.onnx?"),
        ("my nets/mdel.pt2", "There is no file my nets/mdel.pt2.", "Did you mean my nets/model.pt2?"),
        ("onnx:/no/where.onnx", "There is no file /no/where.onnx.", "Check the path"),
        ("folder.onnx", "folder.onnx is a folder, and no file.", "Name the file in it."),
        ("lost.onnx", "lost.onnx is a link to gone.onnx, which is not there.", "Make the link again"),
        ("./svaed", "There is no folder svaed.", "Did you mean saved?"),
        ("./my nets/", "my nets has no config.json", "save_pretrained"),
        ("module:no_such_package.nets:build", "There is no Python module no_such_package.", "Run from the folder"),
    ],
)
def test_a_missing_library_is_an_error_of_the_plan(here: Path, model: str, problem: str, hint: str) -> None:
    (here / "folder.onnx").mkdir()
    (here / "lost.onnx").symlink_to("gone.onnx")
    with pytest.raises(MissingInputError) as raised:
        planned(model)
    assert raised.value.problem.startswith(problem)
    assert hint in raised.value.hint
    assert not (here / "results/plan.json").exists()


def test_a_missing_configuration_is_an_error_and_the_packages_own_are_known_everywhere(here: Path) -> None:
    with pytest.raises(MissingInputError):
        plan.stage(["--config", "no-such-configuration.yaml"])
    plan.stage(["--config", "configs/smoke.yaml"])
    (here / "configs").mkdir()
    (here / "configs/smoke.yaml").write_text("nothing")
    with pytest.raises(ConfigError, match="has no keys"):
        plan.stage(["--config", "configs/smoke.yaml"])
