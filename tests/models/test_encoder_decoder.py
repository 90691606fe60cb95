"""Properties of all encoder-decoders: steps, padding, causality, dropout, fields."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fields import (
    BAHDANAU,
    CASES,
    CHO,
    EMBEDDING,
    HIDDEN,
    LUONG,
    SUTSKEVER,
    TRANSFORMER,
    UNITS,
    VINYALS,
    XU,
)
from translators import (
    BATCH,
    SOURCE,
    TARGET,
    VOCAB,
    check_a_field_is_refused,
    check_dropout_needs_its_stream_and_changes_with_it,
    check_dropout_sites,
    check_no_later_token_changes_earlier_logits,
    check_padding_changes_nothing,
    check_steps_equal_the_full_pass,
    forward_with_records,
    initial,
    overfit,
    plain_scan,
    quick_jit,
    shapes_of,
    translator,
)

from models import cells, encoder_decoder
from models.bahdanau import Bahdanau
from models.captioner import ShowAndTell, ShowAttendTell
from models.luong import Luong
from models.pointer import PointerNetwork
from models.seq2seq import Seq2Seq
from models.transformer import Transformer

TEXTS = [name for name in CASES if not name.startswith(("xu", "vinyals", "chan"))]


@pytest.mark.parametrize("name", CASES)
def test_steps_along_beams_equal_the_full_pass(name):
    check_steps_equal_the_full_pass(*translator(*CASES[name]), hypotheses=3)


@pytest.mark.parametrize("name", [x for x in TEXTS if x != "transformer"])
def test_padding_changes_nothing(name):
    check_padding_changes_nothing(*translator(*CASES[name]))


@pytest.mark.parametrize("name", CASES)
def test_a_later_target_token_changes_no_earlier_logits(name):
    check_no_later_token_changes_earlier_logits(*translator(*CASES[name]))


# Cases with the parameters of another one.
SAME_PARAMETERS = {
    "bahdanau, local-m",
    "chan, location-aware",
    "luong, location-aware",
    "vinyals, cnn",
    "xu, location-aware",
}


@pytest.mark.parametrize("name", sorted(CASES.keys() - SAME_PARAMETERS))
def test_every_parameter_changes_the_logits(name):
    model, variables, batch = translator(*CASES[name])

    def loss(variables):
        return jnp.sin(model.apply(variables, batch, train=False)).sum()

    gradients = quick_jit(jax.grad(loss))(variables)
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        assert np.isfinite(gradient).all() and np.any(gradient), path


@pytest.mark.parametrize(
    ("name", "fields"),
    [("bahdanau", {}), ("luong", {"layers": 1}), ("sutskever", {"layers": 1})]
    + [(name, {}) for name in ("cho", "xu", "vinyals", "chan")],
)
def test_it_overfits_one_batch(name, fields):
    family, defaults = CASES[name]
    losses = overfit(family(**defaults | fields))
    assert losses[0] > 1.5 and losses[-1] < 0.05


@pytest.mark.parametrize(("name", "delay"), [("bahdanau", 1), ("luong", 0)])
def test_the_query_is_the_state_before_or_after_the_previous_token(name, delay):
    """Token t - 1 is an input of step t; Bahdanau attends to it from step t + 1 on."""
    model, variables, batch = translator(*CASES[name])
    _, records = forward_with_records(model, variables, batch)
    for t in range(1, TARGET):
        target = batch["target"].at[:, t - 1].set(9)
        _, changed = forward_with_records(model, variables, dict(batch, target=target))
        change = np.abs(changed["weights"] - records["weights"])[:2, 0].max((0, 2))
        assert not np.any(change[: t + delay])
        assert (change[t + delay : t + delay + 1] > 1e-5).all()


SOURCES = (BATCH, SOURCE, EMBEDDING)
TARGETS = (BATCH, TARGET, EMBEDDING)


@pytest.mark.parametrize(
    ("family", "fields", "sites"),
    [
        (
            Bahdanau,
            BAHDANAU | {"encoder_layers": 3},
            {SOURCES: 1, (BATCH, SOURCE, 2 * HIDDEN): 2, TARGETS: 1}
            | {(BATCH, TARGET, UNITS): 1},
        ),
        *(
            (
                Luong,
                LUONG | {"bidirectional": sides == 2, "layers": 3},
                {SOURCES: 1, (BATCH, SOURCE, sides * HIDDEN): 2, TARGETS: 1}
                # A mask per step and layer, none over time: Zaremba et al. (2014).
                | {(TARGET, BATCH, 1, 2 * HIDDEN): 1, (BATCH, TARGET, HIDDEN): 1},
            )
            for sides in (1, 2)
        ),
        *(
            (
                Seq2Seq,
                fields | {"layers": layers},
                {SOURCES: 1, (BATCH, SOURCE, HIDDEN): layers - 1, TARGETS: 1}
                | {(TARGET, BATCH, 1, (layers - 1) * HIDDEN): 1}
                | {(BATCH, TARGET, fields["maxout"] or HIDDEN): 1},
            )
            for fields, layers in ((SUTSKEVER, 3), (CHO, 2))
        ),
        # Of the annotations, the previous word, the state and the deep output.
        *(
            (family, fields, {(BATCH, 6, 7): 1, TARGETS: 2, (BATCH, TARGET, HIDDEN): 1})
            for family, fields in ((ShowAttendTell, XU), (ShowAndTell, VINYALS))
        ),
        # Of the embeddings and the output of each sub-layer.
        *(
            (
                Transformer,
                TRANSFORMER | {"norm": norm},
                {(BATCH, SOURCE, 12): 1 + 2 * 2, (BATCH, TARGET, 12): 1 + 3 * 3},
            )
            for norm in ("post", "pre")
        ),
    ],
)
def test_dropout_applies_to_its_sites_and_needs_its_stream(family, fields, sites):
    case = translator(family, fields, {"dropout": 0.25})
    check_dropout_sites(*case, sites)
    check_dropout_needs_its_stream_and_changes_with_it(*case)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "bahdanau",
            {"score": "dto"},
            "score is 'dto': must be one of dot, scaled_dot",
        ),
        ("sutskever", {"first_state": "zero"}, "fed_steps is 'none': must be 'all' if"),
        ("sutskever", {"summary": "tanh"}, "first_state is 'vector': must be layer or"),
        (
            "sutskever",
            {"summary": "tanh", "first_state": "layer", "init_scheme": "paper"},
            "init_scheme is 'paper': must be 'standard' if summary is 'tanh'",
        ),
        (
            "transformer",
            {"heads": 5},
            "heads is 5: must be a divisor of d_model, which is 12",
        ),
        (
            "transformer",
            {"positions": "rotary", "heads": 4},
            "^heads is 4: must be of even width with rotary pos",
        ),
        (
            "vinyals",
            {"channels": ()},
            r"channels is \(\): must be a list of one or more widths",
        ),
        (
            "chan",
            {"halvings": 3},
            "^halvings is 3: must be less than listener_layers=3",
        ),
        (
            "chan",
            {"alignment": "hard"},  # needs REINFORCE
            "^alignment is 'hard': must be one of global, local_m, local_p, gumbel",
        ),
    ],
)
def test_a_field_out_of_range_is_refused(name, changes, message):
    family, fields = CASES[name]
    check_a_field_is_refused(family, fields | changes, message)


@pytest.mark.parametrize(
    ("family", "fields", "alignment"),
    [(Bahdanau, BAHDANAU, "hard"), (Luong, LUONG, "gumbel")],
)
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
    [(Seq2Seq, SUTSKEVER, 0.08), (Luong, LUONG, 0.1), (PointerNetwork, {}, 0.08)],
)
def test_the_paper_s_init_is_uniform_in_its_range(family, fields, limit):
    model = family(**fields | {"init_scheme": "paper"})
    params = initial(model)
    assert jax.tree.structure(params) == jax.tree.structure(shapes_of(model))
    for path, values in jax.tree_util.tree_leaves_with_path(params):
        maximum = np.abs(values).max()
        if path[-1].key == "bias":
            assert maximum == 0, path
        else:
            assert 0.5 * limit < maximum <= limit, path


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
