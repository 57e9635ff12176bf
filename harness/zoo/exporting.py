"""Export one model: load, inputs, reference, ONNX files, checks, record. Every file is written before its record."""

from __future__ import annotations

import dataclasses
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from harness.core import store
from harness.core.errors import ConfigError, ExportError, UsageError, reason
from harness.core.host import limits
from harness.core.layout import ModelFolder
from harness.core.new_inputs import NEW_SAMPLES, new_samples
from harness.core.padding import mask_of
from harness.core.safe_files import path_inside
from harness.core.schemas import (
    Artifact,
    ExportFailure,
    ExportRecord,
    ExportRequest,
    InputSet,
    NewSamples,
    OnnxArtifact,
    OnnxCheck,
    Parity,
    PlannedModel,
    Precision,
    Preparation,
    RawInputs,
)
from harness.core.units import percent
from harness.zoo import ModelInfo, identity
from harness.zoo.construct import family_of, save_weights
from harness.zoo.cost.torch_counts import work_of
from harness.zoo.file_graph import graph_of
from harness.zoo.identity import (
    ExportChoices,
    artifact,
    request_digest,
    versions,
)
from harness.zoo.input_files import Arrays, write_arrays
from harness.zoo.inputs.own import check_different, with_own_inputs
from harness.zoo.inputs.preprocessing import prepare_of, samples_in_memory, save_samples
from harness.zoo.loaded import Inputs, Loaded, Raw, Request, StepTimer, tensor_specs
from harness.zoo.onnx import int8, torch_to_onnx
from harness.zoo.onnx import variants as onnx_forms
from harness.zoo.onnx.check import (
    Trial,
    check_file,
    hint_of_other_exporter,
    trials_of,
)
from harness.zoo.quantised_files import bits_of_blocks
from harness.zoo.reference import (
    Compare,
    Forward,
    check_comparable,
    check_not_empty,
    check_token_axes,
    exchanged_answers,
    in_chunks,
    output_batch_axes,
    reference_of,
    relative_l2,
    takes_only,
)

MAX_JPEG_DISTANCE = 0.1
"""Largest relative L2 between a picture's inputs by way of JPEG and without: quality 95 gave 0.04 over the sample
photographs (measured; 0.02 to 0.08 each). More says that the e2e preprocessing is not the model's own."""


def raw_inputs(
    loaded: Loaded, inputs: Mapping[int | None, Inputs], folder: ModelFolder, samples: int
) -> dict[int | None, RawInputs]:
    """Write raw inputs and their reference for every sequence length. Nothing where the preprocessing is not known.

    Raises ExportError where the prepared samples differ from the inputs of the other boundaries: text must be equal,
    pictures may differ by JPEG's loss.
    """
    raw: dict[int | None, RawInputs] = {}
    for length, made in inputs.items():
        if loaded.make_raw is not None:
            raw[length] = _raw_of_length(loaded, loaded.make_raw(samples, length), made, folder, length)
    return raw


def _raw_of_length(loaded: Loaded, raw: Raw, made: Inputs, folder: ModelFolder, length: int | None) -> RawInputs:
    kinds = {name: made.arrays[name].dtype for name in loaded.input_names}
    prepare = prepare_of(raw.preparation, folder.root, kinds, length)
    prepared = prepare(samples_in_memory(raw.samples, raw.preparation))
    _check(prepared, made.arrays, exact=_is_exact(raw.preparation))
    save_samples(raw.samples, folder.raw_inputs(length))
    return RawInputs(
        items=artifact(folder.raw_inputs(length)),
        reference=_reference(loaded, raw, prepared, folder, length),
        preparation=raw.preparation,
        answer=raw.answer,
    )


def _is_exact(how: Preparation) -> bool:
    """Whether the samples become exactly the stored inputs: only JPEG is lossy."""
    return how.kind == "text" or (how.kind == "processor" and how.media == "audio")


