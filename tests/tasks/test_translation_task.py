"""The translation task: metrics, search, REINFORCE, figures and errors."""

import functools
import importlib.util
import math
from types import SimpleNamespace
from unittest.mock import ANY

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import sacrebleu
from states import changed, stepped

from attention.alignments import update_baseline
from base import storage
from base.errors import UserError
from base.records import SampleRecord, records_of
from configs import bahdanau_nmt, luong_nmt, seq2seq_nmt, transformer_nmt
from configs.transformer_nmt import get_config
from generation import Generator, Search
from generation.options import SamplingOptions, TranslationOptions
from tasks.common.batches import pad
from tasks.common.vocabulary import EOS, UNK
from tasks.translation import corpus
from tasks.translation.task import Translation
from training import configuration, evaluate
from training.state import gradients
from training.task import Evaluation, Task, create
from training.trained import Run


def make(workdir, **fields):
    config = changed(get_config("smoke"), fields)
    return create(config, workdir, training=not (workdir / "assets").exists())


def predict(task, state, lines, figures=None, **options):
    """Returns the best prediction of each line."""
    run = Run(task.config, task, state, "last")
    options = SamplingOptions(**options)
    return run.predict(lines, options, figures=figures, attention=False)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def task(workdir):
    return make(workdir, evaluation__batch_size=53)  # leaves filler rows


@pytest.fixture(scope="module")
def state(task):
    return task.objective.init(jax.random.key(0))


@pytest.fixture(scope="module")
def fitted(workdir):
    """A task, and a state that has memorised the first five test pairs."""
    task = make(workdir, model__dropout=0.0, loss__smoothing=0.0)
    sources, targets = (texts[:5] for texts in task.assets.pairs("test"))
    batch = {
        "source": pad([task.vocabulary.encode(text) for text in sources]),
        "target": pad([task.vocabulary.encode(text) for text in targets]),
    }
    optimizer = optax.adam(3e-3)
    state = task.objective.init(jax.random.key(1))
    task.objective.optimizer = optimizer
    state = state.replace(opt_state=optimizer.init(state.params))
    state, metrics = stepped(task, state, [batch] * 150)
    assert metrics["loss"][0] / metrics["loss"][1] < 0.05
    return task, state, sources, targets


def test_perplexity_equals_a_loop_over_all_tokens(task, state):
    sources, references = task.assets.pairs("validation")
    targets = [task.vocabulary.encode(text) for text in references]
    batch = {
        "source": pad([task.vocabulary.encode(text) for text in sources]),
        "target": pad(targets),
    }
    forward = jax.jit(functools.partial(task.model.apply, train=False))
    log_probs = np.array(
        jax.nn.log_softmax(forward({"params": state.params}, batch)), np.float64
    )
    total = sum(
        log_probs[row, t, token]
        for row, target in enumerate(targets)
        for t, token in enumerate(target)
    )
    expected = math.exp(-total / sum(map(len, targets)))
    scores = evaluate.evaluate(task, state, "validation").scores
    assert scores["perplexity"] == pytest.approx(expected, rel=1e-5)


def test_a_translation_does_not_depend_on_other_lines(fitted):
    task, state, sources, _ = fitted
    together = predict(task, state, [*sources, "", *sources[::-1]], beam=3)
    texts = [predict(task, state, [text], beam=3)[0].text for text in sources]
    assert [best.text for best in together] == [*texts, "", *texts[::-1]]


def test_translations_exceed_their_source_by_at_most_max_extra_length(workdir):
    task = make(workdir, evaluation__max_extra_length=2)
    search = task.translator

    def avoid_end(step, carry, source, rows):
        def avoiding(carry, token):
            carry, logits, weights = step(carry, token)
            return carry, logits.at[..., EOS].set(-1e4), weights

        return avoiding, carry

    search.generator = Generator(task.model, constrain=avoid_end)  # ends at the limit
    params = task.objective.init(jax.random.key(0)).params
    sources = [[*[5] * (n - 1), EOS] for n in (2, 5, 63, 11)]
    texts = search.texts(params, sources, Search())
    max_length = task.config.data.max_length
    assert max_length < 63 + 2
    assert [len(best.ids) for (best,) in texts] == [4, 7, max_length, 13]


