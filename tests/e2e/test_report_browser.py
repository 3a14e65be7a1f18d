"""The report in a browser, from disk: filter, sort, links, no JavaScript, hostile text."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from reports import html
from tests import mutant_run
from tests.browser import Browser
from tests.unit.test_html_report import hostile_run

CONTRACTS = ("commit.checkpoint_steps", "commit.state_scatter", "verify.greedy_tree", "verify.tree_sampling")
ROWS = "Array.from(document.querySelectorAll('#divergence-table tbody tr'))"
VISIBLE = f"{ROWS}.filter((row) => row.getClientRects().length)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    run = mutant_run.write(folder / "run", *CONTRACTS, most=6)
    return html.write([run], folder / "report").parent


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    return html.write([hostile_run(folder / "run")], folder / "report").parent


def choose(browser: Browser, name: str, value: str) -> None:
    browser.run(
        f"{{ const field = document.querySelector('form.filters [name={name}]'); field.value = {value!r};"
        "field.dispatchEvent(new Event('input', {bubbles: true})); }"
    )


def test_filters_hide_the_rows_that_do_not_fit(browser, report):
    browser.open(report / "index.html")
    every = browser.run(f"{VISIBLE}.length")
    choose(browser, "contract", "verify.greedy_tree")
    shown = browser.run(f"{VISIBLE}.map((row) => row.dataset.contract)")
    assert 0 < len(shown) < every
    assert set(shown) == {"verify.greedy_tree"}
    assert browser.run("document.querySelector('form.filters output').textContent") == f"{len(shown)} of {every}"
    choose(browser, "contract", "")
    choose(browser, "text", "greedy_tree CHILDREN")
    texts = browser.run(f"{VISIBLE}.map((row) => row.textContent.toLowerCase())")
    assert texts
    assert all("greedy_tree" in t and "children" in t for t in texts)
    choose(browser, "text", "no such words anywhere")
    assert browser.run(f"{VISIBLE}.length") == 0


def test_a_column_sorts_both_ways(browser, report):
    browser.open(report / "index.html")
    click = "document.querySelectorAll('#divergence-table th button')[0].click()"
    values = f"{ROWS}.map((row) => Number(row.cells[0].dataset.value))"
    sort = "document.querySelector('#divergence-table th').getAttribute('aria-sort')"
    browser.run(click)
    up = browser.run(values)
    assert up == sorted(up)
    assert len(set(up)) > 1
    assert browser.run(sort) == "ascending"
    browser.run(click)
    assert browser.run(values) == sorted(up, reverse=True)
    assert browser.run(sort) == "descending"


def test_text_columns_sort_as_text(browser, report):
    browser.open(report / "index.html")
    browser.run("document.querySelectorAll('#divergence-table th button')[2].click()")
    names = browser.run(f"{ROWS}.map((row) => row.cells[2].textContent.trim())")
    assert names == browser.run(f"{names!r}.sort((a, b) => a.localeCompare(b))")


def test_links_lead_to_a_page_and_back(browser, report):
    browser.open(report / "index.html")
    first = browser.run(f"{ROWS}[0].querySelector('a').getAttribute('href')")
    browser.open(report / first)
    assert browser.complaints() == []
    assert browser.run("document.querySelector('svg.picture, .story') !== null")
    browser.open(report / "divergences" / browser.run("document.querySelector('a[rel=next]').getAttribute('href')"))
    assert browser.run("document.querySelector('nav').textContent").split("of")[0].split()[-1] == "2"
    back = browser.run("document.querySelector('nav a').getAttribute('href')")
    assert (report / "divergences" / back).resolve() == (report / "index.html").resolve()


def test_style_and_script_are_let_through_by_the_content_policy(browser, report):
    browser.open(report / "index.html")
    assert browser.complaints() == []
    assert browser.run("document.querySelectorAll('#divergence-table th button').length") == 6
    assert browser.run("getComputedStyle(document.querySelector('.badge')).borderRadius") == "10px"


def test_without_javascript_everything_is_there(browser, report):
    browser.open(report / "index.html", scripts=False)
    assert browser.run(f"{VISIBLE}.length") == browser.run(f"{ROWS}.length") > 0
    assert browser.run("document.querySelector('form.filters').getClientRects().length") == 0
    assert browser.run("document.querySelectorAll('button').length") == 0
    first = browser.run(f"{ROWS}[0].querySelector('a').getAttribute('href')")
    browser.open(report / first, scripts=False)
    assert browser.run("document.querySelector('.command').textContent").strip().startswith("specoracle replay")
    assert browser.run("document.querySelector('#trace tr.wrong') !== null")


def test_hostile_text_is_never_run(browser, hostile):
    for page in sorted(hostile.rglob("*.html")):
        browser.open(page)
        assert browser.complaints() == [], page
        assert browser.run("document.title !== 'owned'"), page
        assert browser.run("document.querySelectorAll('script, img').length") == 1, page  # the report's own script
        assert browser.run("document.body.textContent.includes('<script>')"), page


def test_what_is_smuggled_into_a_page_does_not_run(browser, report, tmp_path):
    """The content policy holds by itself, should escaping ever fail."""
    text = (report / "index.html").read_text()
    attack = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    page = report / "smuggled.html"
    page.write_text(text.replace("<main>", f"<main>{attack}"))
    browser.open(page)
    complaints = browser.complaints()
    page.unlink()
    assert browser.run("document.title") != "owned"
    assert any("Content Security Policy" in c for c in complaints)


def test_a_narrow_window_does_not_scroll_sideways(browser, report):
    pages = [report / "index.html", *sorted((report / "divergences").iterdir())[:4]]
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
    try:
        for page in pages:
            browser.open(page)
            assert browser.run("document.documentElement.scrollWidth") <= 390, page
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")


def test_it_prints_all_of_it(browser, report):
    browser.open(report / "index.html")
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.run("getComputedStyle(document.querySelector('form.filters')).display") == "none"
        wide = "Array.from(document.querySelectorAll('.wide')).map((e) => getComputedStyle(e).overflowX)"
        assert set(browser.run(wide)) == {"visible"}
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
    pdf = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000
