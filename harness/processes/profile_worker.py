"""profile_worker: the process that profiles one case. Started by `profile_ops`, a new process per level of a case.

reads   one job, a JSON line, from standard input; results/exports/<slug>/export.json and the files that it names
writes  the phases that it comes to and then its answer, one record, a JSON line each, to standard output;
        results/profiles/<case_id>/{memory.json,memory.pickle,*.trace.json}, results/environments/*.json
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from harness.backends import backend_info, profile_timing
from harness.backends.base import BackendJob, Batch, construct, is_out_of_memory, out_of_memory
from harness.backends.batches import load_batches
from harness.backends.case_files import make_backend_job, read_case_export
from harness.backends.info import import_target
from harness.core import cli, store
from harness.core.errors import CaseError, UnavailableError
from harness.core.host import environment
from harness.core.host.orphans import die_with_parent
from harness.core.layout import ModelFolder, Results
from harness.core.process_state import stay_here
from harness.core.protocol import CaseJob, Entered, GenerationCaseJob
from harness.core.schemas import Case, ExportRecord, Record
from harness.core.schemas.profile_record import Counts, MeasuredMemory, MemoryTimeline, PartsProfile, Tokenising
from harness.processes.measure_generation import find_prompt_set, load_prompts, make_decoder_job, read_generation_export
from harness.processes.profile_launcher import Level, ProfileJob
from harness.profiling.phases import empty_memory_record
from harness.profiling.read_profiles import with_launch_gaps
from harness.profiling.reconcile import middle_mean
from harness.timing.clock import now_ns
from harness.zoo.inputs.sentences import texts_of

_WARM_UP_RUNS = 3


def measure_tokenising(
    case: Case, export: ExportRecord, folder: Path, batch: Mapping[str, NDArray[np.generic]], runs: int
) -> Tokenising:
    """Time `runs` preparations of the texts of `batch` into ids and mask as arrays, on the calling thread."""
    texts = texts_of(case, export, folder, batch)
    if isinstance(texts, str):
        return Tokenising(time_ns=None, texts=case.batch_size, tokens_a_text=case.sequence_length, by=texts)
    for _ in range(_WARM_UP_RUNS):
        texts.prepare(texts.samples)
    spans = []
    for _ in range(runs):
        begin = now_ns()
        texts.prepare(texts.samples)
        spans.append(now_ns() - begin)
    by = f"measured: {texts.source}, one thread, ids and mask as arrays"
    return Tokenising(time_ns=middle_mean(spans), texts=len(texts.samples), tokens_a_text=case.sequence_length, by=by)


_NOT_REPORTED = "not measured: the backend's library does not report its allocations"


def stage(arguments: Sequence[str]) -> None:
    """Profile one level of one case and write the answer."""
    cli.parser("harness.processes.profile_worker", __doc__).parse_args(arguments)
    die_with_parent()
    answers = _answers()
    given = ProfileJob.model_validate_json(sys.stdin.readline())
    profile_job = given.model_copy(update={"job": given.job.with_absolute_paths()})
    case = profile_job.job.case
    try:
        _prepare(profile_job)
        profile_timing.listen(lambda phase: _say(answers, Entered(phase=phase)))
        answer = (
            _phase_answer(profile_job, profile_job.job)
            if isinstance(profile_job.job, GenerationCaseJob)
            else _case_answer(profile_job, profile_job.job)
        )
    except Exception as error:
        if isinstance(error, MemoryError) or is_out_of_memory(str(error)):
            raise CaseError(*out_of_memory(case.device, case.batch_size)) from error
        raise
    _say(answers, answer)


def _case_answer(profile_job: ProfileJob, job: CaseJob) -> Record:
    export, folder = read_case_export(job)
    batches = load_batches(folder.root, export, job.case, job.measurement.parity_samples).inputs
    return _LEVELS[profile_job.level](profile_job, export, folder, batches)


def _phase_answer(profile_job: ProfileJob, job: GenerationCaseJob) -> Record:
    """The answer about one phase of generation; its allocations are not measured."""
    case, phase = job.case, profile_job.phase
    if phase is None:
        raise ValueError("a phase of generation has to be named")
    export, folder = read_generation_export(job)
    if profile_job.level == "count":
        from harness.zoo.cost.counting import counts_of_phase  # noqa: PLC0415 - torch, as in _count

        return counts_of_phase(folder.root, export.shape, case.prompt_length, case.new_tokens, phase)
    if profile_job.level == "memory":
        return empty_memory_record(_here(profile_job))
    profiler = backend_info(case.backend).decoder_profilers.get(case.device)
    if profiler is None:
        raise _no_profiler(case.backend)
    prompts, _ = load_prompts(folder, find_prompt_set(export, case.prompt_length, case.new_tokens))
    decoder_job = make_decoder_job(case, job.threads, export.shape, folder, export)
    measure = partial(import_target(profiler), decoder_job, prompts, phase)
    return _run_profiler(profile_job, measure)


def _say(answers: IO[str], record: Record) -> None:
    answers.write(f"{record.model_dump_json()}\n")
    answers.flush()


def _prepare(profile_job: ProfileJob) -> None:
    """Set what the backend's libraries read at import. Raises UnavailableError where a library is missing."""
    info = backend_info(profile_job.job.case.backend)
    os.environ.update(info.environment)
    needed = info.requires if profile_job.level in ("memory", "parts") else ()
    absent = [name for name in needed if importlib.util.find_spec(name.partition(".")[0]) is None]
    if absent:
        raise UnavailableError(f"{', '.join(absent)} is not installed.", f"Install it: pip install {' '.join(absent)}.")


