"""The browser, one for all modules of a worker."""

import shutil

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
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
