"""The explorer's page in a frame of a notebook."""

import html
import re

import pytest
from pages import HOSTILE, attention, predicted, tokens, unpack
from smoke import run

from base.errors import UserError
from explorer import notebook
from training import trained


def inner(frame):
    """The page in a frame, as a browser reads the attribute."""
    return html.unescape(re.search(r'srcdoc="([^"]*)"', frame._repr_html_()).group(1))


def test_the_frame_holds_the_page_and_nothing_leaves_the_attribute():
    maps = [attention([HOSTILE, '"><b>'], ["k", "l"])]
    frame = notebook.show([predicted(maps, HOSTILE), predicted(maps)], ["a", '"b"'])
    header, _ = unpack(inner(frame))
    assert [each["title"] for each in header["examples"]] == ["a", '"b"']
    assert inner(frame) == frame.page
    outer = re.sub(r'srcdoc="[^"]*"', "", frame._repr_html_())
    assert re.fullmatch(r"<iframe [^<>]*></iframe>", outer)
    assert "allow-same-origin" not in outer


def test_the_predictions_of_a_trained_run_are_in_the_frame():
    lines = ["the first line", "the second line"]
    predictions = trained.load(run("bahdanau_nmt")).predict(lines)
    header, _ = unpack(inner(notebook.show(predictions)))
    results = [each["results"][0][0] for each in header["examples"]]
    assert [each["text"] for each in results] == [each.text for each in predictions]
    assert all(each["maps"] for each in results)


def test_the_frame_opens_in_a_notebook_and_works(browser, tmp_path):
    maps = [attention(tokens(3), tokens(4), heads=2)]
    frame = notebook.show([predicted(maps), predicted(maps)], ["one", "two"])
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><title>notebook</title>{frame._repr_html_()}")
    opened = browser.new_page(viewport={"width": 1000, "height": 900})
    errors = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda x: x.type == "error" and errors.append(x.text))
    opened.goto(f"file://{path}")
    content = opened.frame_locator("iframe")
    content.locator("body[data-ready]").wait_for()
    content.locator("#example").select_option("1")
    content.locator(".panel canvas").first.click()
    opened.keyboard.press("ArrowDown")
    assert content.locator("#live").inner_text().startswith("query")
    assert not content.locator("#command").is_visible()
    with opened.expect_download() as download:
        content.locator("#svg").click()
    assert download.value.suggested_filename == "prediction_2_cross.svg"
    opened.close()
    assert not errors


def test_predictions_that_cannot_be_shown_are_refused():
    given = predicted([attention(tokens(3), tokens(4))])
    with pytest.raises(UserError, match="a list"):
        notebook.show(given)
    with pytest.raises(UserError, match="at least one"):
        notebook.show([])
    with pytest.raises(UserError, match="lines has 2: must be 1"):
        notebook.show([given], ["a", "b"])
