from __future__ import annotations

from harness.aggregation.across_rows import slower_settings
from harness.core.schemas import Case
from tests import synthetic_results as made


def case(setting: str, batch: int = 1, tuned: bool = True) -> Case:
    plain = made.case_of(made.MINILM, "onnxruntime", "fp32", batch, 32)
    return plain.model_copy(update={"case_id": f"{plain.case_id}-{setting}", "setting": setting, "tuned": tuned})


def medians(cases: list[Case], *values: float) -> dict[str, dict[int, float]]:
    return {entry.case_id: {1: value} for entry, value in zip(cases, values, strict=False)}


def test_all_but_the_fastest_of_round_one_lose() -> None:
    cases = [case("plain"), case("graph"), case("nhwc")]
    assert slower_settings(cases, medians(cases, 3.0, 1.0, 2.0)) == {cases[0].case_id, cases[2].case_id}


def test_later_rounds_do_not_change_the_choice() -> None:
    cases = [case("plain"), case("graph")]
    results = medians(cases, 3.0, 1.0)
    results[cases[1].case_id] |= {2: 9.0, 3: 9.0}
    assert slower_settings(cases, results) == {cases[0].case_id}


def test_wrong_outputs_never_win() -> None:
    cases = [case("plain"), case("graph")]
    assert slower_settings(cases, medians(cases, 3.0, 1.0), {cases[1].case_id}) == frozenset()


def test_no_setting_loses_without_a_rival_or_before_round_one() -> None:
    cases = [case("plain"), case("graph"), case("plain", batch=8)]
    assert slower_settings(cases, {}) == frozenset()
    assert slower_settings(cases, medians([cases[0]], 1.0)) == frozenset()
    assert slower_settings(cases, {**medians([cases[0]], 1.0), cases[2].case_id: {1: 9.0}}) == frozenset()


def test_settings_that_were_asked_for_by_name_all_stay() -> None:
    cases = [case("plain", tuned=False), case("graph", tuned=False)]
    assert slower_settings(cases, medians(cases, 3.0, 1.0)) == frozenset()
