"""report.html in a browser: it draws, sorts, filters and folds, loads nothing, and everybody can use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.core.schemas import Summary
from harness.reporting.html import by_model
from harness.reporting.html.page import page as page_of
from harness.reporting.html.page import summary_meta
from harness.reporting.html.profile_section import RunProfiles

DESKTOP, PHONE = (1280, 900), (375, 812)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def own_tab(browser: Any) -> Iterator[Any]:
    """A tab for one test after the other: its process has compiled the scripts of the page already."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def opened(browser: Any, own_tab: Any, address: str) -> Iterator[Open]:
    """Open the page as if for the first time; whatever it complained about or asked the network for fails the test at
    its end. Every call leaves what the one before it opened; with further options of a context it is another tab.
    """
    with _complaints() as hear:
        hear(own_tab)
        with _contexts(browser) as new_tab:

            def show(size: tuple[int, int] = DESKTOP, scheme: str = "light", at: str = address, **options: Any) -> Any:
                if options:
                    tab = new_tab(size, scheme, **options)
                    hear(tab)
                else:
                    tab = own_tab
                    _leave(tab)
                    tab.set_viewport_size(_viewport(size))
                    tab.emulate_media(media="null", color_scheme=scheme)
                tab.goto(at)
                return tab

            yield show
        _leave(own_tab)


def _leave(tab: Any) -> None:
    """Nothing that a test did is left: the address of the next page is the same, and so is its storage."""
    if tab.url != "about:blank":
        tab.evaluate("localStorage.clear()")
        tab.goto("about:blank")
    tab.mouse.move(0, 0)


@pytest.fixture(scope="module")
def seen(browser: Any, address: str) -> Iterator[Open]:
    """The page of each size, opened once for all tests that look at it and scroll, and change nothing else."""
    with _complaints() as hear, _contexts(browser) as new_tab:

        def show(size: tuple[int, int] = DESKTOP) -> Any:
            tab = new_tab(size, "light")
            hear(tab)
            tab.goto(address)
            return tab

        yield cache(show)


