"""Models over cards: one stage at a time on each card, and records that come together without overwriting others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import spread
from harness.core.errors import UsageError
from harness.core.layout import Results
from harness.spread import _Pool, parts, share
from tests import synthetic_results as made
from tests.synthetic_results import MINILM


def test_a_card_runs_one_stage_at_a_time_and_every_stage_runs_once(tmp_path: Path) -> None:
    busy: set[str] = set()
    seen: list[tuple[str, str]] = []
    guard = threading.Lock()

    def start(command: Sequence[str], environment: dict[str, str], log: Path) -> int:
        card = environment["CUDA_VISIBLE_DEVICES"]
        with guard:
            assert card not in busy
            busy.add(card)
            seen.append((command[-1], card))
        threading.Event().wait(0.01)
        with guard:
            busy.remove(card)
        return 1 if command[-1] == "two" else 0

    labels = ["one", "two", "three", "four", "five"]
    failures = _Pool(["0", "3"], Results(tmp_path), start).run([["run", label] for label in labels], labels)
    assert failures == 1
    assert sorted(label for label, _ in seen) == sorted(labels)
    assert {card for _, card in seen} == {"0", "3"}


def test_each_card_has_cpus_of_its_own_and_as_many() -> None:
    assert parts(range(9), 2) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert parts((3, 5, 8, 9), 2) == [(3, 5), (8, 9)]
    assert parts(range(3), 2) == [(), ()]


def test_a_stage_runs_on_the_cpus_of_its_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[int, tuple[int, ...]] = {}
    monkeypatch.setattr(spread.limits, "affinity", lambda: tuple(range(8)))
    monkeypatch.setattr(spread.os, "sched_setaffinity", lambda _pid, cpus: asked.update({threading.get_ident(): cpus}))
    started: dict[str, tuple[int, ...]] = {}

    def start(_command: Sequence[str], environment: dict[str, str], _log: Path) -> int:
        started[environment["CUDA_VISIBLE_DEVICES"]] = asked[threading.get_ident()]
        both.wait()
        return 0

    both = threading.Barrier(2, timeout=900)
    _Pool(["0", "1"], Results(tmp_path), start).run([["run"], ["run"]], ["a", "b"])
    assert started == {"0": (0, 1, 2, 3), "1": (4, 5, 6, 7)}


def test_records_of_one_model_are_shared_and_those_of_others_stay(tmp_path: Path) -> None:
    shapes = ((MINILM, 32), (made.RESNET, None))
    cases = [made.case_of(model, "onnxruntime", "fp32", 1, length) for model, length in shapes]
    plan = made.plan_of([MINILM, made.RESNET], cases)
    whole, card = Results(tmp_path / "whole"), Results(tmp_path / "card")
    for place, text in ((whole, "old"), (card, "new")):
        for case in cases:
            place.raw_case(case.case_id).mkdir(parents=True)
            place.raw_file(case.case_id, 1).write_text(text)
    share(plan, cases[0].model, card, whole)
    assert [whole.raw_file(case.case_id, 1).read_text() for case in cases] == ["new", "old"]


def test_a_plan_for_a_cpu_is_not_spread(tmp_path: Path) -> None:
    plan = made.plan_of([MINILM], [made.case_of(MINILM, "onnxruntime", "fp32", 1, 32)])
    Results(tmp_path).plan.write_text(plan.model_dump_json())
    with pytest.raises(UsageError, match="spread"):
        spread.stage(["--cards", "0,1", "--results", str(tmp_path)])


def test_a_card_that_stands_twice_would_measure_two_models_at_once(tmp_path: Path) -> None:
    plan = made.plan_of([MINILM], [made.case_of(MINILM, "onnxruntime", "fp32", 1, 32)], device="cuda")
    Results(tmp_path).plan.write_text(plan.model_dump_json())
    with pytest.raises(UsageError, match="twice"):
        spread.stage(["--cards", "0, 0", "--results", str(tmp_path)])
