"""Policy gradients: advantage actor-critic (A2C) and proximal policy optimization.

The objective of agents that act. An update runs the policy in B environments for T
steps inside of the jitted step, estimates the advantage of each action by GAE, and
takes `config.loss.epochs` steps of the optimizer along the gradient of

    sum_t min(r_t A_t, clip(r_t, 1 - c, 1 + c) A_t)     Schulman et al. (2017), eq. 7
        - value (V(o_t) - R_t)^2 / 2 + entropy H(pi(. | o_t))

with r_t the ratio of the probability of action t to that in the rollout, and R_t the
sum of A_t and V(o_t) in the rollout. In the first epoch r_t = 1, and the gradient is
that of A2C (Mnih et al. 2016), A_t grad log pi; with one epoch, the objective is A2C.

*   An `Environment` is a pair of pure functions of single environments, without a batch
    axis. `PolicyGradient` maps them over the batch. State and observation are pytrees
    of arrays (PRNG keys as their data, so that a checkpoint can store them).
*   A policy is a Flax module with the methods of `Policy`.
*   `seed_batches` are the training data: element i is the seeds of update i, which all
    random numbers of its rollouts depend on. So a run resumes bit for bit if its
    environments are pure functions, and any number of devices runs the same ones.
*   `environments=0`: each update starts B new environments and runs them for T steps;
    what would follow is ignored. The loss applies the policy to whole sequences.
*   `environments=B`: environments go on from update to update; they and the memories
    of the policy are in `TrainState.extra`. One that is done is reset, together with
    its memory. The loss applies the policy step by step.
*   `Auxiliary` is a module with parameters of its own; for a rollout, it returns a
    reward that is added to the environment's, such as one for curiosity, and a loss.

`TrainState.params` is {"policy": ..., "auxiliary": ...}.

Axes: B environments; T steps of a rollout; A actions; ... axes of an observation.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from base.errors import UserError, one_line, parse_whole
from base.fields import Fields
from base.ranges import LAYERS, POSITIVE, PROBABILITY, WEIGHT
from tasks.common.batches import EndlessBatches
from training import parallel, sharding
from training.objective import Objective
from training.state import LossResult, Metrics, TrainState, gradients


class PolicyLoss(Fields):
    """`config.loss` of agents that act."""

    discount: Annotated[float, PROBABILITY] = 0.99  # gamma, the discount of rewards
    trace: Annotated[float, PROBABILITY] = 0.95  # lambda of advantage estimates (GAE)
    # Optimizer steps per rollout: 1 for A2C, more for PPO.
    epochs: Annotated[int, LAYERS] = 1
    # c, by which PPO lets the ratio of policies differ from 1; no effect in the first
    # epoch.
    clip: Annotated[float, POSITIVE] = 0.2
    value: Annotated[float, WEIGHT] = 0.5  # weight of the loss of the value
    entropy: Annotated[float, WEIGHT] = 0.01  # weight of the entropy of the policy
    # Factor of the environment's reward; 0 for curiosity alone.
    reward: Annotated[float, WEIGHT] = 1.0
    # Whether advantages are scaled to mean 0 and variance 1 in the batch.
    normalize: bool = True


class Environment(NamedTuple):
    """A single environment, as pure functions."""

    # `reset(rng) -> (state, observation)`
    reset: Callable[[jax.Array], tuple[Any, Any]]
    # `step(state, action, rng) -> (state, observation, reward, done)`; reward is
    # a float scalar, done a bool scalar. No value is expected after `done`.
    step: Callable[..., tuple[Any, Any, jax.Array, jax.Array]]
    actions: int  # A


class Policy(Protocol):
    """The methods of a policy, a Flax module."""

    def start(self, batch: int) -> Any:
        """Returns memories before the first step, [B, ...]; needs no parameters."""

    def step(self, memory: Any, observation: Any) -> tuple[Any, jax.Array, jax.Array]:
        """Returns the new memory, logits [B, A] and values [B] of a step."""

    def __call__(self, observation: Any) -> tuple[jax.Array, jax.Array]:
        """Returns logits [B, T, A] and values [B, T], as `step` from the start would.

        Called only with `environments=0`.
        """


class Rollout(NamedTuple):
    """Steps of B environments."""

    observation: Any  # [B, T, ...] before the action
    action: jax.Array  # int32 [B, T]
    reward: jax.Array  # [B, T], of the environment
    done: jax.Array  # bool [B, T], True at the last step of an episode
    following: Any  # [B, T, ...] observation after the action, before a reset
    log_probability: jax.Array  # [B, T], of the action
    value: jax.Array  # [B, T], expected by the policy


class Running(NamedTuple):
    """Environments between two steps: state, observation and memory, [B, ...]."""

    state: Any
    observation: Any
    memory: Any


class Auxiliary(NamedTuple):
    """A reward and a loss that a module makes of a rollout."""

    init: Callable[[jax.Array, Any], Any]  # `init(rng, observation [B, ...]) -> params`
    # `apply(params, rollout) -> (reward [B, T], loss [B, T], metrics)`. The
    # reward is added to that of the environment without a gradient; the loss is
    # added to that of the policy; metrics are {name: (sum, count)}.
    apply: Callable[[Any, Rollout], tuple[jax.Array, jax.Array, Metrics]]


def seed_batches(batch_size: int, seed: int) -> EndlessBatches:
    """Returns training batches {"seed": uint32 [B, 2]} of `seeds`."""
    return EndlessBatches(
        lambda rng, index, rows: {"seed": seeds(rng, batch_size, rows)},
        batch_size,
        seed,
    )


def seeds(
    rng: np.random.Generator, count: int, rows: np.ndarray | slice = slice(None)
) -> np.ndarray:
    """Returns rows of the seeds of `count` environments, uint32 [B, 2]."""
    return rng.integers(0, 2**32, (count, 2), np.uint32)[rows]


def parse_seed(line: str, name: str = "") -> tuple[str, np.ndarray]:
    """Returns the name and the seed, uint32 [2], of a line `NAME<tab>SEED`.

    Raises:
        UserError: for another line, or another name if one is given.
    """
    given, _, text = line.partition("\t")
    try:
        seed = np.array([0, parse_whole(text.strip())], np.uint32)
        if name not in ("", given.strip()):
            raise ValueError
    except (ValueError, OverflowError):
        raise UserError(
            f"{one_line(line)} must be {name or 'an environment'}, a tab and a seed "
            f"below {2**32}"
        ) from None
    return given.strip(), seed


def step_keys(seed: jax.Array, horizon: int) -> jax.Array:
    """Returns PRNG keys [B, T + 1], for a reset and T steps, of seeds [B, 2]."""
    keys = jax.random.wrap_key_data(jnp.asarray(seed), impl="threefry2x32")
    return jax.vmap(lambda x: jax.random.split(x, horizon + 1))(keys)


def advantages(
    reward: jax.Array,
    value: jax.Array,
    done: jax.Array,
    last: jax.Array,
    *,
    discount: float,
    trace: float,
) -> jax.Array:
    """Generalized advantage estimation: Schulman et al. (2016), eq. 16.

    A_t = sum_k (discount trace)^k delta_{t+k}, up to the end of the episode, with
    delta_t = r_t + discount V_{t+1} - V_t.

    Args:
        reward: [B, T].
        value: [B, T], V_t.
        done: bool [B, T], True at the last step of an episode.
        last: [B], the value after the last step; without effect if that is done.
        discount: gamma.
        trace: lambda; 0 for one step, 1 for all rewards of the rollout.

    Returns:
        [B, T].
    """
    goes_on = 1.0 - done  # [B, T]
    following = jnp.concatenate([value[:, 1:], last[:, None]], 1)
    delta = reward + discount * goes_on * following - value

    def back(advantage, step):
        delta, goes_on = step
        advantage = delta + discount * trace * goes_on * advantage
        return advantage, advantage

    steps = delta.T, goes_on.T  # [T, B]
    return jax.lax.scan(back, jnp.zeros_like(last), steps, reverse=True)[1].T


def surrogate(
    log_probability: jax.Array, old: jax.Array, advantage: jax.Array, clip: float
) -> jax.Array:
    """Clipped objective of PPO, to be maximised: Schulman et al. (2017), eq. 7.

    Where both probabilities are equal, its gradient is A grad log pi.

    Args:
        log_probability: [B, T] of the actions.
        old: [B, T], the same in the rollout.
        advantage: [B, T].
        clip: maximum change of the ratio that is rewarded.

    Returns:
        [B, T].
    """
    ratio = jnp.exp(log_probability - old)
    clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
    return jnp.minimum(ratio * advantage, clipped * advantage)


class PolicyGradient(Objective):
    """Advantage actor-critic and PPO; see the module's docstring.

    Schedules count epochs, not updates.
    """

    def __init__(
        self,
        environment: Environment,
        policy: Any,
        optimizer: optax.GradientTransformation,
        weights: PolicyLoss | ConfigDict,
        *,
        horizon: int,
        environments: int = 0,
        auxiliary: Auxiliary | None = None,
    ):
        """Creates the objective.

        Args:
            environment: an environment.
            policy: a Flax module with the methods of `Policy`.
            optimizer: receives the gradient of the mean over steps.
            weights: `config.loss`.
            horizon: T.
            environments: B if environments go on from update to update, which needs
                `config.parallel` "jit"; else 0.
            auxiliary: another reward and loss.
        """
        self.environment, self.policy, self.optimizer = environment, policy, optimizer
        self.weights, self.horizon, self.environments = weights, horizon, environments
        self.auxiliary = auxiliary

    def init(self, rng: jax.Array) -> TrainState:
        """Returns the state before the first step."""
        rngs = jax.random.split(rng, 3)
        running = self._begin(jax.random.split(rngs[0], self.environments or 1))
        _, observation, memory = running
        created = self.policy.init(rngs[1], memory, observation, method="step")
        params = {"policy": created["params"]}
        if self.auxiliary:
            params["auxiliary"] = self.auxiliary.init(rngs[2], observation)
        extra = running if self.environments else None
        return TrainState.create(params, self.optimizer, extra)

    def _begin(self, keys: jax.Array) -> Running:
        state, observation = jax.vmap(self.environment.reset)(keys)
        return Running(state, observation, self.policy.start(len(keys)))

    def step(
        self, state: TrainState, batch: Any, rng: jax.Array
    ) -> tuple[TrainState, Metrics]:
        """Runs the environments and takes the epochs; see `Objective.step`.

        The seeds of the batch {"seed": uint32 [B, 2]} are the only source of random
        numbers.
        """
        return self.update(state, batch, rng)[:2]

    def update(
        self, state: TrainState, batch: Any, rng: jax.Array
    ) -> tuple[TrainState, Metrics, Rollout]:
        """Takes a step; returns also its rollout."""
        params, begin = sharding.all_gather(state.params), state.extra
        rollout, end = self.rollout(params, batch["seed"], begin)
        last = jnp.zeros(len(batch["seed"]))
        if self.environments:
            variables = {"params": params["policy"]}
            _, _, last = self.policy.apply(
                variables, end.memory, end.observation, method="step"
            )
        reward = self.weights.reward * rollout.reward
        if self.auxiliary:
            reward += self.auxiliary.apply(params["auxiliary"], rollout)[0]
        advantage = advantages(
            reward,
            rollout.value,
            rollout.done,
            last,
            discount=self.weights.discount,
            trace=self.weights.trace,
        )
        target = advantage + rollout.value  # [B, T]
        if self.weights.normalize:
            advantage = self._normalized(advantage)
        memory = begin.memory if self.environments else None
        parts = jax.lax.stop_gradient((memory, rollout, advantage, target))

        def epoch(state: TrainState, _: None) -> tuple[TrainState, Metrics]:
            grads, metrics = gradients(self.loss, state.params, parts, rng)
            return state.update(grads, self.optimizer), metrics

        new, metrics = jax.lax.scan(epoch, state, None, self.weights.epochs)
        extra = end if self.environments else None
        new = dataclasses.replace(new, step=state.step + 1, extra=extra)
        return new, jax.tree.map(lambda x: x.sum(0), metrics), rollout

    def rollout(
        self, params: Any, seed: jax.Array, begin: Running | None = None
    ) -> tuple[Rollout, Running]:
        """Runs B environments for T steps, with actions drawn from the policy.

        Args:
            params: `TrainState.params`.
            seed: uint32 [B, 2].
            begin: environments that go on; None for new ones.

        Returns:
            The steps, and the environments after them.
        """
        variables = {"params": params["policy"]}
        keys = step_keys(seed, self.horizon)
        begin = self._begin(keys[:, 0]) if begin is None else begin

        def draw(state, logits, rngs):  # a step of a single environment
            action = jax.random.categorical(rngs[0], logits)
            state, following, reward, done = self.environment.step(
                state, action, rngs[1]
            )
            step = action, jnp.asarray(reward, jnp.float32), done, following
            return state, following, step

        def act(running, rng):
            state, observation, memory = running
            memory, logits, value = self.policy.apply(
                variables, memory, observation, method="step"
            )
            rngs = jax.vmap(lambda x: jax.random.split(x, 3))(rng)
            state, new, step = jax.vmap(draw)(state, logits, rngs)
            running = Running(state, new, memory)
            if self.environments:
                running = self._restarted(step[2], rngs[:, 2], running)
            chosen = _log_probability(logits, step[0])
            return running, Rollout(observation, *step, chosen, value)

        end, rollout = jax.lax.scan(act, begin, keys[:, 1:].T)
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), rollout), end

    def _restarted(self, done: jax.Array, keys: jax.Array, running: Running) -> Running:
        """Resets the environments that are done, with their memories."""
        return jax.lax.cond(  # on a CPU, a reset can be slow, and few steps need one
            done.any(),
            lambda: jax.vmap(_where)(done, self._begin(keys), running),
            lambda: running,
        )

    def _forget(self, memory: Any, done: jax.Array) -> Any:
        """Returns memories [B, ...], those of environments that are done at start."""
        return jax.vmap(_where)(done, self.policy.start(len(done)), memory)

    def _normalized(self, advantage: jax.Array) -> jax.Array:
        moments = advantage.sum(), jnp.square(advantage).sum(), 1.0 * advantage.size
        total, squares, count = parallel.psum(moments)
        mean = total / count
        std = jnp.sqrt(jnp.maximum(squares / count - mean**2, 0))
        return (advantage - mean) / (std + 1e-8)

    def loss(self, params: Any, parts: Any, rng: jax.Array) -> LossResult:
        """Returns the loss of an epoch.

        Args:
            params: `TrainState.params`.
            parts: memories before the rollout, of environments that go on; the
                `Rollout`; advantages [B, T]; the targets of the values, [B, T].
            rng: not used.
        """
        memory, rollout, advantage, target = parts
        variables = {"params": params["policy"]}
        if self.environments:
            logits, value = self._by_steps(variables, memory, rollout)
        else:
            logits, value = self.policy.apply(variables, rollout.observation)
        chosen = _log_probability(logits, rollout.action)
        log_probabilities = jax.nn.log_softmax(logits)  # [B, T, A]
        entropy = -(jnp.exp(log_probabilities) * log_probabilities).sum(-1)
        gain = surrogate(chosen, rollout.log_probability, advantage, self.weights.clip)
        error = jnp.square(value - target) / 2
        loss = self.weights.value * error - gain - self.weights.entropy * entropy
        count, rows = jnp.asarray(loss.size, jnp.float32), jnp.float32(len(loss))
        metrics = {
            "reward": (rollout.reward.sum(), rows),  # of a whole rollout
            "entropy": (entropy.sum(), count),
            "value_error": (error.sum(), count),
        }
        if self.auxiliary:
            _, other, more = self.auxiliary.apply(params["auxiliary"], rollout)
            loss, metrics = loss + other, metrics | more
        return loss.sum(), (count, metrics)

    def _by_steps(self, variables: Any, memory: Any, rollout: Rollout) -> Any:
        """Returns logits [B, T, A] and values [B, T] of environments that go on."""

        def step(memory, inputs):
            observation, done = inputs
            memory, *outputs = self.policy.apply(
                variables, memory, observation, method="step"
            )
            return self._forget(memory, done), outputs

        inputs = rollout.observation, rollout.done
        inputs = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), inputs)
        _, outputs = jax.lax.scan(step, memory, inputs)
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), outputs)


def _where(condition: jax.Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _log_probability(logits: jax.Array, action: jax.Array) -> jax.Array:
    """Log-probability of actions [...] under logits [..., A]."""
    return -optax.softmax_cross_entropy_with_integer_labels(logits, action)
