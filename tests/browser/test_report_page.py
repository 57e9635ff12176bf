"""report.html in a browser: it draws, sorts, filters and folds, loads nothing, and everybody can use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.core.schemas import Summary
from harness.render.html.page import page as page_of

DESKTOP, PHONE = (1280, 900), (375, 812)
Open = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, address: str) -> Iterator[Open]:
    """Open the page; whatever it complained about or asked the network for fails the test at its end."""
    contexts, wrong = [], []

    def show(size: tuple[int, int] = DESKTOP, scheme: str = "light", at: str = address, **options: Any) -> Any:
        viewport = {"width": size[0], "height": size[1]}
        contexts.append(browser.new_context(viewport=viewport, color_scheme=scheme, **options))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("request", lambda request: wrong.append(request.url) if not request.url.startswith(LOCAL) else None)
        tab.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        tab.goto(at)
        return tab

    yield show
    for context in contexts:
        context.close()
    assert wrong == []


LOCAL = ("file:", "data:", "blob:")


def unfold_everything(tab: Any) -> None:
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.evaluate("[...document.querySelectorAll('.badge')].slice(0, 6).forEach((one) => one.click())")


def draw_everything(tab: Any) -> int:
    plots = tab.locator(".plot")
    for number in range(plots.count()):
        plots.nth(number).scroll_into_view_if_needed()
        plots.nth(number).locator(".main-svg").first.wait_for()
    return int(plots.count())


def column(tab: Any, header: str) -> list[str]:
    """Visible cells of a column of the first table of cases, from the top."""
    return list(
        tab.evaluate(
            """(header) => {
              const table = document.querySelector("table.cases");
              const at = [...table.querySelectorAll("thead th")].findIndex((head) => head.dataset.name === header);
              return [...table.tBodies].filter((body) => !body.hidden).map((body) => body.rows[0].cells[at].innerText);
            }""",
            header,
        )
    )


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_chart_is_drawn_and_the_page_does_not_scroll_sideways(opened: Open, size: tuple[int, int]) -> None:
    tab = opened(size)
    assert draw_everything(tab) == 12
    unfold_everything(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") == size[0]


def test_a_header_sorts_up_and_down_with_absent_figures_last(opened: Open) -> None:
    tab = opened()
    head = tab.locator("table.cases").first.get_by_role("button", name="p99 ms")
    head.click()
    up = column(tab, "p99 ms")
    head.click()
    down = column(tab, "p99 ms")
    figures = [[float(text.replace(",", "")) for text in cells if not text.startswith("n<")] for cells in (up, down)]
    assert len(figures[0]) > 10
    assert figures == [sorted(figures[0]), sorted(figures[0], reverse=True)]
    assert any(text.startswith("n<") for text in up)
    assert all(text.startswith("n<") for text in up[len(figures[0]) :] + down[len(figures[0]) :])
    assert tab.locator("table.cases").first.locator("th[aria-sort=descending]").count() == 1


def test_a_grade_folds_out_its_reasons_by_keyboard(opened: Open) -> None:
    tab = opened()
    badge = tab.locator(".badge.grade-C").first
    reasons = tab.locator(f"[id='{badge.get_attribute('aria-controls')}']")
    assert not reasons.is_visible()
    badge.focus()
    tab.keyboard.press("Enter")
    assert badge.get_attribute("aria-expanded") == "true"
    assert "CI_NOT_MET" in reasons.inner_text()
    assert "Quieten the machine" in reasons.inner_text()
    tab.keyboard.press("Space")
    assert not reasons.is_visible()


def test_filters_hold_for_every_table_and_chart(opened: Open) -> None:
    tab = opened()
    draw_everything(tab)
    tab.get_by_text("Filter tables and charts").click()
    tab.locator("[data-filter=precision] span", has_text="fp32").click()
    tab.locator("[data-filter=batch] span", has_text="128").click()
    assert set(column(tab, "precision")) == {"fp16"}
    assert set(column(tab, "batch")) == {"1", "8", "32"}
    shown = tab.locator("#shown").inner_text()
    assert shown.endswith("of 24 cases")
    assert int(shown.split()[0]) == tab.locator("table.cases > tbody:not([hidden])").count()
    tags = "[...document.querySelectorAll('.plot')].flatMap((one) => one.data.flatMap((trace) => trace.customdata))"
    left = {(tag[1], tag[2]) for tag in tab.evaluate(tags) if tag[2]}
    assert left == {("fp16", "1"), ("fp16", "8"), ("fp16", "32")}
    tab.get_by_role("button", name="Show everything").click()
    assert tab.locator("#shown").inner_text() == "24 cases"
    assert tab.locator("table.cases > tbody:not([hidden])").count() == 24


def test_charts_show_values_under_the_pointer_and_zoom(opened: Open) -> None:
    tab = opened()
    place = tab.locator(".wide .plot").first
    place.scroll_into_view_if_needed()
    place.locator(".points path.point").first.hover(force=True)
    text = place.locator(".hoverlayer .hovertext").first.text_content()
    assert "batch" in text
    assert "grade" in text
    before = place.evaluate("(one) => one._fullLayout.yaxis.range")
    box = place.locator(".nsewdrag").first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.6, steps=5)
    tab.mouse.up()
    low, high = place.evaluate("(one) => one._fullLayout.yaxis.range")
    assert before[0] < low < high < before[1]


def test_the_button_changes_the_theme_of_page_and_charts(opened: Open) -> None:
    tab = opened()
    draw_everything(tab)
    colours = """() => [getComputedStyle(document.body).backgroundColor,
                        getComputedStyle(document.querySelector(".plot .xtick text")).fill]"""
    light = tab.evaluate(colours)
    tab.locator("#theme").click()
    assert tab.locator("#theme").inner_text() == "Theme: light"
    assert tab.evaluate(colours) == light
    tab.locator("#theme").click()
    dark = tab.evaluate(colours)
    assert all(ours != theirs for ours, theirs in zip(dark, light, strict=True))
    assert opened(scheme="dark").evaluate("getComputedStyle(document.body).backgroundColor") == dark[0]


def test_a_case_that_advice_rests_on_is_one_click_away(opened: Open) -> None:
    tab = opened()
    rests = tab.locator(".rests").first
    tab.locator(".fold").first.evaluate("(one) => { one.open = true; }")
    rests.locator("summary").click()
    link = rests.locator("a").first
    case = link.inner_text()
    link.click()
    tab.locator(f"[id='why-{case}']").wait_for(state="visible")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_barrier(opened: Open, size: tuple[int, int], scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is missing: pip install '.[browser]'"
    )
    tab = opened(size, scheme, bypass_csp=True)  # axe adds its own script, which the page's policy forbids
    unfold_everything(tab)
    draw_everything(tab)
    found = axe.Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()


def test_hostile_names_stay_text(opened: Open, one_model: Summary, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    rows = tuple(
        row.model_copy(update={"backend": row.backend + evil, "setting": evil, "model": row.model + evil})
        for row in one_model.rows
    )
    path = tmp_path / "report.html"
    path.write_text(page_of(one_model.model_copy(update={"rows": rows, "title": evil, "baseline_backend": evil})))
    tab = opened(at=path.as_uri())
    draw_everything(tab)
    assert tab.locator("h1").inner_text() == evil
    assert tab.locator("main img").count() == 0


def test_without_scripts_every_figure_and_reason_stands_there(opened: Open) -> None:
    tab = opened(java_script_enabled=False)
    assert tab.locator("table.cases > tbody").count() == 24
    assert tab.locator(".why").first.is_visible()
    assert not tab.locator("#theme").is_visible()
