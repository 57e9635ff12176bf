"""Expands a configuration into cases: refuses impossible combinations and explains skipped cases (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, Literal

from harness.backends import BACKENDS, BackendInfo, backend_info
from harness.backends.precision import onnx_precision
from harness.backends.tensorrt.engine_request import VARIANT as ENGINE_VARIANT
from harness.core.errors import ConfigError
from harness.core.layout import case_id
from harness.core.schemas import (
    Artifact,
    Boundary,
    Case,
    Device,
    EngineRecord,
    ExportOptions,
    ExportRecord,
    GenerationCase,
    GivenInputs,
    Measurement,
    ModeName,
    Plan,
    PlannedModel,
    Precision,
)
from harness.core.schemas.profile_record import FileSize
from harness.core.store import digest_of
from harness.planning.block_settings import refuse_unknown_settings, settings_of
from harness.planning.config import Config, MatrixBlock, ModelEntry
from harness.planning.generation_cases import KnownModels, Pairs, expand_generations
from harness.planning.load_cases import fixed_to, load_cases, served_cases
from harness.zoo import ModelInfo, model_info
from harness.zoo.quantised_files import DEQUANTISED, FileQuantisation

_MODES: Mapping[Boundary, tuple[ModeName, ...]] = {
    "compute": ("sync", "pipelined", "offline"),
    "transfer": ("sync", "pipelined"),
    "e2e": ("sync",),
}
"""The modes of each boundary. In other modes the parts of a sample could not be distinguished."""


def refuse_impossible(block: MatrixBlock, backends: Sequence[BackendInfo], device: Device, where: str) -> None:
    """Raise ConfigError for a boundary or mode of a block that no combination can use."""
    if "transfer" in block.boundaries and device == "cpu":
        problem = "on a CPU there is nothing to transfer: inputs and outputs are already where it reads and writes them"
        raise ConfigError(f"{where}.boundaries: {problem}.", "Use `compute` or `e2e`.")
    for boundary in block.boundaries:
        other = [mode for mode in block.modes if mode not in _MODES[boundary]]
        if other:
            able = " or ".join(_MODES[boundary])
            raise ConfigError(
                f"{where}: the {boundary} boundary is measured in {able} mode, not in {other[0]} mode.",
                f"Make two blocks of it: one with `boundaries: [{boundary}]`, one with `modes`.",
            )
    for mode in block.modes:
        if not any(mode in table.modes_on(device) for table in backends):
            able = ", ".join(name for name, table in BACKENDS.items() if mode in table.modes_on(device))
            raise ConfigError(
                f"{where}.modes: none of these backends has the {mode} mode.", f"These have: {able or 'none yet'}."
            )


def reason_to_skip_mode(
    backend: str, table: BackendInfo, info: ModelInfo, device: Device, boundary: Boundary, mode: ModeName
) -> str | None:
    """Why this backend does not have the mode, or this model not the boundary; None where both are possible."""
    if mode not in table.modes_on(device):
        return f"{backend} has no {mode} mode: {table.modes_not_offered.get(mode, 'not offered')}"
    if boundary == "transfer" and not table.transfers:
        return f"no transfer boundary: {backend} has no inputs and outputs of its own to copy"
    if (boundary, mode) == ("transfer", "pipelined") and table.one_stream is not None:
        return f"no transfer boundary in pipelined mode: {table.one_stream}"
    if boundary == "e2e" and table.artifact == "none":
        return f"no e2e boundary: {backend} runs no model that text or pictures could be prepared for"
    if boundary == "e2e" and not info.preprocessing:
        return f"no e2e boundary: how text or pictures become inputs of {info.name} is not known"
    return None


JOINABLE = frozenset({"rounds", "max_rounds", "target_interval", "budget_s", "timeout_s", "export_timeout_s"})
"""Measurement settings that change the number of samples, not the meaning of a sample."""

METHOD_VERSION = 2
"""Raised when the measurement method changes so much that samples from before and after may not be joined."""


def make_plan(
    config: Config,
    source: str,
    config_sha256: str,
    merge: bool = False,
    quantised: Mapping[str, FileQuantisation] | None = None,
    inputs: Mapping[str, Sequence[GivenInputs]] | None = None,
    pairs: Pairs = (),
    loads_alone: bool = False,
    fixed: Mapping[str, int] | None = None,
) -> Plan:
    """Expand a configuration. Raises ConfigError for unknown names, empty selections, duplicates, impossible blocks.

    With `merge`, equal cases of two blocks become one: command-line options may make blocks overlap. quantised: the
    quantisation of users' files that are already quantised: the cases of those with products in 8 bits are int8,
    whatever a block asks for; the others are not quantised again. inputs: users' own inputs, by model; the shapes of
    arrays decide its sequence lengths. loads_alone: leave the cases of `run` out. pairs: lengths of prompts and
    outputs, in place of those of the blocks of generation. fixed: the only batch size of users' files that have one:
    cases and loads of other sizes are skipped.
    """
    try:
        backend_info(config.report.baseline_backend)
    except ConfigError as error:
        raise ConfigError(f"{source}: report.baseline_backend: {error.problem}", error.hint) from None
    models = _models(config, source)
    own, given, sizes = quantised or {}, inputs or {}, fixed or {}
    in_8_bits = {name for name, kind in own.items() if kind != "weights"}
    cases = _unique(_expand(config, models, source, own, given, sizes), source, merge, {*in_8_bits, *given})
    decoders = partial(_decoders, config, models, source)
    deployments = _deployments(config, models, source, own, given)
    loads = load_cases(config.scenarios, deployments, source, decoders, sizes)
    cases = [] if loads_alone else cases
    served = [*cases, *served_cases(loads)]
    needed = {case.model for case in served} | {load.model for load in loads}
    plan = Plan(
        plan_id="unnamed",
        settings_id=settings_id(config.device, config.measurement),
        config=source,
        config_sha256=config_sha256,
        device=config.device,
        models=tuple(
            _planned(entry, info, served, given.get(entry.name, ()))
            for entry, info in models.values()
            if entry.name in needed
        ),
        measurement=config.measurement,
        gates=config.all_tolerances(),
        report=config.report,
        export=config.export,
        engines=config.engines,
        cases=tuple(cases),
        generation=config.generating,
        generations=() if loads_alone else tuple(expand_generations(config, models, source, merge, pairs)),
        loads=loads,
    )
    return plan.model_copy(update={"plan_id": plan_id(plan)})


def plan_id(plan: Plan) -> str:
    """Hash of everything that a plan measures and judges by.

    It does not include the path of the configuration, the time limit of an export, the title of the report and whether
    it has charts: no figure or grade depends on these.
    """
    excluded = {"schema_version": True, "plan_id": True, "config": True, "config_sha256": True}
    timeout, appearance = {"export_timeout_s"}, {"title", "charts"}
    content = plan.model_dump(mode="json", exclude={**excluded, "measurement": timeout, "report": appearance})
    # Defaults of options that came later are left out, so that earlier ids stay the same.
    if plan.export == ExportOptions():
        del content["export"]
    if not plan.generations:
        del content["generation"], content["generations"]
    elif plan.generation.prompts is not None:  # its content, not its folder
        content["generation"]["prompts"] = ""
    if not plan.loads:
        del content["loads"]
    content |= {"loads": [_without_later_fields(load) for load in content["loads"]]} if plan.loads else {}
    for model in content["models"]:
        own = model.pop("inputs")
        if own:  # the content of the files, not their folders
            model["inputs"] = [{**case, "path": ""} for case in own]
    return digest_of(content)


def _without_later_fields(load: dict[str, Any]) -> dict[str, Any]:
    """A load case without the fields that came later, where they say nothing."""
    later = ("further_bounds", "lengths", "in_flight")
    kept = {name: value for name, value in load.items() if value or name not in later}
    if load["batching"] == "static":
        del kept["batching"]
    if load["bound"] and load["bound"]["of"] == "latency":
        kept["bound"] = {name: value for name, value in load["bound"].items() if name != "of"}
    return kept


def settings_id(device: Device, measurement: Measurement) -> str:
    """Hash of what samples must share to be joined. It leaves out the number of rounds, which may grow later, and time
    limits, which only end a process early."""
    return digest_of(METHOD_VERSION, device, measurement.model_dump(exclude=set(JOINABLE)))


def _models(config: Config, source: str) -> KnownModels:
    known: dict[str, tuple[ModelEntry, ModelInfo]] = {}
    slugs: dict[str, str] = {}
    for index, entry in enumerate(config.models):
        info = model_info(entry.name)
        weights = entry.weights or info.default_weights
        if weights not in info.weights:
            raise ConfigError(
                f"{source}: models[{index}]: {entry.name} has no `{weights}` weights.",
                f"It has: {', '.join(info.weights)}.",
            )
        if entry.name in known or info.slug in slugs:
            raise ConfigError(
                f"{source}: models[{index}]: {entry.name} is named twice.",
                "Name each model once; blocks choose among them.",
            )
        slugs[info.slug] = entry.name
        known[entry.name] = entry, info
    return known


def _expand(
    config: Config,
    models: KnownModels,
    source: str,
    quantised: Mapping[str, FileQuantisation],
    given: Mapping[str, Sequence[GivenInputs]],
    fixed: Mapping[str, int],
) -> Iterator[Case]:
    for index, block in enumerate(config.matrix):
        where = f"{source}: matrix[{index}]"
        selected = _selected(block, models, where)
        backends = [(name, backend_info(name)) for name in block.backends]
        _refuse_impossible(block, backends, config.device, where)
        for name in selected:
            entry, info = models[name]
            for backend, table in backends:
                already, own, size = quantised.get(name), given.get(name, ()), fixed.get(name)
                yield from _backend_cases(block, entry, info, backend, table, config.device, already, own, size)


def _deployments(
    config: Config,
    models: KnownModels,
    source: str,
    quantised: Mapping[str, FileQuantisation],
    given: Mapping[str, Sequence[GivenInputs]],
) -> list[Case]:
    """The deployments of the matrix: a case of each model, backend, precision, sequence length and setting, at batch
    size 1, whether or not its file takes it. Empty without a scenario."""
    if not config.scenarios:
        return []
    deployed = {"boundaries": ("compute",), "modes": ("sync",), "batch_sizes": (1,), "tune": False}
    blocks = tuple(block.model_copy(update=deployed) for block in config.matrix)
    cases = {
        case.case_id: case
        for case in _expand(config.model_copy(update={"matrix": blocks}), models, source, quantised, given, {})
    }
    return list(cases.values())


def _decoders(config: Config, models: KnownModels, source: str, lengths: tuple[int, int]) -> Sequence[GenerationCase]:
    """The cases with which the blocks of generation can serve prompts and outputs of these lengths, one sequence at a
    time. Raises as expand_generations."""
    blocks = tuple(block.model_copy(update={"batch_sizes": (1,)}) for block in config.generation)
    return expand_generations(
        config.model_copy(update={"generation": blocks}), models, source, merge=True, pairs=[lengths]
    )


def _backend_cases(
    block: MatrixBlock,
    entry: ModelEntry,
    info: ModelInfo,
    backend: str,
    table: BackendInfo,
    device: Device,
    quantised: FileQuantisation | None,
    given: Sequence[GivenInputs],
    fixed: int | None,
) -> Iterator[Case]:
    """Every combination of a block's lists for one model and backend."""
    lengths: Sequence[int | None] = block.sequence_lengths if info.kind == "text" else (None,)
    if given:
        texts = any(file.holds_texts for file in given)
        lengths = lengths if texts else [file.sequence_length for file in given]
        info = replace(info, preprocessing=False)
    precisions: Sequence[Precision] = block.precisions if quantised in (None, "weights") else ("int8",)
    for precision, boundary, mode in product(precisions, block.boundaries, block.modes):
        settings = settings_of(block, table, device, info.kind, precision)
        skip = _skip_reason(table, info, device, precision, quantised or info.quantisation)
        skip = skip or reason_to_skip_mode(backend, table, info, device, boundary, mode)
        for batch_size, length, setting in product(block.batch_sizes, lengths, settings):
            setting_in_id = table.setting_in_id(device, setting)
            other_size = None if fixed in (None, batch_size) else fixed_to(fixed, f"BATCHES={fixed} measures it")
            yield Case(
                case_id=case_id(
                    info.slug, backend, device, precision, batch_size, length, boundary, mode, setting_in_id
                ),
                model=entry.name,
                slug=info.slug,
                backend=backend,
                device=device,
                precision=precision,
                batch_size=batch_size,
                sequence_length=length,
                boundary=boundary,
                mode=mode,
                weights=entry.weights or info.default_weights,
                setting=setting,
                tuned=len(settings) > 1 and block.tune,
                skip_reason=skip or other_size,
            )


