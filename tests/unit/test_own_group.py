"""No test can send a signal to all tests."""

from __future__ import annotations

import os

import pytest


@pytest.mark.parametrize("process", [0, -1])
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_a_signal_to_the_own_group_or_to_every_process_is_refused(send: object, process: int) -> None:
    assert callable(send)
    with pytest.raises(RuntimeError, match="would reach all tests"):
        send(process, 0)  # 0: no signal, should it be sent
