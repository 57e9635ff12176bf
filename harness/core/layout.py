"""Where every file lives: the only module that spells a directory.

models/<slug>/{model.onnx, model-fp16.onnx, model-int8.onnx, weights.safetensors, inputs*.npz, reference*.npz,
               export.json}
models/<slug>/engines/<name>.{plan,json}      models/timing-cache/<TensorRT>-<GPU>.cache
models/<slug>/{raw-inputs*.npz, reference*-e2e.npz, tokenizer/}     for the e2e boundary
results/plan.json
results/command.txt                           command line of the plan stage
results/environments/<environment_id>.json
results/raw/<case_id>/<round>.usage.json      what the monitor saw meanwhile
results/raw/<case_id>/<round>.json            and <round>.log while a case runs or after it failed
results/summary.json  summary.csv  report.md  report.html  charts/*.png
results/roof.json                             what the GPU can do at most
results/energy/<case_id>.json                 energy/runs/… the timings of that pass
results/profiles/<case_id>/{model,parts}.json  parts.md  *.trace.json; <level>.log of one that failed
results/cards/<card>/…    a results folder a card while models are spread over several
results/selftest.json  selftest.md  selftest/<trial>/…
results/comparison.json  comparison.md  junit.xml
results/<plan_id>.tar.xz                      the whole run in one archive, with manifest.json
results/reproduce/<claim>/…    a results folder a claim, with config.yaml, reproduction.json and reproduction.md
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BUNDLE_MANIFEST = "manifest.json"
"""Of a bundle, at the top of its folder."""


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

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    @property
    def raw(self) -> Path:
        return self.root / "raw"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    @property
    def summary_csv(self) -> Path:
        return self.root / "summary.csv"

    @property
    def report(self) -> Path:
        return self.root / "report.md"

    @property
    def report_page(self) -> Path:
        return self.root / "report.html"

    @property
    def comparison(self) -> Path:
        return self.root / "comparison.json"

    @property
    def comparison_report(self) -> Path:
        return self.root / "comparison.md"

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
    def energy_runs(self) -> Path:
        return self.root / "energy" / "runs"

    def profile(self, case_id: str) -> Path:
        return self.root / "profiles" / case_id

    def model_profile(self, case_id: str) -> Path:
        return self.profile(case_id) / "model.json"

    def parts_profile(self, case_id: str) -> Path:
        return self.profile(case_id) / "parts.json"

    def parts_report(self, case_id: str) -> Path:
        return self.profile(case_id) / "parts.md"

    def profile_log(self, case_id: str, level: str) -> Path:
        return self.profile(case_id) / f"{level}.log"

    @property
    def charts(self) -> Path:
        return self.root / "charts"

    def card(self, index: int) -> Results:
        """A results folder of its own for each card while models are spread over several (harness/spread.py)."""
        return Results(self.root / "cards" / str(index))

    def claim(self, name: str) -> Results:
        """A results folder of its own for what stands beside a published claim (harness/reproduce.py)."""
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

    def raw_case(self, case_id: str) -> Path:
        return self.raw / case_id

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
class Models:
    """The folders below one models folder."""

    root: Path

    def folder(self, slug: str) -> ModelFolder:
        return ModelFolder(self.root / slug)

    def timing_cache(self, tensorrt: str, gpu: str) -> Path:
        """What TensorRT learned about kernels; it belongs to a version and a type of GPU."""
        return self.root / "timing-cache" / f"{tensorrt}-{gpu.replace(' ', '-')}.cache"


@dataclass(frozen=True)
class ModelFolder:
    """The files of one exported model."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "export.json"

    @property
    def weights(self) -> Path:
        return self.root / "weights.safetensors"

    @property
    def compile_cache(self) -> Path:
        return self.root / "compile-cache"

    @property
    def engines(self) -> Path:
        return self.root / "engines"

    def engine(self, name: str) -> Path:
        return self.engines / f"{name}.plan"

    def engine_record(self, name: str) -> Path:
        return self.engines / f"{name}.json"

    def onnx(self, precision: str) -> Path:
        return self.root / ("model.onnx" if precision == "fp32" else f"model-{precision}.onnx")

    def inputs(self, sequence_length: int | None) -> Path:
        return self.root / f"inputs{_suffix(sequence_length)}.npz"

    def reference(self, sequence_length: int | None) -> Path:
        return self.root / f"reference{_suffix(sequence_length)}.npz"

    def raw_inputs(self, sequence_length: int | None) -> Path:
        return self.root / f"raw-inputs{_suffix(sequence_length)}.npz"

    def raw_reference(self, sequence_length: int | None) -> Path:
        return self.root / f"reference{_suffix(sequence_length)}-e2e.npz"

    @property
    def tokenizer(self) -> Path:
        return self.root / "tokenizer"


def _suffix(sequence_length: int | None) -> str:
    return "" if sequence_length is None else f"-s{sequence_length}"
