"""reproduce: what it starts, what it writes and how it ends, on synthetic summaries."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import reproduce
from harness.core import store
from harness.core.errors import (
    CasesFailedError,
    ConfigError,
    MissingInputError,
    NotReproducedError,
    UnavailableError,
    UsageError,
)
from harness.core.layout import Results
from harness.core.schemas import Device, Reproduction, Summary
from harness.reporting.tables import reproduction_table as tables
from tests.synthetic_results import ENVIRONMENT_ID, RESNET, SPEED, Synthetic, environment, matrix

ROOT = Path(__file__).parents[2]
XEON = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"
EAGER_MS = (RESNET.overhead_ns + RESNET.item_ns) / 1e6
CLAIM: dict[str, Any] = {
    "title": "ONNX Runtime against eager",
    "source": {"title": "a paper", "url": "https://example.org/paper"},
    "cards": [XEON],
    "conditions": {"figure": "median | of five"},
    "models": [{"name": "resnet50"}],
    "common": {"model": "resnet50", "precision": "fp32", "batch_size": 1},
    "values": [
        {"name": "eager", "backend": "torch-eager", "latency_ms": EAGER_MS},
        {"name": "ort", "backend": "onnxruntime", "latency_ms": EAGER_MS * SPEED["onnxruntime"]},
    ],
    "ratios": [{"faster": "ort", "than": "eager"}],
}


def summary(**facts: Any) -> Summary:
    cases = matrix((RESNET,), ("torch-eager", "onnxruntime"), batch_sizes=(1,), bf16=())
    here = {ENVIRONMENT_ID: environment(**facts)}
    return Synthetic(models=(RESNET,), cases=cases, samples=50, rounds=5, environments=here).summary()


class Place:
    """A folder of claims and one of results."""

    def __init__(self, root: Path) -> None:
        self.claims, self.results, self.other = root / "claims", root / "results", Results(root / "other")
        self.claims.mkdir()

    def put(self, name: str = "a-claim", **changes: Any) -> None:
        (self.claims / f"{name}.yaml").write_text(json.dumps({**CLAIM, **changes}))

    def words(self, name: str = "a-claim", *more: str) -> list[str]:
        return ["--claim", name, "--claims", str(self.claims), "--results", str(self.results), *more]

    def judge(self, found: Summary) -> Reproduction:
        store.save(self.other.summary, found)
        reproduce.stage(self.words("a-claim", "--only-compare", str(self.other.root)))
        return self.saved()

    def saved(self) -> Reproduction:
        return store.load(Results(self.results).claim("a-claim").reproduction, Reproduction, "make reproduce")

    def report(self) -> str:
        return Results(self.results).claim("a-claim").reproduction_report.read_text()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_an_existing_folder_is_judged_without_measuring(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.put()
    result = place.judge(summary())
    assert [row.verdict for row in result.rows] == ["REPRODUCED"] * 3
    assert not Results(place.results).claim("a-claim").plan.exists()
    printed = capsys.readouterr().out
    assert "a-claim: 3 REPRODUCED." in printed
    assert "https://example.org/paper" in printed


def test_an_unreproduced_claim_ends_with_eleven(place: Place) -> None:
    place.put(values=[{**CLAIM["values"][0], "latency_ms": 3 * EAGER_MS}, CLAIM["values"][1]])
    with pytest.raises(NotReproducedError) as caught:
        place.judge(summary())
    assert caught.value.exit_code == 11
    assert caught.value.problem == "a-claim: 2 NOT REPRODUCED, 1 REPRODUCED."
    assert "names the differences" in caught.value.hint
    assert [row.verdict for row in place.saved().rows].count("NOT REPRODUCED") == 2


def test_another_gpu_ends_with_zero_and_is_named(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.put(cards=["NVIDIA H100 80GB HBM3"], ratios=[])
    place.judge(summary())
    assert "a-claim: 2 NOT COMPARABLE." in capsys.readouterr().out
    assert f"1. device: published NVIDIA H100 80GB HBM3, here {XEON}" in place.report()


def test_the_exit_code_and_two_lines_of_the_program(place: Place) -> None:
    place.put(values=[{**CLAIM["values"][0], "latency_ms": 3 * EAGER_MS}, CLAIM["values"][1]])
    store.save(place.other.summary, summary())
    words = place.words("a-claim", "--only-compare", str(place.other.root))
    command = [sys.executable, "-m", "harness.reproduce", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 11
    error, hint = done.stderr.splitlines()
    assert error.startswith("Error: a-claim: ")
    assert hint.startswith("Hint:  ")


def test_a_ratio_on_another_machine_says_that_it_is_weaker(place: Place) -> None:
    place.put(cards=["NVIDIA H100 80GB HBM3"])
    result = place.judge(summary())
    assert [row.verdict for row in result.rows] == ["NOT COMPARABLE", "NOT COMPARABLE", "REPRODUCED"]
    assert "weaker evidence" in place.report()
    assert "weaker evidence" not in tables.document(result.model_copy(update={"rows": result.rows[:2]}))


def test_only_the_kinds_of_a_reproduction_are_explained(place: Place) -> None:
    place.put()
    result = place.judge(summary())
    texts = {"value": "A value is judged", "ratio": "A ratio is per sample", "order": "An order is reproduced"}
    for kind in {row.kind for row in result.rows}:
        rows = tuple(row for row in result.rows if row.kind == kind)
        text = tables.document(result.model_copy(update={"rows": rows}))
        assert [name for name, sentence in texts.items() if sentence in text] == [kind]
    alike = tuple(row.model_copy(update={"differences": ()}) for row in result.rows)
    assert "name the conditions that were not the same" not in tables.document(
        result.model_copy(update={"rows": alike})
    )


def test_the_document_has_both_sides_and_their_conditions(place: Place) -> None:
    place.put()
    place.judge(summary())
    text = place.report()
    cells = [cell.strip() for line in text.splitlines() if "| eager " in line for cell in line.split("|")]
    assert f"{EAGER_MS:,.6g}" in cells
    assert "figure: median \\| of five" in text
    assert f"Measured: {XEON} · 2 threads" in text
    assert "How to read this" in text


def test_the_list_names_every_claim_with_its_conditions(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.put("one")
    place.put("two", context="other rules", ratios=[])
    reproduce.stage(place.words("list"))
    printed = capsys.readouterr().out
    assert "one: ONNX Runtime against eager\n" in printed
    assert "2 values, 1 ratio\n" in printed
    assert "2 values, context only\n" in printed
    assert "median | of five" in printed


def test_a_bad_claim_hides_no_other(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.put("b-bad", titel="x")
    (place.claims / "a-bad.yaml").write_text("title: [unclosed")
    place.put("one")
    place.put("two")
    with pytest.raises(ConfigError, match=r"b-bad\.yaml: titel: unknown key") as caught:
        reproduce.stage(place.words("list"))
    printed = capsys.readouterr()
    assert [line.partition(":")[0] for line in printed.out.splitlines() if not line.startswith(" ")][::2] == [
        "one",
        "two",
    ]
    error, hint = printed.err.splitlines()
    assert error.startswith(f"Error: {place.claims}/a-bad.yaml is not valid YAML: ")
    assert hint.removeprefix("Hint:  ") == caught.value.hint == "docs/claims.md has every key."


def test_the_claims_of_the_package_are_known_in_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    reproduce.stage(["--claim", "list"])
    assert "own-epyc: " in capsys.readouterr().out


def test_a_claim_that_is_context_starts_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce.subprocess, "run", pytest.fail)
    place.put(context="other rules", ratios=[])
    reproduce.stage(place.words())
    assert {row.reason for row in place.saved().rows} == {"context only: other rules"}
    assert place.saved().here is None


def test_a_claim_that_no_stage_can_run_here_starts_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce.subprocess, "run", pytest.fail)
    place.put(values=[{**CLAIM["values"][0], "backend": "tensorrt"}], ratios=[])
    with pytest.raises(UnavailableError, match="a-claim: nothing was measured: tensorrt does not run on cpu") as caught:
        reproduce.stage(place.words())
    assert "DEVICE=cuda" in caught.value.hint
    assert [row.reason for row in place.saved().rows] == ["tensorrt does not run on cpu"]


class _Devices:
    """Replaces the GPU's driver: whether this machine has a GPU."""

    def __init__(self, has_gpu: bool) -> None:
        self._has_gpu = has_gpu

    def require(self, device: Device) -> None:
        if device == "cuda" and not self._has_gpu:
            raise UnavailableError("there is no GPU", "a hint")


