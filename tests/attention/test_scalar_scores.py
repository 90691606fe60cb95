"""A score with a learned number works in every kind of model, by config fields."""

import jax
import numpy as np
import pytest

from attention.declaration import Scalar
from attention.scores import SCORES
from training import configuration
from training.task import create

FIELDS = {
    "bahdanau_nmt": ["score"],
    "transformer_nmt": ["encoder_score", "decoder_score", "cross_score"],
    "pointer_sorting": ["score"],
    "memory_network_qa": ["score"],
}


def scalars(name):
    declared = SCORES[name].parameters.items()
    return {parameter for parameter, axes in declared if isinstance(axes, Scalar)}


@pytest.mark.parametrize("config", FIELDS)
@pytest.mark.parametrize("name", [name for name in SCORES if scalars(name)])
def test_a_learned_number_has_a_gradient_in_every_model(name, config, tmp_path):
    overrides = [f"model.{field}={name}" for field in FIELDS[config]]
    task = create(
        configuration.read(f"configs/{config}.py:smoke", overrides),
        tmp_path,
        training=True,
    )
    batch, rng = task.train_data()[0], jax.random.key(0)

    @jax.jit
    def loss_and_gradients():
        state = task.objective.init(rng)

        def loss(params):
            total, (count, _) = task.objective.loss(params, batch, rng, state)
            return total / count

        return jax.value_and_grad(loss)(state.params)

    loss, gradients = loss_and_gradients()
    assert np.isfinite(loss)
    leaves = jax.tree_util.tree_leaves_with_path(gradients)
    assert all(np.isfinite(gradient).all() for _, gradient in leaves)
    learned = [g for path, g in leaves if path[-1].key in scalars(name)]
    assert len(learned) >= len(scalars(name)) * len(FIELDS[config])
    assert all(np.all(gradient) for gradient in learned)
