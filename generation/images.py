"""Image generation with a trained generator, in batches of constant size.

Axes: B images of a batch; N requested images; I, J rows and columns; K, L rows and
columns of the keys' map; Z width of the noise.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from base import spread
from base.records import DETAILS, AttentionRecord, records_of
from generation.types import Module


class ImageGenerator:
    """Generates images and attention maps with a trained generator."""

    def __init__(
        self,
        model: Module,
        sample: Callable[[jax.Array, jax.Array], jax.Array],
        batch_size: int,
    ):
        """Stores the arguments; compiles on first use.

        Args:
            model: a class-conditional generator: `apply(variables, noise [B, Z], label
                [B], train=False)` returns images [B, I, J, 3] in [-1, 1].
            sample: (rng, label [B]) -> noise [B, Z].
            batch_size: B.
        """
        self._model, self._sample, self._batch_size = model, sample, batch_size
        self._jit_generate = jax.jit(self._generate, static_argnums=3)

    def images(
        self, variables: Mapping[str, Any], labels: np.ndarray, seed: int
    ) -> np.ndarray:
        """Returns generated images, uint8 [N, I, J, 3].

        Args:
            variables: the model's parameters and other collections.
            labels: int [N] classes.
            seed: seed of the noise.
        """
        size, rng = self._batch_size, jax.random.key(seed)

        def generate(number: int) -> np.ndarray:
            start = number * size
            part = np.resize(labels[start : start + size], size)
            key = jax.random.fold_in(rng, number)
            return np.asarray(self._jit_generate(variables, part, key, False)[0])

        parts = spread.each(generate, range(-(-len(labels) // size)))
        return np.concatenate(parts)[: len(labels)]

    def attention(
        self, variables: Mapping[str, Any], labels: np.ndarray, seed: int
    ) -> tuple[np.ndarray, list[AttentionRecord]]:
        """Returns a batch of generated images with their attention records.

        The arguments are those of `images`; the labels are repeated to fill the batch.

        Returns:
            Images, uint8 [B, I, J, 3], and records with weights [B, I, J, K, L].
        """
        part = np.resize(labels, self._batch_size)
        outputs = self._jit_generate(variables, part, jax.random.key(seed), True)
        return jax.device_get(outputs)

    def _generate(
        self,
        variables: Mapping[str, Any],
        label: jax.Array,
        rng: jax.Array,
        attention: bool,
    ) -> tuple[jax.Array, list[AttentionRecord]]:
        images, sown = self._model.apply(
            variables,
            self._sample(rng, label),
            label,
            train=False,
            mutable=["attention", DETAILS] if attention else [],
        )
        images = jnp.round((images + 1) * 127.5).astype(jnp.uint8)
        return images, records_of(sown, AttentionRecord)
