"""Differences between two summaries or two rows: those that forbid a comparison, and those that it studies (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.aggregation import admission
from harness.core.host.environment import COMMIT, commit_text
from harness.core.schemas import FIXED_WHEN_TRACED, Difference, Environment, Row, Summary

INSTALLED = frozenset(
    {
        *("machine.os", "machine.kernel", "machine.microcode"),
        *("limits.container", "limits.image", "limits.image_digest"),
        *("gpu.driver", "gpu.cuda", "gpu.vbios", "gpu.uuid"),
    }
)
"""Facts that an upgrade changes, as it changes libraries. They do not forbid a comparison, which shall show whether the
upgrade made anything slower; nor does another GPU of the same name. All other facts describe the machine and how much
of it could be used: where they differ, the comparison would only compare machines."""

MEMORY_TOLERANCE = 0.02
"""Relative difference of memory that one machine can have: each kernel release reserves another amount."""


def differences(baseline: Summary, current: Summary) -> tuple[Difference, ...]:
    """Every fact that differs, those that forbid a comparison first."""
    before, after = _environment(baseline), _environment(current)
    changes = [*_environments(before, after)] if before and after else []
    facts = (_about(baseline), _about(current))
    # A run with fewer backends reports fewer builds: the run is smaller, and no build has changed.
    changes += [
        difference for difference in _changes(*facts) if difference.name in facts[0] and difference.name in facts[1]
    ]
    return tuple(sorted(changes, key=lambda difference: not difference.refuses))


def row_refusal(baseline: Row, current: Row) -> str | None:
    """Why two rows of the same case, measured on the same machine, still cannot be compared."""
    if baseline.threads != current.threads:
        return f"{baseline.threads} threads in the baseline, {current.threads} now"
    clocks = [row.clock.name if row.clock else "none" for row in (baseline, current)]
    return None if clocks[0] == clocks[1] else f"clock {clocks[0]} in the baseline, {clocks[1]} now"


def row_changes(baseline: Row, current: Row) -> tuple[str, ...]:
    """Changes in how the same case ran: files by name, and settings that the session reports."""
    names = sorted({*baseline.artifacts, *current.artifacts})
    files = [name for name in names if baseline.artifacts.get(name) != current.artifacts.get(name)]
    before, after = _placement(baseline), _placement(current)
    settings = [
        f"{difference.name} {difference.baseline} → {difference.current}" for difference in _changes(before, after)
    ]
    return (*([f"changed: {', '.join(files)}"] if files else []), *settings)


def _environments(before: Environment, after: Environment) -> Iterator[Difference]:
    for name, before_value, after_value in admission.differing_facts(before, after):
        texts = (_text(before_value), _text(after_value))
        if texts[0] == texts[1] or (
            name == "machine.memory_bytes" and abs(before_value / after_value - 1) < MEMORY_TOLERANCE
        ):
            continue
        refuses = not name.startswith("library ") and name not in INSTALLED
        yield Difference(name=name, baseline=texts[0], current=texts[1], refuses=refuses)


def _about(summary: Summary) -> dict[str, str]:
    """Facts other than the machine that may explain a change."""
    facts = {"configuration": summary.config, "plan": summary.plan_id, "settings": summary.settings_id}
    if summary.config_sha256:
        facts["configuration's sha256"] = summary.config_sha256[:12]
    facts |= {f"state of {name}": digits for name, digits in states(summary).items()}
    for environment in summary.environments.values():
        software = environment.software
        facts |= {f"build of {name}": text for name, text in software.build.items() if name != COMMIT}
        facts |= {"python": software.python, "inferometer": software.inferometer}
        if commit := commit_text(software):
            facts[COMMIT] = commit + (" with local changes" if software.git_dirty else "")
    return facts


def _environment(summary: Summary) -> Environment | None:
    """The first environment with the libraries of all; None without any. `aggregate` admits records into one summary
    only where the machine agrees, and the libraries within each backend."""
    environments = list(summary.environments.values())
    if not environments:
        return None
    names = sorted({name for environment in environments for name in environment.software.libraries})
    libraries = {name: " / ".join(_versions(name, environments)) for name in names}
    software = environments[0].software.model_copy(update={"libraries": libraries})
    return environments[0].model_copy(update={"software": software})


def _versions(name: str, environments: Sequence[Environment]) -> list[str]:
    return sorted(
        {environment.software.libraries[name] for environment in environments if name in environment.software.libraries}
    )


def _placement(row: Row) -> dict[str, str]:
    if row.placement is None:
        return {}
    settings = {name: str(value) for name, value in row.placement.settings.items() if name != FIXED_WHEN_TRACED}
    return {"provider": row.placement.provider, **settings}


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(name=name, baseline=before.get(name, "absent"), current=after.get(name, "absent"), refuses=False)
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def _text(value: Any) -> str:
    """A fact as text. Facts that could not be read are equal, whatever the reason."""
    if isinstance(value, Mapping):
        return "not available"
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


_HANDED_OVER = re.compile(r"pickle:(\w+)-([0-9a-f]{16})", re.ASCII)
"""Name of a module that harness.api was given: each state has its own; two states of a class are still compared."""


def states(summary: Summary) -> dict[str, str]:
    """Class → digits of its state, of classes with one state only: with several states the choice is ambiguous."""
    pairs = [match.groups() for name in summary.exports if (match := _HANDED_OVER.fullmatch(name))]
    classes = [name for name, _ in pairs]
    return {name: digits for name, digits in pairs if classes.count(name) == 1}


def with_current_names(baseline: Summary, current: Summary) -> tuple[Row, ...]:
    """The baseline's rows. A class has the name of its state in the current summary, where both summaries have one
    state of it, with inputs and outputs of the same shapes."""
    before, after = states(baseline), states(current)
    names = {
        f"pickle:{name}-{digits}": f"pickle:{name}-{after[name]}" for name, digits in before.items() if name in after
    }
    names = {old: new for old, new in names.items() if _tensors(baseline, old) == _tensors(current, new)}
    return tuple(_under(row, names[row.model]) if row.model in names else row for row in baseline.rows)


def _tensors(summary: Summary, name: str) -> object:
    return summary.exports[name].inputs, summary.exports[name].outputs


def _under(row: Row, name: str) -> Row:
    """A case's id begins with the folder of its model."""
    old, new = (model.replace(":", "-") for model in (row.model, name))
    return row.model_copy(update={"model": name, "case_id": new + row.case_id.removeprefix(old)})
