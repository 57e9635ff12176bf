"""ONNX files of kinds that users have: measured by every backend that reads them, or refused with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from harness.core.errors import ExportError
from tests.fixtures import odd_onnx as files
from tests.fixtures.stages import ROOT, Folder

pytestmark = pytest.mark.stages

BACKENDS = ("onnxruntime", "openvino")


def test_odd_files_are_measured_and_have_a_chart_each(own: Folder) -> None:
    """On a terminal that has only ASCII, from a path that is longer than a file's name may be."""
    inside = os.path.relpath(own.root, ROOT)
    long = own.root / "/".join(["f" * 50] * 9)[: 270 - len(inside)] / "modèle.onnx"
    paths = [
        files.linear(own.root / "a/model.onnx"),
        files.linear(own.root / "a-model.onnx", x="model/in:0", y="model.out/Identity:0"),
        files.linear(long, x="file", y="allow_pickle"),
        *(files.behind_identity(own.root / "identity.onnx"), files.pooling(own.root / "pool.onnx")),
        *(files.pixels(own.root / "pixels.onnx"), files.lookups(own.root / "ids.onnx")),
        *(files.states(own.root / "states.onnx"), files.quantised(own.root / "quantised.onnx")),
        *(files.in_half(own.root / "half.ONNX"), files.with_scale(own.root / "scale.onnx")),
        files.with_function(own.root / "function.onnx"),
    ]
    assert 265 < len(os.path.relpath(long, ROOT)) < 290
    own.environment = {"PYTHONIOENCODING": "ascii", "LANG": "C", "LC_ALL": "C"}
    names = [f"onnx:{os.path.relpath(path, ROOT)}" for path in paths]
    plan = own.plan({"backends": list(BACKENDS), "precisions": ["fp32"]}, models=tuple(names))
    exported = own("export")
    assert exported.returncode == 0, exported.stderr
    ran = own("run")
    assert ran.returncode == 0, ran.stderr
    rows = own.summary().rows
    assert len(rows) == len(paths) * len(BACKENDS)
    sound = {row.case_id for row in rows if row.status == "measured" and row.grade != "F"}
    lost = {row.case_id: row.reason or [flag.detail for flag in row.flags] for row in rows if row.case_id not in sound}
    assert lost == {}
    assert {row.precision for row in rows if "quantised" in row.case_id} == {"int8"}
    assert {row.precision for row in rows if "quantised" not in row.case_id} == {"fp32"}

    reported = own("report", "--print")
    assert reported.returncode == 0, reported.stderr
    charts = {path.name for path in own.results.charts.glob("*-latency.png")}
    assert charts == {f"{model.slug}-latency.png" for model in plan.models}


@pytest.mark.parametrize(
    "makers",
    [
        # quantised, but not in pairs of bytes
        (files.with_bytes, files.with_four_bits, files.with_nodes_for_weights),
        # control flow, strings
        pytest.param((files.branching, files.looping, files.words), marks=pytest.mark.slow),
        # shared inputs, a batch in the second axis
        pytest.param((files.tempered, files.stepping, files.masked), marks=pytest.mark.slow),
        pytest.param((files.small_table, files.newest, files.seven, files.one_inside), marks=pytest.mark.slow),
    ],
)
def test_inputs_of_every_kind_are_made_up_and_taken(makers: tuple[Callable[[Path], Path], ...], own: Folder) -> None:
    paths = [make(own.root / f"{make.__name__}.onnx") for make in makers]
    own.plan({"backends": list(BACKENDS)}, models=tuple(f"onnx:{path}" for path in paths))
    exported = own("export")
    assert exported.returncode == 0, exported.stderr
    ran = own("run")
    assert ran.returncode in (0, 10), ran.stderr
    rows = {(Path(row.model).stem, row.backend): row for row in own.summary().rows}
    assert len(rows) == 2 * len(paths)
    assert {row.precision for row in rows.values()} == {"fp32"}
    lost = {
        name: row.reason or [flag.detail for flag in row.flags]
        for name, row in rows.items()
        if row.status != "measured" or row.grade == "F"
    }
    strings = {("words", "openvino"): "load: Input `word` contains strings, which OpenVINO does not take."}
    assert lost == (strings if files.words in makers else {})


