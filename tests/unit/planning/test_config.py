"""What a configuration may contain, and one clear message for everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import ConfigError, InferometerError, MissingInputError
from harness.core.schemas import Measurement, ReportOptions
from harness.planning.config import (
    DEFAULT_TOLERANCES,
    Config,
    MatrixBlock,
    parse_config,
    read_config,
)
from harness.planning.matrix import make_plan
from harness.planning.overrides import Overrides, apply_overrides

SMALL: dict[str, Any] = {"models": ["resnet18"], "matrix": [{"backends": ["noop"]}]}
CONFIGS = sorted(Path(__file__).parents[3].joinpath("configs").glob("*.yaml"))


def refused(**changes: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_config({**SMALL, **changes}, "my.yaml")
    assert caught.value.exit_code == 2
    assert caught.value.problem.startswith("my.yaml: ")
    return caught.value


def block(**lists: Any) -> list[dict[str, Any]]:
    return [{"backends": ["noop"], **lists}]


def test_the_defaults_are_those_of_the_schema() -> None:
    config = parse_config(SMALL, "my.yaml")
    assert config.measurement == Measurement()
    assert config.report == ReportOptions()
    later = {name: DEFAULT_TOLERANCES[name] for name in ("int4", "fp8")}
    assert {**config.all_tolerances(), **later} == DEFAULT_TOLERANCES
    assert not config.all_tolerances().keys() & later  # so that earlier plans keep their ids
    assert (config.matrix[0].precisions, config.matrix[0].batch_sizes) == (("fp32",), (1,))


def test_a_tolerance_of_the_file_replaces_the_default_of_its_precision_alone() -> None:
    gates = parse_config({**SMALL, "gates": {"bf16": {"relative_l2": 0.5}}}, "my.yaml").all_tolerances()
    assert gates["bf16"].relative_l2 == 0.5
    assert gates["bf16"].top1_agreement is None
    assert gates["fp32"] == DEFAULT_TOLERANCES["fp32"]


@pytest.mark.parametrize(
    ("changes", "path", "nearest"),
    [
        ({"measurment": {}}, "measurment", "measurement"),
        ({"models": [{"name": "resnet18", "weigths": "seeded"}]}, "models[0].weigths", "weights"),
        ({"matrix": block(batch_size=[1])}, "matrix[0].batch_size", "batch_sizes"),
        ({"measurement": {"round": 3}}, "measurement.round", "rounds"),
        ({"gates": {"fp32": {"relative_l3": 0.1}}}, "gates.fp32.relative_l3", "relative_l2"),
        ({"report": {"titel": "x"}}, "report.titel", "title"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest(changes: dict[str, Any], path: str, nearest: str) -> None:
    error = refused(**changes)
    assert error.problem.startswith(f"my.yaml: {path}: Unknown key")
    assert f"`{nearest}`?" in error.hint


@pytest.mark.parametrize(
    ("changes", "path", "given_value", "nearest"),
    [
        ({"device": "cpuu"}, "device", "cpuu", "cpu"),
        ({"matrix": block(precisions=["fp33"])}, "matrix[0].precisions[0]", "fp33", "fp32"),
        ({"models": [{"name": "a", "weights": "seedd"}]}, "models[0].weights", "seedd", "seeded"),
        ({"gates": {"fp33": {"relative_l2": 0.1}}}, "gates.fp33", "fp33", "fp32"),
    ],
)
def test_an_unknown_word_is_named_with_the_nearest(
    changes: dict[str, Any], path: str, given_value: str, nearest: str
) -> None:
    error = refused(**changes)
    assert error.problem == f"my.yaml: {path}: Unknown value `{given_value}`."
    assert f"`{nearest}`?" in error.hint


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"matrix": block(batch_sizes=["8"])}, "matrix[0].batch_sizes[0]"),
        ({"matrix": block(batch_sizes=[True])}, "matrix[0].batch_sizes[0]"),
        ({"matrix": block(batch_sizes=[1.5])}, "matrix[0].batch_sizes[0]"),
        ({"matrix": block(batch_sizes=[0])}, "matrix[0].batch_sizes[0]"),
        ({"matrix": block(sequence_lengths=[-1])}, "matrix[0].sequence_lengths[0]"),
        ({"matrix": block(backends=[1])}, "matrix[0].backends[0]"),
        ({"measurement": {"rounds": "8"}}, "measurement.rounds"),
        ({"measurement": {"rounds": True}}, "measurement.rounds"),
        ({"measurement": {"rounds": 0}}, "measurement.rounds"),
        ({"measurement": {"rounds": None}}, "measurement.rounds"),
        ({"measurement": {"max_s": "1"}}, "measurement.max_s"),
        ({"measurement": {"max_s": float("nan")}}, "measurement.max_s"),
        ({"measurement": {"max_s": float("inf")}}, "measurement.max_s"),
        ({"measurement": {"target_ci": 1.0}}, "measurement.target_ci"),
        ({"measurement": {"parity_samples": 7}}, "measurement.parity_samples"),
        ({"measurement": None}, "measurement"),
        ({"measurement": []}, "measurement"),
        ({"gates": {"fp32": {"relative_l2": "0.1"}}}, "gates.fp32.relative_l2"),
        ({"gates": {"fp32": {}}}, "gates.fp32.relative_l2"),
        ({"report": {"charts": "yes"}}, "report.charts"),
        ({"report": {"charts": 1}}, "report.charts"),
        ({"report": {"title": 5}}, "report.title"),
        ({"models": [5]}, "models[0]"),
        ({"models": [None]}, "models[0]"),
        ({"models": [""]}, "models[0].name"),
        ({"models": None}, "models"),
        ({"matrix": {"backends": ["noop"]}}, "matrix"),
        ({"device": 1}, "device"),
    ],
)
def test_a_wrong_type_or_value_is_refused_where_it_is(changes: dict[str, Any], path: str) -> None:
    assert refused(**changes).problem.startswith(f"my.yaml: {path}: ")


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"models": []}, "models"),
        ({"matrix": []}, "matrix"),
        ({"matrix": [{"backends": []}]}, "matrix[0].backends"),
        ({"matrix": block(precisions=[])}, "matrix[0].precisions"),
        ({"matrix": block(batch_sizes=[])}, "matrix[0].batch_sizes"),
        ({"matrix": block(sequence_lengths=[])}, "matrix[0].sequence_lengths"),
        ({"scenarios": [{"scenario": "server", "models": []}]}, "scenarios[0].models"),
        ({"scenarios": [{"scenario": "server", "backends": []}]}, "scenarios[0].backends"),
        ({"scenarios": [{"scenario": "server", "precisions": []}]}, "scenarios[0].precisions"),
        ({"scenarios": [{"scenario": "server", "factors": []}]}, "scenarios[0].factors"),
        ({"scenarios": [{"scenario": "server", "max_batch": []}]}, "scenarios[0].max_batch"),
        ({"scenarios": [{"scenario": "server", "max_delay": []}]}, "scenarios[0].max_delay"),
        ({"scenarios": [{"scenario": "concurrency", "clients": []}]}, "scenarios[0].clients"),
    ],
)
def test_an_empty_list_is_said_to_be_empty(changes: dict[str, Any], path: str) -> None:
    assert refused(**changes).problem == f"my.yaml: {path}: the list is empty."


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"measurement": 3}, "measurement: keys with values are needed here."),
        ({"gates": {"fp32": 1}}, "gates.fp32: keys with values are needed here."),
        ({"gates": 1}, "gates: keys with values are needed here."),
        ({"models": None}, "models: a list is needed here."),
        ({"matrix": [{}]}, "matrix[0].backends: this key is required."),
        ({"measurement": {"rounds": "8"}}, "measurement.rounds: a whole number is needed here."),
        ({"measurement": {"max_s": "1"}}, "measurement.max_s: a number is needed here."),
        ({"report": {"charts": "yes"}}, "report.charts: true or false is needed here."),
        ({"report": {"title": 5}}, "report.title: text is needed here."),
    ],
)
def test_a_wrong_type_is_named_in_the_words_of_yaml(changes: dict[str, Any], problem: str) -> None:
    assert refused(**changes).problem == f"my.yaml: {problem}"


def test_a_value_where_a_list_belongs_shows_the_list() -> None:
    assert refused(matrix=block(batch_sizes=8)).hint == "Write a list: `[8]`."
    assert refused(models="resnet18").hint == "Write a list: `[resnet18]`."


@pytest.mark.parametrize(
    ("measurement", "problem", "key"),
    [
        ({"min_samples": 64, "max_samples": 50}, "min_samples: 64 is above max_samples (50)", "max_samples"),
        ({"min_samples": 30_000}, "min_samples: 30000 is above max_samples (20000)", "max_samples"),
        ({"warmup_min_s": 2, "warmup_max_s": 1.5}, "warmup_min_s: 2 is above warmup_max_s (1.5)", "warmup_max_s"),
        ({"warmup_min_s": 21}, "warmup_min_s: 21 is above warmup_max_s (20)", "warmup_min_s"),
        ({"max_rounds": 2}, "rounds: 3 is above max_rounds (2)", "rounds"),
        ({"min_s": 31}, "min_s: 31 is above warmup_max_s and max_s together (30)", "max_s"),
        ({"rounds": 5, "max_rounds": 4}, "rounds: 5 is above max_rounds (4)", "max_rounds"),
    ],
)
def test_a_lower_limit_above_its_upper_limit_is_refused_with_both(
    measurement: dict[str, Any], problem: str, key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({**SMALL, "measurement": measurement}, "c.yaml")
    assert caught.value.problem == f"c.yaml: measurement.{problem}."
    assert f"`{key}`" in caught.value.hint


@pytest.mark.parametrize(
    "measurement",
    [
        {"min_samples": 50, "max_samples": 50},
        {"max_samples": 99},  # below the default of min_samples, which gives way
        {"warmup_max_s": 0.1},
        {"warmup_min_s": 0.1, "warmup_max_s": 0.1},
        {"max_s": 0.2, "warmup_max_s": 0.2},  # below the default of min_s: measured, and said to be short
        {"rounds": 5, "max_rounds": 5},
    ],
)
def test_limits_that_can_both_hold_are_accepted(measurement: dict[str, Any]) -> None:
    assert parse_config({**SMALL, "measurement": measurement}, "c.yaml").measurement


@pytest.mark.parametrize("key", ["models", "matrix"])
def test_a_required_key_is_missed_by_name(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"my\.yaml: {key}: "):
        parse_config({name: value for name, value in SMALL.items() if name != key}, "my.yaml")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(key=st.sampled_from([*Config.model_fields]), value=JSON)
def test_every_value_is_parsed_or_explained(key: str, value: Any) -> None:
    said = ""
    try:
        parse_config({**SMALL, key: value}, "my.yaml")
    except ConfigError as error:
        said = error.problem
    assert said == "" or said.startswith("my.yaml: ")


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "my.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [a]\nmodels: [b]\n", "line 2, column 1: duplicate key `models`"),
        ("matrix:\n  - backends: [noop]\n    backends: [noop]\n", "line 3, column 5: duplicate key `backends`"),
        ("models: &all [a]\nmatrix: *all\n", r"line 2, column 9: aliases .* are not supported"),
        ("models:\n\t- a\n", "line 2, column 1: .*cannot start any token"),
        ("models: [a\n", "line 2, column 1"),
        ("? [a, b]\n: c\n", "line 1, column 3: a key must be a word"),
        ("2026-01-01: c\n", "line 1, column 1: a date is not supported"),
        ("<<: {models: [a]}\n", "line 1, column 1: merge keys .* are not supported"),
        ("models: !!python/object/apply:os.system ['true']\n", "line 1, column 9: the tag .* is not supported"),
        ("a: 2026-99-99\n", "a date is not supported"),
        (b"models: [\xff\xfe]\n", "not valid YAML"),
        ("\0", "not valid YAML"),
        ("[" * 5000, "nested too deeply"),
        (f"a: 1{'0' * 30}\n", "line 1, column 4: .* is not an integer of at most 18 digits"),
        ("- models\n", "has no keys"),
        ("just words\n", "has no keys"),
        ("", "is empty"),
        ("# a comment\n", "is empty"),
        ("---\na: 1\n---\nb: 2\n", "line 3, column 1"),
    ],
)
def test_yaml_that_cannot_be_used_says_where(tmp_path: Path, text: str | bytes, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=words) as caught:
        read_config(path)
    assert caught.value.problem.startswith(f"{path} ")
    assert "\n" not in caught.value.problem


@pytest.mark.parametrize("text", ["report: {title: é}\n".encode("latin-1"), "\0"])
def test_a_file_that_is_no_text_gets_the_encoding_as_hint(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(written(tmp_path, text))
    assert caught.value.hint == "Save it as text in UTF-8."


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than 1,000,000 bytes"):
        read_config(written(tmp_path, "# " + "x" * 1_000_000))


def test_a_missing_file_lists_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "cpu.yaml").touch()
    with pytest.raises(MissingInputError) as caught:
        read_config(tmp_path / "cppu.yaml")
    assert "cppu.yaml cannot be read: No such file" in caught.value.problem
    assert str(tmp_path / "cpu.yaml") in caught.value.hint
    with pytest.raises(MissingInputError) as caught:
        read_config(tmp_path / "elsewhere" / "cppu.yaml")
    assert "configs/quickstart.yaml" in caught.value.hint
    with pytest.raises(InferometerError, match="is a folder, and a configuration is a file"):
        read_config(tmp_path)


def test_the_file_says_the_same_as_its_data(tmp_path: Path) -> None:
    data = {"models": ["resnet18", {"name": "b", "weights": "seeded"}], "matrix": block(batch_sizes=[1, 8])}
    assert read_config(written(tmp_path, json.dumps(data))) == parse_config(data, "my.yaml")


@pytest.mark.parametrize(
    ("scenario", "keys", "reader"),
    [
        ("offline", {"clients": [7]}, "concurrency"),
        ("offline", {"bound": "p99<1s"}, "server"),
        ("concurrency", {"max_batch": [4]}, "server and offline"),
        ("single-stream", {"workers": [2]}, "server and offline"),
        ("offline", {"max_delay": ["2ms"]}, "server"),
        ("server", {"samples": 3}, "multi-stream"),
    ],
)
def test_a_key_that_a_scenario_does_not_read_is_refused(scenario: str, keys: dict[str, Any], reader: str) -> None:
    error = refused(scenarios=[{"scenario": scenario, **keys}])
    assert error.problem == f"my.yaml: scenarios[0].{next(iter(keys))}: the {scenario} scenario does not read it."
    assert error.hint == f"Leave it out; it is of {reader}."


@pytest.mark.parametrize("text", ["1e-3", "1.e-3", "1.0e-3", "0.001", "1E-03", ".1e-2", "+1e-3"])
def test_a_number_may_have_an_exponent_without_a_point(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, f"models: [a]\nmatrix: [{{backends: [noop]}}]\ngates: {{fp32: {{relative_l2: {text}}}}}\n")
    assert read_config(path).gates["fp32"].relative_l2 == 0.001


def test_a_model_in_no_block_is_known() -> None:
    models, own = ["a", "b"], {"backends": ["noop"], "models": ["a"]}
    assert parse_config({"models": models, "matrix": [own]}, "my.yaml").models_without_block() == ["b"]
    everything = [own, {"backends": ["spin"]}]
    assert parse_config({"models": models, "matrix": everything}, "my.yaml").models_without_block() == []


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_configuration_that_we_ship_is_valid(path: Path) -> None:
    assert read_config(path).models


def test_the_readme_of_configs_names_every_key_and_its_default() -> None:
    text = (CONFIGS[0].parent / "README.md").read_text()
    for name, field in Measurement.model_fields.items():
        row = next((line for line in text.splitlines() if line.startswith(f"| `measurement.{name}`")), None)
        assert row is not None, name
        if field.default is not None:
            assert str(field.default) in row or f"{field.default:g}" in row, row


def test_a_model_may_have_tolerances_of_its_own() -> None:
    gates = {"fp16": {"relative_l2": 0.06}}
    config = parse_config({**SMALL, "models": [{"name": "resnet18", "gates": gates}, "minilm-l6"]}, "my.yaml")
    config = config.model_copy(update={"matrix": (MatrixBlock(backends=("torch-eager",), precisions=("bf16",)),)})
    plan = make_plan(config, "my.yaml", "")
    own, usual = plan.tolerance("resnet18", "fp16"), plan.tolerance("minilm-l6", "fp16")
    assert own is not None
    assert usual is not None
    assert (own.relative_l2, usual.relative_l2) == (0.06, DEFAULT_TOLERANCES["fp16"].relative_l2)
    assert plan.tolerance("resnet18", "fp32") == DEFAULT_TOLERANCES["fp32"]


@pytest.mark.parametrize(
    ("text", "kept"), [("resnet18", True), ("resnet18@seeded", True), ("resnet18@pretrained", False)]
)
def test_tolerances_of_a_model_go_with_its_weights(text: str, kept: bool) -> None:
    entry = {"name": "resnet18", "weights": "seeded", "gates": {"fp16": {"relative_l2": 0.06}}}
    config = parse_config({**SMALL, "models": [entry]}, "my.yaml")
    (model,) = apply_overrides(config, Overrides(models=(text,))).models
    assert bool(model.gates) is kept
