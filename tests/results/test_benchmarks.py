"""Counts of operations and parameters, optimizers, and entropies in the benchmarks."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks import initial_entropy
from benchmarks.harness import OURS
from benchmarks.systems.ours import gflop, make_config, read_config, stand_in
from benchmarks.table import BENCHMARKS
from configs import transformer_nmt
from results.records import BENCHMARKS as FILE
from results.records import FOLDER, INITIAL_ENTROPY, read, read_json
from tasks.common.vocabulary import PAD
from training.optimizers import muon

SYSTEMS = {
    f"{name}: {system.name}": (name, system)
    for name, benchmark in BENCHMARKS.items()
    for system in benchmark.systems
    if "malloc" not in system.name
}
RECORDS = {record["name"]: record for record in read(FOLDER / FILE)}
PROJECT = [
    key
    for key, (_, system) in SYSTEMS.items()
    if system.module == "ours" and system.mode != "rollout"  # no model
]


@pytest.mark.parametrize("key", PROJECT)
def test_a_benchmark_has_the_model_of_its_record_and_a_plain_optimizer(key, tmp_path):
    name, system = SYSTEMS[key]
    config = read_config(system.mode, system.spec)
    assets = stand_in(config)
    if system.spec.get("prepares"):
        assets = config.task.prepare(config, tmp_path, training=True)
    task = config.task(config, assets)
    state = jax.eval_shape(task.objective.init, jax.random.key(0))
    parameters = sum(x.size for x in jax.tree.leaves(state.params))
    assert RECORDS[name]["systems"][system.name]["parameters"] == parameters
    groups = ["generator", "discriminator"] if name == "sagan_step" else ["optimizer"]
    sgd = name == "memory_network_step"
    assert {config[group].name for group in groups} == {"sgd" if sgd else "adam"}


# Names of this project's systems, and how many fewer parameters they have and why.
PEERS = {
    # No biases in the four projections of an attention.
    "transformer_step: torch.nn.Transformer": (OURS, 3 * 3 * 4 * 256),
    "transformer_step: JoeyNMT": (OURS, 3 * 3 * 4 * 256),
    "transformer_base: torch.nn.Transformer": (OURS, 6 * 3 * 4 * 512),
    "decoding: JoeyNMT": (OURS, 3 * 3 * 4 * 256),
    # One vector of biases in each of three cells, none where state and context meet.
    "recurrent_step: JoeyNMT, Bahdanau": (
        f"{OURS}, Bahdanau as JoeyNMT has it",
        3 * 3 * 512 + 512,
    ),
    # Here h and c give the first h and c, there h gives both.
    "recurrent_step: JoeyNMT, Luong": (
        f"{OURS}, Luong",
        3 * 4 * 512 + 512 + 1025 * 512 - 2049 * 2 * 512,
    ),
    "lstmn_step: PyTorch loop": (OURS, 0),
    "memory_network_step: MemN2N-pytorch style": (f"{OURS}, one model", 0),
    # No biases from the state of the core to the next.
    "ram_step: kevinzakka style": (OURS, 256),
    # One vector of biases; the first vector that is read is learned.
    "ntm_step: pytorch-ntm style, batch 1": (f"{OURS}, batch 1", 400 - 20),
    # No layer that mixes state and context; biases as above; an end symbol.
    "pointer_step: PointerNet style": (OURS, 513 * 256 + 2 * 4 * 256 + 2 * 256 - 256),
}


@pytest.mark.parametrize("key", PEERS)
def test_a_benchmark_compares_models_of_the_same_size(key):
    name, peer = SYSTEMS[key]
    system, fewer = PEERS[key]
    measured = RECORDS[name]["systems"]
    theirs = measured[peer.name]["parameters"]
    assert measured[system]["parameters"] == theirs - fewer


def test_no_default_of_a_translator_reaches_the_benchmark(monkeypatch):
    spec = SYSTEMS["transformer_step: this project"][1].spec

    def default(variant=""):
        config = get_config(variant)
        config.optimizer = muon(0.1, clip=3.0)
        changes = {"positions": "rotary", "norm": "post", "cross_score": "additive"}
        config.model.update(changes | {"cross_alignment": "local_p"})
        return config

    get_config, expected = transformer_nmt.get_config, make_config(spec)
    monkeypatch.setattr(transformer_nmt, "get_config", default)
    config = make_config(spec)
    assert (config.model, config.optimizer) == (expected.model, expected.optimizer)
    assert (config.optimizer.name, config.optimizer.clip) == ("adam", 0.0)
    assert make_config(spec | {"clip": 1.0}).optimizer.clip == 1.0
    assert config.model.positions == "sinusoidal"


def test_a_product_in_a_scan_counts_once_per_iteration():
    def step(x, weights):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0].sum()

    x, weights = jnp.ones((3, 5)), jnp.ones((7, 5, 5))
    product = 2e-9 * 3 * 5 * 5
    assert jnp.isclose(gflop(step, x, weights), 7 * product)
    # Backward: one product for the weights and one for x.
    assert jnp.isclose(gflop(jax.grad(step, (0, 1)), x, weights), 3 * 7 * product)


def test_a_convolution_has_as_many_products_as_its_kernel_has_positions():
    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            window_strides=(1, 1),
            padding="SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    x, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((5, 5, 3, 11))
    assert jnp.isclose(
        gflop(jax.jit(convolve), x, kernel), 2e-9 * 2 * 8 * 8 * 11 * 5 * 5 * 3
    )


def test_initial_entropies_are_shares_of_the_entropy_of_uniform_weights():
    tokens = jnp.array([[5, 6, 7, PAD], [5, 6, PAD, PAD]])
    uniform = jnp.array([[[1 / 3, 1 / 3, 1 / 3, 0]], [[0.5, 0.5, 0, 0]]])
    certain = jnp.array([[[0.0, 1, 0, 0]], [[1.0, 0, 0, 0]]])
    assert jnp.allclose(initial_entropy.shares(uniform, {"source": tokens}), 1)
    assert jnp.allclose(initial_entropy.shares(certain, {"source": tokens}), 0)


def test_the_initial_entropies_of_every_score_and_width_are_recorded():
    saved = read_json(INITIAL_ENTROPY)
    assert tuple(saved) == initial_entropy.SUPPOSED + initial_entropy.TRANSLATORS
    for widths in saved.values():
        assert tuple(widths) == tuple(map(str, initial_entropy.WIDTHS))
        assert {len(values) for values in widths.values()} == {
            len(initial_entropy.SEEDS)
        }


def test_the_scale_keeps_the_entropy_of_wide_dot_products():
    narrow, wide = (initial_entropy.supposed("scaled_dot", w, seed=0) for w in (8, 128))
    assert abs(narrow - wide) < 0.02
    assert initial_entropy.supposed("dot", 128, seed=0) < 0.2
