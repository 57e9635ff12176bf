"""Summary → gauges in Prometheus's text format, for node_exporter's textfile collector (pure).

Units are base units: seconds, bytes, joules. Rows of grade F and rows that were not measured have no gauge, so that a
series ends with its figure; `inferometer_cases` counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from harness.aggregation.grades import names_of
from harness.core.schemas import GenerationRow, Row, Summary
from harness.core.timestamps import since_1970_s
from harness.reporting.csv_identity import identity_columns, run_columns, sound_rows
from harness.reporting.figures import BASE_UNITS, ENERGY, FIGURES, GENERATION, LOAD, LOADED, Figure, Thing
from harness.reporting.load_groups import is_sound
from harness.reporting.tables.load_tables import load_identity_columns

_PREFIX = "inferometer_"


def metrics_text(summary: Summary) -> bytes:
    """All gauges, in the summary's order: the same summary gives the same bytes."""
    registry = CollectorRegistry()
    rows = sound_rows(summary)
    _families(registry, FIGURES, [(_labels(row), row) for row in rows])
    metered = [row for row in rows if row.case_id in summary.energies]
    _families(registry, ENERGY, [(_labels(row), summary.energies[row.case_id]) for row in metered])
    generated = [row for row in summary.generations if row.status == "measured" and row.ttft_ns is not None]
    _families(registry, GENERATION, [(_generation_labels(row), row) for row in generated])
    loads = [row for row in summary.loads if is_sound(row)]
    _families(registry, LOAD, [(_texts(load_identity_columns(row)), row) for row in loads])
    points = [
        ({**_texts(load_identity_columns(row)), "point": point.point}, point) for row in loads for point in row.points
    ]
    _families(registry, LOADED, points)
    verdicts = [({**labels, "verdict": value.verdict}, 1) for labels, value in points if value.verdict]
    _fill(registry, "load_verdict_info", "Verdict of a load.", verdicts)
    _fill(registry, "custom", "Metrics of plugins, by their name and in their unit.", _custom(summary, rows))
    _fill(registry, "case_info", "Grade and flags of a case, to join with.", [(_graded(row), 1) for row in rows])
    _fill(registry, "run_info", "Where it was measured, and from which plan.", [(_run(summary), 1)])
    if summary.measured_to:
        _fill(registry, "measured_timestamp_seconds", "When it was.", [({}, since_1970_s(summary.measured_to))])
    counts = Counter((row.status, row.grade or "") for row in summary.rows)
    cases = [({"status": status, "grade": grade}, number) for (status, grade), number in sorted(counts.items())]
    _fill(registry, "cases", "Planned cases by what became of them.", cases)
    return generate_latest(registry)


def _families(
    registry: CollectorRegistry, figures: Sequence[Figure[Thing]], things: Sequence[tuple[Mapping[str, str], Thing]]
) -> None:
    """The gauges of figures, and both ends of their intervals. things: the owners of the figures, with their labels."""
    for figure in figures:
        for name, text, value in _gauges(figure):
            _fill(
                registry,
                name,
                text,
                [(labels, measured) for labels, of in things if (measured := value(of)) is not None],
            )


def _fill(
    registry: CollectorRegistry, name: str, text: str, samples: Sequence[tuple[Mapping[str, str], float]]
) -> None:
    """A family of gauges; nothing without samples."""
    if not samples:
        return
    gauge = Gauge(_PREFIX + name, text, [*samples[0][0]], registry=registry)
    for labels, value in samples:
        (gauge.labels(**labels) if labels else gauge).set(value)


def _gauges(figure: Figure[Thing]) -> Iterator[tuple[str, str, Callable[[Thing], float | None]]]:
    """(name after the prefix, help, value) of a figure and of both ends of its interval; nothing for a text."""
    if figure.kind == "mark":
        yield f"{figure.key}_info", figure.doc, lambda of: 1.0 if figure.value(of) is True else None
    if figure.kind not in BASE_UNITS:
        return
    unit, size = BASE_UNITS[figure.kind]

    def base(value: object) -> float | None:
        return value / size if isinstance(value, (int, float)) else None

    yield f"{figure.key}{unit}", figure.doc, lambda of: base(figure.value(of))
    if figure.interval is not None:
        text = f"{figure.doc} 95% interval over processes."
        yield f"{figure.key}_ci95_low{unit}", text, lambda of: base(getattr(figure.ends(of), "low", None))
        yield f"{figure.key}_ci95_high{unit}", text, lambda of: base(getattr(figure.ends(of), "high", None))


def _custom(summary: Summary, rows: Sequence[Row]) -> list[tuple[Mapping[str, str], float]]:
    return [
        ({**_labels(row), "metric": name, "unit": metric.unit}, value)
        for name, metric in summary.custom.items()
        for row in rows
        if isinstance(value := row.custom.get(name), float)
    ]


def _run(summary: Summary) -> dict[str, str]:
    """Labels of the run, without dates: else each run would start a new series."""
    return {name: text for name, text in _texts(run_columns(summary)).items() if not name.startswith("measured_")}


def _labels(row: Row) -> dict[str, str]:
    """Labels that identify a series; without the grade, else a disturbed run would start a new series."""
    return {name: text for name, text in _texts(identity_columns(row)).items() if name != "grade"}


def _generation_labels(row: GenerationRow) -> dict[str, str]:
    names = ("case_id", "model", "weights", "backend", "setting", "device", "precision")
    shape = ("batch_size", "prompt_length", "new_tokens")
    return {name: str(getattr(row, name)) for name in (*names, *shape)}


def _graded(row: Row) -> dict[str, str]:
    flags = " ".join(names_of(row.flags))
    return {**_labels(row), "grade": row.grade or "", "flags": flags}


def _texts(texts: Mapping[str, object]) -> dict[str, str]:
    return {name: "" if value is None else str(value) for name, value in texts.items()}
