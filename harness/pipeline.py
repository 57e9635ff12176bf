"""The pipeline: the stages of each command, their order and arguments, and the exit codes after which it continues.

The command `inferometer` (`python -m harness`), the Python API, `reproduce` and the self-test use it; a test checks the
Makefile's recipes against it. A new variable needs one row of VARIABLES and one line in the Makefile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.core.errors import CasesFailedError, ExportError, UnavailableError

_EXPORTS = (
    "export",
    "build_engine",
    "run",
    "load",
    "generate",
    "energy",
    "profile_ops",
    "spread",
    "dispatch",
    "reproduce",
    "ab",
)
_PROCESSES = ("build_engine", "run", "load", "generate", "energy", "profile_ops", "spread", "reproduce", "ab")
_DONE_BEFORE = ("roof", *_EXPORTS)
_READ_RESULTS = ("aggregate", "report", "share", "compare", "history", "bundle", "watch", "selftest")


@dataclass(frozen=True)
class Variable:
    """A choice of the user. name: Make's variable; option: of the stages; stages: those that take it; text: its help.

    switch: an option without a value (`FORCE=1`, `--force`). usual: the default value.
    """

    name: str
    option: str
    stages: tuple[str, ...]
    text: str
    switch: bool = False
    usual: str = ""


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "CONFIG",
        "--config",
        ("plan", "ab"),
        "configuration (configs/quickstart.yaml; cuda.yaml with DEVICE=cuda; generation.yaml for generation)",
    ),
    Variable("DEVICE", "--device", ("plan", "reproduce", "ab"), "cpu or cuda, instead of the configuration's"),
    Variable(
        "MODELS", "--models", ("plan", "ab"), "comma-separated models, ONNX files or folders; name@seeded sets weights"
    ),
    Variable(
        "BACKENDS",
        "--backends",
        ("plan", "ab"),
        "comma-separated backends; entries of a configuration without any of them are left out",
    ),
    Variable(
        "PRECISIONS",
        "--precisions",
        ("plan", "ab"),
        "comma-separated: fp32,tf32,fp16,bf16,fp8,int8; generation: also int4",
    ),
    Variable("BATCHES", "--batches", ("plan", "ab"), "comma-separated batch sizes"),
    Variable("SEQ_LENGTHS", "--seq-lengths", ("plan", "ab"), "comma-separated sequence lengths of text models"),
    Variable("BOUNDARIES", "--boundaries", ("plan", "ab"), "comma-separated: compute,transfer,e2e"),
    Variable("MODES", "--modes", ("plan", "ab"), "comma-separated: sync,pipelined,offline"),
    Variable("SETTINGS", "--settings", ("plan", "ab"), "comma-separated named settings of the backends; not with TUNE"),
    Variable(
        "INPUTS",
        "--inputs",
        ("plan", "ab"),
        "your inputs: a .txt of texts, one a line; or .npz by input name, comma-separated: one for each shape",
    ),
    Variable("EXPORTER", "--exporter", ("plan", "ab"), "exporter of modules to ONNX: dynamo or torchscript"),
    Variable(
        "PROMPTS",
        "--prompts",
        ("plan",),
        "generation: prompt lengths in tokens, as 128,1024; or a file of lengths or prompts",
    ),
    Variable("TOKENS", "--tokens", ("plan",), "generation: comma-separated numbers of new tokens"),
    Variable(
        "TUNE",
        "--tune",
        ("plan",),
        "try each backend's settings once, and measure only the fastest fully",
        switch=True,
    ),
    Variable("ROUNDS", "--rounds", ("plan", "reproduce", "ab"), "fresh processes per case"),
    Variable("MAX_ROUNDS", "--max-rounds", ("plan",), "most rounds of a case whose interval is wide"),
    Variable(
        "INTERVAL",
        "--target-interval",
        ("plan",),
        "half-width of the 95%% interval that is narrow enough, as 0.5%%",
    ),
    Variable("BUDGET", "--budget", ("plan",), "time of the whole command after which no further round begins, as 10m"),
    Variable(
        "SCENARIOS", "--scenarios", ("plan",), "comma-separated: single-stream,multi-stream,server,offline,concurrency"
    ),
    Variable(
        "BOUND",
        "--bound",
        ("plan",),
        "server: bounds, in quotes: 'p99<50ms'; of generation: 'ttft_p99<1s,itl_p99<50ms'",
    ),
    Variable(
        "RATES",
        "--rates",
        ("plan",),
        "server: requests a second, comma-separated; else 0.9, 1, 1.1 of the predicted peak",
    ),
    Variable("MAX_BATCH", "--max-batch", ("plan",), "server, offline: most requests in a batch (8)"),
    Variable(
        "BATCHING",
        "--batching",
        ("plan",),
        "generation under load: static, or continuous (requests join a running batch; llamacpp, torch-eager)",
    ),
    Variable("MAX_DELAY", "--max-delay", ("plan",), "server: longest wait for a fuller batch, as 0,2ms (0)"),
    Variable("WORKERS", "--workers", ("plan",), "server, offline: threads, each with a backend object of its own (1)"),
    Variable(
        "IN_FLIGHT",
        "--in-flight",
        ("plan",),
        "server, offline: batches in flight from one thread, not with WORKERS (OpenVINO, ONNX Runtime; all on a GPU)",
    ),
    Variable(
        "CLIENTS", "--clients", ("plan",), "concurrency: numbers of clients with one request in flight each (1,2,4)"
    ),
    Variable("SAMPLES", "--samples", ("plan",), "multi-stream: samples of a query (8)"),
    Variable("REPLICATIONS", "--replications", ("plan",), "runs of each load, each with its own arrivals (10)"),
    Variable("REQUESTS", "--requests", ("plan",), "most requests in a replication (2000)"),
    Variable("DURATION", "--duration", ("plan",), "longest time of a replication (4s)"),
    Variable("PRICE", "--price", ("plan",), "price of the machine an hour: shows the cost of a million requests"),
    Variable("LOADGEN", "--loadgen", ("plan",), "one long run for each load, by MLPerf LoadGen's rules", switch=True),
    Variable(
        "ENDPOINT",
        "--endpoint",
        ("plan",),
        "running service to load in place of a backend, as kserve+http://127.0.0.1:8000/v2/models/<name>",
    ),
    Variable(
        "BACKEND_PYTHONS",
        "--python",
        ("export", *_PROCESSES),
        "backend=path of a Python that has the backend's libraries",
    ),
    Variable("EXPORT_JOBS", "--export-jobs", ("export",), "models to export at the same time (1)"),
    Variable(
        "ENGINE_JOBS",
        "--engine-jobs",
        ("export", "build_engine"),
        "TensorRT engines to build at the same time (1); above 1 also beside exports; no gain was measured for "
        "convolutional networks",
    ),
    Variable("CARDS", "--cards", ("spread",), "GPUs to measure on at the same time: all, or as 0,1,2,3"),
    Variable(
        "LAYOUT",
        "--layout",
        ("spread",),
        "with CARDS: models or cases are spread, or copies of each case run on all",
    ),
    Variable("RUNNER", "--runner", ("dispatch",), "what measures the plan elsewhere: local, ray or slurm"),
    Variable("ADDRESS", "--address", ("dispatch",), "address of the Ray cluster, or partition of Slurm"),
    Variable("LAYERS", "--layers", ("profile_ops",), "layers to show: groups, module paths with *, classes"),
    Variable("DEPTH", "--depth", ("profile_ops",), "depth of the module tree down to which layers are shown"),
    Variable("PROFILE_RUNS", "--runs", ("profile_ops",), "inferences under a profiler (20)"),
    Variable("ONLY", "--only", ("report",), "report of this model alone, with all tables and charts"),
    Variable("PLAIN_CHARTS", "--plain-charts", ("report",), "charts without title and caption", switch=True),
    Variable("BASELINE", "--baseline", ("compare",), "earlier results folder, its summary.json, or a store of runs"),
    Variable(
        "THRESHOLD",
        "--threshold",
        ("compare", "ab"),
        "limits, separated by ;, as latency_p50<100ms; list prints all metrics",
    ),
    Variable(
        "MAX_REGRESSION",
        "--max-regression",
        ("compare", "ab"),
        "slow-down that is accepted, as 5%% (the value of EQUIVALENCE)",
    ),
    Variable("EQUIVALENCE", "--equivalence", ("compare", "ab"), "change that counts as none, as 2%% (1%%)"),
    Variable("ACROSS", "--across", ("compare",), "compare ratios across machines or versions", switch=True),
    Variable("AGAINST", "--against", ("ab",), "commit, folder or backend=python to measure against"),
    Variable("STORE", "--store", ("history",), "folder that keeps runs over time, or its URL"),
    Variable("COMMIT", "--commit", ("history",), "state of the measured code, if not Inferometer's checkout"),
    Variable("CONFIRM", "--confirm", ("history",), "candidate that the A/B run in results/ab decides"),
    Variable("CLAIM", "--claim", ("reproduce",), "published claim; list prints them all"),
    Variable("BUNDLE", "--bundle", ("verify",), "archive of bundle"),
    Variable("WEB", "--web", ("watch",), "serve a page to this machine alone", switch=True),
    Variable("PORT", "--port", ("watch",), "port of that page; 0 takes a free one"),
    Variable("MLFLOW", "--mlflow", ("share",), "MLflow server or database to log to as well"),
    Variable("RATE", "--rate", ("selftest",), "rate of wrong verdicts to exclude"),
    Variable("TRIALS", "--trials", ("selftest",), "trials of each duration"),
    Variable(
        "FORCE",
        "--force",
        (*_DONE_BEFORE, "aggregate"),
        "export and measure again what is there; replace a summary also by one with fewer measured rows",
        switch=True,
    ),
    Variable(
        "MODELS_DIR",
        "--models-dir",
        ("plan", *_EXPORTS, "aggregate", "bundle", "selftest"),
        "folder of exported models",
        usual="models",
    ),
    Variable(
        "RESULTS",
        "--results",
        ("plan", "roof", *_EXPORTS, *_READ_RESULTS),
        "folder of results",
        usual="results",
    ),
)
"""Every variable that becomes an option of a stage."""

BY_NAME: Mapping[str, Variable] = {variable.name: variable for variable in VARIABLES}
TEXTS: Mapping[str, str] = {variable.option: variable.text for variable in VARIABLES}


@dataclass(frozen=True)
class Step:
    """One stage of a pipeline. arguments: besides the user's choices. on_gpu: only for a plan on a GPU.

    decides: its exit code is the exit code of the pipeline, unless an earlier stage decided or stopped the pipeline.
    """

    stage: str
    arguments: tuple[str, ...] = ()
    on_gpu: bool = False
    decides: bool = False


_PREPARE = (Step("plan"), Step("export"), Step("build_engine", on_gpu=True))
_LOAD = Step("load", ("--if-planned",), decides=True)
_MEASURE = (Step("roof"), Step("run", decides=True), _LOAD, Step("aggregate", decides=True))

_SERVE = (
    Step("plan", ("--load",)),
    *_PREPARE[1:],
    Step("load", decides=True),
    Step("aggregate", decides=True),
)
_GENERATE = (
    Step("plan"),
    Step("export"),
    Step("roof"),
    Step("generate", decides=True),
    Step("aggregate", decides=True),
)

PIPELINES: Mapping[str, tuple[Step, ...]] = {
    "bench": (*_PREPARE, *_MEASURE, Step("report", ("--print",))),
    "generate": (*_GENERATE, Step("report", ("--print",))),
    "load": (*_SERVE, Step("report", ("--print",))),
    "profile": (*_PREPARE, Step("profile_ops", decides=True), Step("report", ("--profiles",))),
}
"""Commands of several stages."""

STAGES = (
    *("plan", "export", "build_engine", "roof", "run", "watch", "spread", "energy", "profile_ops"),
    *("aggregate", "report", "share", "compare", "history", "dispatch", "ab", "reproduce"),
    *("bundle", "verify", "models", "selftest"),
)
"""Commands of one stage; `load` and `generate` are stages of the pipelines of that name."""

PARTS: Mapping[str, tuple[Step, ...]] = {
    "prepare": _PREPARE,
    "measure": _MEASURE,
    "load": _SERVE,
    "generation": _GENERATE,
    "claim": (
        Step("plan", ("--list",)),
        *_PREPARE[1:],
        *(step for step in _MEASURE if step is not _LOAD),
        Step("report"),
    ),
    "trial": (Step("plan"), Step("run", decides=True), Step("aggregate", decides=True)),
}
"""Pipelines that the API, `reproduce` (a claim) and the self-test (a trial) run."""

PLANNING = frozenset(variable.name for variable in VARIABLES if "plan" in variable.stages) - {"RESULTS", "MODELS_DIR"}
"""Variables that change the plan: `load` and `profile` plan again where one of them is given."""

ALIASES: Mapping[str, str] = {"engines": "build_engine"}
"""Make targets whose stage has another name."""

_GOES_ON: Mapping[str, tuple[int, ...]] = {
    # Some models were not exported: their rows say why, the other models are measured.
    "export": (0, CasesFailedError.exit_code),
    # No TensorRT, or an engine that was not built: its rows say so, the other rows are measured.
    "build_engine": (0, UnavailableError.exit_code, ExportError.exit_code),
    # The limits cannot be measured here: rows say that they have no roofline.
    "roof": (0, UnavailableError.exit_code),
    # Some cases failed: the run is complete, and the report lists them.
    "run": (0, CasesFailedError.exit_code),
    "generate": (0, CasesFailedError.exit_code),
    "spread": (0, CasesFailedError.exit_code),
    "load": (0, CasesFailedError.exit_code),
    "dispatch": (0, CasesFailedError.exit_code),
    "profile_ops": (0, CasesFailedError.exit_code),
    # --force replaced a summary that had more measured rows.
    "aggregate": (0, CasesFailedError.exit_code),
}


def goes_on_after(stage: str, exit_code: int) -> bool:
    """Whether the stages that follow still run after this stage ended with this code."""
    return exit_code in _GOES_ON.get(stage, (0,))


def stages_of(command: str) -> tuple[str, ...]:
    """The stages that a command (a Make target, or a stage) may run, in their order."""
    steps = PIPELINES.get(command)
    # Spread over several GPUs, engines and runs are one stage.
    own = tuple(step.stage for step in steps) + (("spread",) if command == "bench" else ()) if steps else ()
    return own or (ALIASES.get(command, command),)


def options_of(stages: Sequence[str]) -> tuple[Variable, ...]:
    """The variables that some of the stages take."""
    return tuple(variable for variable in VARIABLES if not set(variable.stages).isdisjoint(stages))


def arguments(stage: str, choices: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The command line of a stage. choices: Make's name → values; a name without a choice is absent.

    >>> arguments("roof", {"FORCE": ["1"], "RESULTS": ["results/x"], "MODELS": ["resnet18"]})
    ('--force', '--results', 'results/x')
    """
    words: list[str] = []
    for variable in VARIABLES:
        if stage in variable.stages:
            for value in choices.get(variable.name, ()):
                words += [variable.option] if variable.switch else [variable.option, value]
    return tuple(words)


