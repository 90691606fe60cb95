import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import BAHDANAU, LUONG, SUTSKEVER
from translators import (
    BATCH,
    TARGET,
    VOCAB,
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
def test_gradients_with_random_alignments_equal_those_of_a_plain_scan(
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

    actual = gradients()
    for module in (cells, encoder_decoder):
        monkeypatch.setattr(module, "scan", plain_scan)
    expected = gradients()
    for gradient in jax.tree.leaves(actual["cross_attention"]["scores"]):
        assert np.abs(gradient).max() > 1e-3
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4),
        actual,
        expected,
    )


@pytest.mark.parametrize(
    ("family", "fields", "limit"),
    [(Seq2Seq, SUTSKEVER, 0.08), (Luong, LUONG, 0.1)],
)
def test_the_paper_s_init_is_uniform_in_its_range(family, fields, limit):
    model = family(**fields | {"init_scheme": "paper"})
    init = jax.jit(lambda rng: model.init(rng, sentences(), train=False)["params"])
    params = init(jax.random.key(0))
    assert jax.tree.structure(params) == jax.tree.structure(shapes_of(model))
    for path, values in jax.tree_util.tree_leaves_with_path(params):
        maximum = np.abs(values).max()
        if path[-1].key == "bias":
            assert maximum == 0, path
        else:
            assert 0.5 * limit < maximum <= limit, path


@pytest.mark.parametrize(
    "family", [Bahdanau, Luong, Seq2Seq, ShowAttendTell, ShowAndTell]
)
def test_all_fields_but_the_vocabulary_size_have_defaults(family):
    batch = sentences()
    if family in (ShowAttendTell, ShowAndTell):
        batch["source"] = jnp.zeros((BATCH, 2, 3, 112))  # feature maps
    model = family(vocab_size=VOCAB)
    logits, variables = jax.eval_shape(
        lambda: model.init_with_output(jax.random.key(0), batch, train=False)
    )
    assert logits.shape == (BATCH, TARGET, VOCAB)
    table = "embedding_table" if "embedding_table" in variables["params"] else "output"
    assert variables["params"][table].shape[0] == VOCAB


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
    fields, defaults = config.model.to_dict(), family(vocab_size=VOCAB)
    assert {name: getattr(defaults, name) for name in fields} == fields
