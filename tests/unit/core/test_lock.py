"""One run at a time in a results folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.errors import BusyError, StorageError
from harness.core.lock import exclusive

HOLD = (
    "import sys; from pathlib import Path; from harness.core.lock import exclusive\n"
    "with exclusive(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()\n"
)


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_holder_gets_the_name_of_the_first_and_a_killed_one_releases_it(tmp_path: Path) -> None:
    path = tmp_path / "results" / ".lock"
    with holder(path) as process:
        with pytest.raises(BusyError, match=rf"process {process.pid}\b.*{path.parent}") as caught, exclusive(path):
            pass
        assert caught.value.exit_code == 7
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with exclusive(path):
            assert path.read_text() == str(os.getpid())


def test_a_refusal_does_not_take_the_lock_and_an_error_gives_it_back(tmp_path: Path) -> None:
    path = tmp_path / ".lock"

    def hold_and_fail() -> None:
        with exclusive(path):
            for _ in range(2):
                with pytest.raises(BusyError), exclusive(path):
                    pass
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hold_and_fail()
    with exclusive(path):
        pass


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError), exclusive(tmp_path / "file" / ".lock"):
        pass
