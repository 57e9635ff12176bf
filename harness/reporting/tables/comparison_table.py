"""A comparison in words, as Markdown and as a terminal table, the worst first (pure)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from harness.comparison.verdicts import ENOUGH_ROUNDS, RULES, is_lost
from harness.core import units
from harness.core.schemas import (
    ComparedLoad,
    ComparedRow,
    Comparison,
    Design,
    Interval,
    Judgement,
    Quantity,
    Side,
    Verdict,
)
from harness.reporting.table import Column, DocumentBlock, Table, text_table, titled_blocks, word_column
from harness.reporting.writers import terminal as terminal_writer
from harness.reporting.writers.markdown import blocks_text

_ORDER: tuple[Verdict, ...] = ("SLOWER", "AMBIGUOUS", "SAME", "FASTER", "GONE", "NEW", "NOT COMPARABLE")


def worst_first(rows: Iterable[ComparedRow]) -> list[ComparedRow]:
    """Failing rows first, then by verdict, and within one verdict the slowest first."""
    return sorted(rows, key=_worst_first_key)


def _worst_first_key(row: ComparedRow) -> tuple[bool, int, float, str]:
    return (*_kind(row), -(row.ratio or 0), row.case_id)


def _kind(row: ComparedRow) -> tuple[bool, int]:
    return not row.fails, _ORDER.index(row.verdict)


def percent(ratio: float) -> str:
    """A ratio as a change: +5.0%, -3.2%, and ×12.3 where a percentage would be hard to read."""
    # Adding 0.0 removes the sign of a zero.
    return f"×{units.significant(ratio)}" if ratio >= 10 else f"{round(100 * (ratio - 1), 1) + 0.0:+.1f}%"


def interval(ends: Interval | None) -> str:
    """Both ends as changes."""
    return units.interval(ends, end=percent)


def change_text(row: ComparedRow) -> str:
    """The change of a row, with its numbers."""
    if row.ratio is not None and row.relative is not None:
        before, after = (f"{units.significant(share)} of the baseline backend's time" for share in row.relative)
    elif row.ratio is not None and row.baseline_ns is not None and row.current_ns is not None:
        before, after = units.duration(row.baseline_ns), units.duration(row.current_ns)
    else:
        return row.reason or {"NEW": "not in the baseline", "GONE": "only in the baseline"}.get(row.verdict, "")
    parts = [f"{before} → {after}, {percent(row.ratio)}, 95% CI {interval(row.ci95)}", note_text(row)]
    return "; ".join(part for part in parts if part)


def load_change_text(load: ComparedLoad) -> str:
    """Both peaks, the change of the prediction, and the reason of the verdict."""
    peaks = [peak for side in (load.baseline, load.current) if (peak := peak_ends(side))]
    moved = f"prediction {percent(load.ratio)}" if load.ratio is not None else ""
    return "; ".join(part for part in (" → ".join(peaks), moved, load.reason or "") if part)


def peak_ends(side: tuple[float | None, float | None]) -> str:
    """`[59.6, 72.8]/s`: highest PASS and lowest FAIL; empty without either."""
    passed, failed = side
    if passed is None and failed is None:
        return ""
    return f"[{units.significant(passed)}, {units.significant(failed)}]/s"


def note_text(row: ComparedRow) -> str:
    """Remarks beside the numbers: tolerance, doubt, and changes of the software or hardware that the row ran on."""
    tolerated = "within MAX_REGRESSION" if row.verdict == "SLOWER" and not row.fails else ""
    return "; ".join(part for part in (tolerated, row.reason or "", ", ".join(row.changed)) if part)


def figure_text(value: float, quantity: Quantity) -> str:
    """A value of a threshold with its unit."""
    match quantity:
        case "ns":
            return units.duration(value)
        case "per_s":
            return f"{units.significant(value)}/s"
        case "bytes":
            return f"{units.mib(round(value))} MiB"
        case "ratio":
            return f"{units.significant(value)}x"


def judgement_text(judgement: Judgement) -> str:
    """The figure that was compared with a threshold, and whether noise could change the outcome."""
    if judgement.value is None:
        return judgement.reason or "no figure"
    value = figure_text(judgement.value, judgement.quantity)
    if judgement.ci95 is None or judgement.clear is None:
        return f"{value}, no interval"
    interval = units.interval(judgement.ci95, end=lambda end: figure_text(end, judgement.quantity))
    return f"{value}, 95% CI {interval} {'clear of the limit' if judgement.clear else 'reaches across the limit'}"


TERMINAL_ROWS = 40
"""Lines of the terminal table; comparison.md holds every row."""

THRESHOLDS = "Thresholds"
LOADS = "Load"

MAX_NAMED = 3
"""Cases named individually with a shared reason; comparison.json has all of them."""

CORRELATED_ALARMS = "53% to 72%"
"""With 5 to 10 rounds per side: benchmarks/false_alarms.py, docs/speed.md."""


def headline(comparison: Comparison) -> str:
    """One line: the failures, and the number of rows of each verdict."""
    parts = []
    if comparison.baseline is not None:
        rows = comparison.rows
        kinds = sorted(Counter(map(_kind, rows)).items())  # a table of a large run is not sorted for one line
        counts: Counter[Verdict] = Counter()
        for (_, place), number in kinds:
            counts[_ORDER[place]] += number
        compared = sum(row.ratio is not None for row in rows)
        failing = [row for row in rows if row.fails]
        worst = ""
        if failing:
            first = min(failing, key=_worst_first_key)
            worst = f" (worst: {first.case_id} {percent(first.ratio or 1)})"
        parts.append(f"{len(failing)} of {units.count(compared, 'compared row')} regressed{worst}")
        parts.append(", ".join(f"{number} {verdict}" for verdict, number in counts.items()))
    if comparison.loads:
        verdicts = Counter(load.verdict for load in comparison.loads)
        parts.append("load: " + ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items()))
    if comparison.judgements:
        outcomes = Counter(outcome for outcome, *_, judgements in _grouped_judgements(comparison) for _ in judgements)
        parts.append("thresholds: " + ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items()))
    return "; ".join(part for part in parts if part) + "."


def terminal(comparison: Comparison) -> str:
    """Compared rows and missed thresholds, within 100 columns unless case names are long."""
    rows = [row for row in comparison.rows if row.ratio is not None]
    worst = heapq.nsmallest(TERMINAL_ROWS, rows, key=_worst_first_key)
    blocks = [terminal_writer.table_text(compared_table(worst, with_notes=False))] if rows else []
    if len(rows) > TERMINAL_ROWS:
        blocks.append(f"… and {len(rows) - TERMINAL_ROWS:,} more rows in comparison.md")
    missed = [
        f"{outcome}  {threshold}  {_first_cases_text([judgement.case_id for judgement in judgements])}: {value}"
        for outcome, threshold, value, judgements in _grouped_judgements(comparison)
        if outcome != "PASS"
    ]
    blocks += missed[:TERMINAL_ROWS]
    if len(missed) > TERMINAL_ROWS:
        blocks.append(f"… and {len(missed) - TERMINAL_ROWS:,} more missed thresholds in comparison.md")
    return "\n".join([*blocks, *remarks(comparison)])


def document(comparison: Comparison, conditions: str) -> str:
    """The whole comparison as Markdown. conditions: of the current summary, shown above each table of figures."""
    return blocks_text(comparison_blocks(comparison, f"Conditions: {conditions}")) + "\n"


def comparison_blocks(comparison: Comparison, stated: str = "") -> list[DocumentBlock]:
    """The whole comparison. stated: a line above each table of figures."""
    compared = worst_first(row for row in comparison.rows if row.ratio is not None)
    return [
        *titled_blocks(
            "Comparison", f"**{headline(comparison)}**", sides_text(comparison), *remarks(comparison), level=1
        ),
        *(titled_blocks("Rows", stated, compared_table(compared, bold=True)) if compared else ()),
        *(
            block
            for title, text in details(comparison)
            for block in titled_blocks(title, stated if title in (THRESHOLDS, LOADS) else "", text)
        ),
    ]


def details(comparison: Comparison) -> list[tuple[str, DocumentBlock]]:
    """(heading, text or table) of the parts below the compared rows; empty parts are left out."""
    parts: dict[str, DocumentBlock | None] = {
        LOADS: _loads(comparison),
        THRESHOLDS: _thresholds(comparison) if comparison.judgements else None,
        "Not compared": _not_compared(comparison.rows),
        "What changed around the rows": _differences(comparison),
        "How to read this": _guide(comparison),
    }
    return [(title, block) for title, block in parts.items() if block]


def remarks(comparison: Comparison) -> list[str]:
    """Remarks that a reader needs in order to judge the rows."""
    lines = []
    common = comparison.common_ratio
    moved = any(row.verdict in ("SLOWER", "FASTER") for row in comparison.rows)
    if moved and common is not None and abs(common - 1) > comparison.equivalence:
        lines.append(
            f"The middle row moved by {percent(common)}: look first at what all rows share "
            f"({_SHARED[comparison.design]}), then at single rows."
        )
    lost = sum(is_lost(row) for row in comparison.rows)
    if lost:
        verb = "has" if lost == 1 else "have"
        lines.append(f"{units.count(lost, 'row')} had a sound figure in the baseline and {verb} none now.")
    if short := _short_sides(comparison):
        enough = RULES[comparison.design].enough
        commands = " and ".join(dict.fromkeys(f"`{_command(side, comparison.design)}`" for side in short))
        again = "" if comparison.design == "paired" else ", then compare again"
        lines.append(f"No row is judged by fewer than {enough} rounds a side: {commands}{again}.")
    return lines


_SHARED: Mapping[Design, str] = {
    "separate": "neighbours and clock of the machine, a library",
    "paired": "code or a library that all rows use",
    "across": "the baseline backend, of which all are ratios",
}


def _short_sides(comparison: Comparison) -> list[Side]:
    """The runs that need more rounds before any verdict."""
    pairs = [row.rounds for row in comparison.rows if row.rounds is not None]
    sides, enough = [comparison.baseline, comparison.current], RULES[comparison.design].enough
    return [side for at, side in enumerate(sides) if side is not None and any(pair[at] < enough for pair in pairs)]


def _command(side: Side, design: Design) -> str:
    """The command that adds the missing rounds to a run, with its configuration and folder."""
    if design == "paired":
        return "make ab ROUNDS=10"
    config = [f"CONFIG={side.config}"] if side.config else []
    return " ".join(["make bench", f"ROUNDS={ENOUGH_ROUNDS}", *config, f"RESULTS={PurePath(side.path).parent}"])


def compared_table(rows: Sequence[ComparedRow], *, with_notes: bool = True, bold: bool = False) -> Table[ComparedRow]:
    """A line for each compared row. bold: mark the verdicts of rows that fail."""
    unit = units.time_unit(value for row in rows for value in (row.baseline_ns, row.current_ns) if value)
    across = any(row.relative for row in rows)
    names = ("baseline ratio", "ratio now") if across else (f"baseline {unit.name}", f"now {unit.name}")

    def figure_text(row: ComparedRow, place: int) -> str:
        if row.relative:
            return units.significant(row.relative[place])
        return units.in_unit((row.baseline_ns, row.current_ns)[place], unit)

    columns = [
        word_column("verdict", lambda row: f"**{row.verdict}**" if bold and row.fails else row.verdict),
        word_column("case", lambda row: row.case_id),
        Column[ComparedRow](names[0], lambda row: figure_text(row, 0)),
        Column[ComparedRow](names[1], lambda row: figure_text(row, 1)),
        Column[ComparedRow]("change", lambda row: percent(row.ratio or 1)),
        Column[ComparedRow]("95% CI", lambda row: interval(row.ci95)),
    ]
    return Table([*columns, *([word_column("note", note_text)] if with_notes else [])], rows)


def _words_table(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> DocumentBlock | None:
    return text_table([(header, "left") for header in headers], lines) if lines else None


def _thresholds(comparison: Comparison) -> DocumentBlock | None:
    lines = [
        [outcome, f"`{threshold}`", _first_cases_text([judgement.case_id for judgement in judgements]), value]
        for outcome, threshold, value, judgements in _grouped_judgements(comparison)
    ]
    return _words_table(["verdict", "threshold", "case", "value"], lines)


def _loads(comparison: Comparison) -> DocumentBlock | None:
    lines = [
        [
            f"**{load.verdict}**" if load.fails else load.verdict,
            load.load_id,
            peak_ends(load.baseline) or units.ABSENT,
            peak_ends(load.current) or units.ABSENT,
            units.ABSENT if load.ratio is None else percent(load.ratio),
            interval(load.ci95),
            load.reason or "",
        ]
        for load in sorted(comparison.loads, key=lambda load: not load.fails)
    ]
    if not lines:
        return None
    headers = ["verdict", "load case", "baseline peak", "peak now", "prediction", "95% CI", "note"]
    note = (
        "Peak: [highest PASS, lowest FAIL]. SLOWER: a load that passed before, or a lower one, fails now. Prediction: "
        "by replay, without the scatter between processes."
    )
    return replace(text_table([(header, "left") for header in headers], lines), note=note)


def _grouped_judgements(comparison: Comparison) -> list[tuple[str, str, str, list[Judgement]]]:
    """(outcome, threshold, words, rows), failures first; rows with the same words are grouped."""
    order = ("FAIL", "UNKNOWN", "PASS")
    groups: dict[tuple[str, str, str], list[Judgement]] = {}
    for judgement in sorted(comparison.judgements, key=lambda judgement: order.index(judgement.outcome)):
        groups.setdefault((judgement.outcome, judgement.threshold, judgement_text(judgement)), []).append(judgement)
    return [(*key, judgements) for key, judgements in groups.items()]


def _not_compared(rows: Sequence[ComparedRow]) -> DocumentBlock | None:
    """Rows without a ratio, by reason; rows that were lost since the baseline come first."""
    groups: dict[tuple[str, str], list[ComparedRow]] = {}
    without = worst_first(row for row in rows if row.ratio is None)
    for row in sorted(without, key=lambda row: not is_lost(row)):
        groups.setdefault((row.verdict, change_text(row)), []).append(row)
    lines = [
        [verdict, _first_cases_text([row.case_id for row in rows]), why] for (verdict, why), rows in groups.items()
    ]
    return _words_table(["verdict", "case", "reason"], lines)


def _first_cases_text(cases: Sequence[str]) -> str:
    named = ", ".join(cases[:MAX_NAMED])
    return named if len(cases) <= MAX_NAMED else f"{named} and {len(cases) - MAX_NAMED:,} more"


def _differences(comparison: Comparison) -> DocumentBlock | None:
    forbids = "" if comparison.design == "across" else " (forbids comparing)"
    lines = [
        [f"{difference.name}{forbids if difference.refuses else ''}", difference.baseline, difference.current]
        for difference in comparison.differences
    ]
    return _words_table(["fact", "baseline", "now"], lines)


def sides_text(comparison: Comparison) -> str:
    """The two runs, and when each was measured."""
    both = [("Baseline", comparison.baseline), ("Now", comparison.current)]
    lines = [
        f"- {name}: {_state(side)}`{side.path}`, plan {side.plan_id}, {units.count(side.rounds, 'round')}, "
        f"measured {side.measured_from or 'nothing'} to {side.measured_to or 'nothing'}"
        for name, side in both
        if side is not None
    ]
    return "\n".join(lines)


def _state(side: Side) -> str:
    return f"**{side.state}**, " if side.state else ""


def _guide(comparison: Comparison) -> str:
    margin, allowed = f"±{comparison.equivalence:.1%}", f"{comparison.max_regression:.1%}"
    tests, noise = _TESTS[comparison.design], _NOISE[comparison.design]
    compared, judged = [row for row in comparison.rows if row.ratio is not None], comparison.judgements
    fails = {
        f"a slower row fails beyond {allowed}": compared,
        "a threshold fails on its point estimate, and without a sound figure": judged,
    }
    how_fails = "; ".join(text for text, concerned in fails.items() if concerned)
    lines: dict[str, object] = {
        f"**change** is {_CHANGE[comparison.design]}; {margin} is the margin of equivalence.": compared,
        f"**95% CI**: of the ratio, {_INTERVAL[comparison.design]}.": compared,
        "**SAME**: the whole interval lies inside the margin. **SLOWER**, **FASTER**: beyond the margin, its "
        f"interval clear of no change, significant over all compared rows by {tests}. **AMBIGUOUS**: these rounds "
        f"cannot decide; fewer than {RULES[comparison.design].enough} a side never do.": compared,
        f"{how_fails[:1].upper()}{how_fails[1:]}.": how_fails,
        noise: compared,
        units.wide_means("comparison.json"): _has_wide(comparison),
    }
    return "\n".join(f"- {line}" for line, occurs in lines.items() if occurs)


def _has_wide(comparison: Comparison) -> bool:
    """Whether an interval of the comparison is too wide to be printed as digits."""
    ends = [*(row.ci95 for row in comparison.rows), *(load.ci95 for load in comparison.loads)]
    ends += (judgement.ci95 for judgement in comparison.judgements)
    return any(interval is not None and units.too_wide_to_print(interval) for interval in ends)


_CHANGE: Mapping[Design, str] = {
    "separate": "that of the headline, the median of process medians",
    "paired": "the median of the rounds' ratios, of which each is of two processes that ran next to each other",
    "across": "that of the ratio over the baseline backend of the same run; times of the two are never compared",
}

_INTERVAL: Mapping[Design, str] = {
    "separate": "from the intervals of the two medians over processes (MOVER)",
    "paired": "of the median over the rounds' ratios",
    "across": "from the intervals of the four medians over processes (MOVER)",
}

_TESTS: Mapping[Design, str] = {
    "separate": "Welch's t on log process medians (Holm), and by ranks too, or with no process of one run among the "
    "other's",
    "paired": "a t test on the rounds' log ratios that allows for neighbouring ratios which correlate by up to 0.5 "
    "(Holm), and by signed ranks too, or with all rounds on one side",
    "across": "Welch's t on log process medians (Holm), and with intervals of the two ratios that lie apart",
}

_NOISE: Mapping[Design, str] = {
    "separate": "The interval covers noise between the processes of a run. What lasts for a whole run (a neighbour, "
    "heat) moves all rows alike and is in no interval. Nor is what lasts for some rounds: where neighbouring rounds "
    f"correlate by 0.5, {CORRELATED_ALARMS} of simulated tables of 30 unchanged rows call one slower or faster. "
    "Two runs cannot separate either from a change of the code; `make ab AGAINST=<commit or folder>` can.",
    "paired": "Which state of a round runs first is drawn, as often one as the other. What slows the machine for a "
    "round or longer meets both; disturbed rows are compared, their flags are in the report.",
    "across": "The baseline backend is a part of each ratio: where it became faster, all others read as slower.",
}
