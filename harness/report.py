"""Summary → a report that can be read and quoted: report.md with charts, and report.html, one file to look around in.

reads   results/summary.json, profiles/<case_id>/{model,parts}.json
writes  results/report.md, charts/*.png, results/report.html
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from harness.core import cli, store
from harness.core.errors import FormatError
from harness.core.layout import Results
from harness.core.schemas import SelfTest, Summary
from harness.core.schemas.profile import ModelProfile
from harness.core.schemas.profile_parts import PartsProfile
from harness.measure.achieved import achieved
from harness.render import charts
from harness.render.document import document
from harness.render.html.page import can_draw, page
from harness.render.profile_section import profile_section
from harness.render.selftest import selftest_line
from harness.render.tables import terminal_table


def stage(arguments: Sequence[str]) -> None:
    """Read, draw, write."""
    parser = cli.parser("harness.report", __doc__)
    cli.add_folders(parser, models=False)
    parser.add_argument("--no-charts", action="store_true", help="write the tables only")
    parser.add_argument("--print", action="store_true", help="print the main table too")
    options = parser.parse_args(arguments)
    results = Results(options.results)
    summary = store.load(results.summary, Summary, "make aggregate")
    drawing = summary.charts and not options.no_charts
    found = charts.select(summary) if drawing else charts.Selection()
    _draw(found, results)
    tested = store.load(results.selftest, SelfTest, "make selftest") if results.selftest.is_file() else None
    proof = selftest_line(tested, results.selftest_table.name)
    profile = _profile(summary, results)
    text = document(summary, found.links(results.charts.name), found.note, proof, profile)
    store.save_bytes(results.report, text.encode())
    if drawing and not can_draw():
        cli.warn(f"{results.report_page.name} has no charts: plotly is not installed. Install it, then `make report`.")
    store.save_bytes(results.report_page, page(summary, proof, drawing and can_draw(), profile).encode())
    if options.print:
        cli.say(terminal_table(summary))
    cli.say(f"Report: {results.report} and {results.report_page.name}")


def _profile(summary: Summary, results: Results) -> str:
    """The section on the profiles that belong to the summary's plan; one that cannot be read is warned of."""
    profiles: list[ModelProfile] = []
    parts: dict[str, PartsProfile] = {}
    for row in summary.rows:
        model, other = results.model_profile(row.case_id), results.parts_profile(row.case_id)
        try:
            if model.is_file():
                found = store.load(model, ModelProfile, "make profile")
                # Of the rows as they are now: they may have been measured after the profile was taken.
                now = achieved(row, found.flops_per_batch, summary.roof)
                profiles.append(found.model_copy(update={"achieved": now}))
            if other.is_file():
                parts[row.case_id] = store.load(other, PartsProfile, "make profile")
        except FormatError as error:
            cli.warn(f"{error.problem} {error.hint}")
    belonging = [found for found in profiles if found.plan_id == summary.plan_id]
    return profile_section(belonging, parts, results.model_profile("").parent.name)


def _draw(found: charts.Selection, results: Results) -> None:
    """Save the charts, and remove those of an earlier report that this one does not show."""
    names = {f"{chart.name}.png" for chart in found.charts}
    for chart in found.charts:
        buffer = io.BytesIO()
        charts.save(chart.draw(), buffer)
        store.save_bytes(results.charts / f"{chart.name}.png", buffer.getvalue())
    for path in results.charts.glob("*.png"):
        if path.name not in names:
            path.unlink()


if __name__ == "__main__":
    cli.main(stage)
