import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import translators
from fields import TRANSFORMER as SMALL
from translators import (
    BATCH,
    SOURCE,
    TARGET,
    check_padding_changes_nothing,
    check_steps_equal_the_full_pass,
    encode,
    forward,
    quick_jit,
    translator,
)

from attention.scores import SCORES
from base.records import AttentionRecord, records_of
from configs import transformer_nmt
from models.transformer import Residual, Transformer


def build(**changes):
    return translator(Transformer, SMALL, changes)


def parameter_count(**changes):
    model = Transformer(**SMALL | dict(vocab_size=37_000) | changes)
    return translators.parameter_count(model)


def variant_count(variant):
    """Number of parameters of a variant of the config, after a check by a formula."""
    config = transformer_nmt.get_config(variant)
    model = config.model
    d, f, vocab_size = model.d_model, model.d_ff, config.data.vocab_size
    feed_forward = 2 * d * f + f + d
    encoder = 4 * d * d + feed_forward + 2 * 2 * d
    decoder = 8 * d * d + feed_forward + 3 * 2 * d
    count = parameter_count(**model.to_dict(), vocab_size=vocab_size)
    expected = model.encoder_layers * encoder + model.decoder_layers * decoder
    assert count == expected + vocab_size * d
    return count


def test_base_and_big_have_the_parameter_counts_of_the_paper():
    # Sections 3.1-3.4, without biases in the attention projections.
    assert round(variant_count("base") / 1e6, 1) == 63.0
    assert round(variant_count("big") / 1e6, 1) == 214.2
    defaults = Transformer(vocab_size=37_000)
    fields = transformer_nmt.get_config("base").model.to_dict()
    assert {name: getattr(defaults, name) for name in fields} == fields
    # Source, target and output share one matrix.
    apart = parameter_count(share_embeddings=False)
    assert apart - parameter_count() == 2 * 37_000 * SMALL["d_model"]


def test_relative_tables_have_the_size_of_shaw():
    # 12 self-attentions, keys and values, 8 heads of width 64, 33 distances (k = 16).
    sizes = dict(d_model=512, d_ff=1024, heads=8, encoder_layers=6, decoder_layers=6)
    plain = parameter_count(**sizes)
    relative = parameter_count(**sizes, positions="relative", max_distance=16)
    assert relative - plain == 405_504


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative", "rotary"])
def test_padding_changes_nothing(positions):
    check_padding_changes_nothing(*build(positions=positions))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative", "rotary"])
def test_sentences_packed_into_a_row_do_not_affect_each_other(positions):
    model, variables, _ = build(positions=positions)
    pairs = [([5, 6, 7, 2], [8, 9, 2]), ([9, 2], [4, 5, 6, 2]), ([11, 4, 2], [7, 2])]

    def logits(source, target, pad=0):
        batch = {"source": source + [0] * pad, "target": target + [0] * pad}
        batch = {name: jnp.asarray([row]) for name, row in batch.items()}
        return forward(model, variables, batch)[0]

    separate = np.concatenate([logits(source, target) for source, target in pairs])
    sources, targets = (
        [token for sentence in side for token in sentence]
        for side in zip(*pairs, strict=True)
    )
    packed = logits(sources, targets, pad=2)[: len(targets)]
    np.testing.assert_allclose(packed, separate, atol=1e-5)


def test_rows_of_padding_have_a_finite_gradient_of_zero():
    model, variables, batch = build()
    weights = (batch["target"] != 0).astype(jnp.float32)

    def loss(variables, batch, weights):
        logits = model.apply(variables, batch, train=False)
        return jnp.sum(weights[..., None] * jax.nn.log_softmax(logits))

    gradient = quick_jit(jax.grad(loss))
    expected = gradient(variables, batch, weights)
    padded = {name: jnp.pad(x, ((0, 2), (0, 0))) for name, x in batch.items()}
    actual = gradient(variables, padded, jnp.pad(weights, ((0, 2), (0, 0))))
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4, rtol=1e-4)  # another order of sums


