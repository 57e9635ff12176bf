"""Runs of more cases than JSON is good for: raw records and rows in Parquet give what the JSON files give."""

from __future__ import annotations

import base64
import gc
import gzip
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import aggregate, bundle, compare, history, report, verify
from harness.aggregation import join
from harness.aggregation.usage import timed_usage
from harness.core import file_sums, packed, parallel, raw_files, store, units
from harness.core.errors import (
    FormatError,
    MalformedFileError,
    MissingInputError,
    NewerFormatError,
    RegressionError,
    UsageError,
)
from harness.core.layout import Models, Results, RunStore
from harness.core.raw_files import RawFiles
from harness.core.schemas import (
    Case,
    Comparison,
    GpuSample,
    HistoryRun,
    Measured,
    PackedSummary,
    PackedUsage,
    Plan,
    RowGroup,
    Summary,
)
from harness.live import server
from harness.live.reader import WatchedFolder
from harness.planning import resume
from harness.planning.run_store import RemoteStore
from harness.planning.schedule import schedule
from tests.synthetic_results import (
    EFFICIENTNET,
    MINILM,
    Synthetic,
    case_of,
    cpu_use,
    eventful,
    failed,
    measured,
    restless,
    slowed,
    stretched,
    usage_of,
    usage_sample,
)
from tests.synthetic_results import matrix as cases_of

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = [case for model in (MINILM, EFFICIENTNET) for case in cases_of((model,), batch_sizes=(1, 4))[:6]]
EAGER = next(case for case in CASES if case.backend == "torch-eager")
LOST, BROKEN = CASES[1].case_id, CASES[2].case_id


def change(case: Case, record: Measured) -> Any:
    """A case that fails and one that is slower in one round."""
    if case.case_id == BROKEN:
        return failed(case, record.round)
    return slowed(record, 1.4) if case.case_id == LOST and record.round == 2 else record