def _selected(block: MatrixBlock, models: KnownModels, where: str) -> Sequence[str]:
    if block.models is None:
        return list(models)
    for name in block.models:
        if name not in models:
            raise ConfigError(
                f"{where}.models: {name} is not among the models of this configuration.",
                f"Add it under `models:`, or name one of: {', '.join(models)}.",
            )
    if not block.models:
        raise ConfigError(f"{where}.models: the list is empty.", "Name a model, or leave `models` out for all.")
    return block.models


def _refuse_impossible(
    block: MatrixBlock, backends: Sequence[tuple[str, BackendInfo]], device: Device, where: str
) -> None:
    """Raise ConfigError for a list entry that no combination can use: it is a mistake, not a row to skip."""
    for name, table in backends:
        if device not in table.precisions:
            raise ConfigError(
                f"{where}.backends: {name} does not run on {device}.",
                f"On {device}: {', '.join(_backends_on(device)) or 'no backend yet'}.",
            )
    for precision in block.precisions:
        if not any(precision in table.precisions[device] for _, table in backends):
            reasons = "; ".join(sorted({table.not_offered.get(precision, "not offered") for _, table in backends}))
            raise ConfigError(
                f"{where}.precisions: none of these backends runs {precision} on {device}.",
                f"{reasons[0].upper()}{reasons[1:]}. Leave {precision} out, or choose another backend.",
            )

    refuse_impossible(block, [table for _, table in backends], device, where)
    refuse_unknown_settings(block, backends, device, where)


