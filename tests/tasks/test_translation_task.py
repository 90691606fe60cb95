"""The translation task: metrics, search, REINFORCE, figures and errors."""

import functools
import importlib.util
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import sacrebleu
from states import changed, stepped
from translators import quick_jit

from attention.alignments import update_baseline
from base import storage
from base.errors import UserError
from base.records import SampleRecord, records_of
from configs import bahdanau_nmt, luong_nmt, seq2seq_nmt
from configs.transformer_nmt import get_config
from figures.attention import draw_attention
from generation.options import SamplingOptions, TranslationOptions
from generation.search import Search
from generation.texts import Text
from tasks.common.batches import pad
from tasks.common.vocabulary import EOS, UNK
from tasks.translation import corpus, parallel_text
from tasks.translation.corpora.generated import reversal_records
from tasks.translation.task import Translated, Translation
from training import configuration, evaluate
from training.state import gradients
from training.task import Evaluation, Task, create
from training.trained import Run


def with_fields(task, **fields):
    """The task of a changed config, with the same assets."""
    return Translation(changed(get_config("smoke"), fields), task.assets)


def predict(task, state, lines, **options):
    """Returns the best prediction of each line."""
    run = Run(task.config, task, state, "last")
    options = SamplingOptions(**options)
    return run.predict(lines, options, attention=False)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    config = changed(get_config("smoke"), {"evaluation__batch_size": 53})
    return create(config, tmp_path_factory.mktemp("run"), training=True)


@pytest.fixture(scope="module")
def state(task):
    return quick_jit(task.objective.init)(jax.random.key(0))


@pytest.fixture(scope="module")
def fitted(task, state):
    """A task, and a state that has memorised the first five test pairs."""
    fields = {"model__dropout": 0.0, "loss__smoothing": 0.0}
    task = with_fields(task, evaluation__figures=1, **fields)
    sources, targets = (texts[:5] for texts in task.assets.pairs("test"))
    batch = {
        "source": pad([task.vocabulary.encode(text) for text in sources]),
        "target": pad([task.vocabulary.encode(text) for text in targets]),
    }
    optimizer = optax.adam(3e-3)
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
    examples = task.examples("validation")
    answers = {"validation": [Translated([Text("", [EOS], 0.0)], ())] * len(sources)}
    scores = task.score(state, Evaluation("validation", {}, examples, answers))
    assert scores["perplexity"] == pytest.approx(expected, rel=1e-5)


def test_translations_exceed_their_source_by_at_most_max_extra_length(task):
    search = with_fields(task, evaluation__max_extra_length=2).translator
    limits = {}

    def generate(params, batches, search, **_):
        for batch in batches:
            limits.update(zip(batch.indices, batch.limit, strict=False))
        return [[]] * len(limits)

    search.generator = SimpleNamespace(generate=generate)
    max_length = task.config.data.max_length
    search.texts(None, [[EOS] * n for n in (2, 5, max_length - 1, 11)], Search())
    assert limits == {0: 4, 1: 7, 2: max_length, 3: 13}


def test_it_memorises_a_batch(fitted):
    task, state, sources, targets = fitted
    assert [best.text for best in predict(task, state, sources)] == targets


def test_filler_rows_and_padding_do_not_change_a_gradient(task, state):
    task = with_fields(task, model__dropout=0.0)
    batch = {
        "source": pad([[5, 6, 7, EOS], [8, EOS]]),
        "target": pad([[9, EOS], [5, 4, 6, EOS]]),
    }
    wider = {name: np.pad(ids, ((0, 3), (0, 5))) for name, ids in batch.items()}
    slope = quick_jit(jax.value_and_grad(task.loss, has_aux=True))
    ((loss, aux), gradient), ((wider_loss, wider_aux), wider_gradient) = (
        slope(state.params, x, jax.random.key(0), state) for x in (batch, wider)
    )
    assert aux[0] == wider_aux[0] == 6  # tokens
    np.testing.assert_allclose(loss, wider_loss, rtol=1e-5)
    differences = jax.tree.map(
        lambda a, b: jnp.abs(a - b).max(), gradient, wider_gradient
    )
    assert max(jax.tree.leaves(differences)) < 1e-5


def test_n_best_are_distinct_and_sorted(fitted):
    task, state, sources, _ = fitted
    for best in predict(task, state, sources, beam=4, n_best=4):
        ranked = [best, *best.others]
        assert len({p.text for p in ranked}) == len(ranked) > 1
        assert [p.score for p in ranked] == sorted(p.score for p in ranked)[::-1]


def test_samples_depend_on_line_and_seed_only_and_have_no_unknown_pieces(task, state):
    def draw(seed, *lines):
        drawn = predict(task, state, lines, temperature=3.0, n_best=53, seed=seed)
        return [[x.text for x in (best, *best.others)] for best in drawn]

    first, second = draw(3, "one", "two")
    assert draw(3, "two", "one") == [second, first] != draw(4, "two", "one")
    assert len({*first, *second}) > 50
    assert not any("\u2047" in text for text in first + second)


def test_cut_lines_and_characters_without_a_piece_are_reported(task):
    maximum = task.config.data.max_length

    def reported(line):
        example = task.parse(line, SamplingOptions())
        assert len(example.ids) <= maximum and example.ids[-1] == EOS
        return task.unusual(example, None)

    (cut,) = reported("seven " * 3 * maximum)
    assert f"pieces: only the first {maximum} (config.data.max_length)" in cut
    (unknown,) = reported("漢 two")
    assert unknown.startswith("has characters without a piece: 1 of")
    assert not reported("two")


