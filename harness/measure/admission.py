"""Which raw records may stand in one summary: same plan, same artifacts, same machine (pure).

Each check answers with what differs, in words, or None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from harness.core.schemas import Environment, ExportRecord, Failed, Measured


def known_artifacts(export: ExportRecord | None) -> dict[str, str]:
    """sha256 by path of every file that the current export holds."""
    if export is None:
        return {}
    files = [file for onnx in export.onnx.values() for file in onnx.files()]
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
    environment_id: str | None, environments: Mapping[str, Environment], reference: str | None
) -> str | None:
    """What differs between a record's environment and the reference environment."""
    if environment_id is None or environment_id not in environments:
        return f"its environment record {environment_id or '(none)'} cannot be read"
    if reference is None or environment_id == reference:
        return None
    differences = [
        f"{name} {ours} instead of {theirs}"
        for name, ours, theirs in differing(environments[environment_id], environments[reference])
    ]
    return f"measured elsewhere: {'; '.join(differences[:3])}" if differences else None


def reference_environment(used: Iterable[tuple[str, str]], environments: Mapping[str, Environment]) -> str | None:
    """The environment that the rest must agree with: the one of most records, then of the latest.

    `used` holds (environment id, start time) of the records. Environments that agree count together.
    """
    counts: Counter[str] = Counter()
    latest: dict[str, tuple[str, str]] = {}
    group_of = _groups(environments)
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
    return len(set(_groups(environments).values())) <= 1


def differing(ours: Environment, theirs: Environment) -> list[tuple[str, Any, Any]]:
    """(name, our value, their value) of each fact that makes samples incomparable."""
    left, right = _facts(ours), _facts(theirs)
    names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    return [(name, left.get(name, "absent"), right.get(name, "absent")) for name in names]


def _groups(environments: Mapping[str, Environment]) -> dict[str, str]:
    return {identity: repr(sorted(_facts(found).items())) for identity, found in environments.items()}


def _facts(environment: Environment) -> dict[str, Any]:
    facts = {f"machine.{name}": value for name, value in environment.machine.model_dump().items()}
    facts |= {f"limits.{name}": value for name, value in environment.limits.model_dump().items()}
    return facts | {f"library {name}": value for name, value in environment.software.libraries.items()}