def _backends_on(device: Device) -> list[str]:
    return [name for name, table in BACKENDS.items() if device in table.precisions]


_FLOATING = f"this file is {DEQUANTISED}: PRECISIONS=fp32 measures it as it is"


def _skip_reason(
    table: BackendInfo, info: ModelInfo, device: Device, precision: Precision, quantisation: FileQuantisation
) -> str | None:
    if table.remote:
        return "a running service is only loaded, by its address: make load ENDPOINT=<address>"
    if table.artifact != "none" and not info.exportable:
        return "work of known duration is no model: only the spin backend runs it"
    if table.artifact == "module" and not info.has_module:
        return "an ONNX file has no PyTorch module to run"
    if precision not in table.precisions[device]:
        return table.not_offered.get(precision, f"{precision} is not offered on {device}")
    not_quantised = _FLOATING if quantisation == "weights" else table.not_quantised.get(quantisation)
    return table.not_run.get(info.kind) or (not_quantised if precision == "int8" else None)


def _unique(cases: Iterable[Case], source: str, merge: bool, joined: Collection[str]) -> list[Case]:
    by_id: dict[str, Case] = {}
    for case in cases:
        if case.case_id in by_id and not merge and case.model not in joined:
            raise ConfigError(
                f"{source}: duplicate case {case.case_id}.",
                "A list has a value twice, or two blocks overlap: take the combination out of one place.",
            )
        by_id[case.case_id] = case
    return list(by_id.values())


