"""Rate of float32 matrix products under XLA.

MODE is "M,K,N": [M, K] @ [K, N]; the units are GFLOP.
"""

import jax
import jax.numpy as jnp

REPEATS = 20  # products per step, long enough to time


def build(mode: str, spec: dict):
    """Returns a step of products of one size, and the version of jax."""
    m, k, n = (int(size) for size in mode.split(","))
    a, b = jnp.ones((m, k)), jnp.ones((k, n))
    product = jax.jit(jnp.matmul)

    def step() -> float:
        for _ in range(REPEATS):
            product(a, b).block_until_ready()
        return REPEATS * 2e-9 * m * k * n

    return step, {"versions": {"jax": jax.__version__}}