def test_it_memorises_a_batch(fitted):
    task, state, sources, targets = fitted
    assert [best.text for best in predict(task, state, sources)] == targets


def test_filler_rows_and_padding_do_not_change_a_step(workdir):
    task = make(workdir, model__dropout=0.0)
    state = task.objective.init(jax.random.key(2))
    batch = {
        "source": pad([[5, 6, 7, EOS], [8, EOS]]),
        "target": pad([[9, EOS], [5, 4, 6, EOS]]),
    }
    wider = {name: np.pad(ids, ((0, 3), (0, 5))) for name, ids in batch.items()}
    step = jax.jit(task.objective.step)
    results = [step(state, b, jax.random.key(0)) for b in (batch, wider)]
    (new, metrics), (wider_new, wider_metrics) = results
    assert metrics["tokens"][0] == wider_metrics["tokens"][0] == 6
    np.testing.assert_allclose(metrics["loss"][0], wider_metrics["loss"][0], rtol=1e-5)
    params = new.params, wider_new.params
    differences = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), *params)
    # Adam's first step depends on the gradient's sign: an error would be larger.
    assert max(jax.tree.leaves(differences)) < 1e-5


def test_n_best_are_distinct_and_sorted(fitted):
    task, state, sources, _ = fitted
    for best in predict(task, state, sources, beam=4, n_best=4):
        ranked = [best, *best.others]
        assert len({p.text for p in ranked}) == len(ranked) > 1
        assert [p.score for p in ranked] == sorted(p.score for p in ranked)[::-1]


def test_samples_depend_on_the_line_and_the_seed_only(task, state):
    def draw(seed, *lines):
        drawn = predict(task, state, lines, temperature=1.0, n_best=2, seed=seed)
        return [[best.text, best.others[0].text] for best in drawn]

    first, second = drawn = draw(3, "one", "two " * 13)
    assert drawn == draw(3, "one", "two " * 13) != draw(4, "one", "two " * 13)
    assert first[0] != first[1]  # the samples of one line
    assert draw(3, "three", "two " * 13, "one", "one") == [ANY, second, first, first]


def test_a_long_line_is_truncated_with_a_warning(task, state, capsys):
    max_length = task.config.data.max_length
    (prediction,) = predict(task, state, ["seven " * 3 * max_length], beam=1)
    warning = capsys.readouterr().err
    assert warning.startswith("warning: line 1 has ")
    assert f"only the first {max_length}" in warning
    assert len(task.vocabulary.encode(prediction.text)) <= max_length + 1


def test_tables_and_charts_show_the_evaluated_translations(fitted, tmp_path):
    task, state, *_ = fitted
    evaluation = evaluate.evaluate(task, state, "test", TranslationOptions())
    assert not list(tmp_path.iterdir())
    written = evaluate.write_table(task, evaluation, tmp_path)
    assert sorted(written) == sorted(tmp_path.iterdir())
    report = evaluation.scores
    rows = storage.read_tsv(tmp_path / "translations_test.tsv")[1:]
    _, references, hypotheses = zip(*rows, strict=True)
    bleu = sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert report["bleu"] == pytest.approx(bleu)
    groups = report["by_length"].values()
    assert sum(group["sentences"] for group in groups) == len(rows)
    near = set(task.assets.near_duplicates("test"))
    new = [i for i in range(len(rows)) if i not in near]
    assert 0 < len(new) == report["new_sentences"] < len(rows)
    texts = [hypotheses[i] for i in new], [[references[i] for i in new]]
    assert report["bleu_new"] == pytest.approx(sacrebleu.corpus_bleu(*texts).score)
    drawn = evaluate.draw(task, state, evaluation, tmp_path / "figures")
    assert tmp_path / "figures" / "bleu_by_length_test.png" in drawn
    assert sorted(drawn) == sorted((tmp_path / "figures").iterdir())


