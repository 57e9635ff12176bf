"""Layers by name, and names that match nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.api.profiles import some_layers
from harness.api.runs import CaseProfile
from harness.core.errors import UnavailableError, UsageError
from tests.synthetic_results import Synthetic
from tests.unit.api.test_results import PARTS, model_of, one_row

MODEL = model_of(one_row(Synthetic().summary()))
FOLDER = Path("results")


def names_of(names: list[str] | str | None, depth: int | None = None) -> list[str]:
    return [row.name for row in some_layers(FOLDER, CaseProfile(MODEL, PARTS, None), names, depth).layers]


def test_names_choose_groups_paths_and_classes() -> None:
    assert names_of(["attention"]) == ["body"]
    assert names_of("head") == ["head"]
    assert names_of(["Linear"]) == names_of(None) == ["(model)", "body", "head"]


def test_a_depth_adds_deeper_modules() -> None:
    (layer,) = some_layers(FOLDER, CaseProfile(MODEL, PARTS, None), None, 0).layers
    assert (layer.name, layer.self_ns) == ("(model)", 1000)


def test_nothing_is_above_the_model() -> None:
    with pytest.raises(UsageError, match="depth=-1 is above the model"):
        names_of(None, -1)


def test_a_name_that_matches_nothing_lists_near_ones() -> None:
    with pytest.raises(UsageError) as raised:
        names_of(["attention", "haed"])
    assert raised.value.problem == "No layer matches `haed`."
    assert "`head`" in raised.value.hint


def test_a_backend_without_layers_is_an_error() -> None:
    with pytest.raises(UnavailableError, match="has no per-layer profile"):
        some_layers(FOLDER, CaseProfile(MODEL, None, None), None, None)
