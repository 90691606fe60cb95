"""Adversarial training of a generator and a discriminator.

Zhang et al. (2019), section 4: the hinge loss (eq. 4), two learning rates, one step of
each network in turn; or the log loss of Goodfellow et al. (2014). A discriminator with
batch norm normalises real and generated images separately.

Differs from the authors' code, which generates new images for each update: here both
updates of a step use the same generated batch. The discriminator is updated on it and
an equal number of real images, then the generator through the updated discriminator.

The models are Flax modules (see `models.sagan`) with `apply(variables, noise or image,
label, train=...)` and state in the collections "batch_stats" and "spectral".

Axes: B batch; I, J image rows and columns; Z width of the noise.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.core import FrozenDict

from training import parallel, sharding
from training.objective import Objective
from training.state import Metrics, TrainState

_COLLECTIONS = ("batch_stats", "spectral")
Params = dict[str, Any]


class AdversarialLoss(NamedTuple):
    """Losses of both networks, per image, as functions of the logits.

    Attributes:
        real: the discriminator's loss on real images.
        fake: the discriminator's loss on generated images.
        generator: the generator's loss on generated images.
    """

    real: Callable[[jax.Array], jax.Array]
    fake: Callable[[jax.Array], jax.Array]
    generator: Callable[[jax.Array], jax.Array]


LOSSES = {
    "hinge": AdversarialLoss(
        real=lambda x: jax.nn.relu(1 - x),
        fake=lambda x: jax.nn.relu(1 + x),
        generator=lambda x: -x,
    ),
    "log": AdversarialLoss(  # non-saturating: Goodfellow et al., section 3
        real=lambda x: jax.nn.softplus(-x),
        fake=jax.nn.softplus,
        generator=lambda x: jax.nn.softplus(-x),
    ),
}


class Adversarial(Objective):
    """Alternating steps of a generator and a discriminator.

    `TrainState.params` and `opt_state` have the entries "generator" and
    "discriminator". `TrainState.extra` has `variables`, the batch statistics and
    spectral estimates of each network, and `average`, the moving average of the
    generator's parameters.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Mapping[str, optax.GradientTransformation],
        loss: AdversarialLoss,
        *,
        latent_size: int,
        size: int,
        average_decay: Callable[[jax.Array], jax.Array],
        measure: Callable[[Params], dict[str, jax.Array]] = lambda params: {},
    ):
        """Creates the objective.

        Args:
            models: Flax modules by name, "generator" and "discriminator".
            optimizers: optimizer of each model, by the same names.
            loss: an entry of `LOSSES`.
            latent_size: Z, width of the noise.
            size: I = J, pixels per side.
            average_decay: decay of the generator's moving average, in [0, 1), as a
                function of the step count.
            measure: function from the parameters to metrics by name.
        """
        self.models, self.optimizers, self.loss = models, optimizers, loss
        self.latent_size, self.size = latent_size, size
        self.average_decay, self.measure = average_decay, measure

    def init(self, rng: jax.Array) -> TrainState:
        """Returns the state before the first step."""
        label = jnp.zeros(1, jnp.int32)
        blank = {
            "generator": jnp.zeros((1, self.latent_size)),
            "discriminator": jnp.zeros((1, self.size, self.size, 3)),
        }
        params, variables = {}, {}
        for number, (name, model) in enumerate(self.models.items()):
            model_rng = jax.random.fold_in(rng, number)
            created = model.init(model_rng, blank[name], label, train=True)
            params[name] = created["params"]
            variables[name] = {n: created[n] for n in _COLLECTIONS if n in created}
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            params=params,
            opt_state={n: opt.init(params[n]) for n, opt in self.optimizers.items()},
            extra={
                "variables": variables,
                "average": jax.tree.map(jnp.copy, params["generator"]),
            },
        )

    def step(
        self, state: TrainState, batch: dict[str, jax.Array], rng: jax.Array
    ) -> tuple[TrainState, Metrics]:
        """Takes one step of the discriminator, then one of the generator.

        Args:
            state: the state before the step.
            batch: `image` uint8 [B, I, J, 3] and `label` int32 [B].
            rng: a PRNG key for this step only.

        Returns:
            See `Objective.step`.
        """
        label, params = batch["label"], dict(state.params)
        variables, opt_state = dict(state.extra["variables"]), dict(state.opt_state)
        real = batch["image"].astype(jnp.float32) / 127.5 - 1
        noise = self.sample(rng, label)
        fake, back, variables["generator"] = jax.vjp(
            lambda p: self.apply("generator", p, variables, noise, label),
            params["generator"],
            has_aux=True,
        )
        grads, variables["discriminator"], sums = self._discriminate(
            params, variables, real, fake, label
        )
        params, opt_state = self._descend(
            "discriminator", params, opt_state, grads, sums["count"]
        )

        def generator_loss(fake):
            p = params["discriminator"]
            logits, _ = self.apply("discriminator", p, variables, fake, label)
            return jnp.sum(self.loss.generator(logits))

        value, gradient = jax.value_and_grad(generator_loss)(fake)
        grads, value = parallel.psum((back(gradient)[0], value))
        params, opt_state = self._descend(
            "generator", params, opt_state, grads, sums["count"]
        )
        average = optax.incremental_update(
            params["generator"],
            state.extra["average"],
            1 - self.average_decay(state.step),
        )
        metrics = {
            "loss": (sums["loss"], sums["count"]),
            "loss_real": (sums["real"], sums["count"]),
            "loss_fake": (sums["fake"], sums["count"]),
            "loss_generator": (value, sums["count"]),
        }
        metrics |= {n: (x, jnp.ones(())) for n, x in self.measure(params).items()}
        extra = {"variables": variables, "average": average}
        return TrainState(state.step + 1, params, opt_state, extra), metrics

    def average(self, state: TrainState) -> dict[str, Any]:
        """Returns the generator's variables, with averaged parameters."""
        extra = state.extra
        return {"params": extra["average"], **extra["variables"]["generator"]}

    def sample(self, rng: jax.Array, label: jax.Array) -> jax.Array:
        """Samples the noise z [B, Z] for images of classes [B]."""
        return jax.random.normal(rng, (len(label), self.latent_size))

    def apply(
        self,
        name: str,
        params: Params,
        variables: Mapping[str, Params],
        x: jax.Array,
        label: jax.Array,
    ) -> tuple[jax.Array, FrozenDict | Params]:
        """Applies a network in training mode.

        Args:
            name: "generator" or "discriminator".
            params: parameters of this network.
            variables: variables of both networks, by name.
            x: [B, Z] noise or [B, I, J, 3] images in [-1, 1].
            label: int32 [B] classes.

        Returns:
            Images [B, I, J, 3] or logits [B], and the new variables of this network.
        """
        return self.models[name].apply(
            {"params": sharding.all_gather(params), **variables[name]},
            x,
            label,
            train=True,
            mutable=list(variables[name]),
        )

    def _discriminate(self, params, variables, real, fake, label):
        """Returns the discriminator's gradients, new variables and batch sums.

        Real and fake images form one batch; with batch norm, two.
        """
        parts = [(real, label), (fake, label)]
        if "batch_stats" not in variables["discriminator"]:
            parts = [jax.tree.map(lambda *x: jnp.concatenate(x), *parts)]

        def loss(p):
            new, logits = dict(variables), []
            for x, classes in parts:
                out, new["discriminator"] = self.apply(
                    "discriminator", p, new, x, classes
                )
                logits.append(out)
            on_real, on_fake = jnp.split(jnp.concatenate(logits), 2)
            losses = jnp.sum(self.loss.real(on_real)), jnp.sum(self.loss.fake(on_fake))
            return sum(losses), (new["discriminator"], losses)

        (value, (new, losses)), grads = jax.value_and_grad(loss, has_aux=True)(
            params["discriminator"]
        )
        sums = {"loss": value, "real": losses[0], "fake": losses[1]}
        sums["count"] = jnp.asarray(len(label), jnp.float32)
        sums, grads = parallel.psum((sums, grads))
        return grads, new, sums

    def _descend(self, name, params, opt_state, grads, count):
        """Updates one network with the gradient of its mean loss."""
        grads = jax.tree.map(lambda g: g / count, grads)
        updates, new = self.optimizers[name].update(
            grads, opt_state[name], params[name]
        )
        moved = optax.apply_updates(params[name], updates)
        return params | {name: moved}, opt_state | {name: new}
