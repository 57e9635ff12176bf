"""Compare a summary with an earlier summary and with thresholds: a verdict per row, and an exit code for CI.

SLOWER, FASTER and SAME need at least five rounds on each side. --across compares runs of two machines or versions only
by their ratios over the baseline backend; without a baseline, all of results/machines/ in one report. --paired is for
the two states of `ab`, whose rounds were measured in turn.

reads   results/summary.json, the baseline's summary.json; states.json with --paired; machines/*/summary.json
writes  results/comparison.json, comparison.md, pr-comment.md, junit.xml, written/compare.json; under GitHub Actions the
        step summary and annotations; or, of several machines, machines.md and charts/machines.png

Exit code 1: a row regressed or a threshold is missed; 2: nothing could be compared; 0 otherwise.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain as chained
from pathlib import Path

from harness.comparison import compatibility, verdicts
from harness.comparison.compatibility import with_current_names
from harness.comparison.verdicts import EQUIVALENCE, Margins, Paired, compare_loads, with_token_rows
from harness.core import (
    cli,
    file_sums,
    packed,
    store,
)
from harness.core.errors import MissingInputError, NotComparableError, RegressionError, UsageError
from harness.core.layout import Results, RunStore
from harness.core.lock import exclusive
from harness.core.parallel import map_forked, without_garbage_collection
from harness.core.schemas import Comparison, Design, Difference, Judgement, Row, Side, States, Summary
from harness.core.timestamps import utc_now
from harness.pipeline import TEXTS
from harness.planning.run_store import RemoteStore, baseline_in, is_store, is_url
from harness.reporting import thresholds
from harness.reporting.prose.conditions import short_conditions
from harness.reporting.tables import comparison_table as tables
from harness.reporting.tables.machines_tables import machines_blocks
from harness.reporting.tables.metrics_table import metrics_table
from harness.reporting.thresholds import Threshold
from harness.reporting.writers import github
from harness.reporting.writers.github import pr_comment
from harness.reporting.writers.junit import junit
from harness.reporting.writers.markdown import document_text, section
from harness.reporting.writers.terminal import table_text


@without_garbage_collection()
def stage(arguments: Sequence[str]) -> None:
    """Read both, judge, write, and fail where a row or a threshold fails."""
    options = _options(arguments)
    if [text.strip() for text in options.threshold] == [thresholds.LIST]:
        cli.say(table_text(metrics_table()))
        return
    limits = thresholds.parse_all(options.threshold)
    margins = thresholds.parse_margins(options.equivalence or f"{EQUIVALENCE:.0%}", options.max_regression)
    results = Results(options.results)
    baseline_path = None if options.baseline is None else _summary_path(options.baseline, results)
    if baseline_path is None and not limits and options.design == "across" and len(results.machines()) > 1:
        _compare_machines(results)
        return
    given = {"MAX_REGRESSION": options.max_regression, "EQUIVALENCE": options.equivalence}
    if baseline_path is None and limits and (unread := next((name for name, value in given.items() if value), None)):
        raise UsageError(
            f"{unread} is of a comparison with another run, and limits alone are judged without it.",
            f"Name that run too, make compare BASELINE=<folder>, or leave {unread} out.",
        )
    if baseline_path is None and not limits:
        raise UsageError(
            "There is nothing to compare with.",
            "make compare BASELINE=<results folder or summary.json>, or THRESHOLD='latency_p50<100ms'.",
        )
    if baseline_path is not None and baseline_path.resolve() == results.summary.resolve():
        raise UsageError(
            f"{baseline_path} is the baseline and the current summary at once.",
            "Keep an earlier run in another folder: make bench RESULTS=results/again, then compare the two.",
        )
    current = file_sums.ByModel(results.summary)
    if baseline_path is not None and not baseline_path.is_file():
        raise MissingInputError(
            f"{baseline_path} does not exist.",
            _NAME_BASELINE,
        )
    baseline = None if baseline_path is None else file_sums.ByModel(baseline_path, where=_where(baseline_path))
    if baseline is None and options.design != "separate":
        raise UsageError(
            f"--{options.design} compares two runs.", "Name the other one: make compare BASELINE=<folder>."
        )
    before = None if baseline is None else _side(baseline_path or Path(), baseline.head)
    sides = (before, _side(results.summary, current.head))
    if options.design == "paired":
        sides = _states(sides, results)
    comparison = judge_by_model(baseline, current, sides, margins, limits, options.design)
    _write(comparison, current, results)
    _end(comparison, results)


def judge(
    baseline: Summary | None,
    current: Summary,
    sides: tuple[Side | None, Side],
    margins: Margins,
    limits: Sequence[Threshold],
    design: Design = "separate",
) -> Comparison:
    """Both kinds of verdict in one record."""
    differences = () if baseline is None else compatibility.differences(baseline, current)
    before = None if baseline is None else with_current_names(with_token_rows(baseline), with_token_rows(current))
    parts = [_part(before, current, differences, limits, design)]
    return _comparison_of_parts(parts, (baseline, current), differences, sides, margins, design)


def judge_by_model(
    baseline: file_sums.ByModel | None,
    current: file_sums.ByModel,
    sides: tuple[Side | None, Side],
    margins: Margins,
    limits: Sequence[Threshold],
    design: Design,
) -> Comparison:
    """As judge, where either run is large."""
    head = None if baseline is None else baseline.head
    if not (current.is_large or (baseline is not None and baseline.is_large)):
        return judge(head, current.head, sides, margins, limits, design)
    differences = () if head is None else compatibility.differences(head, current.head)
    parts = list(_verdicts_by_model(baseline, current, differences, limits, design))
    return _comparison_of_parts(parts, (head, current.head), differences, sides, margins, design)


def _comparison_of_parts(
    parts: Sequence[PartVerdicts],
    summaries: tuple[Summary | None, Summary],
    differences: tuple[Difference, ...],
    sides: tuple[Side | None, Side],
    margins: Margins,
    design: Design,
) -> Comparison:
    """The verdicts on all parts together. summaries: of the loads alone."""
    rows = verdicts.judged_rows([part for part, _ in parts if part is not None], margins, design)
    baseline, current = summaries
    return Comparison(
        design=design,
        created_at=utc_now(),
        baseline=sides[0],
        current=sides[1],
        equivalence=margins.equivalence,
        max_regression=margins.max_regression,
        common_ratio=verdicts.common_ratio(rows),
        differences=differences,
        rows=rows,
        judgements=tuple(
            chained.from_iterable(chained.from_iterable(zip(*(judged for _, judged in parts), strict=True)))
        ),
        loads=() if baseline is None else compare_loads(baseline, current, differences),
    )


PartVerdicts = tuple[Paired | None, list[Sequence[Judgement]]]
"""The pairs of rows of a run or of one model of it, and what each threshold says of its rows."""


def _part(
    baseline: Sequence[Row] | None,
    current: Summary,
    differences: Sequence[Difference],
    limits: Sequence[Threshold],
    design: Design,
) -> PartVerdicts:
    rows = with_token_rows(current).rows
    pairs = None if baseline is None else verdicts.paired_rows(baseline, rows, differences, design)
    judged: list[Sequence[Judgement]] = [
        thresholds.judge(threshold, current.rows, current.loads, current.generations) for threshold in limits
    ]
    return pairs, judged


def _verdicts_by_model(
    baseline: file_sums.ByModel | None,
    current: file_sums.ByModel,
    differences: Sequence[Difference],
    limits: Sequence[Threshold],
    design: Design,
) -> Iterator[PartVerdicts]:
    """Each model by itself, in several processes: no process has all rows. What has no model comes last."""

    import scipy.special  # noqa: F401, PLC0415 - its tests need it: here once, not in each forked process

    def part_of(model: str) -> PartVerdicts:
        before = None if baseline is None else baseline.rows(model)
        return _part(before, current.of(model), differences, limits, design)

    models = dict.fromkeys([*current.models, *(baseline.models if baseline else ())])
    yield from map_forked(part_of, list(models))
    rest = current.head.model_copy(update={"rows": ()})
    before = None if baseline is None else with_token_rows(baseline.head.model_copy(update={"rows": ()})).rows
    if rest.loads or rest.generations or before:
        yield _part(before, rest, differences, limits, design)


def _compare_machines(results: Results) -> None:
    """Write the machines of results/machines/ side by side. Raises MissingInputError with fewer than two summaries."""
    folders = {name: folder for name, folder in results.machines().items() if folder.summary.is_file()}
    for name in results.machines().keys() - folders.keys():
        cli.warn(f"{name} has no summary.json and is left out: make aggregate RESULTS={results.machine(name).root}.")
    if len(folders) < 2:
        raise MissingInputError(
            "Fewer than two machines have a summary.", f"make bench RESULTS={results.machine('<name>').root}, on each."
        )
    summaries = {name: file_sums.load_summary(folder.summary) for name, folder in folders.items()}
    # Other comparisons draw nothing, and do not wait for the library of charts.
    from harness.reporting.charts import matplotlib_drawer  # noqa: PLC0415
    from harness.reporting.charts.speedup_charts import machines_chart  # noqa: PLC0415

    chart, image = machines_chart(summaries), None
    results.machines_chart.unlink(missing_ok=True)
    if chart is not None:
        store.save_bytes(results.machines_chart, matplotlib_drawer.image(matplotlib_drawer.draw(chart), "png"))
        image = f"![{chart.title}]({results.machines_chart.relative_to(results.root).as_posix()})"
    text = document_text(cli.typed(section("Machines", *machines_blocks(summaries, image), level=1)))
    store.save_bytes(results.machines_report, f"{text}\n".encode())
    cli.say(f"Machines side by side: {results.machines_report}")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = cli.parser("harness.compare", __doc__)
    parser.add_argument("--baseline", help=TEXTS["--baseline"])
    parser.add_argument("--threshold", action="append", default=[], help=TEXTS["--threshold"])
    parser.add_argument("--max-regression", help=TEXTS["--max-regression"])
    parser.add_argument("--equivalence", help=TEXTS["--equivalence"])
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--across",
        dest="design",
        action="store_const",
        const="across",
        default="separate",
        help="machines or versions that differ: name all differences, judge ratios over the baseline backend alone",
    )
    kinds.add_argument(
        "--paired", dest="design", action="store_const", const="paired", help="two states that `ab` measured in turn"
    )
    cli.add_folders(parser, models=False)
    return parser.parse_args(arguments)


def _states(sides: tuple[Side | None, Side], results: Results) -> tuple[Side | None, Side]:
    """Both sides with the names of their states. Raises MissingInputError where `ab` did not measure this pair."""
    states = store.load(results.states, States, "make ab AGAINST=<commit or folder>")
    baseline, current = sides
    named = baseline and baseline.model_copy(update={"state": states.against.name})
    return named, current.model_copy(update={"state": states.here.name})


def _summary_path(text: str, results: Results) -> Path:
    """The baseline's summary; in a store of runs, the summary of this machine's latest earlier run."""
    if is_url(text):
        remote = RemoteStore(text)
        files = results.store_copy(remote.url)
        with exclusive(files.lock):
            remote.fetch(files)
            return remote.fetch_summary(files, baseline_in(files, file_sums.ByModel(results.summary)))
    given = cli.path(text.removeprefix("file://"))
    if given.is_dir() and is_store(given):
        return RunStore(given).summary(baseline_in(RunStore(given), file_sums.ByModel(results.summary)))
    if given.is_file() and given.suffix != ".json":
        raise UsageError(f"{given} is a file, and no summary.json.", _NAME_BASELINE)
    return given if given.suffix == ".json" and not given.is_dir() else Results(given).summary


_NAME_BASELINE = "Name the results folder of an earlier run, or its summary.json: make compare BASELINE=<folder>."


def _where(path: Path) -> str:
    """The folder of the baseline, for hints: `aggregate` in the current one would not make the baseline again."""
    return f" RESULTS={shlex.quote(str(path.parent)) if path.parent != Path() else './'}"


def _side(path: Path, summary: Summary) -> Side:
    return Side(
        path=str(path),
        plan_id=summary.plan_id,
        config=summary.config,
        rounds=summary.rounds,
        measured_from=summary.measured_from,
        measured_to=summary.measured_to,
    )


def _write(comparison: Comparison, current: file_sums.ByModel, results: Results) -> None:
    shown = current.of(current.models[0]) if current.is_large else current.head
    measured = [row for row in shown.rows if row.status == "measured"]
    large = len(comparison.rows) > packed.PACK_FROM
    writers: dict[Path, Callable[[], bytes]] = {
        results.comparison_report: lambda: document_text(
            cli.typed(tables.document(comparison, short_conditions(shown, measured)))
        ).encode(),
        results.junit: lambda: cli.typed_html(junit(comparison)).encode(),
        results.comparison: lambda: store.encoded(comparison, indent=None if large else 2),
        results.pr_comment: lambda: cli.typed(pr_comment(comparison)).encode(),
    }
    # One after the other they would take as long as all comparing by several processes.
    written = (map_forked if large else map)(lambda path: writers[path](), list(writers))
    texts = dict(zip(writers, written, strict=True))
    store.save_encoded(results.comparison, texts.pop(results.comparison))
    file_sums.save(results, "compare", texts)
    document = texts[results.comparison_report].decode()
    if os.environ.get("GITHUB_ACTIONS"):
        for line in github.commands(comparison):
            cli.say(line)
        _append(os.environ.get("GITHUB_STEP_SUMMARY"), github.step_summary(document))


def _append(path: str | None, text: str) -> None:
    if path:
        with store.translate_storage_errors(Path(path)), Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


def _end(comparison: Comparison, results: Results) -> None:
    if text := tables.terminal(comparison):
        cli.say(text)
    cli.say(f"Comparison: {results.comparison_report}")
    said = tables.headline(comparison)
    if comparison.fails:
        raise RegressionError(said, f"{results.comparison_report} has the rows and the changes of the environment.")
    if comparison.is_empty:
        in_both = any(row.verdict not in ("NEW", "GONE") for row in comparison.rows)
        reasons = [tables.change_text(row) for row in comparison.rows] if in_both else []
        # Grades have flags behind them, in many combinations.
        groups = Counter(text.partition(": ")[0] if "grade " in text else text for text in reasons)
        why = f"most often: {groups.most_common(1)[0][0]}" if reasons else "the two have no row in common"
        hint = f"{results.comparison_report} gives the reason for each row."
        raise NotComparableError(f"Nothing could be compared; {why}.", hint)
    cli.say(said)


if __name__ == "__main__":
    cli.main(stage)
