"""Every combination of score and alignment works in every translator with attention.

Nearly all of the time is compilation. The alignments of a score are therefore compiled
together, without the encoder, which does not depend on them.
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
from attention.alignments import ALIGNMENTS, SAMPLED_ALIGNMENTS
from attention.masks import padding_mask
from attention.scores import SCORES
from models.bahdanau import Bahdanau
from models.encoder_decoder import StepInput
from models.luong import Luong
from models.transformer import Transformer

SOURCES = jnp.asarray([[5, 6, 9, 8, 2], [7, 3, 2, 0, 0]])
TARGETS = jnp.asarray([[8], [4]])
TIME = 1  # the decoding step to compute
# Neither the location score nor the window reaches the last of five positions.
SIZES = {"window": 2, "max_length": 4}


class StubEncoder:
    """Replaces a recurrent encoder: an annotation is the token's embedding."""

    def __init__(self, *, cell, layers, bidirectional, **_):
        self.directions, self.layers = 1 + bidirectional, layers
        self.states = 2 if cell == "lstm" else 1

    def __call__(self, x, mask, *, train):
        annotations = jnp.concatenate([x] * self.directions, axis=-1)
        carry = jnp.concatenate([x[:, 0]] * self.states, axis=-1)
        return annotations, [(carry,) * self.directions] * self.layers


def decoder_step(model):
    """Logits of one step; random alignments draw, as in training."""
    memory = model.encode(SOURCES)
    carry = model.start(memory, 1, TIME + 1)._replace(time=jnp.asarray(TIME))
    embedded = model.target_table[TARGETS]
    rng = model.make_rng("alignment") if model.alignment in SAMPLED_ALIGNMENTS else None
    x = StepInput(model.gates(embedded), rng=rng)
    _, step = model.advance(*model.prepare(memory), carry, x)
    model.cross_attention.record(step.aligned, memory)
    return model.readout(embedded, step, memory, train=True)


def cross_attention(model):
    """Context of a decoder layer that attends to source embeddings."""
    attention = model.decoder[0].cross_attention
    query, annotations = model.target_table[TARGETS], model.source_table[SOURCES]
    memory = attention.project_memory(annotations)
    mask = padding_mask(SOURCES != 0)[:, None]
    return attention.read(query, memory, mask, jnp.asarray(TIME)).context


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
def results(translator, score):
    """Gradients, outputs and log-probabilities of draws, by alignment."""
    rngs = {name: jax.random.key(0) for name in ("params", "alignment")}

    def gradients_and_outputs(alignment):
        model, function = translator(score, alignment)
        shapes = jax.eval_shape(lambda: model.init(rngs, method=function)["params"])

        def loss(variables):
            out, sown = model.apply(
                variables, method=function, mutable=["reinforce"], rngs=rngs
            )
            leaves = jax.tree_util.tree_leaves_with_path(sown)
            log_probs = [x for path, x in leaves if "log_probability" in str(path)]
            value = jnp.sum(jnp.sin(out)) + sum(x.sum() for x in log_probs)
            return value, (out, log_probs)

        variables = {"params": normal_like(shapes)}
        return jax.grad(loss, has_aux=True)(variables)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models.bahdanau, "Encoder", StubEncoder)
        patch.setattr(models.luong, "Encoder", StubEncoder)
        return quick_jit(lambda: {a: gradients_and_outputs(a) for a in ALIGNMENTS})()


@pytest.mark.parametrize("translator", [bahdanau, luong, transformer])
@pytest.mark.parametrize("alignment", ALIGNMENTS)
# "concat" is another name of "additive".
@pytest.mark.parametrize("score", [x for x in SCORES if x != "concat"])
def test_every_score_works_with_every_alignment(translator, score, alignment):
    gradients, (out, log_probs) = results(translator, score)[alignment]
    assert np.isfinite(out).all() and np.any(out)
    assert bool(log_probs) == (alignment == "hard")
    count = 0
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        path = jax.tree_util.keystr(path)
        assert np.isfinite(gradient).all(), path
        if "scores" in path or "position_" in path:
            assert np.any(gradient), path
            count += 1
    assert count == len(SCORES[score].parameters) + 2 * (alignment == "local_p")
