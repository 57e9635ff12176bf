"""Which raw records may stand in one summary: same plan, same artifacts, same machine (pure).

Library versions must agree within a backend, not between backends: TensorRT may need another interpreter than torch.
Each check answers with what differs, in words, or None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.core.schemas import EngineRecord, Environment, ExportRecord, Failed, Measured


@dataclass(frozen=True)
class References:
    """Ids of the environments that records must agree with; None and nothing where no two differ, the usual case.

    machine: in machine, limits and GPU. libraries: in everything, by backend.
    """

    machine: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)


def known_artifacts(export: ExportRecord | None, engines: Iterable[EngineRecord] = ()) -> dict[str, str]:
    """sha256 by path of every file that the current export, and the engines built from it, hold."""
    if export is None:
        return {}
    files = [file for onnx in (*export.onnx.values(), *export.onnx_variants.values()) for file in onnx.files()]
    files += [record.engine for record in engines]
    files += [export.module] if export.module else []
    files += [file for inputs in export.input_sets for file in inputs.files()]
    return {file.path: file.sha256 for file in files}


def stale_plan(record: Measured | Failed, plan_id: str) -> str | None:
    """Why a record does not belong to the plan."""
    if record.plan_id == plan_id:
        return None
    return f"measured under plan {record.plan_id}, this is plan {plan_id}"


def foreign_artifact(record: Measured, known: Mapping[str, str]) -> str | None:
    """Which of the loaded files is not the one that lies in the model's folder now."""
    for name, sha256 in sorted(record.artifacts.items()):
        if name not in known:
            return f"{name} that it loaded is not in the current export"
        if known[name] != sha256:
            return f"{name} has changed since: measured {sha256[:12]}, now {known[name][:12]}"
    return None


def foreign_machine(
    environment_id: str | None, backend: str, environments: Mapping[str, Environment], references: References
) -> str | None:
    """What differs between a record's environment and the ones that it must agree with."""
    if environment_id is None or environment_id not in environments:
        return f"its environment record {environment_id or '(none)'} cannot be read"
    ours = environments[environment_id]
    found: list[tuple[str, Any, Any]] = []
    if references.machine is not None:
        found += differing(ours, environments[references.machine], libraries=False)
    if not found and backend in references.libraries:
        found += differing(ours, environments[references.libraries[backend]])
    differences = [f"{name} {left} instead of {right}" for name, left, right in found]
    return f"measured elsewhere: {'; '.join(differences[:3])}" if differences else None


def references(used: Sequence[tuple[str, str, str]], environments: Mapping[str, Environment]) -> References:
    """What the records agree on: (backend, environment id, start time) of each → the environments to agree with."""
    machine = _most_common([(identity, at) for _, identity, at in used], environments, libraries=False)
    alike = {
        identity
        for identity, found in environments.items()
        if machine is not None and not differing(found, environments[machine], libraries=False)
    }
    libraries: dict[str, str] = {}
    for backend in dict.fromkeys(name for name, _, _ in used):
        own = [(identity, at) for name, identity, at in used if name == backend and identity in alike]
        best = _most_common(own, environments, libraries=True)
        if best is not None:
            libraries[backend] = best
    return References(machine, libraries)


def _most_common(
    used: Iterable[tuple[str, str]], environments: Mapping[str, Environment], libraries: bool
) -> str | None:
    """The environment of most records, then of the latest. Environments that agree count together."""
    counts: Counter[str] = Counter()
    latest: dict[str, tuple[str, str]] = {}
    group_of = _groups(environments, libraries)
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
    """True where no two environments differ in what makes samples incomparable."""
    return len(set(_groups(environments, libraries=True).values())) <= 1


def differing(ours: Environment, theirs: Environment, libraries: bool = True) -> list[tuple[str, Any, Any]]:
    """(name, our value, their value) of each fact that makes samples incomparable."""
    left, right = _facts(ours, libraries), _facts(theirs, libraries)
    names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    return [(name, left.get(name, "absent"), right.get(name, "absent")) for name in names]


def _groups(environments: Mapping[str, Environment], libraries: bool) -> dict[str, str]:
    return {identity: repr(sorted(_facts(found, libraries).items())) for identity, found in environments.items()}


def _facts(environment: Environment, libraries: bool) -> dict[str, Any]:
    facts = {f"machine.{name}": value for name, value in environment.machine.model_dump().items()}
    facts |= {f"limits.{name}": value for name, value in environment.limits.model_dump().items()}
    if environment.gpu is not None:
        facts |= {f"gpu.{name}": value for name, value in environment.gpu.model_dump().items()}
    if not libraries:
        return facts
    return facts | {f"library {name}": value for name, value in environment.software.libraries.items()}
