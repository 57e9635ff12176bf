"""Comparison of modules that harness.api was given, by class (pure).

Each state of a module has its own name, `pickle:<class>-<digits>`; two states of one class are still compared."""

from __future__ import annotations

import re

from harness.core.schemas import Row, Summary

_NAME = re.compile(r"pickle:(\w+)-([0-9a-f]{16})", re.ASCII)


def states(summary: Summary) -> dict[str, str]:
    """Class → digits of its state, of classes with one state only: with several states the choice is ambiguous."""
    found = [match.groups() for name in summary.exports if (match := _NAME.fullmatch(name))]
    classes = [name for name, _ in found]
    return {name: digits for name, digits in found if classes.count(name) == 1}


def renamed(baseline: Summary, current: Summary) -> tuple[Row, ...]:
    """The baseline's rows. A class has the name of its state in the current summary, where both summaries have one
    state of it, with inputs and outputs of the same shapes."""
    before, after = states(baseline), states(current)
    names = {f"pickle:{one}-{digits}": f"pickle:{one}-{after[one]}" for one, digits in before.items() if one in after}
    names = {old: new for old, new in names.items() if _tensors(baseline, old) == _tensors(current, new)}
    return tuple(_under(row, names[row.model]) if row.model in names else row for row in baseline.rows)


def _tensors(summary: Summary, name: str) -> object:
    return summary.exports[name].inputs, summary.exports[name].outputs


def _under(row: Row, name: str) -> Row:
    """A case's id begins with the folder of its model."""
    old, new = (model.replace(":", "-") for model in (row.model, name))
    return row.model_copy(update={"model": name, "case_id": new + row.case_id.removeprefix(old)})
