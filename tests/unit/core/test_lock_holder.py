"""Does the process live that a file names?"""

from __future__ import annotations

import os
import subprocess
import sys

from harness.core import lock
from harness.core.timestamps import utc_now


def test_this_process_lives_here() -> None:
    assert lock.place()
    assert lock.is_alive(os.getpid(), lock.place(), utc_now()) is True


def test_a_process_that_has_ended_does_not() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert lock.is_alive(process.pid, lock.place(), utc_now()) is False


def test_a_process_that_took_over_the_number_later_is_another_one() -> None:
    assert lock.is_alive(os.getpid(), lock.place(), "2020-01-01T00:00:00+00:00") is False


def test_a_number_of_another_place_says_nothing() -> None:
    assert lock.is_alive(os.getpid(), "another boot pid:[1]", utc_now()) is None
    assert lock.is_alive(os.getpid(), "", utc_now()) is None
