"""Every score goes with every alignment, in every translator that attends.

What has no part in the choice is left out, and nothing is compiled: that would take
most of the time.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_bahdanau
import test_luong
import test_transformer
from translators import variables_of

import models.bahdanau
import models.luong
from attention.alignments import ALIGNMENTS
from attention.masks import padding_mask
from attention.scores import SCORES
from models.bahdanau import Bahdanau
from models.luong import Luong
from models.transformer import Transformer

COMBINATIONS = [(s, a) for s in SCORES for a in ALIGNMENTS]
BATCH, SOURCE, TARGET, WIDTH = 2, 3, 2, 2
SIZES = dict(embedding=WIDTH, hidden=WIDTH, score_hidden=WIDTH, window=1)
SIZES |= dict(max_length=2)  # the location score does not reach the last word
SOURCES = jnp.asarray([[5, 6, 2], [7, 2, 0]])
TARGETS = jnp.asarray([[8, 2], [4, 2]])


class Eyes:
    """Stands in for a recurrent encoder: annotates each word with its embedding."""

    def __init__(self, cell, features, layers, bidirectional, *_):
        self.sides, self.layers = 1 + bidirectional, layers
        self.states = 2 if cell == "lstm" else 1

    def __call__(self, x, mask, *, train):
        annotations = jnp.concatenate([x] * self.sides, axis=-1)
        carried = jnp.concatenate([x[:, 0]] * self.states, axis=-1)
        return annotations, [(carried,) * self.sides] * self.layers


@pytest.fixture
def no_encoder(monkeypatch):
    monkeypatch.setattr(models.bahdanau, "Encoder", Eyes)
    monkeypatch.setattr(models.luong, "Encoder", Eyes)


def check(model, run, alignment):
    """`run(variables, **how to apply)` has finite gradients that reach the score."""

    def loss(variables):
        found, sown = run(
            variables,
            mutable=["reinforce"],
            rngs={"alignment": jax.random.key(0)},
        )
        sown = jax.tree_util.tree_leaves_with_path(sown)
        drawn = [x for path, x in sown if "log_probability" in str(path)]
        assert bool(drawn) == (alignment == "hard")
        return jnp.sum(jnp.sin(found)) + sum(x.sum() for x in drawn), found

    with jax.disable_jit():
        gradients, found = jax.grad(loss, has_aux=True)(variables_of(model))
    assert np.isfinite(found).all()
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        path = jax.tree_util.keystr(path)
        assert np.isfinite(gradient).all(), path
        if "scores" in path and "cross_attention" in path or "position" in path:
            assert np.any(gradient), path


@pytest.mark.parametrize(("score", "alignment"), COMBINATIONS)
@pytest.mark.parametrize(
    ("family", "fields"),
    [
        (Bahdanau, test_bahdanau.PAPER | SIZES | {"maxout": WIDTH}),
        (Luong, test_luong.PAPER | SIZES | {"layers": 1}),
    ],
    ids=["bahdanau", "luong"],
)
def test_a_recurrent_decoder_takes_every_score_with_every_alignment(
    no_encoder, family, fields, score, alignment
):
    model = family(**fields | {"score": score, "alignment": alignment})

    def run(variables, **how):
        batch = {"source": SOURCES, "target": TARGETS}
        return model.apply(variables, batch, train=True, **how)

    if family is Bahdanau and SCORES[score].same_width:
        # Annotations of both directions are twice as wide as the state.
        with pytest.raises(ValueError, match=f"score is '{score}': takes annotations"):
            variables_of(model)
    else:
        check(model, run, alignment)


@pytest.mark.parametrize(("score", "alignment"), COMBINATIONS)
def test_cross_attention_takes_every_score_with_every_alignment(score, alignment):
    fields = {"cross_score": score, "cross_alignment": alignment, "window": 1}
    fields |= {"encoder_layers": 1, "decoder_layers": 1, "max_length": 2}
    model = Transformer(**test_transformer.SMALL | fields)
    rng = np.random.default_rng(0)
    queries = rng.standard_normal((BATCH, TARGET, model.d_model))
    memory = rng.standard_normal((BATCH, SOURCE, model.d_model))

    def read(model, x, memory):
        attention = model.decoder[0].cross_attention
        mask = padding_mask(SOURCES != 0)[:, None]
        projected = attention.project_memory(memory)
        return attention.read(x, *projected, mask, jnp.arange(TARGET)).context

    def run(variables, **how):
        inputs = jnp.asarray(queries), jnp.asarray(memory)
        return model.apply(variables, *inputs, method=read, **how)

    check(model, run, alignment)
