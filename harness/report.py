"""Write the report of a summary: report.md with the answers, report-details.md with the rest, report.html as one file.

reads   results/summary.json and the checksums of the files that it was computed from, command.txt, comparison.json,
        profiles/<case_id>/{model,parts}.json, *.trace.json
writes  results/report.md, results/report-details.md, charts/*.{png,svg}, results/report.html; with --profiles
        results/profile.{md,html}, profiles/charts/*.{png,svg}; with --only reports/<slug>/…;
        written/{report,profile}.json

For a large run (summary.parquet), report.md has a line for each model, and the page has the rows and charts of each.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.aggregation.flags import slug_of
from harness.core import (
    cli,
    file_sums,
    hints,
    store,
    units,
)
from harness.core.errors import FormatError, MissingInputError, UsageError
from harness.core.layout import Results
from harness.core.parallel import map_forked, without_garbage_collection
from harness.core.schemas import Comparison, Plan, SelfTest, Summary
from harness.core.text import paragraphs
from harness.core.timestamps import utc_now
from harness.profiling.phases import with_phases
from harness.profiling.read_profiles import only_profiled, profiled_rows
from harness.profiling.side_by_side import ComparedProfiles, compared_profiles, not_compared
from harness.reporting import ranking
from harness.reporting.charts import selection
from harness.reporting.charts.selection import Chart
from harness.reporting.details import document
from harness.reporting.first_page import answer, certainty_text, first_page, terminal_answer, title
from harness.reporting.html.by_model import certainty_text as how_sure_of_all
from harness.reporting.html.by_model import model_part, models_details, models_page, models_report
from harness.reporting.html.comparison_section import is_about
from harness.reporting.html.embedded import has_plotly
from harness.reporting.html.page import page, summary_meta
from harness.reporting.html.profile_section import RunProfiles
from harness.reporting.prose.conditions import conditions, shared_conditions, with_short_names
from harness.reporting.prose.generation_text import generation_section, terminal_generation
from harness.reporting.prose.load_answer import load_section, terminal_loads
from harness.reporting.table import DocumentBlock
from harness.reporting.tables.harness_error_tables import selftest_line
from harness.reporting.tables.latency_table import terminal_table
from harness.reporting.tables.profile_tables import profile_section
from harness.reporting.tables.side_by_side_table import not_compared_section, side_by_side_section
from harness.reporting.tables.what_if_table import terminal_what_if, what_if_section
from harness.reporting.writers.markdown import document_text, section

FORMS: tuple[Literal["png", "svg"], ...] = ("png", "svg")
"""Formats of each chart: the report shows the first; the second is for documents that scale it."""


@without_garbage_collection()
def stage(arguments: Sequence[str]) -> None:
    """Read, draw, write."""
    parser = cli.parser("harness.report", __doc__)
    cli.add_folders(parser, models=False)
    parser.add_argument("--no-charts", action="store_true", help="write the tables only")
    parser.add_argument("--print", action="store_true", help="also print the main table and the largest gains")
    parser.add_argument("--plain-charts", action="store_true", help="charts without title and caption, for papers")
    parser.add_argument(
        "--only",
        "--model",
        dest="model",
        help="the report of this model alone, with all tables and charts, into reports/<model>/",
    )
    parser.add_argument(
        "--profiles", action="store_true", help="the report of the profiled cases alone, measured or not"
    )
    options = parser.parse_args(arguments)
    results = Results(options.results)
    if not (options.profiles or options.model) and file_sums.is_large(results.summary):
        _write_by_model(file_sums.ByModel(results.summary), results, options.no_charts)
    else:
        _write(results, options, *_chosen(options, results))


def _write(results: Results, options: argparse.Namespace, full_summary: Summary, place: _Place) -> None:
    """The report of rows that are in memory together."""
    summary = with_short_names(full_summary)
    file_sums.check(results, "plan", [results.command], "make plan")
    hint_context = hints.of_file(results.command)
    with_charts = summary.charts and not options.no_charts
    selected = selection.select(summary) if with_charts else selection.Selection()
    generation_charts = selection.generation_charts(summary) if with_charts else {}
    selftest = store.load(results.selftest, SelfTest, "make selftest") if results.selftest.is_file() else None
    selftest_text = selftest_line(selftest, results.selftest_table.name)
    profiled = RunProfiles(results.model_profile("").parent.name, profiled_rows(summary, results, cli.warn))
    comparisons = compared_profiles(profiled.cases)
    summary_with_phases = with_phases(summary, {case.row.case_id for case in profiled.cases}.__contains__)
    layer_charts = selection.layer_charts(summary_with_phases, comparisons) if with_charts else []
    load_charts = selection.load_charts(summary) if with_charts else []
    charts = [
        *selected.charts,
        *layer_charts,
        *(load_chart.chart for load_chart in load_charts),
        *selection.all_charts(generation_charts),
    ]
    files = _chart_files(charts, place.charts, options.plain_charts)
    charts_folder = place.charts.relative_to(place.report.parent).as_posix()
    images = [f"![{chart.spec.title}]({charts_folder}/{chart.name}.png)" for chart in layer_charts]
    profile = _profile(summary_with_phases, profiled, comparisons, images)
    parts_by_case = {case.row.case_id: case.parts for case in profiled.cases if case.parts}
    what_if = what_if_section(summary_with_phases, parts_by_case)
    chart_links = selected.links(charts_folder)
    load = load_section(summary, selection.load_links(load_charts, charts_folder))
    generation = generation_section(summary, selection.images_of(generation_charts, charts_folder))
    details = document(
        summary, chart_links, _opening(summary, place), selected.note, selftest_text, profile, what_if, load, generation
    )
    texts = {place.details: details}
    if place.report != place.details:
        headings = re.findall(r"(?m)^## (.+)$", details)
        texts[place.report] = first_page(summary, place.details.name, headings, chart_links.get(None, ()))
    files |= {path: document_text(hints.typed(text, hint_context)).encode() for path, text in texts.items()}
    if with_charts and not has_plotly():
        cli.warn(f"{place.page.name} has no charts: plotly is not installed. Install it, then `make report`.")
    comparison = _comparison(full_summary, results)
    tables = _profile(summary_with_phases, profiled, comparisons)
    page_text = page(
        summary,
        selftest_text,
        with_charts and has_plotly(),
        tables,
        profiled,
        comparison,
        what_if,
        certainty_text(summary),
        summary_meta(full_summary),
    )
    files[place.page] = hints.typed_html(page_text, hint_context).encode()
    file_sums.save(results, place.stage, files)
    _say(summary, terminal_what_if(summary_with_phases, parts_by_case) if options.print else None)
    cli.say(f"Report: {place.report} and {place.page.name}")
    if options.profiles:
        cli.say(f"Next: {_next(summary, results)}")


def _next(summary: Summary, results: Results) -> str:
    """The command to type after a profile: it measures the profiled cases, or shows both."""
    for command, rows in (("bench", summary.rows), ("generate", summary.generations)):
        missing = sum(row.status != "measured" for row in rows)
        if missing:
            return f"`make {command}` measures {units.count(missing, 'profiled case')}."
    return f"`make report` shows these profiles in {results.report} too."


def _say(summary: Summary, what_if: str | None) -> None:
    """Print the answers; with what_if, a text, the tables too."""
    texts: list[str] = []
    if what_if is not None:
        if ranking.by_table(summary.rows):
            texts += (terminal_table(summary), what_if)
        texts += (terminal_loads(summary), terminal_generation(summary))
    if summary.rows or summary.loads or not summary.generations:
        texts.append(terminal_answer(summary, cli.after_export()))
    if said := paragraphs(texts):
        cli.say(f"{said}\n")


@dataclass(frozen=True)
class _Place:
    """Paths of a report. details: the same file as the report where both are one file."""

    stage: str
    report: Path
    details: Path
    page: Path
    charts: Path


def _opening(summary: Summary, place: _Place) -> str:
    """Heading and first paragraphs of the details."""
    if place.report == place.details:
        return section(summary.title, answer(summary), level=1)
    back = f"The answers are in [{place.report.name}]({place.report.name})."
    return section(f"{title(summary)}: details", back, level=1)


def _run_summary(results: Results) -> tuple[Summary, _Place]:
    """All measured cases."""
    summary = file_sums.load_summary(results.summary)
    return summary, _Place("report", results.report, results.report_details, results.report_page, results.charts)


def _chosen(options: argparse.Namespace, results: Results) -> tuple[Summary, _Place]:
    if options.profiles:
        return _profiles_summary(results)
    return _model_summary(results, options.model) if options.model else _run_summary(results)


def _model_summary(results: Results, name: str) -> tuple[Summary, _Place]:
    """The cases of one model. Raises UsageError where the run has no such model."""
    run = file_sums.ByModel(results.summary)
    if name not in run.models:
        known = ", ".join(run.models[:5]) + (", …" if len(run.models) > 5 else "")
        raise UsageError(f"{results.summary} has no model `{name}`.", f"It has: {known}.")
    summary = run.of(name)
    slug = slug_of(summary.rows[0])
    own = results.of_model(slug)
    return summary, _Place(f"report-{slug}", own.report, own.report_details, own.report_page, own.charts)


def _write_by_model(run: file_sums.ByModel, results: Results, no_charts: bool) -> None:
    """The report of a large run: a line a model, and a page that opens the rows of one."""
    file_sums.check(results, "plan", [results.command], "make plan")
    asked = hints.of_file(results.command)
    summary, with_plots = run.head, run.head.charts and not no_charts and has_plotly()
    parts = list(map_forked(lambda name: model_part(run.of(name), with_plots), run.models))
    compared = _comparison(summary, results)
    names = results.report_page.name, results.report_details.name
    texts = {
        results.report: models_report(summary, parts, *names),
        results.report_details: models_details(summary, parts),
    }
    files = {path: document_text(hints.typed(text, asked)).encode() for path, text in texts.items()}
    shown = models_page(summary, parts, compared, with_plots, summary_meta(summary))
    files[results.report_page] = hints.typed_html(shown, asked).encode()
    for path in (path for form in FORMS for path in results.charts.glob(f"*.{form}")):
        path.unlink()
    file_sums.save(results, "report", files)
    cli.say(how_sure_of_all(parts))
    cli.say(f"Report: {results.report} and {results.report_page.name}; `make report ONLY=<name>`: that of one model")


def _profiles_summary(results: Results) -> tuple[Summary, _Place]:
    """All profiled cases, measured or not. Raises MissingInputError where there is none."""
    plan = store.load(results.plan, Plan, "make plan")
    measured = file_sums.load_summary(results.summary) if results.summary.is_file() else None
    summary = only_profiled(plan, measured, results, utc_now())
    if not summary.rows and not summary.generations:
        raise MissingInputError("No case of this plan has a profile.", "make profile")
    return summary, _Place(
        "profile", file := results.profile_summary, file, results.profile_page, results.profile_charts
    )


def _profile(
    summary: Summary, profiled: RunProfiles, beside: Sequence[ComparedProfiles], images: Sequence[str] = ()
) -> list[DocumentBlock]:
    """The section on the profiles that belong to the summary's plan. images: of the first comparisons."""
    parts = {case.row.case_id: case.parts for case in profiled.cases if case.parts}
    shared = shared_conditions(summary)
    compared = [
        block
        for place, group in enumerate(beside)
        for block in side_by_side_section(
            group, conditions(summary, group.rows, shared), images[place] if place < len(images) else ""
        )
    ]
    compared += (block for group in not_compared(profiled.cases) for block in not_compared_section(group))
    return profile_section([case.model for case in profiled.cases], parts, profiled.folder, compared)