def _check(prepared: Arrays, stored: Arrays, exact: bool) -> None:
    for name, wanted in stored.items():
        got = prepared[name]
        same = got.shape == wanted.shape and got.dtype == wanted.dtype
        if exact and not (same and np.array_equal(got, wanted)):
            raise ExportError(
                f"The saved tokenizer or processor gives other inputs than those that are measured: `{name}`.",
                "Leave `boundaries: [e2e]` out for this model.",
            )
        distance = relative_l2(got, wanted) if same and not exact else 0.0
        if not same or distance > MAX_JPEG_DISTANCE:
            raise ExportError(
                f"Decoded JPEG files differ from the model's inputs: `{name}` is {distance:.2f} away.",
                "Leave `boundaries: [e2e]` out for this model.",
            )


def _reference(loaded: Loaded, raw: Raw, prepared: Arrays, folder: ModelFolder, length: int | None) -> Artifact:
    if _is_exact(raw.preparation):
        # The inputs are the same, so the outputs are the same too.
        return artifact(folder.reference(length))
    outputs = in_chunks(reference_of(loaded, limits.thread_count()), prepared, loaded.fixed_batch)
    check_comparable(folder.root.name, outputs)
    write_arrays(folder.raw_reference(length), outputs)
    return artifact(folder.raw_reference(length))


_EXAMPLES = 2
"""Samples of the exporter's example; torch.export would take an axis of extent 1 for a fixed axis."""


@dataclasses.dataclass(frozen=True)
class ExportJob:
    """One model to export, and the new folder to write it into."""

    info: ModelInfo
    planned: PlannedModel
    batch_sizes: tuple[int, ...]
    seed: int
    samples: int
    folder: ModelFolder
    options: ExportChoices

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """Sequence lengths of the input sets; a single set without a length where the model reads no text."""
        return self.planned.sequence_lengths or (None,)


@dataclasses.dataclass(frozen=True)
class LoadedRequest:
    """A model that was loaded, the digest of the request that it answers, and the sources of a user's module."""

    loaded: Loaded
    request_sha256: str
    sources: Mapping[str, str]


def identify(job: ExportJob, step: StepTimer) -> LoadedRequest:
    """Load the model and identify it. Raises HubError, ConfigError, UsageError, ExportError or StorageError."""
    with store.translate_storage_errors(job.folder.root), step("load"):
        _bring_pickled(job)
        before = frozenset(sys.modules)
        loaded = load_model(job)
        sources: dict[str, str] = {}
        built: dict[str, str] = {}
        if identity.is_built(job.info):
            prefix, _, reference = job.info.name.partition(":")
            origin = reference.partition(":")[0] if prefix == "module" else ""
            sources, built = identity.built_identity(loaded.require_module(), origin, before)
            built |= {f"source {name}": digest for name, digest in sources.items()}
        digest = request_digest(job.info, job.planned, job.seed, job.samples, job.options, built)
    return LoadedRequest(loaded, digest, sources)


def _bring_pickled(job: ExportJob) -> None:
    """Copy the module that harness.api left beside the exports: an export has all files that rebuild its model."""
    pickled = job.folder.pickled.name
    if job.folder.home != job.folder.root and (job.folder.home / pickled).is_file():
        shutil.copyfile(path_inside(job.folder.home, pickled), job.folder.pickled)


