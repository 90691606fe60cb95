"""Scores and memories, which the page computes again from the details of records."""

from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np
import pytest
from pages import attention, check_axe, content, exported, packed, predicted, tokens
from smoke import run

from attention import memory
from attention.declaration import ScoreParts
from attention.scores import cosine_scores
from base.records import MemoryDetails, ScoreDetails, SearchTree
from explorer import examples
from explorer.examples import Examples

HEADS, QUERIES, KEYS, UNITS = 2, 3, 5, 7


def scored(kind):
    """An attention map with the details of its scores; the last key is masked."""
    rng = np.random.default_rng(0)

    def draw(*shape):
        return rng.normal(size=shape).astype(np.float32)

    bias = draw(HEADS, QUERIES, KEYS)
    bias[..., -1] = -np.inf
    details = ScoreDetails(
        query=draw(HEADS, QUERIES, UNITS),
        key=draw(HEADS, KEYS, UNITS),
        scale=np.array([1.0, 0.5], np.float32),
        bias=bias,
    )
    if kind != "product":
        details = details.replace(v=draw(HEADS, UNITS), activation=kind)
    if kind == "tanh":
        details = details.replace(location=draw(HEADS, QUERIES, KEYS, UNITS))
    parts = ScoreParts(
        details.query,
        details.key,
        v=details.v,
        location=details.location,
        activation=details.activation,
    )
    scores = details.scale[:, None, None] * np.asarray(parts.terms().sum(-1)) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    given = attention(tokens(QUERIES), tokens(KEYS, "key"), heads=HEADS)
    return given._replace(weights=weights, details=details)


def own_keys():
    """The same with the first query of each head as a query with keys of its own."""
    given = scored("tanh")
    d = given.details
    details = d.replace(
        query=d.query[:, :1],
        bias=d.bias[:, :1],
        location=d.location[:, :1],
        own_keys=True,
    )
    maps = attention(tokens(HEADS), tokens(KEYS, "key"))
    weights = given.weights[:, :1].swapaxes(0, 1)
    return maps._replace(weights=weights, details=details)


@pytest.mark.parametrize("kind", ["product", "tanh", "relu", "own keys"])
def test_the_page_computes_each_weight_again(opened, kind):
    given = own_keys() if kind == "own keys" else scored(kind)
    page = opened(content([given]), "head=0")
    weights = page.evaluate(
        """([heads, queries]) => {
            const { attention } = document.querySelector('.panel').look;
            const range = (n) => [...Array(n).keys()];
            return range(heads).map((h) => range(queries).map(
                (q) => scoresOf(attention, h, q).softmax));
        }""",
        given.weights.shape[:2],
    )
    np.testing.assert_allclose(weights, given.weights, atol=1e-5)


def test_the_score_of_the_cell_is_read_in_numbers(opened):
    given = scored("product")
    page = opened(content([given]), "head=1&query=2&key=3")
    d = given.details
    total = float(d.query[1, 2] @ d.key[1, 3])
    text = page.inner_text(".terms")
    assert f"sum of the terms\t{total:.3f}" in text
    assert f"score\t{0.5 * total + d.bias[1, 2, 3]:.3f}" in text
    assert f"softmax\t{given.weights[1, 2, 3]:.4f}" in text
    page.locator(".panel canvas").first.focus()
    page.keyboard.press("ArrowRight")
    assert "mask\tmasked" in page.inner_text(".terms")


def test_a_mixture_of_heads_shows_the_head_with_the_largest_weight(opened):
    given = scored("product")
    page = opened(content([given]), "head=mean&query=0&key=0")
    best = given.weights[:, 0, 0].argmax()
    assert page.evaluate("headOf(document.querySelector('.panel').look)") == best


def test_the_drawing_of_a_score_is_exported_beside_the_map(opened):
    page = opened(content([scored("tanh")]), "head=0")
    saved = []
    page.on("download", lambda download: saved.append(download))
    page.click("#svg")
    while len(saved) < 2:
        page.wait_for_timeout(50)
    names = [each.suggested_filename for each in saved]
    assert names == ["a_1_cross.svg", "a_1_cross_score.svg"]
    root = ElementTree.parse(saved[1].path()).getroot()
    rects = root.findall("{http://www.w3.org/2000/svg}rect")
    # Five strips or rows of units, two rows of keys with the masked key's weight of 0.
    assert len(rects) == 1 + 6 * UNITS + 8 + (KEYS - 1) + KEYS