@pytest.mark.parametrize(
    ("named", "asked", "has_gpu", "device"),
    [
        (None, None, True, "cuda"),
        (None, None, False, "cpu"),
        (None, "cpu", True, "cpu"),
        ("cuda", None, True, "cuda"),
        ("cpu", None, True, "cpu"),
        (None, "cuda", True, "cuda"),
        ("cuda", "cuda", True, "cuda"),
    ],
)
def test_a_claim_is_measured_on_the_device_that_it_names(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    named: Device | None,
    asked: Device | None,
    has_gpu: bool,
    device: Device,
) -> None:
    monkeypatch.setattr(reproduce, "gpu", _Devices(has_gpu))
    monkeypatch.setattr(reproduce.subprocess, "run", Stages(place, {}))
    place.put(**({} if named is None else {"device": named}))
    reproduce.stage(place.words("a-claim", *([] if asked is None else ["--device", asked])))
    assert json.loads(Results(place.results).claim("a-claim").config.read_text()).get("device", "cpu") == device
    where = {"cuda": "it is measured on the GPU", "cpu": "it is measured on the CPU"}
    (first, *_) = capsys.readouterr().out.splitlines()
    assert first.startswith("The claim names no device") == (named is None and asked is None)
    assert not first.startswith("The claim names no device") or where[device] in first