def export_model(
    job: ExportJob,
    identified: LoadedRequest,
    step: StepTimer,
    seconds: Mapping[str, float],
    compare: Compare,
    now_ns: Callable[[], int],
) -> ExportRecord:
    """Write the model's files and return their record, which the caller saves.

    Where an ONNX file cannot be made, or differs from the model, the record has the reason: PyTorch needs no file.

    `step` fills `seconds`. now_ns: the clock. Raises HubError, ConfigError, UsageError, ExportError or StorageError.
    """
    loaded = identified.loaded
    with store.translate_storage_errors(job.folder.root):
        with step("inputs"):
            inputs = {length: _real_inputs(job, loaded, length) for length in job.lengths}
        with step("reference"):
            loaded = _diagnosed(job, loaded, inputs[job.lengths[0]].arrays, compare)
            references = _write_references(job, loaded, inputs, compare, now_ns)
        raw = _raw_inputs(job, loaded, inputs, step)
        with step("work"):
            work = work_of(loaded, inputs)
        example = examples(inputs[job.lengths[0]].arrays, loaded.fixed_batch)
        refusals = _Refusals(job, only_onnx=loaded.module is None)
        onnx = _onnx_files(job, loaded, example, step, refusals)
        variants = _onnx_forms(job, loaded, example, step, refusals)
        with step("check"):
            trials = trials_of(loaded, job.planned.sequence_lengths, limits.thread_count())
            for trial in trials:
                check_comparable(job.info.name, trial.outputs)
            checks = _checks(job, loaded, trials, [*onnx, *variants], compare, refusals)
        if loaded.module is not None and "fp32" in refusals.failures:
            with step("other exporter"):
                refusals.advise(
                    "fp32",
                    hint_of_other_exporter(loaded, example, job.options, trials, compare, limits.thread_count()),
                )
        module = _weights(job, loaded)
    return ExportRecord(
        request_sha256=identified.request_sha256,
        request=ExportRequest(
            seed=job.seed,
            exporter=job.options.exporter,
            opset=job.options.opset,
            output_name=job.options.output_name,
            max_length=job.options.max_length,
            attention=job.options.attention,
        ),
        sources=dict(identified.sources),
        model=job.info.name,
        slug=job.planned.slug,
        weights=job.planned.weights,
        weight_source=loaded.weight_source,
        kind=job.info.kind,
        classifier=loaded.classifier,
        parameters=None if loaded.module is None else sum(p.numel() for p in loaded.module.parameters()),
        inputs=tensor_specs([t.inputs for t in trials], loaded.input_names, loaded.fixed_batch, loaded.input_axes),
        outputs=tensor_specs([t.outputs for t in trials], loaded.output_names, loaded.fixed_batch, loaded.batch_axes),
        converted=loaded.converted,
        written_inputs=loaded.written_inputs,
        nested_outputs=loaded.nested_outputs,
        module=module,
        onnx={name: file for name, file in onnx.items() if name not in refusals.failures},
        onnx_variants={name: file for name, file in variants.items() if name not in refusals.failures},
        refused=refusals.failures,
        work=work,
        input_sets=tuple(
            _input_set(job, length, inputs[length], raw.get(length), references[length]) for length in job.lengths
        ),
        checks=checks,
        versions=versions(),
        seconds=dict(seconds),
    )


def load_model(job: ExportJob) -> Loaded:
    """Load by family, with the command line's limits and names applied and checked against the plan."""
    planned, options = job.planned, job.options
    request = Request(job.info, planned.weights, job.seed, options.cache, job.folder.root)
    loaded = family_of(job.info).load(request)
    if loaded.kind is not None and loaded.kind != planned.kind:
        raise ConfigError(
            f"{planned.name} takes no {planned.kind}s, as which it was planned: its configuration was not here then.",
            "It is here now: run the same command again, from `make plan` on.",
        )
    if planned.inputs:
        loaded = with_own_inputs(loaded, planned.inputs)
    if options.output_name is not None:
        if loaded.module is None:
            raise UsageError(f"{planned.name} has its own output names.", "Leave `--output-name` out for it.")
        loaded = dataclasses.replace(loaded, output_names=(options.output_name, *loaded.output_names[1:]))
    given = [limit for limit in (loaded.max_sequence, options.max_length) if limit is not None]
    longest = max(planned.sequence_lengths, default=0)
    if loaded.sequence_inputs and given and longest > min(given):
        why = "--max-length limits it to" if options.max_length == min(given) else "it has positions for"
        raise UsageError(
            f"The plan asks for sequence length {longest} of {planned.name}; {why} {min(given)}.",
            f"Ask for at most {min(given)}: `make bench SEQ_LENGTHS={min(given)}`.",
        )
    if loaded.fixed_batch == 0:
        raise UsageError(
            f"{planned.name} is fixed to batch size 0, which has no samples to measure.",
            "Export it again with a dynamic batch axis, or with the batch size to measure.",
        )
    if loaded.fixed_batch is not None and loaded.fixed_batch not in job.batch_sizes:
        raise UsageError(
            f"{planned.name} is fixed to batch size {loaded.fixed_batch}; the plan asks for {list(job.batch_sizes)}.",
            f"Export it with a dynamic batch, or plan only that: `make bench BATCHES={loaded.fixed_batch}`.",
        )
    return dataclasses.replace(loaded, max_sequence=min(given) if loaded.sequence_inputs and given else None)