def test_activations_that_a_file_makes_bytes_while_running_make_rows_of_int8(own: Folder) -> None:
    own.plan({"backends": list(BACKENDS)}, models=(f"onnx:{files.with_bytes_in_int8(own.root / 'm.onnx')}",))
    assert own("export").returncode == 0
    assert own("run").returncode == 0
    rows = {row.backend: row for row in own.summary().rows}
    measured = rows["onnxruntime"].placement
    assert measured is not None
    assert (rows["onnxruntime"].precision, measured.precision, measured.settings["int8_kernels"]) == ("int8", "int8", 1)
    assert rows["openvino"].reason is not None
    assert rows["openvino"].reason.startswith("OpenVINO would run this dynamically quantised file in fp32")


def test_a_fixed_batch_and_a_type_without_a_label_are_reasons_of_their_rows(own: Folder) -> None:
    paths = files.one_at_a_time(own.root / "one.onnx"), files.in_double(own.root / "double.onnx")
    own.plan({"backends": ["onnxruntime"], "batch_sizes": [1, 4]}, models=tuple(f"onnx:{path}" for path in paths))
    assert own("export").returncode == 0
    own("run")
    said = {(Path(row.model).stem, row.batch_size): row.reason or row.status for row in own.summary().rows}
    assert said[("one", 1)] == "measured"
    assert said[("one", 4)] == "the file is fixed to batch size 1: BATCHES=1 measures it"
    assert all("computes in fp64" in said[("double", batch)] for batch in (1, 4))


def test_no_batch_size_is_advised_that_is_refused_as_well(own: Folder) -> None:
    """One number for the whole batch has no batch axis at batch 1 either."""
    mean = of_nodes(helper.make_node("ReduceMean", ["x"], ["y"], keepdims=0))(own.root / "mean.onnx")
    own.plan({"backends": ["onnxruntime"], "batch_sizes": [2]}, models=(f"onnx:{mean}",))
    said = own("export").stderr
    assert "no batch axis: its shape is () for 1 sample" in said
    assert "leave `y` out of its result" in said
    assert "plan that alone" not in said


def damaged(path: Path) -> Path:
    content = files.linear(path).read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


