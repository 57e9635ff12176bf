"""Units of a plan and their attempts: lost, refused and complete ones, and archives that are not trusted."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from harness import compare
from harness.core import archive, store
from harness.core.errors import MalformedFileError, UsageError
from harness.core.layout import Models, Results
from harness.core.schemas import Attempt, AttemptReport, Failed, Fleet, Measured, Plan, UnitFile, UnitRequest
from harness.core.seal import unsealed
from harness.dispatch import MOST_ATTEMPTS, dispatch, stage, write_report
from harness.planning.exports import read_exports
from harness.planning.work_units import work_units
from harness.reporting.tables.machines_tables import fleet_document
from harness.runners import execution
from harness.runners.execution import execute, installed_version, package_digest
from harness.runners.runner import EndedAttempt, Requirements, Runner
from tests import synthetic_results as made
from tests.synthetic_results import MINILM

CASES = [made.case_of(MINILM, "noop", "fp32", batch, 32) for batch in (1, 2, 4)]
AT = "2026-11-30T00:00:00+00:00"


def packed(request: UnitRequest, exit_code: int = 0, rounds: int = 2, machine: str = "m1", **files: bytes) -> bytes:
    """The archive of a worker: the records of the unit's case, and further files."""
    case = next(case for case in CASES if work_units([case])[0].unit_id == request.unit_id)
    report = AttemptReport(
        unit_id=request.unit_id,
        attempt=request.attempt,
        machine=machine,
        hostname="host",
        started_at=AT,
        ended_at=AT,
        exit_code=exit_code,
        output="Error: no room.\nHint:  Make some.\n" if exit_code else "",
    )
    records = {
        f"raw/{case.case_id}/{number}.json": store.encoded_raw(made.measured(case, MINILM, number))
        for number in range(1, rounds + 1)
    }
    return archive.pack({"attempt.json": store.encoded(report), **records, **files}, request.unit_id)


class Scripted(Runner):
    """A runner whose answers are given: by unit, in order of its attempts."""

    name = "scripted"

    def __init__(self, answers: Mapping[str, list[object]]) -> None:
        self.answers, self.queue = answers, deque[UnitRequest]()
        self.seen: list[tuple[str, int]] = []

    def submit(self, request: UnitRequest, files: Mapping[str, Path], requirements: Requirements) -> None:
        assert {file.sha256 for file in request.files} == set(files)
        assert requirements.gpus == 0
        self.seen.append((request.unit_id, request.attempt))
        self.queue.append(request)

    def next_ended(self) -> EndedAttempt:
        request = self.queue.popleft()
        answer = self.answers.get(request.unit_id, [packed])[request.attempt - 1]
        if isinstance(answer, str):
            return EndedAttempt(request.unit_id, request.attempt, None, answer)
        return EndedAttempt(request.unit_id, request.attempt, answer(request), None)  # type: ignore[operator]

    def close(self) -> None:
        self.queue.clear()


UNITS = [work_units([case])[0].unit_id for case in CASES]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    result = made.plan_of([MINILM], CASES, rounds=2)
    store.save(Results(tmp_path).plan, result)
    store.save(Models(tmp_path / "models").folder(MINILM.name).record, made.export_record(MINILM))
    return result


def run(plan: Plan, folder: Path, answers: Mapping[str, list[object]]) -> tuple[Fleet, Scripted]:
    runner = Scripted(answers)
    results, models = Results(folder), Models(folder / "models")
    exports = read_exports_without_files(plan, results, models)
    return dispatch(plan, exports, results, models, lambda: runner), runner


def read_exports_without_files(plan: Plan, results: Results, models: Models) -> object:
    """noop needs no file of the export, and the synthetic export has none."""
    bare = plan.model_copy(
        update={"models": tuple(model.model_copy(update={"exported": False}) for model in plan.models)}
    )
    return read_exports(bare, results, models)


def test_cases_that_are_compared_are_one_unit() -> None:
    rival = made.case_of(MINILM, "openvino", "fp32", 1, 32)
    skipped = made.case_of(MINILM, "openvino", "fp32", 2, 32).model_copy(update={"skip_reason": "no"})
    units = work_units([*CASES, rival, skipped])
    assert [[case.backend for case in unit.cases] for unit in units] == [["noop", "openvino"], ["noop"], ["noop"]]
    assert len({unit.unit_id for unit in units}) == 3


