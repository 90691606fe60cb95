"""Intrinsic curiosity module (ICM): Pathak, Agrawal, Efros and Darrell (2017).

Section 2. An agent is rewarded for transitions that it cannot predict yet:

    a^_t = g(phi(s_t), phi(s_{t+1}))            inverse model, eq. 2
    phi^(s_{t+1}) = f(phi(s_t), a_t)            forward model, eq. 4
    L_I = -log p(a^_t = a_t)                    eq. 3
    L_F = 1/2 ||phi^(s_{t+1}) - phi(s_{t+1})||^2    eq. 5
    r^i_t = eta/2 ||phi^(s_{t+1}) - phi(s_{t+1})||^2    eq. 6
    loss = (1 - beta) L_I + beta L_F            eq. 7, without the policy's

The features phi are trained to tell which action was taken, so that they keep the part
of an observation that the agent can affect, and need not keep the rest. Both losses
train them, as in the authors' code; the reward has no gradient.

Differs from the paper: observations of any size, on grids with one frame and not four;
the policy's memory is optional. Eq. 7 weighs the policy's loss by 0.1. Policy and
curiosity module share no parameter, so with Adam such a factor has hardly any effect;
here it scales the policy's updates (`config.loss.policy`).

Axes: B batch; I, J rows and columns, C channels of an observation; D width of the
features; A actions.
"""

from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attention.fast.convolution import patches
from base.ranges import LAYERS, SIZE
from models.layers import Dense, check_fields


class Transition(NamedTuple):
    """Predictions of a transition.

    Attributes:
        features: [B, D], phi(s_{t+1}).
        predicted: [B, D], the same, predicted by the forward model.
        logits: [B, A] of the inverse model; None without one.
    """

    features: jax.Array
    predicted: jax.Array
    logits: jax.Array | None


def inverse_loss(logits: jax.Array, action: jax.Array) -> jax.Array:
    """Cross-entropy of the action that was taken, in nats, eq. 3.

    Args:
        logits: [..., A].
        action: int32 [...].

    Returns:
        [...].
    """
    log_probability = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(log_probability, action[..., None], -1)[..., 0]


def forward_loss(predicted: jax.Array, features: jax.Array) -> jax.Array:
    """Half of the squared distance between features, eq. 5.

    Args:
        predicted: [..., D].
        features: [..., D].

    Returns:
        [...].
    """
    return jnp.square(predicted - features).sum(-1) / 2


def intrinsic_reward(
    predicted: jax.Array, features: jax.Array, eta: float
) -> jax.Array:
    """Reward for a transition that was predicted badly, eq. 6; it has no gradient.

    Args:
        predicted: [..., D].
        features: [..., D].
        eta: scale of the reward.

    Returns:
        [...], at least 0.
    """
    return eta * jax.lax.stop_gradient(forward_loss(predicted, features))


def curiosity_loss(inverse: jax.Array, forward: jax.Array, beta: float) -> jax.Array:
    """Weighted sum of both losses, eq. 7: (1 - beta) L_I + beta L_F."""
    return (1 - beta) * inverse + beta * forward


class FeatureEncoder(nn.Module):
    """3 x 3 convolutions with a stride of 2, and ELU: section 3.2 of the paper.

    Attributes:
        layers: number of convolutions.
        filters: channels of each.
    """

    layers: int
    filters: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Computes features [B, D] from [B, I, J, C]."""
        for _ in range(self.layers):
            x = nn.elu(Dense(self.filters)(patches(x)))
        return x.reshape(len(x), -1)


class TwoLayers(nn.Module):
    """Two dense layers, the inverse model g (eq. 2) or the forward model f (eq. 4).

    Attributes:
        hidden: width between the layers.
    """

    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array, width: int) -> jax.Array:
        """Computes [B, width] from [B, C]."""
        hidden = nn.relu(Dense(self.hidden)(x))
        return Dense(width)(hidden)


class CuriousAgent(nn.Module):
    """Policy, and curiosity module with parameters of its own.

    `step` is that of a `tasks.common.policy.Policy`. An observation is a dict with an
    image [B, I, J, C].

    Attributes:
        actions: A.
        features: phi, the features of the intrinsic reward. "icm": trained by the
            inverse and the forward model; "pixels": the image itself, without an
            inverse model; "random": an encoder that is not trained (Burda et al., 2019,
            section 2.2); "none": no reward.
        layers: number of convolutions of each encoder; 4 in the paper, on 42 x 42
            pixels.
        filters: channels of each convolution; 32 in the paper.
        hidden: width of the memory, and of the hidden layer of each model.
        memory: memory of the agent: "lstm", as in the paper; "none" for a hidden layer.
    """

    actions: Annotated[int, SIZE]
    features: Literal["icm", "pixels", "random", "none"] = "icm"
    layers: Annotated[int, LAYERS] = 4
    filters: Annotated[int, SIZE] = 32
    hidden: Annotated[int, SIZE] = 256
    memory: Literal["lstm", "none"] = "lstm"

    def setup(self):
        check_fields(self)
        self.convolutions = FeatureEncoder(self.layers, self.filters)  # of the policy
        if self.memory == "lstm":
            self.cell = nn.OptimizedLSTMCell(self.hidden)
        else:
            self.layer = Dense(self.hidden)
        self.policy, self.value = Dense(self.actions), Dense(1)
        self.encoder = FeatureEncoder(self.layers, self.filters)
        self.inverse, self.forward = TwoLayers(self.hidden), TwoLayers(self.hidden)

    @nn.nowrap
    def start(self, batch: int) -> Any:
        """Returns the memory before the first step: cell and state [B, hidden]."""
        if self.memory == "none":
            return ()
        return jnp.zeros((batch, self.hidden)), jnp.zeros((batch, self.hidden))

    def step(self, memory: Any, observation: Any) -> tuple[Any, jax.Array, jax.Array]:
        """Returns the new memory, logits [B, A] and values [B] of a step."""
        x = self.convolutions(observation["image"])
        if self.memory == "lstm":
            memory, x = self.cell(memory, x)
        else:
            x = nn.elu(self.layer(x))
        return memory, self.policy(x), self.value(x)[:, 0]

    def phi(self, image: jax.Array) -> jax.Array:
        """Returns the features [B, D] of images [B, I, J, C]."""
        if self.features in ("pixels", "none"):
            return image.reshape(len(image), -1)
        features = self.encoder(image)
        return features if self.features == "icm" else jax.lax.stop_gradient(features)

    def transition(
        self, image: jax.Array, next_image: jax.Array, action: jax.Array
    ) -> Transition:
        """Predicts a transition, and the action that made it.

        Args:
            image: [B, I, J, C], s_t.
            next_image: [B, I, J, C], s_{t+1}.
            action: int32 [B], a_t.
        """
        phi, next_phi = self.phi(image), self.phi(next_image)  # [B, D]
        logits = None
        if self.features == "icm":
            # a^_t = g(phi(s_t), phi(s_{t+1}))
            logits = self.inverse(jnp.concatenate([phi, next_phi], -1), self.actions)
        taken = jax.nn.one_hot(action, self.actions)  # a_t
        # phi^(s_{t+1}) = f(phi(s_t), a_t)
        predicted = self.forward(jnp.concatenate([phi, taken], -1), phi.shape[-1])
        return Transition(next_phi, predicted, logits)