def _real_inputs(job: ExportJob, loaded: Loaded, length: int | None) -> Inputs:
    made = _whole_batches(loaded.make_inputs(job.samples, length), loaded.fixed_batch)
    check_different(job.planned.name, made.arrays)
    write_arrays(job.folder.inputs(length), made.arrays)
    return made


def _whole_batches(made: Inputs, fixed_batch: int | None) -> Inputs:
    """Samples for a file with a fixed batch: the first samples are repeated until the last batch is full."""
    count = len(next(iter(made.arrays.values())))
    if fixed_batch is None or count % fixed_batch == 0:
        return made
    places = np.arange(math.ceil(count / fixed_batch) * fixed_batch) % count
    return dataclasses.replace(made, arrays={name: values[places] for name, values in made.arrays.items()})


def _diagnosed(job: ExportJob, loaded: Loaded, inputs: Arrays, compare: Compare) -> Loaded:
    """The model with the batch axis of each output, its batch fixed where it takes only the size that is planned.

    Raises ExportError or ConfigError for an error of the model itself.
    """
    answer = reference_of(loaded, limits.thread_count())
    try:
        axes = output_batch_axes(job.info.name, loaded, answer, inputs, compare)
    except (ConfigError, ExportError) as error:
        size = loaded.usual_batch
        if loaded.fixed_batch is not None or size is None or not takes_only(answer, inputs, size):
            raise
        fixed = loaded.with_fixed_batch(size)
        if {*job.batch_sizes} == {size}:
            return _diagnosed(job, fixed, inputs, compare)
        hint = error.hint
        with suppress(ConfigError, ExportError):
            output_batch_axes(job.info.name, fixed, answer, inputs, compare)
            hint = f"It takes only the batch size of its examples: plan that alone (`make bench BATCHES={size}`)."
        raise type(error)(error.problem, hint) from error
    return dataclasses.replace(loaded, batch_axes=axes)


@dataclasses.dataclass(frozen=True)
class _References:
    """exchanged: how far the answers to different samples are apart; None for one sample. new: the new samples, or why
    there are none. sample_s: seconds of a sample in the fastest call."""

    exchanged: Parity | None
    new: NewSamples | str
    sample_s: float


def _write_references(
    job: ExportJob,
    loaded: Loaded,
    inputs: Mapping[int | None, Inputs],
    compare: Compare,
    now_ns: Callable[[], int],
) -> dict[int | None, _References]:
    """Length → what is known of the reference outputs, which are written."""
    answer = reference_of(loaded, limits.thread_count())
    references: dict[int | None, _References] = {}
    for length, made in inputs.items():
        sample_ns: list[float] = []
        outputs = in_chunks(_timed(answer, sample_ns, now_ns), made.arrays, loaded.fixed_batch)
        check_comparable(job.info.name, outputs)
        check_not_empty(job.info.name, outputs)
        check_token_axes(job.info.name, answer, made.arrays, outputs, loaded.fixed_batch)
        write_arrays(job.folder.reference(length), outputs)
        references[length] = _References(
            exchanged=exchanged_answers(outputs, loaded.classifier, mask_of(made.arrays), compare),
            new=_write_new_samples(job, answer, made.arrays, outputs, loaded.fixed_batch, length),
            sample_s=min(sample_ns) / 1e9,
        )
    return references


def _timed(answer: Forward, sample_ns: list[float], now_ns: Callable[[], int]) -> Forward:
    """The reference, which adds the time of a sample of each call to `sample_ns`."""

    def timed(arrays: Arrays) -> Arrays:
        began = now_ns()
        outputs = answer(arrays)
        sample_ns.append(max(1, now_ns() - began) / len(next(iter(arrays.values()))))
        return outputs

    return timed


