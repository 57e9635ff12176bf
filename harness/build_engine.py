"""Build the TensorRT engines that the plan needs, each checked against the fp32 reference on this GPU.

reads   results/plan.json, exports/<slug>/export.json and the ONNX files, inputs and references that it names
writes  models/<slug>/engines/<name>.{plan,json}, models/timing-cache/<TensorRT>-<GPU>.{cache,lock}
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.backends import BACKENDS
from harness.backends.base import BackendJob, construct
from harness.backends.batches import load_batches
from harness.backends.tensorrt import engine_request as requests
from harness.backends.tensorrt.engine_request import EnginePlace, Options
from harness.core import cli, store
from harness.core.errors import (
    ExportError,
    FormatError,
    InferometerError,
    MissingInputError,
    UnavailableError,
)
from harness.core.host import gpu
from harness.core.layout import ModelFolder, Models, Results
from harness.core.schemas import (
    Case,
    EngineRecord,
    EngineRequest,
    ExportRecord,
    OnnxArtifact,
    Parity,
    Plan,
    Precision,
)
from harness.planning.block_settings import parse_interpreters
from harness.planning.engine_cases import engine_cases
from harness.planning.exports import ExportReasons, read_export
from harness.processes import parallel_commands
from harness.processes.early_engines import COMMAND
from harness.statistics import parity
from harness.timing.clock import now_ns

EngineCases = Sequence[tuple[Case, Options]]

NOT_BUILT = "engines were not built. "
"""Between their number and the reasons."""


def stage(arguments: Sequence[str]) -> None:
    """Build engines that are missing or out of date; where one fails, the others are still built."""
    options = _options(arguments)
    others = parse_interpreters(options.python)
    plan = store.load(Results(options.results).plan, Plan, "make plan")
    wanted = engine_cases(plan, options.models)
    if not wanted:
        return
    for backend in {case.backend for cases in wanted.values() for case, _ in cases} & set(others):
        _continue_in(others[backend], options)
    gpu.require(plan.device)
    place = _here()
    results, models = Results(options.results), Models(options.models_dir)
    failures: list[str] = []
    missing: list[_Missing] = []
    reasons = ExportReasons()
    for slug, cases in wanted.items():
        try:
            planned = next(planned for planned in plan.models if planned.slug == slug)
            export = read_export(plan, planned, results, models)
            missing += _missing_of(plan, export, cases, place, models, options, failures)
        except (ExportError, FormatError, MissingInputError) as error:
            failures.append(reasons.text(f"{slug} has no engines", error))
    if options.only_list:
        for engine in missing:
            cli.say(f"{engine.slug}: engine {engine.name} would be built")
    elif options.engine_jobs > 1 and len(missing) > 1:
        failures += _build_in_parallel(missing, options)
    else:
        failures += [problem for engine in missing if (problem := _built(engine))]
    if options.list_file:
        store.save_bytes(options.list_file, json.dumps([engine.name for engine in missing]).encode())
    if failures:
        raise ExportError(
            f"{len(failures)} {NOT_BUILT}{' | '.join(failures)}",
            "The rows that need them will fail; leave tensorrt out of them, or mend the causes named above.",
        )


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = cli.parser("harness.build_engine", __doc__)
    parser.add_argument("--force", action="store_true", help="build again even where nothing changed")
    parser.add_argument("--only-list", action="store_true", help="build nothing, and list what would be built")
    parser.add_argument("--list-file", type=Path, metavar="PATH", help="with --only-list: also write the names as JSON")
    cli.add_models(parser)
    parser.add_argument("--engines", nargs="+", metavar="NAME", help="only these, by the names that --only-list prints")
    jobs = "engines to build at the same time (1); no gain was measured for convolutional networks"
    parser.add_argument("--engine-jobs", type=int, default=1, metavar="N", help=jobs)
    cli.add_interpreters(parser)
    cli.add_folders(parser)
    options = parser.parse_args(arguments)
    parallel_commands.check_jobs(options.engine_jobs, "engines cannot be built", "ENGINE_JOBS=4")
    return options


def _continue_in(python: Path, options: argparse.Namespace) -> None:
    """Become the same stage in the interpreter that has TensorRT; it must not import packages made for this one."""
    given = vars(options)
    words = ["--results", str(given["results"]), "--models-dir", str(given["models_dir"])]
    words += [f"--{flag.replace('_', '-')}" for flag in ("force", "only_list") if given[flag]]
    for flag in ("models", "engines"):
        words += [f"--{flag}", *given[flag]] if given[flag] else []
    words += ["--list-file", str(given["list_file"])] if given["list_file"] else []
    words += ["--engine-jobs", str(given["engine_jobs"])]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    os.execve(python, [str(python), "-m", "harness.build_engine", *words], environment)  # noqa: S606


def _here() -> EnginePlace:
    """This machine, as engine records describe it."""
    try:
        from harness.backends.tensorrt.versions import engine_place_here  # noqa: PLC0415 - TensorRT, which only this stage and its backend need
    except ImportError as error:
        raise UnavailableError(
            f"The plan needs TensorRT engines and TensorRT cannot be imported: {error}.",
            "Install it, name a Python that has it (BACKEND_PYTHONS=tensorrt=<path>), or leave it out: BACKENDS=….",
        ) from error
    return engine_place_here()


@dataclass(frozen=True)
class _Model:
    """One model whose engines are built."""

    plan: Plan
    export: ExportRecord
    folder: ModelFolder
    cases: EngineCases
    place: EnginePlace
    cache: Path


@dataclass(frozen=True)
class _Missing:
    """An engine that is to be built. slug: folder of its model."""

    model: _Model
    request: EngineRequest
    name: str

    @property
    def slug(self) -> str:
        return self.model.export.slug


def _missing_of(
    plan: Plan,
    export: ExportRecord,
    cases: EngineCases,
    place: EnginePlace,
    models: Models,
    flags: argparse.Namespace,
    problems: list[str],
) -> list[_Missing]:
    """The engines of one model that are to be built; `problems` gets a line for each precision without ONNX file."""
    from harness.backends.tensorrt import versions  # noqa: PLC0415

    slug, folder = export.slug, models.folder(export.slug, export.folder)
    typed = versions.strongly_typed()
    source: dict[Precision, OnnxArtifact] = {}
    for precision in dict.fromkeys(case.precision for case, _ in cases):
        try:
            source[precision] = requests.onnx_source(export, precision, typed)
        except MissingInputError as error:
            problems.append(f"{slug}: {error.problem} {error.hint}")
    cases = [(case, options) for case, options in cases if case.precision in source]
    model = _Model(plan, export, folder, cases, place, models.timing_cache(place.tensorrt, place.gpu))
    missing = []
    for request in requests.engine_requests(cases, export, source):
        name = requests.engine_name(request)
        if flags.engines and name not in flags.engines:
            continue
        if not flags.force and _is_current(folder, name, requests.engine_key(request, place)):
            cli.say(f"{slug}: engine {name} is up to date")
            continue
        missing.append(_Missing(model, request, name))
    return missing


def _built(missing: _Missing) -> str | None:
    """Build one engine; the reason where that fails."""
    cli.say(f"{missing.slug}: building engine {missing.name} …")
    try:
        record = _build(missing.model, missing.request, missing.name)
    except InferometerError as error:
        cli.warn(f"{missing.slug}: {missing.name} was not built. {error.problem}")
        return f"{missing.slug} {missing.name}: {error.problem}"
    cli.say(f"{missing.slug}: {_engine_line(record)}")
    return None


def _build_in_parallel(missing: Sequence[_Missing], options: argparse.Namespace) -> list[str]:
    """Build engines at the same time, each in a process of its own; the reason of each that was not built."""
    cli.say(f"{len(missing)} engines to build, {options.engine_jobs} at the same time")
    common = [*COMMAND, "--results", str(options.results), "--models-dir", str(options.models_dir)]
    common += ["--force"] * options.force
    commands = [[*common, "--models", engine.model.export.model, "--engines", engine.name] for engine in missing]
    ended = parallel_commands.run(commands, options.engine_jobs, cli.relay)
    return [_reason(engine, end) for engine, end in zip(missing, ended, strict=True) if end.code]


def _reason(missing: _Missing, end: parallel_commands.EndedCommand) -> str:
    error = cli.last_error(end.printed)
    if error is None:
        return f"{missing.slug} {missing.name}: its build ended with {end.ending()}"
    return error[0].partition(NOT_BUILT)[2] or f"{missing.slug} {missing.name}: {error[0]}"


def _is_current(folder: ModelFolder, name: str, key: str) -> bool:
    try:
        record = store.load(folder.engine_record(name), EngineRecord, "make engines")
    except (FormatError, MissingInputError):
        return False
    file = folder.home / record.engine.path
    return record.key == key and file.is_file() and store.sha256_file(file) == record.engine.sha256


def _build(model: _Model, request: EngineRequest, name: str) -> EngineRecord:
    """Build and check one engine, and save its record."""
    from harness.backends.tensorrt.builder import build_checked  # noqa: PLC0415

    tolerance = model.plan.tolerance(model.export.model, request.precision)
    record = build_checked(
        model.folder,
        request,
        name,
        model.place,
        model.cache,
        timed=_timed,
        check=lambda built: _checked(model, built),
        limit=tolerance.relative_l2 if tolerance else None,
    )
    store.save(model.folder.engine_record(name), record)
    return record


def _timed(build: Callable[[], Any]) -> tuple[Any, float]:
    started_ns = now_ns()
    built = build()
    return built, (now_ns() - started_ns) / 1e9


def _checked(model: _Model, record: EngineRecord) -> Parity | None:
    """The largest distance from the reference over all stored inputs, through the backend that will measure it."""
    case, options = _check_case(model, record.request)
    batches = load_batches(model.folder.root, model.export, case, model.plan.measurement.parity_samples)
    job = BackendJob(
        case,
        model.export,
        model.folder.root,
        batches.inputs,
        1,
        model.folder.compile_cache,
        options,
        engine=record,
        engine_folder=model.folder.home,
    )
    backend = construct(BACKENDS[case.backend].target, job)
    parities = []
    try:
        backend.load()
        for index in range(len(batches.inputs)):
            backend.select(index)
            backend.infer()
            backend.synchronize()
            expected, mask = batches.reference(index), batches.masks[index]
            parities.append(parity.compare(backend.outputs(), expected, model.export.classifier, mask))
    finally:
        # A CUDA context that is left pushed aborts this process at its end, so that its result is lost.
        backend.close()
    return parity.worst(parities)


def _check_case(model: _Model, request: EngineRequest) -> tuple[Case, Options]:
    """A case of the plan that the engine serves, with inputs resident on the device; of the shape that the engine was
    tuned for, if there is such a case.
    """
    tuned = next(iter(request.profiles.values())).optimum[0]
    fitting = [(case, options) for case, options in model.cases if requests.serves(request, case, options)]
    case, options = min(fitting, key=lambda parity: abs(parity[0].batch_size - tuned))
    # At the other boundaries a selected batch reaches the engine only by upload() or feed().
    return case.model_copy(update={"boundary": "compute"}), options


def _engine_line(record: EngineRecord) -> str:
    layers = ", ".join(f"{count} {name}" for name, count in record.precisions.items()) or f"{record.layers} layers"
    distance = (
        "not finite" if record.parity.relative_l2 is None else f"{record.parity.relative_l2:.1e} from the reference"
    )
    kept = f", {len(record.kept_fp32)} layers kept in fp32" if record.kept_fp32 else ""
    size = f"{record.engine.size_bytes / (1 << 20):.0f} MiB"
    return f"{record.engine.path}: {record.build_s:.0f} s, {size}, {layers}, {distance}{kept}"


if __name__ == "__main__":
    cli.main(stage)