@pytest.mark.parametrize("positions", ["none", "relative"])
def test_the_encoder_without_positions_is_permutation_equivariant(positions):
    # With k = 0, all distances share one vector, which has no information on order.
    model, variables, batch = build(positions=positions, max_distance=0)
    order = np.random.default_rng(1).permutation(SOURCE)

    def keys(source):
        return encode(model, variables, source).layers[0].key

    source = batch["source"][:1]
    np.testing.assert_allclose(
        keys(source[:, order]), keys(source)[:, :, order], atol=1e-5
    )
    model, variables, batch = build()
    difference = keys(source[:, order]) - keys(source)[:, :, order]
    assert np.abs(difference).max() > 1e-2


@pytest.mark.parametrize(
    ("norm", "positions"),
    [
        ("pre", "sinusoidal"),
        ("pre", "learned"),
        ("post", "relative"),
        ("pre", "rotary"),
    ],
)
def test_cached_steps_along_beams_equal_the_full_pass(norm, positions):
    check_steps_equal_the_full_pass(
        *build(norm=norm, positions=positions), hypotheses=3
    )


@pytest.mark.parametrize("alignment", ["local_m", "local_p", "hard"])
def test_cached_steps_equal_the_full_pass_with_any_cross_alignment(alignment):
    case = build(cross_alignment=alignment, window=1)
    check_steps_equal_the_full_pass(*case, hypotheses=3)


@pytest.mark.parametrize("score", sorted(SCORES.keys() - {"concat"}))
def test_every_score_works_in_all_three_attentions_and_in_the_cache(score):
    model, variables, batch = build(
        encoder_score=score,
        decoder_score=score,
        cross_score=score,
        encoder_layers=1,
        decoder_layers=1,
    )
    check_steps_equal_the_full_pass(model, variables, batch, hypotheses=3)


def test_every_attention_sows_weights_that_sum_to_one():
    model, variables, batch = build()
    sown = quick_jit(
        lambda: model.apply(variables, batch, train=False, mutable=["attention"])[1]
    )()
    records = records_of(sown, AttentionRecord)
    assert [(r.kind, r.layer, r.queries, r.keys) for r in records] == [
        *(("cross", layer, "target", "source") for layer in range(3)),
        *(("decoder", layer, "previous", "previous") for layer in range(3)),
        *(("encoder", layer, "source", "source") for layer in range(2)),
    ]
    sizes = {"source": SOURCE, "target": TARGET, "previous": TARGET}
    for record in records:
        queries, keys = sizes[record.queries], sizes[record.keys]
        weights = record.weights
        assert weights.shape == (BATCH, 3, queries, keys)
        assert record.position is None
        mask = (batch["target"] if queries == TARGET else batch["source"]) != 0
        sums = jnp.moveaxis(weights.sum(-1), 1, -1)[mask]
        np.testing.assert_allclose(sums, 1, atol=1e-5)
        if keys == SOURCE:  # weights of the unmasked queries on the padding of source 1
            assert not np.any(weights[1, :, :4, 4:])


def test_bfloat16_keeps_float32_parameters_and_logits():
    model, variables, batch = build(dtype="bfloat16")
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(variables))
    logits = forward(model, variables, batch)
    assert logits.dtype == jnp.float32
    exact = forward(Transformer(**SMALL), variables, batch)
    # bfloat16 has 8 significant bits.
    np.testing.assert_allclose(logits, exact, atol=0.1 * np.abs(exact).max())


def test_a_residual_drops_the_sub_layer_s_output_and_never_its_input(draw):
    residual = Residual("pre", 0.5)
    x, y = draw(BATCH, TARGET, 13), draw(BATCH, TARGET, 13)
    variables = residual.init(jax.random.key(0), x, method="before")
    output = functools.partial(residual.apply, variables, x, y, method="after")
    added = output(train=True, rngs={"dropout": jax.random.key(1)}) - x
    is_zero = np.asarray(added == 0)
    assert 0.3 < is_zero.mean() < 0.7
    np.testing.assert_allclose(added[~is_zero], 2 * y[~is_zero], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(output(train=False), x + y)