def test_a_lost_worker_is_an_attempt_and_its_unit_is_tried_once_more(plan: Plan, tmp_path: Path) -> None:
    fleet, runner = run(plan, tmp_path, {UNITS[1]: ["its node died", packed]})
    assert runner.seen == [(UNITS[0], 1), (UNITS[1], 1), (UNITS[2], 1), (UNITS[1], 2)]
    assert [[attempt.outcome for attempt in unit.attempts] for unit in fleet.units] == [
        ["complete"],
        ["lost", "complete"],
        ["complete"],
    ]
    first = store.load(Results(tmp_path).attempt(UNITS[1], 1), Attempt, "")
    assert (first.reason, first.machine) == ("its node died", None)
    text = fleet_document(fleet)
    assert "3 complete" in text
    assert "its node died" in text
    # The same command has nothing left to do.
    again, idle = run(plan, tmp_path, {})
    assert idle.seen == []
    assert again.units == fleet.units


def test_a_unit_that_is_lost_each_time_says_why(plan: Plan, tmp_path: Path) -> None:
    fleet, _ = run(plan, tmp_path, {UNITS[0]: ["gone"] * MOST_ATTEMPTS})
    assert fleet.units[0].machine is None
    assert len(fleet.units[0].attempts) == MOST_ATTEMPTS
    assert "gone" in fleet_document(fleet)
    later, runner = run(plan, tmp_path, {UNITS[0]: [packed] * 3})
    assert runner.seen == [(UNITS[0], MOST_ATTEMPTS + 1)]
    assert later.units[0].machine == "m1"


def test_a_run_that_could_not_begin_is_refused_and_not_tried_again(plan: Plan, tmp_path: Path) -> None:
    fleet, runner = run(plan, tmp_path, {UNITS[0]: [lambda request: packed(request, exit_code=6)]})
    (attempt,) = fleet.units[0].attempts
    assert (attempt.outcome, attempt.machine, attempt.reason) == ("refused", "m1", "no room.")
    assert runner.seen.count((UNITS[0], 1)) == 1
    assert not Results(tmp_path).machine("m1").raw_case(CASES[0].case_id).exists()


def test_only_records_of_its_own_cases_are_kept(plan: Plan, tmp_path: Path) -> None:
    foreign = {f"raw/{CASES[1].case_id}/9.json": b"x", "environments/a.json": b"{}", "summary.json": b"x"}
    fleet, _ = run(plan, tmp_path, {UNITS[0]: [lambda request: packed(request, **foreign)]})
    assert fleet.units[0].machine == "m1"
    folder = Results(tmp_path).machine("m1")
    assert not folder.summary.exists()
    assert not folder.raw_file(CASES[1].case_id, 9).exists()
    assert folder.environment("a").exists()


@pytest.mark.parametrize(
    "record", [made.failed(CASES[0], 2), made.measured(CASES[0], MINILM, 2, artifacts={"model.onnx": "0" * 64})]
)
def test_a_failed_record_and_one_of_another_file_are_measured_again(
    plan: Plan, tmp_path: Path, record: Measured | Failed
) -> None:
    run(plan, tmp_path, {})
    store.save_raw(Results(tmp_path).machine("m1").raw_file(CASES[0].case_id, 2), record)
    _, runner = run(plan, tmp_path, {UNITS[0]: [packed] * 2})
    assert runner.seen == [(UNITS[0], 2)]


@pytest.mark.parametrize(
    "answer", [lambda _request: b"no archive", lambda request: packed(request.model_copy(update={"attempt": 7}))]
)
def test_an_archive_that_is_not_its_own_is_refused(plan: Plan, tmp_path: Path, answer: object) -> None:
    fleet, _ = run(plan, tmp_path, {UNITS[0]: [answer, packed]})
    first, second = fleet.units[0].attempts
    assert first.outcome == "lost"
    assert "its archive is refused" in str(first.reason)
    assert second.outcome == "complete"


