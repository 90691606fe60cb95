import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_bahdanau
import test_luong
import test_seq2seq
from translators import quick_jit, sentences, shapes_of, translator

from models import recurrent, recurrent_translator
from models.bahdanau import Bahdanau
from models.luong import Luong
from models.seq2seq import Seq2Seq

ATTENTIVE = [(Bahdanau, test_bahdanau.PAPER), (Luong, test_luong.PAPER)]


def plain_scan(step, weights, shared, carry, inputs):
    def body(carry, x):
        return step(lambda x, name: x @ weights[name], shared, carry, x)

    return jax.lax.scan(body, carry, inputs)


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
    for module in (recurrent, recurrent_translator):
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
    [(Seq2Seq, test_seq2seq.SUTSKEVER, 0.08), (Luong, test_luong.PAPER, 0.1)],
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
