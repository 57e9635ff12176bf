"""The phases that a profiled process comes to: what a monitor judges is the time in which inferences run."""

from __future__ import annotations

from typing import Any

import pytest

from harness.backends import profile_timing


class Recorder:
    """A backend that records what is called, among the phases."""

    def __init__(self, said: list[str]) -> None:
        self._said = said
        self.inputs = 1

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._said.append(name)


def test_loading_and_compiling_are_phases_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(profile_timing, "_listeners", [])
    profile_timing.listen(lambda phase: said.append(f"-> {phase}"))
    backend: Any = Recorder(said)
    profile_timing.load_and_warm_up(backend)
    timed = ["select", "infer", "synchronize", "outputs"] * profile_timing.WARM_UP_RUNS
    assert said == ["-> load", "load", "-> compile", "compile", "-> warm-up", *timed, "-> measure"]
