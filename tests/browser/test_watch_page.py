"""The page of `make watch WEB=1` in a browser: it follows the run, says when the watcher is gone, and everybody can use
it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.live.server import PageServer
from tests.fixtures.watch_pages import Source, served
from tests.fixtures.watching import EAGER, ONNX, answered, everything, half_done, record, running, state
from tests.synthetic_results import MINILM, case_of, failed, plan_of

DESKTOP, PHONE = (1280, 900), (375, 812)
HOSTILE = '<img src=x onerror="document.title=1"><script>alert(1)</script>'
Open = Callable[..., Any]


def _is_error(message: Any) -> bool:
    return message.type in ("error", "warning") and "Failed to load resource" not in message.text


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def server(source: Source) -> Iterator[PageServer]:
    with served(source) as result:
        yield result


@pytest.fixture
def opened(browser: Any, server: PageServer) -> Iterator[Open]:
    """Open the page; what it complained about or asked of others fails the test at its end."""
    contexts, wrong = [], []

    def show(size: tuple[int, int] = DESKTOP, scheme: str = "light") -> Any:
        contexts.append(browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: wrong.append(message.text) if _is_error(message) else None)
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        ours = (server.address, "data:,")
        tab.on("request", lambda request: None if request.url.startswith(ours) else wrong.append(request.url))
        tab.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        tab.goto(server.address)
        return tab

    yield show
    for context in contexts:
        context.close()
    assert wrong == []


def cells(tab: Any, backend: str) -> list[str]:
    return list(tab.locator("tbody tr", has_text=backend).first.locator("th, td").all_inner_texts())


def test_it_shows_the_state_and_follows_the_run(opened: Open, source: Source) -> None:
    tab = opened()
    tab.get_by_text("4 of 9", exact=True).first.wait_for()
    assert cells(tab, "torch-eager") == [
        *("minilm-l6", "torch-eager", "fp32", "1", "32", "", "2/3", "4.50", "4.00", "5.00", "partly", "")
    ]
    assert cells(tab, "onnxruntime")[-2:] == ["running", "not steady"]
    assert tab.locator("#left").inner_text() == "0:00:12"
    assert tab.title() == "4/9 running · Inferometer"
    source.found = state(everything())
    tab.get_by_text("Complete").wait_for()
    assert tab.locator("progress").evaluate("(bar) => bar.value / bar.max") == 1
    assert tab.locator("#now li").count() == 0
    assert [row.inner_text() for row in tab.locator(".badge").all()] == ["done"] * 3 + ["skipped"]


def test_without_a_plan_it_shows_the_command_and_goes_on_by_itself(opened: Open, source: Source) -> None:
    source.found = None
    tab = opened()
    tab.get_by_role("alert").get_by_text("There is no plan here yet").wait_for()
    source.found = half_done()
    tab.locator("tbody tr").first.wait_for()
    assert not tab.get_by_role("alert").is_visible()


def test_it_reports_that_the_watcher_is_gone_and_keeps_the_last_state(opened: Open, server: PageServer) -> None:
    tab = opened()
    tab.locator("tbody tr").first.wait_for()
    server.server_close()
    server.shutdown()
    tab.get_by_role("alert").get_by_text("The watcher no longer answers").wait_for()
    assert tab.locator("tbody tr").count() == 4


def test_names_and_errors_of_others_stay_text(opened: Open, source: Source) -> None:
    case = case_of(MINILM, "openvino", "fp32", 1).model_copy(update={"model": HOSTILE})
    plan = plan_of((MINILM,), (case,)).model_copy(update={"config": HOSTILE})
    answers = answered(failed(case, 1, error=HOSTILE), plan=plan)
    source.found = state(answers, [(running(case, 2, 1), True)], plan).model_copy(update={"notes": (HOSTILE,)})
    tab = opened()
    tab.locator("tbody tr").first.wait_for()
    assert tab.locator("tbody th").inner_text() == HOSTILE
    assert HOSTILE in tab.locator("#state").inner_text()
    assert tab.locator("img, body script").count() == 0
    assert tab.title() == "1/3 running · Inferometer"


def test_the_filter_works_by_keyboard_and_stays_while_the_run_goes_on(opened: Open, source: Source) -> None:
    tab = opened()
    tab.locator("tbody tr").first.wait_for()
    tab.keyboard.press("Tab")
    tab.keyboard.type("eager")
    assert tab.locator("#shown").inner_text() == "1 of 4 cases"
    source.found = state(answered(*(record(EAGER, number, 4.0) for number in (1, 2, 3))), [(running(ONNX, 1, 3), True)])
    tab.get_by_text("3/3").wait_for()
    assert tab.locator("tbody tr:visible").count() == 1
    assert tab.evaluate("document.activeElement.id") == "filter"


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(DESKTOP, "light", id="desktop-light"),
        pytest.param(PHONE, "dark", id="phone-dark"),
        pytest.param(DESKTOP, "dark", id="desktop-dark", marks=pytest.mark.slow),
        pytest.param(PHONE, "light", id="phone-light", marks=pytest.mark.slow),
    ],
)
def test_everybody_can_use_it_and_it_fits(opened: Open, size: tuple[int, int], scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is missing: pip install '.[browser]'"
    )
    tab = opened(size, scheme)
    tab.locator("tbody tr").first.wait_for()
    result = axe.Axe().run(tab).response["violations"]
    assert [(entry["id"], [node["html"] for node in entry["nodes"]]) for entry in result] == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= size[0]