def test_attention_maps_are_distributions_over_unmasked_keys(fitted):
    task, state, sources, targets = fitted
    source, target = (task.vocabulary.encode(x) for x in (sources[0], targets[0]))
    maps = task.attention_maps(state.params, source, target)
    model = task.config.model
    assert len(maps) == model.encoder_layers + 2 * model.decoder_layers
    for kind, weights, rows, columns, position, *_ in maps:
        assert position is None
        assert weights.shape == (model.heads, len(rows), len(columns))
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        if kind == "decoder":
            assert not np.triu(weights, 1).any()
            assert columns[0] == "<s>" and len(columns) == len(target)


def test_sentences_of_the_nearest_lengths_are_drawn(task, monkeypatch, capsys):
    config = task.config.copy_and_resolve_references()
    config.evaluation.figures = 3
    texts = task.assets.pairs("validation")[0]
    lengths = [len(task.vocabulary.encode(text)) for text in texts]
    monkeypatch.setattr(corpus, "_LEGIBLE", range(min(lengths), max(lengths) + 1))
    titles = [f"Transformer, validation sentence {i}" for i in (1, 2, 3)]
    assert list(corpus.examples(config, task.assets, "validation")) == titles
    assert not capsys.readouterr().err
    monkeypatch.setattr(corpus, "_LEGIBLE", range(901, 908))
    sources = corpus.examples(config, task.assets, "validation")
    drawn = [len(ids) for ids in sources.values()]
    assert drawn == sorted(lengths, reverse=True)[:3]
    assert capsys.readouterr().err == (
        "figures: too few validation sentences of 901 to 907 pieces: drawing the "
        f"nearest lengths, {', '.join(map(str, drawn))}\n"
    )


def test_figures_show_every_layer(fitted, tmp_path):
    task, state, *_ = fitted
    paths = evaluate.draw(task, state, Evaluation("validation"), tmp_path)
    model = task.config.model
    maps = model.encoder_layers + 2 * model.decoder_layers
    assert len(paths) == maps * task.config.evaluation.figures
    assert sorted(paths) == sorted(tmp_path.glob("*.png"))


@pytest.mark.parametrize(
    ("config", "field", "value", "message"),
    [
        (
            transformer_nmt,
            "optimizer__accumulate",
            3,
            "config.optimizer.accumulate is 3: must be a divisor",
        ),
        (
            transformer_nmt,
            "data__tokens",
            7,
            "config.data.tokens is 7: must be at least config.data.batch_size_multiple",
        ),
        (
            transformer_nmt,
            "model__heads",
            3,
            "config.model.heads is 3: must be a divisor of d_model",
        ),
        (
            transformer_nmt,
            "model__norm",
            "nrom",
            "config.model.norm is 'nrom': must be one of post",
        ),
        (
            transformer_nmt,
            "model__cross_score",
            "location",
            "one sentence per row, config.data.pack=fa",
        ),
        (transformer_nmt, "model__dtype", "float23", "float23"),
        (seq2seq_nmt, "data__pack", True, "Seq2Seq takes one sentence per row"),
        (luong_nmt, "data__pack", True, "config.data.pack is True: must be false"),
    ],
)
def test_invalid_values_are_reported_before_data_is_read(config, field, value, message):
    config = changed(config.get_config("smoke"), {field: value})
    with pytest.raises(UserError, match=message) as error:
        configuration.check(config, Task)
    assert "\n" not in str(error.value)


def test_learned_positions_must_cover_the_maximum_length():
    config = get_config("smoke")
    config.data.max_length = 10**6
    configuration.check(config, Task)
    config.model.positions = "learned"
    with pytest.raises(UserError, match="max_length is 1000000: must be at most .*=64"):
        configuration.check(config, Task)


