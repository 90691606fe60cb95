"""Every score goes with every alignment, in every translator that attends.

Nearly all of the time is compilation, which is the cheaper the more is compiled at a
time and the less it is of what has no part in the choice.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_bahdanau
import test_luong
import test_transformer
from translators import quick_jit

import models.bahdanau
import models.luong
from attention.alignments import ALIGNMENTS
from attention.masks import padding_mask
from attention.scores import SCORES
from models.bahdanau import Bahdanau
from models.luong import Luong
from models.transformer import Transformer

COMBINATIONS = [(s, a) for s in SCORES for a in ALIGNMENTS]
SOURCES = jnp.asarray([[5, 6, 2], [7, 2, 0]])
TARGETS = jnp.asarray([[8, 9, 4, 2, 0], [4, 3, 5, 6, 2]])
# The location score does not reach the last word, nor does the window.
SIZES = {"window": 1, "max_length": 2}


class Eyes:
    """Stands in for a recurrent encoder: annotates each word with its embedding."""

    def __init__(self, cell, features, layers, bidirectional, *_):
        self.sides, self.layers = 1 + bidirectional, layers
        self.states = 2 if cell == "lstm" else 1

    def __call__(self, x, mask, *, train):
        annotations = jnp.concatenate([x] * self.sides, axis=-1)
        carried = jnp.concatenate([x[:, 0]] * self.states, axis=-1)
        return annotations, [(carried,) * self.sides] * self.layers


def bahdanau(score, alignment):
    fields = test_bahdanau.PAPER | SIZES | {"embedding": test_bahdanau.HIDDEN}
    return Bahdanau(**fields | {"score": score, "alignment": alignment}), translate


def luong(score, alignment):
    fields = test_luong.PAPER | SIZES | {"embedding": test_luong.HIDDEN, "layers": 1}
    return Luong(**fields | {"score": score, "alignment": alignment}), translate


def transformer(score, alignment):
    fields = test_transformer.SMALL | SIZES | {"encoder_layers": 1, "decoder_layers": 1}
    fields |= {"cross_score": score, "cross_alignment": alignment}
    return Transformer(**fields), cross_attend


def translate(model):
    return model({"source": SOURCES, "target": TARGETS}, train=True)


def cross_attend(model):
    """The attention of a decoder's layer to embeddings in place of an encoding."""
    attention = model.decoder[0].cross_attention
    query, memory = model.tables[1][TARGETS], model.tables[0][SOURCES]
    mask = padding_mask(SOURCES != 0)[:, None]
    key, value = attention.project_memory(memory)
    return attention.read(query, key, value, mask, jnp.arange(query.shape[1])).context


@functools.cache
def passes(translator):
    """Outputs, log-probabilities of draws and gradients, by combination."""

    def run(model, function, variables):
        def loss(variables):
            out, sown = model.apply(
                *(variables,),
                method=function,
                mutable=["reinforce"],
                rngs={"alignment": jax.random.key(0)},
            )
            sown = jax.tree_util.tree_leaves_with_path(sown)
            drawn = [x for path, x in sown if "log_probability" in str(path)]
            return jnp.sum(jnp.sin(out)) + sum(x.sum() for x in drawn), (out, drawn)

        gradients, (out, drawn) = jax.grad(loss, has_aux=True)(variables)
        return out, drawn, gradients

    cases = [translator(*combination) for combination in COMBINATIONS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models.bahdanau, "Encoder", Eyes)
        patch.setattr(models.luong, "Encoder", Eyes)
        variables = []
        for model, function in cases:
            shapes = jax.eval_shape(
                lambda m=model, f=function: m.init(jax.random.key(0), method=f)
            )
            rng = np.random.default_rng(1)
            variables.append(
                jax.tree.map(
                    lambda x, r=rng: jnp.asarray(
                        0.5 * r.standard_normal(x.shape), x.dtype
                    ),
                    {"params": shapes["params"]},
                )
            )

        @quick_jit
        def run_all(variables):
            return [run(*c, v) for c, v in zip(cases, variables, strict=True)]

        return dict(zip(COMBINATIONS, run_all(variables), strict=True))


@pytest.mark.parametrize(("score", "alignment"), COMBINATIONS)
@pytest.mark.parametrize("translator", [bahdanau, luong, transformer])
def test_every_score_goes_with_every_alignment(translator, score, alignment):
    out, drawn, gradients = passes(translator)[score, alignment]
    assert np.isfinite(out).all() and np.any(out)
    assert bool(drawn) == (alignment == "hard")
    reached = []
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        path = jax.tree_util.keystr(path)
        assert np.isfinite(gradient).all(), path
        if "scores" in path or "position_" in path:
            assert np.any(gradient), path
            reached.append(path)
    parameters = len(SCORES[score].parameters) + 2 * (alignment == "local_p")
    assert len(reached) == parameters
