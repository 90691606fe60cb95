import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import BAHDANAU, LUONG, SUTSKEVER
from translators import (
    BATCH,
    TARGET,
    WORDS,
    quick_jit,
    sentences,
    shapes_of,
    translator,
)

from models import cells, encoder_decoder
from models.bahdanau import Bahdanau
from models.captioner import ShowAndTell, ShowAttendTell
from models.luong import Luong
from models.seq2seq import Seq2Seq

ATTENTIVE = [(Bahdanau, BAHDANAU), (Luong, LUONG)]


def plain_scan(step, weights, shared, carry, inputs):
    return jax.lax.scan(lambda carry, x: step(weights, shared, carry, x), carry, inputs)


@pytest.mark.parametrize("alignment", ["hard", "gumbel"])
@pytest.mark.parametrize(("family", "fields"), ATTENTIVE)
def test_the_gradients_of_draws_are_those_of_a_plain_scan(
    family, fields, alignment, monkeypatch
):
    model, variables, batch = translator(family, fields, {"alignment": alignment})

    def gradients():
        def loss(variables):
            logits, sown = model.apply(
                variables,
                batch,
                train=True,
                mutable=["reinforce"],
                rngs={"alignment": jax.random.key(7)},
            )
            return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves((logits, sown)))

        return quick_jit(jax.grad(loss))(variables)["params"]

    found = gradients()
    for module in (cells, encoder_decoder):
        monkeypatch.setattr(module, "scan", plain_scan)
    expected = gradients()
    for score in jax.tree.leaves(found["cross_attention"]["scores"]):
        assert np.abs(score).max() > 1e-3
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
        *(found, expected),
    )


@pytest.mark.parametrize(
    ("family", "fields", "limit"),
    [(Seq2Seq, SUTSKEVER, 0.08), (Luong, LUONG, 0.1)],
)
def test_the_paper_s_init_is_uniform_in_its_range(family, fields, limit):
    model = family(**fields | {"init_scheme": "paper"})
    made = jax.jit(lambda rng: model.init(rng, sentences(), train=False)["params"])
    made = made(jax.random.key(0))
    assert jax.tree.structure(made) == jax.tree.structure(shapes_of(model))
    for path, values in jax.tree_util.tree_leaves_with_path(made):
        highest = np.abs(values).max()
        if path[-1].key == "bias":
            assert highest == 0, path
        else:
            assert 0.5 * limit < highest <= limit, path


@pytest.mark.parametrize(
    "family", [Bahdanau, Luong, Seq2Seq, ShowAttendTell, ShowAndTell]
)
def test_the_size_of_the_vocabulary_is_all_that_a_model_needs(family):
    batch = sentences()
    if family in (ShowAttendTell, ShowAndTell):
        batch["source"] = jnp.zeros((BATCH, 2, 3, 112))  # feature maps
    model = family(vocab_size=WORDS)
    logits, variables = jax.eval_shape(
        lambda: model.init_with_output(jax.random.key(0), batch, train=False)
    )
    assert logits.shape == (BATCH, TARGET, WORDS)
    table = "embedding_table" if "embedding_table" in variables["params"] else "output"
    assert variables["params"][table].shape[0] == WORDS


@pytest.mark.parametrize(
    ("family", "config", "variant"),
    [
        (Bahdanau, "bahdanau_nmt", "paper"),
        (Luong, "luong_nmt", "paper"),
        (Seq2Seq, "seq2seq_nmt", "paper"),
        (ShowAttendTell, "captioning", "coco"),
    ],
)
def test_defaults_are_those_of_the_paper_s_config(family, config, variant):
    config = importlib.import_module(f"configs.{config}").get_config(variant)
    fields, defaults = config.model.to_dict(), family(vocab_size=WORDS)
    assert {name: getattr(defaults, name) for name in fields} == fields
