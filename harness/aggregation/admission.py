"""Which raw records may appear in one summary: same settings, same artifacts, same machine (pure).

Library versions must agree within a backend, not between backends: TensorRT may need another interpreter than torch.
Each check returns the difference in words, or None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeVar

from harness.core.host.environment import ALLOCATOR, VARIABLES
from harness.core.layout import ENGINE_SUFFIX
from harness.core.schemas import (
    SOURCES,
    Case,
    EngineRecord,
    Environment,
    ExportRecord,
    Failed,
    GenerationCase,
    GenerationExport,
    ServiceRun,
    TimedRecord,
    Usage,
)


@dataclass(frozen=True)
class References:
    """Ids of the environments that records must agree with; None and empty where no two differ, the usual case.

    machine: in machine, limits and type of GPU. libraries: in the libraries, by backend. gpus: in the individual GPU
    and CPUs, by model, because rows of one model are compared with each other; models may be spread over equal GPUs.
    by_shape: gpus are by comparison group instead, because the cases of a model were spread over equal GPUs.
    """

    machine: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[object, str] = field(default_factory=dict)
    by_shape: bool = False

    def gpu_of(self, case: Case | GenerationCase) -> str | None:
        """Id of the environment whose GPU and CPUs the records of a case must have."""
        return self.gpus.get(comparison_group(case) if self.by_shape else case.model)


def comparison_group(case: Case | GenerationCase) -> tuple[object, ...]:
    """The cases with which a case is compared by speed: another backend, precision or setting of the same work."""
    if isinstance(case, GenerationCase):
        return (case.model, case.batch_size, case.prompt_length, case.new_tokens)
    return (case.model, case.batch_size, case.sequence_length, case.boundary, case.mode)


def comparison_groups(cases: Iterable[Case]) -> dict[tuple[object, ...], list[Case]]:
    """The runnable cases by comparison group, in their order."""
    groups: dict[tuple[object, ...], list[Case]] = {}
    for case in cases:
        if case.skip_reason is None:
            groups.setdefault(comparison_group(case), []).append(case)
    return groups


def known_artifacts(export: ExportRecord | None, engines: Iterable[EngineRecord]) -> dict[str, str]:
    """Path → sha256 of every file of the current export and of the engines that were built from it."""
    if export is None:
        return {}
    current = {onnx.sha256 for onnx in export.onnx_artifacts}
    built = [record.engine for record in engines if record.request.onnx_sha256 in current]
    files = (*export.files(), *built)
    code = {SOURCES: export.sources_sha256} if export.sources_sha256 else {}
    return {**{file.path: file.sha256 for file in files}, **code}


def generation_files(export: GenerationExport | None) -> dict[str, str]:
    """Path → sha256 of every file of an export for generation."""
    return {} if export is None else {file.path: file.sha256 for file in export.files()}


def foreign_service(service: ServiceRun, export: ExportRecord, engines: Sequence[EngineRecord]) -> str | None:
    """The file of a load case that differs from the current export, in words; None without any. An engine with a record
    is judged by the record."""
    recorded = {record.engine.path for record in engines}
    judged = {
        name: sha256
        for name, sha256 in service.artifacts.items()
        if name in recorded or PurePosixPath(name).suffix != ENGINE_SUFFIX
    }
    return foreign_file(judged, known_artifacts(export, engines))


def foreign_record(record: TimedRecord | Failed, settings_id: str, case_id: str, number: int) -> str | None:
    """Why the record in the file of a case's round is of another one, or was not measured as the plan says."""
    if (record.case_id, record.round) != (case_id, number):
        return f"the file holds {record.case_id} round {record.round}: it was moved or copied"
    if record.settings_id == settings_id:
        return None
    return f"measured with settings {record.settings_id}, this plan has settings {settings_id}"


def foreign_usage(usage: Usage, record: TimedRecord) -> str | None:
    """Why a record of the monitor is not of the process that made a record; None where nothing shows it."""
    if (usage.case_id, usage.round, usage.settings_id) != (record.case_id, record.round, record.settings_id):
        return "the usage record beside it is of another case, round or settings"
    own = record.cpu_use.started_ticks if record.cpu_use is not None else None
    return None if own in (None, usage.started_ticks) else "the usage record beside it is of another process"


LEAST_DIFFERENT = 10
"""Different samples of a record that make an equal list of samples impossible by chance."""


class Copied:
    """Finds records with the times of an earlier one: two processes never agree in every nanosecond."""

    def __init__(self) -> None:
        self._first: dict[int, str] = {}

    def of(self, record: TimedRecord) -> str | None:
        """The earlier record with the same times, in words; None where there is none. The record is then remembered."""
        name = f"{record.case_id}/{record.round}"
        window = record.cpu_use
        times = [hash(record.latency_ns)] if _differ(record.latency_ns) else []
        times += [hash((window.wall_ns, window.cpu_ns))] if window is not None else []
        first = next((self._first[key] for key in times if key in self._first), None)
        for key in times:
            self._first.setdefault(key, name)
        return None if first is None or first == name else f"its times are those of {first}: it was copied"


def _differ(samples: Sequence[int]) -> bool:
    few = samples[: 4 * LEAST_DIFFERENT]  # nearly always enough
    return len(set(few)) >= LEAST_DIFFERENT or len(set(samples)) >= LEAST_DIFFERENT


def foreign_artifact(record: TimedRecord, known: Mapping[str, str]) -> str | None:
    """The loaded file that differs from the present file in the model's folder, in words; None without any."""
    return foreign_file(record.artifacts, known)