def test_tables_and_charts_show_the_evaluated_translations(fitted, tmp_path):
    task, state, *_ = fitted
    options = TranslationOptions(beam=1)
    evaluation = evaluate.evaluate(task, state, "test", options)
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
    model = task.config.model
    maps = model.encoder_layers + 2 * model.decoder_layers
    assert len(drawn) == maps * task.config.evaluation.figures + 1


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


def test_learned_positions_must_cover_the_maximum_length():
    config = get_config("smoke")
    config.data.max_length = 10**6
    configuration.check(config, Task)
    config.model.positions = "learned"
    with pytest.raises(UserError, match="max_length is 1000000: must be at most .*=64"):
        configuration.check(config, Task)


def test_rows_of_the_reversal_toy_are_one_piece_per_letter_and_eos(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(
        parallel_text, "reversal_records", lambda *args: reversal_records(*args)[:1009]
    )
    config, *others = (
        x.get_config("reversal") for x in (bahdanau_nmt, luong_nmt, seq2seq_nmt)
    )
    assert all(other.data == config.data for other in others)
    assets = corpus.prepare(config, tmp_path)
    assert assets.vocabulary.size == config.data.vocab_size
    for batch in (assets.batches[i] for i in range(3)):
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


@pytest.fixture(scope="module")
def hard(task):
    """A task with hard attention, its first state, and a batch."""
    config = luong_nmt.get_config("smoke")
    config.model.alignment, config.model.dropout = "hard", 0.0
    config.loss.smoothing, config.loss.reward, config.loss.entropy = 0.0, 0.7, 0.3
    rng = np.random.default_rng(0)
    batch = {name: rng.integers(4, 120, (3, 5)) for name in ("source", "target")}
    batch["target"][1, 2:] = 2, 0, 0
    batch["target"][2, 1] = 2  # two sentences in the third row
    hard = Translation(config, task.assets)
    state = quick_jit(hard.objective.init)(jax.random.key(0))
    return hard, state, jax.tree.map(jnp.asarray, batch)


def test_a_sample_is_rewarded_by_its_own_and_later_tokens(hard):
    """`tests/training/test_reinforce.py` has the gradient of this loss."""
    task, state, batch = hard
    rng = jax.random.key(1, impl="rbg")  # compiles in a fraction of the time
    baseline = -2.3
    state = state.replace(extra={"baseline": jnp.asarray(baseline)})
    loss, _ = quick_jit(task.loss)(state.params, batch, rng, state)

    @quick_jit
    def sampled(params):
        rngs = {"dropout": rng, "alignment": jax.random.fold_in(rng, 1)}
        logits, sown = task.model.apply(
            {"params": params}, batch, train=True, rngs=rngs, mutable=["reinforce"]
        )
        return jax.nn.log_softmax(logits), records_of(sown, SampleRecord)

    log_probs, (draw,) = sampled(state.params)
    total = 0.0
    for b, start, end in ((0, 0, 5), (1, 0, 3), (2, 0, 2), (2, 2, 5)):
        log_p = {t: log_probs[b, t, batch["target"][b, t]] for t in range(start, end)}
        for t in log_p:
            advantage = sum(log_p[u] for u in range(t, end)) - baseline * (end - t)
            total -= log_p[t] + 0.7 * advantage * draw.log_probability[b, 0, t]
            total -= 0.3 * draw.entropy[b, 0, t]
    np.testing.assert_allclose(loss, total, rtol=1e-5)


def test_the_baseline_of_a_hard_alignment_follows_the_mean_reward(hard, task, state):
    hard_task, before, batch = hard
    assert before.extra == {"baseline": 0}
    rng = jax.random.key(1, impl="rbg")
    after, metrics = quick_jit(hard_task.objective.step)(before, batch, rng)
    loss, reward = (float(metrics[x][0] / metrics[x][1]) for x in ("loss", "reward"))
    assert loss == pytest.approx(-reward, rel=1e-5) and loss > 0
    assert after.extra["baseline"] == pytest.approx(
        update_baseline(0.0, reward), rel=1e-5
    )
    assert state.extra is None  # of soft attention


def test_micro_batches_do_not_change_the_gradient_with_fixed_samples(hard, monkeypatch):
    task, state, batch = hard
    batch = {name: jnp.concatenate([x, x[:1]]) for name, x in batch.items()}
    # Without sampling, rows do not depend on the split into micro-batches.
    model = SimpleNamespace(apply=without_sampling(task.model.apply))
    monkeypatch.setattr(task, "model", model)
    loss = functools.partial(task.loss, state=state)
    whole, part = (
        quick_jit(
            lambda params, parts=parts: gradients(
                loss, params, batch, jax.random.key(1), parts
            )
        )(state.params)
        for parts in (1, 4)
    )
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


def test_local_p_maps_have_the_predicted_position(task, tmp_path):
    config = luong_nmt.get_config("smoke")
    config.model.alignment = "local_p"
    task = Translation(config, task.assets)
    state = quick_jit(task.objective.init)(jax.random.key(0))
    source, target = (task.vocabulary.encode(x) for x in ("one two", "drei vier"))
    (alignment,) = maps = task.attention_maps(state.params, source, target)
    position = alignment.position
    assert position.shape == (1, len(target))
    assert (0 <= position).all() and (position <= len(source)).all()
    assert draw_attention(maps, "Line 1", tmp_path / "a.png").exists()


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