class Run:
    """A synthetic run on disk."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.results, self.models = Results(root / "results"), Models(root / "models")
        made = {"models": (MINILM, EFFICIENTNET), "cases": CASES, "rounds": 2, "samples": 70, "change": change}
        self.made = Synthetic(**{**made, "watch": restless, **changes})
        self.made.write(self.results.root, self.models.root)
        self.plan = store.load(self.results.plan, Plan, "make plan")
        self.folders = ["--results", str(self.results.root), "--models-dir", str(self.models.root)]

    def aggregate(self) -> Summary:
        aggregate.stage(self.folders)
        return store.load(self.results.summary, Summary, "make aggregate")

    @property
    def packed(self) -> Path:
        return self.results.packed_raw(CASES[0].slug)


@pytest.fixture
def pack_all(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(packed, "PACK_FROM", 3)


@pytest.fixture
def large(tmp_path: Path, pack_all: Callable[[], None]) -> Run:
    run = Run(tmp_path / "large")
    pack_all()
    raw_files.pack_records(run.plan, run.results)
    return run


def test_packed_records_equal_those_that_were_written(large: Run) -> None:
    raw = RawFiles(large.results, large.plan.cases)
    for record in large.made.records():
        assert raw.load(record.case_id, record.round) == record
        usage = large.made.watch(record.case_id, record.round)
        if usage is not None:
            assert raw.load_usage(record.case_id, record.round) == PackedUsage.of(stretched(usage, record))
    assert [path.name for path in large.results.raw.iterdir() if path.suffix != ".parquet"] == []


def test_the_samples_of_the_monitor_by_column_are_the_same() -> None:
    gpu = GpuSample(
        **dict.fromkeys(GpuSample.model_fields, None) | {"sm_mhz": 1_980, "reasons": ("sw_thermal",)}  # type: ignore[arg-type]
    )
    samples = [usage_sample(1_000_000_000, "warm-up"), usage_sample(2_000_000_000, gpu=gpu, stopped=False)]
    usage = usage_of("case", 1, samples)
    result = PackedUsage.model_validate_json(PackedUsage.of(usage).model_dump_json(exclude_defaults=True))
    assert result.by_column == usage.by_column
    assert result.last == usage.samples[-1]
    assert timed_usage(result) == timed_usage(usage) is not None
    without = PackedUsage.of(usage.model_copy(update={"samples": ()}))
    assert (without.by_column, without.last, timed_usage(without)) == ({}, None, None)


def test_columns_of_the_monitor_of_different_lengths_are_damage(large: Run) -> None:
    table = pq.read_table(large.packed)
    usages = [text and text.replace('"phase":["load",', '"phase":[') for text in table["usage"].to_pylist()]
    place = table.column_names.index("usage")
    pq.write_table(table.set_column(place, table.schema.field(place), [usages]), large.packed)
    raw = RawFiles(large.results, large.plan.cases)
    with pytest.raises(MalformedFileError, match="the usage of"):
        raw.load_usage(CASES[0].case_id, 1)


def test_a_file_of_format_1_is_read_and_packed_again(tmp_path: Path) -> None:
    case, path = case_of(MINILM, "torch-eager", "fp32", 1, 128), tmp_path / "again.parquet"
    old = packed.PackedRaw(GOLDEN / "raw-1.parquet")
    lines = [(old.record(*key), old.usage(*key)) for key in old]
    records = [measured(case, MINILM, number, 20) for number in (1, 2)]
    windows = [int(1.2 * sum(block.wall_ns for block in record.blocks)) for record in records]
    then = [
        record.model_copy(update={"cpu_use": cpu_use(window_ns), "environment_id": "c0ffee123456"})
        for record, window_ns in zip(records, windows, strict=True)
    ]
    assert lines == [(record, usage_of(case.case_id, record.round)) for record in then]
    packed.write_raw(path, [(record, usage) for record, usage in lines if record is not None])
    again = packed.PackedRaw(path)
    assert [again.usage(*key) for key in old] == [PackedUsage.of(usage) for _, usage in lines if usage is not None]


def test_the_samples_of_few_models_stay_in_memory(large: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_files, "KEPT", 1)
    raw = RawFiles(large.results, large.plan.cases)
    first, last = CASES[0].case_id, CASES[-1].case_id
    for case_id in (first, last, first):
        assert raw.load(case_id, 1).case_id == case_id
    held = [file for file in raw._opened.values() if isinstance(file, packed.PackedRaw) and file._group is not None]
    assert len(held) == 1


def test_a_small_plan_keeps_its_json_files(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert raw_files.pack_records(run.plan, run.results) == 0
    assert not run.packed.exists()


def test_a_newer_file_replaces_the_packed_record(large: Run) -> None:
    again = measured(CASES[0], MINILM, 1, 50, seed=7)
    store.save_raw(large.results.raw_file(again.case_id, 1), again)
    raw = RawFiles(large.results, large.plan.cases)
    assert raw.load(again.case_id, 1) == again
    with pytest.raises(MissingInputError):  # the packed one is of the older process
        raw.load_usage(again.case_id, 1)
    assert raw_files.pack_records(large.plan, large.results) == 1
    raw = RawFiles(large.results, large.plan.cases)
    assert raw.load(again.case_id, 1) == again
    assert raw.load(again.case_id, 2) == next(record for record in large.made.records() if record.round == 2)


def test_records_that_are_forgotten_leave_the_file(large: Run) -> None:
    raw_files.pack_records(large.plan, large.results, without={(CASES[0].case_id, 1)})
    raw = RawFiles(large.results, large.plan.cases)
    with pytest.raises(MissingInputError):
        raw.load(CASES[0].case_id, 1)
    assert raw.load(CASES[0].case_id, 2).round == 2


def test_a_damaged_json_record_stays_for_aggregate_to_name(tmp_path: Path, pack_all: Callable[[], None]) -> None:
    run = Run(tmp_path)
    path = run.results.raw_file(CASES[0].case_id, 1)
    path.write_bytes(path.read_bytes()[:-40])
    pack_all()
    raw_files.pack_records(run.plan, run.results)
    assert path.is_file()
    assert any("is cut off" in note for note in run.aggregate().notes)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    column = pq.ParquetFile(path).metadata.row_group(0).column(2)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(content)


def foreign(path: Path) -> None:
    pq.write_table(pa.table({"case_id": ["x"]}), path)


def other_columns(path: Path) -> None:
    table = pq.read_table(path)
    renamed = table.rename_columns(["CASE", *table.column_names[1:]])
    pq.write_table(renamed.replace_schema_metadata(table.schema.metadata), path)


def newer(path: Path) -> None:
    table = pq.read_table(path)
    kind = table.schema.metadata[b"inferometer"].replace(b"1", b"9").replace(b"2", b"9")
    pq.write_table(table.replace_schema_metadata({b"inferometer": kind}), path)


DAMAGE = [
    (cut, MalformedFileError, "cut off"),
    (flip, MalformedFileError, "cut off, damaged"),
    (foreign, MalformedFileError, "not written by Inferometer"),
    (other_columns, MalformedFileError, "other columns"),
    (newer, NewerFormatError, "this Inferometer knows"),
]


@pytest.mark.parametrize(("damage", "kind", "said"), DAMAGE)
def test_each_damage_of_raw_records_has_its_message(
    large: Run, damage: Callable[[Path], None], kind: type[FormatError], said: str
) -> None:
    damage(large.packed)
    raw = RawFiles(large.results, large.plan.cases)
    with pytest.raises(kind, match=said) as caught:
        all(raw.load(case.case_id, number) for case in large.plan.cases for number in (1, 2))
    assert "\n" not in caught.value.problem + caught.value.hint
    assert any(said in note for note in large.aggregate().notes)


def test_a_large_run_has_the_rows_of_a_small_one(tmp_path: Path, large: Run) -> None:
    rows = large.aggregate()
    packed.PACK_FROM = 10_000  # the fixture restores it
    small = Run(tmp_path / "small")
    expected = small.aggregate()
    assert rows.rows == expected.rows
    assert rows.notes == expected.notes
    assert large.results.summary_csv.read_bytes() == small.results.summary_csv.read_bytes()
    for name in ("measured_from", "measured_to", "environments", "exports", "plan_id"):
        assert getattr(rows, name) == getattr(expected, name)


def test_every_kind_of_row_of_a_large_run_is_that_of_a_small_one(tmp_path: Path, pack_all: Callable[[], None]) -> None:
    """Void, failed, skipped, missing and flagged rows: the large way makes and writes them without JSON in between."""

    def change(case: Case, record: Measured) -> Any:
        if case.case_id == "minilm-l6-torch-eager-cpu-fp32-b16-s128":
            return failed(case, record.round)
        return None if case.case_id == "minilm-l6-openvino-cpu-fp32-b16-s128" else eventful(case, record)

    kinds = {"cases": cases_of((MINILM, EFFICIENTNET)), "change": change, "rounds": 3, "samples": 30}
    small, big = Run(tmp_path / "small", **kinds), Run(tmp_path / "big", **kinds)
    expected = small.aggregate()
    pack_all()
    raw_files.pack_records(big.plan, big.results)
    result = big.aggregate()
    assert {row.status for row in result.rows} == {"measured", "skipped", "failed", "missing"}
    assert {row.grade for row in result.rows} >= {"A", "B", "C", "F"}
    assert any(row.void is not None for row in result.rows)
    assert result.rows == expected.rows
    assert result.notes == expected.notes
    assert big.results.summary_csv.read_bytes() == small.results.summary_csv.read_bytes()


def test_a_sample_that_is_null_is_damage(large: Run) -> None:
    table = pq.read_table(large.packed)
    samples = table["latency_ns"].to_pylist()
    samples[0][3] = None
    place = table.column_names.index("latency_ns")
    pq.write_table(table.set_column(place, table.schema.field(place), [samples]), large.packed)
    raw = RawFiles(large.results, large.plan.cases)
    with pytest.raises(MalformedFileError, match="a sample of"):
        raw.load(CASES[0].case_id, 1)
    assert raw.load(CASES[0].case_id, 2).round == 2


def test_results_of_forked_processes_come_in_order_and_few_at_a_time(tmp_path: Path) -> None:
    def work(number: int) -> int:
        (tmp_path / str(number)).touch()
        return number * number

    result = parallel.map_forked(work, range(60))
    assert next(result) == 0
    processes = min(parallel.MOST, len(os.sched_getaffinity(0)))
    assert len(list(tmp_path.iterdir())) <= (parallel.AHEAD + 1) * processes + 1
    assert list(result) == [number * number for number in range(1, 60)]


def test_work_on_records_has_no_collector_of_cycles_and_leaves_one_behind() -> None:
    collects = gc.isenabled()
    gc.enable()
    try:
        with suppress(UsageError), parallel.without_garbage_collection():
            assert list(parallel.map_forked(lambda _: gc.isenabled(), range(4))) == [False] * 4
            assert not gc.isenabled()
            raise UsageError("as a stage may", "in its middle")
        assert gc.isenabled()
        gc.disable()
        with parallel.without_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        (gc.enable if collects else gc.disable)()


def test_a_store_behind_a_url_has_the_rows_of_a_large_run(large: Run, tmp_path: Path) -> None:
    rows = large.aggregate().rows
    memory = fsspec.filesystem("memory")
    try:
        history.stage([*large.folders[:2], "--store", "memory://large"])
        other = RunStore(tmp_path / "other")
        remote = RemoteStore("memory://large")
        remote.fetch(other)
        run = store.load(next(other.runs.glob("*/run.json")), HistoryRun, "make history")
        assert run.points.keys() == {row.case_id for row in rows if row.latency_ns is not None}
        fetched = remote.fetch_summary(other, run.run_id)
        assert store.load(fetched, Summary, "make aggregate").rows == rows
        other.packed_rows(run.run_id).unlink()
        memory.rm(f"/large/runs/{run.run_id}/summary.parquet")
        with pytest.raises(MalformedFileError, match="has no rows of"):
            remote.fetch_summary(other, run.run_id)
    finally:
        memory.rm("/", recursive=True)


def test_the_file_of_a_large_summary_has_another_format(large: Run) -> None:
    large.aggregate()
    assert large.results.summary.read_bytes().startswith(b'{\n  "schema_version": 4')
    head = store.load_head(large.results.summary, "make aggregate")
    assert isinstance(head, PackedSummary)
    assert head.rows == ()
    assert sum(group.rows for group in head.row_groups) == len(CASES)


def test_rows_of_format_1_have_their_checks_in_the_row(large: Run) -> None:
    rows, path = large.aggregate().rows, large.results.packed_rows
    texts = [row.model_dump_json() for row in rows]
    table = pq.read_table(path).drop_columns(["checks"])
    place = table.column_names.index("row")
    old = table.set_column(place, table.schema.field(place), [texts])
    pq.write_table(old.replace_schema_metadata({b"inferometer": b"rows 1"}), path)
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    group = RowGroup(model=rows[0].model, rows=len(rows), measured=len(rows), sha256=digest)
    assert packed.PackedRows(path, [group]).group(0) == rows


@pytest.mark.parametrize("text", ['{"PARITY":{"rounds":2,"of":3,"missing":null}}', None])
def test_other_checks_than_those_of_the_summary_are_damage(tmp_path: Path, large: Run, text: str | None) -> None:
    model = large.aggregate().rows[0].model
    rows = [row for row in large.aggregate().rows if row.model == model]
    path, written = tmp_path / "rows.parquet", packed.written_rows(model, rows)

    def write() -> packed.PackedRows:
        writer = packed.RowsWriter(path)
        writer.add(written)
        writer.close()
        writer.keep()
        return packed.PackedRows(path, [written.group])

    assert write().group(0) == tuple(rows)
    written.columns["checks"][0] = text
    with pytest.raises(MalformedFileError, match="the rows of"):
        write().group(0)


def test_cases_that_are_computed_together_have_the_rows_of_single_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "together", cases=cases_of((MINILM, EFFICIENTNET)), change=eventful, rounds=3, samples=90)
    together = run.aggregate().rows
    monkeypatch.setattr(join, "BLOCK", 1)
    assert run.aggregate().rows == together


def test_rows_of_another_summary_are_refused(large: Run) -> None:
    large.aggregate()
    other = Run(large.results.root.parent / "other", samples=80)
    raw_files.pack_records(other.plan, other.results)
    other.aggregate()
    large.results.packed_rows.write_bytes(other.results.packed_rows.read_bytes())
    with pytest.raises(MalformedFileError, match="is damaged"):
        store.load(large.results.summary, Summary, "make aggregate")


def test_a_summary_without_its_rows_is_no_summary(large: Run) -> None:
    large.aggregate()
    large.results.packed_rows.unlink()
    with pytest.raises(MissingInputError, match=r"summary\.parquet does not exist"):
        file_sums.load_summary(large.results.summary)


def test_a_changed_raw_file_is_noticed(large: Run) -> None:
    large.aggregate()
    raw_files.pack_records(large.plan, large.results, without={(CASES[0].case_id, 1)})
    with pytest.raises(MalformedFileError, match="has changed since"):
        report.stage(large.folders[:2])


def test_rows_that_were_measured_are_not_lost(large: Run) -> None:
    large.aggregate()
    before = large.results.summary.read_bytes(), large.results.packed_rows.read_bytes()
    raw_files.pack_records(large.plan, large.results, without={(CASES[0].case_id, number) for number in (1, 2)})
    with pytest.raises(MissingInputError, match=f"as {CASES[0].case_id}"):
        large.aggregate()
    assert (large.results.summary.read_bytes(), large.results.packed_rows.read_bytes()) == before
    assert not [path for path in large.results.root.iterdir() if path.name.endswith(".partial")]


def test_a_smaller_plan_leaves_no_rows_of_the_larger(large: Run) -> None:
    large.aggregate()
    packed.PACK_FROM = 10_000
    large.aggregate()
    assert not large.results.packed_rows.exists()


def compared(run: Run, against: Run) -> Comparison:
    with suppress(RegressionError):  # the failed case has no figure for the threshold
        compare.stage([*run.folders[:2], "--baseline", str(against.results.root), "--threshold", "latency_p50<10s"])
    return store.load(run.results.comparison, Comparison, "make compare")


def test_a_comparison_of_large_runs_is_that_of_small_ones(tmp_path: Path, large: Run) -> None:
    slower = {"change": lambda case, record: slowed(record, 1.1), "cases": CASES[1:]}
    other = Run(tmp_path / "other", **slower)
    raw_files.pack_records(other.plan, other.results)
    large.aggregate()
    other.aggregate()
    result = compared(large, other)
    packed.PACK_FROM = 10_000
    for run in (large, other):
        run.aggregate()
    expected = compared(large, other)
    assert [row.verdict for row in result.rows].count("NEW") == 1
    assert result.rows == expected.rows
    assert sorted(result.judgements, key=str) == sorted(expected.judgements, key=str)


def test_the_report_has_a_line_a_model_and_the_page_its_rows(large: Run) -> None:
    large.aggregate()
    report.stage(large.folders[:2])
    text = large.results.report.read_text()
    assert "| minilm-l6, batch 1" in text
    assert "| efficientnet-lite0, batch 1" in text
    page = large.results.report_page.read_text()
    parts = re.findall(r'<script type="application/gzip" class="model" data-anchor="([^"]+)">([^<]+)</script>', page)
    assert [anchor for anchor, _ in parts] == ["model-minilm-l6", "model-efficientnet-lite0"]
    opened = [gzip.decompress(base64.b64decode(content)).decode() for _, content in parts]
    for case in large.plan.cases:
        if case.case_id != BROKEN and case.skip_reason is None and case.backend != "noop":
            assert any(f'id="case-{case.case_id}"' in body for body in opened), case.case_id
            assert f'id="case-{case.case_id}"' not in page
    assert not list(large.results.charts.glob("*"))
    wide = any(units.WIDE in body for body in opened)
    assert ("is more than 1.5 times the lower one" in page) is wide
    assert "How to read this" not in large.results.report_details.read_text()
    table = text.partition("Smallest shape")[0]
    for mark, meaning in (("**", "**Bold**"), ("×", "×: speed-up"), ("~", "~: based on")):
        assert (mark in table.partition("| model")[2]) is (meaning in text), mark


def test_one_model_has_the_whole_report(large: Run) -> None:
    large.aggregate()
    report.stage([*large.folders[:2], "--model", "minilm-l6"])
    own = large.results.of_model("minilm-l6")
    assert "torch-eager" in own.report_details.read_text()
    assert "efficientnet" not in own.report.read_text()
    images = re.findall(r"\]\((charts/[^)]+)\)", own.report.read_text())
    assert images
    assert all((own.root / image).is_file() for image in images)
    with pytest.raises(UsageError, match="has no model `resnet`"):
        report.stage([*large.folders[:2], "--model", "resnet"])


def test_a_run_goes_on_from_packed_records(large: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "same_environment", lambda *_: True)
    monkeypatch.setattr(resume.admission, "foreign_artifact", lambda *_: None)
    done = resume.finished_turns(large.plan, schedule(large.plan.cases, 3, 1), {}, large.results)
    assert done.medians[CASES[0].case_id].keys() == {1, 2}
    assert BROKEN not in done.medians


def test_a_bundle_has_the_parquet_files(large: Run) -> None:
    large.aggregate()
    report.stage([*large.folders[:2], "--no-charts"])
    files = bundle.collect(large.plan, large.results, large.models)
    assert files["results/raw/minilm-l6.parquet"] == large.packed.read_bytes()
    rows = {name: files[name] for name in ("results/summary.parquet", "results/summary.json")}
    verify.check_rows(Path("bundle"), dict(rows), large.results.root / "right")
    cut(large.results.packed_rows)
    rows["results/summary.parquet"] = large.results.packed_rows.read_bytes()
    with pytest.raises(MalformedFileError):
        verify.check_rows(Path("bundle"), rows, large.results.root / "wrong")


def test_only_large_runs_need_pyarrow(tmp_path: Path) -> None:
    run = Run(tmp_path, watch=usage_of)
    block = "import sys; sys.modules['pyarrow'] = None; sys.modules['pyarrow.parquet'] = None; "
    small = f"{block}from harness import aggregate; aggregate.stage({run.folders!r})"
    subprocess.run([sys.executable, "-c", small], check=True, capture_output=True)
    patched = f"{block}from harness.core import cli, packed; packed.PACK_FROM = 3; from harness import aggregate; "
    done = subprocess.run(
        [sys.executable, "-c", f"{patched}sys.argv = ['x', *{run.folders!r}]; cli.main(aggregate.stage)"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 5
    assert "needs pyarrow" in done.stderr
    assert "pip install 'inferometer[parquet]'" in done.stderr


def test_watch_shows_packed_results_and_newer_files(large: Run) -> None:
    done = sum(1 for _ in large.made.records())
    watched = WatchedFolder(large.results)
    result = watched.look()
    assert result is not None
    assert result.done == done
    assert not result.notes
    again = measured(EAGER, MINILM, 1, 50, seed=7)
    store.save_raw(large.results.raw_file(again.case_id, 1), again)
    now = watched.look()
    assert now is not None
    assert now.done == done
    medians = [next(row.median_ns for row in entry.rows if row.case_id == again.case_id) for entry in (result, now)]
    assert medians[0] != medians[1]


def test_a_look_makes_only_the_models_again_that_changed(large: Run) -> None:
    watched = WatchedFolder(large.results)
    first = watched.look()
    again = measured(EAGER, MINILM, 1, 50, seed=7)
    store.save_raw(large.results.raw_file(again.case_id, 1), again)
    second = watched.look()
    assert first is not None
    assert second is not None
    kept = {row.case_id: row is old for row, old in zip(second.rows, first.rows, strict=True)}
    assert not kept[EAGER.case_id]
    assert all(kept[case.case_id] for case in CASES if case.model == EFFICIENTNET.name)
    fresh = WatchedFolder(large.results).look()
    assert fresh is not None
    assert second.rows == fresh.rows
    assert (second.done, second.failed, second.state) == (fresh.done, fresh.failed, fresh.state)


def test_watch_reads_many_packed_results_bit_by_bit(large: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.live.reader._READING_NS", -1)
    watched = WatchedFolder(large.results)
    first = watched.look()
    assert first is not None
    assert first.notes == ("Reading earlier results: 0 of 2 models.",)
    assert watched.pause_s == 1.0
    monkeypatch.setattr("harness.live.reader._READING_NS", 10**12)
    second = watched.look()
    assert second is not None
    assert not second.notes


def test_the_live_page_gets_the_cases_that_matter(large: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_ROWS", 1)
    result = WatchedFolder(large.results).look()
    assert result is not None
    kept = server.most_urgent(result)
    assert [row.case_id for row in kept.rows] == [BROKEN]
    assert "1 of 12 cases are shown" in kept.notes[-1]
    assert server.most_urgent(kept) == kept


def test_a_large_summary_is_kept_with_its_rows(large: Run, tmp_path: Path) -> None:
    result = large.aggregate()
    path = Results(tmp_path / "kept").summary
    store.save_summary(path, result)
    assert store.load(path, Summary, "make aggregate") == result
    assert CASES[0].case_id.encode() not in path.read_bytes()