def foreign_file(loaded: Mapping[str, str], known: Mapping[str, str]) -> str | None:
    """As foreign_artifact, for loaded files as path → sha256."""
    for name, sha256 in sorted(loaded.items()):
        if name not in known:
            return f"{name} that it loaded is not in the current export"
        if known[name] != sha256:
            return f"{name} has changed since: measured {sha256[:12]}, now {known[name][:12]}"
    return None


def foreign_machine(
    environment_id: str | None,
    case: Case | GenerationCase,
    environments: Mapping[str, Environment],
    agreed: References,
) -> str | None:
    """The differences between a record's environment and the environments that it must agree with."""
    if environment_id is None or environment_id not in environments:
        return f"its environment record {environment_id or '(none)'} cannot be read"
    environment = environments[environment_id]
    required = (
        (_machine, agreed.machine),
        (_individual, agreed.gpu_of(case)),
        (_libraries, agreed.libraries.get(case.backend)),
    )
    for facts, reference in required:
        entries = [] if reference is None else _differing_entries(facts(environment), facts(environments[reference]))
        if entries:
            texts = [f"{name} {left} instead of {right}" for name, left, right in entries]
            return f"measured elsewhere: {'; '.join(texts[:3])}"
    return None


Used = Sequence[tuple[Case | GenerationCase, str, str]]
"""(case, environment id, start time) of each record."""


def references(used: Used, environments: Mapping[str, Environment], by_shape: bool = False) -> References:
    """The environments that most records agree with. by_shape: as in References."""
    machine = _most_common([(identity, at) for _, identity, at in used], environments, _machine)
    alike = {
        identity
        for identity, environment in environments.items()
        if machine is not None and _machine(environment) == _machine(environments[machine])
    }
    at_home = [record for record in used if record[1] in alike]
    return References(
        machine,
        libraries=_common_environments(lambda case: case.backend, at_home, environments, _libraries),
        gpus=_common_environments(
            comparison_group if by_shape else lambda case: case.model,
            at_home,
            environments,
            _individual,
        ),
        by_shape=by_shape,
    )


GroupT = TypeVar("GroupT", bound=Hashable)


def _common_environments(
    group_of: Callable[[Case | GenerationCase], GroupT],
    used: Used,
    environments: Mapping[str, Environment],
    facts: Facts,
) -> dict[GroupT, str]:
    """The environment that most records of each group agree with."""
    grouped: dict[GroupT, list[tuple[str, str]]] = {}
    for case, identity, at in used:
        grouped.setdefault(group_of(case), []).append((identity, at))
    environment_ids: dict[GroupT, str] = {}
    for group, own in grouped.items():
        best = _most_common(own, environments, facts)
        if best is not None:
            environment_ids[group] = best
    return environment_ids


def _most_common(used: Iterable[tuple[str, str]], environments: Mapping[str, Environment], facts: Facts) -> str | None:
    """The environment of most records, then of the latest. Environments that agree count together."""
    counts: Counter[str] = Counter()
    latest: dict[str, tuple[str, str]] = {}
    group_of = {identity: repr(sorted(facts(environment).items())) for identity, environment in environments.items()}
    for environment_id, started_at in used:
        group = group_of.get(environment_id)
        if group is not None:
            counts[group] += 1
            latest[group] = max(latest.get(group, ("", "")), (started_at, environment_id))
    if not counts:
        return None
    best = max(counts, key=lambda group: (counts[group], latest[group]))
    return latest[best][1]


def all_agree(environments: Mapping[str, Environment]) -> bool:
    """True where no two environments differ in a fact that makes samples incomparable."""
    records = list(environments.values())
    return all(not differing_facts(records[0], other) for other in records[1:])


def differing_facts(first: Environment, second: Environment, libraries: bool = True) -> list[tuple[str, Any, Any]]:
    """(name, our value, their value) of each fact that makes samples of one case incomparable."""
    kinds = (_machine, _individual, _libraries) if libraries else (_machine, _individual)
    return [difference for facts in kinds for difference in _differing_entries(facts(first), facts(second))]


def _differing_entries(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    return [(name, left.get(name, "absent"), right.get(name, "absent")) for name in names]


Facts = Callable[[Environment], Mapping[str, Any]]


def all_facts(environment: Environment) -> dict[str, Any]:
    """Every fact of the machine and the libraries whose change makes samples incomparable, by name."""
    return {**_machine(environment), **_libraries(environment)}


def _machine(environment: Environment) -> dict[str, Any]:
    facts = {f"machine.{name}": value for name, value in environment.machine.model_dump().items()}
    limits = environment.limits.model_dump(exclude={"affinity"})
    facts |= {f"limits.{name}": value for name, value in limits.items()}
    if environment.gpu is not None:
        facts |= {f"gpu.{name}": value for name, value in environment.gpu.model_dump(exclude={"uuid"}).items()}
    return facts


def _individual(environment: Environment) -> dict[str, Any]:
    """The individual GPU and CPUs: models that are spread over GPUs each have their own, and equally many, of both."""
    own = {"limits.affinity": environment.limits.affinity}
    return own if environment.gpu is None else {**own, "gpu.uuid": environment.gpu.uuid}


def _libraries(environment: Environment) -> dict[str, Any]:
    facts = {f"library {name}": value for name, value in environment.software.libraries.items()}
    # Settings from outside are no versions, but change times as a version does.
    facts |= {f"library {name}": environment.software.build.get(name, "as it is") for name in (ALLOCATOR, VARIABLES)}
    return facts
