"""A stage in a fork ends as it does in a subprocess of its own, and what it leaves behind is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fixtures import forked
from tests.fixtures.forked import run_forked
from tests.fixtures.stages import ROOT, Folder

pytestmark = pytest.mark.stages


def test_a_fork_prints_and_leaves_the_same_as_a_subprocess(folder: Folder) -> None:
    folder.plan({"backends": ["noop"]})
    for arguments in (("run", "--no-such-option"), ("aggregate",), ("plan", "--config", str(folder.root / "absent"))):
        true, fork = folder.subprocess(*arguments), folder(*arguments)
        assert (fork.returncode, fork.stdout, fork.stderr) == (true.returncode, true.stdout, true.stderr)


def test_a_process_that_outlives_its_stage_is_an_error(tmp_path: Path) -> None:
    lines = ("import subprocess, sys", "subprocess.Popen(['sleep', '600'], start_new_session=True)", "sys.exit(3)")
    (tmp_path / "leaver.py").write_text("\n".join(lines))
    with pytest.raises(AssertionError, match=r"leaver left processes behind: \['sleep 600 '\]"):
        run_forked("leaver", [], tmp_path, os.environ | {"PYTHONPATH": str(ROOT)}, leaving_s=0.2)


def test_variables_that_are_read_once_need_a_subprocess_and_get_one(tmp_path: Path) -> None:
    (tmp_path / "shower.py").write_text("import sys, torch; print(sys.flags.optimize, 'torch._dynamo' in sys.modules)")
    seen = [run_forked("shower", [], tmp_path, os.environ | more).stdout for more in ({}, {"PYTHONOPTIMIZE": "1"})]
    assert seen == ["0 True\n", "1 False\n"]


def test_where_an_import_starts_a_thread_stages_are_subprocesses_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("import threading", "threading.Thread(target=threading.Event().wait, daemon=True).start()")
    (tmp_path / "threading_library.py").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(forked.MEETING, f"{os.getpid()} {tmp_path}")
    monkeypatch.setattr(forked, "LIBRARIES", ("threading_library",))
    (tmp_path / "shower.py").write_text("import sys; print('threading_library' in sys.modules, sys.argv[1:])")
    with pytest.warns(UserWarning, match=r"no stage can be forked: a library started a thread .* \(2 threads\)"):
        done = run_forked("shower", ["a b"], tmp_path, os.environ)
    assert (done.returncode, done.stdout) == (0, "False ['a b']\n")