def remembered():
    """Read and write weights of an NTM with details, and the memory in each step."""
    rng = np.random.default_rng(0)
    readers, writers, steps, slots, width = 2, 3, 5, 7, 11
    heads = readers + writers
    details = MemoryDetails(
        weights=np.zeros((heads, steps, slots), np.float32),
        key=rng.normal(size=(heads, steps, width)).astype(np.float32),
        strength=5 * rng.random((heads, steps), np.float32),
        gate=rng.random((heads, steps), np.float32),
        shifts=rng.dirichlet(np.ones(5), (heads, steps)).astype(np.float32),
        sharpening=1 + rng.random((heads, steps), np.float32),
        erase=rng.random((writers, steps, width), np.float32),
        add=rng.normal(size=(writers, steps, width)).astype(np.float32),
        start=rng.normal(size=(slots, width)).astype(np.float32),
        focus=np.eye(slots, dtype=np.float32)[:heads],
        inputs=rng.random((steps, 4), np.float32),
        outputs=rng.normal(size=(steps, 3)).astype(np.float32),
    )
    contents, reads, weights = [jnp.asarray(details.start)], [], details.focus
    for t in range(steps):
        names = "key", "strength", "gate", "shifts", "sharpening"
        parameters = {name: getattr(details, name)[:, t] for name in names}
        weights = memory.address(contents[-1], weights, **parameters)
        details.weights[:, t] = weights
        reads.append(memory.read(weights[:readers], contents[-1]))
        erase, add = details.erase[:, t], details.add[:, t]
        contents.append(memory.write(contents[-1], weights[readers:], erase, add))
    given = attention(tokens(steps), tokens(slots, "slot"), heads=readers)
    given = given._replace(weights=details.weights[:readers], details=details)
    return given, np.array(contents), np.array(reads)


def test_the_page_computes_the_memory_and_the_reads_again(opened):
    given, contents, reads = remembered()
    page = opened(content([given]))
    assert page.evaluate("window.explorer.view") == "memory"
    actual = page.evaluate(
        """() => {
            const { attention } = document.querySelector('.panel').look;
            const { contents, reads } = memories(attention), list = (x) => [...x];
            return [contents.map(list), reads.map((heads) => heads.map(list))];
        }"""
    )
    np.testing.assert_allclose(
        np.array(actual[0]).reshape(contents.shape), contents, atol=1e-5
    )
    np.testing.assert_allclose(actual[1], reads, atol=1e-5)


def test_the_page_computes_the_stages_of_the_addressing(opened):
    given, contents, _ = remembered()
    page, d = opened(content([given]), "query=1&key=3"), given.details
    actual = page.evaluate(
        """([heads, steps]) => {
            const { attention } = document.querySelector('.panel').look;
            const range = (n) => [...Array(n).keys()];
            return range(heads).map((h) => range(steps).map(
                (t) => stagesOf(attention, h, t).map(([, values]) => values)));
        }""",
        d.weights.shape[:2],
    )
    previous = np.concatenate([d.focus[:, None], d.weights[:, :-1]], 1)
    for t in range(d.weights.shape[1]):
        scores, *stages = np.array(actual)[:, t].swapaxes(0, 1)
        cosine = cosine_scores(d.key[:, t], contents[t], jnp.ones(()))
        content_ = memory.content_weights(d.key[:, t], contents[t], d.strength[:, t])
        gated = memory.interpolate(content_, previous[:, t], d.gate[:, t])
        expected = content_, gated, memory.shift(gated, d.shifts[:, t])
        np.testing.assert_allclose(scores, cosine * d.strength[:, t, None], atol=1e-5)
        np.testing.assert_allclose(stages, [*expected, d.weights[:, t]], atol=1e-5)
    lines = page.inner_text(".terms").splitlines()
    assert lines[:2] == [
        "Slot slot 3",
        "stage\tread 1\tread 2\twrite 1\twrite 2\twrite 3",
    ]
    weights = [f"{x:.3f}" for x in d.weights[:, 1, 3]]
    assert lines[-1].split("\t") == ["sharpened", *weights]


