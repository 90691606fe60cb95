"""Agents: step by step equals the whole trial."""

import jax
import numpy as np
import pytest

from models.agents import LSTMAgent, SnailAgent

B, T, WIDTH, A = 3, 11, 5, 7
AGENTS = {
    "snail": SnailAgent(A, T, hidden=13, blocks=(3, (5, 2), 2, (2, 3))),
    "lstm": LSTMAgent(A, T, hidden=13),
}


@pytest.mark.parametrize("name", AGENTS)
def test_step_by_step_equals_the_whole_trial(name, draw):
    agent, inputs = AGENTS[name], draw(B, T, WIDTH)
    init, apply = jax.jit(agent.init), jax.jit(agent.apply)
    variables = {"params": init(jax.random.key(0), inputs)["params"]}
    logits, value = apply(variables, inputs)
    assert logits.shape == (B, T, A) and value.shape == (B, T)
    step = jax.jit(lambda *x: agent.apply(variables, *x, method="step"))
    memory = agent.start(B)
    for t in range(T):
        memory, *outputs = step(memory, inputs[:, t])
        np.testing.assert_allclose(outputs[0], logits[:, t], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(outputs[1], value[:, t], rtol=1e-4, atol=1e-5)
