"""Every file that a stage reads from a shared folder has a limit of size, declared in core/safe_files.py."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness import bundle, report
from harness.core import archive, hints, store
from harness.core.errors import ExportError, InferometerError, MalformedFileError, UsageError
from harness.core.layout import Results
from harness.core.safe_files import SizeLimit, read, read_text
from harness.core.schemas import Artifact, Plan
from harness.core.schemas.profile_record import OperatorRow, PartsProfile
from harness.planning import config
from harness.profiling.read_profiles import with_launch_gaps
from harness.zoo import input_files, model_files
from harness.zoo.input_files import describe_inputs, read_arrays, read_npz, write_arrays
from tests.synthetic_results import RESNET, case_of, measured, plan_of

HARNESS = Path(__file__).parents[2] / "harness"
READS = ("read_bytes", "read_text", "open", "load")
OWN_FILES = {
    "the kernel's": (
        "harness.core.lock",
        "harness.core.host.environment",
        "harness.core.host.limits",
        "harness.core.host.environment",
        "harness.core.host.orphans",
        "harness.timing.process_counters",
        "harness.timing.process_counters",
        "harness.monitoring.cpu_probe",
        "harness.processes.device_slots",
    ),
    "of the installed package or a distribution": (
        "harness.__main__",
        "harness.core.plugin_discovery",
        "harness.reporting.html.embedded",
        "harness.reporting.html.history_page",
        "harness.live.server",
        "harness.zoo.inputs.sentences",
    ),
    "in a temporary folder of the process that wrote them a moment ago": (
        "harness.backends.onnxruntime.cuda",
        "harness.backends.onnxruntime.decoder_cuda",
        "harness.backends.onnxruntime.decoder",
        "harness.backends.onnxruntime.placement",
        "harness.backends.onnxruntime.profile_cpu",
        "harness.backends.onnxruntime.profile_cuda",
        "harness.backends.torch.profile_memory",
        "harness.runners.execution",
        "harness.spread",
        "harness.verify",
    ),
    "of a model, of the size that its record has, or the user's own": (
        "harness.backends.onnx_node_names",
        "harness.backends.onnxruntime.genai_decoder",
        "harness.runners.ray_runner",
        "harness.zoo.generation.onnx_decoder",
        "harness.backends.tensorrt.runtime",
        "harness.backends.cudnn.runtime",
        "harness.zoo.construct",
        "harness.zoo.families.efficientnet",
        "harness.zoo.families.exported_program",
        "harness.zoo.onnx.int8",
        "harness.zoo.cost.onnx_counts",
        "harness.zoo.onnx.external_data",
        "harness.zoo.onnx.torch_to_onnx",
        "harness.zoo.reference",
        "harness.zoo.onnx.variants",
        "harness.zoo.families.own_onnx",
        "harness.zoo.file_graph",
    ),
    "opened from memory or to be written, or npz of a limited size": (
        "harness.compare",
        "harness.processes.copies",
        "harness.timing.windows",
        "harness.runners.local_runner",
        "harness.core.archive",
        "harness.core.cli",
        "harness.core.content_addressed",
        "harness.processes.worker",
        "harness.zoo.inputs.preprocessing",
        "harness.zoo.inputs.sounds",
        "harness.zoo.input_files",
        "harness.zoo.quiet",
    ),
    "what reads up to a limit": (
        "harness.core.safe_files",
        "harness.core.store",
        "harness.planning.run_store",
    ),
}
"""Modules that read a file without `read` of core/safe_files.py, by what that file is."""


def reads_a_file(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Name):
        return called.id in ("open", "load_file")
    if not isinstance(called, ast.Attribute) or called.attr not in READS:
        return False
    # `load` is a common name: of a library that takes a path, here.
    owner = ast.unparse(called.value)
    if owner == "store":
        return False
    return called.attr != "load" or owner in ("np", "numpy", "onnx", "torch", "torch.export", "json", "pickle")


def test_no_other_module_reads_a_file_without_a_limit() -> None:
    listed = {name for names in OWN_FILES.values() for name in names}
    results = {
        ".".join(path.relative_to(HARNESS.parent).with_suffix("").parts)
        for path in HARNESS.rglob("*.py")
        if any(reads_a_file(node) for node in ast.walk(ast.parse(path.read_text())))
    }
    assert results == listed


def sparse(path: Path, size: int) -> Path:
    """A file that has a size and takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path


def planned(root: Path) -> Results:
    results = Results(root)
    store.save(results.plan, plan_of([RESNET], [case_of(RESNET, "noop", "fp32", 1)]))
    return results