def without_weights(path: Path) -> Path:
    files.linear(path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    path.with_name("weights.bin").unlink()
    return path


def of_nodes(*nodes: Any) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        return files.save(
            path,
            nodes,
            [files.info("x", ["N", 8])],
            [files.info("y", ["N", 8])],
            [files.weight("w", 8, 8), files.constant("half", np.float32(0.5)), files.constant("yes", True)],
        )

    return write


def without_batch(path: Path) -> Path:
    """A picture of three channels, and nothing for its first axis to say so."""
    mix = helper.make_node("MatMul", ["w", "x"], ["y"])
    return files.save(path, [mix], [files.info("x", [3, 16])], [files.info("y", [3, 16])], [files.weight("w", 3, 3)])


def centred(path: Path) -> Path:
    """A fixed batch, of which each answer has the mean of all."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["y"]),
    ]
    return files.save(path, nodes, [files.info("x", [4, 8])], [files.info("y", [4, 8])])


def without_graph(path: Path) -> Path:
    """An empty file."""
    path.touch()
    return path


def with_half_the_weights(path: Path) -> Path:
    """Its weights are in another file, half of which was copied."""
    files.linear(path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    weights = path.with_name("weights.bin")
    weights.write_bytes(weights.read_bytes()[:64])
    return path


REFUSED: dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]] = {
    "an IR version that is too new": (
        lambda path: files.linear(path, ir_version=99),
        ("IR version 99, opset 17", "max supported IR version", "m.ir_version = 10"),
    ),
    "an operator set that is too new": (
        lambda path: files.linear(path, opset=99),
        ("opset 99", "convert_version"),
    ),
    "an unknown operator": (
        of_nodes(helper.make_node("Sparkle", ["x"], ["y"])),
        ("No Op registered for Sparkle", "no such operator"),
    ),
    "half a file": (damaged, ("cannot be read as ONNX", "A download may have stopped")),
    "no graph": (without_graph, ("No graph was found", "Is it a whole ONNX file?")),
    "half of the weights": (with_half_the_weights, ("given file_length: 64", "Put the whole file that holds")),
    "complex numbers": (
        lambda path: files.save(
            path,
            [helper.make_node("Identity", ["x"], ["y"])],
            [files.info("x", ["N", 8], TensorProto.COMPLEX64)],
            [files.info("y", ["N", 8], TensorProto.COMPLEX64)],
        ),
        ("tensor(complex64)", "real numbers in place of complex ones"),
    ),
    "weights that are not there": (without_weights, ("keeps weights in 'weights.bin'", "Put weights.bin beside")),
    "random numbers": (
        of_nodes(helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"])),
        ("draws random numbers", "In the file: RandomNormalLike"),
    ),
    "dropout at work": (
        of_nodes(helper.make_node("Dropout", ["x", "half", "yes"], ["y"])),
        ("draws random numbers", "Dropout in training mode"),
    ),
    "NaN": (of_nodes(helper.make_node("Log", ["x"], ["y"])), ("Output `y`", "is NaN in")),
    "no batch axis": (
        of_nodes(helper.make_node("ReduceMean", ["x"], ["y"], keepdims=0)),
        ("Output `y`", "no batch axis: its shape is () for 1 sample"),
    ),
    "a mean over a fixed batch": (
        centred,
        ("depends on the rest of its batch", "in its batch of 4 with other samples", "output `y` differs"),
    ),
    "channels in place of a batch": (
        without_batch,
        ("depends on the rest of its batch", "in its batch of 3 in reverse order", "Is the first axis of its inputs"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_is_refused_with_the_reason_and_no_word_of_an_exporter(case: str, tmp_path: Path) -> None:
    write, words = REFUSED[case]
    path = write(tmp_path / "model.onnx")
    with pytest.raises(ExportError) as caught:
        diagnose(path)
    said = f"{caught.value.problem} {caught.value.hint}"
    assert all(word in said for word in words), said
    assert "exporter" not in said


def diagnose(path: Path) -> None:
    """What an export asks of a file before it writes anything."""
    from harness.statistics.parity import compare
    from harness.zoo import model_info
    from harness.zoo.families import own_onnx
    from harness.zoo.loaded import Request
    from harness.zoo.reference import output_batch_axes, reference_of

    info = model_info(f"onnx:{path}")
    loaded = own_onnx.load(Request(info, "own", 0, None, path.parent))
    output_batch_axes(info.name, loaded, reference_of(loaded, 1), loaded.make_inputs(9, None).arrays, compare)


def test_values_are_made_up_for_every_type_within_the_graphs_tables(tmp_path: Path) -> None:
    from harness.zoo import model_info
    from harness.zoo.families import own_onnx
    from harness.zoo.loaded import Request

    def inputs(path: Path) -> tuple[Any, str]:
        loaded = own_onnx.load(Request(model_info(f"onnx:{path}"), "own", 0, None, tmp_path))
        made = loaded.make_inputs(16, None)
        (values,) = made.arrays.values()
        return values, made.source

    image, source = inputs(files.pixels(tmp_path / "pixels.onnx"))
    assert (image.dtype, image.shape) == ("uint8", (16, 8, 8, 3))
    assert image.max() > 200
    assert "from 0 to 255" in source
    ids, source = inputs(files.lookups(tmp_path / "ids.onnx"))
    assert (ids.dtype, ids.shape) == ("int64", (16, 128))
    assert 0 <= ids.min() < ids.max() <= 99
    assert "its free axes (seq) taken as 128" in source


@pytest.mark.slow
def test_a_file_that_never_ends_is_a_row_that_says_so_and_the_others_go_on(own: Folder) -> None:
    paths = [files.endless(own.root / "endless.onnx"), files.linear(own.root / "linear.onnx")]
    names = tuple(f"onnx:{os.path.relpath(path, ROOT)}" for path in paths)
    own.plan({"backends": ["onnxruntime"]}, models=names, export_timeout_s=40.0)
    exported = own("export")
    assert exported.returncode == 10, exported.stderr
    assert own("run").returncode == 10
    endless, linear = own.summary().rows
    assert endless.status == "failed"
    assert "timed out: it did not end within 40 s" in (endless.reason or "")
    assert linear.status == "measured"
