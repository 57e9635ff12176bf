"""Summary → a report that can be read and quoted: report.md with charts, and report.html, one file to look around in.

reads   results/summary.json, comparison.json, profiles/<case_id>/{{model,parts}.json,*.trace.json}
writes  results/report.md, charts/*.png, results/report.html
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from harness.core import cli, store
from harness.core.errors import FormatError
from harness.core.layout import Results
from harness.core.schemas import Comparison, SelfTest, Summary
from harness.measure.alike import Alike, alike, not_compared
from harness.measure.profiled import profiled_rows
from harness.render import charts
from harness.render.conditions import conditions
from harness.render.document import document
from harness.render.further import further, planned_by
from harness.render.html.compared import is_of
from harness.render.html.embedded import can_draw
from harness.render.html.page import page
from harness.render.html.profile import Profiles
from harness.render.markdown import document_text
from harness.render.profile_section import profile_section
from harness.render.selftest import selftest_line
from harness.render.side_by_side import not_compared_section, side_by_side_section
from harness.render.tables import terminal_table
from harness.render.what_if import terminal_what_if, what_if_text


def stage(arguments: Sequence[str]) -> None:
    """Read, draw, write."""
    parser = cli.parser("harness.report", __doc__)
    cli.add_folders(parser, models=False)
    parser.add_argument("--no-charts", action="store_true", help="write the tables only")
    parser.add_argument("--print", action="store_true", help="print the main table and what would bring most too")
    options = parser.parse_args(arguments)
    results = Results(options.results)
    summary = store.load(results.summary, Summary, "make aggregate")
    drawing = summary.charts and not options.no_charts
    found = charts.select(summary) if drawing else charts.Selection()
    tested = store.load(results.selftest, SelfTest, "make selftest") if results.selftest.is_file() else None
    proof = selftest_line(tested, results.selftest_table.name)
    profiled = Profiles(results.model_profile("").parent.name, profiled_rows(summary, results, cli.warn))
    beside = alike(profiled.found)
    of_layers = charts.of_layers(summary, beside) if drawing else []
    _draw([*found.charts, *of_layers], results)
    images = [f"![{chart.alt}]({results.charts.name}/{chart.name}.png)" for chart in of_layers]
    profile = _profile(summary, profiled, beside, images)
    parts = {one.row.case_id: one.parts for one in profiled.found if one.parts}
    changes = what_if_text(summary, parts)
    more = further(summary, planned_by(results.command.read_text() if results.command.is_file() else None))
    text = document(summary, found.links(results.charts.name), found.note, proof, profile, changes, more)
    store.save_bytes(results.report, document_text(text).encode())
    if drawing and not can_draw():
        cli.warn(f"{results.report_page.name} has no charts: plotly is not installed. Install it, then `make report`.")
    compared = _comparison(summary, results)
    tables = _profile(summary, profiled, beside)
    shown = page(summary, proof, drawing and can_draw(), tables, profiled, compared, changes, more)
    store.save_bytes(results.report_page, shown.encode())
    if options.print:
        cli.say(terminal_table(summary))
        cli.say(f"\n{terminal_what_if(summary, parts)}\n")
        if more:
            cli.say(f"{more.replace('`', '')}\n")
    cli.say(f"Report: {results.report} and {results.report_page.name}")


def _profile(summary: Summary, profiled: Profiles, beside: Sequence[Alike], images: Sequence[str] = ()) -> str:
    """The section on the profiles that belong to the summary's plan. images: of the first comparisons."""
    parts = {one.row.case_id: one.parts for one in profiled.found if one.parts}
    compared = [
        side_by_side_section(found, conditions(summary, found.rows), images[place] if place < len(images) else "")
        for place, found in enumerate(beside)
    ]
    compared += map(not_compared_section, not_compared(profiled.found))
    return profile_section([one.model for one in profiled.found], parts, profiled.folder, compared)


def _comparison(summary: Summary, results: Results) -> Comparison | None:
    """What `make compare` found of this very run; what it found of an earlier one is said and left out."""
    if not results.comparison.is_file():
        return None
    try:
        found = store.load(results.comparison, Comparison, "make compare")
    except FormatError as error:
        cli.warn(f"{error.problem} {error.hint}")
        return None
    if not is_of(found, summary):
        cli.warn(f"{results.comparison} is of another run: {results.report_page.name} leaves it out. `make compare`.")
        return None
    return found


def _draw(found: Sequence[charts.Chart], results: Results) -> None:
    """Save the charts, and remove those of an earlier report that this one does not show."""
    names = {f"{chart.name}.png" for chart in found}
    for chart in found:
        buffer = io.BytesIO()
        charts.save(chart.draw(), buffer)
        store.save_bytes(results.charts / f"{chart.name}.png", buffer.getvalue())
    for path in results.charts.glob("*.png"):
        if path.name not in names:
            path.unlink()


if __name__ == "__main__":
    cli.main(stage)
