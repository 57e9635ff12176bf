"""Summary → a report that can be read and quoted: report.md and charts.

reads   results/summary.json
writes  results/report.md, charts/*.png
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from harness.core import cli, store
from harness.core.layout import Results
from harness.core.schemas import SelfTest, Summary
from harness.render import charts
from harness.render.document import document
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
    found = charts.select(summary) if summary.charts and not options.no_charts else charts.Selection()
    _draw(found, results)
    tested = store.load(results.selftest, SelfTest, "make selftest") if results.selftest.is_file() else None
    proof = selftest_line(tested, results.selftest_table.name)
    text = document(summary, found.links(results.charts.name), found.note, proof)
    store.save_bytes(results.report, text.encode())
    if options.print:
        cli.say(terminal_table(summary))
    cli.say(f"Report: {results.report}")


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
