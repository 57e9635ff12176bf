"""aggregate: every planned case gets a row, and nothing stale, foreign or damaged gets into one."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import aggregate
from harness.aggregation import join
from harness.core import store
from harness.core.errors import CasesFailedError, MalformedFileError, MissingInputError
from harness.core.host.environment import environment_id
from harness.core.layout import Models, Results
from harness.core.schemas import (
    SOURCES,
    Case,
    Check,
    Energy,
    ExportFailure,
    Failed,
    Measured,
    Plan,
    Row,
    Summary,
    Usage,
)
from tests.synthetic_results import (
    ENVIRONMENT_ID,
    MINILM,
    RESNET,
    SETTINGS_ID,
    Synthetic,
    case_of,
    cpu_use,
    environment,
    export_record,
    failed,
    matrix,
    measured,
    named,
    sha,
    stretched,
    usage_of,
    usage_sample,
)

EAGER = case_of(RESNET, "torch-eager", "fp32", 1)
ORT = case_of(RESNET, "onnxruntime", "fp32", 1)
CASES = [EAGER, ORT]


class Folder:
    """A results and a models folder on disk, and what aggregate makes of them."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.results, self.models = Results(root / "results"), Models(root / "models")
        self.synthetic = Synthetic(**{"models": (RESNET,), "cases": CASES, "samples": 120, **changes})
        self.synthetic.write(self.results.root, self.models.root)

    def put(self, case: Case, round_number: int, **changes: Any) -> None:
        """Replace one raw record."""
        record = measured(case, RESNET, round_number, 120, **changes)
        store.save_raw(self.results.raw_file(case.case_id, round_number), record)
        usage = stretched(usage_of(case.case_id, round_number), record)
        store.save(self.results.usage_file(case.case_id, round_number), usage)

    def summary(self) -> Summary:
        aggregate.stage(["--results", str(self.results.root), "--models-dir", str(self.models.root)])
        return store.load(self.results.summary, Summary, "make aggregate")

    def row(self, case: Case = ORT) -> Row:
        return next(row for row in self.summary().rows if row.case_id == case.case_id)


def flags(row: Row) -> dict[str, str]:
    return {flag.name: flag.detail for flag in row.flags}


def test_an_undisturbed_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = Folder(tmp_path).summary()
    assert [(row.case_id, row.status, row.grade) for row in summary.rows] == [
        (case.case_id, "measured", "A") for case in CASES
    ]
    assert summary.notes == ()
    assert set(summary.environments) == {ENVIRONMENT_ID}
    assert summary.measured_from is not None
    assert "2 rows, 2 measured." in capsys.readouterr().out


def test_one_row_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Folder(tmp_path, cases=[EAGER]).summary()
    assert ": 1 row, 1 measured." in capsys.readouterr().out


