"""Configurations and records that are made to exhaust or to mislead their reader."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core import store
from harness.core.errors import ConfigError, MalformedFileError, UsageError
from harness.core.schemas import Plan
from harness.core.seal import unsealed
from harness.planning import config, overrides
from harness.planning.config import read_config
from tests.synthetic_results import RESNET, case_of, measured, plan_of

ROOT = Path(__file__).parents[2]
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
SMALL = "models: [resnet18]\nmatrix: [{backends: [noop]}]\n"


def said_of(tmp_path: Path, text: str) -> str:
    """The problem of a configuration, in one line."""
    path = tmp_path / "hostile.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert "\n" not in caught.value.problem + caught.value.hint
    return caught.value.problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LAUGHS, "aliases"),
        ("a: &a [*a]\n", "aliases"),
        ("{a: " * 20_000, "not valid YAML"),
        ("[" * 100_000 + "]" * 100_000, "not valid YAML"),
        (f"models: {'[' * 150}x{']' * 150}\nmatrix: []\n", "models"),
        ("- " * 20_000 + "x\n", "not valid YAML"),
        ("x" * (config.MAX_BYTES + 1), "is larger than 1,000,000 bytes"),
        ("a: !!python/object/apply:os.system [touch x]\n", "the tag `"),
        ("a: !!python/name:os.system\n", "the tag `"),
        ("a: !!python/module:os\n", "the tag `"),
        (f"{SMALL}measurement: {{max_s: .nan}}\n", "measurement.max_s"),
        (f"{SMALL}measurement: {{max_s: .inf}}\n", "measurement.max_s"),
        (f"{SMALL}measurement: {{rounds: 1e999}}\n", "measurement.rounds"),
        (f"{SMALL}measurement: {{rounds: {'9' * 5000}}}\n", "is not an integer of at most 18 digits, in decimal"),
        (f"{SMALL}measurement: {{rounds: 0x{'f' * 5000}}}\n", "is not an integer of at most 18 digits, in decimal"),
        (f"{SMALL}measurement: {{rounds: 010}}\n", "`010` is not an integer of at most 18 digits, in decimal"),
        (f"{SMALL}measurement: {{rounds: 1:30}}\n", "`1:30` is not an integer of at most 18 digits, in decimal"),
        (f"{SMALL}measurement: {{max_s: 1:30.5}}\n", "`1:30.5` is not a number"),
        (f"{SMALL}measurement: {{rounds: !!int ''}}\n", "`` is not an integer"),
        (f"{SMALL}measurement: {{rounds: !!int [1]}}\n", "is not an integer"),
        (f"{SMALL}measurement: {{max_s: !!float ''}}\n", "`` is not a number"),
        (f"{SMALL}report: {{charts: !!bool ''}}\n", "`` is not true or false"),
        (f"{SMALL}report: {{title: 2026-99-99}}\n", "a date is not supported"),
        (f"{SMALL}report: {{title: !!timestamp 'x'}}\n", "a date is not supported"),
        (f"{SMALL}report: {{title: !!binary 'x'}}\n", "`!!binary` is not supported"),
        (f"{SMALL}measurement: {{threads: 1000000}}\n", "less than or equal to 9999"),
        (f"{SMALL}measurement: {{threads: true}}\n", "a whole number is needed here"),
        (f"{SMALL}measurement: {{max_s: true}}\n", "a number is needed here"),
        (f"{SMALL}measurement: {{max_s: 1.0e+400}}\n", "a finite number"),
        (f"{SMALL}measurement: {{max_s: 1e400}}\n", "measurement.max_s"),
        (f"{SMALL}measurement: {{timeout_s: 1.0e+300}}\n", "less than or equal to 2592000"),
        (f"{SMALL}measurement: {{seed: -1}}\n", "greater than or equal to 0"),
        (f"{SMALL}measurement: {{rounds: 5, max_rounds: 2}}\n", "measurement.rounds: 5 is above max_rounds (2)"),
        ("models: [resnet18]\nmatrix: [{backends: [noop], batch_sizes: [999999999999]}]\n", "batch_sizes"),
        ('models: ["resnet18\\e[2J"]\nmatrix: [{backends: [noop]}]\n', "control characters"),
        (f"{SMALL}trust_remote_code: true\n", "Unknown key `trust_remote_code`"),
        ("models: [{name: resnet18, trust_remote_code: true}]\nmatrix: []\n", "Unknown key `trust_remote_code`"),
        (f"models: ['hf:{'a' * 400}']\nmatrix: [{{backends: [noop]}}]\n", "models"),
    ],
    ids=itertools.count(),
)
def test_a_hostile_configuration_is_refused_in_two_lines(tmp_path: Path, text: str, words: str) -> None:
    assert words in said_of(tmp_path, text)


def test_an_endless_file_is_no_configuration() -> None:
    with pytest.raises(MalformedFileError, match="is a device"):
        config.read_yaml(Path("/dev/zero"))


def test_an_endless_file_is_no_record() -> None:
    with pytest.raises(MalformedFileError, match="is a device"):
        store.load(Path("/dev/zero"), Plan, "make plan")


def test_a_record_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    store.save(path, plan_of([RESNET], []))
    monkeypatch.setattr(store, "MAX_RECORD_BYTES", 100)
    with pytest.raises(MalformedFileError, match="has more than 100 bytes") as caught:
        store.load(path, Plan, "make plan")
    assert (
        caught.value.hint
        == "If it is a damaged one of ours, delete it and run `make plan` again; else name another file."
    )


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400, "-1", '"0x1"', "null", "[]"])
def test_a_number_that_is_none_is_refused(tmp_path: Path, number: str) -> None:
    path = tmp_path / "plan.json"
    store.save(path, plan_of([RESNET], [case_of(RESNET, "noop", "fp32", 1)]), indent=None)
    text = unsealed(path.read_bytes()).content.decode()
    assert '"max_s":10.0' in text
    path.write_text(text.replace('"max_s":10.0', f'"max_s":{number}'))
    with pytest.raises(MalformedFileError, match="is not a valid Plan"):
        store.load(path, Plan, "make plan")


@pytest.mark.parametrize("body", ["[" * 100_000, '{"a":' * 100_000, '"cases":[' + "{}," * 10 + "]", "\0", "\ud83d"])
def test_json_that_is_none_is_two_lines(tmp_path: Path, body: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b'{"schema_version":1,"cases":' + body.encode(errors="surrogatepass"))
    with pytest.raises(MalformedFileError, match="is not a valid Plan") as caught:
        store.load(path, Plan, "make plan")
    assert "\n" not in caught.value.problem


def test_a_raw_record_with_a_right_seal_is_still_checked(tmp_path: Path) -> None:
    record = measured(case_of(RESNET, "noop", "fp32", 1), RESNET, 1, 10)
    path = tmp_path / "1.json"
    store.save_raw(path, record.model_copy(update={"status": "invented"}))
    with pytest.raises(MalformedFileError, match="is not a valid raw record"):
        store.load_raw(path)


def test_the_plan_stage_ends_with_two_lines_and_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(LAUGHS)
    command = [sys.executable, "-m", "harness.plan", "--config", str(path), "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == ConfigError.exit_code
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["Error", "Hint"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["a" * 400, f"spin:{'9' * 5000}ms", "resnet18\x1b[2J"])
def test_a_name_on_the_command_line_is_checked_as_in_a_configuration(tmp_path: Path, name: str) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    with pytest.raises(UsageError, match="is no model's name") as caught:
        overrides.apply_overrides(read_config(path), overrides.Overrides(models=(name,)))
    assert len(caught.value.problem) < 300
