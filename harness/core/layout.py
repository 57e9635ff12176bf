"""The path of every file: the only module that contains names of folders.

models/<slug>/<export>/{model.onnx, model-fp16.onnx, model-int8.onnx, weights.safetensors, inputs*.npz, reference*.npz,
               export.json}                   never changed once there; <export> is a hash of the files
models/<slug>/<export>/{raw-inputs*.npz, reference*-e2e.npz, tokenizer/}     for the e2e boundary
models/<slug>/export.json                     record of the latest export
models/<slug>/engines/<name>.{plan,json}      models/timing-cache/<TensorRT>-<GPU>.cache
models/<slug>/module.pkl                      a module that was passed to harness.api
results/plan.json
results/command.txt                           command line of the plan stage
results/exports/<slug>/export.json            record of the measured export; or export-failed.{json,log}
results/environments/<environment_id>.json
models/<slug>/<export>/{generation.json, config.json, tokenizer/, decoder*.onnx, prompts-p<length>.npz,
               generation-reference-p<length>.npz}     an export for generation, with weights.safetensors
results/exports/<slug>/generation.json        record of the export for generation; or generation-failed.json
results/generation/<case_id>/<round>.json     and .usage.json, .log, as in raw/, for generation
results/raw/<case_id>/<round>.usage.json      the monitor's record of that process
results/raw/<case_id>/<round>.json            and <round>.log while a case runs or after it failed
results/raw/<slug>.parquet                    the raw records of a model, and summary.parquet the rows, of a large run
results/written/<stage>.json                  sums of a stage's files that have no seal
results/running.json                          the case that a run measures now; deleted when the run ends
results/exporting.json                        the same for an export
results/summary.json  summary.csv  report.md  report-details.md  report.html  charts/*.{png,svg}
results/tables/*.csv  metrics.prom            the report's tables and the rows' figures, for other programs
results/reports/<slug>/…                      the report of one model (make report ONLY=<name>)
results/roof.json                             measured limits of the plan's device
results/load/<load_id>/{service,prediction,energy}.json  <point>/<replication>.json  failed.json  load.log
results/energy/<case_id>.json                 and energy/runs/…, the timings of that pass
results/profiles/<case_id>/{model,parts,memory}.json  parts.md  memory.{png,svg}  memory.pickle  *.trace.json
                              <repeat>.usage.json, the monitor's record of that repeat
                              <level>.log of a failed level; events.out.tfevents.profile for TensorBoard
results/profile.md  profile.html  profiles/charts/*.{png,svg}  the same report for only the profiled cases
results/cards/<gpu>/…     a results folder for each GPU while models or cases are spread over several
results/copies/<case_id>.json                 a case on all GPUs at once; copies/slots/<slot>/raw/… its samples
results/neighbours.json   neighbours/…        cases measured alone again after a spread, and their samples
results/selftest.json  selftest.md  selftest/<trial>/…
results/comparison.json  comparison.md  pr-comment.md  junit.xml
results/ab/…                                  results folder of an A/B run for the state here, with states.json
results/ab/against/…                          and for the state that it is compared with
results/machines/<machine>/…                  a results folder for each machine of a dispatched plan
results/machines.md  charts/machines.png       machines side by side, by ratio
results/attempts/<unit>/<number>.json         fleet.json  fleet.md     which machine measured what, in how many attempts
<store>/runs/<run_id>/{run.json,summary.json}  history.json  history.html     runs over time (harness/history.py)
<store>/decisions/<shift_id>.json              results of A/B runs about shifts
results/stores/<sha256>/…                      what a store behind a URL has, copied here
results/<plan_id>.tar.xz                      the whole run in one archive, with manifest.json
results/reproduce/<claim>/…    a results folder for each claim: config.yaml, reproduction.json and reproduction.md
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

ENGINE_SUFFIX = ".plan"
"""Of a TensorRT engine."""


@dataclass(frozen=True)
class Models:
    """The files and folders below one models folder."""

    root: Path

    def folder(self, slug: str, export: str | None = None) -> ModelFolder:
        """The files of one export of a model; without `export` the model's own folder, as in earlier versions."""
        home = self.root / slug
        return ModelFolder(home) if export is None else ModelFolder(home / export, home)

    def exports(self, slug: str) -> list[ModelFolder]:
        """Every existing export of a model, the latest first."""
        home = self.root / slug
        records = sorted(home.glob("*/export.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return [ModelFolder(path.parent, home) for path in records if not path.parent.name.startswith(".")]

    def generation_exports(self, slug: str) -> list[ModelFolder]:
        """Every existing export of a model for generation, the latest first."""
        home = self.root / slug
        records = sorted(home.glob("*/generation.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return [ModelFolder(path.parent, home) for path in records if not path.parent.name.startswith(".")]

    def timing_cache(self, tensorrt: str, gpu: str) -> Path:
        """TensorRT's timings of kernels, valid for one version and one type of GPU."""
        return self.root / "timing-cache" / f"{tensorrt}-{gpu.replace(' ', '-')}.cache"


@dataclass(frozen=True)
class ExportFiles:
    """The records of an export: in a model's folder, and in each results folder that is measured on it."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "export.json"

    @property
    def failure(self) -> Path:
        return self.root / "export-failed.json"

    @property
    def generation(self) -> Path:
        """The record of the files for generation (GenerationExport)."""
        return self.root / "generation.json"

    @property
    def generation_failure(self) -> Path:
        return self.root / "generation-failed.json"

    @property
    def failure_log(self) -> Path:
        """The traceback of the last failed export."""
        return self.root / "export-failed.log"


@dataclass(frozen=True)
class ModelFolder(ExportFiles):
    """The files of one export. shared: the model's own folder, which contains its exports."""

    shared: Path | None = None

    @property
    def home(self) -> Path:
        """Folder of the files that all exports share: engines, and the module that was passed to harness.api."""
        return self.root if self.shared is None else self.shared

    @property
    def weights(self) -> Path:
        return self.root / "weights.safetensors"

    @property
    def pickled(self) -> Path:
        return self.root / "module.pkl"

    @property
    def compile_cache(self) -> Path:
        return self.root / "compile-cache"

    @property
    def decoder_cache(self) -> Path:
        """Compiled code of the cases that generate."""
        return self.compile_cache / "decoders"

    @property
    def engines(self) -> Path:
        return self.home / "engines"

    def engine(self, name: str) -> Path:
        return self.engines / f"{name}{ENGINE_SUFFIX}"

    def engine_record(self, name: str) -> Path:
        return self.engines / f"{name}.json"

    def onnx(self, precision: str) -> Path:
        return self.root / ("model.onnx" if precision == "fp32" else f"model-{precision}.onnx")

    def inputs(self, sequence_length: int | None) -> Path:
        return self.root / f"inputs{_suffix(sequence_length)}.npz"

    def reference(self, sequence_length: int | None) -> Path:
        return self.root / f"reference{_suffix(sequence_length)}.npz"

    def new_inputs(self, sequence_length: int | None) -> Path:
        return self.root / f"new-inputs{_suffix(sequence_length)}.npz"

    def new_reference(self, sequence_length: int | None) -> Path:
        return self.root / f"new-reference{_suffix(sequence_length)}.npz"

    def raw_inputs(self, sequence_length: int | None) -> Path:
        return self.root / f"raw-inputs{_suffix(sequence_length)}.npz"

    def raw_reference(self, sequence_length: int | None) -> Path:
        return self.root / f"reference{_suffix(sequence_length)}-e2e.npz"

    @property
    def configuration(self) -> Path:
        return self.root / "config.json"

    def prompts(self, prompt_length: int) -> Path:
        return self.root / f"prompts-p{prompt_length}.npz"

    def generation_reference(self, prompt_length: int) -> Path:
        return self.root / f"generation-reference-p{prompt_length}.npz"

    @property
    def gguf(self) -> Path:
        return self.root / "model.gguf"

    @property
    def tokenizer(self) -> Path:
        return self.root / "tokenizer"

    @property
    def processor(self) -> Path:
        return self.root / "processor"


def _suffix(sequence_length: int | None) -> str:
    return "" if sequence_length is None else f"-s{sequence_length}"


@dataclass(frozen=True)
class LoadFiles:
    """The raw records of a load case, below one folder."""

    root: Path

    @property
    def service(self) -> Path:
        return self.root / "service.json"

    @property
    def prediction(self) -> Path:
        return self.root / "prediction.json"

    @property
    def energy(self) -> Path:
        return self.root / "energy.json"

    @property
    def failure(self) -> Path:
        return self.root / "failed.json"

    @property
    def log(self) -> Path:
        """Output of the process while it runs or after it failed."""
        return self.root / "load.log"

    def replication(self, point: str, number: int) -> Path:
        return self.root / point / f"{number}.json"

    def records(self) -> list[Path]:
        """Every existing record."""
        return sorted([*self.root.glob("*.json"), *self.root.glob("*/*.json")])


__all__ = [
    "BUNDLE_MANIFEST",
    "ExportFiles",
    "GenerationResults",
    "LoadFiles",
    "ModelFolder",
    "Models",
    "Results",
    "RunStore",
]

BUNDLE_MANIFEST = "manifest.json"
"""File at the top of a bundle's folder."""


@dataclass(frozen=True)
class Results:
    """The files below one results folder."""

    root: Path

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def command(self) -> Path:
        return self.root / "command.txt"

    def bundle(self, plan_id: str) -> Path:
        return self.root / f"{plan_id}.tar.xz"

    def written(self, stage: str) -> Path:
        return self.root / "written" / f"{stage}.json"

    def store_copy(self, url: str) -> RunStore:
        """Here the records of a store behind a URL are copied."""
        return RunStore(self.root / "stores" / hashlib.sha256(url.encode()).hexdigest()[:12])

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    @property
    def export_lock(self) -> Path:
        """Held by one of several exports at the same time, while it records a model."""
        return self.root / ".export-lock"

    @property
    def running(self) -> Path:
        return self.root / "running.json"

    @property
    def exports(self) -> Path:
        return self.root / "exports"

    def export(self, slug: str) -> ExportFiles:
        """For a model: the record of the export that these results are measured on, or why there is none."""
        return ExportFiles(self.exports / slug)

    @property
    def exporting(self) -> Path:
        return self.root / "exporting.json"

    @property
    def raw(self) -> Path:
        return self.root / "raw"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    @property
    def packed_rows(self) -> Path:
        """The rows of a large summary (core/packed.py)."""
        return self.root / "summary.parquet"

    @property
    def summary_csv(self) -> Path:
        return self.root / "summary.csv"

    @property
    def report(self) -> Path:
        return self.root / "report.md"

    @property
    def report_details(self) -> Path:
        return self.root / "report-details.md"

    @property
    def report_page(self) -> Path:
        return self.root / "report.html"

    def of_model(self, slug: str) -> Results:
        """A folder for the report of one model of a large run (`make report ONLY=`)."""
        return Results(self.root / "reports" / slug)

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    def table(self, name: str) -> Path:
        return self.tables / f"{name}.csv"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.prom"

    @property
    def comparison(self) -> Path:
        return self.root / "comparison.json"

    @property
    def comparison_report(self) -> Path:
        return self.root / "comparison.md"

    @property
    def pr_comment(self) -> Path:
        return self.root / "pr-comment.md"

    @property
    def ab(self) -> Results:
        """A separate results folder for the state here of an A/B run (harness/ab.py)."""
        return Results(self.root / "ab")

    @property
    def against(self) -> Results:
        """Inside `ab`, the results folder of the state that it is compared with."""
        return Results(self.root / "against")

    @property
    def states(self) -> Path:
        return self.root / "states.json"

    @property
    def is_of_ab(self) -> bool:
        """Whether `ab` measured it in turn with another folder: it is the folder `ab`, or `against` inside that."""
        here = Results(self.root.resolve().parent)
        return self.states.is_file() or (self.root.resolve() == here.against.root and here.states.is_file())

    @property
    def junit(self) -> Path:
        return self.root / "junit.xml"

    @property
    def roof(self) -> Path:
        return self.root / "roof.json"

    @property
    def selftest(self) -> Path:
        return self.root / "selftest.json"

    @property
    def selftest_table(self) -> Path:
        return self.root / "selftest.md"

    @property
    def selftest_trials(self) -> Path:
        return self.root / "selftest"

    def energy_file(self, case_id: str) -> Path:
        return self.root / "energy" / f"{case_id}.json"

    @property
    def loads(self) -> Path:
        return self.root / "load"

    def load(self, load_id: str) -> LoadFiles:
        """The raw records of a load case."""
        return LoadFiles(self.loads / load_id)

    @property
    def energy_runs(self) -> Path:
        return self.root / "energy" / "runs"

    def profile(self, case_id: str) -> Path:
        return self.root / "profiles" / case_id

    def model_profile(self, case_id: str) -> Path:
        return self.profile(case_id) / "model.json"

    def parts_profile(self, case_id: str) -> Path:
        return self.profile(case_id) / "parts.json"

    def memory_profile(self, case_id: str) -> Path:
        return self.profile(case_id) / "memory.json"

    def profile_events(self, case_id: str) -> Path:
        return self.profile(case_id) / "events.out.tfevents.profile"

    def memory_chart(self, case_id: str) -> Path:
        return self.profile(case_id) / "memory.png"

    def parts_report(self, case_id: str) -> Path:
        return self.profile(case_id) / "parts.md"

    def profile_usage(self, case_id: str, repeat: int) -> Path:
        return self.profile(case_id) / f"{repeat}.usage.json"

    def profile_log(self, case_id: str, level: str) -> Path:
        return self.profile(case_id) / f"{level}.log"

    @property
    def charts(self) -> Path:
        return self.root / "charts"

    @property
    def profile_summary(self) -> Path:
        return self.root / "profile.md"

    @property
    def profile_page(self) -> Path:
        return self.root / "profile.html"

    @property
    def profile_charts(self) -> Path:
        return self.root / "profiles" / "charts"

    def gpu_folder(self, index: int) -> Results:
        """A separate results folder for each GPU while models are spread over several (harness/spread.py)."""
        return Results(self.root / "cards" / str(index))

    def gpu_folders(self) -> list[Results]:
        """The existing results folders of GPUs."""
        return [Results(folder) for folder in sorted((self.root / "cards").glob("*"))]

    def copies(self, case_id: str) -> Path:
        return self.root / "copies" / f"{case_id}.json"

    def copies_of(self, slot: int) -> Results:
        """A separate results folder for the samples of each slot while a case runs on all (LAYOUT=copies)."""
        return Results(self.root / "copies" / "slots" / str(slot))

    def machine(self, machine: str) -> Results:
        """A separate results folder for each machine that a plan was dispatched to (harness/dispatch.py)."""
        return Results(self.root / "machines" / machine)

    def machines(self) -> dict[str, Results]:
        """Results folders of machines, by name."""
        return {path.name: Results(path) for path in sorted((self.root / "machines").glob("*")) if path.is_dir()}

    @property
    def machines_report(self) -> Path:
        return self.root / "machines.md"

    @property
    def machines_chart(self) -> Path:
        return self.charts / "machines.png"

    def attempt(self, unit_id: str, number: int) -> Path:
        return self.root / "attempts" / unit_id / f"{number}.json"

    @property
    def fleet(self) -> Path:
        return self.root / "fleet.json"

    @property
    def fleet_report(self) -> Path:
        return self.root / "fleet.md"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def neighbours(self) -> Path:
        return self.root / "neighbours.json"

    @property
    def neighbours_alone(self) -> Results:
        """A separate results folder for the cases that are measured alone again (LAYOUT=cases)."""
        return Results(self.root / "neighbours")

    def claim(self, name: str) -> Results:
        """A separate results folder for measurements that check a published claim (harness/reproduce.py)."""
        return Results(self.root / "reproduce" / name)

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def reproduction(self) -> Path:
        return self.root / "reproduction.json"

    @property
    def reproduction_report(self) -> Path:
        return self.root / "reproduction.md"

    @property
    def of_generation(self) -> GenerationResults:
        """This folder with the records of `generate` in place of `run`."""
        return GenerationResults(self.root)

    def raw_case(self, case_id: str) -> Path:
        return self.raw / case_id

    def packed_raw(self, slug: str) -> Path:
        """The raw records of a model in one file (core/packed.py)."""
        return self.raw / f"{slug}.parquet"

    def raw_file(self, case_id: str, round_number: int) -> Path:
        return self.raw / case_id / f"{round_number}.json"

    def usage_file(self, case_id: str, round_number: int) -> Path:
        return self.raw / case_id / f"{round_number}.usage.json"

    def log_file(self, case_id: str, round_number: int) -> Path:
        return self.raw / case_id / f"{round_number}.log"

    @property
    def environments(self) -> Path:
        return self.root / "environments"

    def worker_log(self, backend: str) -> Path:
        return self.root / "logs" / f"{backend}.log"

    def environment(self, environment_id: str) -> Path:
        return self.environments / f"{environment_id}.json"


@dataclass(frozen=True)
class GenerationResults(Results):
    """A results folder with the raw records of `generate`."""

    @property
    def raw(self) -> Path:
        return self.root / "generation"


@dataclass(frozen=True)
class RunStore:
    """The files below a store of runs over time."""

    root: Path

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def run(self, run_id: str) -> Path:
        return self.runs / run_id / "run.json"

    def summary(self, run_id: str) -> Path:
        return self.runs / run_id / "summary.json"

    def packed_rows(self, run_id: str) -> Path:
        return self.runs / run_id / "summary.parquet"

    @property
    def decisions(self) -> Path:
        return self.root / "decisions"

    def decision(self, shift_id: str) -> Path:
        return self.decisions / f"{shift_id}.json"

    @property
    def history(self) -> Path:
        return self.root / "history.json"

    @property
    def page(self) -> Path:
        return self.root / "history.html"

    @property
    def lock(self) -> Path:
        return self.root / ".lock"


def case_id(
    slug: str,
    backend: str,
    device: str,
    precision: str,
    batch_size: int,
    sequence_length: int | None,
    boundary: str,
    mode: str,
    setting: str,
) -> str:
    """The readable id of a case, such as `minilm-l6-openvino-cpu-fp32-b8-s128-offline`; also its folder's name.

    `setting`: its name where it is not the usual one of the backend.
    """
    sequence = "" if sequence_length is None else f"-s{sequence_length}"
    # The usual boundary, mode and setting are left out: most ids stay short.
    kind = ("" if boundary == "compute" else f"-{boundary}") + ("" if mode == "sync" else f"-{mode}")
    suffix = f"-{setting}" if setting else ""
    return f"{slug}-{backend}-{device}-{precision}-b{batch_size}{sequence}{kind}{suffix}"