def _write_new_samples(
    job: ExportJob, answer: Forward, stored: Arrays, reference: Arrays, fixed_batch: int | None, length: int | None
) -> NewSamples | str:
    """Write new samples in the place of the first ones, and their reference; or return why there are none: inputs
    between two others may mean nothing to the model."""
    chunk = fixed_batch or 1
    made = new_samples(stored, math.ceil(NEW_SAMPLES / chunk) * chunk, np.random.default_rng(job.seed))
    if made is None:
        return "no new sample can be made of the export's samples"
    count = len(next(iter(made.values())))
    try:
        outputs = in_chunks(answer, made, fixed_batch)
        check_comparable(job.info.name, outputs)
    except Exception as error:  # a user's model may refuse them in any way
        return f"the model refuses new samples: {reason(error)}"
    if any(outputs[name].shape != values[:count].shape for name, values in reference.items()):
        return "the model's answers to new samples have another shape"
    files = job.folder.new_inputs(length), job.folder.new_reference(length)
    for file, arrays in zip(files, (made, outputs), strict=True):
        write_arrays(file, arrays)
    return NewSamples(inputs=artifact(files[0]), reference=artifact(files[1]))


def _raw_inputs(
    job: ExportJob, loaded: Loaded, inputs: Mapping[int | None, Inputs], step: StepTimer
) -> Mapping[int | None, RawInputs]:
    if not job.planned.raw_inputs:
        return {}
    with step("raw inputs"):
        return raw_inputs(loaded, inputs, job.folder, job.samples)


def examples(arrays: Arrays, fixed_batch: int | None = None) -> Arrays:
    """The exporter's example inputs."""
    return {name: values[: fixed_batch or _EXAMPLES] for name, values in arrays.items()}


class _Refusals:
    """Why ONNX files are missing, by name. For a model that has nothing but its ONNX file nothing is refused: an error
    of its fp32 file is the error of the export.
    """

    def __init__(self, job: ExportJob, only_onnx: bool) -> None:
        self.failures: dict[str, ExportFailure] = {}
        self._asked = (*job.planned.onnx_precisions, *job.planned.onnx_variants)
        self._only_onnx = only_onnx

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """An error inside is the reason why this file, and every file that is made from it, is missing."""
        try:
            yield
        except ExportError as error:
            if self._only_onnx and name == "fp32":
                raise
            failure = ExportFailure(error=error.problem, hint=error.hint)
            made_from_it = [other for other in self._asked if _source_of(other) == name]
            self.failures = {**dict.fromkeys((name, *made_from_it), failure), **self.failures}

    def advise(self, name: str, hint: str) -> None:
        """Another hint for a file, and for the files that fail for the same reason."""
        former = self.failures[name]
        better = ExportFailure(error=former.error, hint=hint)
        self.failures = {other: better if failure == former else failure for other, failure in self.failures.items()}


def _source_of(name: str) -> str:
    """The fp32 file that a file is made from: `fp16-fused` → `fp32-fused`."""
    _, dash, form = name.partition("-")
    return f"fp32{dash}{form}"


def _onnx_files(
    job: ExportJob, loaded: Loaded, example: Arrays, step: StepTimer, refusals: _Refusals
) -> dict[Precision, OnnxArtifact]:
    """The fp32 file, from which all others are made, and the other files of the plan. A user's file that is already
    quantised is used unchanged."""
    fp32 = job.folder.onnx("fp32")
    files: dict[Precision, OnnxArtifact] = {}
    with refusals.attempt("fp32"):
        with step("onnx"):
            how = torch_to_onnx.write_fp32(loaded, example, fp32, job.options)
        files["fp32"] = _onnx_artifact(fp32, how)
        if loaded.quantised is not None:
            blocks = " and ".join(map(str, bits_of_blocks(graph_of(fp32))))
            own = f"{loaded.quantised}, as the user's file has it" + (
                f"; weights of {blocks} bits in blocks" if blocks else ""
            )
            return {**files, "int8": files["fp32"].model_copy(update={"quantisation": own})}
        if "fp16" in job.planned.onnx_precisions:
            with refusals.attempt("fp16"), step("onnx-fp16"):
                torch_to_onnx.write_fp16(fp32, job.folder.onnx("fp16"))
                files["fp16"] = _onnx_artifact(job.folder.onnx("fp16"), f"{how}, onnxruntime.transformers.float16")
        if "int8" in job.planned.onnx_precisions:
            with refusals.attempt("int8"):
                files["int8"] = _int8_file(job, loaded, how, step)
    return files