def test_figures_of_a_row_come_from_its_records(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    row = folder.row()
    records = [store.load_raw(folder.results.raw_file(ORT.case_id, number)) for number in (1, 2, 3)]
    assert all(isinstance(record, Measured) for record in records)
    assert row.latency_ns is not None
    assert row.latency_ns.n == 360
    assert row.latency_ns.max == max(max(record.latency_ns) for record in records)
    assert row.memory_bytes == max(record.memory.peak_rss_bytes for record in records)
    assert row.artifacts == {"model.onnx": sha("resnet50 onnx")}
    assert (row.threads, row.clock.overhead_ns if row.clock else None) == (2, 41)


def test_missing_case(tmp_path: Path) -> None:
    folder = Folder(tmp_path, change=lambda case, record: record if case.backend == "torch-eager" else None)
    row = folder.row()
    assert (row.status, row.reason, row.hint) == ("missing", "never measured", "Run `make run`.")
    assert row.latency_ns is None
    assert row.grade is None


def test_a_skipped_case_ignores_the_files_in_its_folder(tmp_path: Path) -> None:
    skipped = ORT.model_copy(update={"skip_reason": "no bf16 kernels"})
    folder = Folder(tmp_path, cases=[EAGER, skipped])
    folder.put(ORT, 1)
    assert (folder.row().status, folder.row().reason) == ("skipped", "no bf16 kernels")


def test_failed_in_all_rounds(tmp_path: Path) -> None:
    def change(case: Case, record: Measured) -> Measured | Failed:
        return failed(case, record.round) if case.backend == "onnxruntime" else record

    row = Folder(tmp_path, change=change).row()
    assert row.status == "failed"
    assert row.reason == "load: the process was killed (signal 9), most likely out of memory"
    assert row.hint == "Use a smaller batch, or a machine with more memory."


def test_failed_in_one_round_is_measured_with_fewer_and_says_so(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    store.save_raw(folder.results.raw_file(ORT.case_id, 2), failed(ORT, 2, phase="measure", error="boom"))
    row = folder.row()
    assert row.status == "measured"
    assert row.grade == "B"
    assert row.latency_ns is not None
    assert row.latency_ns.rounds == 2
    assert flags(row)["ROUNDS_MISSING"] == "2 of 3 rounds; round 2: failed (measure: boom)"


def test_a_speedup_is_one_headline_by_the_other_whichever_rounds_each_has(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.results.raw_file(ORT.case_id, 1).unlink()
    medians = {
        (case.case_id, n): _median(measured(case, RESNET, n, 120).latency_ns) for case in CASES for n in (1, 2, 3)
    }
    eager = sorted(medians[EAGER.case_id, n] for n in (1, 2, 3))[1]
    ort = (medians[ORT.case_id, 2] + medians[ORT.case_id, 3]) / 2
    speedup = folder.row().speedup
    assert speedup is not None
    assert speedup.ratio == pytest.approx(eager / ort)


def _median(values: tuple[int, ...]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def test_samples_of_other_settings_are_left_out_and_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for number in (1, 2, 3):
        folder.put(ORT, number, settings_id="0ther")
    summary = folder.summary()
    assert summary.rows[1].status == "missing"
    assert "measured with settings 0ther" in (summary.rows[1].reason or "")
    assert summary.notes == (
        f"3 records left out ({ORT.case_id}/1, …): measured with settings 0ther, this plan has settings d41b8cd98f00.",
    )


def test_stale_failure_is_left_out_too(tmp_path: Path) -> None:
    def change(case: Case, record: Measured) -> Measured | Failed:
        return failed(case, record.round, settings_id="0ther") if case.backend == "onnxruntime" else record

    assert Folder(tmp_path, change=change).row().status == "missing"


@pytest.mark.parametrize(
    ("artifacts", "says"),
    [
        ({"model.onnx": "f" * 64}, "model.onnx has changed since"),
        ({"model-int8.onnx": "f" * 64}, "model-int8.onnx that it loaded is not in the current export"),
    ],
)
def test_artifact_mismatch_leaves_only_that_round_out(tmp_path: Path, artifacts: dict[str, str], says: str) -> None:
    folder = Folder(tmp_path)
    folder.put(ORT, 3, artifacts=artifacts)
    summary = folder.summary()
    row = summary.rows[1]
    assert row.latency_ns is not None
    assert row.latency_ns.rounds == 2
    assert says in flags(row)["ROUNDS_MISSING"]
    assert says in summary.notes[0]


def test_the_reason_of_a_failed_export_is_in_the_notes(tmp_path: Path) -> None:
    folder = Folder(tmp_path, models=(RESNET, MINILM))
    own = folder.models.folder("resnet50")
    own.record.unlink()
    store.save(own.failure, ExportFailure(error="It cannot be traced.", hint="Simplify it."))
    notes = folder.summary().notes
    assert "resnet50 was not exported. It cannot be traced. Simplify it." in notes
    assert [note for note in notes if "make export" in note] == []


def test_without_a_readable_export_the_measured_artifact_is_unknown(tmp_path: Path) -> None:
    folder = Folder(tmp_path, models=(RESNET, MINILM))
    folder.models.folder("resnet50").record.write_text("{}")
    summary = folder.summary()
    assert [row.status for row in summary.rows] == ["missing", "missing"]
    assert "export.json" in summary.notes[0]


def test_no_export_at_all_is_an_error_with_the_next_command(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.models.folder("resnet50").record.unlink()
    with pytest.raises(MissingInputError) as caught:
        folder.summary()
    assert "make export" in caught.value.hint


def test_no_plan_is_an_error_with_the_next_command(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError) as caught:
        aggregate.stage(["--results", str(tmp_path)])
    assert "make plan" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cpu": "AMD EPYC 9654"}, "machine.cpu AMD EPYC 9654 instead of Intel"),
        ({"threads": 8}, "limits.threads 8 instead of 2"),
        ({"libraries": {"torch": "2.13.0"}}, "library torch 2.13.0 instead of 2.14.1"),
    ],
)
def test_records_of_another_machine_are_left_out_and_the_difference_named(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    other = environment(**changes)
    folder = Folder(tmp_path, environments={ENVIRONMENT_ID: environment(), environment_id(other): other})
    folder.put(ORT, 2, environment_id=environment_id(other))
    summary = folder.summary()
    assert says in summary.notes[0]
    assert set(summary.environments) == {ENVIRONMENT_ID}
    assert says in flags(summary.rows[1])["ROUNDS_MISSING"]


def test_the_machine_of_most_records_counts_with_any_name(tmp_path: Path) -> None:
    other = environment(cpu="AMD EPYC 9654")
    built = other.model_copy(update={"software": other.software.model_copy(update={"build": {"ort": "Release"}})})
    first, last = environment_id(other), environment_id(built)
    folder = Folder(tmp_path, environments={ENVIRONMENT_ID: environment(), first: other, last: built})
    for number in (1, 2, 3):
        folder.put(ORT, number, environment_id=first if number < 3 else last)
    folder.put(EAGER, 1, environment_id=first)
    folder.put(EAGER, 3, started_at="2026-11-27T23:00:00+00:00")  # the latest is not the one of most
    summary = folder.summary()
    assert set(summary.environments) == {first, last}
    assert summary.rows[1].latency_ns is not None
    assert summary.rows[1].latency_ns.rounds == 3
    assert summary.rows[0].latency_ns is not None
    assert summary.rows[0].latency_ns.rounds == 1


def test_build_facts_of_another_backend_do_not_part_environments(tmp_path: Path) -> None:
    ours = environment()
    other = ours.model_copy(update={"software": ours.software.model_copy(update={"build": {"ort": "Release"}})})
    folder = Folder(tmp_path, environments={ENVIRONMENT_ID: ours, environment_id(other): other})
    folder.put(ORT, 2, environment_id=environment_id(other))
    assert folder.summary().notes == ()


def test_backends_may_live_in_interpreters_with_other_libraries(tmp_path: Path) -> None:
    elsewhere = environment(libraries={"onnxruntime": "1.32.0", "numpy": "1.26.4"})
    folder = Folder(tmp_path, environments={ENVIRONMENT_ID: environment(), environment_id(elsewhere): elsewhere})
    for number in (1, 2, 3):
        folder.put(ORT, number, environment_id=environment_id(elsewhere))
    summary = folder.summary()
    assert summary.notes == ()
    assert set(summary.environments) == {ENVIRONMENT_ID, environment_id(elsewhere)}
    assert all(row.latency_ns is not None and row.latency_ns.rounds == 3 for row in summary.rows[:2])


@pytest.mark.parametrize("identity", [None, "neverseen"])
def test_a_record_without_a_known_machine_is_left_out(tmp_path: Path, identity: str | None) -> None:
    folder = Folder(tmp_path)
    folder.put(ORT, 1, environment_id=identity)
    assert "environment record" in folder.summary().notes[0]


def test_a_plan_or_an_environment_of_other_content_than_its_id_says_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    store.save(folder.results.environment(ENVIRONMENT_ID), environment(cpu="AMD EPYC 9654"))
    summary = folder.summary()
    assert "its name is the hash of another environment" in summary.notes[0]
    assert {row.status for row in summary.rows} == {"missing"}
    plan = store.load(folder.results.plan, Plan, "make plan")
    wide = {name: tolerance.model_copy(update={"relative_l2": 1.0}) for name, tolerance in plan.gates.items()}
    store.save(folder.results.plan, plan.model_copy(update={"gates": wide}))
    with pytest.raises(MalformedFileError, match=f"is not plan {plan.plan_id}") as caught:
        folder.summary()
    assert "make plan" in caught.value.hint


@pytest.mark.parametrize("damage", [b"", b"not json", "cut", "flipped"])
def test_a_damaged_file_is_named_and_the_rest_goes_on(tmp_path: Path, damage: bytes | str) -> None:
    folder = Folder(tmp_path)
    path = folder.results.raw_file(ORT.case_id, 2)
    content = path.read_bytes()
    flipped = content.replace(b'"steady":true', b'"steady":null')
    path.write_bytes({"cut": content[:-30], "flipped": flipped}.get(damage, damage))  # type: ignore[call-overload]
    summary = folder.summary()
    row = summary.rows[1]
    name = f"raw/{ORT.case_id}/2.json"
    assert summary.notes[0].startswith(f"{name} ")
    assert flags(row)["DAMAGED_FILE"].startswith(f"{name} ")
    assert flags(row)["ROUNDS_MISSING"] == "2 of 3 rounds; round 2: damaged file"
    assert (row.status, row.grade) == ("measured", "B")
    assert summary.rows[0].grade == "A"


def test_a_case_with_only_damaged_files_is_missing_and_marked(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for number in (1, 2, 3):
        folder.results.raw_file(ORT.case_id, number).write_bytes(b"x")
    row = folder.row()
    assert row.status == "missing"
    assert "DAMAGED_FILE" in flags(row)


def test_a_record_that_was_copied_to_another_case_is_left_out(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    source = folder.results.raw_file(EAGER.case_id, 1).read_bytes()
    folder.results.raw_file(ORT.case_id, 1).write_bytes(source)
    assert "it was moved or copied" in folder.summary().notes[0]


def test_rounds_beyond_the_plan_are_ignored(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.put(ORT, 4, latency_ns=(1,) * 120)
    row = folder.row()
    assert row.latency_ns is not None
    assert row.latency_ns.rounds == 3
    assert row.flags == ()


# --- further rounds -----------------------------------------------------------------------------------------------


def adaptive(folder: Folder, **settings: Any) -> None:
    """Let the plan allow further rounds."""
    plan = store.load(folder.results.plan, Plan, "make plan")
    measurement = plan.measurement.model_copy(update=settings)
    store.save(folder.results.plan, named(plan.model_copy(update={"measurement": measurement})))


def test_further_rounds_are_joined_where_the_plan_allows_them(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for number in (4, 5, 6):
        folder.put(ORT, number)
    adaptive(folder, max_rounds=5, target_interval=1e-6)
    rows = {row.case_id: row for row in folder.summary().rows}
    assert [row.latency_ns.rounds for row in rows.values() if row.latency_ns] == [3, 5]
    assert rows[ORT.case_id].stopped == "round limit"
    assert rows[EAGER.case_id].stopped == "interrupted"
    assert all(not row.flags for row in rows.values())


def test_a_further_round_that_is_missing_or_failed_is_no_missing_round(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.put(ORT, 4)
    store.save_raw(folder.results.raw_file(ORT.case_id, 5), failed(ORT, 5))
    adaptive(folder, max_rounds=9, target_interval=1e-6, budget_s=60.0)
    rows = {row.case_id: row for row in folder.summary().rows}
    assert "ROUNDS_MISSING" not in flags(rows[ORT.case_id])
    assert (rows[ORT.case_id].stopped, rows[EAGER.case_id].stopped) == ("failed round", "time budget")


def test_missing_rounds_are_still_counted_against_the_plans_own(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.results.raw_file(ORT.case_id, 2).unlink()
    folder.put(ORT, 4)
    adaptive(folder, max_rounds=4)
    assert flags(folder.row())["ROUNDS_MISSING"] == "2 of 3 rounds; round 2: no record"


def test_a_plan_without_further_rounds_stops_as_planned(tmp_path: Path) -> None:
    assert Folder(tmp_path).row().stopped == "planned rounds"


# --- what the monitor saw -----------------------------------------------------------------------------------------


def test_usage_of_the_timed_loops_is_in_the_row(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    usage = folder.row().usage
    assert usage is not None
    assert (usage.rounds, usage.cpu_percent_mean) == (3, pytest.approx(196))
    records = [store.load_raw(folder.results.raw_file(ORT.case_id, number)) for number in (1, 2, 3)]
    windows = [record.cpu_use.wall_ns for record in records if isinstance(record, Measured) and record.cpu_use]
    assert usage.watched_ns == pytest.approx(sum(windows))


def test_without_a_monitor_no_row_is_ranked_and_a_note_says_so(tmp_path: Path) -> None:
    folder = Folder(tmp_path, watch=lambda _case_id, _number: None)
    summary = folder.summary()
    assert [(row.usage, row.grade) for row in summary.rows] == [(None, "C"), (None, "C")]
    assert "UNWATCHED" in flags(summary.rows[0])
    (note,) = summary.notes
    assert note.startswith("6 records kept although the machine's load is unknown")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not json", "was not written by Inferometer"),
        (usage_of(EAGER.case_id, 2).model_dump_json().encode(), "is of another case, round or"),
        (
            usage_of(ORT.case_id, 2, settings_id="0ther").model_dump_json().encode(),
            "is of another case, round or",
        ),
        (usage_of(ORT.case_id, 2).model_dump_json().encode()[:-40], "is not a valid Usage"),
    ],
)
def test_a_damaged_or_foreign_witness_is_left_out_and_its_samples_are_not(
    tmp_path: Path, content: bytes, says: str
) -> None:
    folder = Folder(tmp_path)
    folder.results.usage_file(ORT.case_id, 2).write_bytes(content)
    summary = folder.summary()
    row = summary.rows[1]
    assert (row.grade, row.usage.rounds if row.usage else None) == ("B", 2)
    assert says in flags(row)["UNWATCHED"]
    assert row.latency_ns is not None
    assert row.latency_ns.rounds == 3
    assert says in summary.notes[0]


@pytest.mark.parametrize(("ticks", "says"), [(5, None), (6, "of another process"), (None, "of another process")])
def test_the_witness_of_another_run_is_left_out(tmp_path: Path, ticks: int | None, says: str | None) -> None:
    folder = Folder(tmp_path)
    folder.put(ORT, 2, cpu_use=cpu_use(started_ticks=5))
    path = folder.results.usage_file(ORT.case_id, 2)
    usage = store.load(path, Usage, "test")
    store.save(path, usage.model_copy(update={"started_ticks": ticks}))
    found = flags(folder.row())
    assert ("UNWATCHED" in found) is (says is not None)
    assert says is None or says in found["UNWATCHED"]


@pytest.mark.parametrize(("factor", "grade"), [(4.0, "F"), (0.25, "C")])
def test_samples_that_do_not_add_up_to_their_blocks_are_named(tmp_path: Path, factor: float, grade: str) -> None:
    folder = Folder(tmp_path)
    for number in (1, 2, 3):
        record = measured(ORT, RESNET, number, 120)
        folder.put(ORT, number, latency_ns=tuple(int(value * factor) for value in record.latency_ns))
    row = folder.row()
    assert row.grade == grade
    assert "SAMPLES_MISMATCH" in flags(row)


def test_a_row_says_in_how_many_rounds_each_check_was_made(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert all((check.rounds, check.of, check.missing) == (3, 3, None) for check in folder.row().checks.values())
    folder.put(ORT, 2, cpu_use=None)
    row = folder.row()
    assert row.grade == "B"
    assert row.checks["THREADS"] == Check(rounds=2, of=3, missing="measured before this check existed")
    assert row.checks["PARITY"] == Check(rounds=3, of=3)
    assert "THREADS" in flags(row)["UNCHECKED"]


def test_a_neighbour_in_most_rounds_costs_the_rank(tmp_path: Path) -> None:
    def crowded(case_id: str, number: int) -> Usage:
        samples = [usage_sample(at * 250_000_000, others_percent=60.0) for at in range(1, 9)]
        return usage_of(case_id, number, samples if case_id == ORT.case_id else ())

    row = Folder(tmp_path, watch=crowded).row()
    assert row.grade == "C"
    assert "other processes used 0.60 CPUs" in flags(row)["CPU_SHARED"]


def test_csv_has_a_line_a_row_and_empty_cells_where_nothing_is_known(tmp_path: Path) -> None:
    skipped = ORT.model_copy(update={"skip_reason": "no kernels, said with a comma"})
    folder = Folder(tmp_path, cases=[EAGER, skipped])
    summary = folder.summary()
    with folder.results.summary_csv.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["case_id"] for line in lines] == [row.case_id for row in summary.rows]
    assert float(lines[0]["latency_median_ns"]) == summary.rows[0].latency_ns.median  # type: ignore[union-attr]
    assert lines[0]["latency_p99_ns"] == ""  # 360 samples are too few
    assert lines[1]["reason"] == "no kernels, said with a comma"
    assert {lines[1][name] for name in ("latency_median_ns", "throughput_per_s", "speedup_ratio", "grade")} == {""}


def test_aggregate_imports_no_inference_library() -> None:
    code = "import sys, harness.aggregate, harness.report; print([m for m in ('torch', 'onnx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_more_records_are_in_memory_than_have_the_samples_of_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here each case has the samples of a block: no more records are alive than two cases have rounds."""
    import gc
    import weakref

    folder = Folder(tmp_path, cases=matrix((RESNET,)))
    seen: list[weakref.ref[Measured | Failed]] = []
    most = 0
    load = store.load_raw

    def counting(path: Path, *sums: dict[Path, str]) -> Measured | Failed:
        nonlocal most
        gc.collect()
        most = max(most, sum(reference() is not None for reference in seen))
        record = load(path, *sums)
        seen.append(weakref.ref(record))
        return record

    monkeypatch.setattr(store, "load_raw", counting)
    monkeypatch.setattr(join, "LEAST", 0)
    monkeypatch.setattr(join, "BLOCK", 3 * 120)
    gc.collect()
    gc.freeze()  # what other tests left need not be walked through again for every record
    try:
        folder.summary()
    finally:
        gc.unfreeze()
    assert len(seen) > 20
    assert 0 < most <= 2 * 3


def test_aggregate_compares_the_export_record_of_the_fixture(tmp_path: Path) -> None:
    summary = Folder(tmp_path).summary()
    assert summary.exports == {"resnet50": export_record(RESNET)}


def test_an_export_since_then_takes_nothing_from_results(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    store.save(folder.results.export(RESNET.name).record, export_record(RESNET))
    other = export_record(RESNET).model_copy(update={"weights": "pretrained", "module": None, "onnx": {}})
    store.save(folder.models.folder(RESNET.name).record, other)
    assert [row.status for row in folder.summary().rows] == ["measured", "measured"]
    shutil.rmtree(folder.models.root)
    assert [row.status for row in folder.summary().rows] == ["measured", "measured"]


def test_results_of_earlier_versions_keep_the_export_of_their_summary(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert not folder.results.exports.exists()
    before = folder.summary()
    changed = export_record(RESNET).model_copy(update={"module": None, "onnx": {}})
    store.save(folder.models.folder(RESNET.name).record, changed)
    assert [row.status for row in folder.summary().rows] == ["measured", "measured"]
    assert folder.summary().digest == before.digest


def test_a_row_never_says_pretrained_of_seeded_weights(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.results.summary.unlink(missing_ok=True)
    plan = folder.synthetic.plan
    models = tuple(planned.model_copy(update={"weights": "pretrained"}) for planned in plan.models)
    cases = tuple(case.model_copy(update={"weights": "pretrained"}) for case in plan.cases)
    store.save(folder.results.plan, named(plan.model_copy(update={"models": models, "cases": cases})))
    with pytest.raises(MalformedFileError, match="seeded weights, and the plan asks for pretrained weights"):
        folder.summary()


def test_one_export_of_another_request_leaves_its_records_out(tmp_path: Path) -> None:
    folder = Folder(tmp_path, models=(RESNET, MINILM), cases=[*CASES, case_of(MINILM, "torch-eager", "fp32", 1, 32)])
    foreign = export_record(RESNET).model_copy(update={"weights": "pretrained"})
    store.save(folder.results.export(RESNET.name).record, foreign)
    rows = folder.summary().rows
    assert [row.status for row in rows] == ["missing", "missing", "measured"]
    assert "pretrained weights, and the plan asks for seeded weights" in (rows[0].reason or "")


def test_a_summary_is_not_replaced_by_a_poorer_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    before = folder.summary()
    shutil.rmtree(folder.results.raw_case(ORT.case_id))
    with pytest.raises(MissingInputError, match="2 measured rows, and 1 of them would be missing") as caught:
        folder.summary()
    assert ORT.case_id in caught.value.problem
    assert "FORCE=1" in caught.value.hint
    assert store.load(folder.results.summary, Summary, "test") == before
    with pytest.raises(CasesFailedError):
        aggregate.stage(["--results", str(folder.results.root), "--models-dir", str(folder.models.root), "--force"])
    assert [row.status for row in folder.summary().rows] == ["measured", "missing"]


def test_a_row_that_failed_since_or_left_the_plan_is_not_lost(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.summary()
    for number in (1, 2, 3):
        store.save_raw(folder.results.raw_file(ORT.case_id, number), failed(ORT, number))
    assert [row.status for row in folder.summary().rows] == ["measured", "failed"]
    store.save(folder.results.plan, named(folder.synthetic.plan.model_copy(update={"cases": (ORT,)})))
    assert [row.case_id for row in folder.summary().rows] == [ORT.case_id]


def test_records_of_other_sources_of_a_module_are_left_out(tmp_path: Path) -> None:
    folder = Folder(tmp_path, export=lambda model: export_record(model).model_copy(update={"sources": {"net": "b"}}))
    artifacts = {"weights.safetensors": sha("resnet50 weights"), SOURCES: "of another source"}
    folder.put(EAGER, 1, artifacts=artifacts)
    row = folder.row(EAGER)
    assert row.latency_ns is not None
    assert row.latency_ns.rounds == 2
    assert "sources has changed since" in flags(row)["ROUNDS_MISSING"]


def energy(**changes: Any) -> Energy:
    fields = {
        "case_id": ORT.case_id,
        "settings_id": SETTINGS_ID,
        "created_at": "2026-11-28T00:00:00+00:00",
        "environment_id": None,
        "gpu": "A GPU",
        "uuid": "GPU-1",
        "batch_size": 1,
        "idle_w": 70.0,
        "idle_ns": 5_000_000_000,
        "energy_j": 3000.0,
        "window_ns": 6_000_000_000,
        "busy_ns": 5_900_000_000,
        "batches": 1000,
        "joules_per_inference": 2.58,
        "joules_per_item": 2.58,
    }
    return Energy(**{**fields, **changes})


def test_the_energy_of_another_case_is_left_out(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    store.save(folder.results.energy_file(EAGER.case_id), energy(case_id=EAGER.case_id))
    store.save(folder.results.energy_file(ORT.case_id), energy(case_id=EAGER.case_id))
    summary = folder.summary()
    assert list(summary.energies) == [EAGER.case_id]
    assert f"is of the case {EAGER.case_id}: it was moved or copied" in summary.notes[0]


@pytest.mark.parametrize(
    "changes", [{"joules_per_inference": 1.29}, {"joules_per_item": -2.58}, {"energy_j": 419.0}, {"batches": 2000}]
)
def test_energy_follows_from_its_readings(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"do not follow|greater than"):
        energy(**changes)
