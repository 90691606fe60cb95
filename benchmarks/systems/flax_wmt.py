"""A Transformer and a beam search in the style of Flax's WMT example.

A compact rewriting of the published example: pre-norm blocks of
`nn.MultiHeadDotProductAttention` without biases and with dropout of the weights, a
one-hot smoothed cross-entropy over log-softmax, Adam. Its beam search flattens the beam
into the batch, tiles the encoded sources, gathers the whole key-value cache along the
parents at every step, and takes the top 2 K of K W log-probabilities.

Modes: "step" is one training step, "decode" beam search of one batch.

Axes: B batch; S source positions; T target steps; L decoded length; C model width; K
beam; W vocabulary.
"""

from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

PAD, BOS = 0, 1
NEVER = -1.0e7  # the example's minus infinity


def sinusoids(length: int, width: int) -> np.ndarray:
    """Sinusoids [length, width], sines in the first half of the columns."""
    rates = 1e4 ** (-np.arange(width // 2) / (width // 2 - 1))
    angles = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


class Stack(nn.Module):
    """Pre-norm blocks: self-attention, cross-attention if `encoded`, feed-forward."""

    spec: dict
    decode: bool = False

    @nn.compact
    def __call__(self, ids, mask, encoded=None, cross_mask=None, *, train):
        """Maps ids [B, T] to [B, T, C]."""
        spec, rate = self.spec, self.spec["dropout"]
        width = spec["d_model"]

        def dropout(x):
            return nn.Dropout(rate, deterministic=not train)(x)

        def attention(query, key, mask, decode=False):
            return nn.MultiHeadDotProductAttention(
                spec["heads"],
                use_bias=False,
                kernel_init=nn.initializers.xavier_uniform(),
                broadcast_dropout=False,
                dropout_rate=rate,
                deterministic=not train,
                decode=decode,
            )(query, key, mask=mask)

        table = nn.Embed(
            spec["vocab_size"], width, embedding_init=nn.initializers.normal(1.0)
        )
        x = table(ids)
        if self.decode:
            start = not self.has_variable("cache", "index")
            index = self.variable("cache", "index", lambda: jnp.uint32(0))
            length = ids.shape[1] if start else 1
            positions = jnp.asarray(sinusoids(512, width))
            x += jax.lax.dynamic_slice_in_dim(positions, index.value, length)
            index.value += 0 if start else 1
        else:
            x += sinusoids(512, width)[: ids.shape[1]]
        x = dropout(x)
        for _ in range(spec["layers"]):
            y = nn.LayerNorm()(x)
            x += dropout(attention(y, y, mask, self.decode))
            if encoded is not None:
                x += dropout(attention(nn.LayerNorm()(x), encoded, cross_mask))
            y = nn.Dense(spec["d_ff"])(nn.LayerNorm()(x))
            x += dropout(nn.Dense(width)(dropout(nn.relu(y))))
        return nn.LayerNorm()(x)


class Transformer(nn.Module):
    """Encoder, decoder and output layer with separate vocabularies."""

    spec: dict
    decode: bool = False

    def setup(self):  # noqa: D102
        self.encoder = Stack(self.spec)
        self.decoder = Stack(self.spec, self.decode)
        self.output = nn.Dense(self.spec["vocab_size"])

    def encode(self, source, *, train=False):
        """Encodes ids [B, S] to [B, S, C]."""
        mask = nn.make_attention_mask(source > 0, source > 0)
        return self.encoder(source, mask, train=train)

    def read(self, encoded, source, target, *, train=False):
        """Returns logits [B, T, W]; shifts the target right unless decoding."""
        inputs = target
        if self.decode:
            mask, valid = None, jnp.ones_like(target, bool)
        else:
            mask = nn.combine_masks(
                nn.make_attention_mask(target > 0, target > 0),
                nn.make_causal_mask(target),
            )
            valid = target > 0
            inputs = jnp.pad(target[:, :-1], ((0, 0), (1, 0)))
        cross = nn.make_attention_mask(valid, source > 0)
        return self.output(self.decoder(inputs, mask, encoded, cross, train=train))

    def __call__(self, source, target, *, train):
        """Returns logits [B, T, W]."""
        encoded = self.encode(source, train=train)
        return self.read(encoded, source, target, train=train)


def loss_sum(logits, targets, smoothing):
    """Returns smoothed cross-entropy with one-hot targets, as (sum, count)."""
    vocab = logits.shape[-1]
    low = smoothing / (vocab - 1)
    constant = -((1 - smoothing) * np.log(1 - smoothing) + smoothing * np.log(low))
    hot = targets[..., None] == jnp.arange(vocab)
    soft = jnp.where(hot, 1 - smoothing, low).astype(jnp.float32)
    loss = -jnp.sum(soft * nn.log_softmax(logits), axis=-1) - constant
    weights = jnp.where(targets > 0, 1.0, 0.0)
    return jnp.sum(loss * weights), jnp.sum(weights)


def train_step(model, optimizer, smoothing):
    """Returns the jitted step(params, opt_state, batch, rng, i)."""

    def step(params, opt_state, source, target, rng, i):
        def loss(params):
            rngs = {"dropout": jax.random.fold_in(rng, i)}
            variables = {"params": params}
            logits = model.apply(variables, source, target, train=True, rngs=rngs)
            total, count = loss_sum(logits, target, smoothing)
            return total / count

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return jax.jit(step, donate_argnums=(0, 1))


def flatten(x):
    """Reshapes [B, K, ...] to [B * K, ...]; scalars are unchanged."""
    return x.reshape(-1, *x.shape[2:]) if x.ndim > 1 else x


def gather(tree, parents):
    """Gathers leaves [B, K, ...] along parents [B, K']; scalars are unchanged."""
    rows = jnp.arange(parents.shape[0])[:, None]
    return jax.tree.map(lambda x: x[rows, parents] if x.ndim > 1 else x, tree)


def beam_search(model, params, cache, encoded, source, beam, length, alpha):
    """Returns the best sequences [B, L]; `cache` has [B, K, ...] leaves.

    No token ends a hypothesis: all run to the last step.
    """
    batch, eos = len(source) // beam, -1
    never = jnp.full((batch, beam), NEVER)
    sequences = jnp.zeros((batch, beam, length + 1), jnp.int32)

    def penalty(n):
        return ((5.0 + n) / 6.0) ** alpha

    def going(state):
        i, live_scores, finished_scores, *_ = state
        best = live_scores[:, 0] / penalty(length)
        return (i < length) & jnp.any(best > finished_scores.min(1))

    def extend(state):
        i, live_scores, finished_scores, live, finished, flags, cache = state
        token = jax.lax.dynamic_slice_in_dim(live, i, 1, axis=2)
        logits, changed = model.apply(
            {"params": params, "cache": jax.tree.map(flatten, cache)},
            encoded,
            source,
            flatten(token),
            method="read",
            mutable=["cache"],
        )

        def unflatten(x):
            return x.reshape(batch, beam, *x.shape[1:]) if x.ndim else x

        cache = jax.tree.map(unflatten, changed["cache"])
        log_probs = nn.log_softmax(unflatten(logits[:, 0])) + live_scores[..., None]
        vocab = log_probs.shape[-1]
        scores, flat = jax.lax.top_k(log_probs.reshape(batch, -1), 2 * beam)
        chosen = gather(live, flat // vocab)
        chosen = chosen.at[:, :, i + 1].set(flat % vocab)
        ended = chosen[:, :, i + 1] == eos
        _, order = jax.lax.top_k(scores + ended * NEVER, beam)
        survivors = gather([chosen, scores + ended * NEVER, flat // vocab], order)
        live, live_scores, parents = survivors
        cache = gather(cache, parents)
        ending = scores / penalty(i + 1) + ~ended * NEVER
        pool = jnp.concatenate([finished_scores, ending], 1)
        _, order = jax.lax.top_k(pool, beam)
        parts = [
            jnp.concatenate([finished, chosen], 1),
            pool,
            jnp.concatenate([flags, ended], 1),
        ]
        finished, finished_scores, flags = gather(parts, order)
        return i + 1, live_scores, finished_scores, live, finished, flags, cache

    first = jnp.full((batch, beam), NEVER).at[:, 0].set(0.0)
    flags = jnp.zeros((batch, beam), bool)
    state = 0, first, never, sequences, sequences, flags, cache
    _, _, _, live, finished, flags, _ = jax.lax.while_loop(going, extend, state)
    any_finished = jnp.any(flags, axis=1)[:, None]
    return jnp.where(any_finished, finished[:, 0, 1:], live[:, 0, 1:])


def build(mode: str, spec: dict):
    """Returns the step of the mode, and the facts about the system."""
    rng = jax.random.key(0)
    draw = np.random.default_rng(0)
    shape = spec["batch_size"], spec["source"]
    source = draw.integers(4, spec["vocab_size"], shape, np.int32)
    shape = spec["batch_size"], spec["target"]
    target = draw.integers(4, spec["vocab_size"], shape, np.int32)
    model = Transformer(spec)
    init = jax.jit(lambda rng: model.init(rng, source, target, train=False)["params"])
    params = init(rng)
    info = {
        "parameters": sum(x.size for x in jax.tree.leaves(params)),
        "versions": {"jax": jax.__version__, "flax": version("flax")},
    }
    if mode == "step":
        optimizer = optax.adam(1e-4, b1=0.9, b2=0.98, eps=1e-9)
        run = train_step(model, optimizer, spec["smoothing"])
        state = [params, optimizer.init(params), 0]

        def step() -> float:
            params, opt_state, i = state
            params, opt_state, loss = run(params, opt_state, source, target, rng, i)
            loss.block_until_ready()
            state[:] = params, opt_state, i + 1
            return target.size

    else:
        length, beam = spec["target"], spec["beam"]
        decoder = Transformer(spec, decode=True)

        @jax.jit
        def translate(params, source):
            encoded = decoder.apply({"params": params}, source, method="encode")
            tiled = [jnp.repeat(x, beam, axis=0) for x in (encoded, source)]
            full = jnp.ones((len(source) * beam, length), jnp.int32)
            cache = decoder.init(rng, *tiled, full, method="read")["cache"]
            cache = jax.tree.map(
                lambda x: x.reshape(-1, beam, *x.shape[1:]) if x.ndim else x, cache
            )
            return beam_search(
                decoder, params, cache, *tiled, beam, length, spec["alpha"]
            )

        def step() -> float:
            out = translate(params, source).block_until_ready()
            assert out.shape == (spec["batch_size"], length) and (out != PAD).all()
            return spec["batch_size"]

    return step, info