@contextmanager
def _contexts(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens tabs of a size and a colour scheme, each in a context of its own."""
    contexts = []

    def new_tab(size: tuple[int, int], scheme: str, **options: Any) -> Any:
        contexts.append(browser.new_context(viewport=_viewport(size), color_scheme=scheme, **options))
        return contexts[-1].new_page()

    yield new_tab
    for context in contexts:
        context.close()


def _viewport(size: tuple[int, int]) -> dict[str, int]:
    return {"width": size[0], "height": size[1]}


@contextmanager
def _complaints() -> Iterator[Callable[[Any], None]]:
    """Listens to tabs; what their pages complain about or ask the network for fails the test at the end."""
    wrong: list[str] = []
    listeners: dict[str, Callable[[Any], object]] = {
        "console": lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None,
        "pageerror": lambda error: wrong.append(str(error)),
        "request": lambda request: wrong.append(request.url) if not request.url.startswith(LOCAL) else None,
        "dialog": lambda dialog: (wrong.append(dialog.message), dialog.dismiss()),
    }
    heard: list[Any] = []

    def hear(tab: Any) -> None:
        heard.append(tab)
        for event, listener in listeners.items():
            tab.on(event, listener)

    yield hear
    for tab in heard:
        for event, listener in listeners.items():
            tab.remove_listener(event, listener)
    assert wrong == []


LOCAL = ("file:", "data:", "blob:", "about:")


def unfold_everything(tab: Any) -> None:
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.evaluate("[...document.querySelectorAll('.badge')].slice(0, 6).forEach((one) => one.click())")


def drawn(plot: Any) -> Any:
    """A chart, which the page draws when it comes into sight."""
    plot.scroll_into_view_if_needed()
    plot.locator(".main-svg").first.wait_for()
    return plot


def draw_everything(tab: Any) -> int:
    plots = tab.locator(".plot")
    for number in range(plots.count()):
        drawn(plots.nth(number))
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
def test_every_chart_is_drawn_sends_nothing_and_the_page_does_not_scroll_sideways(
    opened: Open, size: tuple[int, int]
) -> None:
    tab = opened(size)
    assert draw_everything(tab) == 12
    addresses = "[...document.querySelectorAll('.plot')].map((one) => one._context.plotlyServerURL)"
    assert tab.evaluate(addresses) == [""] * 12
    titles = tab.evaluate("[...document.querySelectorAll('.modebar-btn')].map((one) => one.dataset.title)")
    assert titles
    assert not [title for title in titles if "cloud" in title.lower() or "studio" in title.lower()]
    unfold_everything(tab)
    assert tab.evaluate("document.documentElement.scrollWidth") == size[0]


def test_a_header_sorts_up_and_down_with_absent_figures_last(opened: Open) -> None:
    tab = opened()
    head = tab.locator("table.cases").first.get_by_role("button", name="p99 ms")
    head.click()
    up = column(tab, "p99 ms")
    head.click()
    down = column(tab, "p99 ms")
    figures = [
        [float(text.replace(",", "")) for text in cells if not text.startswith("needs ")] for cells in (up, down)
    ]
    assert len(figures[0]) > 5
    assert figures == [sorted(figures[0]), sorted(figures[0], reverse=True)]
    assert any(text.startswith("needs ") for text in up)
    assert all(text.startswith("needs ") for text in up[len(figures[0]) :] + down[len(figures[0]) :])
    assert tab.locator("table.cases").first.locator("th[aria-sort=descending]").count() == 1


def test_the_name_of_a_row_stays_in_sight_when_its_figures_scroll(seen: Open) -> None:
    for size, kept in ((DESKTOP, ["grade", "backend", "precision", "batch"]), (PHONE, ["backend"])):
        tab = seen(size)
        scroll = tab.locator(".scroll:has(table.cases)").first
        scroll.scroll_into_view_if_needed()
        heads = scroll.locator("thead th")
        tab.locator("table.cases[data-keys]").first.wait_for(state="attached")
        names = heads.evaluate_all("(found) => found.map((one) => one.dataset.name)")
        places = [names.index(name) for name in kept]
        before = [heads.nth(at).bounding_box()["x"] for at in places]
        # On a phone precision and batch are below the backend, and make room for the first figures.
        doubled = [heads.nth(names.index(name)) for name in ("precision", "batch")]
        assert [entry.is_visible() for entry in doubled] == [size != PHONE] * 2
        boxes = [heads.nth(at).bounding_box() for at in range(5) if heads.nth(at).is_visible()]
        ends = [box["x"] + box["width"] for box in boxes[:-1]]
        assert ends == pytest.approx([box["x"] for box in boxes[1:]], abs=1), "no gap between two columns"
        scroll.evaluate("(one) => { one.scrollLeft = 260; }")
        cells = scroll.locator("tbody tr").first.locator("td")
        after = [heads.nth(at).bounding_box()["x"] for at in places]
        assert [cells.nth(at).bounding_box()["x"] for at in places] == pytest.approx(after, abs=1)
        edge = scroll.bounding_box()["x"]
        # On a phone the backend goes to the edge and stays there; elsewhere nothing of the key moves.
        assert after == pytest.approx([edge] if size == PHONE else before, abs=2)
        # The model is in the header, and on a phone the rest of the key below the backend.
        words = "(one, at) => getComputedStyle(one, at).content"
        assert "resnet50" in heads.nth(names.index("backend")).evaluate(words, "::before")
        below = cells.nth(names.index("backend")).evaluate(words, "::after")
        assert ("batch" in below) == (size == PHONE)


def test_on_a_phone_the_answer_of_each_model_is_read_without_scrolling_sideways(seen: Open) -> None:
    tab = seen(PHONE)
    scroll = tab.locator("#summary .scroll").first
    assert scroll.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    cells = scroll.locator("tbody tr").first.locator("td")
    label = "(one) => getComputedStyle(one, '::before').content"
    assert "fastest at all" in [json.loads(cells.nth(at).evaluate(label)) for at in range(1, cells.count())]
    assert not scroll.locator("thead").is_visible()


def test_speedup_and_accuracy_are_in_sight_and_on_a_phone_the_median(seen: Open) -> None:
    for size, last in (((1440, 900), "cosine"), (PHONE, "median ms")):
        tab = seen(size)
        scroll = tab.locator(".scroll:has(table.cases)").first
        scroll.scroll_into_view_if_needed()
        tab.locator("table.cases[data-keys]").first.wait_for(state="attached")
        box = scroll.locator("th", has_text=last).bounding_box()
        assert box["x"] + box["width"] <= scroll.bounding_box()["x"] + scroll.bounding_box()["width"] + 1


def test_on_a_phone_labels_keep_the_backend_and_a_legend_all_names(seen: Open) -> None:
    tab = seen(PHONE)
    dots = drawn(tab.locator(".plot[aria-label^='Latency by backend']").first)
    for label in dots.locator(".ytick text").all_text_contents():
        assert not label.startswith("…"), label
    lines = drawn(tab.locator(".plot[aria-label^='Throughput']").first)
    box, bars = lines.bounding_box(), lines.locator(".legend .scrollbar")
    assert all(bar.evaluate("(one) => one.getBBox().height") == 0 for bar in bars.all())
    names = lines.locator(".legend .traces")
    assert names.count() > 3
    assert all(name.bounding_box()["y"] < box["y"] + box["height"] for name in names.all())


def test_on_a_phone_a_table_of_words_is_read_without_scrolling_sideways(seen: Open) -> None:
    scroll = seen(PHONE).locator("#environment .scroll")
    scroll.scroll_into_view_if_needed()
    assert scroll.evaluate("(one) => one.scrollWidth <= one.clientWidth")


def test_the_first_figures_are_within_two_screens(seen: Open) -> None:
    for size in (DESKTOP, (1440, 900), (390, 844)):
        top = seen(size).evaluate("document.querySelector('#summary table tbody').getBoundingClientRect().top")
        comparison = seen(size).evaluate("document.querySelector('#comparison').getBoundingClientRect().height")
        assert top - comparison < 2 * size[1]


def test_shown_rows_and_charts_can_be_taken_away(opened: Open) -> None:
    tab = opened()
    tab.get_by_text("Filter tables and charts").click()
    tab.locator("[data-filter=batch] span", has_text="128").click()
    section = tab.locator("[id^=table-]").first
    with tab.expect_download() as download:
        section.locator("button.save", has_text="CSV").first.click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].startswith("model,grade,backend,precision,setting,batch")
    assert len(lines) == 1 + section.locator(".cases tbody:not([hidden])").count()
    assert {line.split(",")[0] for line in lines[1:]} == {"resnet50"}
    with tab.expect_download() as download:
        section.locator("button.svg").first.click()
    assert download.value.suggested_filename.endswith(".svg")
    picture = Path(download.value.path()).read_text()
    assert picture.startswith("<svg")
    assert "tensorrt fp16" in picture


def test_on_paper_every_chart_is_drawn_every_section_open_and_no_control_left(opened: Open) -> None:
    tab = opened()
    tab.locator("head script").wait_for(state="attached")
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator(".plot").count() == tab.locator(".plot:has(.main-svg)").count() == 12
    assert tab.locator("details:not([open]):not(.filters)").count() == 0
    assert tab.locator("details.profile [role=treegrid]").count() == 2
    for control in ("nav", ".filters", "#theme", "button.save", ".tools"):
        assert not any(entry.is_visible() for entry in tab.locator(control).all()), control
    widths = tab.locator(".plot").evaluate_all("(found) => found.map((one) => one._fullLayout.width)")
    assert max(widths) <= 660
    cut = "(found) => found.filter((one) => one.scrollHeight > one.clientHeight + 1).length"
    assert tab.locator(".scroll").evaluate_all(cut) == 0, "rows beyond its height would cover what follows"
    # A browser shrinks all pages of a document with one table that is wider than the paper (A4, margins of 12 mm).
    tab.set_viewport_size({"width": 703, "height": 1000})
    wide = "(found) => found.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.innerText)"
    assert tab.locator(".scroll").evaluate_all(wide) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 703
    # Chromium draws the head of a table again on the next page, but no button in it.
    assert not any(entry.is_visible() for entry in tab.locator("th button").all())
    unnamed = "!getComputedStyle(one, '::before').content.includes(one.dataset.name)"
    heads = tab.locator("table.sortable th[data-name]")
    assert heads.evaluate_all(f"(found) => found.filter((one) => {unnamed}).length") == 0
    tab.emulate_media(media="screen")
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.locator("details.profile[open]").count() == 0
    tab.wait_for_function("document.querySelector('.plot .main-svg')")
    too_wide = "(found) => found.filter((one) => one.clientWidth && one._fullLayout.width > one.clientWidth + 1).length"
    assert tab.locator(".plot:visible").evaluate_all(too_wide) == 0


def test_a_grade_folds_out_its_reasons_by_keyboard(opened: Open) -> None:
    tab = opened()
    badge = tab.locator(".badge.grade-C").first
    reasons = tab.locator(f"[id='{badge.get_attribute('aria-controls')}']")
    assert not reasons.is_visible()
    badge.focus()
    tab.keyboard.press("Enter")
    assert badge.get_attribute("aria-expanded") == "true"
    assert "UNCERTAIN" in reasons.inner_text()
    assert "Close other programs" in reasons.inner_text()
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
    left = {(tag[2], tag[3]) for tag in tab.evaluate(tags) if tag[3]}
    assert left == {("fp16", "1"), ("fp16", "8"), ("fp16", "32")}
    tab.get_by_role("button", name="Show everything").click()
    assert tab.locator("#shown").inner_text() == "24 cases"
    assert tab.locator("table.cases > tbody:not([hidden])").count() == 24


def test_charts_show_values_under_the_pointer_and_zoom(opened: Open) -> None:
    tab = opened()
    draw_everything(tab)
    place = tab.locator("[id^=table-] .wide .plot").first
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
    drawn(tab.locator(".plot").first)
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


def test_a_case_that_advice_is_based_on_is_one_click_away(opened: Open) -> None:
    tab = opened()
    rests = tab.locator(".rests").first
    tab.locator(".fold").first.evaluate("(one) => { one.open = true; }")
    rests.locator("summary").click()
    link = rests.locator("a").first
    case = link.inner_text()
    link.click()
    tab.locator(f"[id='why-{case}']").wait_for(state="visible")


@pytest.mark.parametrize(
    ("size", "scheme", "rows"),
    [
        pytest.param(DESKTOP, "light", "varied_address", id="desktop-light"),
        pytest.param(PHONE, "dark", "varied_address", id="phone-dark"),
        pytest.param(DESKTOP, "dark", "address", id="desktop-dark", marks=pytest.mark.slow),
        pytest.param(PHONE, "light", "address", id="phone-light", marks=pytest.mark.slow),
    ],
)
def test_axe_finds_no_barrier(
    opened: Open, size: tuple[int, int], scheme: str, rows: str, request: pytest.FixtureRequest
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is missing: pip install '.[dev]'")
    # axe adds its own script, which the page's policy forbids
    tab = opened(size, scheme, at=request.getfixturevalue(rows), bypass_csp=True)
    unfold_everything(tab)
    assert draw_everything(tab) == 12
    result = axe.Axe().run(tab)
    assert result.violations_count == 0, result.generate_report()


def rows_shown(tree: Any) -> list[str]:
    return [text.strip() for text in tree.locator("tbody tr:not([hidden]) .name").all_inner_texts()]


def profile(tab: Any, number: int = 0) -> Any:
    result = tab.locator("details.profile").nth(number)
    result.locator("summary").click()
    return result


def test_the_tree_of_a_profile_folds_by_mouse(opened: Open) -> None:
    tree = profile(opened()).locator("[role=treegrid]")
    assert len(rows_shown(tree)) == 37
    model = tree.locator("tbody tr").first
    assert model.get_attribute("aria-expanded") == "true"
    model.locator(".name").click()
    assert rows_shown(tree) == ["(model)"]
    assert model.get_attribute("aria-expanded") == "false"
    model.locator(".name").click()
    block = tree.locator("tbody tr", has_text="block.3").first
    block.locator(".name").click()
    assert len(rows_shown(tree)) == 35
    # What was folded stays so while its parent is folded and unfolded.
    model.locator(".name").click()
    model.locator(".name").click()
    assert len(rows_shown(tree)) == 35


def test_the_tree_is_walked_and_folded_by_keyboard(opened: Open) -> None:
    tab = opened()
    summary = tab.locator("details.profile summary").first
    summary.focus()
    tab.keyboard.press("Enter")
    tree = tab.locator("[role=treegrid]").first
    tree.locator("tbody tr").first.focus()
    focused = "document.activeElement.querySelector('.name').innerText.trim()"
    walk = {"ArrowDown": "block.0", "ArrowRight": "attention", "ArrowLeft": "block.0", "End": "mlp", "Home": "(model)"}
    for key, expected in walk.items():
        tab.keyboard.press(key)
        assert tab.evaluate(focused) == expected
    tab.keyboard.press("ArrowLeft")
    assert rows_shown(tree) == ["(model)"]
    for key, lines in (("ArrowRight", 37), ("Enter", 1), ("Space", 37)):
        tab.keyboard.press(key)
        assert len(rows_shown(tree)) == lines
    assert tree.locator("tbody tr[tabindex='0']").count() == 1


def test_the_tree_is_filtered_cut_by_depth_and_ordered(opened: Open) -> None:
    result = profile(opened())
    tree, status = result.locator("[role=treegrid]"), result.locator(".layers-part [role=status]")
    box = result.locator(".layers-part [type=search]")
    box.fill("Block.1.")
    assert rows_shown(tree) == ["(model)", "block.1", "attention", "mlp"]
    assert status.inner_text() == "2 of 37 layers"
    box.fill("no such layer")
    assert rows_shown(tree) == []
    box.fill("")
    assert len(rows_shown(tree)) == 37
    result.locator(".legend button", has_text="mlp").click()
    assert box.input_value() == "mlp"
    assert rows_shown(tree)[:4] == ["(model)", "block.0", "mlp", "block.1"]
    result.locator(".legend button", has_text="mlp").click()
    result.locator("[name=depth]").select_option("2")
    assert rows_shown(tree) == ["(model)", *(f"block.{number}" for number in range(12))]


def test_a_graph_is_ordered_by_time_within_each_module(opened: Open) -> None:
    result = profile(opened(), 1)
    tree = result.locator("[role=treegrid]")
    as_it_ran = rows_shown(tree)
    assert as_it_ran[:2] == ["encoder.layer.0", "mlp"]
    result.locator("[name=order]").select_option("longest")
    assert set(rows_shown(tree)) == set(as_it_ran)
    result.locator("[name=order]").select_option("run")
    assert rows_shown(tree) == as_it_ran


def test_a_row_leads_to_its_profile(opened: Open, profiles: RunProfiles) -> None:
    tab = opened()
    case = profiles.cases[0].row.case_id
    tab.locator(f"[aria-controls='why-{case}']").click()
    tab.get_by_role("link", name="where its time goes").first.click()
    tab.locator(f"[id='profile-{case}'] [role=treegrid]").wait_for(state="visible")


def test_operators_of_a_profile_sort_and_filter(opened: Open) -> None:
    result = profile(opened()).locator(".operators-part")
    result.get_by_role("button", name="self CPU").click()
    assert result.locator("th[aria-sort=ascending]").count() == 1
    result.locator("[type=search]").fill("nothing like it")
    assert result.locator("tbody tr:not([hidden])").count() == 0
    assert result.locator("[role=status]").inner_text() == "0 of 1 operators"


def test_the_filters_hold_for_cards_and_models(opened: Open, published: Summary, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page_of(published))
    tab = opened(at=path.as_uri())
    models = list(dict.fromkeys(row.model for row in published.rows))
    cards = tab.locator(".card:not([hidden])")
    assert cards.count() == len(models) > 1
    tab.get_by_text("Filter tables and charts").click()
    tab.locator(f"[data-filter=model] input[value='{models[0]}']").uncheck()
    assert cards.count() == len(models) - 1
    assert tab.locator("nav a:not([hidden])", has_text=models[0]).count() == 0
    assert tab.locator(f"section[data-model='{models[0]}']:not([hidden])").count() == 0
    tab.locator("[data-filter=batch] input[value='1']").uncheck()
    assert cards.count() == tab.locator(".card:not([hidden]):not(.won)").count()


def test_the_filters_of_the_page_hold_for_profiles(opened: Open) -> None:
    tab = opened()
    cases = tab.locator("details.profile:not([hidden])")
    assert cases.count() == 2
    tab.get_by_text("Filter tables and charts").click()
    tab.locator("[data-filter=batch] input[value='1']").uncheck()
    assert cases.count() == 0


def test_a_comparison_has_a_verdict_a_row_and_a_chart(opened: Open) -> None:
    tab = opened()
    section = tab.locator("#comparison")
    section.locator(".plot").scroll_into_view_if_needed()
    section.locator(".plot .main-svg").first.wait_for()
    assert section.locator(".verdict.v-slower.fails").count() > 0
    section.get_by_role("button", name="change").click()
    changes = section.locator("table.sortable").first.locator("tbody tr td:nth-child(5)").all_inner_texts()
    figures = [float(text.rstrip("%")) for text in changes]
    assert figures == sorted(figures)


def test_the_navigation_leads_to_a_section_below_content_that_was_never_laid_out(opened: Open) -> None:
    tab = opened()
    tab.get_by_role("navigation").get_by_role("link", name="Comparison").click()
    title = tab.locator("#comparison-title")
    title.wait_for(state="visible")
    assert 0 <= title.bounding_box()["y"] < 200


def test_on_a_phone_the_link_of_the_visible_section_is_in_sight(seen: Open) -> None:
    tab = seen(PHONE)
    for anchor in ("environment", "summary"):
        tab.evaluate("(anchor) => document.getElementById(anchor).scrollIntoView()", anchor)
        current = tab.locator(f"nav a[href='#{anchor}'][aria-current]")
        current.wait_for()
        box = current.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE[0]


def test_rows_have_whole_pixels_so_that_the_lines_of_cells_that_stick_meet_the_others(seen: Open) -> None:
    heights = seen().evaluate(
        "[...document.querySelectorAll('.cases tr')].map((row) => row.getBoundingClientRect().height)"
    )
    assert len(heights) > 10
    assert [height for height in heights if height != round(height)] == []


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


def test_without_scripts_every_figure_and_reason_is_there(opened: Open) -> None:
    tab = opened(java_script_enabled=False)
    assert tab.locator("table.cases > tbody").count() == 24
    assert tab.locator(".why").first.is_visible()
    assert not tab.locator("#theme").is_visible()
    profile(tab)
    assert tab.locator("details.profile .legend").first.is_visible()
    assert tab.get_by_role("link", name="parts.json").first.is_visible()
    assert not tab.locator(".layers-part").first.is_visible()


@pytest.fixture(scope="session")
def large(published: Summary, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a large run with the models of the published one."""
    models = list(dict.fromkeys(row.model for row in published.rows))
    rows = [tuple(row for row in published.rows if row.model == model) for model in models]
    parts = [by_model.model_part(published.model_copy(update={"rows": ours}), True) for ours in rows]
    path = tmp_path_factory.mktemp("large") / "report.html"
    head = published.model_copy(update={"rows": ()})
    path.write_text(by_model.models_page(head, parts, None, True, summary_meta(published)))
    return path.as_uri()


def test_a_large_page_opens_one_model_at_a_time(opened: Open, large: str, published: Summary) -> None:
    tab = opened(at=large)
    assert tab.locator(".cases").count() == 0
    models = list(dict.fromkeys(row.model for row in published.rows))
    links = tab.locator("#all-models tbody a")
    assert links.count() == len(models)
    for place in (0, len(models) - 1):
        links.nth(place).click()
        tab.wait_for_selector(f'#opened section[data-model="{models[place]}"] .cases')
        assert {entry.get_attribute("data-model") for entry in tab.locator("#opened section").all()} == {models[place]}
    tab.locator("#opened .plot").first.scroll_into_view_if_needed()
    tab.wait_for_selector("#opened .plot .main-svg")
    head = tab.locator("#opened .cases thead th button").nth(1)
    head.click()
    assert tab.locator('#opened .cases th[aria-sort="ascending"]').count() == 1
    tab.fill("#find-model", models[0])
    assert tab.locator("#all-models tbody tr:not([hidden])").count() < len(models)