def test_a_claim_that_no_gpu_measures_is_measured_on_the_cpu(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce, "gpu", _Devices(True))
    monkeypatch.setattr(reproduce.subprocess, "run", Stages(place, {}))
    place.put(values=[{**CLAIM["values"][0], "backend": "openvino"}], ratios=[])
    reproduce.stage(place.words())
    assert json.loads(Results(place.results).claim("a-claim").config.read_text()).get("device", "cpu") == "cpu"
    assert "a GPU measures nothing of it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("named", "asked", "has_gpu", "problem"),
    [
        ("cuda", None, False, "nothing was measured: published for cuda, DEVICE=cuda measures it"),
        ("cuda", "cpu", True, "nothing was measured: published for cuda, DEVICE=cuda measures it"),
        ("cpu", "cuda", True, "nothing was measured: published for cpu, DEVICE=cpu measures it"),
        (None, "cuda", False, "there is no GPU"),
    ],
)
def test_a_claim_that_its_device_alone_measures_ends_with_five_on_another(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    named: Device | None,
    asked: Device | None,
    has_gpu: bool,
    problem: str,
) -> None:
    monkeypatch.setattr(reproduce, "gpu", _Devices(has_gpu))
    monkeypatch.setattr(reproduce.subprocess, "run", pytest.fail)
    place.put(**({} if named is None else {"device": named}))
    with pytest.raises(UnavailableError, match=problem) as caught:
        reproduce.stage(place.words("a-claim", *([] if asked is None else ["--device", asked])))
    assert caught.value.exit_code == 5