def _comparison(summary: Summary, results: Results) -> Comparison | None:
    """The result of `make compare` for this run; a comparison of an earlier run is left out with a message."""
    if not results.comparison.is_file():
        return None
    try:
        comparison = store.load(results.comparison, Comparison, "make compare BASELINE=<folder>")
    except FormatError as error:
        cli.warn(f"{error.problem} {error.hint}")
        return None
    if not is_about(comparison, summary):
        again = _compared_again(comparison)
        cli.warn(f"{results.comparison} is of another run: {results.report_page.name} leaves it out. `{again}`.")
        return None
    return comparison


def _compared_again(comparison: Comparison) -> str:
    """The command that compares with the same run, and by the same limits."""
    if comparison.design == "paired":
        return "make ab"
    given = {"BASELINE": comparison.baseline.path} if comparison.baseline else {}
    if limits := dict.fromkeys(judgement.threshold for judgement in comparison.judgements):
        given["THRESHOLD"] = ";".join(limits)
    words = [f"{name}={shlex.quote(value)}" for name, value in given.items()]
    return " ".join(["make compare", *words, *(["ACROSS=1"] if comparison.design == "across" else [])])


def _chart_files(charts: Sequence[Chart], folder: Path, plain: bool) -> dict[Path, bytes]:
    """The charts by their files; charts of an earlier report that this report does not show are removed."""
    drawn: dict[Path, bytes] = {}
    if charts:
        # Its import takes a third of the start of a report without charts.
        from harness.reporting.charts import matplotlib_drawer  # noqa: PLC0415

        def images(chart: Chart) -> list[bytes]:
            figure = matplotlib_drawer.draw(chart.spec, plain)
            return [matplotlib_drawer.image(figure, form) for form in FORMS]

        for chart, made in zip(charts, map_forked(images, charts), strict=True):
            drawn |= {folder / f"{chart.name}.{form}": content for form, content in zip(FORMS, made, strict=True)}
    for path in (path for form in FORMS for path in folder.glob(f"*.{form}")):
        if path not in drawn:
            path.unlink()
    return drawn


if __name__ == "__main__":
    cli.main(stage)
