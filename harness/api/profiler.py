"""The profiler of one model, and its latest result as files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.ab import ROUNDS as AB_ROUNDS
from harness.api.configuration import (
    DEFAULT_BACKEND,
    Choices,
    Timing,
    configuration_data,
    every_backend,
    matrix_block,
    measurement_data,
    require_offered,
    require_single,
    scenario_blocks,
)
from harness.api.given_model import Subject, is_module, subject_of
from harness.api.profiles import GpuProfile, LayerProfile, MemoryProfile, Profile, some_layers
from harness.api.regressions import Comparable, Regressions, detect_regressions
from harness.api.results import Benchmark, Load, Result
from harness.api.runs import Run, folder_of, require_measured
from harness.core import cli
from harness.core.errors import UsageError
from harness.core.host import gpu
from harness.core.layout import Models
from harness.core.safe_files import SizeLimit, read_text
from harness.core.schemas import Device, Exporter, Plan, Precision
from harness.core.store import save_bytes
from harness.core.units import duration
from harness.serving.load_verdict import parse_bound

if TYPE_CHECKING:
    from harness.api.given_model import InputData, Model

R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class CallResult:
    """The result of a call for a case. median: ns; settings: the configuration's section `measurement`."""

    median: float
    samples: int
    settings: Mapping[str, Any]
    measured_from: str


class Latest:
    """Keeps the latest result and writes it to files on request."""

    def __init__(self) -> None:
        self._last: tuple[Result, Run] | None = None
        self._measured: Run | None = None
        self._answers: dict[str, CallResult] = {}

    @cli.in_words_of("api")
    def export_json(self, path: str | os.PathLike[str]) -> Path:
        """Write the whole latest result as JSON. Raises UsageError where there is none yet."""
        return _write(path, self._latest()[0].to_json())

    @cli.in_words_of("api")
    def export_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write the records of the latest result as CSV. Raises UsageError where there is none yet.

        >>> from harness.api import ModelProfiler
        >>> ModelProfiler("minilm-l6").export_csv("rows.csv")
        Traceback (most recent call last):
        harness.core.errors.UsageError: Nothing was profiled yet.
        """
        return _write(path, self._latest()[0].to_csv())

    @cli.in_words_of("api")
    def generate_html_report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the page of the latest measured result: one file that needs no network; by default in its folder.

        Raises UsageError where nothing was measured yet: `profile`, `gpu_profile` and `benchmark` have a page.
        """
        self._latest()
        if self._measured is None:
            raise UsageError("A page shows measured rows, and nothing was timed yet.", "Call profile() first.")
        page = self._measured.report()
        return page if path is None else _write(path, read_text(page, SizeLimit.RECORD))

    def _keep(self, result: R, run: Run) -> R:
        if isinstance(result, Benchmark):
            self._measured = run
            answers = answers_of(result, run.settings())
            result = replace(result, remarks=contradictions(self._answers, answers))
            self._answers |= answers
        self._last = (result, run)
        return result

    def _latest(self) -> tuple[Result, Run]:
        if self._last is None:
            raise UsageError("Nothing was profiled yet.", "Call profile() or benchmark() first.")
        return self._last


def answers_of(result: Benchmark, settings: Mapping[str, Any]) -> dict[str, CallResult]:
    """The results of all cases that have a latency, by case id."""
    measured = {row.case_id: row.latency_ns for row in result.rows if row.latency_ns is not None}
    return {
        case_id: CallResult(latency.median, latency.n, settings, result.summary.measured_from or "")
        for case_id, latency in measured.items()
    }


def contradictions(before: Mapping[str, CallResult], now: Mapping[str, CallResult]) -> tuple[str, ...]:
    """A line for each case for which an earlier call gave a different median, with the differences of the two calls."""
    return tuple(
        f"`{case_id}`: an earlier call gave {duration(before[case_id].median)}, this one "
        f"{duration(answer.median)}. {_difference_text(before[case_id], answer)}"
        for case_id, answer in now.items()
        if case_id in before and before[case_id].median != answer.median
    )


