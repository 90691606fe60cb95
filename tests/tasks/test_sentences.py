"""Entailment with exact labels, classification of sentences, and fusion of pairs."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from translators import descend

from base.errors import FieldError, UserError
from base.records import AttentionRecord, records_of
from configs import lstmn_sentences
from models.sentences import Reading, SentenceClassifier
from tasks.sentences import data as sentences
from tasks.sentences import entailment
from tasks.sentences.entailment import Sentence, pairs, parse, split_of
from tasks.sentences.task import SentenceClassification
from training import evaluate
from training.task import NoOptions, create

B, S, T, W = 2, 5, 7, 19


def test_a_sentence_is_parsed_back_from_its_text():
    fields = ("all", "some", "no", "not all"), (False, True), ("dogs", "women")
    for values in itertools.product(*fields, (False, True), ("move", "sing")):
        assert parse(str(Sentence(*values))) == Sentence(*values)


def worlds():
    """Random worlds, each a list of (leaf noun, small, verbs that are done)."""
    rng = np.random.default_rng(0)
    leaves = ("boys", "girls", "men", "women", "poodles", "beagles", "tabbies", "lions")
    verbs = ("walk", "swim", "sing", "whisper")
    for _ in range(300):
        likely = rng.random()
        yield [
            (leaf, rng.random() < 0.5, {v for v in verbs if rng.random() < likely})
            for leaf in leaves
            for _ in range(rng.integers(1, 3))
        ]


def is_true(sentence, world):
    nouns, verbs = entailment._NOUNS, entailment._VERBS
    subjects = [
        bool(does & set(verbs[sentence.verb].split())) != sentence.negated
        for leaf, small, does in world
        if leaf in nouns[sentence.noun].split() and (small or not sentence.small)
    ]
    return {
        "all": all(subjects),
        "some": any(subjects),
        "no": not any(subjects),
        "not all": not all(subjects),
    }[sentence.quantifier]


def test_no_world_is_against_a_label():
    drawn, possible = pairs("train", 120), list(worlds())
    for name, premise, hypothesis in drawn:
        outcomes = {
            is_true(parse(hypothesis), world)
            for world in possible
            if is_true(parse(premise), world)
        }
        if name == "entailment":
            assert False not in outcomes, (premise, hypothesis)
        if name == "contradiction":
            assert True not in outcomes, (premise, hypothesis)


def test_labels_are_balanced_and_combinations_held_out():
    keys = {}
    for split in ("train", "validation", "test"):
        drawn = pairs(split, 150)
        names = [name for name, *_ in drawn]
        assert {names.count(name) for name in entailment.LABELS} == {50}
        keys[split] = set()
        for _, *texts in drawn:
            premise, hypothesis = map(parse, texts)
            assert split_of(premise, hypothesis) == split
            keys[split].add(
                (premise.quantifier, hypothesis.quantifier)
                + (premise.noun, hypothesis.noun)
            )
    for keys_of_split, other in itertools.combinations(keys.values(), 2):
        assert not keys_of_split & other


def batch(paired=True):
    rng = np.random.default_rng(0)
    first = rng.integers(4, W, (B, S))
    first[1, 3:] = 0
    fields = {"first": first}
    if paired:
        fields["second"] = rng.integers(4, W, (B, T))
        fields["second"][1, 4:] = 0
    return {name: jnp.asarray(x, jnp.int32) for name, x in fields.items()}


def model(**fields):
    sizes = {"embedding": 3, "hidden": 11, "score_hidden": 5, "classifier": 13}
    return SentenceClassifier(W, 3, memory=T, dropout=0.0, **sizes | fields)


def apply(classifier, inputs, params=None):
    if params is None:
        params = jax.jit(
            lambda: classifier.init(jax.random.key(0), inputs, train=False)
        )
        params = params()["params"]
    logits, sown = jax.jit(
        lambda: classifier.apply(
            {"params": params}, inputs, train=False, mutable=["attention"]
        )
    )()
    return params, logits, records_of(sown, AttentionRecord)


@pytest.mark.parametrize(
    ("encoder", "fusion"), [("lstmn", "deep"), ("lstm", "shallow"), ("mean", "none")]
)
def test_padding_changes_nothing_and_has_no_weight(encoder, fusion):
    classifier, inputs = model(encoder=encoder, fusion=fusion), batch()
    params, logits, records = apply(classifier, inputs)
    padded = {name: jnp.pad(x, ((0, 0), (0, 3))) for name, x in inputs.items()}
    _, expected, _ = apply(classifier, padded, params)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    cross = [record.weights for record in records if record.kind == "cross"]
    assert len(cross) == (fusion != "none")
    for weights in cross:  # of the second sentence, on the first
        assert weights.shape == (B, 1, T, S)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        np.testing.assert_array_equal(weights[1, ..., 3:], 0)


def test_shallow_fusion_equals_its_equations_in_a_loop(draw):
    lengths, others = [S, 3], [T, 4]
    h, gamma = draw(B, T, 11), draw(B, S, 11)
    second = Reading(h, jnp.arange(T) < jnp.array(others)[:, None], [])
    first = Reading(gamma, jnp.arange(S) < jnp.array(lengths)[:, None], [])
    classifier = model(encoder="lstm", fusion="shallow")

    @jax.jit
    def created():
        key = jax.random.key(0)
        return classifier.init_with_output(key, second, first, method="fuse_shallow")

    fused, variables = created()
    params = variables["params"]
    fuse, inter = (jax.tree.map(np.asarray, params[x]) for x in ("fuse", "inter"))
    for b in range(B):
        states = []
        for t in range(others[b]):
            hidden = [
                np.tanh(h[b, t] @ inter["w_query"] + gamma[b, j] @ inter["w_key"])
                for j in range(lengths[b])
            ]
            p = np.exp([z @ inter["v"] for z in hidden])
            context = sum(w * g for w, g in zip(p / p.sum(), gamma[b], strict=False))
            pair = np.concatenate([h[b, t], context])
            states.append(np.tanh(pair @ fuse["kernel"] + fuse["bias"]))
        np.testing.assert_allclose(fused[b, : others[b]], states, atol=1e-5)


def test_it_overfits_one_batch():
    classifier, inputs = model(encoder="lstm", fusion="shallow"), batch()
    params, *_ = apply(classifier, inputs)
    labels = jnp.array([2, 0])

    def loss(params):
        logits = classifier.apply({"params": params}, inputs, train=True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    losses = descend(loss, params, 0.02, 200)
    assert losses[0] > 0.5 and losses[-1] < 0.05


def test_a_single_sentence_needs_no_pair():
    logits, variables = jax.eval_shape(
        lambda rng: model().init_with_output(rng, batch(paired=False), train=False),
        jax.random.key(0),
    )
    assert logits.shape == (B, 3) and "inter" not in variables["params"]


@pytest.mark.parametrize(
    ("encoder", "fusion", "accepted"),
    [("lstm", "deep", "lstmn, as"), ("mean", "shallow", "lstmn or lstm, as")],
)
def test_fusion_needs_the_states_of_its_encoder(encoder, fusion, accepted):
    with pytest.raises(
        FieldError, match=f"^encoder is '{encoder}': must be {accepted}"
    ):
        apply(model(encoder=encoder, fusion=fusion), batch())


SNLI = {"gold_label": "neutral", "sentence1": "A man.", "sentence2": "He sings!"}


def test_lines_have_a_label_or_the_format_of_snli():
    assert sentences.parse("good\tA film.", "x") == ("good", "a film .")
    assert sentences.parse("-\tA man.\tHe sings!", "x")[1:] == ("a man .", "he sings !")
    assert sentences.parse(json.dumps(SNLI), "x") == (
        "neutral",
        "a man .",
        "he sings !",
    )


TABS = ["good film", "\tfilm", "good\t ", "a\tb\t", "a\tb\tc\td"]
BLANKS = [json.dumps(SNLI | {field: " "}) for field in SNLI]


@pytest.mark.parametrize("line", [*TABS, *BLANKS, '{"a": 1}', "{"])
def test_another_line_is_an_error(line):
    with pytest.raises(UserError, match="^x: must be"):
        sentences.parse(line, "x")


def test_own_sentences_are_read_and_pairs_without_agreement_left_out(tmp_path, capsys):
    lines = [json.dumps(SNLI | {"gold_label": x}) for x in ["a", "b", "-"] * 10]
    lines += ["a\tfilm\t ", "\tfilm\tfilm", "a\t\tfilm"]
    (tmp_path / "train").write_text("\n".join(lines))
    files = {"train": str(tmp_path / "train"), "validation": "", "test": ""}
    splits = sentences.read("files", files, 1000)
    assert "train: 3 lines empty on one side" in capsys.readouterr().err
    assert [len(splits[x]) for x in ("train", "validation", "test")] == [17, 2, 1]
    folder = tmp_path / "assets"
    prepared = sentences.create(splits, folder, vocab_size=100)
    loaded = sentences.load(folder)
    assert loaded.labels == prepared.labels == ("a", "b") and loaded.paired
    assert loaded.words.names == prepared.words.names
    (tmp_path / "test").write_text("good\tone\n")
    with pytest.raises(UserError, match="sentences and pairs: must be the same$"):
        sentences.read("files", files | {"test": str(tmp_path / "test")}, 1000)


def test_a_sorted_file_has_all_labels_in_each_split(tmp_path):
    lines = [f"{label}\ttext {i}\n" for label in "+-" for i in range(100)]
    (tmp_path / "train").write_text("".join(lines))
    files = {"train": str(tmp_path / "train"), "validation": "", "test": ""}
    splits = sentences.read("files", files, 1000)
    for part in splits.values():
        assert {label for label, _ in part} == {"+", "-"}
    texts = [example for part in splits.values() for example in part]
    assert len(set(texts)) == len(texts) == 200


def test_examples_over_the_maximum_are_left_out_and_reported(tmp_path, capsys):
    (tmp_path / "train").write_text("".join(f"{i % 2}\ttext {i}\n" for i in range(23)))
    config = lstmn_sentences.get_config("smoke")
    config.data.source, config.data.files.train = "files", str(tmp_path / "train")
    for examples, line in (
        (19, ""),
        (7, "data: 12 training examples over config.data.examples=7 left out\n"),
    ):
        config.data.examples = examples
        splits = SentenceClassification.prepare(config, tmp_path, training=True).splits
        assert capsys.readouterr().err == line
        counts = [len(splits[x]) for x in ("train", "validation", "test")]
        assert counts == [examples, 2, 2]


def test_an_epoch_has_each_example_once(tmp_path):
    splits = {s: [("a", "x y"), ("b", "y"), ("a", "z")] for s in ("train", "test")}
    splits["validation"] = splits["test"]
    prepared = sentences.create(splits, tmp_path, vocab_size=10)
    source = sentences.batches(prepared, 4, batch_size=2, seed=0)
    texts = np.concatenate([source[i]["first"] for i in range(3)])
    for epoch in np.split(texts, 2):
        assert len(np.unique(epoch, axis=0)) == 3


def test_logistic_regression_separates_words_that_tell_the_label(tmp_path):
    rng = np.random.default_rng(0)

    def drawn(count):
        for i in range(count):
            noise = " ".join(f"w{x}" for x in rng.integers(0, 9, 5))
            yield ("good", f"{noise} fine") if i % 2 else ("bad", f"dull {noise}")

    splits = {"train": [*drawn(80)], "validation": [*drawn(20)], "test": [*drawn(20)]}
    prepared = sentences.create(splits, tmp_path, vocab_size=30)
    assert sentences.tfidf_accuracy(prepared, "test") == 100
    shuffled = splits | {"test": [("good", text) for _, text in splits["test"]]}
    assert sentences.tfidf_accuracy(prepared._replace(splits=shuffled), "test") == 50


def test_a_pair_in_predictions_has_a_tab(tmp_path):
    config = lstmn_sentences.get_config("smoke")
    task = create(config, tmp_path, training=True)
    with pytest.raises(UserError, match="^line 2: has one text: must be two texts sep"):
        list(evaluate.predict(task, None, {2: "all dogs walk"}, None, False))


@pytest.mark.parametrize(("fusion", "layers"), [("none", 2), ("deep", 1), ("deep", 2)])
def test_each_text_of_a_pair_has_the_maps_of_its_own_attention(
    tmp_path, fusion, layers
):
    config = lstmn_sentences.get_config("smoke")
    config.model.fusion, config.model.layers = fusion, layers
    task = create(config, tmp_path, training=True)
    state = task.objective.init(jax.random.key(0))

    def maps(*texts):
        example = task.parse("\t".join(texts), NoOptions())
        (answer,) = task.answers(state, [example], attention=True)
        prediction = task.show(example, answer)
        assert task.draw(prediction, "a pair", tmp_path / "pair.png").exists()
        return {(each.name, each.layer): each for each in prediction.attention}

    first, second, other = "all dogs walk", "some cats do not walk", "no dogs walk"
    of_pair, of_other = maps(first, second), maps(first, other)
    for layer in range(layers):
        read, again = of_pair["first text", layer], of_other["first text", layer]
        assert read.keys == read.queries == first.split()
        np.testing.assert_array_equal(read.weights, again.weights)  # it is read alone
        read, again = of_pair["second text", layer], of_other["second text", layer]
        assert read.keys == read.queries == second.split()
        assert np.abs(read.weights[:, :3, :3] - again.weights).max() > 0
        if fusion == "deep":
            assert of_pair["cross", layer].queries == second.split()
            assert of_pair["cross", layer].keys == first.split()


@pytest.mark.network
def test_the_reviews_are_10_000_and_logistic_regression_has_four_fifths(tmp_path):
    splits = sentences.read("reviews", {}, 10_000)
    assert sum(map(len, splits.values())) > 10_000
    prepared = sentences.create(splits, tmp_path, vocab_size=5000)
    assert 74 < sentences.tfidf_accuracy(prepared, "test") < 82
