"""The stage's refusals, and the process of one level: what its parent says when it gives no answer."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from harness import profile_ops
from harness.aggregation import usage as utilisation
from harness.core import store
from harness.core.errors import CaseError, CasesFailedError, StorageError, UsageError
from harness.core.layout import Results
from harness.core.protocol import CaseJob
from harness.core.schemas import Measurement, Usage
from harness.processes import profile_launcher
from harness.processes.monitor_handle import Monitor
from harness.processes.profile_launcher import ProfileJob, profile_in_a_process, profile_with_monitor
from tests.fixtures.pipes import send_until_handled
from tests.synthetic_results import RESNET, case_of, plan_of


def asked(tmp_path: Path, timeout_s: float = 300.0) -> ProfileJob:
    job = CaseJob(
        case=case_of(RESNET, "onnxruntime", "fp32", 1),
        round=1,
        settings_id="settings",
        measurement=Measurement(timeout_s=timeout_s),
        threads=1,
        results=str(tmp_path / "results"),
        models=str(tmp_path / "models"),
    )
    return ProfileJob(level="parts", job=job, runs=1)


def python(tmp_path: Path, body: str) -> Path:
    """An interpreter that does something else."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return path


def test_a_mistake_comes_back_in_its_own_two_lines(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "parts.log"
    with pytest.raises(CaseError) as caught:
        profile_in_a_process(asked(tmp_path), log)
    assert "export.json does not exist" in caught.value.problem
    assert caught.value.hint == "Run `make export` first."
    assert log.is_file()


def test_an_answer_is_returned_and_its_log_removed(tmp_path: Path) -> None:
    log = tmp_path / "parts.log"
    answering = python(tmp_path, "import sys\nprint('noise', file=sys.stderr)\nsys.stdout.write(sys.stdin.readline())")
    given = asked(tmp_path)
    assert ProfileJob.model_validate_json(profile_in_a_process(given, log, answering)) == given
    assert not log.exists()


class Heard:
    """An observer that keeps what it learns."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.phases: list[str] = []

    def started(self, pid: int) -> None:
        self.pids.append(pid)

    def entered(self, phase: str) -> None:
        assert self.pids, "a phase of no process"
        self.phases.append(phase)


PHASES = """
import sys
job = sys.stdin.readline()
for phase in ("measure", "load", "compile", "warm-up", "measure"):
    print('{"event":"entered","phase":"' + phase + '"}', flush=True)
"""


def test_phases_reach_the_observer_and_are_no_answer(tmp_path: Path) -> None:
    heard, given = Heard(), asked(tmp_path)
    answering = python(tmp_path, f"{PHASES}sys.stdout.write(job)")
    answer = profile_in_a_process(given, tmp_path / "parts.log", answering, heard)
    assert ProfileJob.model_validate_json(answer) == given
    assert heard.phases == ["measure", "load", "compile", "warm-up", "measure"]
    assert len(heard.pids) == 1


def test_a_long_answer_comes_back_whole(tmp_path: Path) -> None:
    answering = python(tmp_path, f"{PHASES}sys.stdout.write('x' * 5_000_000)")
    assert profile_in_a_process(asked(tmp_path), tmp_path / "parts.log", answering) == b"x" * 5_000_000


def test_a_monitor_watches_the_process_and_its_record_is_whole_when_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = tmp_path / "measured"

    class Followed(Monitor):
        """The process goes on when the monitor has closed its timed phase."""

        def phase(self, name: str) -> None:
            assert self._process.stdin is not None
            send_until_handled(partial(super().phase, name), self._process.stdin)
            if name == "outputs check":
                measured.touch()

    monkeypatch.setattr(profile_launcher, "Monitor", Followed)
    body = f"""{PHASES}
import os, time
print('{{"event":"entered","phase":"outputs check"}}', flush=True)
while not os.path.exists({str(measured)!r}):
    time.sleep(0.01)
print(job)
"""
    given = asked(tmp_path)
    answer, usage = profile_with_monitor(given, tmp_path / "parts.log", python(tmp_path, body))
    assert ProfileJob.model_validate_json(answer) == given
    assert usage is not None
    assert usage == store.load(Results(given.results).profile_usage(given.job.case.case_id, 1), Usage, "")
    assert utilisation.timed_usage(usage) is not None
    assert not Results(given.results).usage_file(given.job.case.case_id, 1).exists()


def test_without_its_record_nothing_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind(Monitor):
        def watch(self, *_given: object) -> None:
            """Says nothing, as to a monitor that is gone."""

    monkeypatch.setattr(profile_launcher, "Monitor", Blind)
    _, usage = profile_with_monitor(asked(tmp_path), tmp_path / "parts.log", python(tmp_path, f"{PHASES}print(job)"))
    assert usage is None


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise ValueError('what was wrong')", "Ended with exit code 1. ValueError: what was wrong"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "Crashed with signal 11."),
    ],
)
def test_an_end_without_an_answer_is_reported_with_its_log(body: str, problem: str, tmp_path: Path) -> None:
    log = tmp_path / "parts.log"
    with pytest.raises(CaseError) as caught:
        profile_in_a_process(asked(tmp_path), log, python(tmp_path, body))
    assert caught.value.problem == problem
    assert str(log) in caught.value.hint


def test_a_full_disk_ends_the_stage_and_not_only_the_case(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="The disk is full or not writable"):
        profile_in_a_process(asked(tmp_path), tmp_path / "parts.log", python(tmp_path, "raise SystemExit(6)"))


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    hanging = python(tmp_path, "import time\ntime.sleep(600)")
    with pytest.raises(CaseError, match=r"time limit of 0\.5 s"):
        profile_in_a_process(asked(tmp_path, 0.5), tmp_path / "parts.log", hanging)


def test_a_plan_in_which_nothing_computes_and_no_runs_are_refused(tmp_path: Path) -> None:
    folders = ["--results", str(tmp_path), "--models-dir", str(tmp_path / "models")]
    store.save(Results(tmp_path).plan, plan_of((RESNET,), [case_of(RESNET, "noop", "fp32", 1)]))
    with pytest.raises(UsageError, match="none of them computes"):
        profile_ops.stage(folders)
    with pytest.raises(UsageError, match="profiles nothing"):
        profile_ops.stage([*folders, "--runs", "0"])


def test_a_case_whose_model_is_not_exported_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = case_of(RESNET, "onnxruntime", "fp32", 1)
    store.save(Results(tmp_path).plan, plan_of((RESNET,), [case]))
    with pytest.raises(CasesFailedError, match="1 case could not be profiled"):
        profile_ops.stage(["--results", str(tmp_path), "--models-dir", str(tmp_path / "models")])
    assert f"{case.case_id} is not profiled. " in capsys.readouterr().err
