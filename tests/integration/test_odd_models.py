"""Models of kinds that users have: one that cannot be measured says why and stops no other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import pytest

from harness.core import store
from harness.core.errors import ConfigError, ExportError
from harness.core.schemas import Failed, Measured, Plan, Row
from harness.core.schemas.profile_record import ModelProfile, PartsProfile
from tests.fixtures.forked import run_forked
from tests.fixtures.stages import ROOT, Folder

if TYPE_CHECKING:
    from harness.zoo.loaded import Loaded

pytestmark = pytest.mark.stages

ODD = "module:tests.fixtures.odd_models:"
ONE = {"backends": ["torch-eager"]}


def bench(folder: Folder, *names: str, backends: tuple[str, ...] = ("torch-eager",)) -> dict[str, Row]:
    """Plan, export, run, aggregate and report; by model (of one backend), or `model backend`."""
    folder.plan({"backends": list(backends)}, models=names)
    assert folder("export").returncode in (0, 8, 10)
    # In a worker that is a fork of the tests' server, a model does not see the worker's command line.
    ran = (folder.subprocess if f"{ODD}leaving_late" in names else folder)("run")
    assert ran.returncode in (0, 10), ran.stderr
    rows = folder.summary().rows
    reported = folder("report", "--no-charts")
    assert reported.returncode == 0, reported.stderr
    short = {row.case_id: row.model.removeprefix(ODD) for row in rows}
    return {short[row.case_id] if len(backends) == 1 else f"{short[row.case_id]} {row.backend}": row for row in rows}


def test_weights_that_were_made_fp32_are_reported_by_export_and_report(own: Folder) -> None:
    said = "The module's fp16 and fp64 weights were converted to fp32, for the export and the reference."
    own.plan(ONE, models=[f"{ODD}mixed", f"{ODD}plain"])
    exported = own("export")
    assert exported.returncode == 0, exported.stderr
    assert [line for line in exported.stdout.splitlines() if "converted" in line] == [f"{ODD}mixed: {said}"]
    for stage in ("run", "aggregate", "report"):
        done = own(stage, *(["--no-charts"] if stage == "report" else []))
        assert done.returncode == 0, done.stderr
    assert own.results.report_details.read_text().count(said) == 1
    assert said.replace("'", "&#x27;") in own.results.report_page.read_text().replace("&#39;", "&#x27;")


FAULTS = {
    "crashing": "crashed with signal 11",
    "leaving": "ended its own process with exit code 0",
    "exits": "SystemExit: there is no GPU here",
    "plain": "measured",
    "endless": "RecursionError",
    "no_exception": "NoException: not even an Exception",
    "refused_file": "Permission denied: '/data/weights.bin'",
    "leaving_late": "SystemExit: no licence here",
    "daemons": "measured",
}


@pytest.mark.parametrize("names", [tuple(FAULTS)[:4], pytest.param(tuple(FAULTS), marks=pytest.mark.slow)])
def test_damage_of_a_models_code_to_its_process_is_its_own_failed_row(names: tuple[str, ...], own: Folder) -> None:
    rows = bench(own, *(f"{ODD}{name}" for name in names))
    said = {name: row.reason or row.status for name, row in rows.items()}
    assert {name: FAULTS[name] in text for name, text in said.items()} == dict.fromkeys(names, True), said
    crash = own.results.export(rows["crashing"].case_id.partition("-torch")[0]).failure_log.read_text()
    assert "odd_models.py" in crash


@pytest.mark.parametrize(
    "names",
    [
        ("in_place", "drawing"),
        ("batched", "answering", "any_number"),
        ("namesakes", "alone"),
        pytest.param(("turning", "program", "listed"), marks=pytest.mark.slow),
        pytest.param(("masked", "pixels"), marks=pytest.mark.slow),
        pytest.param(("softmax", "digits", "states", "lazy"), marks=pytest.mark.slow),
        pytest.param(("named", "nested", "tempered", "a_number"), marks=pytest.mark.slow),
        pytest.param(("stepping", "hiding"), marks=pytest.mark.slow),
    ],
)
def test_odd_modules_are_measured_by_every_backend(names: tuple[str, ...], own: Folder) -> None:
    backends = ("torch-eager", "torch-script", "onnxruntime", "openvino")
    rows = bench(own, *(f"{ODD}{name}" for name in names), backends=backends)
    assert len(rows) == len(names) * len(backends)
    sound = {name for name, row in rows.items() if row.status == "measured" and row.grade != "F"}
    lost = {name: row.reason or [flag.detail for flag in row.flags] for name, row in rows.items() if name not in sound}
    unread = {"turning openvino"} & lost.keys()  # OpenVINO 2026.4 answers complex products in another shape
    assert lost.keys() == unread, lost
    copied = [record.placement.settings.get("inputs_copied") for record in own.records().values() if is_torch(record)]
    assert [name for name in copied if name] == ["x"] * 2 * ("in_place" in names), "said where it works on its input"


@pytest.mark.parametrize("others", [(), pytest.param(("torch-compile", "torch-aoti"), marks=pytest.mark.slow)])
def test_torchscript_is_measured_under_no_other_name(others: tuple[str, ...], own: Folder) -> None:
    rows = bench(own, f"{ODD}traced", f"{ODD}around_torchscript", backends=("torch-eager", "torch-script", *others))
    for name, row in rows.items():
        if name.endswith("torch-script"):
            assert (row.status, row.grade != "F") == ("measured", True), name
        else:
            assert "is TorchScript already" in (row.reason or row.status), name


def test_a_model_of_one_sample_is_measured_where_that_is_all_that_is_planned(own: Folder) -> None:
    own.plan({**ONE, "batch_sizes": [1, 4]}, models=(f"{ODD}one_graph",))
    refused = own("export")
    assert refused.returncode != 0
    assert "Output `output` of module:tests.fixtures.odd_models:one_graph has no batch axis" in refused.stderr
    assert "takes only the batch size of its examples: plan that alone" in refused.stderr
    rows = bench(own, f"{ODD}one_graph", backends=("torch-eager", "onnxruntime"))
    assert {name: (row.status, row.grade != "F") for name, row in rows.items()} == {
        "one_graph torch-eager": ("measured", True),
        "one_graph onnxruntime": ("measured", True),
    }


def is_torch(record: Measured | Failed) -> TypeGuard[Measured]:
    return isinstance(record, Measured) and record.placement.provider in ("ATen", "TorchScript")


@pytest.mark.slow
def test_a_wrong_precision_stays_void(own: Folder) -> None:
    """Without weights too: bf16 is what the label says and fp32 what runs where a backend has no bf16 for it."""
    own.plan({"backends": ["torch-eager"], "precisions": ["fp32", "bf16"]}, models=(f"{ODD}softmax",))
    assert own("export").returncode == 0
    own("run")
    assert {row.precision: row.grade != "F" for row in own.summary().rows} == {"fp32": True, "bf16": True}
    for (case_id, number), record in own.records().items():
        assert isinstance(record, Measured)
        assert record.placement.precision == ("bf16" if "bf16" in case_id else "fp32")
        swapped = {"fp32": "bf16", "bf16": "fp32"}[record.placement.precision]
        placement = record.placement.model_copy(update={"precision": swapped})
        store.save_raw(own.results.raw_file(case_id, number), record.model_copy(update={"placement": placement}))
    assert {row.grade for row in own.summary().rows} == {"F"}


def test_equal_outputs_of_a_model_that_answers_all_inputs_alike_show_nothing(own: Folder) -> None:
    (row,) = bench(own, f"{ODD}alike").values()
    (flag,) = [flag for flag in row.flags if flag.name == "PARITY_UNCHECKED"]
    assert (row.grade, flag.caps_at) == ("C", "C")
    assert "a wrong answer would pass for a right one" in flag.detail


def test_a_model_for_which_no_new_sample_can_be_made_is_measured_and_says_so(own: Folder) -> None:
    reasons = {
        "one_hot": "no new sample can be made of the export's samples",
        "whole_numbers": "the model refuses new samples: ConfigError: The forward of WholeNumbers raised ValueError: "
        "whole numbers alone (its inputs: float32[8, 8])",
        "plain": None,
    }
    rows = bench(own, *(f"{ODD}{name}" for name in reasons))
    assert {name: row.checks["NEW_ANSWERS"].missing for name, row in rows.items()} == reasons
    unchecked = {n: [flag.detail for flag in row.flags if flag.name == "UNCHECKED"] for n, row in rows.items()}
    for name, why in reasons.items():
        assert any("NEW_ANSWERS not made" in text and str(why) in text for text in unchecked[name]) is (why is not None)


@pytest.mark.slow
def test_a_gradient_by_a_function_transform_is_measured(own: Folder) -> None:
    (row,) = bench(own, f"{ODD}forced_by_function").values()
    assert (row.status, row.grade != "F") == ("measured", True)


def test_a_module_that_cannot_run_below_the_counter_has_no_count(tmp_path: Path) -> None:
    from harness.zoo import model_info
    from harness.zoo.construct import family_of
    from harness.zoo.cost.torch_counts import work_of
    from harness.zoo.loaded import Request

    info = model_info(f"{ODD}forced_anywhere")
    loaded = family_of(info).load(Request(info, "own", 0, None, tmp_path))
    assert work_of(loaded, {None: loaded.make_inputs(8, None)}) == ()


def test_a_module_that_cannot_run_below_the_counter_is_profiled_and_says_why_it_has_no_flops(
    own: Folder,
) -> None:
    own.plan({"backends": ["torch-eager"]}, models=(f"{ODD}unwatched",))
    exported = own("export")
    assert exported.returncode == 0, exported.stderr
    why = "the module does not run below PyTorch's counter"
    profiled = own("profile_ops", "--runs", "3")
    assert profiled.returncode == 0, profiled.stderr
    (case,) = store.load(own.results.plan, Plan, "make plan").cases
    model = store.load(own.results.model_profile(case.case_id), ModelProfile, "make profile")
    assert f"counted in the ONNX graph alone: {why}" in model.count_notes
    assert model.activation_bytes_by == f"not estimated: {why}"
    parts = store.load(own.results.parts_profile(case.case_id), PartsProfile, "make profile")
    assert parts.layers
    assert {layer.flops for layer in parts.layers} == {None}
    assert f"No FLOPs by layer: {why}." in parts.notes


def test_a_value_that_a_trace_fixed_is_the_reason_of_wrong_answers(own: Folder) -> None:
    (row,) = bench(own, f"{ODD}branching", backends=("torch-script",)).values()
    (flag,) = [flag for flag in row.flags if flag.name == "PARITY_FAIL"]
    assert row.grade == "F"
    assert "Converting a tensor to a Python boolean (odd_models.py:" in flag.detail
    assert "leave torch-script out" in flag.remedy


def test_zeros_where_a_mask_hides_a_place_are_the_reason_of_a_missing_file(own: Folder) -> None:
    rows = bench(own, f"{ODD}padded", backends=("torch-eager", "onnxruntime"))
    assert rows["padded torch-eager"].status == "measured"
    refused = rows["padded onnxruntime"]
    assert "`output` is" in (refused.reason or "")
    assert "build it with enable_nested_tensor=False" in (refused.hint or "")


def test_whether_to_compile_is_for_the_backend_to_say(tmp_path: Path) -> None:
    from harness.zoo import model_info
    from harness.zoo.families.own_module import architecture

    module = architecture(model_info(f"{ODD}compiled"), tmp_path)
    assert {type(part).__name__ for part in module.modules()} == {"Sequential", "Reading", "Linear", "ReLU"}
    assert all(part._compiled_call_impl is None for part in module.modules())
    assert list(module.state_dict()) == ["0.linear.weight", "0.linear.bias"]


def test_decorated_functions_run_as_they_are_written(tmp_path: Path) -> None:
    import torch
    from torch._dynamo.utils import counters

    from harness.zoo import model_info
    from harness.zoo.families.own_module import architecture

    before = counters["stats"]["unique_graphs"]
    module = architecture(model_info(f"{ODD}decorated"), tmp_path)
    traced = torch.jit.trace(module, torch.ones(2, 8))  # PyTorch refuses to trace what torch.compile has wrapped
    assert traced(torch.ones(3, 8)).shape == (3, 4)
    assert counters["stats"]["unique_graphs"] == before
    assert torch.compile(module, backend="eager")(torch.ones(2, 8)).shape == (2, 4)
    assert counters["stats"]["unique_graphs"] == before + 1, "torch.compile works again"


def test_a_traced_module_has_numbered_inputs(tmp_path: Path) -> None:
    from harness.zoo import model_info
    from harness.zoo.construct import family_of
    from harness.zoo.loaded import Request

    info = model_info(f"{ODD}traced")
    assert family_of(info).load(Request(info, "own", 0, None, tmp_path)).input_names == ("input_0",)


def test_examples_may_be_given_by_the_names_of_forwards_parameters(tmp_path: Path) -> None:
    from harness.zoo import model_info
    from harness.zoo.construct import family_of
    from harness.zoo.loaded import Request

    def load(name: str) -> Loaded:
        info = model_info(ODD + name)
        loaded: Loaded = family_of(info).load(Request(info, "own", 0, None, tmp_path))
        return loaded

    keyed, ordered = load("keyed"), load("hiding")
    assert keyed.input_names == ordered.input_names == ("ids", "mask")
    for name, values in ordered.make_inputs(8, None).arrays.items():
        assert (keyed.make_inputs(8, None).arrays[name] == values).all()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("noisy", ("draws random numbers", "output `output` differs", "dropout: training=False")),
        ("counting", ("keeps a state from one call to the next", "set it back")),
        ("skipping", ("keeps a state from one call to the next", "set it back")),
        ("coupled", ("depends on the rest of its batch", "In training mode: `norm` (BatchNorm1d)")),
        (
            "averaged",
            ("Output `output_1`", "no batch axis: its shape is (4,) for 1 sample", "leave `output_1` out"),
        ),
        ("unlisted", ("has inputs 2 by place; its forward takes x", "takes a list: `([tensor, …],)`")),
        ("by_place", ("2 by place; its forward takes values, scale", "some by keyword only")),
        ("nowhere", ("no values for `linear.weight`", "load_state_dict(…, assign=True)")),
        ("misnamed", ("has inputs by the names words, mask; its forward takes ids, mask", "names of forward's")),
        ("an_object", ("Input `temperature` of", "is a object, and no tensor", "tuples and dictionaries")),
        ("no_samples", ("No example input", "batch axis with samples")),
        ("sparse_input", ("Input `x`", "is a sparse_coo float32 tensor", "`.to_dense()`")),
        ("sparse", ("keeps `weight` as a tensor of sparse_coo, float32", "`.to_dense()`")),
        (
            "forced",
            ("does not require grad", "use torch.func.grad in forward"),
        ),
        ("numbers_alone", ("returned (int, tuple)", "must return (nn.Module, (tensor, …))")),
        ("per_sample", ("gives 3 tensors for 3 samples, and 16 for its examples", "for a batch of any size")),
        ("compiling_late", ("compiles itself when it is called", "Leave torch.compile out of forward")),
        ("detecting", ("Output `boxes`", "no batch axis", "before non-maximum suppression", "leave `boxes` out")),
        ("chosen", ("Output `output`", "no batch axis: its shape is (0, 4) for 1 sample")),
        ("batch_second", ("depends on the rest of its batch", "Axis 1 is the batch of `recurrent` (GRU)")),
        ("not_a_number", ("Output `output`", "is NaN in", "logarithm of a negative number")),
    ],
)
def test_a_model_is_diagnosed_before_an_exporter_is_blamed(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    from harness.statistics.parity import compare
    from harness.zoo import model_info
    from harness.zoo.construct import family_of
    from harness.zoo.loaded import Request
    from harness.zoo.reference import output_batch_axes, reference_of

    info = model_info(ODD + name)

    def diagnose() -> None:
        loaded = family_of(info).load(Request(info, "own", 0, None, tmp_path))
        output_batch_axes(info.name, loaded, reference_of(loaded, 1), loaded.make_inputs(8, None).arrays, compare)

    with pytest.raises((ConfigError, ExportError)) as caught:
        diagnose()
    said = f"{caught.value.problem} {caught.value.hint}"
    assert all(word in said for word in words), said
    assert "exporter" not in said


def test_a_model_leaves_the_current_folder_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.zoo import model_info
    from harness.zoo.construct import family_of
    from harness.zoo.loaded import Request

    monkeypatch.chdir(tmp_path)
    info = model_info(f"{ODD}wandering")
    family_of(info).load(Request(info, "own", 0, None, Path("models")))
    assert Path.cwd() == tmp_path
    family_of(info).architecture(info, Path("models"))
    assert Path.cwd() == tmp_path


def test_calls_that_change_the_current_folder_lose_no_file(own: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.root)
    backends = ["torch-eager", "onnxruntime"]
    plan = own.plan({"backends": backends}, models=(f"{ODD}roaming",))
    for stage in ("export", "run", "profile_ops"):
        words = ["--results", "results", "--models-dir", "models"]
        done = run_forked(f"harness.{stage}", words, own.root, {**own._environment(), "PYTHONPATH": str(ROOT)})
        assert done.returncode == 0, done.stderr
    assert {row.backend: row.reason or row.status for row in own.summary().rows} == dict.fromkeys(backends, "measured")
    eager, onnx = ({path.name for path in own.results.profile(case.case_id).iterdir()} for case in plan.cases)
    assert {"memory.json", "parts.json", "operators.pt.trace.json"} <= eager
    assert {"parts.json", "nodes.trace.json"} <= onnx


def test_conjugated_examples_are_computed(tmp_path: Path) -> None:
    import torch

    from harness.zoo import model_info
    from harness.zoo.construct import family_of
    from harness.zoo.loaded import Request

    info = model_info(f"{ODD}conjugated")
    given = family_of(info).load(Request(info, "own", 0, None, tmp_path)).make_inputs(8, None).arrays["x"]
    expected = torch.view_as_complex(torch.randn(16, 8, 2, generator=torch.Generator().manual_seed(1))).conj()
    assert (given == expected[:8].numpy(force=True)).all()
