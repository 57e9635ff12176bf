"""Generation under load in a plan: bounds on tokens, lengths, deployments; and each mistake in two lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import ConfigError, InferometerError
from harness.core.schemas import LoadCase, Plan
from harness.plan import stage
from harness.planning.config import read_config
from harness.planning.generation_cases import generation_needs
from harness.planning.matrix import make_plan
from harness.planning.overrides import LoadOverrides, Overrides, apply_overrides
from harness.serving.load_case import (
    batch_sizes,
    draw_length_pairs,
    patience_ns,
    replication_digest,
    requests_at_rate,
    service_digest,
)
from harness.serving.load_verdict import parse_bounds

GIVEN: Mapping[str, Any] = {"bound": "ttft_p99<500ms,itl_p99<50ms", "rates": (2.0,), "max_batch": (4,)}
PAIRS = ((8, 4), (16, 2), (8, 4))


def planned(
    models: tuple[str, ...] = ("gpt2@seeded",),
    backends: tuple[str, ...] = ("torch-eager",),
    lengths: Mapping[str, Any] | None = None,
    pairs: tuple[tuple[int, int], ...] = (),
    **load: Any,
) -> Plan:
    given = LoadOverrides(**{**GIVEN, **load}, lengths=pairs)
    sizes = {"prompt_lengths": (16,), "new_tokens": (8,)} if lengths is None else lengths
    chosen = Overrides(models=models, backends=backends, load=given, loads_alone=True, **sizes)
    config = apply_overrides(read_config(Path("configs/generation.yaml")), chosen)
    return make_plan(config, "here.yaml", "0" * 64, merge=True, loads_alone=True)


def distribution(pairs: tuple[tuple[int, int], ...] = PAIRS, **more: Any) -> Plan:
    return planned(lengths={}, pairs=pairs, **more)


def only(plan: Plan) -> LoadCase:
    (load,) = plan.loads
    return load


def test_bounds_lengths_and_policy_are_of_the_load_case() -> None:
    load = only(planned())
    assert load.bounds_text == "ttft_p99<500ms, itl_p99<50ms"
    assert [bound.of for bound in load.bounds] == ["ttft", "itl"]
    assert (load.prompt_length, load.new_tokens, load.max_batch, load.lengths) == (16, 8, 4, ())
    assert load.load_id == "gpt2-torch-eager-cpu-fp32-server-b4-p16-n8"
    assert load.skip_reason is None
    assert load.generates_here


def test_lists_make_a_load_case_each_and_a_distribution_makes_one() -> None:
    several = planned(lengths={"prompt_lengths": (16, 32), "new_tokens": (8,)})
    assert [(load.prompt_length, load.new_tokens) for load in several.loads] == [(16, 8), (32, 8)]
    load = only(distribution())
    assert (load.prompt_length, load.new_tokens, load.lengths) == (16, 4, PAIRS)
    drawn = draw_length_pairs(load, 3_000, 1)
    # A pair that the file has twice is drawn twice as often.
    assert np.mean([pair == (8, 4) for pair in drawn]) == pytest.approx(2 / 3, abs=0.05)
    assert drawn == draw_length_pairs(load, 3_000, 1) != draw_length_pairs(load, 3_000, 2)


def test_continuous_batching_is_a_load_case_of_its_own() -> None:
    loads = planned(batching=("static", "continuous"), max_batch=(1, 4), max_delay=("0ms", "5ms")).loads
    assert [load.load_id.partition("-server")[2] for load in loads] == [
        "-p16-n8",
        "-b4-p16-n8",
        "-b4-d5ms-p16-n8",
        "-b4-continuous-p16-n8",
    ]
    static, joining = only(planned()), only(planned(batching=("continuous",)))
    assert (static.batching, joining.batching, joining.max_batch) == ("static", "continuous", 4)
    assert (batch_sizes(static), batch_sizes(joining)) == ((1, 2, 4), (4,))
    assert service_digest(static) != service_digest(joining)
    assert replication_digest(static) != replication_digest(joining)
    assert planned().plan_id == planned(batching=("static",)).plan_id != planned(batching=("continuous",)).plan_id
    # Prompts of several lengths need no padding.
    assert only(distribution(batching=("continuous",))).skip_reason is None


def test_a_decoder_that_no_request_can_join_is_skipped_or_refused() -> None:
    plan = planned(backends=("onnxruntime", "torch-eager"), batching=("static", "continuous"))
    assert {load.load_id.partition("gpt2-")[2].partition("-cpu")[0]: load.skip_reason for load in plan.loads} == {
        "onnxruntime": "onnxruntime lets no request join a running batch (torch-eager and llamacpp do)",
        "torch-eager": None,
    }
    with pytest.raises(ConfigError, match="onnxruntime lets no request join") as caught:
        planned(backends=("onnxruntime",), batching=("continuous",))
    assert caught.value.hint == "Choose torch-eager or llamacpp, or leave BATCHING out."
    with pytest.raises(ConfigError, match="t5-small has an encoder"):
        planned(models=("t5-small",), batching=("continuous",))
    chosen = Overrides(
        models=("minilm-l6",), load=LoadOverrides(bound="p99<50ms", batching=("continuous",)), loads_alone=True
    )
    with pytest.raises(ConfigError, match="only requests that generate join a batch"):
        make_plan(
            apply_overrides(read_config(Path("configs/quickstart.yaml")), chosen),
            "x",
            "0" * 64,
            merge=True,
            loads_alone=True,
        )


def test_the_export_has_prompts_of_every_length_with_its_longest_output() -> None:
    needs = generation_needs(distribution())["gpt2"]
    assert needs.lengths == {8: 4, 16: 2}
    onnx = generation_needs(planned(backends=("onnxruntime",)))["gpt2"]
    assert onnx.onnx == ("fp32",)


def test_a_decoder_that_masks_no_padding_is_skipped_for_prompts_of_several_lengths() -> None:
    plan = distribution(backends=("onnxruntime", "torch-eager"))
    assert [load.skip_reason for load in plan.loads] == [
        "onnxruntime takes prompts of one length: it masks no padding (torch-eager does)",
        None,
    ]
    assert [load.skip_reason for load in planned(backends=("onnxruntime",)).loads] == [None]
    encoder = distribution(models=("t5-small",))
    assert "t5-small has an encoder" in (only(encoder).skip_reason or "")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"rates": ()}, "no replay to predict a peak from"),
        ({"workers": (2,)}, "serves with one worker"),
        ({"batching": ("continuous",), "max_batch": (1,)}, "there is nothing to join"),
        ({"loadgen": True}, "LoadGen's rule here is on the latency"),
        ({"lengths": {"prompt_lengths": (16,), "new_tokens": (1,)}}, "an output of one token has none"),
        ({"lengths": {"prompt_lengths": (1000,), "new_tokens": (100,)}}, "need 1100 positions, and gpt2 has 1024"),
        ({"lengths": {"prompt_lengths": (16,)}}, "only prompts have one"),
        ({"models": ("minilm-l6",)}, "is an encoder"),
        ({"bound": "itl_p99<50"}, "has no unit"),
        ({"bound": "tpot_p99<50ms"}, "is not a bound"),
    ],
)
def test_impossible_loads_are_refused(given: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(InferometerError, match=problem) as caught:
        planned(**given)
    assert "\n" not in caught.value.problem
    assert caught.value.hint


def test_too_many_prompt_lengths_and_other_scenarios_are_refused() -> None:
    many = tuple((length, 4) for length in range(1, 80))
    with pytest.raises(ConfigError, match="79 different lengths of prompts"):
        distribution(many)
    chosen = Overrides(
        models=("gpt2@seeded",),
        scenarios=("offline",),
        load=LoadOverrides(),
        loads_alone=True,
        prompt_lengths=(16,),
        new_tokens=(8,),
    )
    with pytest.raises(ConfigError, match="loaded by arrivals, and offline has none"):
        make_plan(
            apply_overrides(read_config(Path("configs/generation.yaml")), chosen), "x", "0" * 64, loads_alone=True
        )


def test_a_bound_on_tokens_needs_tokens() -> None:
    chosen = Overrides(models=("minilm-l6",), load=LoadOverrides(bound="ttft_p99<500ms"), loads_alone=True)
    config = apply_overrides(read_config(Path("configs/quickstart.yaml")), chosen)
    with pytest.raises(ConfigError, match="is a bound on tokens, and this scenario generates none"):
        make_plan(config, "x", "0" * 64, merge=True, loads_alone=True)


def test_a_request_may_take_the_time_of_all_its_tokens() -> None:
    load = only(planned(lengths={"prompt_lengths": (16,), "new_tokens": (200,)}))
    assert patience_ns(load) == 10 * (500_000_000 + 200 * 50_000_000)
    assert patience_ns(only(planned(bound="ttft_p99<500ms"))) == 60_000_000_000
    assert patience_ns(only(planned(bound="p99<50ms"))) == 5_000_000_000
    # The time between two tokens is no measure of a queue: it makes no replication longer.
    assert requests_at_rate(only(planned(bound="itl_p99<5s")), 2.0) == 20


def test_the_same_bound_twice_is_one() -> None:
    assert len(parse_bounds("p99<50ms, p99<0.05s")) == 1


def test_a_file_of_pairs_and_a_file_of_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lengths.txt"
    arguments = ["--config", "configs/generation.yaml", "--load", "--models", "gpt2@seeded", "--rates", "2"]
    arguments += ["--bound", "ttft_p99<500ms", "--prompts", str(file), "--list", "--results", str(tmp_path / "r")]
    file.write_text("8 4\n16 2\n8 4\n")
    stage(arguments)
    assert "gpt2-torch-eager-cpu-fp32-server-b8-lengths-" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="exclude each other"):
        stage([*arguments, "--tokens", "8"])
    file.write_text("Once upon a time\n")
    with pytest.raises(InferometerError, match="has texts, and a load has prompts of our own"):
        stage(arguments)
