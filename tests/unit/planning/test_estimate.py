"""How long a plan says that it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core import store
from harness.core.schemas import Plan
from harness.planning.config import parse_config
from harness.planning.matrix import make_plan
from harness.planning.schedule import engines_in_words, estimate_s, further_in_words, tuning_in_words
from tests.synthetic_results import RESNET, matrix, plan_of

PUBLISHED = Path(__file__).resolve().parents[3] / "results" / "published"


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