@pytest.mark.parametrize("config", [seq2seq_nmt, bahdanau_nmt, luong_nmt])
def test_rows_of_the_reversal_toy_are_one_piece_per_letter_and_eos(config, tmp_path):
    task = create(config.get_config("reversal"), tmp_path, training=True)
    assert task.vocabulary.size == task.config.data.vocab_size
    for batch in (task.train_data()[i] for i in range(3)):
        for ids in batch.values():
            filled = ids[ids.any(axis=1)]
            assert filled.shape == (len(filled), 17) and len(filled) > 50
            assert (filled[:, -1] == EOS).all() and (filled != UNK).all()


@pytest.mark.parametrize("alignment", ["local_m", "local_p"])
def test_a_local_alignment_of_the_transformer_needs_one_sentence_per_row(alignment):
    config = get_config("smoke")
    config.model.cross_alignment = alignment
    with pytest.raises(UserError, match=f"cross_alignment is '{alignment}'.*pack=fals"):
        configuration.check(config, Task)
    config.data.pack = False
    configuration.check(config, Task)


def assets(config):
    vocabulary = SimpleNamespace(size=config.data.vocab_size, decode=None)
    return SimpleNamespace(vocabulary=vocabulary)


def hard_task():
    config = luong_nmt.get_config("smoke")
    config.model.alignment, config.model.dropout = "hard", 0.0
    config.loss.smoothing, config.loss.reward, config.loss.entropy = 0.0, 0.7, 0.3
    rng = np.random.default_rng(0)
    batch = {name: rng.integers(4, 120, (3, 5)) for name in ("source", "target")}
    batch["target"][1, 2:] = 2, 0, 0
    batch["target"][2, 1] = 2  # two sentences in the third row
    return Translation(config, assets(config)), jax.tree.map(jnp.asarray, batch)


def test_a_sample_is_rewarded_by_its_own_and_later_tokens():
    task, batch = hard_task()
    rng = jax.random.key(1, impl="rbg")  # compiles in a fraction of the time
    state, baseline = task.objective.init(jax.random.key(0)), -2.3
    state = state.replace(extra={"baseline": jnp.asarray(baseline)})
    gradient, _ = jax.jit(jax.grad(task.loss, has_aux=True))(
        state.params, batch, rng, state
    )

    def surrogate(params):
        rngs = {"dropout": rng, "alignment": jax.random.fold_in(rng, 1)}
        logits, sown = task.model.apply(
            {"params": params}, batch, train=True, rngs=rngs, mutable=["reinforce"]
        )
        (draw,) = records_of(sown, SampleRecord)
        log_probs, total = jax.nn.log_softmax(logits), 0.0
        for b, start, end in ((0, 0, 5), (1, 0, 3), (2, 0, 2), (2, 2, 5)):
            steps, target = range(start, end), batch["target"]
            log_p = {t: log_probs[b, t, target[b, t]] for t in steps}
            for t in steps:
                reward = sum(jax.lax.stop_gradient(log_p[u]) for u in range(t, end))
                advantage = reward - baseline * (end - t)
                total -= log_p[t] + 0.7 * advantage * draw.log_probability[b, 0, t]
                total -= 0.3 * draw.entropy[b, 0, t]
        return total

    expected = jax.jit(jax.grad(surrogate))(state.params)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4)  # sums in other order


def test_the_baseline_of_a_hard_alignment_follows_the_mean_reward():
    task, batch = hard_task()
    state = task.objective.init(jax.random.key(0))
    assert state.extra == {"baseline": 0}
    rng = jax.random.key(1, impl="rbg")
    after, metrics = jax.jit(task.objective.step)(state, batch, rng)
    loss, reward = (float(metrics[x][0] / metrics[x][1]) for x in ("loss", "reward"))
    assert loss == pytest.approx(-reward, rel=1e-5) and loss > 0
    assert after.extra["baseline"] == pytest.approx(
        update_baseline(0.0, reward), rel=1e-5
    )
    config = luong_nmt.get_config("smoke")
    soft = Translation(config, assets(config))
    assert soft.objective.init(jax.random.key(0)).extra is None