def test_the_report_of_a_fleet_has_its_machines_side_by_side(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {unit: [partial(packed, machine=name)] for unit, name in zip(UNITS, ("m1", "m2", "m2"), strict=True)}
    fleet, _ = run(plan, tmp_path, answers)
    compared = [made.case_of(MINILM, name, "fp32", 1, 32) for name in ("torch-eager", "openvino")]

    def stages(name: str, *words: str) -> None:
        """aggregate finds one case and its baseline on each machine; compare is itself."""
        folder = Results(Path(words[words.index("--results") + 1]))
        if name == "aggregate":
            summary = made.Synthetic(models=(MINILM,), cases=compared).summary()
            here = made.environment(cpu=f"CPU of {folder.root.name}")
            store.save(folder.summary, summary.model_copy(update={"environments": {made.ENVIRONMENT_ID: here}}))
        elif name == "compare":
            compare.stage(words)

    monkeypatch.setattr("harness.dispatch.run_stage", stages)
    results = Results(tmp_path)
    write_report(plan, fleet, results, Models(tmp_path / "models"))
    text = results.fleet_report.read_text()
    assert "## Machines side by side" in text
    assert "(charts/machines.png)" in text
    assert "CPU of m1" in text
    assert "CPU of m2" in text
    assert text.count("minilm-l6 openvino fp32 b1 s32") == 1
    assert results.machines_chart.is_file()


def request(**changes: object) -> str:
    fields = {"unit_id": "u", "attempt": 1, "inferometer": installed_version(), "files": ()}
    return UnitRequest.model_validate({**fields, **changes}).model_dump_json()


def test_a_worker_refuses_another_version_and_a_changed_file() -> None:
    same_version = f"{installed_version().partition(' of ')[0]} of code 0123456789ab"
    with pytest.raises(UsageError, match=f"the plan is of {same_version}"):
        execute(request(inferometer=same_version), lambda _digest: b"")
    file = UnitFile(path="results/plan.json", sha256="0" * 64)
    with pytest.raises(MalformedFileError, match="differs from the file that the request names"):
        execute(request(files=(file,)), lambda _digest: b"changed")


def test_the_report_of_a_worker_is_sealed(tmp_path: Path) -> None:
    packed_file = tmp_path / "unit.tar.xz"
    packed_file.write_bytes(execute(request(), lambda _digest: b""))
    report = unsealed(archive.unpack(packed_file)[execution.REPORT])
    assert report.seal is not None
    assert not report.broken


def test_a_worker_unpickles_nothing(tmp_path: Path) -> None:
    file = UnitFile(path="models/net/0123/module.pkl", sha256="0" * 64)
    with pytest.raises(UsageError, match="unpickles nothing"):
        execute(request(files=(file,)), lambda _digest: b"")
    plan = made.plan_of([MINILM], [], rounds=2)
    pickled = plan.models[0].model_copy(update={"name": "pickle:net-0123"})
    store.save(Results(tmp_path).plan, plan.model_copy(update={"models": (pickled,)}))
    with pytest.raises(UsageError, match="unpickles nothing"):
        stage(["--results", str(tmp_path)])


def test_the_code_of_both_sides_is_compared_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "harness"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(execution.harness, "__file__", str(package / "__init__.py"))
    digests = []
    for name, text in (("__init__.py", ""), ("run.py", "a"), ("run.py", "b"), ("notes.txt", "c")):
        (package / name).write_text(text)
        package_digest.cache_clear()
        digests.append(package_digest())
    monkeypatch.undo()
    package_digest.cache_clear()
    assert len(set(digests[:3])) == 3
    assert digests[2] == digests[3]
    assert installed_version().endswith(f" of code {package_digest()}")


def test_a_file_of_a_request_stays_below_the_units_folder() -> None:
    with pytest.raises(ValueError, match="no path below a folder"):
        UnitFile(path="../x", sha256="0" * 64)


def test_an_address_of_the_local_runner_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the runner is local") as caught:
        stage(["--address", "10.0.0.1:6379", "--results", str(tmp_path)])
    assert "RUNNER=ray ADDRESS=10.0.0.1:6379" in caught.value.hint
