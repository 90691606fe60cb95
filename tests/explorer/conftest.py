"""The browser, one for a module: its event loop must not run in other tests."""

import shutil

import pytest
from pages import cpu_clock

from explorer import page as explorer_page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser():
    """Chromium of the system, without a window."""
    playwright = pytest.importorskip("playwright.sync_api")
    if BROWSER is None:
        pytest.skip("needs chromium: `apt-get install chromium` installs it")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens examples, or packed ones, as a page.

    Fails on an error or a request at the end.
    """
    pages, errors, requests = [], [], []

    def open_page(given, fragment="", **options):
        path = tmp_path / "page.html"
        if isinstance(given, bytes):
            path.write_text(explorer_page.html_of(given))
        else:
            explorer_page.write(path, given, "A title")
        page = browser.new_page(viewport={"width": 1200, "height": 900}, **options)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda x: x.type == "error" and errors.append(x.text))
        page.on("request", lambda request: requests.append(request.url))
        page.cpu_seconds = cpu_clock(page)
        page.goto(f"file://{path}#{fragment}")
        page.wait_for_selector("body[data-ready]")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert not errors
    assert all(x.startswith(("file:", "data:", "blob:")) for x in requests)
    assert sum(x.startswith("file:") for x in requests) == len(pages)