READERS: dict[str, Callable[[Path], object]] = {
    "record": lambda root: store.load(sparse(root / "plan.json", SizeLimit.RECORD + 1), Plan, "make plan"),
    "raw record": lambda root: store.load_raw(sparse(root / "1.json", SizeLimit.RECORD + 1)),
    "bundle": lambda root: archive.unpack(sparse(root / "x.tar.xz", SizeLimit.BUNDLE + 1)),
    "configuration": lambda root: config.read_yaml(sparse(root / "x.yaml", SizeLimit.TEXT + 1)),
    "table, page or chart that is packed": lambda root: bundle.packed_content(
        sparse(root / "report.md", SizeLimit.RECORD + 1), Results(root)
    ),
    "command": lambda root: read_text(sparse(root / "command.txt", SizeLimit.TEXT + 1), SizeLimit.TEXT),
    "trace": lambda root: read(sparse(root / "x.trace.json", SizeLimit.TRACE + 1), SizeLimit.TRACE),
    "artifact": lambda root: store.check_artifact(
        root, Artifact(path=sparse(root / "model.onnx", 1 << 40).name, sha256="0" * 64, size_bytes=100), "make export"
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_too_large_is_refused_in_two_lines(name: str, tmp_path: Path) -> None:
    with pytest.raises(InferometerError) as caught:
        READERS[name](tmp_path)
    assert caught.value.exit_code in (2, 4)
    assert "\n" not in caught.value.problem + caught.value.hint


def bomb(path: Path, size: int) -> Path:
    """An npz whose array has so many bytes, and which is small itself."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("x.npy", "w") as entry:
        header = {"descr": "|u1", "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(entry, header)
        for _ in range(size >> 20):
            entry.write(bytes(1 << 20))
    return path


def test_arrays_that_unpack_to_more_are_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bomb(tmp_path / "inputs.npz", 64 << 20)
    assert path.stat().st_size < 1 << 20
    assert read_npz(path)["x"].nbytes == 64 << 20
    monkeypatch.setattr(input_files, "SizeLimit", type("Small", (), {"ARRAYS": 32 << 20}))
    for reader in (read_arrays, lambda file: describe_inputs([str(file)], "tensor")):
        with pytest.raises(MalformedFileError, match="unpacks to more than 33,554,432 bytes"):
            reader(path)
    with pytest.raises(ExportError, match="33,554,432 are the most that is read"):
        write_arrays(tmp_path / "more.npz", {"x": np.zeros(40 << 20, np.uint8)})


def test_an_array_that_claims_more_than_it_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    with zipfile.ZipFile(path, "w") as packed, packed.open("x.npy", "w") as entry:
        np.lib.format.write_array_header_1_0(entry, {"descr": "<f8", "fortran_order": False, "shape": (1 << 58,)})
    with pytest.raises(MalformedFileError):
        read_arrays(path)


def test_a_setting_of_a_model_folder_that_is_too_large_says_nothing(tmp_path: Path) -> None:
    sparse(tmp_path / "config.json", SizeLimit.TEXT + 1)
    assert model_files.media_of(str(tmp_path)) == "text"


def test_a_trace_that_is_too_large_is_warned_of(tmp_path: Path) -> None:
    said: list[str] = []
    name = sparse(tmp_path / "x.trace.json", SizeLimit.TRACE + 1).name
    kernel = OperatorRow(name="kernel", shapes="", calls=1, self_cpu_ns=0, self_device_ns=200)
    profile = PartsProfile(layers=(), operators=(kernel,), traces=(name,), window_ns=300, plain_ns=300)
    result = with_launch_gaps(profile, tmp_path, said.append)
    assert result.launch_gaps is None
    assert "is no trace that can be read" in said[0]


def test_the_command_of_a_folder_that_is_too_large_ends_a_report_and_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = planned(tmp_path)
    sparse(results.command, SizeLimit.TEXT + 1)
    monkeypatch.chdir(tmp_path)
    assert hints.of_stage("report", ["--results", str(tmp_path)], "make").planned == {"RESULTS": str(tmp_path)}
    with pytest.raises(InferometerError):
        report.stage(["--results", str(tmp_path)])


def test_nothing_is_written_that_no_stage_could_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_RECORD_BYTES", 200)
    for write in (
        lambda: planned(tmp_path),
        lambda: store.save_raw(tmp_path / "1.json", measured(case_of(RESNET, "noop", "fp32", 1), RESNET, 1, 60)),
    ):
        with pytest.raises(UsageError, match="200 are the most that is read"):
            write()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(UsageError, match="a bundle's reader takes"):
        archive.pack({"a": b"x" * 2000}, "x")
