"""Pages with attention that tests know, and the browser that opens them."""

import base64
import json
import re
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest

from explorer import page
from explorer.examples import Example, Examples
from figures.attention import AttentionMap, Places
from training.task import Prediction

HOSTILE = "</script><img src=x onerror=alert(1)>"


def attention(queries, keys, heads=1, seed=0, **fields):
    """An attention map with random weights."""
    logits = np.random.default_rng(seed).normal(size=(heads, len(queries), len(keys)))
    weights = np.exp(3 * logits)
    weights /= weights.sum(-1, keepdims=True)
    return AttentionMap("cross", weights, queries, keys, **fields)


def predicted(maps, text="an answer"):
    """A prediction with attention maps."""
    return Prediction(text, -1.0, tuple(maps))


def content(maps, count=1, text="an answer"):
    """Examples of one run, each with the same attention maps."""
    answer = predicted(maps, text)
    example = Example("a line", "python predict.py --workdir=runs/a", [[answer]])
    return Examples([example] * count, ["a"], ["100"])


def side_by_side(*maps):
    """Examples of two runs, each with an attention map, or without any."""
    answers = [[predicted([x] if x else [])] for x in maps]
    return Examples([Example("a line", "", answers)], ["a", "b"], ["1"])


def points():
    """A pointer network's map of a tour of three points."""
    corners = np.array([[np.nan] * 2, [0.1, 0.2], [0.8, 0.5], [0.3, 0.9]])
    places = Places(np.tile(corners, 2), chosen=np.array([1, 2, 3, 0]), polygon=4)
    keys = ["end", "1", "2", "3"]
    return attention([*keys[1:], "end"], keys, places=places)


def glimpses():
    """A path of three boxes on an image, the last two partly outside of it."""
    boxes = [[0.3, 0.4, 0.6, 0.7], [-0.1, -0.2, 0.2, 0.1], [0.8, 0.9, 1.1, 1.2]]
    image = np.zeros((20, 20, 3), np.uint8)
    places = Places(np.array(boxes), image, chosen=np.arange(3))
    steps, titles = [f"glimpse {t}, answer {t}" for t in (1, 2, 3)], ("step", "glimpse")
    return AttentionMap(
        "glimpse", np.eye(3)[None], steps, steps, titles=titles, places=places
    )


def packed(given, title="A title"):
    """The first answer on the page of examples, and the arrays; see `unpack`."""
    header, array = unpack(page.html(given, title))
    return header["examples"][0]["results"][0][0], array


def tokens(count, prefix="token"):
    """Labels of a sequence."""
    return [f"{prefix} {i}" for i in range(count)]


def cpu_clock(page):
    """A function that returns the CPU time of the page's main thread from now on.

    In seconds; other load of the machine has no part in it.
    """
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds():
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(x["value"] for x in metrics if x["name"] == "ThreadTime")

    return seconds


def check_axe(page, *schemes):
    """Asserts that axe finds no violation on a page, in each colour scheme."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        response = axe.run(page).response
        assert len(response["passes"]) > 20
        assert not [(x["id"], x["nodes"]) for x in response["violations"]]


def exported(page):
    """The drawing of the first panel as SVG, by a download."""
    with page.expect_download() as download:
        page.click("#svg")
    return ElementTree.parse(download.value.path()).getroot()


def unpack(html):
    """The header of a page and its arrays, read as `data.js` reads them."""
    text = re.search(r'<script id="data"[^>]*>([^<]*)</script>', html).group(1)
    data = zlib.decompress(base64.b64decode(text))
    size = int.from_bytes(data[:4], "little")
    arrays = data[4 + size :]

    def array(place, dtype):
        return np.frombuffer(arrays, dtype, count=place[1], offset=place[0])

    return json.loads(data[4 : 4 + size]), array
