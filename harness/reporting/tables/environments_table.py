"""Every fact of every environment as a line (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from harness.core.schemas import Summary, Unavailable
from harness.reporting.figures import Value
from harness.reporting.labels import Line


def environment_lines(summary: Summary) -> list[Line]:
    """A line for each fact of each environment; facts that could not be read are empty, with the reason."""
    return [
        {"environment_id": name, "fact": fact, **_as_line(value), "plan_id": summary.plan_id}
        for name, environment in summary.environments.items()
        for part in ("machine", "limits", "gpu", "software")
        for fact, value in _facts(part, getattr(environment, part))
    ]


def _facts(name: str, value: object) -> Iterator[tuple[str, object]]:
    """(path with dots, value) of all fields below; a field's name contains its unit."""
    if isinstance(value, BaseModel) and not isinstance(value, Unavailable):
        for field in type(value).model_fields:
            yield from _facts(f"{name}.{field}", getattr(value, field))
    elif isinstance(value, Mapping):
        for key, inner in sorted(value.items()):
            yield f"{name}.{key}", inner
    elif value is not None:
        yield name, value


def _as_line(value: object) -> Line:
    if isinstance(value, Unavailable):
        return {"value": None, "not_available": value.unavailable}
    plain: Value = value if isinstance(value, (str, int, float)) else " ".join(map(str, value))  # type: ignore[call-overload]
    return {"value": plain, "not_available": None}