def _count(profile_job: ProfileJob, export: ExportRecord, folder: ModelFolder, batches: Sequence[Batch]) -> Counts:
    from harness.zoo.cost.counting import counts_of  # noqa: PLC0415 - torch and onnx, which other levels may lack

    return counts_of(_case_job(profile_job).case, export, folder.root, batches[0])


def _memory(
    profile_job: ProfileJob, export: ExportRecord, folder: ModelFolder, batches: Sequence[Batch]
) -> MeasuredMemory:
    case = _case_job(profile_job).case
    info = backend_info(case.backend)
    timeline: MemoryTimeline | None = None
    peak: int | None = None
    by = _NOT_REPORTED
    backend_job = _job_of(profile_job, export, folder, batches)
    if info.allocations is not None:
        results = Results(profile_job.results)
        make = partial(construct, info.target_on(case.device))
        with stay_here():
            timeline = import_target(info.allocations)(backend_job, make, results.profile(case.case_id))
        store.save(results.memory_profile(case.case_id), timeline, indent=None)
        peak, by = timeline.pass_peak_bytes, timeline.by
    elif info.peak is not None:
        peak, by = measure_peak_memory(info.peak, backend_job)
    return MeasuredMemory(
        peak_bytes=peak,
        activations_bytes=None if timeline is None else timeline.activations_peak_bytes,
        by=by,
        environment_id=_here(profile_job),
    )


def _here(profile_job: ProfileJob) -> str:
    """The id of this process's environment, which is recorded."""
    case = profile_job.job.case
    info = backend_info(case.backend)
    machine = environment.collect(environment.plugin_fact(info.plugin), case.device, info.recorded)
    return environment.save(Results(profile_job.results), machine)


def measure_peak_memory(target: str, backend_job: BackendJob) -> tuple[int | None, str]:
    """(bytes, how they were measured) or (None, why they were not)."""
    try:
        with stay_here():
            peak, by = import_target(target)(backend_job)
    except UnavailableError as error:
        return None, f"not measured: {error.problem}"
    return peak, by


def _parts(
    profile_job: ProfileJob, export: ExportRecord, folder: ModelFolder, batches: Sequence[Batch]
) -> PartsProfile:
    profiler = backend_info(profile_job.job.case.backend).profiler
    if profiler is None:
        raise _no_profiler(profile_job.job.case.backend)
    return _run_profiler(
        profile_job, partial(import_target(profiler), _job_of(profile_job, export, folder, batches), batches)
    )


def _no_profiler(backend: str) -> UnavailableError:
    return UnavailableError(f"{backend} has no profiler of its parts.", "Its model level is complete without.")


def _run_profiler(profile_job: ProfileJob, profiler: Callable[[Path, int], PartsProfile]) -> PartsProfile:
    """Run a backend's profiler, which writes its traces into a folder."""
    traces = Results(profile_job.results).profile(profile_job.job.case.case_id)
    with store.translate_storage_errors(traces):
        traces.mkdir(parents=True, exist_ok=True)
    profile_timing.entered("measure")  # for a plugin's profiler, which may report no phase itself
    with stay_here():
        rows = profiler(traces, profile_job.runs)
    return with_launch_gaps(rows, traces, cli.warn).model_copy(update={"runs": profile_job.runs})


def _job_of(profile_job: ProfileJob, export: ExportRecord, folder: ModelFolder, batches: Sequence[Batch]) -> BackendJob:
    return make_backend_job(_case_job(profile_job), export, folder, batches)


def _case_job(profile_job: ProfileJob) -> CaseJob:
    """The job of a level of a model's case."""
    if not isinstance(profile_job.job, CaseJob):
        raise TypeError("a job of generation has levels of its own")
    return profile_job.job


def _tokenising(
    profile_job: ProfileJob, export: ExportRecord, folder: ModelFolder, batches: Sequence[Batch]
) -> Tokenising:
    return measure_tokenising(_case_job(profile_job).case, export, folder.root, batches[0], profile_job.runs)


_LEVELS: Mapping[Level, Callable[[ProfileJob, ExportRecord, ModelFolder, Sequence[Batch]], Record]] = {
    "count": _count,
    "memory": _memory,
    "parts": _parts,
    "tokenising": _tokenising,
}


def _answers() -> IO[str]:
    """The original standard output; from here on, output of libraries goes to the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


if __name__ == "__main__":
    cli.main(stage)
