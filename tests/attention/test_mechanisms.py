"""Pages of docs/mechanisms: sections, coverage of the names, size of the examples."""

import re
from pathlib import Path

import pytest

from attention.alignments import ALIGNMENTS
from attention.kernels import KERNELS
from attention.scores import SCORES
from attention.spatial import NON_LOCAL

FOLDER = Path(__file__).parents[2] / "docs" / "mechanisms"
TEXTS = {path.stem: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.md"))}
PAGES = [name for name in TEXTS if name != "index"]
SECTIONS = [
    "Equation",
    "Code",
    "Figure",
    "Results",
    "What differs from the paper",
    "Traps",
    "Command",
    "Swap it",
]


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_the_same_sections(page):
    assert re.findall(r"^## (.*)", TEXTS[page], re.MULTILINE) == SECTIONS
    figure = TEXTS[page].partition("## Figure")[2].partition("## Results")[0]
    assert "](../figures/" in figure


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_a_short_example_and_is_in_the_index(page):
    blocks = re.findall(r"^```python\n(.*?)^```", TEXTS[page], re.DOTALL | re.MULTILINE)
    assert [len(block.splitlines()) <= 12 for block in blocks] == [True]
    assert f"]({page}.md) |" in TEXTS["index"]


@pytest.mark.parametrize(
    ("names", "pages"),
    [
        (SCORES, ["scores"]),
        (ALIGNMENTS, ["masked-softmax", "local", "hard"]),
        (KERNELS, ["kernel-regression"]),
        (NON_LOCAL, ["non-local"]),
    ],
)
def test_every_name_has_a_page(names, pages):
    code = re.findall(r"`([^`\n]+)`", "".join(TEXTS[page] for page in pages))
    index = re.findall(r"`([^`\n]+)`", TEXTS["index"])
    for name in names:
        assert name in index
        # A page shows the name itself or the function that it stands for.
        assert {name, names[name].__name__} & set(code), name
