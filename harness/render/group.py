"""What a recommendation is, and the rows that a rule may compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.core.schemas import EngineRecord, ExportRecord, Interval, Row
from harness.render import series


@dataclass(frozen=True)
class Recommendation:
    """One sentence or two: what they are about, the rule that gave them, and the rows they rest on."""

    about: str
    rule: str
    text: str
    case_ids: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Rows of grade A or B of one table and sequence length.

    by_id: all rows of the summary, for baselines. latency_limit_ms: of the configuration, None for none.
    engines: Summary.engines. flagged: the rows of grade C beside them, which no rule may recommend.
    """

    title: str
    rows: tuple[Row, ...]
    by_id: Mapping[str, Row]
    export: ExportRecord | None
    latency_limit_ms: float | None
    engines: Mapping[str, EngineRecord] = field(default_factory=dict)
    flagged: tuple[Row, ...] = ()

    def recommendation(self, rule: str, text: str, case_ids: tuple[str, ...]) -> Recommendation:
        """A recommendation about this group."""
        return Recommendation(self.title, rule, text, case_ids)

    def series(self) -> Iterator[Sequence[Row]]:
        """Rows that differ in nothing but the batch size, smallest first."""
        found: dict[str, list[Row]] = {}
        labels = series.labels(self.rows)
        for row in self.rows:
            found.setdefault(labels[row.case_id], []).append(row)
        for rows in found.values():
            yield sorted(rows, key=lambda row: row.batch_size)


def interval(row: Row) -> Interval | None:
    """The latency's 95% interval over processes."""
    return row.latency_ns.ci95 if row.latency_ns else None


def listed(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
