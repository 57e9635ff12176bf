"""Shares and durations as people write them."""

from __future__ import annotations

import pytest

from harness.core.errors import UsageError
from harness.planning import config


@pytest.mark.parametrize(("text", "share"), [("0.5%", 0.005), ("5 %", 0.05), ("0.005", 0.005), (".02", 0.02)])
def test_shares(text: str, share: float) -> None:
    assert config.parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "0", "0%", "1", "100%", "-1%", "5", "half", "0.5 percent", "nan", "1e-3"])
def test_values_that_are_no_share(text: str) -> None:
    with pytest.raises(UsageError, match="not a share") as caught:
        config.parse_share(text)
    assert "0.5%" in caught.value.hint


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5_400), ("10 m", 600)])
def test_durations(text: str, seconds: float) -> None:
    assert config.parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "0s", "m", "-5m", "10min", "1h30m"])
def test_values_that_are_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="not a time") as caught:
        config.parse_duration_s(text)
    assert "10m" in caught.value.hint
