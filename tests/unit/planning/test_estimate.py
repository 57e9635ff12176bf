"""How long a plan says that it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core import store
from harness.core.schemas import ExportRecord, GenerationExport, GivenInputs, Measurement, Plan, Summary
from harness.planning.config import parse_config
from harness.planning.matrix import make_plan
from harness.planning.run_time import (
    COMPILE_S,
    FASTEST,
    SLOW_FLOPS,
    SLOWEST,
    STEP_TOKENS,
    engines_in_words,
    estimate_s,
    expected_sample_times,
    further_in_words,
    sample_times,
    time_in_words,
    tuning_in_words,
    turns_s,
)
from harness.zoo import MODELS
from tests.synthetic_generation import EXPORT as DECODER
from tests.synthetic_results import EFFICIENTNET, RESNET, case_of, export_record, matrix, plan_of

PUBLISHED = Path(__file__).resolve().parents[3] / "results" / "published"
CPU_TABLE, QUICKSTART, CPU_GENERATION = (
    PUBLISHED / "epyc-2-vcpu" / name for name in ("2026-11-30-cpu-table", "2026-11-28", "2026-11-30-generation")
)


def exported(model: str, length: int | None, sample_s: float | None) -> ExportRecord:
    """An export that recorded the time of a sample of the reference."""
    record = export_record(RESNET)
    inputs = record.input_sets[0].model_copy(update={"sequence_length": length, "sample_s": sample_s})
    return record.model_copy(update={"model": model, "input_sets": (inputs,)})


def plan(**measurement: object) -> Plan:
    result = plan_of((RESNET,), matrix((RESNET,)))
    return result.model_copy(update={"measurement": result.measurement.model_copy(update=measurement)})


def test_further_rounds_lengthen_the_worst_case_alone() -> None:
    (low, high), (low_more, high_more) = estimate_s(plan()), estimate_s(plan(max_rounds=6))
    assert low_more == low
    assert high < high_more < 2.1 * high


def test_the_budget_bounds_further_rounds_and_never_the_planned_ones() -> None:
    _, planned = estimate_s(plan())
    _, everything = estimate_s(plan(max_rounds=20))
    assert estimate_s(plan(max_rounds=20, budget_s=1.0))[1] == planned
    assert planned < estimate_s(plan(max_rounds=20, budget_s=planned + 60))[1] < everything
    assert estimate_s(plan(max_rounds=20, budget_s=1e9))[1] == everything


@pytest.mark.parametrize(
    ("folder", "measured_s"),
    [
        ("epyc-2-vcpu/2026-11-30-cpu-table", 2017),
        ("h200/2026-11-30-efficientnet-lite0", 554),
        ("h200/2026-12-01-cuda-engines-during-exports", 860),
        ("h200/2026-12-01-efficientnet-lite0", 429),  # 18 of its 20 processes
    ],
)
def test_these_published_runs_took_no_longer_than_their_plans_say(folder: str, measured_s: float) -> None:
    """From the start of the first process to that of the last one, without pauses."""
    low, high = estimate_s(store.load(PUBLISHED / folder / "plan.json", Plan, ""))
    assert low < measured_s < high < 4 * measured_s


def test_with_the_times_of_its_models_a_published_run_took_no_longer_either() -> None:
    """The sample times are those that its rows show for eager PyTorch."""
    summary = store.load(CPU_TABLE / "summary.json", Summary, "")
    times: dict[tuple[str, int | None], float] = {}
    for row in summary.rows:
        if row.backend == "torch-eager" and row.precision == "fp32" and row.latency_ns:
            key, seconds = (row.model, row.sequence_length), row.latency_ns.median / row.batch_size / 1e9
            times[key] = min(seconds, times.get(key, seconds))
    exports = [exported(model, length, seconds) for (model, length), seconds in times.items()]
    low, high = estimate_s(store.load(CPU_TABLE / "plan.json", Plan, ""), sample_times(exports))
    assert low < 2017 < high < 4 * 2017


def test_before_its_exports_a_published_run_of_built_in_models_has_room_for_a_slower_machine() -> None:
    made = store.load(CPU_TABLE / "plan.json", Plan, "")
    low, high = estimate_s(made, expected_sample_times(made, ()))
    assert low < 2017
    assert 3 * 2017 < high < 7 * 2017


def test_the_slow_machine_is_three_times_as_slow_as_every_published_row_in_fp32() -> None:
    made = store.load(CPU_TABLE / "plan.json", Plan, "")
    limits = expected_sample_times(made, ())
    rows = [
        row
        for folder in (CPU_TABLE, QUICKSTART)
        for row in store.load(folder / "summary.json", Summary, "").rows
        if row.precision == "fp32" and row.backend != "noop" and row.latency_ns
    ]
    assert len(rows) > 50
    for row in rows:
        assert row.latency_ns is not None
        limit = row.batch_size * limits[row.model, row.sequence_length][1]
        assert limit > 2.9 * row.latency_ns.median / 1e9


@pytest.mark.parametrize(
    ("folder", "measured_s"),
    [
        ("epyc-2-vcpu/2026-11-30-generation", 892),
        ("h200/2026-11-30-generation", 844),
        ("h200/2026-11-30-generation-onnxruntime", 1187),
    ],
)
def test_published_runs_of_generation_took_no_longer_than_their_plans_say(folder: str, measured_s: float) -> None:
    """From the start of the first process to that of the last one."""
    made = store.load(PUBLISHED / folder / "plan.json", Plan, "")
    low, high = estimate_s(made, expected_sample_times(made, ()))
    assert low < measured_s < high < 5 * measured_s


def generating(model: str, backend: str = "torch-eager", **block: object) -> Plan:
    options = {"batch_sizes": [1], "prompt_lengths": [128], "new_tokens": [32], **block}
    config = {"models": [model], "generation": [{"backends": [backend], **options}], "measurement": {"rounds": 1}}
    return make_plan(parse_config(config, "x.yaml"), "x.yaml", "")


def test_longer_answers_of_a_slow_model_take_longer() -> None:
    short, long = (generating("llama-1b", new_tokens=[tokens]) for tokens in (8, 16))
    assert estimate_s(short, expected_sample_times(short, ()))[1] < estimate_s(long, expected_sample_times(long, ()))[1]


def exported_decoder(model: str, prompt_s: float | None, step_s: float | None) -> GenerationExport:
    """An export that recorded the times of the reference, for two prompts of 128 tokens."""
    times = {"prompt_length": 128, "prompt_s": prompt_s, "step_s": step_s}
    return DECODER.model_copy(update={"model": model, "sets": (DECODER.sets[0].model_copy(update=times),)})


def test_with_the_times_of_its_references_a_published_run_of_generation_took_no_longer_either() -> None:
    """They are those that its rows show for eager PyTorch."""
    made = store.load(CPU_GENERATION / "plan.json", Plan, "")
    exports = [
        exported_decoder(row.model, row.ttft_ns.median / 1e9, row.itl_ns.median / 1e9)
        for row in store.load(CPU_GENERATION / "summary.json", Summary, "").generations
        if row.backend == "torch-eager" and row.ttft_ns and row.itl_ns
    ]
    _, high_before = estimate_s(made, expected_sample_times(made, ()))
    low, high = estimate_s(made, expected_sample_times(made, exports))
    assert low < 892 < high < high_before


def test_the_export_of_a_decoder_shows_the_time_of_its_passes_and_steps() -> None:
    made = generating("gpt2", batch_sizes=[2])

    def most_s(prompt_s: float, step_s: float) -> float:
        return estimate_s(made, expected_sample_times(made, [exported_decoder("gpt2", prompt_s, step_s)]))[1]

    requests = (most_s(0.2, 0.01) - most_s(0.1, 0.01)) / (2 * SLOWEST * 0.1)
    assert requests > 5
    assert most_s(0.1, 0.02) - most_s(0.1, 0.01) == pytest.approx(requests * 31 * SLOWEST * 0.01)


def test_a_step_of_a_smaller_batch_than_that_of_the_reference_may_be_as_much_shorter() -> None:
    times = sample_times([exported_decoder("gpt2", None, 0.02)])
    assert times == {("gpt2", 128, "step"): pytest.approx((FASTEST * 0.01, SLOWEST * 0.02))}


def test_a_users_model_that_generates_is_known_after_its_export(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}')
    own = generating(f"hf:{tmp_path}")
    known = expected_sample_times(own, [exported_decoder(own.generations[0].model, 0.1, 0.01)])
    assert time_in_words(own, known).endswith(" to measure, besides export")


def test_the_compilation_of_a_model_counts_once() -> None:
    (_, eager), (_, compiled) = (
        turns_s([(1, case)], [case], Measurement(rounds=1), SLOW)
        for case in (case_of(RESNET, name, "fp32", 4) for name in ("torch-eager", "torch-compile"))
    )
    assert compiled == pytest.approx(eager + COMPILE_S)


def test_the_compilation_of_a_decoder_counts() -> None:
    eager, compiled = (generating("gpt2", backend) for backend in ("torch-eager", "torch-compile"))
    assert estimate_s(compiled)[1] == pytest.approx(estimate_s(eager)[1] + COMPILE_S)


def test_the_time_of_a_users_model_that_generates_names_the_passes_that_it_assumes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}')
    own = generating(f"hf:{tmp_path}")
    assert " with passes of up to 50 ms, up to " in time_in_words(own, expected_sample_times(own, ()))
    built_in = generating("gpt2")
    assert time_in_words(built_in, expected_sample_times(built_in, ())).endswith(" to measure, besides export")


def test_a_decoder_of_known_duration_takes_its_time() -> None:
    low, high = estimate_s(generating("spin:10ms", "spin", new_tokens=[100]))
    assert 6 * 1.0 < low < high < 60


def slow_plan(**measurement: object) -> Plan:
    return plan_of((RESNET,), [case_of(RESNET, name, "fp32", 4) for name in ("torch-eager", "onnxruntime")]).model_copy(
        update={
            "measurement": Measurement.model_validate({"rounds": 1, "warmup_max_s": 1, "max_s": 1.5, **measurement})
        }
    )


SLOW = {("resnet50", None): (0.025, 0.375)}
"""A pass of four samples of the reference takes a second."""


def test_the_checks_of_a_slow_model_count() -> None:
    """Batches of 4 are 16 batches of 64 samples: 16 comparisons, 17 passes of the repeat check, 4 with new samples and
    the first one, before and after a warm-up and a timed part that end after a pass."""
    (low, high), (_, without) = (
        estimate_s(slow_plan(), SLOW),
        estimate_s(slow_plan(), {("resnet50", None): (0.0, 1e-9)}),
    )
    assert without + 2 * 38 * 1.0 < high < without + 2 * 42 * 2.0
    assert low > 2 * 38 * 0.1
    later = [
        turns_s([(number, case)], (), slow_plan().measurement, SLOW)[1]
        for number in (1, 2)
        for case in slow_plan().cases[:1]
    ]
    assert later[1] < later[0]


def test_a_process_ends_at_its_time_limit() -> None:
    assert estimate_s(slow_plan(timeout_s=20.0), SLOW)[1] == 2 * 20


def test_a_model_without_an_export_has_the_passes_that_its_time_assumes() -> None:
    words = time_in_words(slow_plan())
    assert words.endswith(" to measure with passes of up to 50 ms, up to 2 min with passes of 1 s; besides export")
    assert time_in_words(slow_plan(), SLOW).endswith(" to measure, besides export")


def test_of_several_models_those_without_an_export_are_named() -> None:
    cases = [case_of(model, "torch-eager", "fp32", 4) for model in (RESNET, EFFICIENTNET)]
    both = plan_of((RESNET, EFFICIENTNET), cases)
    assert " with passes of efficientnet-lite0 of up to 50 ms, " in time_in_words(both, SLOW)


def test_the_time_of_a_sample_comes_from_the_fastest_call_of_the_reference() -> None:
    assert sample_times([exported(RESNET.name, None, None)]) == {}
    assert sample_times([exported(RESNET.name, None, 0.2)]) == {(RESNET.name, None): pytest.approx((0.02, 0.3))}


def test_a_pass_in_int8_may_take_half_of_the_shortest_one() -> None:
    slow = {(EFFICIENTNET.name, None): (0.025, 0.375)}
    (low, _), (low_int8, _) = (
        estimate_s(plan_of((EFFICIENTNET,), [case_of(EFFICIENTNET, "onnxruntime", precision, 4)]), slow)
        for precision in ("fp32", "int8")
    )
    assert low_int8 < low


def test_before_its_export_the_flops_of_a_built_in_model_limit_its_passes() -> None:
    made = slow_plan()
    times = expected_sample_times(made, ())
    assert times == {("resnet50", None): (0.0, MODELS["resnet50"].flops / SLOW_FLOPS)}  # type: ignore[operator]
    assert time_in_words(made, times).endswith(" to measure, besides export")
    assert expected_sample_times(made, [exported("resnet50", None, 0.2)]) == sample_times(
        [exported("resnet50", None, 0.2)]
    )


def test_the_flops_of_a_text_grow_with_its_length() -> None:
    block = {"backends": ["torch-eager"], "batch_sizes": [1], "sequence_lengths": [1, STEP_TOKENS, 128, 512]}
    config = {"models": ["minilm-l6"], "matrix": [block]}
    times = expected_sample_times(make_plan(parse_config(config, "x.yaml"), "x.yaml", ""), ())
    assert times["minilm-l6", 512][1] == 4 * times["minilm-l6", 128][1]
    assert times["minilm-l6", 1] == times["minilm-l6", STEP_TOKENS]


def test_a_model_that_gets_the_inputs_of_a_user_is_of_unknown_size() -> None:
    made = slow_plan()
    given = (GivenInputs(path="large.npz", sha256=""),)
    own = made.model_copy(update={"models": tuple(model.model_copy(update={"inputs": given}) for model in made.models)})
    assert expected_sample_times(own, ()) == {}


@pytest.mark.parametrize(
    ("measurement", "words"),
    [
        ({}, None),
        ({"max_rounds": 3}, None),
        ({"max_rounds": 9}, "up to 9 rounds while the interval is wider than ±2%"),
        (
            {"max_rounds": 9, "target_interval": 0.005, "budget_s": 600.0},
            "up to 9 rounds while the interval is wider than ±0.5% and 10 min are not over",
        ),
    ],
)
def test_further_rounds_in_words(measurement: dict[str, object], words: str | None) -> None:
    assert further_in_words(plan(**measurement).measurement) == words


def tuned(**block: object) -> Plan:
    block = {"backends": ["onnxruntime"], "precisions": ["fp16"], "batch_sizes": [1, 8], **block}
    config = {"device": "cuda", "models": [{"name": "bert-base", "weights": "seeded"}], "matrix": [block]}
    return make_plan(parse_config(config, "x.yaml"), "x.yaml", "")


def test_settings_that_are_tried_count_once_and_the_fastest_in_every_round() -> None:
    """BERT has two settings to try: 2 + 1 + 1 processes a row in three rounds, not 3 + 3."""
    (low, _), (alone, _) = estimate_s(tuned(tune=True)), estimate_s(tuned())
    assert low == pytest.approx(4 / 3 * alone)


def test_a_plan_reports_the_time_of_tuning_beforehand() -> None:
    words = tuning_in_words(tuned(tune=True))
    assert words is not None
    assert words.startswith("4 settings of 2 rows are tried in round 1, ")
    assert " of it; the fastest of a row gets the other rounds" in words
    assert tuning_in_words(tuned()) is None


def test_a_plan_says_how_many_engines_it_needs() -> None:
    assert engines_in_words(tuned()) is None
    words = engines_in_words(tuned(backends=["tensorrt"], settings=["static", "static+graph", "dynamic+graph"]))
    assert words is not None
    assert words.startswith("3 to build, unless they are here: 78 s to 5 min")