def _int8_file(job: ExportJob, loaded: Loaded, how: str, step: StepTimer) -> OnnxArtifact:
    calibration = None
    if job.info.quantisation == "static":
        with step("calibration"):
            calibration = int8.calibration_inputs(loaded, job.samples)
    with step("onnx-int8"):
        quantised = int8.write_int8(job.folder.onnx("fp32"), job.folder.onnx("int8"), calibration)
    made = _onnx_artifact(job.folder.onnx("int8"), f"{how}, onnxruntime.quantization")
    return made.model_copy(update={"quantisation": quantised})


def _onnx_forms(
    job: ExportJob, loaded: Loaded, example: Arrays, step: StepTimer, refusals: _Refusals
) -> dict[str, OnnxArtifact]:
    made = onnx_forms.write_all(
        job.planned.onnx_variants,
        loaded,
        example,
        job.folder,
        job.options,
        step,
        refusals.attempt,
        lambda: int8.calibration_inputs(loaded, job.samples),
    )
    return {name: _onnx_artifact(job.folder.onnx(name), how) for name, how in made.items()}


def _checks(
    job: ExportJob, loaded: Loaded, trials: Sequence[Trial], names: Sequence[str], compare: Compare, refusals: _Refusals
) -> tuple[OnnxCheck, ...]:
    """Every ONNX file that runs here, by its precision or the name of its form, on every trial."""
    checks: list[OnnxCheck] = []
    # A quantised file of the user's is both its fp32 and its int8 file, and checked once.
    sources = {"fp32" if loaded.quantised and name == "int8" else name: name for name in names}
    for source, name in sources.items():
        if source in refusals.failures or onnx_forms.form_of(name) in onnx_forms.CUDA_ALONE:
            continue  # made from a file that is wrong, or checked by the parity of its rows alone
        file, precision = job.folder.onnx(source), onnx_forms.precision_of(name)
        with refusals.attempt(source):
            checks += check_file(file, precision, loaded, trials, compare, limits.thread_count())
    return tuple(checks)


def _weights(job: ExportJob, loaded: Loaded) -> Artifact | None:
    if loaded.module is None:
        return None
    save_weights(loaded.module, job.folder.weights)
    return artifact(job.folder.weights)


def _onnx_artifact(path: Path, exporter: str) -> OnnxArtifact:
    beside = torch_to_onnx.weights_beside(path)
    return OnnxArtifact(
        **artifact(path).model_dump(),
        exporter=exporter,
        opset=torch_to_onnx.opset_of(path),
        dtype_census=torch_to_onnx.dtype_census(path),
        value_census=torch_to_onnx.value_census(path),
        external_data=artifact(beside) if beside.is_file() else None,
    )


def _input_set(
    job: ExportJob, length: int | None, made: Inputs, raw: RawInputs | None, references: _References
) -> InputSet:
    mask = mask_of(made.arrays)
    share = None if mask is None else float(mask.mean())
    return InputSet(
        sequence_length=length,
        samples=len(next(iter(made.arrays.values()))),
        inputs=artifact(job.folder.inputs(length)),
        reference=artifact(job.folder.reference(length)),
        source=made.source + ("" if share is None else f"; {percent(share)} of the tokens are text"),
        complete=len(next(iter(made.arrays.values()))) < job.samples,
        raw=raw,
        exchanged=references.exchanged,
        new=references.new if isinstance(references.new, NewSamples) else None,
        new_missing=references.new if isinstance(references.new, str) else None,
        sample_s=references.sample_s,
        text_share=share,
    )