def _difference_text(before: CallResult, now: CallResult) -> str:
    changed = [
        f"{name} {before.settings.get(name)} and {value}"
        for name, value in now.settings.items()
        if before.settings.get(name) != value
    ]
    if changed:
        return f"They asked for different settings: {', '.join(changed)}."
    return (
        f"Same settings, other samples: {before.samples:,} from {before.measured_from} and {now.samples:,} from "
        f"{now.measured_from}."
    )


def _write(path: str | os.PathLike[str], text: str) -> Path:
    target = Path(path)
    save_bytes(target, text.encode())
    return target


P = TypeVar("P", bound=Profile)


class ModelProfiler(Latest):
    """Measures and profiles one model through the stages, in separate processes.

    model: a name that `make models` lists, or one with a prefix (`torchvision:…`, `timm:…`, `hf:…`, `module:…`); the
        path of an ONNX file, of a program that torch.export.save wrote (`.pt2`), or of a folder saved by
        save_pretrained; or an nn.Module, which needs inputs. A module is pickled into `folder`, and reading a pickle
        runs code: keep the folder to yourself.
    device: "cpu" or "cuda". precision: "fp32", "tf32", "fp16", "bf16", "fp8" or "int8", where the backend has it.
    backend: the backend of `profile` and the other profile methods. `benchmark` has its own list.
    input_shape: of an nn.Module with one float input, the batch first; its inputs are seeded normal numbers.
    batch_size: by default that of the inputs, or 1. sequence_length: tokens; text models only.
    weights: "pretrained" or "seeded", for a model that has both.
    folder: output folder, with one subfolder per configuration. The same call again measures nothing new.
    measurement: keys of the configuration's section `measurement`, such as {"max_s": 1.0} (configs/README.md).
    exporter: the exporter of the ONNX file. verbose: print the output of the stages; otherwise one line says how long
        a call measures, and a terminal and a notebook show one line of progress.

    >>> from torch import nn
    >>> from harness.api import ModelProfiler
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
    >>> quick = {"rounds": 2, "warmup_max_s": 0.2, "max_s": 0.2}
    >>> profiler = ModelProfiler(net, input_shape=(1, 3, 16, 16), measurement=quick)
    >>> profiler
    ModelProfiler(Sequential, torch-eager, fp32 on cpu, folder=inferometer)
    >>> ModelProfiler("minilm-l6", precision="fp23")
    Traceback (most recent call last):
    harness.core.errors.UsageError: Unknown precision `fp23`.
    >>> ModelProfiler("minilm-l7")
    Traceback (most recent call last):
    harness.core.errors.ConfigError: Unknown model `minilm-l7`.
    """

    @cli.in_words_of("api")
    def __init__(
        self,
        model: Model,
        device: Device = "cpu",
        precision: Precision = "fp32",
        *,
        backend: str = DEFAULT_BACKEND,
        input_shape: Sequence[int] | None = None,
        batch_size: int | None = None,
        sequence_length: int = 128,
        weights: str | None = None,
        folder: str | os.PathLike[str] = "inferometer",
        measurement: Mapping[str, Any] | None = None,
        exporter: Exporter = "dynamo",
        verbose: bool = False,
    ) -> None:
        super().__init__()
        require_single(device=device, precision=precision, backend=backend)
        require_single(batch_size=batch_size, sequence_length=sequence_length)
        require_offered(device, precision, backend)
        self.model = model
        self.device: Device = device
        self.precision: Precision = precision
        self.backend = backend
        self.folder = Path(folder)
        self._input_shape = input_shape
        self._input_data: InputData | None = None
        self._timing = Timing()
        self._batch_size = batch_size
        self._sequence_length = sequence_length
        self._weights = weights
        self._measurement = dict(measurement or {})
        self._exporter: Exporter = exporter
        self._show = cli.say if verbose else None
        self._models = Models(self.folder / "models")
        if input_shape is not None or not is_module(model):
            self._subject(None)  # report a mistake now, not at the first use

    @cli.in_words_of("api")
    def profile(
        self,
        input_data: InputData | None = None,
        num_runs: int | None = None,
        warmup_runs: int | None = None,
        *,
        rounds: int | None = None,
        force: bool = False,
    ) -> Profile:
        """Measure and profile one configuration: latency and grade, cost of the model, layers and operators.

        input_data: a batch, tensors with the batch first. The model is measured with its samples, and with variations
            of them where fewer than eight are different. Later calls reuse it. An nn.Module needs a batch; a named
            model is measured with its usual inputs where none is given.
        num_runs: timed inferences of each process, unless its time ends first (10 s); by default, as many as the
            interval needs. warmup_runs: minimum number of inferences before them.
        rounds: fresh processes (3). force: measure again.
        Raises UsageError, UnavailableError, ExportError or CaseError, each with a hint on what to do next.

        >>> profile = profiler.profile()
        >>> profile.latency_ms > 0, profile.row.grade in "ABC"
        (True, True)
        >>> profile.model.parameters, profile.model.macs
        (15914, 58016)
        """
        timing = Timing(num_runs, warmup_runs, rounds)
        run, plan = self._start(input_data, [{}], timing, force, timed=True)
        self._timing = timing
        return self._keep(self._profiled(run, plan, num_runs, Profile), run)

    @cli.in_words_of("api")
    def benchmark(
        self,
        configurations: Sequence[Choices] | Choices | None = None,
        input_data: InputData | None = None,
        num_runs: int | None = None,
        warmup_runs: int | None = None,
        *,
        rounds: int | None = None,
        force: bool = False,
    ) -> Benchmark:
        """Measure several configurations side by side.

        configurations: dictionaries of backend, precision, batch_size, sequence_length, boundary, mode and setting,
            each a value or a list; keys that are left out have the profiler's values. By default, every backend that
            has the precision on the device.
        Speed-ups are over torch-eager in fp32, so they need that row. A configuration that fails is a row with its
        reason; a configuration that cannot run anywhere, or a duplicate, is an error before anything runs. The other
        arguments, and the errors, are as in `profile`.

        >>> compared = profiler.benchmark([{"backend": ["torch-eager", "onnxruntime"]}, {"batch_size": 8}])
        >>> [(row.backend, row.batch_size, row.status) for row in compared.rows]
        [('torch-eager', 1, 'measured'), ('onnxruntime', 1, 'measured'), ('torch-eager', 8, 'measured')]
        """
        every = {"backend": every_backend(self.device, self.precision)}
        chosen = every if configurations is None else configurations
        chosen = [chosen] if isinstance(chosen, Mapping) else chosen
        run, _ = self._start(input_data, chosen, Timing(num_runs, warmup_runs, rounds), force, timed=True)
        return self._keep(Benchmark(run.results.root, run.measure()), run)

    @cli.in_words_of("api")
    def load(
        self,
        bound: str | None = None,
        scenarios: Sequence[str] | str = "server",
        *,
        backends: Sequence[str] | str | None = None,
        input_data: InputData | None = None,
        force: bool = False,
        **keys: Any,
    ) -> Load:
        """Serve the model under load: the highest rate within a bound, by replay and by real replications.

        bound: of the server scenario, as "p99<50ms". scenarios: "server", "single-stream", "multi-stream", "offline",
            "concurrency", or several. backends: instead of the profiler's. keys: of the configuration's section
            `scenarios`, such as max_batch=[1, 8], replications=30, duration="2s" (configs/README.md).
        It may take many minutes.
        Raises UsageError for a bound or scenario that is none, and the errors of `profile` where nothing can be
        exported. A load case that fails is a row with its reason.

        >>> profiler.load("p99<50")
        Traceback (most recent call last):
        harness.core.errors.UsageError: The bound `p99<50` has no unit.
        """
        if bound is not None:
            parse_bound(bound)
        subject = self._subject(input_data)
        chosen: Choices = {} if backends is None else {"backend": backends}
        blocks = [matrix_block({**chosen, "batch_size": 1}, self._usual(subject))]
        measured = measurement_data(self._measurement, subject, Timing())
        wanted = configuration_data(subject, self.device, self._weights, blocks, measured, self._exporter)
        wanted["scenarios"] = scenario_blocks(scenarios, {"bound": bound, **keys})
        run = Run(folder_of(self.folder, subject.label, wanted), self._models, force, self._show)
        rows = run.load(wanted)
        self._remember(input_data)
        return self._keep(Load(run.results.root, rows), run)

    @cli.in_words_of("api")
    def profile_layers(
        self,
        layer_names: Sequence[str] | str | None = None,
        input_data: InputData | None = None,
        num_runs: int | None = None,
        *,
        depth: int | None = None,
        force: bool = False,
    ) -> LayerProfile:
        """The requested layers, timed separately under the backend's profiler.

        layer_names: groups ("attention", "mlp", "embedding", …), paths of modules with all that they contain
            ("encoder.layer.*"), or classes ("Linear"); None for all. depth: of the module tree; the model is 0.
        num_runs: inferences under the profiler, at most 20. Raises UsageError for a name that matches nothing, with
        similar names, UnavailableError for a backend that exposes no layers, and the errors of `profile`.

        >>> [(row.name, row.kind) for row in profiler.profile_layers(["convolution", "Linear"]).layers]
        [('0', 'Conv2d'), ('3', 'Linear')]
        >>> profiler.profile_layers(["Conv3d"])
        Traceback (most recent call last):
        harness.core.errors.UsageError: No layer matches `Conv3d`.
        """
        run, plan = self._start(input_data, [{}], self._timing, force)
        (profiled,) = run.profile(plan, num_runs)
        return self._keep(some_layers(run.results.root, profiled, layer_names, depth), run)

    @cli.in_words_of("api")
    def memory_profile(
        self, input_data: InputData | None = None, batch_sizes: Sequence[int] | None = None, *, force: bool = False
    ) -> MemoryProfile:
        """Weights, files and activations, estimated and as reported by the library's allocator; nothing is timed.

        batch_sizes: several to compare; by default the profiler's own. Raises the errors of `profile`.

        >>> profiler.memory_profile().models[0].weight_bytes["fp32"]
        63656
        """
        run, plan = self._start(input_data, [{"batch_size": batch_sizes}], self._timing, force)
        profiled = run.profile(plan, 1)
        timelines = {case.model.case_id: case.memory for case in profiled if case.memory}
        return self._keep(MemoryProfile(run.results.root, tuple(case.model for case in profiled), timelines), run)

    @cli.in_words_of("api")
    def gpu_profile(
        self,
        input_data: InputData | None = None,
        num_runs: int | None = None,
        warmup_runs: int | None = None,
        *,
        rounds: int | None = None,
        force: bool = False,
    ) -> GpuProfile:
        """A profile on the GPU, whatever the profiler's device: kernels, launch gaps, clocks, power, roofline.

        Arguments as in `profile`. Raises UnavailableError where this machine has no GPU that can be used.

        >>> idle_share = profiler.gpu_profile().idle_share  # doctest: +SKIP
        """
        gpu.require("cuda")
        timing = Timing(num_runs, warmup_runs, rounds)
        run, plan = self._start(input_data, [{}], timing, force, "cuda", timed=True)
        return self._keep(self._profiled(run, plan, num_runs, GpuProfile), run)

    @cli.in_words_of("api")
    def ab(
        self,
        against: str | os.PathLike[str],
        *,
        rounds: int = AB_ROUNDS,
        max_regression: str | None = None,
        equivalence: str | None = None,
        force: bool = False,
    ) -> Regressions:
        """Compare the current folder's state of the model with another state: both are exported and measured in one
        run, in turn, and compared round by round (`make ab`).

        against: a git commit, a folder that corresponds to the current folder, or "<backend>=<python>". rounds: pairs
            of processes, at least 6. max_regression, equivalence: as "5%" (1%). Both states must be able to build the
            model: `module:<python path>:<function>`, a relative path of a file or folder, or a name.
        Raises UsageError for an invalid state, where no row can be compared, and for an nn.Module, which has one state.

        >>> ModelProfiler(net, input_shape=(1, 3, 16, 16)).ab("HEAD~1")
        Traceback (most recent call last):
        harness.core.errors.UsageError: A Sequential that is handed over has one state, and `ab` compares two.
        """
        if is_module(self.model):
            raise UsageError(
                f"A {type(self.model).__name__} that is handed over has one state, and `ab` compares two.",
                "Name a function that both states have: ModelProfiler('module:<python path>:<function>').",
            )
        subject = self._subject(None)
        measured = measurement_data(self._measurement, subject, Timing())
        blocks = [matrix_block({}, self._usual(subject))]
        wanted = configuration_data(subject, self.device, self._weights, blocks, measured, self._exporter)
        run = Run(folder_of(self.folder, subject.label, wanted), self._models, force, self._show)
        return run.ab(wanted, os.fspath(against), rounds, max_regression, equivalence)

    @cli.in_words_of("api")
    def detect_regressions(
        self, baseline: Comparable, current: Comparable, max_regression: str | None = None
    ) -> Regressions:
        """The same as the function `harness.api.detect_regressions`."""
        return detect_regressions(baseline, current, max_regression)

    def __repr__(self) -> str:
        label = self.model if isinstance(self.model, str | os.PathLike) else type(self.model).__name__
        return f"ModelProfiler({label}, {self.backend}, {self.precision} on {self.device}, folder={self.folder})"

    def _start(
        self,
        input_data: InputData | None,
        chosen: Sequence[Choices],
        timing: Timing,
        force: bool,
        device: Device | None = None,
        *,
        timed: bool = False,
    ) -> tuple[Run, Plan]:
        """Plan and export the chosen configuration, in its own folder. timed: its cases are measured next."""
        subject = self._subject(input_data)
        usual = self._usual(subject)
        measured = measurement_data(self._measurement, subject, timing)
        blocks = [matrix_block(kind, usual) for kind in chosen]
        wanted = configuration_data(subject, device or self.device, self._weights, blocks, measured, self._exporter)
        run = Run(folder_of(self.folder, subject.label, wanted), self._models, force, self._show)
        plan = run.plan(wanted, every=list(chosen) == [{}], measured=timed)
        self._remember(input_data)
        return run, plan

    def _usual(self, subject: Subject) -> Choices:
        """Default choices of a configuration."""
        return {
            "backend": self.backend,
            "precision": self.precision,
            "batch_size": (subject.batch_size or 1) if self._batch_size is None else self._batch_size,
            "sequence_length": self._sequence_length,
        }

    def _subject(self, input_data: InputData | None) -> Subject:
        given = self._input_data if input_data is None else input_data
        return subject_of(self.model, given, self._input_shape, self._models)

    def _remember(self, input_data: InputData | None) -> None:
        """Keep the inputs for later calls; the inputs of a call that could not be planned are not kept."""
        if input_data is not None:
            self._input_data = input_data

    def _profiled(self, run: Run, plan: Plan, num_runs: int | None, kind: type[P]) -> P:
        summary = run.measure()
        require_measured(summary.rows[0])
        (profiled,) = run.profile(plan, num_runs)
        return kind(run.results.root, summary, profiled.model, profiled.parts)