def test_micro_batches_do_not_change_the_gradient_with_fixed_samples():
    task, batch = hard_task()
    batch = {name: jnp.concatenate([x, x[:1]]) for name, x in batch.items()}
    state = task.objective.init(jax.random.key(0))
    # Without sampling, rows do not depend on the split into micro-batches.
    task.model = SimpleNamespace(apply=without_sampling(task.model.apply))
    whole, *parts = (
        jax.jit(
            lambda params, parts=parts: gradients(
                functools.partial(task.loss, state=state),
                params,
                batch,
                jax.random.key(1),
                parts,
            )
        )(state.params)
        for parts in (1, 2, 4)
    )
    for part in parts:
        for a, b in zip(jax.tree.leaves(part), jax.tree.leaves(whole), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-4)  # order of sums


def without_sampling(apply):
    """`apply` at the most probable positions, with a record made from the logits."""

    def applied(variables, batch, **options):
        options["rngs"].pop("alignment")
        logits, _ = apply(variables, batch, **options)
        draw = SampleRecord(logits[:, None, :, 5], logits[:, :, 7])
        return logits, {"reinforce": {"record": (draw,)}}

    return applied


def test_a_model_without_attention_has_no_figures_to_draw(tmp_path):
    task = create(seq2seq_nmt.get_config("smoke"), tmp_path, training=True)
    state = task.objective.init(jax.random.key(0))
    with pytest.raises(UserError, match="Seq2Seq has no attention to draw"):
        predict(task, state, ["one"], figures=tmp_path)
    assert evaluate.draw(task, state, Evaluation("validation"), tmp_path) == []


def test_local_p_maps_have_the_predicted_position(tmp_path):
    config = luong_nmt.get_config("smoke")
    config.model.alignment = "local_p"
    task = create(config, tmp_path, training=True)
    state = task.objective.init(jax.random.key(0))
    source, target = (task.vocabulary.encode(x) for x in ("one two", "drei vier"))
    (alignment,) = task.attention_maps(state.params, source, target)
    position = alignment.position
    assert position.shape == (1, len(target))
    assert (0 <= position).all() and (position <= len(source)).all()
    predict(task, state, ["one two"], figures=tmp_path / "figures")
    assert (tmp_path / "figures" / "alignment_0001.png").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"beam": 2, "n_best": 3},
            "n_best is 3: must be at most the beam size 2, which --beam sets",
        ),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"top_p": 0.0, "temperature": 1.0}, "top_p is 0.0: must be above 0 and"),
        ({"top_k": 5}, "top_k is 5: must be 0 unless temperature is above 0"),
    ],
)
def test_search_options_are_checked(task, state, options, message):
    with pytest.raises(UserError, match=message):
        predict(task, state, ["one"], **options)


def test_characters_without_a_piece_are_reported(task, state, capsys):
    predict(task, state, ["one", "漢 two"])
    assert "warning: line 2 has characters without a piece" in capsys.readouterr().err


def test_samples_have_no_unknown_pieces(task, state):
    best = predict(task, state, ["one", "two"], temperature=3.0, n_best=53)
    texts = [x.text for first in best for x in (first, *first.others)]
    assert len(set(texts)) > 50 and not any("\u2047" in text for text in texts)


def test_a_missing_tokenizer_is_reported_before_data_is_read(
    task, state, monkeypatch, tmp_path
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    config = get_config("smoke")
    config.data.target_language = "ja"
    with pytest.raises(UserError, match="^config.data.target_language is 'ja': BLEU's"):
        create(config, tmp_path, training=True)
    assert not list(tmp_path.iterdir())
    japanese = Translation(config, task.assets)
    with pytest.raises(UserError, match="BLEU's tokenizer ja-mecab needs"):
        evaluate.evaluate(japanese, state, "test", TranslationOptions())
