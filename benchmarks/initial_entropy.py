"""Entropy of attention before training, by score and width of its keys.

    python -m benchmarks.initial_entropy

Vaswani et al. (2017, section 3.2.1) suspect that dot products of wide keys saturate the
softmax, and divide them by the square root of the width. The table shows how far from
uniform the weights of `luong_nmt:britz` are before its first step: their entropy over
the source divided by that of uniform weights, as a mean over the target tokens of the
validation split. The rows `dot` and `scaled_dot` are for the queries and keys that the
paper's footnote supposes, of independent elements with mean 0 and variance 1, and ten
keys. Writes `results/records/initial_entropy.json`: entropies of the seeds, by score
and width.
"""

import json
import math
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from attention import SCORES, entropy
from base.records import AttentionRecord, records_of
from configs import luong_nmt
from results.records import INITIAL_ENTROPY, write_json
from tasks.common.vocabulary import PAD
from tasks.translation.batching import Batch, eval_batches
from tasks.translation.corpus import TextAssets
from tasks.translation.task import Translation

TRANSLATORS = "multiplicative", "scaled_multiplicative", "additive"
SUPPOSED = "dot", "scaled_dot"
WIDTHS = 8, 32, 128, 512
SEEDS = 0, 1, 2


def main() -> None:
    """Measures every score and width, and writes the record."""
    with tempfile.TemporaryDirectory() as folder:
        assets = Translation.prepare(config(), Path(folder), training=True)
        texts = assets.pairs("validation")
    source, target = map(assets.vocabulary.encode_all, texts)
    batches = [batch for _, batch in eval_batches(source, target)]

    def share(score: str, width: int, seed: int) -> float:
        if score in SUPPOSED:
            return supposed(score, width, seed)
        return measure(config(score, width), assets, batches, seed)

    entropies = {
        score: {w: [round(share(score, w, seed), 4) for seed in SEEDS] for w in WIDTHS}
        for score in SUPPOSED + TRANSLATORS
    }
    write_json(INITIAL_ENTROPY, entropies)
    print(json.dumps(entropies, indent=2))


def config(score: str = TRANSLATORS[0], width: int = WIDTHS[0]) -> ConfigDict:
    """Returns the config of a score of that width."""
    result = luong_nmt.get_config("britz")
    result.model.score, result.model.score_hidden = score, width
    return result


def supposed(score: str, width: int, seed: int) -> float:
    """Returns the share for 10,000 random queries and ten keys each."""
    shapes = (10_000, 1, width), (10_000, 10, width)
    keys = jax.random.split(jax.random.key(seed))
    query, key = map(jax.random.normal, keys, shapes)
    weights = jax.nn.softmax(SCORES[score](query, key))
    return float(jnp.mean(entropy(weights))) / math.log(10)


def measure(
    config: ConfigDict, assets: TextAssets, batches: list[Batch], seed: int
) -> float:
    """Returns the mean share of the highest possible entropy, from 0 to 1."""
    task = Translation(config, assets)
    params = task.objective.init(jax.random.key(seed)).params

    @jax.jit
    def sums(batch: Batch) -> tuple[jax.Array, jax.Array]:
        _, sown = task.model.apply(
            {"params": params}, batch, train=False, mutable=["attention"]
        )
        (record,) = records_of(sown, AttentionRecord)
        real = batch["target"] != PAD  # [B, T]
        return jnp.sum(real * shares(record.weights[:, 0], batch)), jnp.sum(real)

    totals = [sums(batch) for batch in batches]
    total, count = (sum(map(float, column)) for column in zip(*totals, strict=True))
    return total / count


def shares(weights: jax.Array, batch: Batch) -> jax.Array:
    """Returns the entropy of weights [B, T, S] divided by that of uniform weights."""
    lengths = jnp.sum(batch["source"] != PAD, axis=-1, keepdims=True)
    return entropy(weights) / jnp.log(jnp.maximum(lengths, 2))


if __name__ == "__main__":
    main()
