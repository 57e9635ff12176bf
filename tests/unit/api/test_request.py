"""A call of the API as a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.api.configuration import (
    Timing,
    configuration_data,
    every_backend,
    matrix_block,
    measurement_data,
    scenario_blocks,
)
from harness.api.given_model import Subject
from harness.api.runs import folder_of
from harness.core.errors import UsageError
from harness.planning.config import parse_config

USUAL = {"backend": "torch-eager", "precision": "fp32", "batch_size": 4, "sequence_length": 128}


def test_a_choice_replaces_the_usual_value_and_none_keeps_it() -> None:
    assert matrix_block({"batch_size": [1, 8], "backend": None}, USUAL) == {
        "backends": ["torch-eager"],
        "precisions": ["fp32"],
        "batch_sizes": [1, 8],
        "sequence_lengths": [128],
    }


def test_an_unknown_choice_names_the_near_one() -> None:
    with pytest.raises(UsageError) as raised:
        matrix_block({"batchsize": 8}, USUAL)
    assert raised.value.hint.startswith("Did you mean `batch_size`?")


def test_a_value_that_is_no_dictionary_is_no_configuration() -> None:
    with pytest.raises(UsageError, match="'onnxruntime' is no configuration"):
        matrix_block("onnxruntime", USUAL)  # type: ignore[arg-type]


def test_every_backend_computes_and_has_the_precision() -> None:
    assert {"torch-eager", "onnxruntime", "openvino"} <= set(every_backend("cpu", "fp32"))
    assert "noop" not in every_backend("cpu", "fp32")
    assert "onnxruntime" not in every_backend("cpu", "bf16")


def test_a_call_says_the_last_word_on_timing() -> None:
    settings = {"rounds": 2, "max_s": 1.0}
    subject = Subject("Net", "pickle:Net-0123456789abcdef", samples=8)
    assert measurement_data(settings, subject, Timing(num_runs=50, warmup_runs=5, rounds=4)) == {
        "rounds": 4,
        "max_s": 1.0,
        "parity_samples": 8,
        "max_samples": 50,
        "min_samples": 50,
        "warmup_min_iterations": 5,
    }
    assert measurement_data({}, Subject("minilm-l6", "minilm-l6"), Timing()) == {}
    assert settings == {"rounds": 2, "max_s": 1.0}


def test_a_number_of_inputs_that_was_asked_for_is_kept() -> None:
    subject = Subject("Net", "pickle:Net-0123456789abcdef", samples=8)
    assert measurement_data({"parity_samples": 32}, subject, Timing()) == {"parity_samples": 32}


def test_the_configuration_is_one_that_the_plan_stage_reads() -> None:
    subject = Subject("resnet18", "resnet18")
    written = configuration_data(
        subject, "cpu", "seeded", [matrix_block({}, USUAL)], measurement_data({}, subject, Timing(num_runs=10))
    )
    read = parse_config(written, "config.yaml")
    assert (read.models[0].name, read.models[0].weights) == ("resnet18", "seeded")
    assert read.matrix[0].batch_sizes == (4,)
    assert read.measurement.max_samples == 10


@pytest.mark.parametrize("timing", [Timing(num_runs=0), Timing(rounds=0), Timing(warmup_runs=-1), Timing(num_runs=1.5)])  # type: ignore[arg-type]
def test_a_number_that_counts_nothing_is_refused(timing: Timing) -> None:
    with pytest.raises(UsageError, match="is no number of runs"):
        measurement_data({}, Subject("resnet18", "resnet18"), timing)


def test_a_value_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Object of type object is not JSON"):
        folder_of(tmp_path, "net", {"measurement": {"rounds": object()}})


def test_each_configuration_has_its_folder(tmp_path: Path) -> None:
    result, other = {"device": "cpu"}, {"device": "cuda"}
    assert folder_of(tmp_path, "net", result) == folder_of(tmp_path, "net", dict(result))
    assert folder_of(tmp_path, "net", result) != folder_of(tmp_path, "net", other)


def test_each_scenario_has_the_keys_that_it_reads() -> None:
    blocks = scenario_blocks(["server", "concurrency"], {"bound": "p99<1s", "max_batch": 4, "clients": [1, 2]})
    assert blocks == [
        {"scenario": "server", "bound": "p99<1s", "max_batch": [4]},
        {"scenario": "concurrency", "clients": [1, 2]},
    ]
    with pytest.raises(UsageError, match="No scenario of this call reads `clients`"):
        scenario_blocks("server", {"clients": [1]})
