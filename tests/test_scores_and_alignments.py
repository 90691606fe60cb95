"""Every score goes with every alignment, in every translator that attends.

Nearly all of the time is compilation, which is the cheaper the more is compiled at a
time and the less of it has no part in the choice.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import BAHDANAU, HIDDEN, LUONG, TRANSFORMER
from translators import normal_like, quick_jit

import models.bahdanau
import models.luong
from attention.alignments import ALIGNMENTS
from attention.masks import padding_mask
from attention.scores import SCORES
from models.attention import DRAWN
from models.bahdanau import Bahdanau
from models.encoder_decoder import StepInput
from models.luong import Luong
from models.transformer import Transformer

COMBINATIONS = [(s, a) for s in SCORES for a in ALIGNMENTS]
SOURCES = jnp.asarray([[5, 6, 9, 8, 2], [7, 3, 2, 0, 0]])
TARGETS = jnp.asarray([[8], [4]])
TIME = 1  # the step that is taken
# Neither the location score nor the window reaches the last of five words.
SIZES = {"window": 2, "max_length": 4}


class Eyes:
    """Stands in for a recurrent encoder: annotates each word with its embedding."""

    def __init__(self, *, cell, layers, bidirectional, **_):
        self.sides, self.layers = 1 + bidirectional, layers
        self.states = 2 if cell == "lstm" else 1

    def __call__(self, x, mask, *, train):
        annotations = jnp.concatenate([x] * self.sides, axis=-1)
        carried = jnp.concatenate([x[:, 0]] * self.states, axis=-1)
        return annotations, [(carried,) * self.sides] * self.layers


def decoder_step(model):
    """Logits of a step that draws where it may, as in training."""
    memory = model.encode(SOURCES)
    carry = model.start(memory, 1, TIME + 1)._replace(time=jnp.asarray(TIME))
    embedded = model.target_table[TARGETS]
    rng = model.make_rng("alignment") if model.alignment in DRAWN else None
    x = StepInput(model.gates(embedded), rng=rng)
    _, step = model.advance(model.weights(memory), model.shared(memory), carry, x)
    model.cross_attention.record(step.aligned)
    return model.readout(embedded, step, memory, train=True)


def cross_attention(model):
    """What a layer of the decoder reads of embeddings in place of an encoding."""
    attention = model.decoder[0].cross_attention
    query, memory = model.tables[1][TARGETS], model.tables[0][SOURCES]
    mask = padding_mask(SOURCES != 0)[:, None]
    key, value = attention.project_memory(memory)
    return attention.read(query, key, value, mask, jnp.asarray(TIME)).context


def bahdanau(score, alignment):
    fields = BAHDANAU | SIZES | {"embedding": HIDDEN}
    return Bahdanau(**fields | {"score": score, "alignment": alignment}), decoder_step


def luong(score, alignment):
    fields = LUONG | SIZES | {"embedding": HIDDEN, "layers": 1}
    return Luong(**fields | {"score": score, "alignment": alignment}), decoder_step


def transformer(score, alignment):
    fields = TRANSFORMER | SIZES | {"encoder_layers": 1, "decoder_layers": 1}
    fields |= {"cross_score": score, "cross_alignment": alignment}
    return Transformer(**fields), cross_attention


@functools.cache
def passes(translator):
    """Outputs, log-probabilities of draws and gradients, by combination."""
    rngs = {name: jax.random.key(0) for name in ("params", "alignment")}

    def one(combination):
        model, function = translator(*combination)
        shapes = jax.eval_shape(lambda: model.init(rngs, method=function)["params"])

        def loss(variables):
            out, sown = model.apply(
                variables, method=function, mutable=["reinforce"], rngs=rngs
            )
            sown = jax.tree_util.tree_leaves_with_path(sown)
            drawn = [x for path, x in sown if "log_probability" in str(path)]
            return jnp.sum(jnp.sin(out)) + sum(x.sum() for x in drawn), (out, drawn)

        variables = {"params": normal_like(shapes)}
        return jax.grad(loss, has_aux=True)(variables)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models.bahdanau, "Encoder", Eyes)
        patch.setattr(models.luong, "Encoder", Eyes)
        found = quick_jit(lambda: [one(pair) for pair in COMBINATIONS])()
    return dict(zip(COMBINATIONS, found, strict=True))


@pytest.mark.parametrize(("score", "alignment"), COMBINATIONS)
@pytest.mark.parametrize("translator", [bahdanau, luong, transformer])
def test_every_score_goes_with_every_alignment(translator, score, alignment):
    gradients, (out, drawn) = passes(translator)[score, alignment]
    assert np.isfinite(out).all() and np.any(out)
    assert bool(drawn) == (alignment == "hard")
    reached = 0
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        path = jax.tree_util.keystr(path)
        assert np.isfinite(gradient).all(), path
        if "scores" in path or "position_" in path:
            assert np.any(gradient), path
            reached += 1
    assert reached == len(SCORES[score].parameters) + 2 * (alignment == "local_p")