def _planned(entry: ModelEntry, info: ModelInfo, cases: Sequence[Case], given: Sequence[GivenInputs]) -> PlannedModel:
    own = [case for case in cases if case.model == entry.name and case.skip_reason is None]
    lengths = {case.sequence_length for case in own if case.sequence_length is not None}
    files = {("fp32", None): None, **{file: None for case in own for file in onnx_files(case)}}
    return PlannedModel(
        name=entry.name,
        slug=info.slug,
        weights=entry.weights or info.default_weights,
        kind=info.kind,
        exported=any(backend_info(case.backend).artifact != "none" for case in own),
        sequence_lengths=tuple(sorted(lengths)),
        onnx_precisions=tuple(dict.fromkeys(precision for precision, _ in files)),
        onnx_variants=tuple(f"{precision}-{variant}" for precision, variant in files if variant is not None),
        gates=entry.gates,
        raw_inputs=any(case.boundary == "e2e" for case in own),
        inputs=tuple(given),
    )


def onnx_files(case: Case) -> list[tuple[Precision, str | None]]:
    """(precision, variant) of the ONNX files that a case starts from: tf32 and bf16 have no file of their own."""
    info = backend_info(case.backend)
    precision = onnx_precision(case.precision)
    if info.artifact == "onnx":
        return [(precision, info.setting(case.device, case.setting).variant)]
    if info.artifact != "engine":
        return []
    # The version of TensorRT decides from which of the two it builds an engine.
    return [(name, ENGINE_VARIANT) for name in dict.fromkeys((FP32, precision))]


FP32: Precision = "fp32"


def profiled_cases(cases: Iterable[Case], computing: Iterable[str]) -> list[Case]:
    """Every case at the compute boundary that computes, in the plan's order; a case planned in two modes appears once.

    computing: backends that compute a result.
    """
    names, alike = frozenset(computing), dict[Case, Case]()
    for case in cases:
        if case.skip_reason is None and case.boundary == "compute" and case.backend in names:
            alike.setdefault(case.model_copy(update={"mode": "sync", "case_id": ""}), case)
    return list(alike.values())


def model_file_sizes(export: ExportRecord, engines: Iterable[EngineRecord]) -> tuple[FileSize, ...]:
    """Sizes on disk of a model: weights for PyTorch, ONNX files with their external data, engines."""
    weights = export.module
    onnx = [*export.onnx.items(), *export.onnx_variants.items()]
    return (
        *((_file_size("weights", "fp32", weights.path, [weights]),) if weights else ()),
        *(_file_size("onnx", name, file.path, file.files()) for name, file in onnx),
        *(_file_size("engine", made.request.precision, made.engine.path, [made.engine]) for made in engines),
    )


def _file_size(kind: Literal["weights", "onnx", "engine"], name: str, path: str, files: Iterable[Artifact]) -> FileSize:
    return FileSize(kind=kind, name=name, path=path, size_bytes=sum(file.size_bytes for file in files))