def steps(
    chain: Sequence[Step], choices: Mapping[str, Sequence[str]], plans: bool = True, began_s: int | None = None
) -> tuple[Step, ...]:
    """The steps of a pipeline, each with its whole command line.

    plans: False keeps the plan of the results folder. began_s: start of the command, in seconds since 1970, from which
    a time budget counts.
    """
    if choices.get("CARDS") or choices.get("LAYOUT"):
        chain = [Step("spread", decides=True) if step.stage == "run" else step for step in chain if not step.on_gpu]
        choices = {name: values for name, values in choices.items() if name != "ENGINE_JOBS"}  # spread builds engines
    began = () if began_s is None else ("--began", str(began_s))
    return tuple(
        replace(
            step,
            arguments=(*arguments(step.stage, choices), *step.arguments, *(began if step.stage == "run" else ())),
        )
        for step in chain
        if plans or step.stage != "plan"
    )


def run(chain: Sequence[Step], start: Callable[[str, Sequence[str]], int], on_gpu: Callable[[], bool]) -> int:
    """Run the steps in order until one stops the pipeline; returns its exit code, else the code of the first step that
    decides.

    start: runs a stage and returns its exit code. on_gpu: called before steps for a GPU, after the plan exists.
    """
    decided = 0
    for step in chain:
        if step.on_gpu and not on_gpu():
            continue
        code = start(step.stage, step.arguments)
        if not goes_on_after(step.stage, code):
            return code
        if step.decides:
            decided = decided or code
    return decided
