"""Paths: one place, no two files in the same one."""

from __future__ import annotations

from pathlib import Path

from harness.core.layout import Models, Results


def test_no_two_files_share_a_path() -> None:
    results, folder = Results(Path("r")), Models(Path("m")).folder("resnet50")
    paths = [
        *(results.plan, results.lock, results.raw, results.summary, results.summary_csv, results.report, results.roof),
        *(results.comparison, results.comparison_report, results.junit),
        *(results.charts, results.environments, results.environment("e"), results.worker_log("noop")),
        *(results.raw_file("c", 1), results.raw_file("c", 2), results.raw_file("d", 1), results.log_file("c", 1)),
        *(folder.record, folder.weights, folder.compile_cache, folder.onnx("fp32"), folder.onnx("fp16")),
        *(folder.inputs(None), folder.inputs(8), folder.inputs(16), folder.reference(None), folder.reference(8)),
    ]
    assert len(set(paths)) == len(paths)
    assert {path.parts[0] for path in paths} == {"r", "m"}


def test_paths_are_those_of_the_documentation() -> None:
    assert Results(Path("r")).raw_file("resnet50-noop-cpu-fp32-b1", 2) == Path("r/raw/resnet50-noop-cpu-fp32-b1/2.json")
    assert Models(Path("m")).folder("resnet50").record == Path("m/resnet50/export.json")
    assert Models(Path("m")).folder("bert").inputs(128) == Path("m/bert/inputs-s128.npz")