class Stages:
    """Replaces the stages: records what was started, leaves a summary, ends with chosen exit codes."""

    def __init__(self, place: Place, codes: dict[str, int]) -> None:
        self.started: list[list[str]] = []
        self._place, self._codes = place, codes

    def __call__(self, command: Sequence[str], check: bool) -> SimpleNamespace:
        assert not check
        name = command[2].removeprefix("harness.")
        self.started.append([name, *command[3:]])
        if name == "aggregate":
            store.save(Results(self._place.results).claim("a-claim").summary, summary())
        return SimpleNamespace(returncode=self._codes.get(name, 0))


@pytest.mark.parametrize(
    ("device", "codes"),
    [("cpu", {}), ("cuda", {}), ("cuda", {"build_engine": 5, "run": 10}), ("cuda", {"build_engine": 8})],
)
def test_the_stages_run_in_their_order(
    place: Place, monkeypatch: pytest.MonkeyPatch, device: str, codes: dict[str, int]
) -> None:
    place.put()
    stages = Stages(place, codes)
    monkeypatch.setattr(reproduce, "gpu", _Devices(True))
    monkeypatch.setattr(reproduce.subprocess, "run", stages)
    reproduce.stage(
        place.words("a-claim", "--rounds", "2", "--device", device, "--python", "tensorrt=/opt/x", "--force")
    )
    engines = ["build_engine"] if device == "cuda" else []
    order = ["plan", "export", *engines, "roof", "run", "aggregate", "report"]
    assert [words[0] for words in stages.started] == order
    own = Results(place.results).claim("a-claim")
    assert all(str(own.root) in words for words in stages.started)
    assert json.loads(own.config.read_text())["measurement"]["rounds"] == 2
    passed = {words[0] for words in stages.started if "tensorrt=/opt/x" in words}
    assert passed == {"export", *engines, "run"}
    assert {words[0] for words in stages.started if "--force" in words} == {
        "export",
        *engines,
        "roof",
        "run",
        "aggregate",
    }


@pytest.mark.parametrize("codes", [{"plan": 2}, {"export": 8}, {"run": 7}, {"aggregate": 4}])
def test_a_stage_that_ends_badly_ends_it(place: Place, monkeypatch: pytest.MonkeyPatch, codes: dict[str, int]) -> None:
    place.put()
    stages = Stages(place, codes)
    monkeypatch.setattr(reproduce.subprocess, "run", stages)
    with pytest.raises(CasesFailedError, match=f"The {next(iter(codes))} stage ended with exit code"):
        reproduce.stage(place.words())
    assert stages.started[-1][0] in codes


def test_our_own_run_is_not_held_against_itself(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    own = "results/published/epyc-2-vcpu/2026-11-28"
    words = ["--claim", "own-epyc", "--results", str(place.results), "--only-compare", own]
    with pytest.raises(UsageError, match="the published run itself"):
        reproduce.stage(words)


def test_our_own_run_on_another_machine_names_the_differences(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    store.save(place.other.summary, summary())
    reproduce.stage(["--claim", "own-epyc", "--results", str(place.results), "--only-compare", str(place.other.root)])
    own = Results(place.results).claim("own-epyc")
    reproduction = store.load(own.reproduction, Reproduction, "make reproduce")
    assert {row.verdict for row in reproduction.rows} == {"NOT COMPARABLE"}
    [row] = [row for row in reproduction.rows if row.name == "resnet50-torch-script-cpu-fp32-b1"]
    assert {"device", "machine.cpu"} <= {difference.name for difference in row.differences if difference.refuses}


def test_mistakes_of_the_caller(place: Place) -> None:
    place.put()
    with pytest.raises(UsageError, match="Unknown claim"):
        reproduce.stage(place.words("b-claim"))
    with pytest.raises(UsageError, match="0 rounds"):
        reproduce.stage(place.words("a-claim", "--rounds", "0"))
    with pytest.raises(MissingInputError):
        reproduce.stage(place.words("a-claim", "--only-compare", str(place.other.root / "none")))
    place.put(titel="x")
    with pytest.raises(ConfigError, match="titel: unknown key"):
        reproduce.stage(place.words())