@pytest.mark.parametrize("fragment", ["head=0", "head=0&view=memory"])
def test_a_view_that_a_moment_lacks_comes_back(opened, fragment):
    last = content([remembered()[0]]).examples[0]
    plain = last.answers[0][0].attention[0]._replace(details=None, rounded=True)
    answers = [[predicted([plain]), last.answers[0][0]]]
    given = Examples([last._replace(answers=answers)], ["a"], ["1", "2"])
    page = opened(given, fragment)
    note = page.get_by_text("memory: not stored for this step")
    for step, view in ("0", "map"), ("1", "memory"), ("0", "map"):
        page.locator("#step").fill(step)
        assert page.evaluate("explorer.view") == page.input_value("#view") == view
        assert note.count() == (view == "map")
        marked = page.locator(".row td:nth-child(2)").all_inner_texts()
        assert {x.startswith("≈ ") for x in marked[:-1]} == {view == "map"}


def test_one_clock_moves_all_parts_of_the_memory(opened):
    page = opened(content([remembered()[0]]), "query=1")
    canvas = page.locator(".panel canvas").first
    before = canvas.screenshot()
    canvas.focus()
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#live").startswith("query 3")
    assert canvas.screenshot() != before
    assert "step 3 of 5" in exported(page).itertext()


def searched():
    """Examples with a search: "a" and "b", then "a c" and "a d"; "b" and "a c" end."""
    none = -np.inf
    tree = SearchTree(
        tokens=np.array([["a", "b"], ["c", "d"], ["x", "x"]], object),
        parents=np.array([[0, 0], [0, 0], [0, 0]]),
        log_probs=np.array([[-0.1, -2.0], [-0.3, -1.5], [none, none]]),
        ended=np.array([[none, none], [none, -1.1], [-0.2, none]]),
    )
    given = content([attention(["a", "c", "</s>"], tokens(KEYS))])
    (example,) = given.examples
    answer = example.answers[0][0]._replace(tree=tree)
    return given._replace(examples=[example._replace(answers=[[answer]])])


def test_the_tree_of_a_search_fades_what_no_finished_hypothesis_continues(opened):
    page = opened(searched(), "view=search&query=1")
    nodes = page.evaluate(
        """() => nodesOf(document.querySelector('.panel').look.tree).map(
            (x) => [x.step, x.token, Boolean(x.isAlive), Boolean(x.isBest)])"""
    )
    assert sorted(nodes) == [
        [0, "<s>", True, True],
        [1, "a", True, True],
        [1, "b", True, False],
        [2, "</s>", True, False],
        [2, "c", True, True],
        [2, "d", False, False],
        [3, "</s>", True, True],
    ]
    rows = page.inner_text(".beam").splitlines()[1:]
    assert rows == ["-0.300\ta c", "-1.500\ta d", "-1.100\tb </s>"]
    texts = [*exported(page).itertext()]
    assert texts.count("</s>") == 2 and "-0.20" in texts


def test_arrow_keys_move_along_a_search_and_keep_the_step_in_view(opened):
    page = opened(searched(), "view=search&query=0")
    page.set_viewport_size({"width": 320, "height": 800})
    expected = "step 1, on the way to the answer: a (-0.10), one of 2"
    assert page.inner_text("#live") == expected
    page.locator(".panel canvas").first.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "step 3, on the way to the answer: a c </s>" in page.inner_text("#live")
    left, right, width, end = page.evaluate("""() => {
        const box = document.querySelector(".view");
        const { look } = document.querySelector(".panel");
        const end = box.scrollLeft + box.clientWidth;
        return [box.scrollLeft, end, ...searchTree.edges(look)];
    }""")
    assert left <= width and end <= right and left > 0


@pytest.mark.parametrize(
    ("make", "view"),
    [
        (lambda: content([scored("tanh")]), "map"),
        (lambda: content([remembered()[0]]), "memory"),
        (searched, "search"),
    ],
)
def test_axe_finds_no_violation(opened, make, view):
    page = opened(make(), f"view={view}")
    assert page.evaluate("window.explorer.view") == view
    check_axe(page, "light", "dark")


def test_scores_and_the_search_of_a_run_are_on_its_page():
    workdir = run("bahdanau_nmt")
    (plain, _), (full, array) = (
        packed(examples.of_split([workdir], None, "test", 1, scores=x))
        for x in (False, True)
    )
    assert "details" not in plain["maps"][0]
    details = full["maps"][0]["details"]
    assert details["type"] == "ScoreDetails" and details["activation"] == "tanh"
    heads, queries, _ = details["query"]["shape"]
    assert (heads, queries) == tuple(full["maps"][0]["shape"][:2])
    assert array(details["scale"]["values"], "<f4") == 1
    ended = [x for row in plain["tree"]["ended"] for x in row if x is not None]
    assert max(ended) == pytest.approx(plain["score"], abs=1e-3)
