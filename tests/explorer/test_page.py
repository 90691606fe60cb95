"""The data and the file of the explorer's page."""

import re

import in_process
import numpy as np
import pytest
from details import weights_of
from pages import HOSTILE, attention, content, packed, points, tokens, unpack
from smoke import run

from base.errors import UserError
from explorer import examples, page
from training.task import Prediction


def test_weights_have_8_bits_and_the_numbers_of_tables_are_exact():
    given = attention(tokens(5), tokens(11, "key"), heads=3)
    answer, array = packed(content([given]))
    (each,) = answer["maps"]
    assert each["shape"] == [3, 5, 11]
    coarse = array(each["weights"], "<u1").reshape(3, 5, 11) / 255
    np.testing.assert_allclose(coarse, given.weights, atol=0.5 / 255 + 1e-6)
    keys = array(each["top_keys"], "<u2").reshape(3, 5, -1)
    top = array(each["top_weights"], "<f4").reshape(3, 5, -1)
    ordered = -np.sort(-given.weights, -1)[..., : top.shape[-1]]
    np.testing.assert_allclose(top, ordered, rtol=1e-6)
    np.testing.assert_array_equal(keys[..., 0], given.weights.argmax(-1))
    entropy = -(given.weights * np.log(given.weights)).sum(-1)
    np.testing.assert_allclose(
        array(each["entropy"], "<f4").reshape(3, 5), entropy, rtol=1e-5
    )


def test_the_entropy_of_a_weight_of_1_is_0():
    given = attention(["a"], ["b", "c"])._replace(weights=np.array([[[1.0, 0.0]]]))
    answer, array = packed(content([given]))
    assert array(answer["maps"][0]["entropy"], "<f4") == 0


def test_a_page_holds_equal_arrays_once():
    given = attention(tokens(40), tokens(40))
    single, many = (len(page.pack(content([given], n), "")) for n in (1, 50))
    assert many - single < 49 * 40 * 40


def test_places_and_the_chosen_keys_are_on_the_page():
    answer, array = packed(content([points()]))
    (each,) = answer["maps"]
    np.testing.assert_array_equal(array(each["chosen"], "<i4"), [1, 2, 3, 0])
    boxes = array(each["places"], "<f4").reshape(4, 4)
    assert np.isnan(boxes[0]).all() and boxes[1, 1] == np.float32(0.2)


@pytest.mark.parametrize(
    ("text", "caption", "heading"),
    [("6", "6, label: 5", "6, label: 5"), ("6", "alignment", "6"), ("", "a digit", "")],
)
def test_an_answer_is_shown_with_its_label_once(text, caption, heading):
    given = content([points()])
    given.examples[0].answers[0][0] = Prediction(text, 0.0, caption=caption)
    assert packed(given)[0]["text"] == heading


def test_a_text_cannot_end_the_script():
    given = attention([HOSTILE], [HOSTILE, "b"])
    html = page.html(content([given], text=HOSTILE), HOSTILE)
    plain = page.html(content([attention(["a"], ["a", "b"])]), "")
    assert HOSTILE not in html
    assert html.count("<script") == plain.count("<script") == 2
    assert html.count("</script>") == 2


def test_the_page_names_no_other_address():
    html = page.html(content([points()]), "")
    addresses = set(re.findall(r"https?://[^\"'\s<]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, which is not read
    assert "default-src 'none'" in html


def test_a_page_that_browsers_cannot_open_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "LIMIT", 0.001)
    with pytest.raises(UserError, match="fewer examples"):
        page.write(tmp_path / "page.html", content([points()]), "")
    assert not list(tmp_path.iterdir())


def test_explore_writes_a_page_of_lines_and_of_a_split(tmp_path):
    workdir, out = run("bahdanau_nmt"), tmp_path / "page.html"
    lines = tmp_path / "lines.txt"
    lines.write_text("the first line\nthe second line\n")
    flags = f"--workdir={workdir}", f"--input={lines}", f"--out={out}"
    result = in_process.call("explore.py", *flags)
    assert result.status == 0, result.errors
    header, _ = unpack(out.read_text())
    assert [each["title"] for each in header["examples"]] == [
        "the first line",
        "the second line",
    ]
    content = examples.of_split([workdir], "all", "test", 2)
    assert len(content.steps) == len(examples.checkpoints_of(workdir, "all")) > 1
    assert all(len(x) == len(content.steps) for x in content.examples[0].answers)


TITLES = {  # of the first example
    "memory_network_qa": r"test 1: Where is [A-Z][a-z]+\?",
    "lstmn_sentences": r"test 1: [a-z ]+ \| [a-z ]+",
    "ff_attention": "test 1",
    "las_digits": "test 1",
    "sagan": "test 1",
    "snail_fewshot": "test 1",
    "vqa_scenes": r"test 1: [a-z ]+\?",
    "pointer_tsp": r"test 1: [\d., ]+",
}
OF_PLACES = ["las_digits", "sagan", "snail_fewshot", "vqa_scenes", "pointer_tsp"]
# The default tests train the others in any case.
SYSTEMS = [
    pytest.param(name, marks=[pytest.mark.slow] * (name == "pointer_tsp"))
    for name in TITLES
]


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_gets_a_page_without_code_of_its_own(name):
    given = examples.of_split([run(name)], None, "test", 2, scores=True)
    assert re.fullmatch(TITLES[name], given.examples[0].title)
    for each in given.examples[0].answers[0][0].attention:
        again = weights_of(each.details)
        np.testing.assert_allclose(again, each.weights, atol=1e-5)
    maps = packed(given)[0]["maps"]
    assert maps
    assert all(len(x["queries"]) == x["shape"][1] for x in maps)
    assert all(len(x["keys"]) == x["shape"][2] for x in maps)
    if name in OF_PLACES:
        assert all(x["places"][1] == 4 * x["shape"][2] for x in maps)
